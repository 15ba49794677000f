"""Inputs of the steps of a run: read once while they are current, and again after their table is written."""

import itertools
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agent_eval.commands.run import run
from agent_eval.defs import io_manager
from agent_eval.defs.io_manager import TableIO
from agent_eval.defs.launch import Launch
from agent_eval.project import Project
from agent_eval.storage import Store
from tests.defs.test_live import edit_a_session

pytestmark = pytest.mark.slow

Event = tuple[str, ...]


def events_of_a_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Runs of Dagster, inputs, reads and writes after a changed session, in order."""
    found: list[Event] = []
    load, read, handle, launched = TableIO.load_input, Store.read, TableIO.handle_output, Launch._run
    is_loading = False

    def loading(self: TableIO, context: Any) -> pl.DataFrame:
        nonlocal is_loading
        is_loading = True
        try:
            rows = load(self, context)
        finally:
            is_loading = False
        found.append(("input", context.asset_key.path[-1]))
        return rows

    def reading(self: Store, table: Any, keys: Any = None, *, columns: Any = None) -> Any:
        if is_loading:
            found.append(("read", table.name, str(columns), keys.write_json()))
        return read(self, table, keys, columns=columns)

    def handling(self: TableIO, context: Any, obj: pl.DataFrame) -> None:
        found.append(("write", context.asset_key.path[-1]))
        handle(self, context, obj)

    def launching(self: Launch, *arguments: Any, **options: Any) -> str:
        found.append(("run",))
        return launched(self, *arguments, **options)

    edit_a_session(root)
    with monkeypatch.context() as patch:
        patch.setattr(TableIO, "load_input", loading)
        patch.setattr(Store, "read", reading)
        patch.setattr(Launch, "_run", launching)
        patch.setattr(TableIO, "handle_output", handling)
        run(Project.open(root))
    return found


def repeated_reads(events: list[Event]) -> list[Event]:
    """Reads that gave the same rows as an earlier one, since the table was not written in between."""
    current: set[Event] = set()
    found = []
    for event in events:
        if event[0] == "write":
            current = {read for read in current if read[1] != event[1]}
        elif event[0] == "read":
            found += [event] if event in current else []
            current.add(event)
    return found


def test_a_small_input_is_read_once_until_its_table_is_written_and_a_large_one_is_not_kept(
    two_agents_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = events_of_a_run(two_agents_copy, monkeypatch)
    kinds = [event[0] for event in events]
    assert kinds.count("read") < kinds.count("input")
    starts = [i for i, event in enumerate(events) if event == ("run",)]
    runs = [events[start:end] for start, end in itertools.pairwise([*starts, len(events)])]
    assert len(runs) > 1
    assert not [read for of_run in runs for read in repeated_reads(of_run)]
    monkeypatch.setattr(io_manager, "_KEPT_INPUT", -1)
    kinds = [event[0] for event in events_of_a_run(two_agents_copy, monkeypatch)]
    assert kinds.count("read") == kinds.count("input") > 0
