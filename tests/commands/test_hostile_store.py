"""Every command that starts nothing, on a project whose stored texts steer a terminal: what is printed stays text."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from agent_eval.tables import TABLES
from benchmarks.fuzz.arguments import COMMANDS, check
from tests.conftest import TWO_AGENTS, own_copy
from tests.report.pages import JSON_TEXTS, NO_TEXTS

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e[red]"
WRITTEN = (
    "name", "user_message", "agent_message", "title", "rationale", "evidence", "reason", "result", "task_id", "worst",
)  # fmt: skip
"""Columns that hold what agents, people and judges wrote."""


def test_no_command_prints_what_steers_a_terminal(
    two_agents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = own_copy(two_agents, tmp_path, monkeypatch)
    n_changed = 0
    with duckdb.connect(str(root / "data" / "agent_eval.duckdb")) as store:
        stored = {
            name for (name,) in store.execute("SELECT table_name FROM information_schema.tables").fetchall()
        }
        for declared in (TABLES[name] for name in sorted(stored & TABLES.keys())):
            texts = {name for name, dtype in declared.schema.items() if dtype == pl.String}
            for name in sorted(texts & {*WRITTEN} - {*declared.key, *NO_TEXTS, *JSON_TEXTS}):
                changed = store.execute(
                    f'UPDATE "{declared.name}" SET "{name}" = ? || "{name}" WHERE "{name}" IS NOT NULL', [HOSTILE]
                )  # fmt: skip
                n_changed += changed.fetchall()[0][0]
    assert n_changed > 100
    for command in COMMANDS:
        given = [TWO_AGENTS[0] if word == "a" else word for word in command]
        try:
            check(given, root)
        except Exception as error:
            error.add_note(f"agent-eval {' '.join(given)}")
            raise
