"""List the expected calls of each conversation with the actual calls that match them.

A call is expected of the agent or, with `"requestor": "user"`, of the user. It is matched against the calls of
that side. In a conversation without user messages, the agent acts for both sides. The best one-to-one matching
is used, so that an actual call matches at most one expected call.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
from pydantic import JsonValue

from agent_eval.formats.json_text import dumps
from agent_eval.scores.tools.calls import Call, ExpectedCall, MalformedCallError, read_calls, read_expected
from agent_eval.scores.tools.trajectory import partners
from agent_eval.tables import table
from agent_eval.transcripts.frames import has_ground_truth
from agent_eval.transcripts.models import EXPECTED, Expected, n_turn_indexes

RECORDED = "action_matches"
"""Key of a conversation's metadata with the source's own result for each expected call, in order."""
NO_USER = "no user takes part: matched against the calls of the agent"
_CONVERSATION = ("agent_id", "conversation_id")
Row = dict[str, object]
Side = str  # 'assistant' or 'user'
ExpectedTool = Mapping[str, JsonValue]


def side_of(call: ExpectedTool, *, has_user: bool) -> Side:
    """Return the side that should make the call; it is the user only if the conversation has a user."""
    return "user" if has_user and call.get("requestor") == "user" else "assistant"


def of_agent(entry: Expected, *, has_user: bool) -> Expected | None:
    """Return the entry with only the agent's expected calls; None if it does not concern the agent's calls."""
    if entry.tools is None:
        return None
    own = tuple(call for call in entry.tools if side_of(call, has_user=has_user) == "assistant")
    return entry.model_copy(update={"tools": own}) if own or not entry.tools else None


def as_demanded(call: ExpectedTool) -> ExpectedTool:
    """Return the call as `tool_correctness` compares it: extra arguments are allowed unless match is exact."""
    return call if "match" in call or not call.get("arguments") else {**call, "match": "partial"}


def expected_calls(conversations: pl.DataFrame, tool_calls: pl.DataFrame) -> pl.DataFrame:
    """Return table expected_calls: one row per expected call, sorted."""
    target = table("expected_calls")
    naming = conversations.filter(has_ground_truth())
    calls_of_conversation: dict[tuple[str, str], list[_Made]] = {}
    relevant = tool_calls.join(naming, on=list(_CONVERSATION), how="semi")
    for row in relevant.sort(*_CONVERSATION, "turn_index", "call_index").iter_rows(named=True):
        conversation_calls = calls_of_conversation.setdefault((row["agent_id"], row["conversation_id"]), [])
        conversation_calls.append(
            _Made(row["turn_index"], row["call_index"], row["requestor"], _read_made(row), row["name"])
        )
    columns = (*_CONVERSATION, "expected", "n_turns", "n_user_messages", "metadata")
    rows = [
        {"agent_id": agent, "conversation_id": conversation} | row
        for agent, conversation, text, n_turns, n_users, metadata in naming.select(columns).iter_rows()
        for row in _with_recorded(
            _of_conversation(
                EXPECTED.validate_json(text),
                calls_of_conversation.get((agent, conversation), []),
                n_turn_indexes(n_turns, n_users),
                n_users != 0,
            ),
            metadata,
        )
    ]
    return target.conform(target.frame(rows)).sort(target.key)


@dataclass(frozen=True)
class _Made:
    """Hold an actual call with its position."""

    turn_index: int
    call_index: int
    side: Side
    call: Call | None  # None if its arguments cannot be read
    name: str


@dataclass
class _Wanted:
    """Hold an expected call with its result row and notes."""

    call: ExpectedCall | None
    row: Row
    notes: list[str] = field(default_factory=list[str])


def _read_made(row: Mapping[str, object]) -> Call | None:
    try:
        return read_calls([{"name": row["name"], "arguments": row["arguments"]}])[0]
    except MalformedCallError:
        return None


def _of_conversation(
    expected: Sequence[Expected], actual_calls: Sequence[_Made], n_turns: int, has_user: bool
) -> list[Row]:
    every: list[_Wanted] = []
    groups: dict[tuple[int | None, Side], list[_Wanted]] = {}
    for entry in expected:
        for call in entry.tools or ():
            expected_call = _wanted(call, entry.turn_index, len(every))
            side = side_of(call, has_user=has_user)
            if call.get("requestor") == "user" and side != "user":
                expected_call.notes.append(NO_USER)
            every.append(expected_call)
            groups.setdefault((entry.turn_index, side), []).append(expected_call)
    for (turn, side), of_group in groups.items():
        if turn is not None and n_turns is not None and turn >= n_turns:
            for expected_call in of_group:
                expected_call.notes.append(f"turn {turn} is not there: the conversation has {n_turns}")
        else:
            _match(of_group, [m for m in actual_calls if m.side == side and turn in (None, m.turn_index)])
    return [expected_call.row | {"note": "; ".join(expected_call.notes) or None} for expected_call in every]


def _wanted(call: ExpectedTool, turn_index: int | None, call_index: int) -> _Wanted:
    name, requestor = call.get("name"), call.get("requestor")
    row: Row = {
        "turn_index": turn_index,
        "call_index": call_index,
        "name": name if isinstance(name, str) else None,
        "requestor": "user" if requestor == "user" else "assistant",
    }
    try:
        read = read_expected([as_demanded(call)])[0]
    except MalformedCallError as error:
        return _Wanted(None, row | {"arguments": dumps(call.get("arguments"))}, [str(error)])
    row |= {"arguments": dumps(read.arguments), "compare_args": read.compare_args}
    return _Wanted(read, row, [read.note] if read.note else [])


def _match(expected_rows: Sequence[_Wanted], actual_calls: Sequence[_Made]) -> None:
    """Write the matching call into each expected call's row; null if only an unreadable call might match."""
    readable = [(m, m.call) for m in actual_calls if m.call is not None]
    readable_expected = [(w, w.call) for w in expected_rows if w.call is not None]
    partner, _ = partners([[int(want.fits(call)) for _, call in readable] for _, want in readable_expected])
    for i, (row, want) in enumerate(readable_expected):
        partner_call = readable[partner[i]][0] if i in partner else None
        unread = next((m for m in actual_calls if m.call is None and m.name == want.name), None)
        if partner_call is not None:
            row.row |= {
                "matched_turn_index": partner_call.turn_index,
                "matched_call_index": partner_call.call_index,
            }
        elif unread is not None:
            where = f"call {unread.call_index} of turn {unread.turn_index}"
            row.notes.append(f"the arguments of {where} cannot be read")
        row.row["is_matched"] = (
            None if partner_call is None and unread is not None else partner_call is not None
        )


def _with_recorded(rows: Sequence[Row], metadata: str | None) -> Iterator[Row]:
    """Add the source's own results to the rows, if it has one for each of them."""
    verdicts = json.loads(metadata).get(RECORDED) if metadata else None
    flags = verdicts if isinstance(verdicts, list) and len(verdicts) == len(rows) else [None] * len(rows)
    for row, flag in zip(rows, flags, strict=True):
        yield row | {"recorded_match": flag if isinstance(flag, bool) else None}
