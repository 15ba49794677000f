"""The flags that tau2-bench stored for its expected actions, against the table; skipped where its files are absent."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from agent_eval.scores.tools.expected_calls import expected_calls
from agent_eval.transcripts.frames import ConversationRows
from agent_eval.transcripts.importers.base import DEFINITION_REFUSED, Source
from agent_eval.transcripts.importers.benchmarks import tau2
from agent_eval.transcripts.models import Conversation

N_FLAGS = {
    "airline__gpt-4o-2024-11-20": 148,
    "airline__qwen2.5-7b": 124,
    "airline__toolorchestra-nemotron": 148,
    "telecom-solo__gpt-4.1__4trials": 40,
}
REPRODUCED = """
    SELECT agent_id, count(*) AS n, count(*) FILTER (is_matched = recorded_match) AS n_equal
    FROM expected_calls WHERE recorded_match IS NOT NULL GROUP BY agent_id ORDER BY agent_id
"""


def loaded(shared_data: Path, name: str) -> dict[str, Any]:
    with gzip.open(shared_data / "tau2" / f"{name}.json.gz") as stream:
        found: dict[str, Any] = json.load(stream)
    return found


def imported(shared_data: Path, name: str) -> list[Conversation]:
    source = Source(shared_data / "tau2" / f"{name}.json.gz", "s")
    return [c for c in tau2.read(source) if isinstance(c, Conversation)]


@pytest.fixture(scope="module")
def tables(shared_data: Path) -> dict[str, pl.DataFrame]:
    rows = ConversationRows()
    for name in N_FLAGS:
        for conversation in imported(shared_data, name):
            rows.add(name, "s", None, conversation)
    calls = rows.tool_calls.frame()
    return {"tool_calls": calls, "expected_calls": expected_calls(rows.conversations.frame(), calls)}


def test_one_query_reproduces_every_stored_flag(tables: dict[str, pl.DataFrame]) -> None:
    with duckdb.connect() as con:
        con.register("expected_calls", tables["expected_calls"].to_arrow())
        found = con.sql(REPRODUCED).fetchall()
    assert found == [(name, n, n) for name, n in sorted(N_FLAGS.items())]


@pytest.mark.parametrize("name", N_FLAGS)
def test_the_recorded_flags_are_those_of_the_file_in_its_order(
    tables: dict[str, pl.DataFrame], shared_data: Path, name: str
) -> None:
    stored: dict[str, list[tuple[str, str, bool]]] = {}
    for simulation in loaded(shared_data, name)["simulations"]:
        checks = (simulation.get("reward_info") or {}).get("action_checks") or []
        stored[simulation["id"]] = [
            (c["action"]["name"], c["action"]["requestor"], c["action_match"]) for c in checks
        ]
    rows = tables["expected_calls"].filter(agent_id=name).drop_nulls("recorded_match")
    ours: dict[str, list[tuple[str, str, bool]]] = {}
    for row in rows.iter_rows(named=True):
        flag = (row["name"], row["requestor"], row["recorded_match"])
        ours.setdefault(row["conversation_id"], []).append(flag)
    assert ours == {key: flags for key, flags in stored.items() if flags}
    assert 0 < rows["is_matched"].sum() < rows.height


def test_a_matched_call_is_one_that_was_made_with_that_name(tables: dict[str, pl.DataFrame]) -> None:
    matched = tables["expected_calls"].filter("is_matched")
    names = {"turn_index": "matched_turn_index", "call_index": "matched_call_index"}
    made = tables["tool_calls"].rename(names).select("agent_id", "conversation_id", "name", *names.values())
    key = ["agent_id", "conversation_id", "matched_turn_index", "matched_call_index"]
    assert matched.join(made, on=[*key, "name"]).height == matched.height > 300
    assert matched.select(key).is_unique().all()


def test_no_conversation_of_toolorchestra_has_a_goal_that_its_checks_contradict(shared_data: Path) -> None:
    name = "airline__toolorchestra-nemotron"
    file = loaded(shared_data, name)
    tasks = {task["id"]: task for task in file["tasks"]}
    checked = {s["id"]: s["reward_info"]["action_checks"] or [] for s in file["simulations"]}
    found = imported(shared_data, name)
    kept = [c for c in found if c.goal is not None or c.profile is not None]
    for conversation in kept:
        task = tasks[str(conversation.task_id)]
        wanted = [(a["name"], a["arguments"]) for a in task["evaluation_criteria"]["actions"]]
        own = [(c["action"]["name"], c["action"]["arguments"]) for c in checked[conversation.conversation_id]]
        assert own == wanted
    refused = Counter(c.metadata.get(DEFINITION_REFUSED) is not None for c in found)
    assert (len(found), len(kept), refused[True]) == (50, 1, 49)
    # the truth that is left is the simulation's own
    for conversation in found:
        calls = [call for entry in conversation.expected for call in entry.tools or ()]
        own_names = [c["action"]["name"] for c in checked[conversation.conversation_id]]
        assert [call["name"] for call in calls] == own_names


@pytest.mark.parametrize("name", ["airline__gpt-4o-2024-11-20", "airline__qwen2.5-7b"])
def test_files_whose_tasks_fit_keep_every_goal(shared_data: Path, name: str) -> None:
    found = imported(shared_data, name)
    assert all(c.goal for c in found)
    assert not any(DEFINITION_REFUSED in c.metadata for c in found)
