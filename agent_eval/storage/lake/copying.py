"""Copy all rows of a store file into a lake, or of a lake into a new file. Run ids and write times are preserved.

The ledger of judge calls is copied before the rows become visible, so that an interrupted copy cannot lose spending.
"""

import contextlib
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from agent_eval.errors import StorageError
from agent_eval.storage.backup import log_of
from agent_eval.storage.lake.connections import close_idle
from agent_eval.storage.lake.ledger import add_spent as add_to_lake
from agent_eval.storage.lake.ledger import spent as spent_on_lake
from agent_eval.storage.lake.store import LakeStore
from agent_eval.storage.ledger import LedgerError, add_spent, ledger_of, spent
from agent_eval.storage.store import STAMPS, Store, columns_of, quoted
from agent_eval.storage.store_errors import missing_folder
from agent_eval.storage.versions import SCHEMA_VERSION, stamped
from agent_eval.tables import TABLES, Table


def _not_copied(target: str, why: str) -> StorageError:
    return StorageError(f"Nothing was copied to {target}: {why}.")


def copy_into_lake(file: Path, lake: LakeStore, merge: Callable[[], object]) -> dict[str, int]:
    """Copy every table of a store file and its ledger into an empty lake; return the number of rows per table.

    A file of an earlier release is migrated first. All tables are copied in one transaction. Runs on either store wait until the copy is complete. After an interrupted
    copy, the lake is empty and can be filled again.

    Args:
        file: The store file.
        lake: The lake.
        merge: Moves the answers of models that are beside the store file into it; called while runs wait.

    Raises:
        StorageError: If the file does not exist or contains no tables, its ledger cannot be read, or the lake is not
            empty.
        StoreError: If one of the stores cannot be opened.
    """
    if not file.is_file():
        raise _not_copied(lake.attach, f"the store file {file} does not exist")
    source, rows = Store.at(file), dict[str, int]()
    with lake.exclusive_section("run"), source.exclusive_section("run"):
        with source.session(read_only=True) as con:
            if not _present(con):
                raise _not_copied(lake.attach, f"{file} contains no tables of agent_eval")
            is_older = stamped(con)[0] < SCHEMA_VERSION
        if is_older:
            source.transact([], lambda _: None)  # migrates the file
        merge()
        if log_of(file).exists():  # otherwise it would be applied to a file that later replaces this one
            with source.session(read_only=False) as con:
                con.execute("FORCE CHECKPOINT store")
        with source.session(read_only=True) as con:
            tables = _present(con)

        def write(con: duckdb.DuckDBPyConnection) -> None:
            if any(_n_rows(con, "store", table) for table in _present(con)):
                raise _not_copied(lake.attach, "it already contains rows; use a new lake")
            rows.update(_copied(con, "other", "store", tables))
            with _ledger_to(lake.attach):
                add_to_lake(lake, spent(ledger_of(file)))

        with source.locked(shared=True), _with_file(lake, file, " (READ_ONLY)") as both:
            both.transact(tables, write)
    return rows


def copy_out_of_lake(lake: LakeStore, file: Path, merge: Callable[[], object]) -> dict[str, int]:
    """Copy every table of a lake and its ledger into a new store file; return the number of rows per table.

    The file appears under its final name when it is complete. Runs on the lake wait until then.

    Args:
        lake: The lake.
        file: The new store file.
        merge: Moves the answers of models that are beside the lake into it; called while runs wait.

    Raises:
        StorageError: If the file or its ledger exists, or the ledger cannot be written.
        StoreError: If one of the stores cannot be opened.
    """
    if file.exists():
        raise _not_copied(str(file), "the file already exists; choose another name")
    ledger = ledger_of(file)
    if ledger.exists():
        why = f"{ledger.name} is the ledger of another store file or of an interrupted copy; choose another name or move it"
        raise _not_copied(str(file), why)
    if (log := log_of(file)).exists():
        raise _not_copied(
            str(file), f"{log.name} is the log of an earlier store file; choose another name or remove it"
        )
    if not file.parent.is_dir():
        raise missing_folder(file, "write")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    _remove(part)  # left by a killed process with the same id, as in containers
    try:
        with lake.exclusive_section("run"):
            merge()
            with lake.session(read_only=True) as con:
                tables = _present(con)
            Store.at(part).transact(tables, lambda _: None)
            with _with_file(lake, part) as both, both.session(read_only=True) as con:
                rows = _copied(con, "store", "other", tables)
            with _ledger_to(str(file)):
                add_spent(ledger_of(part), spent_on_lake(lake))
        ledger_of(part).replace(ledger)
        part.replace(file)
    finally:
        _remove(part)
    return rows


def _remove(part: Path) -> None:
    """Remove an incomplete copy with the files beside it."""
    for left in part.parent.glob(f"{glob.escape(part.name)}*"):
        left.unlink()


@contextlib.contextmanager
def _ledger_to(target: str) -> Iterator[None]:
    """Convert errors of a ledger file to StorageError."""
    try:
        yield
    except LedgerError as error:
        raise _not_copied(
            target, f"the ledger of judge calls cannot be copied ({error.__cause__})"
        ) from error


@contextlib.contextmanager
def _with_file(lake: LakeStore, file: Path, option: str = "") -> Iterator[LakeStore]:
    """Yield the lake, with the file attached as `other` to its connections; close the connections at the end."""
    place = str(file).replace("'", "''")
    try:
        yield replace(lake, setup=(f"ATTACH '{place}' AS other{option}",))
    finally:
        close_idle()


def _present(con: duckdb.DuckDBPyConnection) -> list[Table[Any]]:
    """Return the tables that exist in the attached store."""
    return [TABLES[name] for name in sorted(TABLES) if columns_of(con, TABLES[name])]


def _copied(
    con: duckdb.DuckDBPyConnection, source: str, target: str, tables: Sequence[Table[Any]]
) -> dict[str, int]:
    rows = dict[str, int]()
    for table in tables:
        name = f"main.{quoted(table.name)}"
        present = con.execute(f"SELECT * FROM {source}.{name} LIMIT 0").description or ()
        columns = ", ".join(
            quoted(c) for c in (*table.schema, *STAMPS) if c in {column[0] for column in present}
        )
        con.execute(f"INSERT INTO {target}.{name} BY NAME SELECT {columns} FROM {source}.{name}")
        rows[table.name] = _n_rows(con, target, table)
    return rows


def _n_rows(con: duckdb.DuckDBPyConnection, database: str, table: Table[Any]) -> int:
    (n_rows,) = con.execute(f"SELECT count(*) FROM {database}.main.{quoted(table.name)}").fetchone() or (0,)
    return int(n_rows)
