"""Report the row counts of stored tables and the runs that last wrote to them, in total or by partition."""

from collections.abc import Mapping

import duckdb
import polars as pl

from agent_eval.storage.store import Store, quoted
from agent_eval.tables import Table
from agent_eval.tables.contract import TIME

_PARTITION = ("agent_id", "methodology_version")
_WRITTEN = {"n_rows": pl.Int64(), "last_run_id": pl.String(), "last_written": TIME}
SCHEMA = pl.Schema({"table": pl.String(), **_WRITTEN})
BY_PARTITION = pl.Schema({"table": pl.String(), **dict.fromkeys(_PARTITION, pl.String()), **_WRITTEN})


def written(store: Store, tables: Mapping[str, Table]) -> pl.DataFrame:
    """Return one row per non-empty table, sorted by name, with the number of rows, the last run and its time (UTC)."""
    last_run = pl.col("last_run_id").sort_by("last_written").last()
    parts = written_by_partition(store, tables).group_by("table")
    return parts.agg(pl.col("n_rows").sum(), last_run, pl.col("last_written").max()).sort("table")


def written_by_partition(store: Store, tables: Mapping[str, Table]) -> pl.DataFrame:
    """Return the result of `written` per agent and version; a key is null if the table is not partitioned by it."""
    if store.file is not None and not store.file.exists():
        return pl.DataFrame(schema=BY_PARTITION)
    with store.session(read_only=True) as con:
        names = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'store'").fetchall()
        parts = [_counted(con, tables[name]) for (name,) in sorted(names) if name in tables]
    return pl.concat([pl.DataFrame(schema=BY_PARTITION), *parts])


def _counted(con: duckdb.DuckDBPyConnection, table: Table) -> pl.DataFrame:
    of = ", ".join(name if name in table.partition else f"NULL AS {name}" for name in _PARTITION)
    cursor = con.execute(
        f"SELECT {of}, count(*), arg_max(dagster_run_id, created_at), epoch_us(max(created_at)) FROM store.{quoted(table.name)}"
        " GROUP BY ALL HAVING count(*) > 0"
    )
    rows = [(table.name, *row) for row in cursor.fetchall()]
    return pl.DataFrame(rows, schema=BY_PARTITION, orient="row")
