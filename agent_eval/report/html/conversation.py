"""Prepare the pages of one conversation: its messages turn by turn, with the judgments of each turn."""

import bisect
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from agent_eval.report.html import texts
from agent_eval.report.html.judgments import Gap, Opinion, gaps, in_versions, opinions
from agent_eval.report.html.tables import Row
from agent_eval.report.html.texts import ShownText, clean, shown
from agent_eval.report.links import partition_page
from agent_eval.report.names import TURNS_PER_PAGE, Paths
from agent_eval.transcripts.models import tokens_of

Quotes = Sequence[tuple[int, str]]
TOOL_LINES = 12  # longer tool calls and results are folded
LONGEST_TITLE = 110  # characters
WHOLE = -1  # the turn index that represents the whole conversation
_JSON = ("tools", "expected", "interventions", "injected_error", "metadata")


@dataclass(frozen=True)
class Material:
    """Hold all rows of one conversation.

    Equal judgments and ratings of several versions are merged into one row; column `versions` lists the versions.
    """

    conversation: Row
    transcripts: Sequence[Row]  # one per version
    turns: Sequence[Row]
    turn_judgments: Sequence[Row]
    conversation_judgments: Sequence[Row]
    rubric_ratings: Sequence[Row]
    tool_correctness: Sequence[Row]


@dataclass(frozen=True)
class Spoken:
    """Represent a message or a tool call for display."""

    kind: str  # user, agent, call, result, system
    title: str
    text: ShownText
    is_error: bool = False
    facts: tuple[str, ...] = ()
    anchor: int | None = None  # index of the message in the conversation, for the first item of a message
    depth: int = 0  # 1: a step of the turn, 2: its result
    is_cited: bool = False  # whether a finding of the turn cites the message


@dataclass(frozen=True)
class TurnView:
    """Represent one turn with its judgments."""

    index: int
    spoken: tuple[Spoken, ...]
    opinions: Sequence[Opinion]
    gaps: Sequence[Gap]
    tools: Sequence[Row]
    sums: tuple[str, ...] = ()  # steps, latency, tokens and cost of the turn, as far as they are known
    elsewhere: Mapping[int, str] = field(default_factory=dict)
    """Paths of the pages of the messages that the judgments cite on other pages."""
    anchors: Mapping[int, str] = field(default_factory=dict)
    """Those of them that no earlier turn of the page cites: they have a place on this page too, for links to it."""


def source_file(conversation: Row) -> str:
    """Return the path of the file that contains a conversation, relative to the data folder."""
    return f"sessions/{conversation['agent_id']}/{conversation['session_id']}/conversations.jsonl"


@dataclass(frozen=True)
class Neighbours:
    """Hold the ids of the previous and next conversation of the agent; None at the ends of the list."""

    before: str | None = None
    after: str | None = None


def neighbours(conversations: pl.DataFrame) -> dict[tuple[str, str], Neighbours]:
    """Return the neighbours of each conversation by (agent, conversation).

    The conversations of an agent are ordered by session and id.
    """
    ordered = conversations.select("agent_id", "session_id", "conversation_id").sort(pl.all())
    around = ordered.with_columns(
        before=pl.col("conversation_id").shift(1).over("agent_id"),
        after=pl.col("conversation_id").shift(-1).over("agent_id"),
    )
    return {(a, c): Neighbours(x, y) for a, _, c, x, y in around.iter_rows()}


def with_pages(
    conversations: pl.DataFrame, transcripts: pl.DataFrame, failures: pl.DataFrame, limit: int | None
) -> pl.DataFrame:
    """Return the conversations that have pages: at most `limit` for each agent.

    Conversations that fill a slot, serve a test or have failures are selected first, because scores and error clusters
    link to them; then the others by session and id.
    """
    if limit is None:
        return conversations
    key = ["agent_id", "conversation_id"]
    has_slot = pl.col("slot").is_not_null() | (pl.col("tests").list.len() > 0)
    linked = pl.concat([transcripts.filter(has_slot).select(key), failures.select(key)]).unique()
    ranked = conversations.join(linked.with_columns(is_linked=True), on=key, how="left").sort(
        "agent_id", "is_linked", "session_id", "conversation_id", nulls_last=True
    )
    first_keys = ranked.group_by("agent_id", maintain_order=True).head(limit).select(key)
    return conversations.join(first_keys, on=key, how="semi", maintain_order="left")


def conversation_pages(
    material: Material, paths: Paths, around: Neighbours
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and content of each page of a conversation."""
    row = material.conversation
    agent_id, conversation_id = row["agent_id"], row["conversation_id"]
    turns = list(material.turns)
    n_parts = 1 + (turns[-1]["turn_index"] // TURNS_PER_PAGE if turns else 0)
    pages = [paths.conversation_part(agent_id, conversation_id, i) for i in range(n_parts)]
    by_part = [[t for t in turns if t["turn_index"] // TURNS_PER_PAGE == part] for part in range(n_parts)]
    lengths = [_n_messages(of_part) for of_part in by_part] if n_parts > 1 else [0]
    starts = [0, *itertools.accumulate(lengths)]
    for part, of_part in enumerate(by_part):
        views, marks = turn_views(material, of_part, starts[part])

        def elsewhere(rows: Iterable[Row], part: int = part) -> dict[int, str]:
            cited = {row["message_index"] for row in rows if row["message_index"] is not None}
            part_of_turn = {index: bisect.bisect_right(starts, index) - 1 for index in cited if n_parts > 1}
            return {index: pages[at] for index, at in part_of_turn.items() if at != part}

        judgments_of_turn = _by_turn(material.turn_judgments)
        anchored = dict[int, str]()
        for i, view in enumerate(views):
            cited = elsewhere(judgments_of_turn.get(view.index, ()))
            new = {index: path for index, path in cited.items() if index not in anchored}
            views[i] = replace(view, elsewhere=cited, anchors=new)
            anchored |= new
        whole = elsewhere(material.conversation_judgments)
        new = {index: path for index, path in whole.items() if index not in anchored}
        more = {"elsewhere": whole, "anchors": new, "around": around}
        shown_turns = {"turns": views, "part": part, "parts_of": pages, "per_page": TURNS_PER_PAGE}
        yield pages[part], _head(material, marks) | shown_turns | more


def _n_messages(turns: Iterable[Row]) -> int:
    return sum(len(json.loads(turn["messages"])) for turn in turns)


def turn_views(
    material: Material, turns: Iterable[Row], n_before: int = 0
) -> tuple[list[TurnView], dict[str, int]]:
    """Return the turns of one page, and the numbers of the quotes that judgments of the whole conversation cite.

    A quote is marked in the message that the judgment cites. If that is unknown, it is marked in the turn that was
    judged, or, if it does not occur there, in the last earlier turn on the page in which it occurs. `n_before` is the
    number of messages on earlier pages.
    """
    n_versions = len(material.transcripts)
    judgments_of_turn = _by_turn(material.turn_judgments)
    whole = [*material.conversation_judgments, *material.rubric_ratings]
    tools = _by_turn(material.tool_correctness)
    spoken: dict[int, list[SpokenText]] = {}
    sums: dict[int, tuple[str, ...]] = {}
    for turn in turns:
        messages = json.loads(turn["messages"])
        spoken[turn["turn_index"]] = list(said(messages, n_before))
        sums[turn["turn_index"]] = tuple(_sums(turn, messages))
        n_before += len(messages)
    marks, places = _marks(spoken, {**judgments_of_turn, WHOLE: whole})
    views = []
    for index, parts in spoken.items():
        on_turn = opinions(judgments_of_turn.get(index, ()), n_versions, marks.get(index, {}))
        cited = {row.get("message_index") for o in on_turn if o.is_finding for row in o.rows}
        first = {part.message: i for i, part in reversed([*enumerate(parts)])}
        views.append(
            TurnView(
                index=index,
                spoken=tuple(
                    _marked(
                        part,
                        places.get((index, i), ()),
                        part.message if first[part.message] == i else None,
                        part.message in cited,
                    )
                    for i, part in enumerate(parts)
                ),
                opinions=on_turn,
                gaps=gaps(judgments_of_turn.get(index, ())),
                tools=tools.get(index, ()),
                sums=sums[index],
            )
        )
    return views, marks.get(WHOLE, {})


@dataclass(frozen=True)
class SpokenText:
    """Represent a message or one of its tool calls, before quotes are marked in it."""

    kind: str  # user, agent, call, result, system
    title: str
    text: str  # sanitised with `clean`
    is_error: bool = False
    facts: tuple[str, ...] = ()
    message: int = 0  # index of its message in the conversation
    depth: int = 0  # 1: a step of the turn, 2: its result


def said(messages: Sequence[Mapping[str, Any]], n_before: int = 0) -> Iterator[SpokenText]:
    """Yield the messages of a turn in order; each tool call is a separate item, because judges can quote it.

    A result follows its call, also if other calls were made together with it. `n_before` is the number of messages in
    earlier turns. The title has the speaker's name, if the message has one.
    """
    results = _results(messages)
    placed = {at for of_call in results.values() for at in of_call}
    for index, message in enumerate(messages):
        at = n_before + index
        role, content = message["role"], message.get("content")
        facts = tuple(_facts(message))
        if role == "tool":
            if index not in placed:
                yield _result(message, message.get("name") or "a tool", at, 1)
            continue
        kind = {"user": "user", "assistant": "agent"}.get(role, "system")
        title = " ".join([role.capitalize() if kind == "system" else kind.capitalize(), *_named(message)])
        if content:
            yield SpokenText(kind, title, clean(content), facts=facts, message=at)
        elif role == "assistant" and not message.get("tool_calls"):
            yield SpokenText(kind, f"{title}: an empty message", "", bool(message.get("is_error")), facts, at)
        for number, call in enumerate(message.get("tool_calls") or ()):
            by = " by the user" if role == "user" else ""
            arguments = json.dumps(call.get("arguments"), ensure_ascii=False, indent=2)
            by = "".join(f" by {name}" for name in _named(message)) or by
            text = clean(f"{call['name']}({arguments})")
            yield SpokenText(
                "call", f"Tool call{by}", text, facts=() if content else facts, message=at, depth=1
            )
            for of_call in results.get((index, number), ()):
                answer = messages[of_call]
                yield _result(answer, answer.get("name") or call["name"], n_before + of_call, 2)


def _results(messages: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], list[int]]:
    """Return the indexes of the results by (message, number) of their call, which is the last earlier one of their id."""
    calls: dict[str, tuple[int, int]] = {}
    results: dict[tuple[int, int], list[int]] = {}
    for index, message in enumerate(messages):
        if message["role"] == "tool" and (call := calls.get(message.get("tool_call_id") or "")):
            results.setdefault(call, []).append(index)
        for number, tool_call in enumerate(message.get("tool_calls") or ()):
            if tool_call.get("id"):
                calls[tool_call["id"]] = (index, number)
    return results


def _result(message: Mapping[str, Any], name: str, at: int, depth: int) -> SpokenText:
    text = texts.indented(clean(message.get("content") or ""))
    facts = tuple(_facts(message))
    return SpokenText("result", f"Result of {name}", text, bool(message.get("is_error")), facts, at, depth)


def _named(message: Mapping[str, Any]) -> list[str]:
    """Return the name of the speaker on one line, if the message has one."""
    name = " ".join(clean(str(message.get("name") or "")).split())
    return [name[:LONGEST_TITLE]] if name else []


def _facts(message: Mapping[str, Any]) -> Iterator[str]:
    if (latency := message.get("latency_ms")) is not None:
        yield f"{latency / 1000:.1f} s"
    counts = tokens_of(message.get("usage") or {})
    if counts != (None, None):
        yield f"{' + '.join('?' if n is None else f'{n:,}' for n in counts)} tokens"
    if (cost := message.get("cost_usd")) is not None:
        yield f"${cost:.4f}"


def _sums(turn: Row, messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what a turn took: its steps, and latency, tokens and cost if those of each reply are known."""
    if turn["n_tool_calls"]:
        yield f"{turn['n_tool_calls']} tool {'call' if turn['n_tool_calls'] == 1 else 'calls'}"
    if turn["latency_ms"] is not None:
        yield f"{turn['latency_ms'] / 1000:.1f} s"
    replies = [message for message in messages if message["role"] == "assistant"]
    counts = [n for message in replies for n in tokens_of(message.get("usage") or {})]
    known_counts = [n for n in counts if n is not None]
    if known_counts and len(known_counts) == len(counts):
        yield f"{sum(known_counts):,} tokens"
    costs = [message["cost_usd"] for message in replies if message.get("cost_usd") is not None]
    if costs and len(costs) == len(replies):
        yield f"${sum(costs):.4f}"


def _marks(
    spoken: Mapping[int, Sequence[SpokenText]], judgments_of_turn: Mapping[int, Sequence[Row]]
) -> tuple[dict[int, dict[str, int]], dict[tuple[int, int], list[tuple[int, str]]]]:
    """Return the number of each quote by turn, and the quotes to mark by (turn, part)."""
    marks: dict[int, dict[str, int]] = {}
    places: dict[tuple[int, int], list[tuple[int, str]]] = {}
    number_of_quote: dict[tuple[int, int, str], int] = {}
    for index in [*spoken, WHOLE]:
        for row in judgments_of_turn.get(index, ()):
            quote = row["evidence"]
            if not quote or row["evidence_verified"] is False or quote in marks.setdefault(index, {}):
                continue
            place = _place(spoken, index, quote, row.get("message_index"))
            if place is not None:
                number = number_of_quote.setdefault((*place, quote), len(number_of_quote) + 1)
                marks[index][quote] = number
                if (number, quote) not in (quotes_of_part := places.setdefault(place, [])):
                    quotes_of_part.append((number, quote))
    return _without_overlaps(marks, places, spoken), places


def _place(
    spoken: Mapping[int, Sequence[SpokenText]], index: int, quote: str, message: int | None
) -> tuple[int, int] | None:
    """Return the (turn, part) in which a quote is marked; None if it does not occur.

    It is in the given message. If that is None, it is in the judged turn or else the last earlier turn with the quote;
    for judgments of the whole conversation, it is in the last turn with the quote.
    """
    for turn in sorted((i for i in spoken if i <= index or index == WHOLE), reverse=True):
        for i, part in enumerate(spoken[turn]):
            if message in (None, part.message) and texts.is_in(part.text, quote):
                return turn, i
    return None


def _without_overlaps(
    marks: dict[int, dict[str, int]],
    places: Mapping[tuple[int, int], Quotes],
    spoken: Mapping[int, Sequence[SpokenText]],
) -> dict[int, dict[str, int]]:
    """Return the marks that are drawn on the page; of overlapping marks, only the first is drawn."""
    visible_marks = set[int]()
    for (turn, part), quotes in places.items():
        visible_marks |= {p.mark for p in shown(spoken[turn][part].text, quotes).pieces if p.mark is not None}
    return {
        turn: {quote: number for quote, number in of_turn.items() if number in visible_marks}
        for turn, of_turn in marks.items()
    }


def _marked(part: SpokenText, quotes: Quotes, anchor: int | None, is_cited: bool) -> Spoken:
    lines = TOOL_LINES if part.kind in ("call", "result") else texts.FOLDED_LINES
    text = shown(part.text, quotes, folded_lines=lines, is_markdown=part.kind == "agent")
    return Spoken(part.kind, part.title, text, part.is_error, part.facts, anchor, part.depth, is_cited)


def _by_turn(rows: Iterable[Row]) -> dict[int, list[Row]]:
    rows_of_turn: dict[int, list[Row]] = {}
    for row in rows:
        if row["turn_index"] is not None:
            rows_of_turn.setdefault(row["turn_index"], []).append(row)
    return rows_of_turn


def _head(material: Material, marks: dict[str, int]) -> dict[str, Any]:
    """Return the content above the turns: context, outcome, versions under which it counts, and judgments."""
    row = material.conversation
    n_versions = len(material.transcripts)
    read = {name: json.loads(row[name]) if row[name] else None for name in _JSON}
    return {
        "conversation": row,
        "title": title_of(row, material.turns),
        "goal": shown(row["goal"]) if row["goal"] else None,
        "profile": shown(row["profile"]) if row["profile"] else None,
        "knowledge": [shown(str(item)) for item in json.loads(row["knowledge"] or "[]")],
        "folds": [(name, shown(_pretty(value))) for name, value in _folds(read)],
        "tools": [_tool_name(tool) for tool in read["tools"] or ()],
        "scenario_file": _scenario_file(read["metadata"]),
        "benchmark_page": partition_page("benchmark_sessions", row["agent_id"]),
        "interventions": read["interventions"],
        "admission": _admission(material.transcripts),
        "opinions": opinions(material.conversation_judgments, n_versions, marks),
        "gaps": gaps(material.conversation_judgments),
        "ratings": [
            (r, in_versions(r["versions"], n_versions), marks.get(r["evidence"] or ""))
            for r in sorted(material.rubric_ratings, key=lambda r: (r["target"], not r["is_effective"]))
        ],
        "whole_tools": [r for r in material.tool_correctness if r["turn_index"] is None],
    }


def title_of(conversation: Row, turns: Sequence[Row]) -> str:
    """Return the first request of a user, cut to one line; without one, the id of the conversation."""
    first = (
        message.text
        for turn in turns
        for message in said(json.loads(turn["messages"]))
        if message.kind == "user"
    )
    words = " ".join(next(first, "").split())
    if not words:
        return str(conversation["conversation_id"])
    return words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"


def _scenario_file(metadata: object) -> str | None:
    """Return the file of the scenario that a simulated conversation was held on; None for other conversations."""
    match metadata:
        case {"benchmark": {"suite": str(suite), "scenario": str(scenario)}}:
            return f"data/scenarios/{suite}/{scenario}.scenario.yaml"
        case _:
            return None


def _tool_name(tool: Mapping[str, Any]) -> str:
    """Return the tool's name from its schema, which can be flat or nested as in OpenAI's format."""
    function = tool.get("function")
    return str(tool.get("name") or (function.get("name") if isinstance(function, dict) else None) or "?")


def _folds(read: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, title in (
        ("injected_error", "Injected error"),
        ("expected", "Expected"),
        ("tools", "Tool schemas"),
        ("metadata", "Metadata"),
    ):
        if read[name]:
            yield title, read[name]


def _pretty(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _admission(transcripts: Sequence[Row]) -> list[tuple[str, Row]]:
    """Group the rows of transcripts with the same slot and reason; return (versions, first row) of each group."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in transcripts:
        key = (
            row["slot"],
            tuple(row["tests"] or ()),
            row["is_admitted"],
            row["reason"],
            row["superseded_by"],
        )
        groups.setdefault(key, []).append(row)
    return [(", ".join(r["methodology_version"] for r in rows), rows[0]) for rows in groups.values()]
