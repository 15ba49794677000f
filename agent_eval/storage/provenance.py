"""What stored rows came from: how many rows each table holds of some partitions, and the run that wrote them last."""

from collections.abc import Sequence

import duckdb
import polars as pl

from agent_eval.storage.store import Store, quoted
from agent_eval.tables import Table

SCHEMA = pl.Schema(
    {
        "table": pl.String(),
        "agent_id": pl.String(),
        "methodology_version": pl.String(),
        "n_rows": pl.Int64(),
        "last_run_id": pl.String(),
        "last_written": pl.Datetime("us"),
    }
)


def provenance(store: Store, tables: Sequence[Table]) -> pl.DataFrame:
    """One row per table and partition that holds rows: how many, and the run that wrote last.

    `agent_id` or `methodology_version` is null where a table is not partitioned by it. A table that was never written
    has no row.
    """
    if store.file is not None and not store.file.exists():
        return pl.DataFrame(schema=SCHEMA)
    with store.session(read_only=True) as con:
        found = [_counted(con, table) for table in tables if _exists(con, table)]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *found])


def _exists(con: duckdb.DuckDBPyConnection, table: Table) -> bool:
    named = "SELECT 1 FROM duckdb_tables() WHERE database_name = 'store' AND table_name = ?"
    return con.execute(named, [table.name]).fetchone() is not None


def _counted(con: duckdb.DuckDBPyConnection, table: Table) -> pl.DataFrame:
    columns = [
        name if name in table.partition else f"NULL AS {name}" for name in ("agent_id", "methodology_version")
    ]
    rows = con.execute(
        f"SELECT {', '.join(columns)}, count(*), arg_max(run_id, created_at), max(created_at) FROM store.{quoted(table.name)} GROUP BY ALL"
    ).fetchall()
    return pl.DataFrame([(table.name, *row) for row in rows], schema=SCHEMA, orient="row")
