"""The journal: what was appended is there, whatever ended its writer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl

from agent_eval.storage.journal import Journal, finished_journals
from agent_eval.tables import Table
from agent_eval.tables.contract import Column

TABLE = Table(
    "numbers",
    "one row per number",
    ("i",),
    (Column("i", pl.Int64, "A number"), Column("x", pl.Float64, "Null")),
)


def rows_in(folder: Path) -> list[object]:
    with finished_journals(folder, TABLE) as rows:
        return rows["i"].to_list()


def test_rows_are_found_once_their_writer_is_done_and_only_once(tmp_path: Path) -> None:
    journal = Journal.begin(tmp_path)
    journal.append([{"i": 0}, {"i": 1}])
    assert rows_in(tmp_path) == []  # still held
    journal.close()
    assert rows_in(tmp_path) == [0, 1]
    assert rows_in(tmp_path) == []


def test_an_unused_journal_leaves_nothing_behind(tmp_path: Path) -> None:
    Journal.begin(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_a_merge_that_fails_loses_nothing(tmp_path: Path) -> None:
    journal = Journal.begin(tmp_path)
    journal.append([{"i": 0}])
    journal.close()
    try:
        with finished_journals(tmp_path, TABLE):
            raise RuntimeError("the store is away")
    except RuntimeError:
        pass
    assert rows_in(tmp_path) == [0]


def test_a_killed_writer_loses_no_row_that_it_was_told_is_safe(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from agent_eval.storage.journal import Journal\n"
        "journal = Journal.begin(Path(sys.argv[1]))\n"
        "for i in range(10**9): journal.append([{'i': i}]); print(i, flush=True)"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(200)]
    os.kill(writer.pid, signal.SIGKILL)
    told += [int(line) for line in writer.stdout if line.endswith("\n")]
    writer.stdout.close()
    writer.wait()
    assert rows_in(tmp_path)[: len(told)] == told


def test_a_line_that_was_cut_off_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"i": 0}\n{"i"')
    assert rows_in(tmp_path) == [0]
