"""What a run reads and writes through the IO manager, for tests."""

import contextlib
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from agent_eval.defs.io_manager import TableIO
from agent_eval.defs.launch import Launch
from agent_eval.storage import Store

Event = tuple[str, ...]


@contextlib.contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """Record runs of Dagster, inputs, reads and writes, in order."""
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

    def reading(self: Store, table: Any, keys: Any = None, *, columns: Any = None, **order: Any) -> Any:
        if is_loading:
            found.append(("read", table.name, str(columns), keys.write_json()))
        return read(self, table, keys, columns=columns, **order)

    def handling(self: TableIO, context: Any, obj: pl.DataFrame) -> None:
        found.append(("write", context.asset_key.path[-1]))
        handle(self, context, obj)

    def launching(self: Launch, *arguments: Any, **options: Any) -> str:
        found.append(("run",))
        return launched(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(TableIO, "load_input", loading)
        patch.setattr(Store, "read", reading)
        patch.setattr(Launch, "_run", launching)
        patch.setattr(TableIO, "handle_output", handling)
        yield found


def n_of(kind: str, events: list[Event]) -> int:
    return sum(event[0] == kind for event in events)


def of_each_run(events: list[Event]) -> list[list[Event]]:
    """The events of each run of Dagster."""
    starts = [i for i, event in enumerate(events) if event == ("run",)]
    return [events[start:end] for start, end in zip(starts, [*starts[1:], len(events)], strict=True)]


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
