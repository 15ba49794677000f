"""Compare all tables of two stores, e.g. of one project before and after a change of the code.

`python -m benchmarks.compare_stores BEFORE AFTER`, each a store file or the folder of a project, whose store may be a lake,
prints one line per table and exits with 1 if rows differ. Times are compared as points in time. Columns that a run stamps or
measures anew (ids of runs, times of writes, fingerprints of code) are left out; the output names them.
"""

import sys
from pathlib import Path

import duckdb

from agent_eval.project import Project
from agent_eval.settings.lake import LakeSettings
from agent_eval.tables import TABLES
from agent_eval.tables.contract import TIME

NOT_COMPARED = {
    "dagster_run_id", "created_at", "ingest_fingerprint", "fingerprint", "recorded_at", "changed_at", "audit_id", "run",
    "gate_spec",
}  # fmt: skip


def differing(before: Path, after: Path) -> list[str]:
    """Return a line per table whose rows differ, and per column that only one side has."""
    con = duckdb.connect()
    con.execute("SET TimeZone='UTC'")
    sides = ("a", "b")
    for side, place in zip(sides, (before, after), strict=True):
        _attach(con, side, place)
    found = []
    for name in sorted(TABLES):
        held = [_columns(con, side, name) for side in sides]
        if not all(held):
            print(f"{name}: on {'one side only' if any(held) else 'neither side'}")
            continue
        only = held[0] ^ held[1]
        common = sorted((held[0] & held[1]) - NOT_COMPARED)
        shown = [_select(side, name, common) for side in sides]
        counts = [
            con.execute(f"SELECT count(*) FROM (({one}) EXCEPT ALL ({other}))").fetchone()
            for one, other in (shown, shown[::-1])
        ]
        (lost,), (added,) = (count or (0,) for count in counts)
        n_rows = (con.execute(f"SELECT count(*) FROM ({shown[1]})").fetchone() or (0,))[0]
        print(
            f"{name}: {n_rows} rows, {lost} only before, {added} only after; {len(common)} columns compared"
            + (f"; on one side only: {', '.join(sorted(only))}" if only else "")
        )
        if lost or added:
            found.append(name)
    return found


def _attach(con: duckdb.DuckDBPyConnection, side: str, place: Path) -> None:
    """Attach a store file, or the store of the project in a folder."""
    if place.is_dir() and isinstance((project := Project.open(place)).settings.store, LakeSettings):
        from agent_eval.storage.lake import LakeStore
        from agent_eval.storage.lake.extensions import load_statements

        assert isinstance(project.store, LakeStore)
        for statement in (*load_statements(), project.store.attach_statement(side)):
            con.execute(statement)
    else:
        file = Project.open(place).store.attach if place.is_dir() else place
        con.execute(f"ATTACH '{file}' AS {side} (READ_ONLY)")


def _columns(con: duckdb.DuckDBPyConnection, side: str, table: str) -> set[str]:
    rows = con.execute(
        "SELECT column_name FROM duckdb_columns() WHERE database_name = ? AND table_name = ? AND schema_name = 'main'",
        [side, table],
    ).fetchall()
    return {name for (name,) in rows}


def _select(side: str, table: str, columns: list[str]) -> str:
    schema = TABLES[table].schema
    shown = (
        f'TRY_CAST("{name}" AS TIMESTAMPTZ) AS "{name}"' if schema.get(name) == TIME else f'"{name}"'
        for name in columns
    )
    return f'SELECT {", ".join(shown)} FROM {side}.main."{table}"'


if __name__ == "__main__":
    differ = differing(Path(sys.argv[1]), Path(sys.argv[2]))
    print(f"differing: {', '.join(differ)}" if differ else "all tables equal")
    sys.exit(bool(differ))
