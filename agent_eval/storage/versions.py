"""Stamp a store with its schema version and migrate older stores.

Missing columns are added without a migration; `MIGRATIONS` is for renamed columns and changed types. A store
with a later version is rejected, because rows written by this release would lack its columns.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import duckdb
import polars as pl

from agent_eval import __version__
from agent_eval.tables import TABLES
from agent_eval.tables.contract import DATE, DATES, TIME

SCHEMA_VERSION = 4  # increase it in every release that changes `tables`

RENAMED: Mapping[str, str] = {"dagster_run_id": "run_id", "ingest_fingerprint": "taken_in"}
"""Column → its name before version 3. The views in schema `PREVIOUS` provide the earlier names for one release."""
PREVIOUS = "previous"


def stored_name(name: str, present: Collection[str]) -> str:
    """Return the name of a column in a store with the columns `present`.

    It is the earlier name if the store is not migrated yet.
    """
    earlier = RENAMED.get(name, name)
    return earlier if name not in present and earlier in present else name


def view_of_earlier_names(table: str, columns: Sequence[str], *, replace: bool) -> str:
    """Return the statement that creates the view of a table with its earlier column names."""
    make = "CREATE OR REPLACE VIEW" if replace else "CREATE VIEW IF NOT EXISTS"
    shown = ", ".join(f'"{name}" AS "{RENAMED.get(name, name)}"' for name in columns)
    return f'{make} {PREVIOUS}."{table}" AS SELECT {shown} FROM main."{table}"'


def _renamed_and_typed(con: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Rename columns, convert strings and local times to timestamps, and add the ranks of ordered vocabularies."""
    found = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = 'store' AND schema_name = 'main'"
    ).fetchall()
    for table, column, sql_type in found:
        if table == "schema_version" and column == "created_at" and sql_type == "TIMESTAMP":
            yield "ALTER TABLE store.schema_version ALTER created_at TYPE TIMESTAMPTZ USING created_at::TIMESTAMPTZ"
        if table not in TABLES:
            continue
        now = next((new for new, old in RENAMED.items() if old == column), column)
        if now != column:
            yield f'ALTER TABLE store."{table}" RENAME COLUMN "{column}" TO "{now}"'
        is_time = now == "created_at" or TABLES[table].schema.get(now) == TIME
        if is_time and sql_type != "TIMESTAMP WITH TIME ZONE":
            as_time = f'TRY_CAST("{now}" AS TIMESTAMPTZ)'
            yield f'ALTER TABLE store."{table}" ALTER "{now}" TYPE TIMESTAMPTZ USING {as_time}'
    for table in {name for name, _, _ in found} & TABLES.keys():
        for ranked in (column for column in TABLES[table].columns if column.rank_of):
            words = cast("pl.Enum", TABLES[table].schema[ranked.rank_of or ""]).categories
            cases = " ".join(f"WHEN '{word}' THEN {n}" for n, word in enumerate(words, start=1))
            yield f'ALTER TABLE store."{table}" ADD COLUMN IF NOT EXISTS "{ranked.name}" BIGINT'
            yield f'UPDATE store."{table}" SET "{ranked.name}" = CASE "{ranked.rank_of}" {cases} END'


def _dated(con: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Convert string columns to dates; a string that is not a date becomes null.

    DuckLake cannot convert a column in place, so a new column replaces the old one. Views of the tables are recreated.
    """
    found = con.execute(
        "SELECT table_name, list(column_name ORDER BY column_index), list(data_type ORDER BY column_index) "
        "FROM duckdb_columns() WHERE database_name = 'store' AND schema_name = 'main' GROUP BY ALL"
    ).fetchall()
    views = {
        name
        for (name,) in con.execute(
            f"SELECT view_name FROM duckdb_views() WHERE database_name = 'store' AND schema_name = '{PREVIOUS}'"
        ).fetchall()
    }
    for table, columns, sql_types in ((t, c, s) for t, c, s in found if t in TABLES):
        schema = TABLES[table].schema
        dated = [
            (name, "DATE" if schema[name] == DATE else "DATE[]")
            for name, sql_type in zip(columns, sql_types, strict=True)
            if schema.get(name) in (DATE, DATES) and not sql_type.startswith("DATE")
        ]
        for name, sql_type in dated:
            yield f'ALTER TABLE store."{table}" ADD COLUMN "{name}_dated" {sql_type}'
            yield f'UPDATE store."{table}" SET "{name}_dated" = TRY_CAST("{name}" AS {sql_type})'
            yield f'ALTER TABLE store."{table}" DROP COLUMN "{name}"'
            yield f'ALTER TABLE store."{table}" RENAME COLUMN "{name}_dated" TO "{name}"'
        if dated and table in views:
            yield view_of_earlier_names(table, columns, replace=True)


# Version → statements that migrate to it, except for added columns. They run once, in the transaction of the stamp.
Migration = Sequence[str] | Callable[[duckdb.DuckDBPyConnection], Iterator[str]]
MIGRATIONS: Mapping[int, Migration] = {
    2: ("DROP TABLE IF EXISTS store.run_state",),  # replaced by one row per table and partition
    3: _renamed_and_typed,
    4: _dated,
}


def stamped(con: duckdb.DuckDBPyConnection) -> tuple[int, str]:
    """Return the attached store's version and the agent_eval release that wrote it; (0, "") if it has no stamp."""
    with contextlib.suppress(duckdb.CatalogException):
        found = con.execute(
            "SELECT version, written_by FROM store.schema_version ORDER BY version DESC LIMIT 1"
        )
        if row := found.fetchone():
            return int(row[0]), str(row[1])
    return 0, ""


def stamp(con: duckdb.DuckDBPyConnection) -> None:
    """Write the current version to the attached store. Earlier stamps are kept as a history."""
    con.execute(f"CREATE SCHEMA IF NOT EXISTS store.{PREVIOUS}")
    con.execute(
        "CREATE TABLE IF NOT EXISTS store.schema_version (version BIGINT, written_by VARCHAR, created_at TIMESTAMPTZ)"
    )
    now = datetime.now(UTC)
    con.execute("INSERT INTO store.schema_version VALUES (?, ?, ?)", [SCHEMA_VERSION, __version__, now])


def migrate(con: duckdb.DuckDBPyConnection, version: int) -> None:
    """Migrate from `version` to the current one and stamp it, in the transaction of the first write."""
    for step in range(version + 1, SCHEMA_VERSION + 1):
        leading = MIGRATIONS.get(step, ())
        for statement in list(leading(con)) if callable(leading) else leading:
            con.execute(statement)
    stamp(con)
