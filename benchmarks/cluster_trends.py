"""Trends by simulation: how often a planted improvement is found, and how often chance is taken for one."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from agent_eval.clusters.trend_units import UnitSums, unit_test
from agent_eval.clusters.trends import compared, score_test
from agent_eval.tables import table

CLUSTERS, TURNS, RUNS = 30, 2_000, 500
VERSION, METRIC = "1.3.0", "agent_behavior_failure"
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def measure() -> Iterator[str]:
    """Power and false discoveries, with independent turns and with turns that go together."""
    rng = np.random.default_rng(20260401)
    rates = 0.06 / np.arange(1, CLUSTERS + 1)
    for within in (0.0, 0.02, 0.05, 0.1):
        found = false_rate = 0.0
        for _ in range(RUNS):
            after = rates.copy()
            after[0] = 0.03
            trends = compare(side(rates, within, rng), side(after, within, rng))
            found += trends["c00"]
            false_rate += _false_share(trends, planted={"c00"})
        null = sum(
            any(compare(side(rates, within, rng), side(rates, within, rng)).values()) for _ in range(RUNS)
        )
        bar = " (bars 80 % and 7 %)" if within == 0 else ""
        yield (
            f"correlation of turns within a conversation {within}: 6 % → 3 % of {TURNS:,} turns in one of {CLUSTERS} clusters "
            f"found in {found / RUNS:.1%} of {RUNS} runs (false share {false_rate / RUNS:.1%}); "
            f"of {RUNS} runs without a change {null / RUNS:.1%} name any{bar}"
        )
    yield from over_sessions(rng)


def over_sessions(rng: np.random.Generator, repeats: int = 20_000) -> Iterator[str]:
    """Test one cluster that did not change; sessions of 20 to 180 turns differ in their rate."""
    for rate, within in ((0.1, 0.0), (0.1, 0.05), (0.3, 0.2)):
        cells = []
        for n_here, n_there in ((2, 2), (3, 3), (5, 5), (2, 5), (10, 10)):
            here, there = (_sessions(rng, n, rate, within, repeats) for n in (n_here, n_there))
            p_units = unit_test(here, there)[1]
            sums = (
                here.squares + there.squares,
                here.products + there.products,
                here.lengths + there.lengths,
            )
            p_pooled = score_test((here.failing, there.failing), (here.eligible, there.eligible), *sums, here.n_units + there.n_units)[1]  # fmt: skip
            cells.append(
                f"{n_here} and {n_there}: {np.mean(p_units < 0.05):.1%} ({np.mean(p_pooled < 0.05):.1%})"
            )
        yield (
            f"false positives at 5 % of a failure in {rate:.0%} of turns, correlation within sessions {within}, {repeats:,} "
            f"repetitions, by sessions of both sides (in brackets the score test over sessions): {'; '.join(cells)}"
        )


def _sessions(rng: np.random.Generator, n: int, rate: float, within: float, repeats: int) -> UnitSums:
    lengths = rng.integers(20, 181, size=(repeats, n))
    size = 1 / within - 1 if within else 0.0
    own = rng.beta(rate * size, (1 - rate) * size, (repeats, n)) if within else rate
    failing = rng.binomial(lengths, own)
    k, m = failing.astype(float), lengths.astype(float)
    sums = (k, m, k * k, k * m, m * m)
    return UnitSums(np.full(repeats, float(n)), *(values.sum(axis=1) for values in sums))


def side(rates: Floats, within: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Turns with each failure per conversation (conversations × clusters), and turns per conversation.

    Conversations have 3 to 17 turns; with a correlation each conversation has its own rate, from a Beta
    distribution around the cluster's.
    """
    lengths = rng.integers(3, 18, size=TURNS // 10)
    own = np.broadcast_to(rates, (len(lengths), len(rates)))
    if within > 0:
        size = 1 / within - 1
        own = rng.beta(own * size, (1 - own) * size)
    return rng.binomial(lengths[:, None], own), lengths


def compare(before: tuple[Ints, Ints], after: tuple[Ints, Ints]) -> dict[str, bool]:
    """Which clusters are called significant, by name."""
    names = [f"c{i:02}" for i in range(before[0].shape[1])]
    rates = pl.concat([_rates("before", names, *before), _rates("after", names, *after)])
    registry = table("error_registry").frame(
        {"cluster_id": name, "label": "repetition", "severity": "medium", "title": name} for name in names
    )
    wanted = pl.DataFrame(
        {
            "methodology_version": [VERSION],
            "agent_id": ["after"],
            "baseline_agent_id": ["before"],
            "benchmark_id": [None],
            "baseline_benchmark_id": [None],
        },
        schema_overrides={"benchmark_id": pl.String, "baseline_benchmark_id": pl.String},
    )
    trends = compared(rates, wanted, registry)
    found = dict(trends.select("cluster_id", pl.col("is_significant").fill_null(value=False)).iter_rows())
    return {name: found.get(name, False) for name in names}


def _rates(agent: str, names: list[str], failing: Ints, lengths: Ints) -> pl.DataFrame:
    """Table error_rates of one side."""
    common: dict[str, object] = {
        "methodology_version": VERSION,
        "agent_id": agent,
        "benchmark_id": agent,
        "is_current": True,
        "metrics": METRIC,
    }
    total: dict[str, object] = {
        "n_conversations": len(lengths),
        "n_turns": int(lengths.sum()),
        "sum_squares": int((lengths**2).sum()),
    }
    rows: list[dict[str, object]] = [
        {
            "cluster_id": name,
            "n_turns": int(failing[:, i].sum()),
            "sum_squares": int((failing[:, i] ** 2).sum()),
            "sum_products": int((failing[:, i] * lengths).sum()),
        }
        for i, name in enumerate(names)
        if failing[:, i].any()
    ]
    return table("error_rates").frame(common | row for row in (total, *rows))


def _false_share(found: dict[str, bool], planted: set[str]) -> float:
    named = {name for name, is_found in found.items() if is_found}
    return len(named - planted) / max(len(named), 1)
