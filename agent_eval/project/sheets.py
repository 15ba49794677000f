"""Create rating sheets from the store: draw the parts that people label, and collect the texts that sheets show."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from agent_eval.judge.inputs.sheet_sampling import (
    Candidate,
    Drawn,
    Place,
    drawn_parts,
    n_for_all,
    n_parts,
    sealed_sampling,
    sheets,
)
from agent_eval.judge.judging_pass import HUMAN
from agent_eval.metrics.base import UNANSWERED, Metric
from agent_eval.project.project import Project
from agent_eval.report.sheets import Option, SheetItem, SheetMetric, sheet_csv, sheet_html
from agent_eval.scores.judge_standing import is_judge
from agent_eval.tables import table
from agent_eval.tables.judging import is_imported, without_checks_of_judges
from agent_eval.transcripts.content_hash import text_hash
from agent_eval.transcripts.models import EXPECTED, Message

_TABLES = ("turn_judgments", "conversation_judgments")
_COLUMNS = (
    *("agent_id", "conversation_id", "metric", "judge", "rating_1to5", "value", "label", "status"),
    *("unscored_reason", "is_effective", "rubric_hash", "disagreement"),
)
_MIDDLE = (0.4, 0.6)  # limits as a share of the scale; an answer between them is borderline
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sheet:
    """Hold the rating sheet of one rater.

    `n_lacking` is how many more parts all sheets need for two of each answer of the judge, per metric and agent.
    """

    rater: str
    items: tuple[SheetItem, ...]
    html: str
    csv: str
    n_lacking: int = 0


def rating_sheets(
    project: Project,
    version: str,
    n: int,
    *,
    metrics: Sequence[str] = (),
    agents: Sequence[str] = (),
    raters: Sequence[str] = (),
) -> list[Sheet]:
    """Return one sheet with at most `n` parts for each rater; a third of the parts is the same on every sheet.

    Parts that a person has labelled are omitted. Parts are drawn from those that a judge answered (a model, a
    recorded verdict or a judge of another tool), or, if there are none, from those that have no answer yet.

    Args:
        project: The project, whose stored judgments are read.
        version: The methodology version.
        n: Maximum number of parts on each sheet.
        metrics: Limit the sheets to these metrics; by default all metrics.
        agents: Limit the sheets to these agents; by default all agents.
        raters: Names of the raters; without names, one sheet is returned.
    """
    rows = _judged(project, version, project.some_agents(agents))
    of_metric = {metric.name: metric for metric in project.metrics.metrics}
    candidates = _candidates(rows, of_metric, metrics or tuple(of_metric))
    n_raters = max(1, len(raters))
    parts = drawn_parts(candidates, n_parts(n, n_raters))
    n_lacking = max(0, min(n_for_all(candidates), len(candidates)) - len(parts))
    return [
        replace(_sheet(project, sheet, of_metric, rater), n_lacking=n_lacking)
        for rater, sheet in zip(raters or ("",), sheets(parts, n, n_raters), strict=True)
    ]


def _sheet(project: Project, parts: Sequence[Drawn], of_metric: Mapping[str, Metric], rater: str) -> Sheet:
    conversations = _conversations(project, {part.place[:2] for part in parts})
    items = tuple(_item(part, of_metric, conversations[part.place[:2]]["turns"]) for part in parts)
    metric_texts = {name: _metric(of_metric[name]) for name in sorted({item.metric for item in items})}
    sheet_parts = (items, metric_texts, conversations, rater)
    return Sheet(rater, items, sheet_html(*sheet_parts), sheet_csv(*sheet_parts))


def _judged(project: Project, version: str, agents: Sequence[str]) -> pl.DataFrame:
    keys = pl.DataFrame({"agent_id": agents}, schema={"agent_id": pl.String}).with_columns(
        methodology_version=pl.lit(version)
    )
    parts = []
    for name in _TABLES:
        columns = [*_COLUMNS, *(["turn_index"] if name == "turn_judgments" else [])]
        parts.append(project.store.read(table(name), keys, columns=columns))
    return pl.concat(parts, how="diagonal")


def _candidates(
    rows: pl.DataFrame, of_metric: Mapping[str, Metric], metrics: Collection[str]
) -> list[Candidate]:
    """Return the parts that a judge answered, else those without an answer; parts that a person labelled are omitted."""
    place = ["agent_id", "conversation_id", "turn_index", "metric"]
    pending = rows.filter(pl.col("metric").is_in([name for name in metrics if name in of_metric]))
    people = pending.filter(judge=HUMAN).select(place).unique()
    unlabelled = pending.join(people, on=place, how="anti", nulls_equal=True)
    pending = without_checks_of_judges(unlabelled, place)
    judges = [j for j in pending["judge"].unique() if is_judge(j) or is_imported(j)]
    is_scored = pl.col("status").cast(pl.String) == "scored"
    answered = pending.filter(is_scored & pl.col("judge").is_in(judges)).sort("is_effective", descending=True)
    candidates = [_answered(key, of_part, of_metric[key[3]]) for key, of_part in _by_part(answered, place)]
    if candidates:
        return candidates
    reason = pl.col("unscored_reason").fill_null("")
    waits = pl.any_horizontal(reason.str.starts_with(start) for start in UNANSWERED)
    waiting = pending.filter(waits | (pl.col("status").cast(pl.String) == "unscored"))
    return [Candidate(key, "", is_borderline=False) for key, _ in _by_part(waiting, place)]


def _by_part(rows: pl.DataFrame, place: Sequence[str]) -> Iterator[tuple[Place, list[Row]]]:
    of_part: dict[Place, list[Row]] = {}
    for row in rows.iter_rows(named=True):
        agent, conversation, turn, metric = (row[name] for name in place)
        of_part.setdefault((agent, conversation, turn, metric), []).append(row)
    yield from of_part.items()


def _answered(place: Place, rows: Sequence[Row], metric: Metric) -> Candidate:
    answers = [_answer(row) for row in rows]
    differ = len(set(answers)) > 1 or any(row["disagreement"] for row in rows)
    number = rows[0]["rating_1to5"] if rows[0]["rating_1to5"] is not None else rows[0]["value"]
    is_middle = False
    if number is not None and metric.scale and not metric.is_binary:
        low, high = metric.scale
        is_middle = _MIDDLE[0] <= (number - low) / (high - low) <= _MIDDLE[1]
    return Candidate(place, answers[0], is_borderline=differ or is_middle)


def _answer(row: Row) -> str:
    """Return the name of the stratum of an answer; numeric values are rounded to one decimal."""
    if row["label"] is not None:
        return str(row["label"])
    return str(row["rating_1to5"]) if row["rating_1to5"] is not None else f"{row['value']:.1f}"


def _item(
    part: Drawn, of_metric: Mapping[str, Metric], turns: Sequence[tuple[int, Sequence[object]]]
) -> SheetItem:
    agent, conversation, turn, metric = part.place
    rubric = of_metric[metric].rubric_hash
    messages = [message for index, of_turn in turns if turn in (None, index) for message in of_turn]
    text = text_hash(map(Message.model_validate, messages)) if messages else None
    return SheetItem(agent, conversation, turn, metric, sealed_sampling(part), rubric, text)


def _metric(metric: Metric) -> SheetMetric:
    """Return the question of a metric with its answers; the anchors of a numeric scale are added to the notes."""
    if metric.answer == "label":
        options = tuple(
            Option(label, metric.anchors.get(label) or metric.by_rule.get(label, ""))
            for label in metric.all_labels
        )
        return SheetMetric(metric.question, metric.notes, options, is_several=metric.is_failure)
    if metric.answer == "rating_1to5" or metric.is_binary:
        values = "54321" if metric.answer == "rating_1to5" else "10"
        return SheetMetric(
            metric.question, metric.notes, tuple(Option(v, metric.anchors.get(v, "")) for v in values)
        )
    low, high = metric.scale or (0.0, 1.0)
    anchors = " ".join(f"{value}: {meaning}" for value, meaning in metric.anchors.items())
    has_reference = metric.applies_when == "has_expected_answer"
    return SheetMetric(
        metric.question, f"{metric.notes} {anchors}".strip(), (), False, low, high, has_reference
    )


def _conversations(
    project: Project, places: Collection[tuple[str, str]]
) -> dict[tuple[str, str], dict[str, Any]]:
    keys = pl.DataFrame(
        sorted(places), schema={"agent_id": pl.String, "conversation_id": pl.String}, orient="row"
    )
    columns = ["agent_id", "conversation_id", "goal", "knowledge", "expected"]
    by_place: dict[tuple[str, str], dict[str, Any]] = {}
    for agent, conversation, goal, knowledge, expected in project.store.read(
        table("conversations"), keys, columns=columns
    ).iter_rows():
        texts = [
            text if isinstance(text, str) else json.dumps(text) for text in json.loads(knowledge or "[]")
        ]
        truths = EXPECTED.validate_json(expected or "[]")
        answers = {t.turn_index: t.answer for t in truths if t.answer and t.turn_index is not None}
        by_place[agent, conversation] = {"goal": goal, "knowledge": texts, "expected": answers, "turns": []}
    turns = project.store.read(
        table("turns"), keys, columns=["agent_id", "conversation_id", "turn_index", "messages"]
    )
    for agent, conversation, index, messages in turns.sort("turn_index").iter_rows():
        by_place[agent, conversation]["turns"].append((index, json.loads(messages)))
    return by_place
