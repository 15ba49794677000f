"""The version stamp: which tables a store was made for, and how an older store is brought up to date.

Tables only ever gain columns (see `tables`), and a missing column is added by itself; `MIGRATIONS` is for what
that does not do. A store of a later version is refused: rows written here would lack its columns.
"""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import duckdb

from agent_eval import __version__

SCHEMA_VERSION = 2  # raise it with every release that changes `tables`

# Version → the statements that lead to it, beside added columns. They run once, in one transaction with the stamp.
MIGRATIONS: Mapping[int, Sequence[str]] = {
    2: ("DROP TABLE IF EXISTS store.run_state",),  # a row per pair became one per table and partition
}


def stamped(con: duckdb.DuckDBPyConnection) -> tuple[int, str]:
    """The version of the attached store, and the agent_eval that wrote it; (0, "") without a stamp."""
    with contextlib.suppress(duckdb.CatalogException):
        found = con.execute(
            "SELECT version, written_by FROM store.schema_version ORDER BY version DESC LIMIT 1"
        )
        if row := found.fetchone():
            return int(row[0]), str(row[1])
    return 0, ""


def stamp(con: duckdb.DuckDBPyConnection) -> None:
    """Say in the attached store that it has this version. Earlier stamps stay: they tell its history."""
    con.execute(
        "CREATE TABLE IF NOT EXISTS store.schema_version (version BIGINT, written_by VARCHAR, created_at TIMESTAMP)"
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    con.execute("INSERT INTO store.schema_version VALUES (?, ?, ?)", [SCHEMA_VERSION, __version__, now])


def migrate(con: duckdb.DuckDBPyConnection, version: int) -> None:
    """Run what leads from `version` to this one, and stamp it; inside the transaction of the first write."""
    for step in range(version + 1, SCHEMA_VERSION + 1):
        for statement in MIGRATIONS.get(step, ()):
            con.execute(statement)
    stamp(con)
