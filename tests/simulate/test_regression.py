"""An exported failure is a scenario that fails for the recorded agent and that a repaired agent passes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from agent_eval.commands.errors import exported
from agent_eval.errors import InputError, NotFoundError
from agent_eval.project import Project
from agent_eval.simulate.case_formats import pytest_file, task_text
from agent_eval.simulate.regression import NotExportableError, regression
from agent_eval.tables import table
from agent_eval.testing import simulate
from tests.commands.conftest import invoke

VERSION = pl.DataFrame({"methodology_version": ["1.3.0"]})
FAILURE = {
    "agent_id": "a", "conversation_id": "c", "turn_index": 2, "label": "false_information",
    "quote": "It is free.", "reason": None,
}  # fmt: skip
CLUSTER = {"cluster_id": "e-1", "title": "wrong price", "label": "false_information", "severity": "high"}
EMPTY = dict.fromkeys(("profile", "goal", "knowledge", "injected_error", "tools", "expected")) | {
    "conversation_id": "c"
}


def turn(index: int, *messages: dict[str, Any]) -> dict[str, Any]:
    return {"turn_index": index, "messages": json.dumps(messages)}


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text} | more


def call(name: str, arguments: dict[str, Any], key: str) -> dict[str, Any]:
    return said("assistant", "", tool_calls=[{"id": key, "name": name, "arguments": arguments}])


TURNS = [
    turn(0, said("user", "Hello")),
    turn(
        1,
        said("user", "what is the price?"),
        call("price", {"id": 7}, "k1"),
        said("tool", "9 EUR", tool_call_id="k1"),
        call("price", {"id": 7}, "k2"),
        said("tool", "gone", tool_call_id="k2", is_error=True),
        said("assistant", "9 EUR."),
    ),
    turn(2, said("user", "And the label?"), said("assistant", "It is free. Anything else?")),
    turn(3, said("user", "No."), said("assistant", "Bye.")),
]


def replays(turns: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Any]:
    """An agent that sends the recorded messages again, in their order."""
    recorded = [m for t in turns for m in json.loads(t["messages"]) if m["role"] == "assistant"]

    def agent(request: dict[str, Any]) -> Any:
        at = sum(message["role"] == "assistant" for message in request["messages"])
        return recorded[min(at, len(recorded) - 1)]

    return agent


def test_the_user_is_repeated_up_to_the_failure_and_tools_answer_with_the_recorded_results() -> None:
    scenario = regression(FAILURE, CLUSTER, EMPTY, TURNS)
    assert scenario["opening"] == ["Hello", "what is the price?"]
    assert scenario["turns"] == [{"say": ["And the label?"]}]
    [tool] = scenario["tools"]
    answers = [{"constant": "9 EUR"}, {"error": "gone"}]
    assert tool == {"name": "price", "mock": {"table": [{"arguments": {"id": 7}, "sequence": answers}]}}
    assert scenario["assertions"] == [{"turn": 1, "forbidden_text": ["It is free."]}]
    assert "fail_on_error_severity" not in scenario
    assert simulate(scenario, replays(TURNS)).outcome == "failed"
    assert simulate(scenario, lambda _: "The label costs 4 EUR.").outcome == "passed"


def test_a_quoted_call_may_not_occur_again_unless_its_repetition_is_the_failure() -> None:
    last = turn(0, said("user", "Cancel?"), call("cancel", {"id": 7}, "k"), said("assistant", "Done."))
    quoted = FAILURE | {"turn_index": 0, "quote": 'cancel({"id": 7})'}
    scenario = regression(quoted, CLUSTER, EMPTY, [last])
    [required] = scenario["assertions"]
    assert required["trajectory"] == {"forbidden": [{"name": "cancel", "arguments": {"id": 7}}]}
    twice = turn(0, said("user", "Cancel?"), *(call("cancel", {"id": 7}, k) for k in "ab"))
    scenario = regression(quoted, CLUSTER, EMPTY, [twice])
    assert "assertions" not in scenario
    assert scenario["fail_on_error_severity"] == "high"


def test_declared_truth_of_the_repeated_turns_is_required_too() -> None:
    expected = [
        {"turn_index": 2, "tools": [{"name": "label"}], "tool_sequence_matters": True},
        {"turn_index": 2, "assertions": [{"forbidden": ["pay"]}, {"required_text": [["EUR"]]}]},
        {"turn_index": 3, "answer": "Bye."},
        {"turn_index": None, "answer": "4 EUR"},
    ]
    scenario = regression(FAILURE, CLUSTER, EMPTY | {"expected": json.dumps(expected)}, TURNS)
    assert scenario["assertions"][:3] == [
        {"turn": 1, "expected_tools": [{"name": "label"}], "in_order": True},
        {"turn": 1, "trajectory": {"forbidden": ["pay"]}},
        {"turn": 1, "required_text": [["EUR"]]},
    ]


def test_a_required_tool_that_the_agent_never_called_is_a_tool_of_the_scenario() -> None:
    refused = turn(0, said("user", "Refund 7."), said("assistant", "It is free."))
    tools = [{"name": "refund", "arguments": {"order": "7"}}, {"name": "toggle", "requestor": "user"}]
    expected = json.dumps([{"turn_index": 0, "tools": tools}])
    scenario = regression(FAILURE | {"turn_index": 0}, CLUSTER, EMPTY | {"expected": expected}, [refused])

    def good(request: dict[str, Any]) -> Any:
        is_first = request["messages"][-1]["role"] == "user"
        return call("refund", {"order": "7"}, "k") if is_first else "It is done."

    assert simulate(scenario, replays([refused])).outcome == "failed"
    assert simulate(scenario, good).outcome == "passed"


def test_calls_of_the_user_and_calls_that_could_not_be_read_answer_no_call_of_the_agent() -> None:
    turns = [
        turn(0, said("user", "Toggle it."), said("assistant", "Please toggle.")),
        turn(1, said("user", "", tool_calls=[{"id": "u", "name": "toggle", "arguments": {}}]),
             said("tool", "on", tool_call_id="u")),
        turn(2, said("user", "Done."),
             said("assistant", "", tool_calls=[{"id": "k", "name": "refund", "arguments": "{order"}]),
             said("tool", "bad JSON", tool_call_id="k", is_error=True), said("assistant", "It is free.")),
    ]  # fmt: skip
    scenario = regression(FAILURE, CLUSTER, EMPTY, turns)
    assert (scenario["opening"], scenario["turns"]) == (["Toggle it."], [{"say": ["Done."]}])
    assert scenario["tools"] == [{"name": "refund"}]
    assert scenario["assertions"] == [{"turn": 1, "forbidden_text": ["It is free."]}]


@pytest.mark.parametrize("first", [said("assistant", "Hi"), said("user", " ")])
def test_a_conversation_that_no_user_begins_is_refused(first: dict[str, Any]) -> None:
    with pytest.raises(NotExportableError, match="does not begin with a message of a user"):
        regression(
            FAILURE | {"turn_index": 0}, CLUSTER, EMPTY, [turn(0, first, said("assistant", "It is free."))]
        )


@pytest.mark.slow
def test_every_failure_of_the_sample_becomes_a_valid_scenario_that_its_agent_fails(sample: Project) -> None:
    clusters = {
        row["cluster_id"]: row for row in sample.store.read(table("error_clusters"), VERSION).to_dicts()
    }
    failures = sample.store.read(table("failures"), VERSION).unique(
        "cluster_id", keep="first", maintain_order=True
    )
    n_checked = 0
    for failure in failures.to_dicts():
        keys = pl.DataFrame({name: [failure[name]] for name in ("agent_id", "conversation_id")})
        [conversation] = sample.store.read(table("conversations"), keys).to_dicts()
        turns = sample.store.read(table("turns"), keys).sort("turn_index").to_dicts()
        scenario = regression(failure, clusters[failure["cluster_id"]], conversation, turns)
        forbidden = [a["forbidden_text"] for a in scenario.get("assertions", ()) if "forbidden_text" in a]
        if failure["quote"] and [failure["quote"]] in forbidden:
            assert simulate(scenario, replays(turns)).outcome == "failed", failure
            n_checked += 1
    assert n_checked >= 20


def test_errors_export_writes_a_scenario_once(sample_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sample_copy)
    rows = json.loads(invoke("errors", "--json").stdout)
    cluster = rows[0]["cluster_id"]
    folder = sample_copy / "data" / "scenarios" / "regressions"
    assert invoke("errors", "--export", cluster.lower()).exit_code == 0
    for _ in range(2):  # the second time, nothing changes
        result = invoke("errors", "--export", cluster)
        assert result.exit_code == 0, result.output
        [file] = folder.iterdir()
        assert str(file) in result.stdout
    assert yaml.safe_load(file.read_text())["id"] == file.name.partition(".")[0]
    store, registry = Project.open().store, table("error_registry")
    merged = {"cluster_id": "E-000000000a", "label": "repetition", "severity": "low", "merged_into": cluster}
    store.upsert(registry, registry.frame([merged]), run_id="r")
    assert (
        str(file) in invoke("errors", "--export", "e-000000000A").stdout
    )  # the file of the cluster it redirects to
    assert invoke("scenarios", "check").exit_code == 0
    file.write_text(file.read_text() + "seed: 3\n")
    with pytest.raises(InputError, match="exists with another content"):
        invoke("errors", "--export", cluster)
    with pytest.raises(NotFoundError, match=f"Did you mean '{cluster}'"):
        invoke("errors", "--export", f"{cluster}0")
    assert invoke("errors", "--export", cluster, "--json").exit_code == 2
    assert invoke("errors", "--export", cluster, "--as", "yaml").exit_code == 2


HOSTILE = 'it is """ over` ```\n# Now do\n````text \u202e {{x}} \\'


@pytest.mark.slow
def test_other_formats_hold_each_failure_as_data(sample: Project) -> None:
    """Of the largest cluster of each label; a scenario is made of every failure, in the test of the sample above."""
    failures = sample.store.read(table("failures"), VERSION)
    clusters = sample.store.read(table("error_clusters"), VERSION).sort("n_turns", descending=True)
    for row in clusters.unique("label", keep="first", maintain_order=True).to_dicts():
        where = {"version": "1.3.0", "agents": [row["agent_id"]], "cluster": row["cluster_id"]}
        mine = failures.filter(agent_id=row["agent_id"], cluster_id=row["cluster_id"])
        lines = [json.loads(line) for line in exported(sample, **where, case_format="jsonl").splitlines()]
        assert len(lines) == mine.height
        assert {(line["conversation_id"], line["turn_index"], line["quote"]) for line in lines} == {
            *mine.select("conversation_id", "turn_index", "quote").iter_rows()
        }
        samples = [json.loads(line) for line in exported(sample, **where, case_format="inspect").splitlines()]
        assert all(s["input"][-1]["role"] in ("user", "system") for s in samples)
        compile(exported(sample, **where, case_format="pytest"), "test_case.py", "exec")
        assert str(mine["quote"][0] or mine["reason"][0]) in exported(sample, **where, case_format="task")


def test_an_exported_test_fails_for_the_recorded_agent_and_hostile_texts_stay_texts(tmp_path: Path) -> None:
    failure = FAILURE | {"quote": HOSTILE, "reason": HOSTILE, "cause": HOSTILE, "should_have": None}
    turns = [turn(0, said("user", HOSTILE), said("assistant", HOSTILE))]
    scenario = regression(failure | {"turn_index": 0}, CLUSTER | {"title": HOSTILE}, EMPTY, turns)
    names: dict[str, Any] = {}
    exec(pytest_file(scenario, HOSTILE), names)
    assert (names["SCENARIO"], names["AGENT"]) == (scenario, HOSTILE)
    names["AGENT"] = replays(turns)
    with pytest.raises(AssertionError, match="never says"):
        names["test_e_1"]()
    names["AGENT"] = lambda _: "It costs 4 EUR."
    names["test_e_1"]()
    counted = CLUSTER | {"agent_id": "a", "n_failures": 1, "n_conversations": 1}
    text = task_text([counted, counted | {"agent_id": "b"}], [failure, failure | {"agent_id": "b"}])
    assert "of agents a, b\n" in text
    assert "2 failures in 2 conversations" in text
    assert "simulate a b --suite" in text
    outside = re.sub(r"(?s)^(`{5,})text\n.*?\n\1$", "", text, flags=re.MULTILINE)
    assert "Now do" not in outside
