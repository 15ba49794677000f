import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rich.console import Console

from agent_eval.commands.setup import store as store_commands
from agent_eval.commands.setup.store import _fingerprints, copy
from agent_eval.commands.setup.store import check as check_store
from agent_eval.errors import StorageError
from agent_eval.project import Project
from agent_eval.project.beside_store import BesideStore, FilesBesideStore
from agent_eval.project.fingerprints import Fingerprints
from agent_eval.storage import Store
from agent_eval.storage.journal import Journal
from agent_eval.storage.lake import LakeStore, copying
from agent_eval.storage.lake.copying import copy_into_lake, copy_out_of_lake
from agent_eval.storage.lake.ledger import add_spent as add_to_lake
from agent_eval.storage.lake.ledger import spent as spent_on_lake
from agent_eval.storage.lake.upkeep import check
from agent_eval.storage.ledger import add_spent, ledger_of, spent
from agent_eval.storage.lineage import written
from agent_eval.storage.versions import SCHEMA_VERSION
from agent_eval.tables import TABLES, table
from tests.conftest import at_home
from tests.storage.lake.test_lost_runs import on_lake
from tests.storage.test_store import STATE, full_row, state

ROW = state(("a", "1", "x"))


def nothing() -> None:
    """No answers wait beside the store."""


def test_every_table_comes_back_from_a_lake_with_its_rows_types_runs_and_times(
    lake: LakeStore, tmp_path: Path
) -> None:
    before, after = Store.at(tmp_path / "before.duckdb"), Store.at(tmp_path / "after.duckdb")
    for contract in TABLES.values():
        before.upsert(contract, full_row(contract), run_id="r")
    in_lake = copy_into_lake(tmp_path / "before.duckdb", lake, nothing)
    assert in_lake == dict.fromkeys(TABLES, 1)
    assert check(lake).problems == []
    assert copy_out_of_lake(lake, tmp_path / "after.duckdb", nothing) == in_lake
    for store in (lake, after):
        assert_frame_equal(written(store, TABLES), written(before, TABLES))
        for contract in TABLES.values():
            assert_frame_equal(store.read(contract), before.read(contract))
    assert [path.name for path in tmp_path.glob(".after*")] == []


@pytest.mark.slow
def test_rows_that_read_well_and_are_not_those_that_were_stored_are_named(
    lake: LakeStore,
    two_agents_copy: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy_into_lake(two_agents_copy / "data" / "agent_eval.duckdb", lake, nothing)
    on_lake(lake, two_agents_copy)
    project = Project.open(two_agents_copy)
    assert check_store(project, Console(width=400)) == 0
    agent = project.table("rubric_ratings")["agent_id"][0]
    with lake.session(read_only=False) as con:  # as if a bit of the file had flipped
        con.execute(
            "UPDATE rubric_ratings SET rating_1to5 = 6 - rating_1to5 WHERE agent_id = ? AND methodology_version = '1.3.0'",
            [agent],
        )
    assert check_store(project, Console(width=400)) == 1
    named = f"Table rubric_ratings: the rows of {agent} under 1.3.0 are not those that were stored"
    assert named in capsys.readouterr().out
    n_read = 0

    def stored_meanwhile(project: Project, *_: object) -> Fingerprints:
        """What another worker does between two reads: the rows and their fingerprint change."""
        nonlocal n_read
        n_read += 1
        marks = _fingerprints(project)
        place = ("rubric_ratings", agent, "1.3.0")
        marks.stored[place] = f"{marks.stored[place]}, read {n_read}"
        return marks

    with monkeypatch.context() as patched:
        patched.setattr(store_commands, "_fingerprints", stored_meanwhile)
        assert check_store(project, Console(width=400)) == 0
    assert n_read == 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut", "flipped", "missing"])
def test_a_damaged_table_that_fingerprints_need_is_named(
    lake: LakeStore, two_agents_copy: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    copy_into_lake(two_agents_copy / "data" / "agent_eval.duckdb", lake, nothing)
    on_lake(lake, two_agents_copy)
    project = Project.open(two_agents_copy)
    for name in ("error_clusters", "run_state", "agents"):
        for file in lake.data.rglob(f"{name}/*.parquet"):
            content = file.read_bytes()
            if fault == "missing":
                file.unlink()
            else:
                file.write_bytes(
                    content[:-20]
                    if fault == "cut"
                    else content[:30] + bytes([content[30] ^ 1]) + content[31:]
                )
            assert check_store(project, Console(width=400)) == 1
            said = capsys.readouterr().out
            assert f"Table {name}: its file {file}" in said
            assert "1 problem." in said
            file.write_bytes(content)
    assert check_store(project, Console(width=400)) == 0


@pytest.mark.slow
def test_other_tables_are_not_compared_with_damaged_fingerprints(
    lake: LakeStore, two_agents_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_into_lake(two_agents_copy / "data" / "agent_eval.duckdb", lake, nothing)
    on_lake(lake, two_agents_copy)
    project = Project.open(two_agents_copy)
    before = project.table("run_state")
    (file,) = lake.data.rglob("run_state/*.parquet")
    content = file.read_bytes()
    for place in range(4, len(content) // 2, 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            state = project.table("run_state")
        except StorageError:
            continue
        # read without an error, with other fingerprints of the same partitions
        differs = {name for name in before.columns if not state[name].equals(before[name])}
        if is_decoded := differs == {"rows_fingerprint"}:
            break
    assert is_decoded
    assert check_store(project, Console(width=400)) == 1
    said = capsys.readouterr().out
    assert f"Table run_state: its file {file} has changed" in said
    assert "1 problem." in said


def test_a_copy_that_would_lose_rows_is_refused(lake: LakeStore, tmp_path: Path) -> None:
    file = tmp_path / "store.duckdb"
    with pytest.raises(StorageError, match=r"the store file .* does not exist"):
        copy_into_lake(file, lake, nothing)
    Store.at(file).upsert(STATE, ROW, run_id="r")
    copy_into_lake(file, lake, nothing)
    with pytest.raises(StorageError, match="already contains rows"):
        copy_into_lake(file, lake, nothing)
    with pytest.raises(StorageError, match="choose another name"):
        copy_out_of_lake(lake, file, nothing)
    lake.upsert(STATE, ROW, run_id="r")  # the file is not attached any more
    assert lake.read(STATE).height == 1


WORDS = {"day": date(2026, 1, 1), "run": "r", "model": "m", "started_by": "person"}
COUNTS = dict.fromkeys(table("spending").schema, 0) | {"n_calls": 3, "cost_usd": 1.0}
SPENT = table("spending").frame([COUNTS | WORDS])


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("is_ledger_copied", [False, True])
def test_a_copy_into_a_lake_that_is_interrupted_at_the_ledger_shows_no_rows_and_can_be_repeated(
    lake: LakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ledger_copied: bool
) -> None:
    before = tmp_path / "before.duckdb"
    Store.at(before).upsert(STATE, ROW, run_id="r")
    add_spent(ledger_of(before), SPENT)

    def interrupted(store: LakeStore, spending: pl.DataFrame) -> None:
        if is_ledger_copied:
            add_to_lake(store, spending.with_columns(n_calls=pl.lit(2)))  # the run went on after this copy
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(copying, "add_to_lake", interrupted)
        with pytest.raises(KilledError):
            copy_into_lake(before, lake, nothing)
    assert lake.read(STATE).is_empty()
    copy_into_lake(before, lake, nothing)
    assert_frame_equal(spent_on_lake(lake), SPENT)


def test_a_copy_out_of_a_lake_that_is_interrupted_at_the_ledger_leaves_no_file_and_can_be_repeated(
    lake: LakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = tmp_path / "after.duckdb"
    lake.upsert(STATE, ROW, run_id="r")
    add_to_lake(lake, SPENT.with_columns(run=pl.lit("of another file")))  # left by a copy that failed
    add_to_lake(lake, SPENT)
    assert_frame_equal(spent_on_lake(lake), SPENT)

    def interrupted(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(copying, "add_spent", interrupted)
        with pytest.raises(KilledError):
            copy_out_of_lake(lake, after, nothing)
    assert list(tmp_path.glob("*after*")) == []
    copy_out_of_lake(lake, after, nothing)
    assert Store.at(after).read(STATE).height == 1
    assert_frame_equal(spent(ledger_of(after)), SPENT)


def test_a_copy_beside_the_ledger_of_another_store_is_refused(lake: LakeStore, tmp_path: Path) -> None:
    lake.upsert(STATE, ROW, run_id="r")
    add_spent(ledger_of(tmp_path / "after.duckdb"), SPENT)
    with pytest.raises(StorageError, match=r"after.duckdb.spending is the ledger of another store.*move it"):
        copy_out_of_lake(lake, tmp_path / "after.duckdb", nothing)
    assert_frame_equal(spent(ledger_of(tmp_path / "after.duckdb")), SPENT)


def test_answers_that_arrive_while_a_copy_waits_are_copied(lake: LakeStore, tmp_path: Path) -> None:
    before, after = Store.at(tmp_path / "before.duckdb"), Store.at(tmp_path / "after.duckdb")
    before.upsert(table("spending"), SPENT, run_id="r")
    copy_into_lake(tmp_path / "before.duckdb", lake, lambda: before.upsert(STATE, ROW, run_id="r"))
    assert lake.read(STATE).height == 1
    other = ROW.with_columns(agent_id=pl.lit("b"))
    copy_out_of_lake(lake, tmp_path / "after.duckdb", lambda: lake.upsert(STATE, other, run_id="r"))
    assert after.read(STATE)["agent_id"].to_list() == ["a", "b"]


def test_a_call_in_progress_has_an_unknown_cost_in_the_copied_ledger(tmp_path: Path) -> None:
    add_spent(tmp_path / "ledger", SPENT.with_columns(n_reserved=pl.lit(2), n_unknown_cost=pl.lit(1)))
    found = spent(tmp_path / "ledger")
    assert found.select("n_calls", "n_reserved", "n_unknown_cost").rows() == [(3, 0, 3)]


def test_what_a_killed_copy_of_the_same_process_id_left_is_not_copied_again(
    lake: LakeStore, tmp_path: Path
) -> None:
    after = tmp_path / "after.duckdb"
    lake.upsert(STATE, ROW, run_id="r")
    add_to_lake(lake, SPENT)
    part = tmp_path / f".after.duckdb.{os.getpid()}.part"
    Store.at(part).upsert(STATE, ROW, run_id="r")
    add_spent(ledger_of(part), SPENT)
    copy_out_of_lake(lake, after, nothing)
    assert Store.at(after).read(STATE).height == 1
    assert_frame_equal(spent(ledger_of(after)), SPENT)


def test_a_damaged_ledger_stops_a_copy_with_its_reason(lake: LakeStore, tmp_path: Path) -> None:
    before = tmp_path / "before.duckdb"
    Store.at(before).upsert(STATE, ROW, run_id="r")
    ledger_of(before).write_bytes(b"not a database" * 100)
    why = r"Nothing was copied to .*ledger of judge calls cannot be copied \(file is not"
    with pytest.raises(StorageError, match=why):
        copy_into_lake(before, lake, nothing)
    assert lake.read(STATE).is_empty()


def test_the_log_of_a_killed_run_is_applied_to_the_file_and_not_to_the_one_that_replaces_it(
    lake: LakeStore, tmp_path: Path
) -> None:
    file, log = tmp_path / "store.duckdb", tmp_path / "store.duckdb.wal"
    Store.at(file).upsert(STATE, ROW, run_id="r")
    killed = "import os, sys, duckdb; con = duckdb.connect(sys.argv[1]); con.execute(\"UPDATE judge_state SET spec = 'late'\"); os._exit(1)"
    subprocess.run([sys.executable, "-c", killed, file], check=False)
    assert log.exists()
    copy_into_lake(file, lake, nothing)
    assert not log.exists()
    assert lake.read(STATE)["spec"].to_list() == ["late"]
    stray = tmp_path / "back.duckdb.wal"
    stray.touch()
    with pytest.raises(StorageError, match=r"back\.duckdb\.wal is the log of an earlier store file"):
        copy_out_of_lake(lake, tmp_path / "back.duckdb", nothing)
    stray.unlink()
    copy_out_of_lake(lake, tmp_path / "back.duckdb", nothing)
    (tmp_path / "back.duckdb").replace(file)
    assert Store.at(file).read(STATE)["spec"].to_list() == ["late"]


def test_the_answers_of_a_killed_audit_are_copied_in_both_directions(lake: LakeStore, tmp_path: Path) -> None:
    audits = table("judge_audits")
    on_lake(lake, tmp_path)

    def killed_audit(beside: BesideStore, key: str) -> None:
        journal = Journal.begin(beside.journals.with_name(f"{beside.journals.name}-audit"))
        times = {"judged_at": "2026-04-20T00:00:00Z", "judged_before_at": "2026-04-19T00:00:00Z"}
        texts = {name: key if dtype == pl.String else None for name, dtype in audits.schema.items()}
        journal.append([{**texts, **times}])
        journal.close()

    file, back, out = tmp_path / "store.duckdb", tmp_path / "back.duckdb", Console(quiet=True)
    Store.at(file).upsert(STATE, ROW, run_id="r")
    killed_audit(FilesBesideStore(Store.at(file), file), "on the file")
    with at_home(tmp_path):
        copy(Project.open(), out, source=file, target=None)
        assert lake.read(audits)[audits.key[0]].to_list() == ["on the file"]
        killed_audit(Project.open().beside_store, "on the lake")
        copy(Project.open(), out, source=None, target=back)
    assert sorted(Store.at(back).read(audits)[audits.key[0]]) == ["on the file", "on the lake"]


def test_a_file_of_an_earlier_release_is_migrated_and_another_database_is_refused(
    lake: LakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_eval.storage.versions.OLDEST_VERSION", SCHEMA_VERSION - 1)
    file, other = tmp_path / "store.duckdb", tmp_path / "other.duckdb"
    Store.at(file).upsert(STATE, ROW, run_id="r")
    with duckdb.connect(file) as con:
        con.execute("UPDATE schema_version SET version = version - 1")
    with duckdb.connect(other) as con:
        con.execute("CREATE TABLE theirs AS SELECT 1")
    with pytest.raises(StorageError, match=r"other\.duckdb contains no tables of agent_eval"):
        copy_into_lake(other, lake, nothing)
    copy_into_lake(file, lake, nothing)
    assert lake.read(STATE).height == 1
    with duckdb.connect(file, read_only=True) as con:
        assert con.execute("SELECT max(version) FROM schema_version").fetchall() == [(SCHEMA_VERSION,)]
    with duckdb.connect(other, read_only=True) as con:
        assert con.execute("SHOW TABLES").fetchall() == [("theirs",)]
