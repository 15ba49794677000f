"""A copy of the store while work goes on.

The file is copied as it is, under the readers' lock: writers wait only for the copying (a plain file copy), readers
not at all. The copy is then read in full under a name of its own, and gets its real name only when nothing is amiss.
"""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from agent_eval.errors import AgentEvalError
from agent_eval.storage.store import Store, quoted


class BackupError(AgentEvalError):
    """The copy cannot be made where it was wanted; the store is as it was."""

    def __init__(self, target: Path, why: str) -> None:
        super().__init__(f"No backup to {target}: {why}. The store is as it was.")


@dataclass(frozen=True)
class Backup:
    """A copy that was made: where it is, and the rows of every table in it."""

    file: Path
    rows: dict[str, int]

    @property
    def n_bytes(self) -> int:
        """Size of the copy."""
        return self.file.stat().st_size


def back_up(store: Store, target: Path, *, force: bool = False) -> Backup:
    """Copy the whole store, as it is at one moment, into a new file that opens as a store.

    Args:
        store: Where other processes may read and write meanwhile.
        target: The file to make; its folder must exist.
        force: Overwrite the file if it exists.

    Raises:
        BackupError: If `target` exists (without `force`), is a folder or belongs to the store, if there is nothing
            to copy yet, or if the copy cannot be written or read back. No part of a copy stays.
        StoreError: If the store cannot be read.
    """
    source = store.file
    if source is None:
        raise BackupError(target, f"{store.attach} is no local file; its own database has tools for that")
    _check(source, target, force=force)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        expected = _copied(store, source, part)
        found = _read_back(store, part)
        if found != expected:
            raise BackupError(target, f"the copy holds other rows than the store: {found}, not {expected}")
        _check(source, target, force=force)  # the copying took a while
        part.replace(target)
    except OSError as error:
        raise BackupError(target, f"{error.strerror}; free some space, or choose another place") from error
    finally:
        part.unlink(missing_ok=True)
        _log_of(part).unlink(missing_ok=True)
    return Backup(target, expected)


def _check(source: Path, target: Path, *, force: bool) -> None:
    if not source.exists():
        raise BackupError(target, f"there is no store yet at {source}; `agent-eval run` makes it")
    if target.is_dir():
        raise BackupError(target, "it is a folder; name a file in it")
    if not target.parent.is_dir():
        raise BackupError(target, f"the folder {target.parent} does not exist; create it")
    if _is_ours(source.resolve(), target.resolve()):
        raise BackupError(target, "it is the store itself, or one of its own files; choose another name")
    if target.exists() and not force:
        raise BackupError(target, "the file exists; choose another name, or replace it with --force")
    if (log := _log_of(target)).exists():
        raise BackupError(
            target, f"{log} belongs to a database that is in use or was not closed; remove it first"
        )


def _is_ours(source: Path, target: Path) -> bool:
    if target.exists() and target.samefile(source):
        return True
    rest = target.name.removeprefix(source.name)
    return target.parent == source.parent and (rest in {"", ".wal", ".new"} or rest.startswith(".lock"))


def _copied(store: Store, source: Path, part: Path) -> dict[str, int]:
    """Copy the file, and the log that a killed writer may have left; rows by table."""
    with store.session(read_only=True) as con:
        shutil.copyfile(source, part)
        if (log := _log_of(source)).exists():
            shutil.copyfile(log, _log_of(part))
        return _rows(con, "count(*)")


def _read_back(store: Store, part: Path) -> dict[str, int]:
    """Rows by table of the copy; its log worked in, every block read against its checksum, all of it on the disk."""
    with replace(store, attach=str(part), lock_file=None).session(read_only=False) as con:
        con.execute("FORCE CHECKPOINT store")
        _rows(con, "bit_xor(hash(t))")
        rows = _rows(con, "count(*)")
    with part.open("rb") as handle:
        os.fsync(handle.fileno())
    return rows


def _rows(con: duckdb.DuckDBPyConnection, what: str) -> dict[str, int]:
    """An aggregate of every table, by table."""
    found = con.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'store' AND NOT temporary ORDER BY ALL"
    )
    names = {f"{schema}.{name}": f"{quoted(schema)}.{quoted(name)}" for schema, name in found.fetchall()}
    values = {
        name: con.execute(f"SELECT {what} FROM store.{sql} AS t").fetchone() for name, sql in names.items()
    }
    return {name: value[0] for name, value in values.items() if value}


def _log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.wal")
