"""The packaged suites: each planted fault is found in its slot and nowhere else, and the faultless agent is clean."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from agent_eval.errors import AgentEvalError
from agent_eval.project import Project
from agent_eval.simulate.agents.scripted import PACKAGED, packaged, packaged_suites
from agent_eval.simulate.regression import regression
from agent_eval.simulate.scenarios import read_suites
from agent_eval.testing import simulate
from agent_eval.transcripts.models import Scenario
from agent_eval.transcripts.scenario_names import scenario_of
from agent_eval.transcripts.sessions import read_sessions
from tests.commands.conftest import invoke, use
from tests.simulate.matrix import BEGIN, END, FAULTLESS, PAGE, findings, simulated
from tests.simulate.suites import held
from tests.simulate.test_regression import EMPTY, replays

SUITES = packaged_suites()
ISSUE = {"cluster_id": "E-1", "title": "An issue", "label": "false information", "severity": "high"}


def turns_of(root: Path, agent: str, scenario: str) -> list[dict[str, Any]]:
    """The turns of an agent's first conversation of a scenario."""
    read = read_sessions(agent, root / "data" / "sessions" / agent)
    tasks = read.conversations.select("conversation_id", "task_id").iter_rows()
    first = next(name for name, task in tasks if scenario_of(task).partition("/")[2] == scenario)
    return read.turns.filter(conversation_id=first).sort("turn_index").to_dicts()


def by_agent(turn: dict[str, Any]) -> Iterator[str]:
    """What the agent says and calls in a turn, as a judge quotes it."""
    for message in json.loads(turn["messages"]):
        if message["role"] == "assistant":
            yield from filter(None, [message.get("content")])
            for call in message.get("tool_calls") or ():
                yield f"{call['name']}({json.dumps(call['arguments'])})"


def repeated(turns: list[dict[str, Any]]) -> set[str]:
    """The calls that are made more than once."""
    calls = [text for turn in turns for text in by_agent(turn) if "({" in text]
    return {call for call in calls if calls.count(call) > 1}


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_each_planted_fault_is_found_in_its_slot_and_the_faultless_agent_is_clean(
    tmp_path: Path, suite: str
) -> None:
    faults = packaged(suite)[1].faults
    where = {agent: set(findings(tmp_path, agent)) for agent in simulated(tmp_path, suite)}
    assert where.pop(FAULTLESS) == set()
    for name, found in where.items():
        fault = faults[name]
        assert {scenario for _, scenario, _ in found} == {fault.scenario}, name
        assert fault.found_by in {by for _, _, by in found}, name
    for name, fault in faults.items():
        told, right = (turns_of(tmp_path, agent, fault.scenario) for agent in (name, FAULTLESS))
        words = {text for turn in right for text in by_agent(turn)}
        for at in fault.turns:
            cases = [("false information", text) for text in by_agent(told[at]) if text not in words]
            cases += [("repeated tool call", call) for call in repeated(told[: at + 1]) - repeated(right)]
            assert cases, name
            for label, quote in cases:
                failure = {"agent_id": name, "conversation_id": "c", "turn_index": at, "label": label}
                exported = regression(failure | {"quote": quote, "reason": fault.does}, ISSUE, EMPTY, told)
                assert simulate(exported, replays(told)).outcome == "failed", (name, exported)
                assert simulate(exported, replays(right)).outcome == "passed", (name, exported)
    rows = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert [fault.does for fault in faults.values() if f"| {fault.does} | " not in rows] == []


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_is_valid_fills_every_slot_with_a_trap_and_says_that_it_is_public(suite: str) -> None:
    loaded, script = packaged(suite)
    assert loaded.problems == ()
    assert (loaded.suite.version, loaded.suite.public) == ("1", True)
    assert sorted(str(s.slot) for s in loaded.scenarios) == sorted(get_args(Scenario))
    assert {s.template for s in loaded.scenarios} == {f"{suite}_v1"}
    assert all(s.goal and s.profile and s.policy and s.assertions for s in loaded.scenarios)
    assert (
        script.replies.keys()
        == {s.id for s in loaded.scenarios}
        == {f.scenario for f in script.faults.values()}
    )
    assert all(len(script.replies[s.id]) == 1 + len(s.turns) for s in loaded.scenarios)


def test_no_two_suites_share_more_than_thirty_percent_of_their_shingles() -> None:
    def shingles(suite: str) -> set[tuple[str, ...]]:
        words = re.findall(
            r"\w+", " ".join(p.read_text() for p in sorted((PACKAGED / suite).iterdir())).casefold()
        )
        return set(zip(*(words[i:] for i in range(3)), strict=False))

    of = {suite: shingles(suite) for suite in SUITES}
    for a, b in itertools.combinations(SUITES, 2):
        assert len(of[a] & of[b]) <= 0.3 * min(len(of[a]), len(of[b])), (a, b)


def test_an_edited_suite_is_another_one(tmp_path: Path) -> None:
    shutil.copytree(PACKAGED / SUITES[0], tmp_path / SUITES[0])
    suite = tmp_path / SUITES[0] / "suite.yaml"
    suite.write_text(suite.read_text().replace("Loomline", "Other").replace("without an error", "cleanly"))
    [edited] = read_suites(tmp_path)
    assert edited.hash != packaged(SUITES[0])[0].hash


def test_init_benchmark_writes_a_suite_an_agent_and_a_sheet_of_21_ratings_and_keeps_edits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = use(monkeypatch, tmp_path)
    assert (
        "Next: agent-eval simulate reference"
        in invoke("init", str(root), "--benchmark", "data_analysis").stdout
    )
    assert invoke("scenarios", "check").exit_code == 0
    assert invoke("simulate", "reference").exit_code == 0
    [session] = [path.name for path in (root / "data/sessions/reference").glob("[!.]*")]
    filled = (root / "rating-sheet.csv").read_text().replace("AGENT", "reference").replace("SESSION", session)
    rated = re.sub(r"^(.*),,,,YOU,$", r"\1,4,,,anna,2026-04-20T10:00:00Z", filled, flags=re.MULTILINE)
    (root / "data/ratings/anna.csv").write_text(rated)
    ratings, refused = Project.open(root).human_ratings
    assert (ratings.height, refused) == (6 + 5 * 3, [])
    ids = {conversation.conversation_id for conversation in held(root, "reference")}
    assert set(ratings["conversation_id"].drop_nulls()) < ids
    edited = root / "data/scenarios/data_analysis/suite.yaml"
    edited.write_text(edited.read_text().replace("version: 1", "version: 2"))
    assert (
        "data/scenarios/data_analysis/suite.yaml exists already"
        in invoke("init", str(root), "--benchmark", "data_analysis").stdout
    )
    assert "version: 2" in edited.read_text()
    with pytest.raises(AgentEvalError, match="Suites: automation_workflow, coding_development"):
        invoke("init", str(root / "other"), "--benchmark", "support")
