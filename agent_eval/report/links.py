"""Build addresses in the Dagster UI: partitions of assets, runs, and pages of the report that `agent-eval ui` serves."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import polars as pl

from agent_eval.report.names import Paths

REPORT = "/report"


def partition_page(asset: str, *key: str) -> str:
    """Return the page of one partition of an asset: an agent, a version, or both."""
    return f"/assets/{asset}?view=partitions&partition={quote('|'.join(key), safe='')}"


def run_page(run_id: str) -> str:
    """Return the page of a run."""
    return f"/runs/{quote(run_id, safe='')}"


def agent_page(agent_id: str, version: str, report: str = REPORT) -> str:
    """Return an agent's page in the report."""
    return f"{report.rstrip('/')}/{Paths('').agent(agent_id, version)}"


def row_page(row: Mapping[str, Any], report: str = REPORT) -> str | None:
    """Return the turn of a row in the report, else its conversation; None for a row of neither."""
    if row.get("conversation_id") is None:
        return None
    path = Paths("").conversation(row["agent_id"], row["conversation_id"], row.get("turn_index"))
    return f"{report.rstrip('/')}/{path}"


def rating_page(row: Mapping[str, Any], report: str = REPORT) -> str:
    """Return the report page of a row of rubric_ratings: its conversation, else the agent's page."""
    page = row_page(row, report)
    return page or f"{agent_page(row['agent_id'], row['methodology_version'], report)}#{row['target']}"


def with_pages(rows: pl.DataFrame, column: str = "page") -> pl.DataFrame:
    """Return the rows with the address of each in the report; null for a row of no conversation."""
    pages = [row_page(row) for row in rows.iter_rows(named=True)]
    return rows.with_columns(pl.Series(column, pages, dtype=pl.String))
