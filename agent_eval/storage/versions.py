"""Stamp a store with its schema version, and reject a store that this release cannot use.

Missing columns are added without a migration; `MIGRATIONS` is for renamed columns and changed types. A store
with a later version is rejected, because rows written by this release would lack its columns.
"""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import duckdb

from agent_eval import __version__
from agent_eval.storage.store_errors import StoreError
from agent_eval.tables import TABLES

SCHEMA_VERSION = 4  # increase it in every release that renames columns or changes types in `tables`
OLDEST_VERSION = 4  # earlier versions were never released

VERSION_TABLE = "schema_version"

MIGRATIONS: Mapping[int, Sequence[str]] = {}
"""Version → statements that migrate to it, except for added columns. They run once, in the transaction of the stamp."""


def stamped(con: duckdb.DuckDBPyConnection) -> tuple[int, str]:
    """Return the attached store's version and the agent_eval release that wrote it; (0, "") if it has no stamp."""
    with contextlib.suppress(duckdb.CatalogException):
        stamp_rows = con.execute(
            f"SELECT version, written_by FROM store.{VERSION_TABLE} ORDER BY version DESC LIMIT 1"
        )
        if row := stamp_rows.fetchone():
            return int(row[0]), str(row[1])
    return 0, ""


def stamp(con: duckdb.DuckDBPyConnection) -> None:
    """Write the current version to the attached store. Earlier stamps are kept as a history."""
    con.execute(
        f"CREATE TABLE IF NOT EXISTS store.{VERSION_TABLE} (version BIGINT, written_by VARCHAR, created_at TIMESTAMPTZ)"
    )
    now = datetime.now(UTC)
    con.execute(f"INSERT INTO store.{VERSION_TABLE} VALUES (?, ?, ?)", [SCHEMA_VERSION, __version__, now])


def refuse_other_releases(con: duckdb.DuckDBPyConnection, attach: str) -> int:
    """Return the version of the attached store; 0 if it is new.

    Raises:
        StoreError: If a later release wrote the store, or if the store is older than `OLDEST_VERSION`.
    """
    version, written_by = stamped(con)
    if version > SCHEMA_VERSION:
        raise StoreError(
            attach,
            "use",
            f"its tables have version {version} (agent_eval {written_by}), but this agent_eval supports versions up to {SCHEMA_VERSION}",
            f"Install agent_eval {written_by} or later, or set `store` in agent_eval.toml to another file",
        )
    if 0 < version < OLDEST_VERSION or (version == 0 and _has_tables(con)):
        raise StoreError(
            attach,
            "use",
            f"its tables have version {version or 'of no number'}, but this agent_eval supports versions from {OLDEST_VERSION}",
            "Move the file away and run `agent-eval run`: everything but the answers of judge models is computed again "
            "from data/. To keep those answers, open the store with the commit of agent_eval that wrote it, or a later "
            "one that migrates it",
        )
    return version


def _has_tables(con: duckdb.DuckDBPyConnection) -> bool:
    names = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'store'").fetchall()
    return any(name in TABLES for (name,) in names)


def migrate(con: duckdb.DuckDBPyConnection, version: int) -> None:
    """Migrate from `version` to the current one and stamp it, in the transaction of the first write."""
    for step in range(version + 1, SCHEMA_VERSION + 1):
        for statement in MIGRATIONS.get(step, ()):
            con.execute(statement)
    stamp(con)
