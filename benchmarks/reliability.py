"""10,000 tasks of 8 trials to pass@k and pass^k with posteriors, in frames: no store, no Dagster."""

import sys
from collections.abc import Iterator

import polars as pl

from agent_eval.scores.reliability.pass_rates import ESTIMATORS, TrialTables, reliability
from agent_eval.tables import table
from benchmarks.measuring import cost

TASKS, TRIALS = 10_000, 8


def measure() -> Iterator[str]:
    made = cost([sys.executable, "-c", "from benchmarks.reliability import frames; frames()"])
    both = cost(
        [sys.executable, "-c", "from benchmarks.reliability import estimated, frames; estimated(frames())"]
    )
    wall, cpu = both.wall_s - made.wall_s, both.cpu_s - made.cpu_s
    yield (
        f"{TASKS:,} tasks × {TRIALS} trials, k = 1 to 8, unbiased, plug-in, hierarchical and pooled, imports of scipy included: "
        f"{wall:.2f} s wall, {cpu:.2f} CPU s (bar 1 s); {both.peak_mb:.0f} MB peak with making them"
    )


def frames() -> dict[str, pl.DataFrame]:
    """One agent's trials with declared outcomes."""
    numbers = pl.DataFrame({"i": range(TASKS * TRIALS)})
    rows = numbers.select(
        methodology_version=pl.lit("1.3.0"),
        agent_id=pl.lit("a"),
        conversation_id="c" + pl.col("i").cast(pl.String),
        session_id=pl.lit("s"),
        benchmark_id=pl.lit("s"),
        task_id="t" + (pl.col("i") // TRIALS).cast(pl.String),
        task_set=pl.lit("set"),
        is_admitted=pl.lit(True),
        outcome_correct=pl.col("i") % TRIALS < pl.col("i") // TRIALS % (TRIALS + 1),
    )
    return {name: _filled(rows, name) for name in ("transcripts", "conversations")}


def estimated(made: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """The rows that the asset stores."""
    known = TrialTables.of({name: made.get(name, table(name).empty()) for name in TrialTables._fields})
    rows = reliability(known, estimators=ESTIMATORS)
    assert rows.height == 4 * TRIALS
    assert rows["pass_hat_k_low"].null_count() == 0
    return rows


def _filled(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    schema = table(name).schema
    return frame.select(n for n in frame.columns if n in schema).with_columns(
        pl.lit(None, dtype=d).alias(n) for n, d in schema.items() if n not in frame.columns
    )
