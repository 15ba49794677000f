"""How each stored table came about: its rows, and the last run that wrote to it."""

import polars as pl

from agent_eval.storage.store import Store, quoted
from agent_eval.tables import Table

SCHEMA = pl.Schema(
    [
        ("table", pl.String()),
        ("n_rows", pl.Int64()),
        ("last_run_id", pl.String()),
        ("last_written", pl.Datetime("us")),
    ]
)


def written(store: Store, tables: dict[str, Table]) -> pl.DataFrame:
    """One row per table that holds rows: how many, the run that wrote last and when (UTC), sorted by name."""
    if store.file is not None and not store.file.exists():
        return pl.DataFrame(schema=SCHEMA)
    with store.session(read_only=True) as con:
        found = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'store'").fetchall()
        rows = [
            (
                name,
                *con.execute(
                    f"SELECT count(*), arg_max(run_id, created_at), max(created_at) FROM store.{quoted(name)}"
                ).fetchall()[0],
            )
            for (name,) in sorted(found)
            if name in tables
        ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").filter(pl.col("n_rows") > 0)
