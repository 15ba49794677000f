"""The page of one agent under one methodology version: from its composite down to the conversations."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from agent_eval.methodology import Methodology
from agent_eval.methodology.models import SCENARIOS, Anchors, Template
from agent_eval.report.asset_pages.clusters import change, most_severe_first
from agent_eval.report.charts import StackPart, radar, stacked
from agent_eval.report.html.board_pages import spans, standing
from agent_eval.report.html.history import session_history
from agent_eval.report.html.summary import summary_rows
from agent_eval.report.html.tables import Row, by_key, only
from agent_eval.report.names import CONVERSATIONS_PER_PAGE, Paths
from agent_eval.scores.statistics.exact import from_text, in_words, rounded

EXAMPLES = 3  # failures that are quoted per cluster
LIGHT = (
    "methodology_version", "agent_id", "conversation_id", "turn_index", "metric", "judge",
    "rating_1to5", "value", "label", "status", "unscored_reason", "is_effective",
)  # fmt: skip
"""The columns of judgments that an agent's page is made from: no texts."""
LISTED = (
    "agent_id", "conversation_id", "session_id", "task_id", "trial", "n_turns", "n_tool_calls", "outcome_correct",
    "outcome_class",
)  # fmt: skip
"""The columns of conversations in an agent's list of them."""


@dataclass(frozen=True)
class Frames:
    """The stored rows of one agent under all versions; those of boards may hold other agents too."""

    leaderboard: pl.DataFrame
    composite_scores: pl.DataFrame
    universal_scores: pl.DataFrame
    domain_scores: pl.DataFrame
    rubric_ratings: pl.DataFrame
    transcripts: pl.DataFrame
    conversations: pl.DataFrame
    sessions: pl.DataFrame
    turn_judgments: pl.DataFrame
    conversation_judgments: pl.DataFrame
    error_clusters: pl.DataFrame
    error_trends: pl.DataFrame
    failures: pl.DataFrame
    reliability: pl.DataFrame
    quality_summary: pl.DataFrame
    log_leaderboard: pl.DataFrame
    gates: pl.DataFrame

    def under(self, version: str) -> "Frames":
        """Return the rows of one version; what is stored once per agent stays."""
        kept = {
            name: frame.filter(pl.col("methodology_version") == version)
            if "methodology_version" in frame.columns
            else frame
            for name, frame in vars(self).items()
        }
        return Frames(**kept)


@dataclass(frozen=True)
class ShownRating:
    """One rating of a part, with the words of its anchor and the conversations it was given on."""

    row: Row
    anchor: str | None
    conversations: Sequence[tuple[str, str]]  # label, path


@dataclass(frozen=True)
class RatedCriterion:
    """A dimension or a criterion: its mean over sessions and every rating behind it."""

    id: str
    name: str
    question: str
    mean: float | None  # 1–5
    ratings: Sequence[ShownRating]


@dataclass(frozen=True)
class ScenarioScores:
    """One of D1–D5."""

    id: str
    name: str
    description: str
    score: float | None  # 0–100
    criteria: Sequence[RatedCriterion]


@dataclass(frozen=True)
class Spread:
    """How the counting judgments of one metric are spread."""

    metric: str
    n_scored: int
    n_eligible: int
    bar: tuple[StackPart, ...]  # of ratings
    mean: float | None  # of ratings or values
    labels: Sequence[tuple[str, int]]  # failure labels; yes and no of a 0/1 metric
    gaps: Sequence[tuple[str, int]]  # why others have no value


def agent_pages(
    agent: Row, version: str, frames: Frames, methodology: Methodology, paths: Paths
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, template and content of each page of an agent under a version: the agent, and the rest of a long list.

    `frames` hold rows of this version only.
    """
    rows = conversation_rows(frames, paths)
    n_parts = max(1, -(-len(rows) // CONVERSATIONS_PER_PAGE))
    parts = [paths.agent(agent["agent_id"], version, part) for part in range(n_parts)]
    shared = {
        "agent": agent,
        "version": version,
        "n_conversations": len(rows),
        "per_list": CONVERSATIONS_PER_PAGE,
        "list_parts": parts,
    }
    for part, path in enumerate(parts):
        listed = {"conversations": rows[part * CONVERSATIONS_PER_PAGE : (part + 1) * CONVERSATIONS_PER_PAGE]}
        if part:
            yield path, "conversations.html", shared | listed
        else:
            page = agent_page(agent, frames, methodology, paths)
            yield path, "agent.html", shared | listed | page


def agent_page(agent: Row, frames: Frames, methodology: Methodology, paths: Paths) -> dict[str, Any]:
    """Return what the page of an agent under a version shows above its conversations."""
    board = frames.leaderboard.filter(pl.col("agent_id") == agent["agent_id"]).to_dicts()
    composite = _first(frames.composite_scores)
    universal, domain = _first(frames.universal_scores), _first(frames.domain_scores)
    slug = composite.get("template") or agent["template"]
    template = next((t for t in methodology.templates if t.slug == slug), None)
    known = set(frames.conversations["conversation_id"])
    slots = {
        row["conversation_id"]: row
        for row in frames.transcripts.to_dicts()
        if row["conversation_id"] in known
    }
    dimensions = tuple(_dimensions(universal, methodology, frames, slots, paths))
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
        "spreads": spreads(pl.concat([frames.turn_judgments, frames.conversation_judgments])),
        "clusters": _clusters(frames, known, paths),
        "reliability": [
            {"row": r, "pass_at": spans(r, "pass_at_k"), "pass_hat": spans(r, "pass_hat_k")}
            for r in frames.reliability.to_dicts()
        ],
        "gates": frames.gates.to_dicts(),
        "sessions": frames.sessions.to_dicts(),
        "history": session_history(
            frames.sessions,
            frames.conversations,
            frames.transcripts,
            frames.turn_judgments,
            frames.failures,
            composite,
        ),
    }


def _is_log(logs: pl.DataFrame, agent_id: str) -> bool:
    return bool((logs["agent_id"] == agent_id).any())


def _first(frame: pl.DataFrame) -> Row:
    return frame.row(0, named=True) if frame.height else {}


def _formula(composite: Row, universal: Row, domain: Row, methodology: Methodology) -> dict[str, Any]:
    """Return the composite in words: '0.40 × 90 + 0.60 × 844/9 = 92.3'; '?' marks missing values."""
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
        given = [
            _given(row, dimension.anchors, slots, paths, dimension.needs_test)
            for row in _counting_first(only(ratings, dimension.id, None))
        ]
        mean = universal.get(dimension.id.lower())
        yield RatedCriterion(dimension.id, dimension.name, dimension.question, mean, given)


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
    """Return the rated conversation, or those of the session with the required test."""
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


def spreads(judgments: pl.DataFrame) -> list[Spread]:
    """Return the distribution of counting judgments per metric; unjudged ones are counted by reason.

    Eligible are those that are scored, unscored or disputed; `not_applicable` are neither.
    """
    metrics = judgments.filter("is_effective").partition_by("metric", as_dict=True)
    found = [_spread(str(metric), rows) for (metric,), rows in metrics.items()]
    return sorted(found, key=lambda s: (s.n_scored == 0, not s.bar, s.metric))


def _spread(metric: str, rows: pl.DataFrame) -> Spread:
    scored = rows.filter(pl.col("status") == "scored")
    return Spread(
        metric,
        n_scored=scored.height,
        n_eligible=rows.filter(pl.col("status").is_in(["scored", "unscored", "disputed"])).height,
        bar=stacked(dict(_counted(scored["rating_1to5"]))),
        mean=_number(scored["rating_1to5"].mean())
        if scored["rating_1to5"].count()
        else _number(scored["value"].mean()),
        labels=[*_counted(scored["label"]), *_yes_and_no(scored["value"])],
        gaps=_counted(rows["unscored_reason"]),
    )


def _counted(values: pl.Series) -> list[tuple[Any, int]]:
    """Return each value and how often it occurs, the most frequent first; nulls are left out."""
    name = values.name
    return values.drop_nulls().value_counts().sort("count", name, descending=[True, False]).rows()


def _yes_and_no(values: pl.Series) -> list[tuple[str, int]]:
    """Return how many of a 0/1 metric's values are 1 and 0; nothing for other metrics."""
    known = values.drop_nulls()
    if known.is_empty() or not known.is_in([0.0, 1.0]).all():
        return []
    n_yes = int((known == 1).sum())
    return [("yes", n_yes), ("no", len(known) - n_yes)]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _clusters(frames: Frames, known: Collection[str], paths: Paths) -> list[dict[str, Any]]:
    """Return error clusters, most severe first, each with its change since the baseline and examples."""
    changes = dict(frames.error_trends.select("cluster_id", change()).iter_rows())
    failures = by_key(frames.failures, "cluster_id")
    return [
        {
            "row": row,
            "change": changes.get(row["cluster_id"]) or row["trend"],
            "examples": [_example(f, known, paths) for f in only(failures, row["cluster_id"])[:EXAMPLES]],
            "n_more": max(0, len(only(failures, row["cluster_id"])) - EXAMPLES),
        }
        for row in most_severe_first(frames.error_clusters, "n_turns").to_dicts()
    ]


def _example(failure: Row, known: Collection[str], paths: Paths) -> dict[str, Any]:
    """Return a failure, with its turn's address unless the conversation has gone from the store since."""
    agent_id, conversation_id, turn_index = (
        failure[c] for c in ("agent_id", "conversation_id", "turn_index")
    )
    is_there = conversation_id in known
    return {
        "row": failure,
        "href": paths.conversation(agent_id, conversation_id, turn_index) if is_there else None,
    }


def conversation_rows(frames: Frames, paths: Paths) -> list[dict[str, Any]]:
    """Return the agent's conversations with what is known of each: slot, outcome, mean rating, failures."""
    rated = frames.turn_judgments.filter("is_effective", pl.col("status") == "scored")
    means = rated.group_by("conversation_id").agg(mean_rating=pl.col("rating_1to5").mean(), n_judged=pl.len())
    failures = frames.failures.group_by("conversation_id").agg(n_failures=pl.len())
    slots = frames.transcripts.select("conversation_id", "slot", "tests", "is_admitted", "reason")
    joined = frames.conversations.select(LISTED)
    for other in (slots, means, failures):
        joined = joined.join(other, on="conversation_id", how="left")
    return [
        row | {"href": paths.conversation(row["agent_id"], row["conversation_id"])}
        for row in joined.sort("session_id", "slot", "conversation_id", nulls_last=True).to_dicts()
    ]
