"""Back up the store while runs are active.

The file is copied under the shared lock: writers wait only while the file is copied, and readers do not wait. The
copy is then verified completely under a temporary name, and renamed to its final name only if it is intact.
"""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from agent_eval.errors import StorageError
from agent_eval.storage.store import Store, quoted


def _not_backed_up(target: Path, why: str) -> StorageError:
    return StorageError(f"Cannot back up to {target}: {why}. The store was not changed.")


@dataclass(frozen=True)
class Backup:
    """Represent a finished backup: its path, and the number of rows per table."""

    file: Path
    rows: dict[str, int]

    @property
    def n_bytes(self) -> int:
        """Return the size of the backup in bytes."""
        return self.file.stat().st_size


def back_up(store: Store, target: Path, *, force: bool = False) -> Backup:
    """Copy a consistent snapshot of the store into a new store file.

    Args:
        store: The store; other processes may read and write it during the backup.
        target: The file to create; its folder must exist.
        force: Overwrite the file if it exists.

    Raises:
        StorageError: If `target` exists (without `force`), is a folder or belongs to the store, if the store
            does not exist yet, or if the copy cannot be written or verified. No partial copy is left.
        StoreError: If the store cannot be read.
    """
    source = store.file
    if source is None:
        raise _not_backed_up(
            target, f"{store.attach} is not a local file; use `agent-eval store copy --to FILE`"
        )
    _check(source, target, force=force)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        expected = _copied(store, source, part)
        counts = _read_back(store, part)
        if counts != expected:
            raise _not_backed_up(
                target, f"the copy and the store have different rows: {counts}, not {expected}"
            )
        _check(source, target, force=force)  # check again, because it may have changed during the copy
        part.replace(target)
    except OSError as error:
        raise _not_backed_up(
            target, f"{error.strerror}; free some space, or choose another folder"
        ) from error
    finally:
        part.unlink(missing_ok=True)
        log_of(part).unlink(missing_ok=True)
    return Backup(target, expected)


def _check(source: Path, target: Path, *, force: bool) -> None:
    if not source.exists():
        raise _not_backed_up(
            target, f"the store {source} does not exist yet; create it with `agent-eval run`"
        )
    if target.is_dir():
        raise _not_backed_up(target, "it is a folder; specify a file")
    if not target.parent.is_dir():
        raise _not_backed_up(target, f"the folder {target.parent} does not exist; create it")
    if _is_ours(source.resolve(), target.resolve()):
        raise _not_backed_up(target, "it is the store or one of its files; choose another name")
    if target.exists() and not force:
        raise _not_backed_up(
            target, "the file already exists; choose another name, or overwrite it with --force"
        )
    if (log := log_of(target)).exists():
        raise _not_backed_up(
            target, f"{log} belongs to a database that is in use or was not closed properly; remove it first"
        )


def _is_ours(source: Path, target: Path) -> bool:
    if target.exists() and target.samefile(source):
        return True
    rest = target.name.removeprefix(source.name)
    return target.parent == source.parent and (rest in {"", ".wal", ".new"} or rest.startswith(".lock"))


def _copied(store: Store, source: Path, part: Path) -> dict[str, int]:
    """Copy the file and the log that a killed writer may have left; return the number of rows per table."""
    with store.session(read_only=True) as con:
        shutil.copyfile(source, part)
        if (log := log_of(source)).exists():
            shutil.copyfile(log, log_of(part))
        return _rows(con, "count(*)")


def _read_back(store: Store, part: Path) -> dict[str, int]:
    """Apply the copy's log, verify all checksums and sync to disk; return the number of rows per table."""
    with replace(store, attach=str(part), lock_file=None).session(read_only=False) as con:
        con.execute("FORCE CHECKPOINT store")
        _rows(con, "bit_xor(hash(t))")
        rows = _rows(con, "count(*)")
    with part.open("rb") as handle:
        os.fsync(handle.fileno())
    return rows


def _rows(con: duckdb.DuckDBPyConnection, what: str) -> dict[str, int]:
    """Return the value of an SQL aggregate for every table, by table name."""
    table_rows = con.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'store' AND NOT temporary ORDER BY ALL"
    )
    names = {f"{schema}.{name}": f"{quoted(schema)}.{quoted(name)}" for schema, name in table_rows.fetchall()}
    values = {
        name: con.execute(f"SELECT {what} FROM store.{sql} AS t").fetchone() for name, sql in names.items()
    }
    return {name: value[0] for name, value in values.items() if value}


def log_of(file: Path) -> Path:
    """Return the path of DuckDB's log for a database file; a killed writer leaves its last changes there."""
    return file.with_name(f"{file.name}.wal")
