"""Build the leaderboard: rank published agents by exact composite, and list the others with their reasons."""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import polars as pl

from agent_eval.errors import InputError
from agent_eval.methodology.models import Methodology, Version, in_version_order
from agent_eval.scores.composite.copies import with_copies_between_agents
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.statistics.clustered import serial_inflation
from agent_eval.scores.statistics.distribution_free import (
    FEW_NEAR_AN_END,
    IntervalMethod,
    any_spread_mean,
    has_breakdown,
    is_near_an_end,
    unseen_reason,
)
from agent_eval.scores.statistics.exact import from_text
from agent_eval.scores.statistics.intervals import (
    LEVEL,
    Difference,
    Interval,
    Sample,
    bounded_mean,
    holm,
    welch,
)
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import Agents, CompositeScores, Reliability

SCALE_0TO100 = (20.0, 100.0)  # of a raw composite: all ratings 1, all ratings 5
SIGNIFICANCE = 0.05
ORDER_OF_STATUS = ("published", "provisional", "incomplete", "invalid", "not_applicable")


def leaderboard(
    composite_scores: CompositeScores,
    agents: Agents,
    reliability: Reliability,
    superseded_by: Mapping[str, str | None] | None = None,
    interval: IntervalMethod = "auto",
) -> pl.DataFrame:
    """Return table `leaderboard`: one row per row of `composite_scores` whose agent entered the version.

    An agent entered a version if one of its sessions was run for that version or for any version; other agents
    are not on the board. `superseded_by` maps versions to their successors; `interval` is the interval method.
    A session that copies another agent's makes its row `provisional`. Only published rows are ranked, by exact composite within their version and template, as 1, 2, 2, 4.
    Intervals cover the variation between sessions and, in rows with the columns of `with_judge_error`, the judge's error
    beside ratings by people; the slots D1–D5 are fixed and not sampled. An agent with one
    session has neither an interval nor a rank range, and the rank ranges of the others assume that it may have
    any rank. `pass_at_1` is the unbiased estimate over all tasks, null unless the agent has exactly one task
    set; its trials are counted over all sets. Rows are sorted by version and template, with published rows by
    rank first, then the others by status. The result does not depend on the row order of the inputs.
    """
    entered = with_copies_between_agents(composite_scores).filter(pl.col("has_entered").fill_null(True))
    successors = superseded_by or {}
    names = dict(agents.select("agent_id", "name").iter_rows())
    passes = _pass_at_1(reliability)
    fields = _fields(entered)
    standings, overall = _standings(fields, interval), _ranks_overall(fields)
    shared = [c for c in table("leaderboard").schema if c in entered.columns]
    rows = []
    for row in entered.select(shared).iter_rows(named=True):
        pair = AgentVersion(row["agent_id"], row["methodology_version"])
        rows.append(
            row
            | {"name": names.get(pair.agent_id) or pair.agent_id, "point_0to100": None}
            | {"rank": None, "rank_overall": overall.get(pair)}
            | {"cost_usd_per_conversation": _cost_each(row)}
            | {"superseded_by": successors.get(pair.methodology_version)}
            | standings.get(pair, {})
            | passes.get(pair, {})
        )
    return table("leaderboard").frame(sorted(rows, key=_place))


def pairwise_comparisons(
    composite_scores: CompositeScores, interval: IntervalMethod = "auto"
) -> pl.DataFrame:
    """Return table `pairwise_comparisons`: every two published agents of a template, compared over sessions.

    Both agents have the same fixed slots, so that slot difficulty cancels out of their difference; sessions are
    assumed independent. p is corrected for the number of pairs in the template. Unless `interval` is t, the
    verdict on a difference that unseen sessions could explain is unknown, with the reason.
    """
    rows: list[dict[str, object]] = []
    for (version, template), entries in _fields(with_copies_between_agents(composite_scores)).items():
        field = sorted(entries, key=lambda entry: entry.agent_id)
        compared = [(a, b, difference_of(a, b)) for a, b in itertools.combinations(field, 2)]
        corrected = holm([gap.p_value for _, _, gap in compared])
        for (a, b, gap), p_holm in zip(compared, corrected, strict=True):
            rows.append(
                {
                    "methodology_version": version,
                    "agent_id": a.agent_id,
                    "other_agent_id": b.agent_id,
                    "template": template,
                    **gap._asdict(),
                    "p_holm": p_holm,
                    "n_sessions": a.n_sessions,
                    "other_n_sessions": b.n_sessions,
                    **_judged(a, b, gap, verdict(gap, p_holm), interval, len(compared)),
                }
            )
    comparisons = table("pairwise_comparisons").frame(rows)
    return in_version_order(comparisons, "template", "agent_id", "other_agent_id")


def _judged(
    a: "BoardEntry", b: "BoardEntry", gap: Difference, raw: str, interval: IntervalMethod, n_pairs: int
) -> dict[str, str | None]:
    """Return the verdict, or 'unknown' and the reason if unseen sessions could explain the difference."""
    reason = None
    if raw in ("better", "worse") and interval != "t":
        ends = SCALE_0TO100[0] - max(a.penalty, b.penalty), SCALE_0TO100[1]
        sides = (a.agent_id, a.penalised), (b.agent_id, b.penalised)
        reason = unseen_reason(*sides, gap, ends, n_tests=n_pairs, step=max(a.step, b.step))
    return {"verdict": raw if reason is None else "unknown", "reason": reason}


def verdict(gap: Difference, p_corrected: float | None) -> str:
    """Return the verdict on the first agent: better, worse, tie, not distinguishable or unknown."""
    if gap.difference == 0:
        return "tie"
    if p_corrected is None:
        return "unknown"
    if p_corrected >= SIGNIFICANCE:
        return "not distinguishable"
    return "better" if gap.difference > 0 else "worse"


def penalty_what_if(board: pl.DataFrame, methodology: Methodology) -> pl.DataFrame:
    """Return the board with `what_if_composite`: each raw composite minus this version's penalty, at least 0.

    The column is null if the raw composite or the penalty is unknown.
    """
    points = [
        methodology.penalty_points("repeatability_tested", tested) for tested in board["repeatability_tested"]
    ]
    penalty = pl.Series("points", [None if p is None else float(p) for p in points], dtype=pl.Float64)
    return board.with_columns(what_if_composite=(pl.col("raw_composite_score") - penalty).clip(lower_bound=0))


def in_reading_order(board: pl.DataFrame) -> pl.DataFrame:
    """Sort a stored board as `leaderboard` does: by version, template and rank, then unranked rows by status."""
    return table("leaderboard").frame(sorted(board.iter_rows(named=True), key=_place))


def competition_ranks(values: Sequence[Fraction]) -> list[int]:
    """Return standard competition ranks, highest value first; equal values share a rank, as in 1, 2, 2, 4."""
    rank_of: dict[Fraction, int] = {}
    place = 1
    for value, n in sorted(Counter(values).items(), reverse=True):
        rank_of[value] = place
        place += n
    return [rank_of[value] for value in values]


def one_version(board: pl.DataFrame) -> pl.DataFrame:
    """Return the board unchanged if all its rows have the same methodology version, or if it is empty.

    Raises:
        InputError: If the board has several versions; views of several must be requested explicitly.
    """
    versions = board["methodology_version"].unique().to_list()
    if len(versions) > 1:
        raise InputError(
            f"The board mixes methodology versions {', '.join(sorted(versions, key=Version.parse))}. "
            "Scores of two versions are not comparable: choose one version, or ask for several explicitly."
        )
    return board


@dataclass(frozen=True)
class BoardEntry:
    """Hold one published agent of a version and template."""

    agent_id: str
    exact: Fraction
    raw: Fraction
    penalty: float
    sessions: Sample  # raw composite of each session, with the dependence of successive ones; empty unless all are known
    n_sessions: int
    point: Fraction  # the largest change of the composite by one rating point in one session
    cost: float | None  # US dollars per conversation
    values: tuple[float, ...] = ()  # the values that `sessions` summarises
    judge_error: float = 0.0  # standard error, in points, that `sessions` includes

    @cached_property
    def step(self) -> float:
        """Return the largest change that one rating point makes to the raw composite of a session."""
        return float(self.point) * max(1, self.n_sessions)

    @cached_property
    def penalised(self) -> Sample:
        """Return the summary of the session values minus the penalty."""
        return self.sessions._replace(mean=self.sessions.mean - self.penalty)

    def interval(self, method: IntervalMethod = "t") -> Interval | None:
        """Return the 95 % interval of the composite; None with fewer than two sessions."""
        if method == "bounded":
            raw = _widened(any_spread_mean(self.values, SCALE_0TO100), self.sessions.mean, self.judge_error)
        else:
            raw = bounded_mean(self.sessions, bounds=SCALE_0TO100, step=self.step)
        if raw is None:
            return None
        return Interval(max(0.0, raw.low - self.penalty), max(0.0, raw.high - self.penalty))

    def method(self, requested_method: IntervalMethod) -> Literal["t", "bounded"]:
        """Return the requested interval method.

        For auto, it is bounded if the sessions show a breakdown, or if there are fewer than ten and all are near an end of
        the scale; else t.
        """
        if requested_method == "auto":
            is_unseen = len(self.values) < FEW_NEAR_AN_END and is_near_an_end(self.values, SCALE_0TO100)
            return "bounded" if is_unseen or has_breakdown(self.values) else "t"
        return requested_method

    def said_method(self, method: Literal["t", "bounded"]) -> str:
        """Return the method's name on the board; 't_near_end' if all sessions are near one end of the scale."""
        return "t_near_end" if method == "t" and is_near_an_end(self.values, SCALE_0TO100) else method

    @property
    def smallest_detectable(self) -> float | None:
        """Return the smallest detectable difference from an agent with the same number and spread of sessions."""
        return welch(self.sessions, self.sessions, step=self.step).smallest_detectable


def difference_of(a: BoardEntry, b: BoardEntry) -> Difference:
    """Compare two agents over sessions after penalties; the difference is between their exact composites."""
    gap = welch(a.penalised, b.penalised, step=max(a.step, b.step))
    return gap._replace(difference=float(a.exact - b.exact))


_Fields = Mapping[tuple[str, str | None], list[BoardEntry]]  # by version and template


def _fields(composite_scores: pl.DataFrame) -> _Fields:
    """Group the published agents by version and template."""
    fields = defaultdict[tuple[str, str | None], list[BoardEntry]](list)
    for row in composite_scores.filter(pl.col("status") == "published").iter_rows(named=True):
        fields[row["methodology_version"], row["template"]].append(_entry(row))
    return fields


def board_interval(row: Mapping[str, Any], interval: IntervalMethod) -> Interval | None:
    """Return the interval that the board shows for a row of `composite_scores`; None if it shows no interval.

    It is also None if people and a judge rated the row, because its interval on the board includes the judge's error.
    """
    is_mixed = "human" in (judges := set(row["judge"].split(" + "))) and bool(judges - {"human", "rule"})
    if row["composite_exact"] is None or row["point_0to100"] is None or is_mixed:
        return None
    entry = _entry(row)
    return entry.interval(entry.method(interval))


def _entry(row: Mapping[str, Any]) -> BoardEntry:
    exact, sessions = from_text(row["composite_exact"]), row["session_scores"] or []
    n_sessions = row["n_sessions"]
    is_known = len(sessions) == n_sessions and None not in sessions
    point = Fraction(row["point_0to100"] or 0).limit_denominator(10**6) / max(1, n_sessions)
    sample = Sample.of(sessions if is_known else [])
    if len(row["session_dates"] or ()) == n_sessions:  # each has a date of its own, so their order is known
        sample = sample._replace(deviation=sample.deviation * serial_inflation(sessions if is_known else []))
    judge_error = row.get("judge_error_0to100") or 0.0
    sample = sample.including(judge_error)
    return BoardEntry(
        agent_id=row["agent_id"],
        exact=exact,
        raw=from_text(row["raw_composite_exact"]) if row["raw_composite_exact"] else exact,
        penalty=row["repeatability_penalty"] or 0.0,
        sessions=sample,
        values=tuple(sessions) if is_known else (),
        judge_error=judge_error,
        n_sessions=n_sessions,
        point=point,
        cost=_cost_each(row),
    )


def _widened(interval: Interval | None, mean: float, error: float) -> Interval | None:
    """Return the interval with an independent standard error added to both sides, within the scale."""
    if interval is None or not error:
        return interval
    from scipy.special import ndtri  # imported on use: it takes long

    reach = float(ndtri(0.5 + LEVEL / 2)) * error
    low, high = mean - math.hypot(mean - interval.low, reach), mean + math.hypot(interval.high - mean, reach)
    return Interval(max(low, SCALE_0TO100[0]), min(high, SCALE_0TO100[1]))


def _cost_each(row: Mapping[str, Any]) -> float | None:
    """Return the cost per conversation of a row of composite_scores in US dollars; None if it is unknown."""
    cost, n = row["cost_usd"], row["n_conversations"]
    return cost / n if cost is not None and n else None


def _standings(fields: _Fields, interval: IntervalMethod) -> dict[AgentVersion, dict[str, object]]:
    """Return the statistics of each published agent within its version and template."""
    statistics_of_entry: dict[AgentVersion, dict[str, object]] = {}
    for (version, _), field in fields.items():
        ranks = competition_ranks([entry.exact for entry in field])
        if_tested = competition_ranks([entry.raw for entry in field])
        methods = [entry.method(interval) for entry in field]
        intervals = [entry.interval(method) for entry, method in zip(field, methods, strict=True)]
        ranges = rank_ranges(intervals)
        for i, entry in enumerate(field):
            low, high = intervals[i] or (None, None)
            statistics_of_entry[AgentVersion.of(agent_id=entry.agent_id, methodology_version=version)] = {
                "rank": ranks[i],
                "rank_low": ranges[i][0],
                "rank_high": ranges[i][1],
                "rank_if_tested": if_tested[i],
                "low": low,
                "high": high,
                "interval_method": None if intervals[i] is None else entry.said_method(methods[i]),
                "smallest_detectable": entry.smallest_detectable,
                "point_0to100": float(entry.point),
                "is_pareto": _is_pareto(entry, field),
                **_lead(entry, field),
            }
    return statistics_of_entry


def rank_ranges(intervals: Sequence[Interval | None]) -> list[tuple[int | None, int | None]]:
    """Return the best and worst rank that the intervals allow for each agent.

    An agent ranks behind every agent whose interval is wholly above its own, and ahead of every agent whose
    interval is wholly below. An agent without an interval has no range; the ranges of the others assume that it
    may have any rank.
    """
    defined_intervals = [interval for interval in intervals if interval is not None]
    lows, highs = sorted(i.low for i in defined_intervals), sorted(i.high for i in defined_intervals)
    return [
        (None, None)
        if interval is None
        else (
            1 + len(lows) - bisect_right(lows, interval.high),
            len(intervals) - bisect_left(highs, interval.low),
        )
        for interval in intervals
    ]


def _lead(entry: BoardEntry, field: Sequence[BoardEntry]) -> dict[str, object]:
    """Return the lead over the next agent, and whether one rating point of either could change their order."""
    others = [other for other in field if other is not entry and other.exact <= entry.exact]
    if not others:
        return {"lead_points": None, "lead_survives_point": None}
    lead = entry.exact - max(other.exact for other in others)
    survives = all(entry.exact - other.exact > max(entry.point, other.point) for other in others)
    return {"lead_points": float(lead), "lead_survives_point": survives}


def _is_pareto(entry: BoardEntry, field: Sequence[BoardEntry]) -> bool | None:
    if entry.cost is None:
        return None
    return not any(
        other.cost is not None
        and other.cost <= entry.cost
        and other.exact >= entry.exact
        and (other.cost < entry.cost or other.exact > entry.exact)
        for other in field
    )


def _ranks_overall(fields: _Fields) -> dict[AgentVersion, int]:
    of_version = defaultdict[str, list[BoardEntry]](list)
    for (version, _), field in fields.items():
        of_version[version] += field
    return {
        AgentVersion.of(agent_id=entry.agent_id, methodology_version=version): rank
        for version, field in of_version.items()
        for entry, rank in zip(field, competition_ranks([e.exact for e in field]), strict=True)
    }


def _pass_at_1(reliability: pl.DataFrame) -> dict[AgentVersion, dict[str, object]]:
    # rows of an earlier release have pass@1 only as pass_at_k with k = 1, which was over all tasks
    n_sets = pl.col("task_set").n_unique().over(PAIR)
    sets = reliability.with_columns(n_sets=n_sets).filter(k=1, estimator="unbiased")
    sets = sets.with_columns(
        pl.coalesce("pass_at_1", "pass_at_k").alias("pass_at_1"),
        pl.coalesce("n_tasks_known", "n_tasks").alias("n_tasks"),
    )
    rates = ("pass_at_1", "pass_at_1_worst", "pass_at_1_best", "n_tasks")
    rows = sets.group_by(PAIR).agg(
        *(pl.when(pl.col("n_sets").max() == 1).then(pl.col(name).first()).alias(name) for name in rates),
        *(
            pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)
            for name in ("n_known", "n_unknown")
        ),
    )
    return {
        AgentVersion(row.pop("agent_id"), row.pop("methodology_version")): row
        for row in rows.iter_rows(named=True)
    }


def _place(row: Mapping[str, object]) -> tuple[object, ...]:
    template, rank = row["template"], row["rank"]
    return (
        Version.parse(str(row["methodology_version"])),
        template is None,
        template or "",
        rank is None,
        rank or 0,
        ORDER_OF_STATUS.index(str(row["status"])),
        row["name"],
        row["agent_id"],
    )
