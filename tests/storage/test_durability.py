"""A store among other processes: killed, out of space, held by others, in the wrong place. Real processes throughout."""

import contextlib
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.storage import Store, StoreError
from agent_eval.storage.versions import OLDEST_VERSION, SCHEMA_VERSION
from agent_eval.tables import table

pytestmark = pytest.mark.slow

TEMPORARY = Path(tempfile.gettempdir())

STATE = table("judge_state")
BIG = 20_000  # rows of one write: long enough for a kill to land in it


def rows(agent: str, mark: int, n: int = 1) -> pl.DataFrame:
    """Rows of one agent that all carry one mark; distinct keys come from the version column."""
    versions = [str(i) for i in range(n)]
    return pl.DataFrame({"agent_id": agent, "methodology_version": versions, "spec": str(mark)})


def write(store: Store, agent: str, mark: int, n: int = 1) -> None:
    frame = rows(agent, mark, n)
    store.replace(STATE, frame, frame.select("agent_id", "methodology_version"), run_id="r")


def child(code: str, store: Store, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """A Python process of its own that has this module's helpers and the store."""
    helpers = "import sys, time\nfrom pathlib import Path\nfrom tests.storage.test_durability import *"
    source = f"{helpers}\nstore = Store.at(Path(sys.argv[1]))\n{code}"
    command = [sys.executable, "-c", source, store.attach, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], text=True, **pipes, **options)  # type: ignore[call-overload,no-any-return]


@contextlib.contextmanager
def running(code: str, store: Store, *arguments: object, n: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Processes that have each printed a line; they are killed after the block, which gets the first."""
    processes = [child(code, store, *arguments) for _ in range(n)]
    try:
        for process in processes:
            assert process.stdout
            process.stdout.readline()
        yield processes[0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "store.duckdb")


@pytest.fixture
def impatient(store: Store) -> Store:
    return replace(store, patience_s=0.3)


def test_a_write_that_is_killed_leaves_the_old_or_the_new_partition_whole(store: Store) -> None:
    code = f"print('up', flush=True)\nfor mark in range(int(sys.argv[2]) + 1, 10**6):\n    write(store, 'a', mark, {BIG})\n    print(mark, flush=True)"
    write(store, "a", 0, BIG)
    chance = random.Random(7)
    begun = 0
    for _ in range(4):
        before = last_mark(store)
        with running(code, store, before) as process:
            time.sleep(chance.uniform(0.05, 0.6))
            process.kill()
            finished = [int(line) for line in process.communicate()[0].split()]
        told = finished[-1] if finished else before
        # what was reported is there; at most the one write under way came through unreported
        assert last_mark(store) in {told, told + 1}
        begun += last_mark(store) > before or not finished
    assert begun
    write(store, "a", -1, 1)  # and the store still takes writes


def last_mark(store: Store) -> int:
    found = store.read(STATE)
    assert found.height == BIG
    assert found["spec"].n_unique() == 1, "a mix of two writes"
    return int(found["spec"][0])


def test_writers_lose_nothing_and_readers_see_whole_partitions_meanwhile(store: Store) -> None:
    code = "for mark in range(1, 6): write(store, sys.argv[2], mark, 300)"
    for agent in "abc":
        write(store, agent, 0, 300)
    writers = [child(code, store, agent) for agent in "abc"]
    seen: set[tuple[str, int, int]] = set()
    while any(writer.poll() is None for writer in writers):
        counted = store.read(STATE).group_by("agent_id").agg(pl.len(), marks=pl.col("spec").n_unique())
        seen |= {(agent, n, marks) for agent, n, marks in counted.rows()}
    ends = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], ends
    assert seen == {(agent, 300, 1) for agent in "abc"}
    assert_frame_equal(store.read(STATE), pl.concat(rows(a, 5, 300) for a in "abc").sort(STATE.key))


def test_readers_that_overlap_do_not_keep_a_writer_out(store: Store) -> None:
    write(store, "a", 0)
    with running("print('up', flush=True)\nwhile True: store.read(STATE)", store, n=3):
        write(store, "a", 1)  # waits for at most `patience_s`, else raises
    assert store.read(STATE)["spec"].to_list() == ["1"]


def test_who_waits_for_a_place_is_told_who_has_it_and_gets_it_once_that_process_is_killed(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_eval.storage.locks.SAY_AFTER_S", 0.0)
    code = "with store.exclusive_section('run'):\n    print('in', flush=True)\n    time.sleep(60)"
    with running(code, store) as process:
        threading.Timer(0.2, process.kill).start()
        with store.exclusive_section("run"):
            pass
    assert f"process {process.pid} holds it" in caplog.text


@pytest.mark.parametrize("ending", [".lock", ".lock.queue", ".lock.run"])
def test_a_named_pipe_in_the_place_of_a_lock_is_named_and_not_waited_for(store: Store, ending: str) -> None:
    assert store.file is not None
    place = store.file.with_name(store.file.name + ending)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    is_of_runs = ending == ".lock.run"
    with pytest.raises(StoreError, match=f"not a regular file.*{place.name}"):
        store.exclusive_section("run").__enter__() if is_of_runs else write(store, "a", 1)


def test_a_place_within_itself_is_held_already_and_let_go_once(store: Store) -> None:
    entered = threading.Event()

    def enter() -> None:
        with store.exclusive_section("registry"):
            entered.set()

    other = threading.Thread(target=enter)
    with store.exclusive_section("registry"):
        with store.exclusive_section("registry"):
            pass
        other.start()
        assert not entered.wait(0.2)  # another thread waits until the outer one is over
    other.join(10)
    assert entered.is_set()


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_a_store_that_another_program_keeps_is_named_with_the_program(impatient: Store, mode: str) -> None:
    write(impatient, "a", 0)
    code = f"con = duckdb.connect(sys.argv[1], read_only={mode == 'ro'})\nprint('up', flush=True)\ntime.sleep(60)"
    with running(code, impatient) as process:
        with pytest.raises(StoreError, match=rf"process {process.pid}.*0\.3 s"):
            write(impatient, "a", 1)
        if mode == "rw":
            with pytest.raises(StoreError, match=f"process {process.pid}"):
                impatient.read(STATE)
        else:
            assert impatient.read(STATE).height == 1
    assert impatient.read(STATE)["spec"].to_list() == ["0"]


def test_a_store_that_becomes_free_in_time_is_written(store: Store) -> None:
    write(store, "a", 0)
    held = duckdb.connect(store.attach)
    threading.Timer(0.3, held.close).start()
    write(store, "a", 1)
    assert store.read(STATE)["spec"].to_list() == ["1"]


def test_a_file_that_cannot_grow_leaves_the_old_partition_whole(store: Store) -> None:
    write(store, "a", 0, 100)
    limit = Path(store.attach).stat().st_size + 4096
    code = f"try:\n    write(store, 'a', 1, {10 * BIG})\nexcept StoreError as error:\n    print(error)"
    limited = child(code, store, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    out, err = limited.communicate(timeout=120)
    assert "Free some space" in out, err
    assert "No rows were changed" in out
    assert_frame_equal(store.read(STATE), rows("a", 0, 100).sort(STATE.key))
    write(store, "a", 2)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_leaves_the_old_partition_whole_and_no_half_made_store(small_disk: Path) -> None:
    store = Store.at(small_disk / "store.duckdb")
    write(store, "a", 0)
    with (small_disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096):
            pass
    with pytest.raises(StoreError, match=r"Free some space.*No rows were changed"):
        write(store, "a", 1, 5000)
    with pytest.raises(StoreError, match="Free some space"):
        write(Store.at(small_disk / "second.duckdb"), "a", 1)
    assert store.read(STATE)["spec"].to_list() == ["0"]
    (small_disk / "filler").unlink()
    for name in ("store.duckdb", "second.duckdb"):
        write(Store.at(small_disk / name), "a", 2)
        assert Store.at(small_disk / name).read(STATE)["spec"].to_list() == ["2"]


def test_a_folder_that_may_not_be_written_can_be_read(store: Store, tmp_path: Path) -> None:
    write(store, "a", 0)
    Path(store.attach).chmod(0o644)  # a run before in this process keeps its files to the user
    code = "import os\nwrite(Store.at(Path(sys.argv[1]).with_name('warm.duckdb')), 'a', 1)\nstore.read(STATE)\nfor lock in Path(sys.argv[1]).parent.glob('store.duckdb.*'): lock.unlink()\nos.chmod(Path(sys.argv[1]).parent, 0o555)\nif os.getuid() == 0: os.setuid(65534)\nprint(store.read(STATE).rows())\ntry:\n    write(store, 'a', 1)\nexcept StoreError as error:\n    print(error)"
    for folder in (tmp_path, *tmp_path.parents):  # pytest keeps its folders to the user
        if folder.owner() == tmp_path.owner() and folder.is_relative_to(TEMPORARY) and folder != TEMPORARY:
            folder.chmod(0o755)
    try:
        out, err = child(code, store).communicate(timeout=120)
    finally:
        tmp_path.chmod(0o755)
    assert "[('a', '0', '0')]" in out, err
    assert "Permission denied" in out
    assert "Grant this user write permission" in out


def test_a_missing_folder_is_an_error_and_not_an_empty_store(tmp_path: Path) -> None:
    store = Store.at(tmp_path / "unmounted" / "store.duckdb")
    with pytest.raises(StoreError, match=r"folder .*unmounted does not exist"):
        store.read(STATE)
    with pytest.raises(StoreError, match=r"folder .*unmounted does not exist"):
        write(store, "a", 0)
    assert not (tmp_path / "unmounted").exists()


def test_what_is_no_store_is_said_to_be_none_and_stays_as_it_is(store: Store, tmp_path: Path) -> None:
    write(store, "a", 0, BIG)
    whole = Path(store.attach).read_bytes()
    for name, content in {
        "garbage": b"x" * 9000, "empty": b"", "other": b"SQLite format 3\0" + bytes(9000), "cut": whole[:-70_000], "head": whole[:5000],
    }.items():  # fmt: skip
        file = tmp_path / name
        file.write_bytes(content)
        for use in (lambda s: s.read(STATE), lambda s: write(s, "a", 1)):
            with pytest.raises(StoreError, match=rf"{name}.*backup"):
                use(Store.at(file))
        assert file.read_bytes() == content
    with pytest.raises(StoreError, match="directory"):
        write(Store.at(tmp_path), "a", 1)


def test_what_a_removed_database_or_a_killed_process_left_does_not_stop_a_new_store(store: Store) -> None:
    Path(f"{store.attach}.wal").write_bytes(b"left behind by a database that somebody removed")
    Path(f"{store.attach}.new").write_bytes(b"half")
    write(store, "a", 1)
    assert store.read(STATE).height == 1
    assert list(Path(store.attach).parent.glob("*.new")) == []


def executed(store: Store, *statements: str) -> list[tuple[object, ...]]:
    """Run statements in DuckDB without the store; the rows of the last."""
    with duckdb.connect(store.attach) as con:
        con.execute("SET TimeZone='UTC'")
        for statement in statements:
            con.execute(statement)
        return con.fetchall()


VERSIONS = "SELECT version FROM schema_version ORDER BY 1"


def stamped(version: int) -> str:
    return (
        f"CREATE TABLE schema_version AS SELECT {version} AS version, '0' AS written_by, now() AS created_at"
    )


@pytest.mark.parametrize("stamp", [stamped(OLDEST_VERSION - 1), stamped(1), None])
def test_a_store_from_before_the_first_release_is_refused_and_not_touched(
    store: Store, stamp: str | None
) -> None:
    executed(store, "CREATE TABLE judge_state AS SELECT 'b' AS agent_id", *filter(None, [stamp]))
    before = Path(store.attach).read_bytes()
    for use in (lambda: store.read(STATE), lambda: write(store, "a", 1)):
        with pytest.raises(StoreError, match=rf"from {OLDEST_VERSION}\. Move the file away and run"):
            use()
    assert Path(store.attach).read_bytes() == before


def test_a_column_that_the_stored_table_lacks_is_null_until_the_first_write_adds_it(store: Store) -> None:
    executed(store, stamped(SCHEMA_VERSION), "CREATE TABLE judge_state AS SELECT 'b' AS agent_id, '0' AS methodology_version")  # fmt: skip
    assert store.read(STATE).rows() == [("b", "0", None)]
    assert store.read(STATE, pl.DataFrame({"spec": ["x"]})).is_empty()
    write(store, "a", 1)
    assert store.read(STATE).rows() == [("a", "0", "1"), ("b", "0", None)]


def test_a_migration_runs_once_and_with_its_stamp_or_not_at_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "a", 0)
    versions = "agent_eval.storage.versions"
    for module in (versions, "agent_eval.storage.store"):
        monkeypatch.setattr(f"{module}.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr(
        f"{versions}.MIGRATIONS", {SCHEMA_VERSION + 1: ["CREATE TABLE once (i INT)", "no SQL"]}
    )
    with pytest.raises(StoreError):
        write(store, "a", 1)
    monkeypatch.setattr(f"{versions}.MIGRATIONS", {SCHEMA_VERSION + 1: ["CREATE TABLE once (i INT)"]})
    write(store, "a", 2)
    write(store, "a", 3)
    assert executed(store, VERSIONS) == [(SCHEMA_VERSION,), (SCHEMA_VERSION + 1,)]


def test_a_store_of_a_later_version_is_refused_and_not_touched(store: Store) -> None:
    write(store, "a", 0)
    later = SCHEMA_VERSION + 1
    executed(store, f"INSERT INTO schema_version VALUES ({later}, '9.8.7', now())")
    before = Path(store.attach).read_bytes()
    said = rf"store\.duckdb.*version {later}.*versions up to {SCHEMA_VERSION}.*9\.8\.7 or later"
    for use in (
        lambda: store.read(STATE),
        lambda: write(store, "a", 1),
        lambda: store.delete(STATE, rows("a", 0).select(STATE.key)),
    ):
        with pytest.raises(StoreError, match=said):
            use()
    assert Path(store.attach).read_bytes() == before


@pytest.mark.parametrize("left_kb", [4, 64, 160, 260, 300, 540])
def test_a_disk_that_is_almost_full_makes_a_whole_store_or_none(small_disk: Path, left_kb: int) -> None:
    with (small_disk / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(small_disk).free - left_kb * 1024)
    store = Store.at(small_disk / "store.duckdb")
    with contextlib.suppress(StoreError):
        write(store, "a", 0)
    (small_disk / "filler").unlink()
    assert not list(small_disk.glob("*.new*"))
    if (small_disk / "store.duckdb").exists():
        with duckdb.connect(store.attach) as con:
            assert con.execute("SELECT max(version) FROM schema_version").fetchone() == (SCHEMA_VERSION,)
    write(store, "a", 1)
    assert store.read(STATE)["spec"].to_list() == ["1"]
