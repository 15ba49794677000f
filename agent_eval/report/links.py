"""Build links to the Dagster UI: partitions of assets, runs, and pages of the report that `agent-eval ui` serves."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import polars as pl

from agent_eval.report.names import Paths

REPORT = "/report"


def partition_page(asset: str, *key: str) -> str:
    """Return the link to one partition of an asset; the key is an agent, a version, or both."""
    return f"/assets/{asset}?view=partitions&partition={quote('|'.join(key), safe='')}"


def asset_page(table: str, *key: str) -> str:
    """Return the link to the page of an asset's partition, which only `agent-eval ui` serves."""
    return f"{REPORT}/{Paths('').asset(table, *key)}"


def run_page(run_id: str) -> str:
    """Return the link to a run."""
    return f"/runs/{quote(run_id, safe='')}"


def agent_page(agent_id: str, version: str, report: str = REPORT) -> str:
    """Return the link to an agent's page in the report."""
    return f"{report.rstrip('/')}/{Paths('').agent(agent_id, version)}"


def row_page(row: Mapping[str, Any], report: str = REPORT) -> str | None:
    """Return the link to the message that a row cites in the report, else to its turn or conversation.

    It is None if the row belongs to no conversation.
    """
    if row.get("conversation_id") is None:
        return None
    path = Paths("").conversation(
        row["agent_id"], row["conversation_id"], row.get("turn_index"), row.get("message_index")
    )
    return f"{report.rstrip('/')}/{path}"


def rating_page(row: Mapping[str, Any], report: str = REPORT) -> str:
    """Return the link to the conversation of a row of rubric_ratings in the report, else to the agent's page."""
    page = row_page(row, report)
    return page or f"{agent_page(row['agent_id'], row['methodology_version'], report)}#{row['target']}"


def with_pages(rows: pl.DataFrame, column: str = "page") -> pl.DataFrame:
    """Add a column with the link to each row's page in the report; null if the row belongs to no conversation."""
    pages = [row_page(row) for row in rows.iter_rows(named=True)]
    return rows.with_columns(pl.Series(column, pages, dtype=pl.String))
