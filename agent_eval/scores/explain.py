"""Explain a score with its evidence: formula, ratings, anchors, rationales and turns.

The result is a tree of plain texts, which the command formats.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import polars as pl

from agent_eval.errors import NotFoundError
from agent_eval.formats.plain_text import on_one_line
from agent_eval.formats.timestamps import as_text
from agent_eval.methodology.models import DIMENSIONS, SCENARIOS, Anchors, Dimension, Methodology, Template
from agent_eval.metrics.base import NEEDS_MODEL, NO_FAILURE
from agent_eval.metrics.metric_set import directed
from agent_eval.scores.composite.domain import domain_0to100, scenario_0to100, template_named
from agent_eval.scores.composite.ratings import Rated, RatedTarget, effective, rated
from agent_eval.scores.statistics.exact import from_text, in_words, mean, rounded
from agent_eval.tables.agent_version import AgentVersion

SCORES = ("composite", "U", "D", *DIMENSIONS, *SCENARIOS)
CAUSES = {"cause": "Cause", "should_have": "A good agent would have done"}
_AROUND = 160  # characters that are shown before and after a quote in its message
LOWEST = 5  # the number of conversations without a slot to show
Row = Mapping[str, object]


def _unknown_turn(pair: AgentVersion, reference: str) -> NotFoundError:
    return NotFoundError(
        f"Agent {pair.agent_id!r} has no turn {reference[:200]!r} under methodology {pair.methodology_version}. Expected "
        "conversation#turn, with turns from 0, or the id of a conversation; `agent-eval errors` prints examples."
    )


@dataclass(frozen=True)
class Node:
    """Hold one step of an explanation: its title, its details and its parts."""

    title: str
    detail: tuple[str, ...] = ()
    children: tuple["Node", ...] = ()


def explain(
    agent_id: str,
    version: str,
    score: str,
    *,
    composite_scores: pl.DataFrame,
    universal_scores: pl.DataFrame,
    domain_scores: pl.DataFrame,
    rubric_ratings: pl.DataFrame,
    transcripts: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    turns: pl.DataFrame,
    methodology: Methodology,
) -> Node:
    """Return the explanation of `score`, which is 'composite', 'U', 'D', U1 to U6 or D1 to D5.

    The levels of the tree are: the composite; U and D; dimensions, or scenarios and criteria; ratings with
    rationale, evidence, rater, question and anchor; the rated conversations; and their turns with the judge's
    rationales. The composite also lists the lowest rated conversations that fill no slot. A part without a
    rating is listed with the reason. The frames may contain other pairs.

    Raises:
        NotFoundError: If `score` has another value, or if the agent has no composite row under the version.
    """
    if score not in SCORES:
        raise NotFoundError(f"{score!r} is not a score. Allowed: {', '.join(SCORES)}.")
    pair = AgentVersion.of(agent_id=agent_id, methodology_version=version)
    composite = _row_of(composite_scores, pair)
    if composite is None:
        raise NotFoundError(
            f"Agent {pair.agent_id!r} has no scores under methodology {pair.methodology_version}. "
            "Run `agent-eval run` after importing."
        )
    slug = composite["template"]
    page = _Page(
        pair,
        methodology,
        template_named(str(slug), methodology) if slug else None,
        ratings=_of(rubric_ratings, pair),
        transcripts=_of(transcripts, pair).filter("is_admitted"),
        turn_judgments=_of(turn_judgments, pair),
        conversation_judgments=_of(conversation_judgments, pair),
        turns=turns.filter(pl.col("agent_id") == agent_id),
    )
    universal, domain = _row_of(universal_scores, pair) or {}, _row_of(domain_scores, pair) or {}
    if score == "composite":
        return _composite(page, composite, universal, domain)
    if score == "U":
        return _universal(page, universal)
    if score == "D":
        return _domain(page, domain)
    return page.dimension(score) if score in DIMENSIONS else page.scenario(score)


def explain_turn(
    agent_id: str,
    version: str,
    reference: str,
    *,
    transcripts: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    turns: pl.DataFrame,
    methodology: Methodology,
) -> Node:
    """Return the explanation of a turn or a conversation: what was said, and the judges' answers with their rationales.

    Args:
        agent_id: The agent.
        version: The methodology version.
        reference: `conversation#turn`, as in the examples of error clusters, or the id of a conversation.
        transcripts: Table transcripts.
        turn_judgments: Table turn_judgments.
        conversation_judgments: Table conversation_judgments.
        turns: Table turns.
        methodology: The version.

    Raises:
        NotFoundError: If the agent has no such conversation or turn.
    """
    pair = AgentVersion.of(agent_id=agent_id, methodology_version=version)
    rows = _of(transcripts, pair)
    conversation_ids = set(rows["conversation_id"])
    name, index = (reference, "") if reference in conversation_ids else reference.rpartition("#")[::2]
    if name not in conversation_ids or (index and not index.isdecimal()):
        raise _unknown_turn(pair, reference)
    page = _Page(
        pair, methodology, None, ratings=pl.DataFrame(), transcripts=rows,
        turn_judgments=_of(turn_judgments, pair), conversation_judgments=_of(conversation_judgments, pair),
        turns=turns.filter(pl.col("agent_id") == agent_id),
    )  # fmt: skip
    node = page.conversation(rows.filter(conversation_id=name).row(0, named=True), marks_messages=True)
    if not index:
        return node
    turn = next((child for child in node.children if child.title == f"turn {int(index)}"), None)
    if turn is None:
        raise _unknown_turn(pair, reference)
    return Node(node.title, children=(turn,))


def to_rows(node: Node) -> list[dict[str, object]]:
    """Return the tree as rows, top down, with depth (0 for the root), path of titles, title and detail."""
    return list(_flat(node, ()))


_STEPS: tuple[Mapping[str, int], ...] = (
    {},
    {"turn": 3, "conversation": 3},
    {"turn": 1, "conversation": 1, "rating": 2},
    {"turn": 0, "conversation": 1, "rating": 2},
    {"conversation": 0, "rating": 2},
    {"conversation": 0, "rating": 1},
    {"conversation": 0, "rating": 0},
)
"""Steps for shortening a tree: the number of children that a node keeps, by the first word of their title."""


def shortened(root: Node, most_lines: int) -> Node:
    """Return the tree shortened to at most `most_lines` lines, or as far as the last step allows.

    A line in each shortened node gives the number of omitted ratings, conversations or turns.
    """
    for step in _STEPS:
        tree = _kept(root, step)
        if _n_lines(tree) <= most_lines:
            return tree
    return tree


def _kept(node: Node, most: Mapping[str, int]) -> Node:
    children: list[Node] = []
    left_out: dict[str, int] = {}
    n_kept: dict[str, int] = {}
    for child in node.children:
        kind = child.title.split(" ", 1)[0]
        if kind in most and n_kept.get(kind, 0) >= most[kind]:
            left_out[kind] = left_out.get(kind, 0) + 1
            continue
        n_kept[kind] = n_kept.get(kind, 0) + 1
        children.append(_kept(child, most))
    more = [Node(f"… {n} {kind}{'s' if n > 1 else ''}: --all") for kind, n in left_out.items()]
    return Node(node.title, node.detail, (*children, *more))


def _n_lines(node: Node) -> int:
    return 1 + sum(line.count("\n") + 1 for line in node.detail) + sum(map(_n_lines, node.children))


def _flat(node: Node, above: tuple[str, ...]) -> Iterator[dict[str, object]]:
    path = (*above, node.title)
    yield {
        "depth": len(above),
        "path": " > ".join(path),
        "title": node.title,
        "detail": "\n".join(node.detail),
    }
    for child in node.children:
        yield from _flat(child, path)


def _composite(page: "_Page", row: Row, universal: Row, domain: Row) -> Node:
    lines = [_weighted_sum(page.methodology, universal, domain), *_penalty(row)]
    lines += [f"missing: {text}" for text in _texts(row["missing"])]
    warnings = _texts(row["warnings"])
    lines += [f"note: {text}" for text in dict.fromkeys((*warnings, *_texts(row.get("dropped_runs"))))]
    lines += [f"disputed: {text}" for text in _texts(row["disputed"])]
    lines += [
        f"{name}: {_known(row[name])}"
        for name in ("u3_scope", "repeatability_tested", "hallucination_passed", "judge")
    ]
    score = _exact(row["composite_exact"])
    title = f"{page.pair.agent_id} under {page.pair.methodology_version}: composite {_shown(score)}, {row['status']}"
    return Node(title, tuple(lines), (_universal(page, universal), _domain(page, domain), *page.unslotted()))


def _weighted_sum(methodology: Methodology, universal: Row, domain: Row) -> str:
    """Format the weighted sum, such as '0.40 × 80 + 0.60 × 80 = 80', with '?' for missing parts."""
    weights = methodology.weights
    u, d = _exact(universal.get("universal_exact")), _exact(domain.get("domain_exact"))
    left = f"{weights.universal} × {_fraction(u)} + {weights.domain} × {_fraction(d)}"
    if u is None or d is None:
        return f"{left}: cannot be computed"
    return f"{left} = {_result(Fraction(weights.universal) * u + Fraction(weights.domain) * d)}"


def _penalty(row: Row) -> Iterator[str]:
    raw, score = _exact(row["raw_composite_exact"]), _exact(row["composite_exact"])
    points = row["repeatability_penalty"]
    if raw is None:
        return
    if score is None:
        yield "penalty: unknown, since repeatability_tested is not disclosed"
    elif points:
        floor = ", floored at 0" if score == 0 else ""
        yield f"penalty: {_fraction(raw)} − {points:g} = {_result(score)}{floor}"
    else:
        yield "penalty: none"


def _universal(page: "_Page", row: Row) -> Node:
    means = page.universal.means
    total = f"({' + '.join(_fraction(value) for value in means.values())}) / 30 × 100"
    return Node(
        f"U universal: {_shown(_exact(row.get('universal_exact')))}",
        (_equation(total, _exact(row.get("universal_exact"))),),
        tuple(page.dimension(target) for target in DIMENSIONS),
    )


def _domain(page: "_Page", row: Row) -> Node:
    scores = [scenario_0to100(page.criteria_of(scenario)) for scenario in SCENARIOS]
    total = f"({' + '.join(_fraction(value) for value in scores)}) / 5"
    return Node(
        f"D domain: {_shown(domain_0to100(scores))}",
        (f"template: {row.get('template') or 'none'}", _equation(total, domain_0to100(scores))),
        tuple(page.scenario(scenario) for scenario in SCENARIOS),
    )


@dataclass(frozen=True)
class _Page:
    """Hold all rows of one pair and resolve the relations between them."""

    pair: AgentVersion
    methodology: Methodology
    template: Template | None
    ratings: pl.DataFrame
    transcripts: pl.DataFrame
    turn_judgments: pl.DataFrame
    conversation_judgments: pl.DataFrame
    turns: pl.DataFrame

    @property
    def universal(self) -> Rated:
        """Return the ratings of U1–U6 with their exact means."""
        return rated(self.ratings, {self.pair: [RatedTarget(target, None) for target in DIMENSIONS]})[
            self.pair
        ]

    def criteria_of(self, scenario: str) -> list[Fraction | None]:
        """Return the exact means of a scenario's criteria, or a single None if the agent has no template."""
        parts = [RatedTarget(scenario, c.id) for c in self.template.criteria] if self.template else []
        parts = parts or [RatedTarget(scenario, None)]
        return list(rated(self.ratings, {self.pair: parts})[self.pair].means.values())

    def dimension(self, target: str) -> Node:
        """Return the tree of one of U1–U6, down to the turns of the sessions that it was rated on."""
        dimension = next(d for d in self.methodology.dimensions if d.id == target)
        part = self._part(
            f"{target} {dimension.name}", RatedTarget(target, None), dimension.anchors, dimension
        )
        return Node(part.title, (dimension.question, *part.detail), part.children)

    def scenario(self, target: str) -> Node:
        """Return the tree of one of D1–D5, from its three criteria down to the turns of the slot's conversations."""
        if self.template is None:
            part = self._part(target, RatedTarget(target, None), None, None)
            return Node(f"{target}: missing", part.detail, part.children)
        scenario = next(s for s in self.template.scenarios if s.id == target)
        values = self.criteria_of(target)
        formula = f"({' + '.join(_fraction(value) for value in values)}) / 15 × 100"
        children = []
        for criterion in self.template.criteria:
            part = self._part(
                f"{target}.{criterion.id}", RatedTarget(target, criterion.id), criterion.anchors, None
            )
            reading = scenario.readings.get(criterion.id)
            detail = (*([f"read here as: {reading}"] if reading else []), *part.detail)
            children.append(Node(part.title, detail, part.children))
        return Node(
            f"{target} {scenario.name}: {_shown(scenario_0to100(values))}",
            (scenario.description, _equation(formula, scenario_0to100(values))),
            tuple(children),
        )

    def unslotted(self) -> Iterator[Node]:
        """Yield the LOWEST conversations without a slot, which no score uses, by mean rating of their turns."""
        rows = self.transcripts.filter(pl.col("slot").is_null(), pl.col("tests").list.len() == 0)
        if rows.is_empty():
            return
        scored_turns = self.turn_judgments.filter("is_effective", pl.col("status") == "scored")
        means = scored_turns.group_by("conversation_id").agg(mean=pl.col("rating_1to5").mean())
        order = rows.join(means, on="conversation_id", how="left").sort(
            "mean", "conversation_id", nulls_last=True
        )
        children = tuple(self.conversation(row) for row in order.head(LOWEST).to_dicts())
        which = "" if rows.height <= LOWEST else f"; the {LOWEST} whose turns are rated lowest"
        yield Node(f"{rows.height} without a slot, no part of the composite{which}", children=children)

    def _part(
        self, name: str, part: RatedTarget, anchors: Anchors | None, dimension: Dimension | None
    ) -> Node:
        rows = self.ratings.filter(
            pl.col("target") == part.target, pl.col("criterion").eq_missing(pl.lit(part.criterion, pl.String))
        )
        counting = effective(rows).sort("session_id", "conversation_id").to_dicts()
        value = rated(self.ratings, {self.pair: [part]})[self.pair].means[part]
        children = tuple(self._rating(row, anchors, dimension) for row in counting)
        others = rows.filter(~pl.col("is_effective"), pl.col("status") == "scored").sort("judge", "rater")
        detail = [f"not counted: {r['rating_1to5']} by {_by(r)}" for r in others.to_dicts()]
        if len(counting) > 1:
            detail.insert(0, _mean_in_words(counting, value))
        if not counting:
            detail.append("missing: no rating")
        return Node(f"{name}: {'missing' if value is None else in_words(value)}", tuple(detail), children)

    def _rating(self, row: Row, anchors: Anchors | None, dimension: Dimension | None) -> Node:
        where = ", ".join(
            f"{name} {row[key]}"
            for name, key in (("session", "session_id"), ("conversation", "conversation_id"))
            if row[key] is not None
        )
        if row["status"] != "scored":
            title = f"{row['status']}{f' in {where}' if where else ''}: {row['reason'] or 'no reason given'}"
            return Node(title, children=self._conversations(row, dimension))
        rating = str(row["rating_1to5"])
        lines = [_line("contradicted", row["reason"])]
        lines += [_line("rationale", row["rationale"]), _quote(row), _line("decided by", row["decided_by"])]
        lines += [f"anchor {rating}: {anchors.by_rating()[rating]}"] if anchors else []
        lines += [
            _line(name.replace("_", " "), as_text(row[name]))
            for name in ("rated_at", "question_key", "prompt_hash")
        ]
        return Node(
            f"rating {rating} by {_by(row)}, {where}",
            tuple(line for line in lines if line),
            self._conversations(row, dimension),
        )

    def _conversations(self, row: Row, dimension: Dimension | None) -> tuple[Node, ...]:
        """Return the conversations that a rating covers, limited to those with the test that the dimension needs."""
        if row["conversation_id"] is not None:
            rows = self.transcripts.filter(pl.col("conversation_id") == row["conversation_id"])
        elif dimension and row["session_id"] is not None:
            rows = self.transcripts.filter(pl.col("session_id") == row["session_id"])
        else:
            return ()  # the rating has no session, or its slot has no conversation
        if dimension and dimension.needs_test:
            rows = rows.filter(pl.col("tests").list.contains(dimension.needs_test))
        return tuple(self.conversation(r) for r in rows.sort("slot", "conversation_id").to_dicts())

    def conversation(self, row: Row, *, marks_messages: bool = False) -> Node:
        """Return the tree of a conversation: its judgments and its turns.

        If `marks_messages` is true, each turn has the messages that its failures cite, with the quotes marked.
        """
        same = pl.col("conversation_id") == row["conversation_id"]
        conversation_rows = self.conversation_judgments.filter(same, "is_effective").sort("metric").to_dicts()
        turns = self.turns.filter(same).sort("turn_index").to_dicts()
        words = self.turn_judgments.filter(same, "is_effective").sort("turn_index", "metric").to_dicts()
        slot = f", {row['slot']}" if row["slot"] else ""
        none = () if turns else ("no turns: the run produced no message",)
        spoken = [m for turn in turns for m in json.loads(str(turn["messages"]))] if marks_messages else []
        return Node(
            f"conversation {row['conversation_id']}{slot}",
            (*none, *_judgments(conversation_rows)),
            tuple(_turn(t, [w for w in words if w["turn_index"] == t["turn_index"]], spoken) for t in turns),
        )


def _turn(turn: Row, judgments: Sequence[Row], messages: Sequence[Row]) -> Node:
    lines = (f"user: {turn['user_message'] or '(none)'}", f"agent: {turn['agent_message'] or '(no text)'}")
    calls = (f"tool calls: {turn['n_tool_calls']}",) if turn["n_tool_calls"] else ()
    failed = [row for row in judgments if row["label"] not in (None, NO_FAILURE)]
    cited = {
        (row["message_index"], row["evidence"]): row for row in failed if row["message_index"] is not None
    }
    children = tuple(_cited(row, messages) for row in cited.values()) if messages else ()
    return Node(f"turn {turn['turn_index']}", (*lines, *calls, *_judgments(judgments)), children)


def _cited(row: Row, messages: Sequence[Row]) -> Node:
    """Return the message that a judgment cites, with its quote between » and « and some of the text around it."""
    index, quote = cast("int", row["message_index"]), on_one_line(str(row["evidence"]))
    message = messages[index]
    calls = cast("Iterable[Row]", message.get("tool_calls") or ())
    called = (f"{call['name']}({json.dumps(call.get('arguments'), ensure_ascii=False)})" for call in calls)
    texts = [on_one_line(str(text)) for text in (message.get("content") or "", *called)]
    before, _, after = next((text.partition(quote) for text in texts if quote in text), ("", "", ""))
    head = f"…{before[-_AROUND:]}" if len(before) > _AROUND else before
    tail = f"{after[:_AROUND]}…" if len(after) > _AROUND else after
    return Node(f"message {index} by {row['speaker']}: {head}»{quote}«{tail}")


def _judgments(rows: Iterable[Row]) -> tuple[str, ...]:
    """Format judgments, such as 'helpfulness 5 · coherence 4 (recorded): rationale “quote”', grouped by rationale.

    Metrics that no judge answered, because that needs a model, share a last line.
    """
    by_words: dict[str, list[str]] = {}
    answered: set[object] = set()
    waiting: list[str] = []
    for row in rows:
        if row["unscored_reason"] == NEEDS_MODEL:
            waiting.append(str(row["metric"]))
            continue
        answered.add(row["metric"])
        by_words.setdefault(_words(row), []).append(_value(row))
    lines = [f"{' · '.join(values)} {words}" for words, values in by_words.items()]
    if not_asked := [name for name in waiting if name not in answered]:
        lines.append(f"not asked ({NEEDS_MODEL}): {', '.join(not_asked)}")
    return tuple(lines)


def _value(row: Row) -> str:
    """Format a metric and its answer, such as 'helpfulness 5' or 'relevance unscored'.

    A name that suggests the opposite is followed by the meaning of the highest answer: 'user_frustration (5 = none) 4'.
    """
    if row["status"] != "scored":
        return f"{row['metric']} {row['status']}"
    value = next((v for v in (row["rating_1to5"], row["label"], row["value"]) if v is not None), None)
    answer_text = f"{value:g}" if isinstance(value, float) else value
    return " + ".join([f"{directed(str(row['metric']))} {answer_text}", *_texts(row["further_labels"])])


def _words(row: Row) -> str:
    """Format a judge and its rationale, such as '(recorded): rationale “quote”', or the reason for a missing value.

    The prompt hash is added if there is one.
    """
    prompt = f" [prompt {row['prompt_hash']}]" if row["prompt_hash"] else ""
    if row["status"] != "scored":
        why = ": ".join(str(text) for text in (row["unscored_reason"], row["rationale"]) if text)
        return f"({row['judge']}): {why or 'no reason given'}{prompt}"
    quote = f" “{row['evidence']}”{place_of_quote(row)}" if row["evidence"] else ""
    decided = f" [{row['decided_by']}]" if row["decided_by"] else ""
    cause = "".join(f" {name}: {row[key]}" for key, name in CAUSES.items() if row.get(key))
    return f"({row['judge']}): {row['rationale'] or 'no rationale given'}{quote}{cause}{prompt}{decided}"


def place_of_quote(row: Row) -> str:
    """Return the message that the quote of a judgment is from, such as ' in message 4 by Planner', or an empty text."""
    if row.get("message_index") is None:
        return " (not found in the transcript)" if row.get("evidence_verified") is False else ""
    return f" in message {row['message_index']} by {row['speaker']}"


def _mean_in_words(rows: Iterable[Row], value: Fraction | None) -> str:
    """Format ratings by session, such as 'session a: 4; session b: 5; mean 9/2'."""
    by_session: dict[object, list[object]] = {}
    for row in rows:
        rating = row["rating_1to5"] if row["status"] == "scored" else None
        by_session.setdefault(row["session_id"], []).append(rating)
    texts = [f"session {s}: {_session_mean(ratings)}" for s, ratings in by_session.items()]
    result = f"mean {in_words(value)}" if value is not None else "no mean: a rating is missing"
    return f"{'; '.join(texts)}; {result}"


def _session_mean(ratings: list[object]) -> str:
    if len(ratings) == 1:
        return "?" if ratings[0] is None else str(ratings[0])
    scored = [Fraction(r) for r in ratings if isinstance(r, int)]
    terms = " + ".join("?" if r is None else str(r) for r in ratings)
    result = f" = {in_words(mean(scored))}" if len(scored) == len(ratings) else ""
    return f"({terms}) / {len(ratings)}{result}"


def _of(frame: pl.DataFrame, pair: AgentVersion) -> pl.DataFrame:
    return frame.filter(
        pl.col("methodology_version") == pair.methodology_version, pl.col("agent_id") == pair.agent_id
    )


def _row_of(frame: pl.DataFrame, pair: AgentVersion) -> Row | None:
    rows = _of(frame, pair)
    return None if rows.is_empty() else rows.row(0, named=True)


def _exact(text: object) -> Fraction | None:
    return from_text(text) if isinstance(text, str) else None


def _fraction(value: Fraction | None) -> str:
    return "?" if value is None else in_words(value)


def _shown(value: Fraction | None) -> str:
    return "missing" if value is None else rounded(value)


def _result(value: Fraction) -> str:
    """Format the exact value, followed by the value rounded to one decimal if it is not an integer."""
    return in_words(value) if value.denominator == 1 else f"{in_words(value)} ≈ {rounded(value)}"


def _equation(left: str, value: Fraction | None) -> str:
    return f"{left}: cannot be computed" if value is None else f"{left} = {_result(value)}"


def _by(row: Row) -> str:
    rater = row["rater"]
    return str(row["judge"]) if rater in {None, row["judge"]} else f"{row['judge']} ({rater})"


def _quote(row: Row) -> str:
    if row["evidence"] is None:
        return ""
    return f"evidence: “{row['evidence']}”{place_of_quote(row)}"


def _line(name: str, value: object) -> str:
    return "" if value is None else f"{name}: {value}"


def _known(value: object) -> str:
    return "unknown" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _texts(value: object) -> list[str]:
    return [str(text) for text in cast("list[object]", value or [])]
