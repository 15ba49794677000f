"""Prepare the page of one agent under one methodology version, from its composite to its conversations."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import polars as pl

from agent_eval.clusters.failures import n_findings
from agent_eval.methodology import Methodology
from agent_eval.methodology.models import SCENARIOS, Anchors, Template
from agent_eval.report.asset_pages.ingest import tool_counts
from agent_eval.report.charts import StackPart, radar, stacked
from agent_eval.report.conclusions import clusters_answer, open_failures
from agent_eval.report.html.board_pages import spans, standing
from agent_eval.report.html.history import (
    history_line,
    means_of_counts,
    run_line,
    session_history,
    version_line,
)
from agent_eval.report.html.lists.errors import cluster_rows
from agent_eval.report.html.outcomes import decided
from agent_eval.report.html.summary import log_rows, summary_rows
from agent_eval.report.html.tables import Row, by_key, only
from agent_eval.report.names import CONVERSATIONS_PER_PAGE, Paths
from agent_eval.scores.statistics.exact import from_text, in_words, rounded
from agent_eval.tables.vocabularies import SEVERITY

MOST_READ_FIRST = 5
ANSWERS = (
    "methodology_version", "agent_id", "metric", "rating_1to5", "value", "label", "status", "unscored_reason",
    "is_effective", "is_counted",
)  # fmt: skip
"""The columns by which an agent's page counts judgments."""
RATINGS = (
    "methodology_version", "agent_id", "conversation_id", "rating_1to5", "judge", "is_effective", "is_counted",
)  # fmt: skip
"""The columns by which an agent's page counts the scored judgments of turns."""
LISTED = (
    "agent_id", "conversation_id", "session_id", "task_id", "trial", "n_turns", "n_tool_calls", "outcome_correct",
    "outcome_class",
)  # fmt: skip
"""The columns of table conversations in an agent's list of conversations."""


@dataclass(frozen=True)
class Frames:
    """Hold the stored rows of one agent under all versions; boards may contain other agents too.

    Since an agent can have millions of judgments, three frames contain only counts (`n`): `answers` counts the judgments
    that enter means by the columns `ANSWERS`, `turn_ratings` counts scored judgments of turns by the columns `RATINGS`, and
    `tool_calls` counts calls by the columns `CALLS`. `goals` are the scored judgments of goal completion.
    """

    leaderboard: pl.DataFrame
    composite_scores: pl.DataFrame
    universal_scores: pl.DataFrame
    domain_scores: pl.DataFrame
    rubric_ratings: pl.DataFrame
    transcripts: pl.DataFrame
    conversations: pl.DataFrame
    sessions: pl.DataFrame
    answers: pl.DataFrame
    turn_ratings: pl.DataFrame
    error_clusters: pl.DataFrame
    error_trends: pl.DataFrame
    error_issues: pl.DataFrame
    failures: pl.DataFrame
    reliability: pl.DataFrame
    quality_summary: pl.DataFrame
    log_leaderboard: pl.DataFrame
    board_history: pl.DataFrame
    gates: pl.DataFrame
    tool_calls: pl.DataFrame
    goals: pl.DataFrame

    def under(self, version: str) -> "Frames":
        """Return the frames with the rows of one version; frames without a version column are not filtered."""
        frames_of_version = {
            name: frame.filter(pl.col("methodology_version") == version)
            if "methodology_version" in frame.columns
            else frame
            for name, frame in vars(self).items()
        }
        return Frames(**frames_of_version)


@dataclass(frozen=True)
class ShownRating:
    """Represent one rating with the text of its anchor and its conversations."""

    row: Row
    anchor: str | None
    conversations: Sequence[tuple[str, str]]  # label, path


@dataclass(frozen=True)
class RatedCriterion:
    """Represent a dimension or criterion with its mean over sessions and its ratings."""

    id: str
    name: str
    question: str
    mean: float | None  # 1–5
    ratings: Sequence[ShownRating]


@dataclass(frozen=True)
class ScenarioScores:
    """Represent one of the scenarios D1–D5 with its score and its criteria."""

    id: str
    name: str
    description: str
    score: float | None  # 0–100
    criteria: Sequence[RatedCriterion]


@dataclass(frozen=True)
class Spread:
    """Represent the distribution of the effective judgments of one metric."""

    metric: str
    n_scored: int
    n_eligible: int
    bar: tuple[StackPart, ...]  # of ratings
    mean: float | None  # of ratings or values
    is_corrected: bool  # whether drawn labels corrected the mean
    labels: Sequence[tuple[str, int]]  # failure labels; yes and no of a 0/1 metric
    gaps: Sequence[tuple[str, int]]  # reasons for missing values, with counts


def agent_pages(
    agent: Row,
    version: str,
    frames: Frames,
    methodology: Methodology,
    paths: Paths,
    has_page: Collection[str],
    of_versions: pl.DataFrame,
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the path, template and content of each page of an agent under a version.

    `frames` contain only rows of this version; `has_page` contains the ids of the conversations that have a page.
    `of_versions` contains the agent's rows of table leaderboard under all versions, in order.
    """
    rows = conversation_rows(frames, paths, has_page)
    n_parts = max(1, -(-len(rows) // CONVERSATIONS_PER_PAGE))
    parts = [paths.agent(agent["agent_id"], version, part) for part in range(n_parts)]
    shared = {
        "agent": agent,
        "version": version,
        "n_conversations": len(rows),
        "n_pages": len(has_page),
        "per_list": CONVERSATIONS_PER_PAGE,
        "list_parts": parts,
    }
    for part, path in enumerate(parts):
        listed = {"conversations": rows[part * CONVERSATIONS_PER_PAGE : (part + 1) * CONVERSATIONS_PER_PAGE]}
        if part:
            yield path, "conversations.html", shared | listed
        else:
            page = agent_page(agent, frames, methodology, paths, has_page)
            listed |= {"read_first": first_to_read(rows)}
            yield path, "agent.html", shared | listed | page | {"version_line": version_line(of_versions)}


def agent_page(
    agent: Row, frames: Frames, methodology: Methodology, paths: Paths, has_page: Collection[str]
) -> dict[str, Any]:
    """Return the content of an agent's page under a version, without the list of conversations."""
    board = frames.leaderboard.filter(pl.col("agent_id") == agent["agent_id"]).to_dicts()
    composite = _first(frames.composite_scores)
    universal, domain = _first(frames.universal_scores), _first(frames.domain_scores)
    slug = composite.get("template") or agent["template"]
    template = next((t for t in methodology.templates if t.slug == slug), None)
    slots = {
        row["conversation_id"]: row
        for row in frames.transcripts.to_dicts()
        if row["conversation_id"] in has_page
    }
    dimensions = tuple(_dimensions(universal, methodology, frames, slots, paths))
    history = session_history(
        frames.sessions,
        decided(frames.conversations, frames.goals),
        frames.transcripts,
        frames.turn_ratings,
        frames.failures,
        composite,
    )
    return {
        "template": template,
        "standing": standing(board[0], paths) if board else None,
        "composite": composite,
        "formula": _formula(composite, universal, domain, methodology),
        "radar": radar([(d.id, d.name, d.mean) for d in dimensions]),
        "dimensions": dimensions,
        "scenarios": tuple(_scenarios(domain, template, frames, slots, paths)),
        "summary": summary_rows(frames.quality_summary),
        "is_log": _is_log(frames.log_leaderboard, agent["agent_id"]),
        "log": next(iter(log_rows(frames.log_leaderboard.filter(agent_id=agent["agent_id"]), paths)), None),
        "spreads": spreads(frames.answers, _given_means(frames.quality_summary, methodology.version)),
        "none_found": clusters_answer(frames.error_clusters[:0], open_failures(frames.quality_summary)),
        "clusters": cluster_rows(
            frames.error_clusters,
            frames.failures,
            frames.error_trends,
            frames.error_issues,
            lambda _, conversation: conversation in has_page,
            paths,
        ),
        "tools": tool_counts(frames.tool_calls)
        .sort("n_errors", "n", "name", descending=[True, True, False])
        .to_dicts(),
        "reliability": [
            {
                "row": r,
                "pass_at": spans(r, "pass_at_k"),
                "pass_hat": spans(r, "pass_hat_k"),
            }
            for r in frames.reliability.to_dicts()
        ],
        "gates": frames.gates.to_dicts(),
        "sessions": frames.sessions.to_dicts(),
        "history": history,
        "history_line": history_line(history),
        "run_line": run_line(frames.board_history),
    }


def _is_log(logs: pl.DataFrame, agent_id: str) -> bool:
    return bool((logs["agent_id"] == agent_id).any())


def _first(frame: pl.DataFrame) -> Row:
    return frame.row(0, named=True) if frame.height else {}


def _formula(composite: Row, universal: Row, domain: Row, methodology: Methodology) -> dict[str, Any]:
    """Return the parts of the composite's formula, e.g. '0.40 × 90 + 0.60 × 844/9'; '?' marks missing values."""
    u, d = (_exact(row, key) for row, key in ((universal, "universal_exact"), (domain, "domain_exact")))
    raw, score = (_exact(composite, key) for key in ("raw_composite_exact", "composite_exact"))
    weights = methodology.weights
    return {
        "sum": f"{weights.universal} × {_words(u)} + {weights.domain} × {_words(d)}",
        "raw": None if raw is None else rounded(raw),
        "score": None if score is None else rounded(score),
        "penalty": composite.get("repeatability_penalty"),
    }


def _exact(row: Row, key: str) -> Fraction | None:
    text = row.get(key)
    return from_text(text) if text else None


def _words(value: Fraction | None) -> str:
    return "?" if value is None else in_words(value)


def _dimensions(
    universal: Row, methodology: Methodology, frames: Frames, slots: Mapping[str, Row], paths: Paths
) -> Iterator[RatedCriterion]:
    ratings = by_key(frames.rubric_ratings, "target", "criterion")
    for dimension in methodology.dimensions:
        session_ratings = [
            _given(row, dimension.anchors, slots, paths, dimension.needs_test)
            for row in _counting_first(only(ratings, dimension.id, None))
        ]
        mean = universal.get(dimension.id.lower())
        yield RatedCriterion(dimension.id, dimension.name, dimension.question, mean, session_ratings)


def _scenarios(
    domain: Row, template: Template | None, frames: Frames, slots: Mapping[str, Row], paths: Paths
) -> Iterator[ScenarioScores]:
    ratings = by_key(frames.rubric_ratings, "target", "criterion")
    for scenario in template.scenarios if template else ():
        number = SCENARIOS.index(scenario.id) + 1
        criteria = [
            RatedCriterion(
                id=criterion.id,
                name=criterion.name,
                question=scenario.readings.get(criterion.id, ""),
                mean=domain.get(f"d{number}_c{i}"),
                ratings=[
                    _given(row, criterion.anchors, slots, paths, None)
                    for row in _counting_first(only(ratings, scenario.id, criterion.id))
                ],
            )
            for i, criterion in enumerate(template.criteria if template else (), start=1)
        ]
        yield ScenarioScores(
            scenario.id, scenario.name, scenario.description, domain.get(f"d{number}"), criteria
        )


def _counting_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: not row["is_effective"])


def _given(
    row: Row, anchors: Anchors, slots: Mapping[str, Row], paths: Paths, needs_test: str | None
) -> ShownRating:
    rating = row["rating_1to5"]
    return ShownRating(
        row=row,
        anchor=None if rating is None else anchors.by_rating().get(str(rating)),
        conversations=[
            (_label(slot), paths.conversation(row["agent_id"], slot["conversation_id"]))
            for slot in _rated_on(row, slots, needs_test)
        ],
    )


def _rated_on(row: Row, slots: Mapping[str, Row], needs_test: str | None) -> list[Row]:
    """Return the rated conversation; for a rating of a session, its conversations that count.

    If the dimension needs a test, only the session's conversations with this test are returned.
    """
    if row["conversation_id"] is not None:
        return [slots[row["conversation_id"]]] if row["conversation_id"] in slots else []
    if row["session_id"] is None:
        return []
    return [
        slot
        for slot in slots.values()
        if slot["session_id"] == row["session_id"]
        and slot["is_admitted"]
        and (needs_test is None or needs_test in (slot["tests"] or ()))
    ]


def _label(slot: Row) -> str:
    return str(slot["slot"]).replace("_", " ") if slot["slot"] else str(slot["conversation_id"])


def _given_means(summary: pl.DataFrame, version: str) -> dict[str, tuple[float | None, bool]]:
    """Return the means that the answers do not show, and whether labels corrected them.

    These are those with labels by people, or none because rules alone answered.
    """
    has_labels = pl.col("n_labels_drawn").is_not_null() | (pl.col("n_labels_own") > 0)
    is_given = pl.col("mean").is_null() | has_labels
    rows = summary.filter(pl.col("methodology_version") == version, is_given)
    is_corrected = pl.col("mean_of_judge").is_not_null()
    return {
        quantity: (mean, by)
        for quantity, mean, by in rows.select("quantity", "mean", is_corrected).iter_rows()
    }


def spreads(
    answers: pl.DataFrame, means: Mapping[str, tuple[float | None, bool]] | None = None
) -> list[Spread]:
    """Return the distribution of the judgments that enter means, per metric; judgments without a value are counted by reason.

    A metric in `means` has this mean instead of that of its answers. Scored, unscored and disputed judgments are
    eligible; those with status `not_applicable` are not.
    """
    metrics = answers.partition_by("metric", as_dict=True)
    by_metric = [_spread(str(metric), rows) for (metric,), rows in metrics.items()]
    mean_of_metric = means or {}
    of = {one.metric: mean_of_metric.get(one.metric, (one.mean, False)) for one in by_metric}
    by_metric = [replace(one, mean=of[one.metric][0], is_corrected=of[one.metric][1]) for one in by_metric]
    return sorted(by_metric, key=lambda s: (s.n_scored == 0, not s.bar, s.metric))


def _spread(metric: str, rows: pl.DataFrame) -> Spread:
    scored = rows.filter(pl.col("status") == "scored")
    ratings, values = _counted(scored, "rating_1to5"), _counted(scored, "value")
    return Spread(
        metric,
        n_scored=int(scored["n"].sum()),
        n_eligible=int(rows.filter(pl.col("status").is_in(["scored", "unscored", "disputed"]))["n"].sum()),
        bar=stacked(dict(ratings)),
        mean=_mean(ratings or values),
        is_corrected=False,
        labels=[*_counted(scored, "label"), *_yes_and_no(dict(values))],
        gaps=_counted(rows, "unscored_reason"),
    )


def _counted(rows: pl.DataFrame, name: str) -> list[tuple[Any, int]]:
    """Return the values of a column with their counts, most frequent first; nulls are omitted."""
    counts = rows.drop_nulls(name).group_by(name).agg(pl.col("n").sum())
    return counts.sort("n", name, descending=[True, False]).rows()


def _yes_and_no(counts: Mapping[float, int]) -> list[tuple[str, int]]:
    """Return the counts of 1 ('yes') and 0 ('no') for a 0/1 metric; an empty list for other metrics."""
    if not counts or counts.keys() - {0.0, 1.0}:
        return []
    return [("yes", counts.get(1.0, 0)), ("no", counts.get(0.0, 0))]


def _mean(counts: Sequence[tuple[float, int]]) -> float | None:
    return sum(value * n for value, n in counts) / sum(n for _, n in counts) if counts else None


def conversation_rows(frames: Frames, paths: Paths, has_page: Collection[str]) -> list[dict[str, Any]]:
    """Return the agent's conversations, each with its slot, outcome, mean rating, number of failures and worst severity."""
    means = frames.turn_ratings.group_by("conversation_id").agg(**means_of_counts())
    severities = frames.error_clusters.select("cluster_id", "severity").unique("cluster_id")
    failures = (
        frames.failures.join(severities, on="cluster_id", how="left")
        .group_by("conversation_id")
        .agg(n_failures=n_findings(), severity=pl.col("severity").cast(SEVERITY).max())
    )
    slots = frames.transcripts.select("conversation_id", "slot", "tests", "is_admitted", "reason")
    joined = decided(frames.conversations.select(LISTED), frames.goals)
    for other in (slots, means, failures):
        joined = joined.join(other, on="conversation_id", how="left")
    return [
        row
        | {
            "href": paths.conversation(row["agent_id"], row["conversation_id"])
            if row["conversation_id"] in has_page
            else None
        }
        for row in joined.sort("session_id", "slot", "conversation_id", nulls_last=True).to_dicts()
    ]


def first_to_read(conversations: Sequence[Row]) -> list[Row]:
    """Return the conversations to read first: by their worst finding, then missed goals, then the number of failures."""
    severities = SEVERITY.categories.to_list()

    def urgency(row: Row) -> tuple[int, bool, int]:
        rank = severities.index(row["severity"]) + 1 if row["severity"] else 0
        return -rank, row["outcome_correct"] is not False, -(row["n_failures"] or 0)

    return sorted(conversations, key=urgency)[:MOST_READ_FIRST]
