"""Select the rows of a preview: the worst or newest rows first, each with a link to its conversation."""

from collections.abc import Mapping

import polars as pl

from agent_eval.report.links import with_pages
from agent_eval.report.markdown import markdown_table
from agent_eval.tables import Table

N_ROWS = 5
_SEVERITY = pl.col("severity").replace_strict(
    {"critical": 0, "high": 1, "medium": 2, "low": 3}, default=4, return_dtype=pl.Int8
)


def _first(column: str, *values: str) -> pl.Expr:
    """Return a sort key that puts rows with these values of a column first, in this order."""
    return (
        pl.col(column)
        .cast(pl.String)
        .replace_strict(
            {value: i for i, value in enumerate(values)}, default=len(values), return_dtype=pl.Int8
        )
    )


_LOST_FIRST = (
    _first("status", "unscored", "invalid", "disputed", "missing", "scored"),
    pl.col("rating_1to5"),
)
_NOT_KEPT_FIRST = (_first("result", "failed", "unknown"),)

ORDER: Mapping[str, tuple[pl.Expr, ...]] = {
    "sessions": (-pl.col("session_date").to_physical(),),
    "conversations": (
        _first("outcome_class", "harness_error", "unexplained_error", "agent_error", "failed", "unknown"),
    ),
    "turns": (pl.col("agent_message").is_not_null(), -pl.col("latency_ms")),
    "tool_calls": (~pl.col("is_error").fill_null(value=False),),
    "expected_calls": (pl.col("is_matched").fill_null(value=True),),
    "transcripts": (pl.col("is_admitted"),),
    "turn_judgments": _LOST_FIRST,
    "conversation_judgments": _LOST_FIRST,
    "rubric_ratings": _LOST_FIRST,
    "tool_correctness": (pl.col("overall"),),
    "assertion_results": _NOT_KEPT_FIRST,
    "error_clusters": (_SEVERITY, -pl.col("n_turns")),
    "error_rates": (-pl.col("n_turns"),),
    "error_trends": (_first("trend", "regressed", "new", "unknown", "unchanged", "improved", "gone"),),
    "reliability": (pl.col("pass_hat_k"),),
    "gate_results": _NOT_KEPT_FIRST,
    "board_changes": (-pl.col("changed_at").to_physical(),),
    "pairwise_comparisons": (_first("verdict", "worse", "better", "unknown"),),
}
"""Table → the sort keys of its preview, in ascending order; the rows of any other table are not sorted."""


def first_rows(contract: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the first rows of the table in its `ORDER`, and by key among equal rows."""
    order = ORDER.get(contract.name)
    if order and rows.height > 1:
        rows = rows.sort(*order, *contract.key, nulls_last=True)
    return rows.head(N_ROWS)


def preview(contract: Table, rows: pl.DataFrame) -> str:
    """Return the first rows of the table in its `ORDER`, as a Markdown table.

    The partition columns and columns that are null in all of these rows are omitted. If a row belongs to a
    conversation, its conversation id links to the report.
    """
    first = first_rows(contract, rows)
    shown = [c for c in first.columns if c not in contract.partition and first[c].null_count() < first.height]
    if "conversation_id" not in shown or "agent_id" not in first.columns:
        return markdown_table(first.select(shown), limit=120)
    linked = with_pages(first).select(*shown, "page")
    return markdown_table(linked, limit=120, links={"conversation_id": "page"})
