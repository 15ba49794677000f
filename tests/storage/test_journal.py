"""The journal: what was appended is there, whatever ended its writer."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from agent_eval.storage.journal import DiskFullError, Journal, finished_journals
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
    assert journal.path.stat().st_mode & 0o077 == 0  # of its owner only
    assert rows_in(tmp_path) == []  # still held
    journal.close()
    with pytest.raises(ZeroDivisionError), finished_journals(tmp_path, TABLE):
        raise ZeroDivisionError  # as if the store could not be reached
    assert rows_in(tmp_path) == [0, 1]
    assert rows_in(tmp_path) == []


def test_an_unused_journal_leaves_nothing_behind(tmp_path: Path) -> None:
    Journal.begin(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


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


def test_a_journal_of_an_earlier_release_is_read_without_a_line_that_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"i": 0}\n{"i": 1, "x": 0.5}\n{"i"')
    assert rows_in(tmp_path) == [0, 1]


def written(folder: Path, rows: range) -> Path:
    journal = Journal.begin(folder)
    journal.append([{"i": i} for i in rows])
    journal.close()
    return journal.path


def test_damaged_lines_are_set_aside_by_name_and_the_rest_is_merged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, range(5))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"i": 1', b'"i": 7')  # a flipped bit: valid JSON, another number
    lines[3] = b"\0" * 20 + b"\n"
    path.write_bytes(b"".join([*lines, b'{"i": "no number"}\n', b"[1, 2]\n", b'{"i": 9}\n']))
    other = written(tmp_path, range(20, 22))
    assert set(rows_in(tmp_path)) == {0, 2, 4, 9, 20, 21}
    aside = path.with_suffix(".damaged")
    assert len(aside.read_bytes().splitlines()) == 4
    assert str(aside) in caplog.text
    assert not path.exists()
    assert not other.exists()
    assert rows_in(tmp_path) == []


def test_every_flipped_byte_of_a_line_is_noticed(tmp_path: Path) -> None:
    whole = written(tmp_path, range(3)).read_bytes()
    for path in tmp_path.iterdir():
        path.unlink()
    for at in range(len(whole)):
        (tmp_path / "a.jsonl").write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        found = rows_in(tmp_path)
        assert set(found) <= {0, 1, 2}, at
        assert len(found) >= 1, at


FULL_DISK = """
import resource, sys
from pathlib import Path
from agent_eval.storage.journal import Journal

for folder in map(Path, sys.argv[1:]):
    journal = Journal.begin(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(folder.name), resource.RLIM_INFINITY))
    for i in range(200):
        try:
            journal.append([{"i": i}, {"i": i + 1000}])
        except OSError:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        else:
            print(folder.name, i)
    journal.close()
"""


@pytest.mark.slow
def test_a_full_disk_loses_no_row_that_was_called_stored(tmp_path: Path) -> None:
    folders = [tmp_path / str(limit) for limit in random.Random(7).sample(range(1, 9_000), 12)]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", FULL_DISK, *map(str, folders)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for folder in folders:
        stored = [int(line.split()[1]) for line in said if line.split()[0] == folder.name]
        assert len(stored) == 199, folder
        assert rows_in(folder) == [n for i in stored for n in (i, i + 1000)], folder


def test_no_journal_begins_on_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(DiskFullError, match=r"only 1 MB are free.*no judge is called"):
        Journal.begin(tmp_path)
    assert list(tmp_path.iterdir()) == []
