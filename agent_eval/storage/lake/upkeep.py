"""Create, check and compact a lake."""

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from agent_eval.formats.plain_text import count_of
from agent_eval.storage.lake import catalog
from agent_eval.storage.lake.answers import forget_merged
from agent_eval.storage.lake.checksums import LakeFile, current_files, forget_checksums, record_checksums
from agent_eval.storage.lake.connections import Lake
from agent_eval.storage.lake.errors import DataFolderError, wrong_clock
from agent_eval.storage.lake.extensions import load_statements
from agent_eval.storage.lake.store import FENCE, MARKER, LakeStore
from agent_eval.storage.store import columns_of, quoted
from agent_eval.storage.store_errors import StoreError
from agent_eval.storage.versions import SCHEMA_VERSION, VERSION_TABLE, stamp, stamped
from agent_eval.tables import TABLES

_KEPT = "1 hour"  # readers of older snapshots have finished by then


def initialise(store: LakeStore) -> bool:
    """Create the lake's tables in the catalog and its data folder; return False if the lake already exists.

    Raises:
        StoreError: If the catalog cannot be used, or the data folder belongs to another lake.
    """
    with contextlib.closing(store.catalog_session("create")) as session, store.translated("make"):
        session.lock("init", limit_s=None, what=f"the store {store.attach}")
        setup = load_statements()
        for statement in catalog.TABLES:
            session.rows(statement)
        _claim_folder(store, session)
        lake = Lake.attached(setup, store.attach_statement("store", create=True), session)
        with contextlib.closing(lake):
            is_new = stamped(lake.con)[0] == 0
            if is_new:
                lake.con.execute("BEGIN")
                lake.con.execute(f"CREATE TABLE IF NOT EXISTS {FENCE} (table_name VARCHAR, n_writes BIGINT)")
                stamp(lake.con)
                lake.con.execute("COMMIT")
            return is_new


def _claim_folder(store: LakeStore, session: catalog.CatalogSession) -> None:
    """Store the data folder with a marker in the catalog, and write the marker to the folder.

    The catalog is first, so that an interrupted `store init` can be repeated. Until the lake is created, the folder in
    the catalog is replaced, because the settings may have been corrected.
    """
    file = store.data / MARKER
    folder_rows = session.rows(f"SELECT data_path, marker FROM {catalog.SCHEMA}.lake")
    data, marker = folder_rows[0] if folder_rows else (None, uuid.uuid4().hex)
    is_created = bool(folder_rows) and store.is_created(session)
    if is_created and data != str(store.data):
        raise DataFolderError(store.attach, "create", f"its files are in {data}, not in {store.data}")
    folder_marker = file.read_text().strip() if file.is_file() else None
    if folder_marker not in (None, marker):
        why = f"{store.data} is the folder of another lake (if no lake uses it, delete {file})"
        raise DataFolderError(store.attach, "create", why)
    if is_created and folder_marker is None:
        raise DataFolderError(
            store.attach, "create", f"its data folder {store.data} does not contain its files"
        )
    if not folder_rows:
        session.rows(f"INSERT INTO {catalog.SCHEMA}.lake (marker) VALUES (%s)", [marker])
    session.rows(f"UPDATE {catalog.SCHEMA}.lake SET data_path = %s", [str(store.data)])
    if folder_marker == marker:
        return
    try:
        store.data.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{MARKER}.part")
        partial.write_text(marker + "\n")
        partial.replace(file)
    except OSError as error:
        raise DataFolderError(
            store.attach, "create", f"{store.data} cannot be written ({error.strerror})"
        ) from error


@dataclass
class Checked:
    """Hold the result of a check: the number of rows per table, one sentence per problem, and the files of sound tables.

    `n_unrecorded` files have no checksum yet, because the worker that wrote them was killed; they were only read.
    """

    rows: dict[str, int] = field(default_factory=dict[str, int])
    problems: list[str] = field(default_factory=list[str])
    files: dict[str, list[Path]] = field(default_factory=dict[str, list[Path]])
    n_unrecorded: int = 0


def check(store: LakeStore) -> Checked:
    """Read and check the whole lake: the rows, key, files and `fence` row of every table, and the clocks.

    Raises:
        StoreError: If the lake cannot be opened.
    """
    store.check_folder("read")
    report, files = Checked(), defaultdict[str, list[LakeFile]](list)
    with contextlib.closing(store.catalog_session("read")) as session:
        skew = session.wrong_clock()
        catalog_markers = session.rows(f"SELECT marker FROM {catalog.SCHEMA}.lake")
        for file in current_files(session, store.data):
            files[file.table].append(file)
    if skew:
        report.problems.append(f"T{skew[1:]}: synchronise both with NTP.")
    if [((store.data / MARKER).read_text().strip(),)] != catalog_markers:
        raise DataFolderError(store.attach, "read", f"{store.data} is the folder of another lake")
    damaged = {name: [d for file in of_table if (d := _damage(file))] for name, of_table in files.items()}
    report.problems += [
        f"Table {name}: {problem}; restore it from a backup."
        for name, problems in damaged.items()
        for problem in problems
    ]
    report.n_unrecorded = sum(file.sha256 is None for of_table in files.values() for file in of_table)
    if damaged.get(VERSION_TABLE):  # nothing can be read without it
        return report
    with store.session(read_only=True) as con:
        version, written_by = stamped(con)
        if version < SCHEMA_VERSION:
            report.problems.append(
                f"Its tables have version {version} (agent_eval {written_by}); the next write migrates them."
            )
        names = [name for name in sorted(TABLES) if columns_of(con, TABLES[name])]
    for name in names:
        report.rows[name] = 0
        if not damaged.get(name):
            report.files[name] = [file.path for file in files[name]]
            _check_table(store, name, report, counts_fences=not damaged.get(FENCE))
    report.problems += _orphans(store)
    return report


def _damage(file: LakeFile) -> str | None:
    """Return what is wrong with a file; one without a recorded checksum only has to be readable."""
    try:
        if file.sha256 is not None:
            is_as_written = file.is_as_written()
            return None if is_as_written else f"its file {file.path} has changed since it was written"
        with contextlib.closing(duckdb.connect()) as con:
            con.execute("SELECT bit_xor(hash(t)) FROM read_parquet(?) AS t", [str(file.path)])
    except FileNotFoundError:
        return f"its file {file.path} is missing"
    except (duckdb.Error, OSError) as error:
        if not file.path.is_file():
            return f"its file {file.path} is missing"
        return f"its file {file.path} cannot be read ({str(error).splitlines()[0]})"
    return None


def _orphans(store: LakeStore) -> list[str]:
    """Return a text for the files in the data folder that no snapshot contains, e.g. after a worker was killed."""
    with store.session(read_only=True) as con:
        statement = f"CALL ducklake_delete_orphaned_files('store', dry_run => true, older_than => now() - INTERVAL '{_KEPT}')"
        files = sorted(str(path) for (path, *_) in con.execute(statement).fetchall())
    if not files:
        return []
    return [
        f"{count_of(len(files), 'file')} older than {_KEPT} that belong to no snapshot can be deleted, e.g. {files[0]}."
    ]


def _check_table(store: LakeStore, name: str, report: Checked, *, counts_fences: bool) -> None:
    """Read a table whose files are sound, and add the number of its rows and a sentence for each problem to `report`."""
    try:  # a session of its own: after an error, its transaction cannot be used
        with store.session(read_only=True) as con:
            if counts_fences:
                n_fences = _number(con, f"SELECT count(*) FROM {FENCE} WHERE table_name = ?", [name])
                if n_fences != 1:
                    report.problems.append(
                        f"Table {name} has {count_of(n_fences, 'row')} in `fence` instead of one; restore the catalog."
                    )
            key = ", ".join(map(quoted, TABLES[name].key))
            n_rows = _number(con, f"SELECT count(*) FROM (FROM {quoted(name)})")
            n_double = _number(
                con, f"SELECT count(*) FROM (SELECT 1 FROM {quoted(name)} GROUP BY {key} HAVING count(*) > 1)"
            )
            con.execute(f"SELECT bit_xor(hash(t)) FROM {quoted(name)} AS t")
    except StoreError as error:
        del report.files[name]
        why = str(error.__cause__ or error).splitlines()[0]
        report.problems.append(f"Table {name} cannot be read: {why}")
        return
    report.rows[name] = n_rows
    if n_double:
        report.problems.append(
            f"Table {name} contains {n_double:,} duplicate keys; recompute its partitions."
        )


def _number(con: duckdb.DuckDBPyConnection, statement: str, values: Sequence[str] = ()) -> int:
    (number,) = con.execute(statement, list(values)).fetchone() or (0,)
    return int(number)


def compact(store: LakeStore) -> tuple[int, int]:
    """Merge small files and remove files that only snapshots older than an hour need.

    Return the number of files before and after that contain the current rows. Rows that the catalog itself contains
    are first written to files, which count as before. Other workers can read and write at the same time, but runs wait.

    Raises:
        StoreError: If the clocks of this machine and of the catalog differ by more than a minute,
            or if the lake cannot be opened or changed.
    """
    with contextlib.closing(store.catalog_session("write")) as session:
        if skew := session.wrong_clock():  # the age of a file would be wrong
            raise wrong_clock(store.attach, skew)
    with store.exclusive_section("run"), store.session(read_only=False) as con:
        con.execute("CALL ducklake_flush_inlined_data('store')")
        before = _n_files(con)
        for statement in (
            f"CALL ducklake_expire_snapshots('store', older_than => now() - INTERVAL '{_KEPT}')",
            "CALL ducklake_merge_adjacent_files('store')",
            "CALL ducklake_rewrite_data_files('store')",
            f"CALL ducklake_cleanup_old_files('store', older_than => now() - INTERVAL '{_KEPT}')",
        ):
            con.execute(statement)
        after = _n_files(con)
    with contextlib.closing(store.catalog_session("write")) as session:
        record_checksums(session, store.data)
        forget_checksums(session)
        forget_merged(session)
    return before, after


def _n_files(con: duckdb.DuckDBPyConnection) -> int:
    """Return the number of files of the current snapshot, deletion files included."""
    count_rows = con.execute(
        "SELECT sum(file_count + delete_file_count)::INT FROM ducklake_table_info('store')"
    ).fetchall()
    return int(count_rows[0][0] or 0)
