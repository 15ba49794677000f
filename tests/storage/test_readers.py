"""Reads that follow each other at once share a connection; writers, other files and time end it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from agent_eval.storage import Store, readers
from agent_eval.tables import table

JUDGES = table("judge_state")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.at(tmp_path / "store.duckdb")
    pairs = pl.DataFrame({"agent_id": ["a"], "methodology_version": ["1"]})
    made.replace(JUDGES, JUDGES.empty(), pairs, run_id="r")
    return made


@pytest.fixture(autouse=True)
def held_long(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(readers, "HELD_S", 3600.0)
    yield
    readers._close()


def idle(store: Store) -> list[readers.StoreReader]:
    assert store.file
    return [each for (_, file), found in readers._idle.items() if file == store.file for each in found]


def test_reads_share_a_connection_until_a_writer_needs_the_store(store: Store) -> None:
    store.read(JUDGES)
    first = idle(store)
    store.read(JUDGES)
    store.counts(JUDGES, columns=["agent_id"])
    assert idle(store) == first
    assert len(first) == 1
    store.delete(JUDGES, pl.DataFrame({"agent_id": ["a"]}))
    assert idle(store) == []
    store.read(JUDGES)
    assert idle(store) != first


def test_a_connection_is_not_used_after_its_time_or_for_a_file_that_was_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.read(JUDGES)
    first = idle(store)
    assert store.file
    store.file.with_name("other").write_bytes(store.file.read_bytes())
    store.file.with_name("other").replace(store.file)
    store.read(JUDGES)
    second = idle(store)
    assert second != first
    monkeypatch.setattr(readers, "HELD_S", 0.0)
    store.read(JUDGES)
    assert idle(store) == []


def test_a_connection_is_closed_when_a_read_fails(store: Store) -> None:
    store.read(JUDGES)
    with pytest.raises(ZeroDivisionError), store._reading(JUDGES):
        _ = 1 / 0
    assert idle(store) == []
    assert store.read(JUDGES).is_empty()


def test_another_process_writes_after_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "HELD_S", 0.05)
    store.read(JUDGES)
    write = (
        "import sys, pathlib, polars as pl; from agent_eval.storage import Store; from agent_eval.tables import table;"
        "Store.at(pathlib.Path(sys.argv[1])).delete(table('judge_state'), pl.DataFrame({'agent_id': ['a']}))"
    )
    subprocess.run([sys.executable, "-c", write, str(store.file)], check=True, timeout=300)
