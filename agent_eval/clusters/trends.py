"""Compare an agent's error clusters with those of its baseline within a version, and test the differences.

The baseline is the agent that agents.yaml declares, or else the agent's own previous run. Versions are not
compared with each other, because their questions can differ.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from agent_eval.clusters.cluster_registry import targets
from agent_eval.clusters.rates import PAIR, metrics_of
from agent_eval.clusters.trend_units import CONVERSATION, unit_of_comparison, unit_sums, unit_test
from agent_eval.tables import table
from agent_eval.tables.frames import Agents, ErrorRates

LEVEL = 0.05  # false discovery rate among significant clusters
_Z = 1.959964  # normal quantile of a 95 % interval
_COMPARISON = pl.Schema(
    dict.fromkeys((*PAIR, "baseline_agent_id", "benchmark_id", "baseline_benchmark_id"), pl.String)
)
_SUMS = ("n_turns", "sum_squares", "sum_products")
Floats = npt.NDArray[np.float64]


def error_trends(error_rates: ErrorRates, agents: Agents, registry: pl.DataFrame) -> pl.DataFrame:
    """Return table `error_trends`: each agent compared with its declared baseline or else its previous run.

    Args:
        error_rates: Table `error_rates` of all agents.
        agents: Table `agents`.
        registry: Table `error_registry`.
    """
    against = pl.concat([baselines(error_rates, agents), earlier_runs(error_rates)])
    return compared(error_rates, against.unique(PAIR, keep="first", maintain_order=True), registry)


def baselines(error_rates: pl.DataFrame, agents: pl.DataFrame) -> pl.DataFrame:
    """Return the comparisons with declared baseline agents, over the current runs of both sides."""
    declared = agents.filter(pl.col("baseline").is_not_null() & (pl.col("baseline") != pl.col("agent_id")))
    pairs = declared.select("agent_id", pl.col("baseline").alias("baseline_agent_id"))
    # if only one side was judged, the comparison is kept and its trends are unknown
    mine = error_rates.filter("is_current").select(PAIR).unique()
    theirs = pairs.join(mine.rename({"agent_id": "baseline_agent_id"}), on="baseline_agent_id").select(PAIR)
    return _comparisons(pl.concat([mine, theirs]).unique().join(pairs, on="agent_id"))


def earlier_runs(error_rates: pl.DataFrame) -> pl.DataFrame:
    """Return the comparisons of each agent's latest current run with the run before, ordered by date and id."""
    dated = error_rates.group_by(*PAIR, "benchmark_id").agg(
        pl.col("run_date").max(), pl.col("is_current").any()
    )
    ordered = dated.sort(*PAIR, "run_date", "benchmark_id", nulls_last=False).with_columns(
        pl.col("benchmark_id").shift().over(PAIR).alias("baseline_benchmark_id"),
        pl.col("agent_id").alias("baseline_agent_id"),
    )
    last = ordered.filter("is_current").unique(PAIR, keep="last", maintain_order=True)
    return _comparisons(last.filter(pl.col("baseline_benchmark_id").is_not_null()))


def since_run(error_rates: pl.DataFrame, benchmark_id: str) -> pl.DataFrame:
    """Return comparisons with the run `benchmark_id`, for the latest other current run of each agent that has it."""
    dated = error_rates.group_by(*PAIR, "benchmark_id").agg(
        pl.col("run_date").max(), pl.col("is_current").any()
    )
    ordered = dated.sort(*PAIR, "run_date", "benchmark_id", nulls_last=False)
    other = ordered.filter(pl.col("benchmark_id") != benchmark_id)
    last = other.filter("is_current").unique(PAIR, keep="last", maintain_order=True)
    runs_to_compare = ordered.filter(pl.col("benchmark_id") == benchmark_id).select(PAIR)
    return _comparisons(
        last.join(runs_to_compare, on=PAIR, how="semi").with_columns(
            pl.col("agent_id").alias("baseline_agent_id"), pl.lit(benchmark_id).alias("baseline_benchmark_id")
        )
    )


def compared(error_rates: pl.DataFrame, comparisons: pl.DataFrame, registry: pl.DataFrame) -> pl.DataFrame:
    """Return table `error_trends` for these comparisons: one row per cluster found on either side.

    If all tasks declare a family, or both sides have two or more sessions, families or sessions are the units of
    the test and the intervals (`unit_test`). Otherwise, the test is the two-proportion score test. Its variance is
    multiplied by the design effect of turns within conversations, which is at least 1 (Rao & Scott 1992), and
    Student's t with conversations − 2 degrees of freedom is used. q is corrected over the clusters of a
    comparison after Benjamini and Hochberg. Intervals are Wilson's, with the turns divided by the design effect.
    If only rules judged a side, it has no rate and the trend is unknown.

    Args:
        error_rates: Table `error_rates`.
        comparisons: One row per version and agent, with methodology_version, agent_id, baseline_agent_id,
            benchmark_id and baseline_benchmark_id (null for all current runs).
        registry: Table `error_registry`.
    """
    now = _redirected(error_rates, registry)
    here = _side(now, comparisons, "agent_id", "benchmark_id")
    there = _side(now, comparisons, "baseline_agent_id", "baseline_benchmark_id")
    metrics, described = metrics_of(registry), registry.select("cluster_id", "label", "title", "severity")
    clusters = pl.concat(
        [
            side.filter(pl.col("cluster_id").is_not_null()).select(*PAIR, "cluster_id")
            for side in (here, there)
        ]
    )
    rows = (
        clusters.unique()
        .join(metrics, on="cluster_id")
        .join(described, on="cluster_id")
        .join(comparisons, on=PAIR)
    )
    for prefix, side in (("", here), ("baseline_", there)):
        rows = rows.join(_counts(side, prefix), on=[*PAIR, "cluster_id"], how="left")
        rows = rows.join(_totals(side, prefix), on=[*PAIR, "metrics"], how="left")
    of_units = unit_of_comparison(here, there)
    rows = rows.join(of_units, on=list(PAIR), how="left", maintain_order="left")
    tested = _over_units(_tested(rows), here, there).with_columns(
        q_value=_adjusted(pl.col("p_value")).over(PAIR)
    )
    significant = tested.with_columns((pl.col("q_value") <= LEVEL).alias("is_significant"))
    target = table("error_trends")
    return target.selected(significant.with_columns(_trend().alias("trend"))).sort(target.key)


def _comparisons(rows: pl.DataFrame) -> pl.DataFrame:
    lacking = (pl.lit(None, dtype=pl.String).alias(name) for name in _COMPARISON if name not in rows.columns)
    return rows.with_columns(lacking).select(list(_COMPARISON)).sort(PAIR)


def _redirected(error_rates: pl.DataFrame, registry: pl.DataFrame) -> pl.DataFrame:
    """Return rates under final cluster ids; sums of merged clusters count a turn with both twice, which is rare."""
    redirects: Mapping[str, str] = targets(registry)
    has_target = pl.col("cluster_id").is_null() | pl.col("cluster_id").is_in(sorted(redirects))
    return error_rates.filter(has_target).with_columns(
        pl.col("cluster_id").replace_strict(dict(redirects), default=None, return_dtype=pl.String)
    )


def _side(rates: pl.DataFrame, comparisons: pl.DataFrame, agent: str, run: str) -> pl.DataFrame:
    """Return the rows of one side with the version and agent of their comparison."""
    compared_runs = comparisons.select(
        "methodology_version",
        pl.col(agent).alias("of"),
        pl.col(run).alias("run"),
        pl.col("agent_id").alias("compared"),
    )
    joined = rates.join(compared_runs, left_on=list(PAIR), right_on=["methodology_version", "of"])
    is_meant = (
        pl.when(pl.col("run").is_null()).then("is_current").otherwise(pl.col("benchmark_id") == pl.col("run"))
    )
    return joined.filter(is_meant).with_columns(pl.col("compared").alias("agent_id"))


def _counts(side: pl.DataFrame, prefix: str) -> pl.DataFrame:
    of_clusters = side.filter(pl.col("cluster_id").is_not_null())
    return of_clusters.group_by(*PAIR, "cluster_id").agg(
        pl.col(name).sum().alias(prefix + name) for name in _SUMS
    )


def _totals(side: pl.DataFrame, prefix: str) -> pl.DataFrame:
    of_metrics = side.filter(pl.col("cluster_id").is_null())
    return of_metrics.group_by(*PAIR, "metrics").agg(
        pl.col("n_conversations").sum().alias(f"{prefix}n_conversations"),
        pl.col("n_turns").sum().alias(f"{prefix}n_turns_eligible"),
        pl.col("sum_squares").sum().alias(f"{prefix}sum_eligible_squares"),
    )


def _tested(rows: pl.DataFrame) -> pl.DataFrame:
    """Add rates, intervals, design effect and p, with unknown values as NaN during the computation."""
    prefixes = ("", "baseline_")
    counts = [f"{prefix}{name}" for prefix in prefixes for name in _SUMS]
    sums = rows.with_columns(pl.col(counts).fill_null(0))

    def column(name: str) -> Floats:
        return sums[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()

    failing, eligible = ([column(f"{p}{name}") for p in prefixes] for name in ("n_turns", "n_turns_eligible"))
    n_conversations = column("n_conversations") + column("baseline_n_conversations")
    products, squares, lengths = (
        column(name) + column(f"baseline_{name}")
        for name in ("sum_products", "sum_squares", "sum_eligible_squares")
    )
    effect, p_value = score_test(
        (failing[0], failing[1]), (eligible[0], eligible[1]), squares, products, lengths, n_conversations
    )
    statistics: dict[str, Floats] = {"design_effect": effect, "p_value": p_value}
    for prefix, k, n in zip(prefixes, failing, eligible, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            statistics[f"{prefix}rate_per_100_turns"] = 100 * k / n
        low, high = wilson(k, n, np.where(np.isnan(effect), 1.0, effect))
        statistics |= {f"{prefix}rate_low": 100 * low, f"{prefix}rate_high": 100 * high}
    series = [pl.Series(name, values, dtype=pl.Float64).fill_nan(None) for name, values in statistics.items()]
    return sums.with_columns(*series, *(pl.col(f"{p}n_turns_eligible").fill_null(0) for p in prefixes))


def _over_units(tested: pl.DataFrame, here: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame:
    """Replace the test and the intervals by those over task families or sessions, if these are the units."""
    sums = unit_sums(here, tested), unit_sums(there, tested)
    effect, p_value, effects = unit_test(*sums)
    statistics = {"design_effect": effect, "p_value": p_value}
    for prefix, side, own in zip(("", "baseline_"), sums, effects, strict=True):
        low, high = wilson(side.failing, side.eligible, own)
        statistics |= {f"{prefix}rate_low": 100 * low, f"{prefix}rate_high": 100 * high}
    is_over_units = pl.col("unit") != CONVERSATION
    return tested.with_columns(
        pl.when(is_over_units).then(pl.Series(values).fill_nan(None)).otherwise(name).alias(name)
        for name, values in statistics.items()
    ).with_columns(reason=pl.when(pl.col("p_value").is_null()).then("unit_reason"))


def score_test(
    failing: tuple[Floats, Floats],
    eligible: tuple[Floats, Floats],
    squares: Floats,
    products: Floats,
    lengths: Floats,
    n_conversations: Floats,
) -> tuple[Floats, Floats]:
    """Return the design effect and the two-sided p for equal rates on two sides, with conversations as clusters.

    Args:
        failing: The number of turns with the failure per side; one value per error cluster.
        eligible: The number of turns per side.
        squares: The sum of (turns with the failure)² over all conversations.
        products: The sum of turns with the failure × turns over all conversations.
        lengths: The sum of turns² over all conversations.
        n_conversations: The number of conversations of both sides.

    Returns:
        NaN if there are fewer than three conversations or a side has no turns.
    """
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        turns = eligible[0] + eligible[1]
        rate = (failing[0] + failing[1]) / turns
        binomial = rate * (1 - rate)
        residuals = squares - 2 * rate * products + rate**2 * lengths
        effect = np.maximum(residuals / (binomial * turns) * n_conversations / (n_conversations - 1), 1.0)
        spread = np.sqrt(effect * binomial * (1 / eligible[0] + 1 / eligible[1]))
        t = (failing[0] / eligible[0] - failing[1] / eligible[1]) / spread
        freedom = n_conversations - 2
        p_value = 2 * stdtr(np.maximum(freedom, 1), -np.abs(t))
    is_known = (freedom >= 1) & (eligible[0] > 0) & (eligible[1] > 0)
    is_flat = binomial == 0  # all turns or none of both sides have the failure
    nan = np.nan
    return np.where(is_known & ~is_flat, effect, nan), np.where(
        is_known, np.where(is_flat, 1.0, p_value), nan
    )


def wilson(failing: Floats, eligible: Floats, effect: Floats) -> tuple[Floats, Floats]:
    """Return Wilson's 95 % bounds of a rate (0–1), with turns divided by the design effect; NaN without turns."""
    with np.errstate(divide="ignore", invalid="ignore"):
        n = eligible / effect
        rate = failing / eligible
        centre = rate + _Z**2 / (2 * n)
        half = _Z * np.sqrt(rate * (1 - rate) / n + (_Z / (2 * n)) ** 2)
        return np.maximum(0, (centre - half) / (1 + _Z**2 / n)), np.minimum(
            1, (centre + half) / (1 + _Z**2 / n)
        )


def _adjusted(p_value: pl.Expr) -> pl.Expr:
    """Return Benjamini–Hochberg q: min over p' ≥ p of p' × n / rank(p'); nulls stay null and are not counted."""
    return p_value.map_batches(_benjamini_hochberg, return_dtype=pl.Float64)


def _benjamini_hochberg(p_values: pl.Series) -> pl.Series:
    p = p_values.to_numpy().astype(np.float64)
    tested_rows = np.flatnonzero(~np.isnan(p))
    order = tested_rows[np.argsort(-p[tested_rows], kind="stable")]  # largest first
    ranks = np.arange(len(order), 0, -1)
    q = np.full(len(p), np.nan)
    q[order] = np.minimum.accumulate(np.minimum(1.0, p[order] * len(order) / ranks)) if len(order) else []
    return pl.Series(p_values.name, q, dtype=pl.Float64).fill_nan(None)


def _trend() -> pl.Expr:
    here, there = pl.col("n_turns") > 0, pl.col("baseline_n_turns") > 0
    is_judged = (pl.col("n_turns_eligible") > 0) & (pl.col("baseline_n_turns_eligible") > 0)
    is_known = is_judged & (here | there) & ~(here & there & pl.col("reason").is_not_null())
    is_more = pl.col("rate_per_100_turns") > pl.col("baseline_rate_per_100_turns")
    return (
        pl.when(~is_known)
        .then(pl.lit("unknown"))
        .when(~there)
        .then(pl.lit("new"))
        .when(~here)
        .then(pl.lit("gone"))
        .when(~pl.col("is_significant").fill_null(value=False))
        .then(pl.lit("unchanged"))
        .when(is_more)
        .then(pl.lit("regressed"))
        .otherwise(pl.lit("improved"))
    )
