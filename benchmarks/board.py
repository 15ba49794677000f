"""1,000,000 judgments (rubric ratings) to a board, in frames: no store, no Dagster."""

import sys
from collections.abc import Iterator

import polars as pl

from agent_eval.methodology import load
from agent_eval.scores.composite.domain import domain_scores
from agent_eval.scores.composite.leaderboard import leaderboard, pairwise_comparisons
from agent_eval.scores.composite.score import CompositeTables, composite_scores
from agent_eval.scores.composite.universal import universal_scores
from agent_eval.tables import table
from benchmarks.measuring import best
from tests.untyped import any_table

RATINGS, AGENTS, VERSION = 1_000_000, 100, "1.3.0"
ROUNDS = 3


def measure() -> Iterator[str]:
    made = best([sys.executable, "-c", "from benchmarks.board import frames; frames()"], ROUNDS)
    both = best([sys.executable, "-c", "from benchmarks.board import board, frames; board(frames())"], ROUNDS)
    wall, cpu = both.wall_s - made.wall_s, both.cpu_s - made.cpu_s
    yield (
        f"{RATINGS:,} judgments → board, the best of {ROUNDS}: {wall:.2f} s wall, {cpu:.2f} CPU s "
        f"(bar 2 s); {both.peak_mb:.0f} MB peak with making them (bar 1 GB)"
    )


def frames() -> dict[str, pl.DataFrame]:
    """Ratings of 100 agents over as many complete sessions as make a million, with transcripts and sessions."""
    template = load(VERSION).templates[0]
    parts: list[tuple[str, str | None]] = [(f"U{i}", None) for i in range(1, 7)]
    parts += [(f"D{i}", c.id) for i in range(1, 6) for c in template.criteria]
    agents = pl.DataFrame({"agent_id": [f"agent-{i:03}" for i in range(AGENTS)]})
    n_sessions = RATINGS // (AGENTS * len(parts)) + 1
    sessions = agents.join(pl.DataFrame({"session_id": [f"s{i}" for i in range(n_sessions)]}), how="cross")
    grid = sessions.join(pl.DataFrame(parts, schema=["target", "criterion"], orient="row"), how="cross")
    ratings = grid.with_columns(
        conversation_id=pl.when(pl.col("criterion").is_not_null()).then(
            pl.col("session_id") + "-" + pl.col("target")
        ),
        rating_1to5=pl.int_range(pl.len()) * 7 % 5 + 1,
        status=pl.lit("scored"),
        judge=pl.lit("recorded"),
        is_effective=pl.lit(True),
    )
    slots = pl.DataFrame(
        {"slot": ["D1", "D2", "D3", "D4", "D5", "standardised_task", "hallucination", "error_injection"]}
    )
    is_test = ~pl.col("slot").str.starts_with("D")
    transcripts = sessions.join(slots, how="cross").with_columns(
        conversation_id=pl.col("session_id") + "-" + pl.col("slot"),
        template=pl.lit(template.slug),
        tests=pl.when(is_test).then(pl.concat_list("slot")).otherwise(pl.lit([], dtype=pl.List(pl.String))),
        n_turns=pl.lit(3),
        n_user_messages=pl.lit(3),
        is_admitted=pl.lit(True),
    )
    declared = sessions.with_columns(
        methodology_versions=pl.lit([VERSION]),
        u3_scope=pl.lit("multi_turn"),
        repeatability_tested=pl.lit(False),
    )
    passed = transcripts.filter(pl.col("slot") == "hallucination").select(
        "agent_id",
        "conversation_id",
        metric=pl.lit("hallucination_passed"),
        judge=pl.lit("recorded"),
        value=pl.lit(1.0),
        status=pl.lit("scored"),
        is_effective=pl.lit(True),
    )
    made = {
        "conversation_judgments": passed,
        "rubric_ratings": ratings,
        "transcripts": transcripts,
        "sessions": declared,
        "agents": agents,
    }
    return {name: _filled(frame, name) for name, frame in made.items()}


def board(made: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """The way that the assets go: universal, domain, composite, leaderboard with intervals, every two agents compared."""
    versions = {VERSION: load(VERSION)}
    universal = universal_scores(any_table(made["rubric_ratings"]), versions)
    domain = domain_scores(any_table(made["rubric_ratings"]), any_table(made["transcripts"]), versions)
    tables = CompositeTables(
        universal_scores=universal,
        domain_scores=domain,
        transcripts=any_table(made["transcripts"]),
        sessions=any_table(made["sessions"]),
        conversations=table("conversations").empty(),
        conversation_judgments=any_table(made["conversation_judgments"]),
    )
    composed = composite_scores(tables, versions)
    ranked = leaderboard(composed, any_table(made["agents"]), table("reliability").empty())
    assert ranked.height == AGENTS
    assert ranked["low"].null_count() == ranked["rank_high"].null_count() == 0
    compared = pairwise_comparisons(composed)
    assert compared.height == AGENTS * (AGENTS - 1) // 2
    return ranked


def _filled(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """The frame as that table: constants and nulls for the columns that do not matter here."""
    known = {"methodology_version": VERSION, "benchmark_id": "b"}
    wanted = table(name).schema
    return frame.with_columns(
        pl.lit(known.get(n), dtype=d).alias(n) for n, d in wanted.items() if n not in frame.columns
    ).select(pl.col(n).cast(d) for n, d in wanted.items())
