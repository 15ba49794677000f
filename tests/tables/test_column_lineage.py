"""The declared origins of columns: they exist, are parents of the asset, and hold when a parent's column changes."""

from collections.abc import Callable

import polars as pl
import pytest

from agent_eval.project import Project
from agent_eval.scores.composite import domain, leaderboard, universal
from agent_eval.tables import table
from agent_eval.tables.column_lineage import column_lineage
from agent_eval.tables.made_from import MADE_FROM
from tests.untyped import any_table

WHICH_ROWS = {"n_sessions", "is_effective", "has_entered"}  # they decide which rows there are
TABLES = [name for name in MADE_FROM if column_lineage(name)]
FROM_SETTINGS = {
    "point_0to100", "methodology_content_hash", "n_harness_failures_dropped", "has_entered", "disputed", "warnings",
    "superseded_by", "sessions_hash", "ratings_hash", "judge_hash", "methodology_hash", "code_version",
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_every_column_of_a_score_names_columns_of_the_tables_that_its_asset_reads(name: str) -> None:
    lineage = column_lineage(name)
    assert table(name).schema.keys() - lineage.keys() <= FROM_SETTINGS
    for origins in lineage.values():
        for parent, column in origins:
            assert parent in MADE_FROM[name]
            assert column in table(parent).schema


def test_other_tables_have_none() -> None:
    assert set(TABLES) == {
        "universal_scores", "domain_scores", "composite_scores",
        "leaderboard", "reliability_leaderboard", "pairwise_comparisons", "quality_summary", "log_leaderboard",
    }  # fmt: skip
    assert column_lineage("turns") == {}


Made = Callable[[pl.DataFrame], pl.DataFrame]


def changed_columns(make: Made, rows: pl.DataFrame, change: pl.Expr) -> set[str]:
    """The columns of what is made that differ when the rows are changed."""
    before, after = make(rows), make(rows.with_columns(change))
    return {name for name in before.columns if not before[name].equals(after[name])}


@pytest.mark.slow
def test_a_changed_column_changes_only_columns_that_name_it(sample: Project) -> None:
    methodologies = sample.methodologies(["1.3.0"])
    of_version = pl.DataFrame({"methodology_version": ["1.3.0"]})
    stored = (*TABLES, "rubric_ratings", "transcripts", "reliability")
    rows = {name: sample.store.read(table(name), of_version) for name in stored}
    rows["agents"] = sample.table("agents")

    def boards(composite_scores: pl.DataFrame) -> pl.DataFrame:
        agents, rates = (any_table(rows[name]) for name in ("agents", "reliability"))
        return leaderboard.leaderboard(any_table(composite_scores), agents, rates, {})

    def domains(ratings: pl.DataFrame) -> pl.DataFrame:
        return domain.domain_scores(any_table(ratings), any_table(rows["transcripts"]), methodologies)

    def universals(ratings: pl.DataFrame) -> pl.DataFrame:
        return universal.universal_scores(any_table(ratings), methodologies)

    of_ratings: dict[str, Made] = {"domain_scores": domains, "universal_scores": universals}
    made = [(name, "rubric_ratings", make) for name, make in of_ratings.items()]
    for name, parent, make in [*made, ("leaderboard", "composite_scores", boards)]:
        lineage = column_lineage(name)
        n_seen = 0
        missing = set[tuple[str, str, str]]()
        for column, dtype in table(parent).schema.items():
            lowered = {pl.Int64: pl.lit(1), pl.Float64: pl.lit(1.0), pl.Boolean: ~pl.col(column)}.get(dtype)  # type: ignore[call-overload]
            if lowered is None or column in WHICH_ROWS:
                continue
            changed = changed_columns(make, rows[parent], lowered.cast(dtype).alias(column))
            undeclared = {c for c in changed if (parent, column) not in lineage.get(c, ())}
            missing |= {(name, column, c) for c in undeclared}
            n_seen += len(changed)
        assert missing == set()
        assert n_seen >= 3, name
