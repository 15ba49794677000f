"""Record a checksum of each file of the lake in the catalog, so that `store check` names every file that has changed.

DuckDB notices damage only where it decodes it: a flipped bit in a value, a statistic or a Bloom filter gives other rows
or hides them without an error. A file never changes after it is written, and its name is never used again.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

from agent_eval.storage.lake.catalog import FILE_CHECKSUM, LAKE_SCHEMA, SCHEMA, CatalogSession
from agent_eval.storage.lake.errors import NotInitialisedError

_CURRENT = f"""
    SELECT t.table_name, s.path, s.path_is_relative, t.path, t.path_is_relative, f.path, f.path_is_relative, c.sha256
    FROM (
        SELECT data_file_id AS file_id, table_id, path, path_is_relative
        FROM {LAKE_SCHEMA}.ducklake_data_file WHERE end_snapshot IS NULL
        UNION ALL
        SELECT delete_file_id, table_id, path, path_is_relative
        FROM {LAKE_SCHEMA}.ducklake_delete_file WHERE end_snapshot IS NULL
    ) AS f
    JOIN {LAKE_SCHEMA}.ducklake_table AS t ON t.table_id = f.table_id AND t.end_snapshot IS NULL
    JOIN {LAKE_SCHEMA}.ducklake_schema AS s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
    LEFT JOIN {SCHEMA}.file_checksum AS c ON c.path = f.path
    WHERE {{where}} ORDER BY t.table_name, f.file_id"""


@dataclass(frozen=True)
class LakeFile:
    """Represent a file of a table's current rows or of their deletions; `sha256` is None until it was recorded."""

    table: str
    path: Path
    path_in_catalog: str
    sha256: str | None

    def is_as_written(self) -> bool:
        """Return whether the file has its recorded checksum; it must be recorded.

        Raises:
            OSError: If the file cannot be read.
        """
        return _sha256(self.path) == self.sha256


def current_files(session: CatalogSession, data: Path, *, where: str = "true") -> list[LakeFile]:
    """Return the files in the data folder that contain the current rows of the tables, and those of their deletions."""
    files = []
    statement = _CURRENT.format(where=where)
    try:
        rows = session.rows(statement)
    except NotInitialisedError:  # the lake was created before there were checksums
        session.rows(FILE_CHECKSUM)
        rows = session.rows(statement)
    for name, *parts, sha256 in rows:
        path = data
        for part, is_relative in zip(parts[::2], parts[1::2], strict=True):
            path = path / part if is_relative else Path(part)
        files.append(LakeFile(name, path, parts[-2], sha256))
    return files


def record_checksums(session: CatalogSession, data: Path) -> None:
    """Record the checksums of the current files that have none and can be read.

    Raises:
        CatalogError: If the catalog cannot be used.
    """
    for file in current_files(session, data, where="c.path IS NULL"):
        with contextlib.suppress(OSError):  # `check` names it
            session.rows(
                f"INSERT INTO {SCHEMA}.file_checksum VALUES (%s, %s) ON CONFLICT DO NOTHING",
                [file.path_in_catalog, _sha256(file.path)],
            )


def forget_checksums(session: CatalogSession) -> None:
    """Remove the checksums of files that no snapshot contains."""
    session.rows(
        f"DELETE FROM {SCHEMA}.file_checksum WHERE path NOT IN (SELECT path FROM {LAKE_SCHEMA}.ducklake_data_file "
        f"UNION ALL SELECT path FROM {LAKE_SCHEMA}.ducklake_delete_file)"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
