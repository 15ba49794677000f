"""Estimate the means and lower ends that thresholds compare, where labels or `confidence` require more than a mean."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from agent_eval.metrics.base import NO_FAILURE
from agent_eval.scores.composite.leaderboard import leaderboard
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.labelled_parts import corrected, parts_of
from agent_eval.scores.statistics.clustered import clustered_interval
from agent_eval.scores.statistics.unpaired import FAILURE_RATE
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.judging import HUMAN
from agent_eval.transcripts.scenario_names import gated_scenario


class MeanEstimate(NamedTuple):
    """Hold the mean of a metric with the lower end of its 95 % interval; for failures, the shares without one.

    `n_labels` is the number of labels that correct the mean, 0 if it is the judge's, `n_too_few` the number of drawn
    labels that are too few to correct it, `n_own` the number of parts that people decided without a draw, and `has_unchecked` whether
    any part is the answer of a judge without a label. `value` is null if neither labels nor `confidence` require it.
    """

    value: float | None
    low: float | None
    n_labels: int
    n_too_few: int = 0
    n_own: int = 0
    has_unchecked: bool = True


MeanEstimates = Mapping[tuple[str, str | None], MeanEstimate]
"""Estimates by metric and scenario; None for the agent as a whole."""


def answered_parts(
    turn_judgments: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    transcripts: pl.DataFrame,
    metrics: Collection[str],
    failures: Collection[str],
    scenarios: Collection[str] = (),
) -> pl.DataFrame:
    """Return the parts of these metrics in admitted conversations, with `scenario`, `session_id`, `cluster` and `part`.

    `scenarios` are the benchmark scenarios that are kept apart.
    """
    admitted = transcripts.filter("is_admitted").select(
        *PAIR,
        "conversation_id",
        "session_id",
        scenario=gated_scenario(scenarios),
        cluster=pl.coalesce("task_id", "conversation_id"),
    )
    parts = parts_of(turn_judgments, conversation_judgments, metrics, failures, NO_FAILURE)
    part = pl.concat_str(
        "conversation_id", pl.col("turn_index").cast(pl.String), separator="#", ignore_nulls=True
    )
    return parts.join(admitted, on=[*PAIR, "conversation_id"]).with_columns(part=part)


def mean_estimates(
    parts: pl.DataFrame, scales: Mapping[str, tuple[float, float]], *, with_lower_end: bool
) -> dict[AgentVersion, dict[tuple[str, str | None], MeanEstimate]]:
    """Return the estimates of each pair, by metric and scenario.

    Means without drawn labels are included only with `with_lower_end`; their interval is over sessions, or over tasks
    or conversations if there is a single session.

    Args:
        parts: From `answered_parts`.
        scales: The ends of the scale of each metric; a metric without an entry has the scale 0–1.
        with_lower_end: Whether the lower end of every mean is needed.
    """
    estimates: dict[AgentVersion, dict[tuple[str, str | None], MeanEstimate]] = defaultdict(dict)
    for key, whole in parts.partition_by([*PAIR, "quantity"], as_dict=True).items():
        version, agent, quantity = key
        metric = quantity.removeprefix(FAILURE_RATE)
        bounds = scales.get(quantity, (0.0, 1.0))
        scenarios: list[tuple[str | None, pl.DataFrame]] = [(None, whole)]
        scenarios += [(str(name), of) for (name,), of in whole.partition_by("scenario", as_dict=True).items()]
        for scenario, of in scenarios:
            estimate = _estimate(of, bounds, is_failure=quantity != metric, with_lower_end=with_lower_end)
            if estimate is not None:
                estimates[AgentVersion(agent, version)][metric, scenario] = estimate
    return estimates


def _estimate(
    parts: pl.DataFrame, bounds: tuple[float, float], *, is_failure: bool, with_lower_end: bool
) -> MeanEstimate | None:
    mean = corrected(parts, "part", bounds)
    n_too_few = 0 if mean is not None else parts.drop_nulls(["human", "weight"]).height
    own = parts.filter(pl.col("weight").is_null(), judge=HUMAN).height, parts["human"].has_nulls()
    if mean is not None:
        value, low, high, n_labels = mean[0].value, mean[0].low, mean[0].high, mean[0].n_drawn
    elif with_lower_end:
        values = parts["value"].to_list()
        clusters = parts["session_id" if parts["session_id"].n_unique() > 1 else "cluster"].to_list()
        interval = clustered_interval(values, clusters, bounds=bounds, point=1.0)
        value, n_labels = sum(values) / len(values), 0
        low, high = (None, None) if interval is None else (interval.low, interval.high)
    else:
        return MeanEstimate(None, None, 0, n_too_few, *own) if n_too_few or own[0] else None
    if is_failure:
        return MeanEstimate(1 - value, None if high is None else 1 - high, n_labels, n_too_few, *own)
    return MeanEstimate(value, low, n_labels, n_too_few, *own)


def score_lower_ends(
    composite_scores: pl.DataFrame, reliability: pl.DataFrame
) -> dict[AgentVersion, dict[str, dict[str, float]]]:
    """Return the lower ends of the 95 % intervals of composites and pass rates, by name and task set; '' for composites."""
    estimates: dict[AgentVersion, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    board = leaderboard(composite_scores, table("agents").empty(), reliability)  # type: ignore[arg-type]
    for version, agent, low in board.select(*PAIR, "low").drop_nulls().iter_rows():
        estimates[AgentVersion(agent, version)]["composite"][""] = low
    for row in reliability.filter(estimator="unbiased").iter_rows(named=True):
        for kind in ("at", "hat"):
            if (low := row[f"pass_{kind}_k_low"]) is not None:
                pair = AgentVersion(row["agent_id"], row["methodology_version"])
                estimates[pair][f"pass_{kind}_{row['k']}"][row["task_set"]] = low
    return estimates
