"""Choose the units of a trend's test: task families, sessions or conversations.

Turns of a unit may depend on each other. Task families are the units if all tasks declare one; otherwise, sessions
are the units if both sides have at least two, and conversations if not.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
CONVERSATION, SESSION, FAMILY = "conversation", "session", "task_family"
FEWEST_UNITS = 2  # per side; fewer units do not show their spread
_PAIR = ("methodology_version", "agent_id")


class UnitSums(NamedTuple):
    """Hold the sums over one side's units, per cluster, where k of a unit's n eligible turns have the failure."""

    n_units: Floats
    failing: Floats  # Σ k
    eligible: Floats  # Σ n
    squares: Floats  # Σ k²
    products: Floats  # Σ kn
    lengths: Floats  # Σ n²


def with_unit(transcripts: pl.DataFrame) -> pl.DataFrame:
    """Add `unit` and `unit_name` to transcripts: families if all conversations of a run have one, else sessions."""
    run = [*_PAIR, "benchmark_id"]
    has_families = pl.col("task_family").is_not_null().all().over(run)
    kind = pl.when(has_families).then(pl.lit(FAMILY)).otherwise(pl.lit(SESSION))
    return transcripts.with_columns(
        unit=kind, unit_name=pl.when(has_families).then("task_family").otherwise("session_id")
    )


def unit_of_comparison(here: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame:
    """Return `unit` and `unit_reason` of each comparison (version and agent), from the rows of both sides.

    Rows of an earlier release have no units; they are compared over conversations.
    """
    totals = pl.concat(
        [
            side.filter(pl.col("cluster_id").is_null()).select(
                *_PAIR, "unit", "units", is_here=pl.lit(is_here)
            )
            for side, is_here in ((here, True), (there, False))
        ]
    )
    exploded = totals.explode("units")
    n_here, n_there = (
        pl.col("units").filter(pl.col("is_here") == side).drop_nulls().n_unique() for side in (True, False)
    )
    kinds = exploded.group_by(_PAIR, maintain_order=True).agg(
        is_family=(pl.col("unit") == FAMILY).fill_null(value=False).all(),
        is_session=(pl.col("unit") == SESSION).fill_null(value=False).all(),
        n_here=n_here,
        n_there=n_there,
    )
    are_few = pl.min_horizontal("n_here", "n_there") < FEWEST_UNITS
    return kinds.select(
        *_PAIR,
        unit=pl.when("is_family")
        .then(pl.lit(FAMILY))
        .when(pl.col("is_session") & ~are_few)
        .then(pl.lit(SESSION))
        .otherwise(pl.lit(CONVERSATION)),
        unit_reason=pl.when(pl.col("is_family") & are_few).then(
            pl.format(
                "too few task families: {} and {}, {} of each are needed",
                "n_here",
                "n_there",
                pl.lit(FEWEST_UNITS),
            )
        ),
    )


def unit_sums(side: pl.DataFrame, rows: pl.DataFrame) -> UnitSums:
    """Return one side's sums for the given rows of `error_trends` (version, agent, cluster, metrics), in order."""
    of = side.explode("units", "unit_turns").drop_nulls("units")
    eligible = (
        of.filter(pl.col("cluster_id").is_null())
        .group_by(*_PAIR, "metrics", "units")
        .agg(n=pl.col("unit_turns").sum())
    )
    failing = (
        of.filter(pl.col("cluster_id").is_not_null())
        .group_by(*_PAIR, "cluster_id", "units")
        .agg(k=pl.col("unit_turns").sum())
    )
    k, n = pl.col("k").fill_null(0), pl.col("n")
    keyed = rows.select(*_PAIR, "cluster_id", "metrics").with_row_index("_row")
    sums = (
        keyed.join(eligible, on=[*_PAIR, "metrics"])
        .join(failing, on=[*_PAIR, "cluster_id", "units"], how="left")
        .group_by("_row")
        .agg(n_units=pl.len(), failing=k.sum(), eligible=n.sum(), squares=(k * k).sum(), products=(k * n).sum(), lengths=(n * n).sum())
    )  # fmt: skip
    filled = keyed.join(sums, on="_row", how="left", maintain_order="left")
    return UnitSums(*(filled[name].cast(pl.Float64).fill_null(0.0).to_numpy() for name in UnitSums._fields))


def unit_test(here: UnitSums, there: UnitSums) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
    """Return the design effect, the two-sided p and both sides' effects for their intervals, with units as clusters.

    The variance of a side's rate is computed as in `scores.statistics.clustered`: from the residuals around the
    side's rate, summed per unit, divided by 1 − Σ w² for the units' shares w of the turns, with 1 / Σ w² − 1
    degrees of freedom (Kish, 1965). The variance of the difference is at least the binomial variance of both
    sides together. p comes from Student's t with Welch's degrees of freedom, which corrects for few units. The
    sides' effects include the factor of t over z.

    Returns:
        NaN if a side has fewer than two units; p is 1 if all turns or none of both sides have the failure.
    """
    from scipy.special import stdtr, stdtrit

    with np.errstate(divide="ignore", invalid="ignore"):
        variances, freedoms, rates, effects = [], [], [], []
        for side in (here, there):
            rate = side.failing / side.eligible
            concentration = side.lengths / side.eligible**2
            residuals = side.squares - 2 * rate * side.products + rate**2 * side.lengths
            residuals = np.where(
                residuals < 1e-9 * side.lengths, 0.0, residuals
            )  # rates that are equal up to rounding
            variance = residuals / (side.eligible**2 * (1 - concentration))
            freedom = 1 / concentration - 1
            t_over_z = stdtrit(np.maximum(freedom, 1.0), 0.975) / stdtrit(np.inf, 0.975)
            own = np.maximum(variance / (rate * (1 - rate) / side.eligible), 1.0)
            effects.append(np.where(np.isfinite(own), own, 1.0) * t_over_z**2)
            variances.append(variance)
            freedoms.append(freedom)
            rates.append(rate)
        pooled = (here.failing + there.failing) / (here.eligible + there.eligible)
        least = pooled * (1 - pooled) * (1 / here.eligible + 1 / there.eligible)
        variance = variances[0] + variances[1]
        freedom = variance**2 / (variances[0] ** 2 / freedoms[0] + variances[1] ** 2 / freedoms[1])
        every = freedoms[0] + freedoms[1]
        t = (rates[0] - rates[1]) / np.sqrt(np.maximum(variance, least))
        p_value = 2 * stdtr(np.where(np.isfinite(freedom), freedom, every), -np.abs(t))
        effect = np.maximum(variance / least, 1.0)
    is_known = np.minimum(here.n_units, there.n_units) >= FEWEST_UNITS
    is_flat = least == 0
    nan = np.nan
    return (
        np.where(is_known & ~is_flat, effect, nan),
        np.where(is_known, np.where(is_flat, 1.0, p_value), nan),
        (np.where(is_known, effects[0], nan), np.where(is_known, effects[1], nan)),
    )
