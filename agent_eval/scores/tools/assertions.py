"""Check the requirements in the conversations' `expected`, and report the differences.

There are three kinds of requirements:

- `tools`: the expected tools of an entry were called, in the given order if it matters. Additional calls are
  allowed here, but lower `tool_correctness`.
- `trajectory`: an object in `assertions` with `mode`, `tools` and `forbidden`; see `scores.tools.trajectory`.
- `text`: an object in `assertions` with `forbidden_text` or `required_text`: the agent's messages contain none, or all, of
  these texts, ignoring case; an entry of `required_text` may be a list of alternatives. A sentence in `assertions` is not compared with the transcript, so its result is unknown.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from agent_eval.errors import InvalidValueError
from agent_eval.scores.tools.expected_calls import as_demanded, of_agent
from agent_eval.scores.tools.trajectory import MalformedCallError, TrajectoryMatch, match
from agent_eval.tables import table
from agent_eval.tables.frames import Conversations, ToolCalls, Transcripts
from agent_eval.transcripts.frames import has_ground_truth
from agent_eval.transcripts.models import EXPECTED, Expected, n_turn_indexes
from agent_eval.transcripts.outcomes import HARNESS_FAILED, UNEXPLAINED

NO_JUDGE = "written in words: no judge holds it against the transcript"
NOTHING_REQUIRED = "it requires nothing: contains needs tools or forbidden calls"
_KEYS = {"mode", "tools", "forbidden", "at_most_once"}
_CONVERSATION = ("agent_id", "conversation_id")
_TEXTS = {"forbidden_text": "never says", "required_text": "says"}
Calls = Sequence[tuple[int, Mapping[str, object]]]
Texts = list[tuple[int, str]]
"""Turn index and text of the agent's messages."""
Row = dict[str, object]


def assertion_results(
    transcripts: Transcripts,
    conversations: Conversations,
    tool_calls: ToolCalls,
    turns: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return table assertion_results: one row per requirement of the admitted conversations.

    Only the agent's calls are compared. `turns` has agent_id, conversation_id, turn_index and agent_message; without it,
    assertions on texts are unknown.
    """
    target = table("assertion_results")
    asserting = conversations.filter(has_ground_truth())
    admitted = transcripts.filter("is_admitted").select("methodology_version", *_CONVERSATION, "slot")
    asserting = asserting.join(admitted, on=list(_CONVERSATION), how="semi")
    own = tool_calls.filter(pl.col("requestor") == "assistant").join(
        asserting, on=list(_CONVERSATION), how="semi"
    )
    calls: dict[tuple[str, str], list[tuple[int, Mapping[str, object]]]] = {}
    for row in own.sort(*_CONVERSATION, "turn_index", "call_index").iter_rows(named=True):
        call = {"name": row["name"], "arguments": row["arguments"]}
        calls.setdefault((row["agent_id"], row["conversation_id"]), []).append((row["turn_index"], call))
    texts: dict[tuple[str, str], Texts] = {}
    if turns is not None:
        replies = turns.join(asserting, on=list(_CONVERSATION), how="semi").sort(*_CONVERSATION, "turn_index")
        for agent, conversation, turn, message in replies.select(
            *_CONVERSATION, "turn_index", "agent_message"
        ).iter_rows():
            texts.setdefault((agent, conversation), []).append((turn, message or ""))
    rows = [
        {"agent_id": agent, "conversation_id": conversation}
        | row
        | _despite_error(row["result"], outcome_class)
        for agent, conversation, text, n_turns, n_users, outcome_class in asserting.select(
            *_CONVERSATION, "expected", "n_turns", "n_user_messages", "outcome_class"
        ).iter_rows()
        for row in _of_conversation(
            EXPECTED.validate_json(text),
            calls.get((agent, conversation), []),
            n_turn_indexes(n_turns, n_users),
            texts.get((agent, conversation)),
            has_user=n_users != 0,
        )
    ]
    result_rows = target.frame(rows).drop("methodology_version", "slot")
    joined = admitted.join(result_rows, on=list(_CONVERSATION))
    return target.selected(joined).sort(target.key)


def _despite_error(result: object, outcome_class: str | None) -> dict[str, object]:
    """Return the result that counts if an error of the harness, or of unknown cause, ended the conversation.

    What is missing after an error of unknown cause may be missing by the harness's fault.
    """
    if outcome_class == "harness_error":
        return {"result": "unknown", "reason": HARNESS_FAILED}
    if outcome_class == "unexplained_error" and result == "failed":
        return {"result": "unknown", "reason": UNEXPLAINED}
    return {}


def _of_conversation(
    expected: Sequence[Expected], calls: Calls, n_turns: int, texts: Texts | None, *, has_user: bool
) -> Iterator[Row]:
    numbered = 0
    for entry in expected:
        turn = entry.turn_index
        calls_in_scope = [call for at, call in calls if turn is None or at == turn]
        texts_in_scope = None if texts is None else [text for at, text in texts if turn is None or at == turn]
        own = of_agent(entry, has_user=has_user)
        demands: list[object] = [*([own] if own is not None else []), *entry.assertions]
        for demand in demands:
            row = _unknown("text", f"turn {turn} is not there: the conversation has {n_turns}")
            if turn is None or turn < n_turns:
                row = _held(demand, calls_in_scope, texts_in_scope)
            yield {"turn_index": turn, "assertion_index": numbered} | row
            numbered += 1


def _held(demand: object, actual_calls: Sequence[Mapping[str, object]], texts: Sequence[str] | None) -> Row:
    if isinstance(demand, Expected):
        return _tools(demand, actual_calls)
    if isinstance(demand, Mapping) and len(demand) == 1 and {*demand} <= {*_TEXTS}:
        return _text(next(iter(demand)), next(iter(demand.values())), texts)
    if isinstance(demand, Mapping):
        return _trajectory(demand, actual_calls)
    demand_text = demand if isinstance(demand, str) else f"a {type(demand).__name__}"
    return _unknown("text", NO_JUDGE if isinstance(demand, str) else "neither words nor an object") | {
        "assertion": demand_text
    }


def _tools(expected: Expected, actual_calls: Sequence[Mapping[str, object]]) -> Row:
    """Compare expected tools as `tool_correctness` does: extra arguments are allowed unless match is exact."""
    expected_calls = [as_demanded(call) for call in expected.tools or ()]
    names = ", ".join(str(call.get("name")) for call in expected_calls)
    demand_text = (
        f"calls {names}{' in this order' if expected.tool_sequence_matters else ''}"
        if names
        else "calls no tool"
    )
    try:
        comparison = match(actual_calls, expected_calls, mode="contains" if expected_calls else "strict")
    except MalformedCallError as error:
        return _unknown("tools", str(error)) | {"assertion": demand_text}
    in_time = not (expected.tool_sequence_matters and comparison.out_of_order)
    is_met = all(comparison.found) and in_time if expected_calls else comparison.matched
    return _row("tools", demand_text, is_met, comparison)


def _trajectory(demand: Mapping[str, object], actual_calls: Sequence[Mapping[str, object]]) -> Row:
    mode, tools, forbidden, single = (
        demand.get("mode", "strict"),
        demand.get("tools", []),
        demand.get("forbidden", []),
        demand.get("at_most_once", []),
    )
    if "mode" not in demand and "tools" not in demand:
        mode = "contains"  # if only calls are given that may not be made (again), all other calls are allowed
    if unknown := sorted(set(map(str, demand)) - _KEYS):
        return _unknown("trajectory", f"key {unknown[0]!r} is unknown. Allowed: {', '.join(sorted(_KEYS))}")
    if (
        not (isinstance(tools, list) and isinstance(forbidden, list) and isinstance(single, list))
        or not demand
    ):
        return _unknown(
            "trajectory", "expected an object with mode, and lists tools, forbidden or at_most_once"
        )
    barred = [f if isinstance(f, str | Mapping) else {} for f in forbidden]
    names = ", ".join(str(call.get("name")) if isinstance(call, Mapping) else "?" for call in tools)
    once = (
        f"; at most once: {', '.join(str(call.get('name')) for call in single if isinstance(call, Mapping))}"
        if single
        else ""
    )
    demand_text = f"{mode}: {names or 'no call'}{'; nothing forbidden' if barred else ''}{once}"
    if mode == "contains" and not tools and not barred and not single:
        return _unknown("trajectory", NOTHING_REQUIRED) | {"assertion": demand_text}
    try:
        comparison = match(actual_calls, tools, mode=mode, forbidden=barred)  # type: ignore[arg-type]  # the mode is checked there
        again = [
            name
            for call in single
            for name in match(actual_calls, [], mode="contains", forbidden=[call]).forbidden[1:]
        ]
    except (MalformedCallError, InvalidValueError) as error:
        return _unknown("trajectory", str(error)) | {"assertion": demand_text}
    row = _row("trajectory", demand_text, comparison.matched and not again, comparison)
    if again:
        row["reason"] = "; ".join(filter(None, (_told(comparison), f"made again: {', '.join(again)}")))
    return row


def _text(key: str, demanded: object, texts: Sequence[str] | None) -> Row:
    """Check texts that must not occur, or must all occur, in the agent's messages."""
    entries = [
        entry if isinstance(entry, list) else [entry]
        for entry in (demanded if isinstance(demanded, list) else ())
    ]
    is_required = key == "required_text"
    are_texts = all(isinstance(text, str) and text.strip() for entry in entries for text in entry)
    if not entries or not all(entries) or not are_texts or (not is_required and max(map(len, entries)) > 1):
        return _unknown("text", f"{key} is not a list of texts")
    names = [" or ".join(map(repr, entry)) for entry in entries]
    about: Row = {"assertion": f"{_TEXTS[key]} {', '.join(names)}"}
    if texts is None:
        return _unknown("text", "the agent's messages are not at hand") | about
    heard = [" ".join(text.split()).casefold() for text in texts]
    is_said = [
        any(" ".join(text.split()).casefold() in heard_text for text in entry for heard_text in heard)
        for entry in entries
    ]
    wrong = [name for name, occurs in zip(names, is_said, strict=True) if occurs != is_required]
    reason = f"{'did not say' if is_required else 'said'}: {', '.join(wrong)}" if wrong else None
    return about | {"kind": "text", "result": "failed" if wrong else "passed", "reason": reason, "diff": ""}


def _row(kind: str, demand_text: str, is_met: bool, comparison: TrajectoryMatch) -> Row:
    return {
        "kind": kind,
        "assertion": demand_text,
        "result": "passed" if is_met else "failed",
        "reason": None if is_met else _told(comparison),
        "diff": comparison.diff,
    }


def _told(comparison: TrajectoryMatch) -> str:
    parts = (
        ("missing", comparison.missing),
        ("forbidden", comparison.forbidden),
        ("out of order", comparison.out_of_order),
        ("not expected", comparison.extra),
    )
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)


def _unknown(kind: str, reason: str) -> Row:
    return {"kind": kind, "result": "unknown", "reason": reason}
