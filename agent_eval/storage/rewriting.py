"""Rewrite a store file, so that nothing of deleted rows remains in it, and find other copies of a conversation."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import duckdb

from agent_eval.storage import engines
from agent_eval.storage.store import Store

_MAGIC, _AT = b"DUCK", 8  # of DuckDB files


def rewrite(store: Store) -> None:
    """Copy the rows of a store file to a new file that replaces it. Nothing is done for a store that is not a file.

    Raises:
        StoreError: If the file cannot be copied; it is unchanged.
    """
    file = store.file
    if file is None or not file.exists():
        return
    fresh = file.with_name(f"{file.name}.new")
    with store.locked(shared=False), store.translated("rewrite"):
        try:
            fresh.unlink(missing_ok=True)
            with engines.attached(str(file), store.options, store.setup) as con:
                con.execute(f"ATTACH {_text(fresh)} AS fresh ({store.making})")
                con.execute("COPY FROM DATABASE store TO fresh")
                con.execute("DETACH fresh")
            fresh.chmod(file.stat().st_mode & 0o777)
            file.with_name(f"{file.name}.wal").unlink(missing_ok=True)
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
            fresh.with_name(f"{fresh.name}.wal").unlink(missing_ok=True)


def copies_with(store: Store, root: Path, agent_id: str, conversation_id: str) -> Iterator[tuple[Path, bool]]:
    """Yield the other DuckDB files below `root`, with whether the conversation was seen in them.

    It is False for a file that cannot be read. Files that do not have the conversation are not yielded.
    """
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in {".venv", ".git", "node_modules"}]
        for path in sorted(Path(folder, name) for name in names):
            with contextlib.suppress(OSError):
                if not path.is_file() or (store.file and store.file.exists() and path.samefile(store.file)):
                    continue
                with path.open("rb") as stream:
                    if stream.read(_AT + len(_MAGIC))[_AT:] != _MAGIC:
                        continue
                try:
                    if _has(path, agent_id, conversation_id):
                        yield path, True
                except duckdb.Error:
                    yield path, False


def _has(path: Path, agent_id: str, conversation_id: str) -> bool:
    with engines.attached(str(path), "TYPE duckdb, READ_ONLY", ()) as con:
        tables = con.execute(
            "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE database_name = 'store' AND schema_name = 'main' "
            "GROUP BY ALL HAVING list_contains(list(column_name), 'conversation_id')"
        ).fetchall()
        for name, columns in tables:
            is_agent = " AND agent_id = ?" if "agent_id" in columns else ""
            parameters = [conversation_id, *([agent_id] if is_agent else [])]
            quoted = '"' + str(name).replace('"', '""') + '"'
            if con.execute(
                f"SELECT 1 FROM {quoted} WHERE conversation_id = ?{is_agent} LIMIT 1", parameters
            ).fetchone():
                return True
    return False


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
