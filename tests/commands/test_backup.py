"""`agent-eval store backup`: a copy that opens as a store, or one clear line and no trace of a copy."""

import re
from pathlib import Path

import duckdb
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.errors import StorageError
from agent_eval.project import Project
from agent_eval.storage import Store, back_up
from agent_eval.tables import TABLES, table
from benchmarks.warm import agent_eval
from tests.storage.test_durability import STATE, running, write

pytestmark = pytest.mark.slow


def test_the_copy_of_a_project_opens_as_its_store(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample_root))
    target = tmp_path / "copy.duckdb"
    result = CliRunner().invoke(app, ["store", "backup", str(target)])
    assert result.exit_code == 0, result.output
    assert "rows of" in result.stdout
    copy, store = Store.at(target), Project.open(sample_root).store
    for name in TABLES:
        assert_frame_equal(copy.read(table(name)), store.read(table(name)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.at(tmp_path / "store" / "store.duckdb")
    (tmp_path / "store").mkdir()
    write(made, "a", 0, 100)
    return made


def test_a_copy_taken_while_others_write_holds_whole_partitions(store: Store, tmp_path: Path) -> None:
    code = "print('up', flush=True)\nfor mark in range(1, 9): write(store, 'a', mark, 300)"
    write(store, "a", 0, 300)
    with running(code, store) as writer:
        for i in range(4):
            copy = back_up(store, tmp_path / f"{i}.duckdb")
            found = Store.at(copy.file).read(STATE)
            assert (found.height, found["spec"].n_unique()) == (300, 1)
        writer.communicate()
    assert writer.returncode == 0
    assert store.read(STATE)["spec"].unique().to_list() == ["8"]


def test_what_a_killed_writer_left_in_its_log_is_in_the_copy(store: Store, tmp_path: Path) -> None:
    code = "con = duckdb.connect(sys.argv[1])\ncon.execute(\"INSERT INTO judge_state BY NAME SELECT 'b' AS agent_id, '1' AS methodology_version, '7' AS spec\")\nprint('done', flush=True)\ntime.sleep(60)"
    with running(code, store):
        pass  # until it has written
    assert Path(f"{store.attach}.wal").exists()
    copy = back_up(store, tmp_path / "copy.duckdb")
    assert Store.at(copy.file).read(STATE).height == 101
    made = {f"copy.duckdb{end}" for end in ("", ".lock", ".lock.queue")}
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == made


def test_nothing_is_overwritten_unless_it_is_said(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.duckdb"
    target.write_text("precious")
    with pytest.raises(StorageError, match="--force"):
        back_up(store, target)
    assert target.read_text() == "precious"
    assert back_up(store, target, force=True).rows["main.judge_state"] == 100


def test_places_that_cannot_take_a_copy_are_refused(store: Store, tmp_path: Path) -> None:
    own = Path(store.attach)
    link = tmp_path / "link.duckdb"
    link.symlink_to(own)
    (tmp_path / "other.duckdb.wal").write_text("x")
    refused = {
        tmp_path: "folder", tmp_path / "no" / "copy": "does not exist", own: "it is the store", link: "it is the store",
        own.with_name("store.duckdb.wal"): "one of its files", own.with_name("store.duckdb.lock"): "one of its files",
        tmp_path / "other.duckdb": "in use or was not closed",
    }  # fmt: skip
    before = own.read_bytes()
    for target, why in refused.items():
        with pytest.raises(StorageError, match=why):
            back_up(store, target, force=True)
    assert own.read_bytes() == before
    with pytest.raises(StorageError, match="does not exist yet"):
        back_up(Store.at(tmp_path / "never.duckdb"), tmp_path / "copy.duckdb")


def test_a_damaged_store_gives_no_copy_that_looks_like_one(store: Store, tmp_path: Path) -> None:
    write(store, "a", 1, 60_000)
    file = Path(store.attach)
    content = bytearray(file.read_bytes())
    for place in range(40_000, len(content), 50_000):
        content[place] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(Exception, match=r"checksum|Corrupt"):
        back_up(store, tmp_path / "copy.duckdb")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == []


def test_every_command_that_needs_the_store_refuses_one_of_a_later_version(sample_copy: Path) -> None:
    with duckdb.connect(str(sample_copy / "data" / "agent_eval.duckdb")) as con:
        con.execute("INSERT INTO schema_version VALUES (99, '9.8.7', now())")
    for command in (
        "run",
        "leaderboard",
        "gate",
        "reliability",
        "explain harbor-desk",
        "store backup copy.duckdb",
    ):
        done = agent_eval(sample_copy, *command.split())
        assert done.returncode == 2, command
        assert re.fullmatch(r".*version 99.*9\.8\.7 or later.*\n", done.stderr), (command, done.stderr)
