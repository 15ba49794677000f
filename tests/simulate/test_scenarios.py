"""Scenario files: each problem is named with file, line, key and fix, and the other files are read."""

import json
from pathlib import Path

import jsonschema
import pytest

from agent_eval.errors import AgentEvalError
from agent_eval.simulate.scenarios import BenchmarkScenario, json_schema, read_suites
from tests.commands.conftest import invoke
from tests.simulate.suites import EIGHT, write_agents, write_suite

HEAD = "goal: g\nopening: Hello.\n"
TOOLS = (
    HEAD
    + """tools:
  - name: look
    parameters: {type: object, properties: {order: {type: string}}, required: [order]}
    mock: {constant: x}
assertions:
  - """
)
STATE = (
    HEAD
    + """state: {orders: {}, names: [a]}
tools:
  - name: look
    parameters: {type: object, properties: {order: {type: string}}}
    mock:
      """
)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("goal: g\n", 1, "opening is missing"),
        (HEAD + "slott: D1\n", 3, "unknown key slott; allowed: id, description"),
        (HEAD + "slot: D6\n", 3, "slot is 'D6'; allowed: 'D1', 'D2'"),
        (HEAD + "max_turns: 0\n", 3, "max_turns is 0"),
        (HEAD + "goal: twice\n", 3, "the key goal is given twice (first in line 1)"),
        (HEAD + "id: other\n", 3, "rename the file to other.scenario.yaml"),
        (HEAD + "tools:\n  - name: t\n    mock: {constant: 1, error: x}\n", 5, "name one of constant, table"),
        (HEAD + "tools:\n  - name: t\n  - name: t\n", 1, "tools names 't' twice"),
        (HEAD + "turns:\n  - say: Hm.\n    kind: chat\n", 5, "turns[0].kind is 'chat'; allowed: 'task'"),
        (HEAD + "user: {}\nturns:\n  - say: Hm.\n", 1, "turns and user exclude each other"),
        ("opening: Hello.\nuser: {}\n", 1, "goal is missing: a simulated user needs one"),
        (HEAD + "assertions:\n  - turn: 1\n    forbidden_text: [x]\n", 1, "assertions[0].turn is 1; allowed: 0 to 0"),
        (HEAD + "assertions:\n  - turn: 0\n", 4, "name one of trajectory, expected_tools"),
        (HEAD + "assertions:\n  - trajectory: {mode: contains}\n", 4, "it requires nothing"),
        (HEAD + "assertions:\n  - trajectory: {tools: [{nam: t}]}\n", 4, "name"),
        (HEAD + "thresholds:\n  helpfulness: high\n", 4, "expected a number"),
        (HEAD + "thresholds:\n  helpfulness: 9\n", 4, "outside its scale"),
        (HEAD + "metrics: [coherence, nope]\n", 3, "'nope' is not a metric"),
        (HEAD + "metrics: [coherence]\nthresholds: {helpfulness: 4}\n", 1, "add it to metrics"),
        (HEAD + "template: nope_v1\n", 3, "allowed: automation_workflow_v1"),
        ("opening: ' '\n", 1, "opening is blank"),
        (HEAD + "slot: error_injection\n", 1, "injected_error is missing"),
        (HEAD + "assertions:\n  - expected_tools: [{name: t}]\n", 4, "'t', which is not a tool of the scenario: none"),
        (TOOLS + "trajectory: {tools: [{name: lok}]}\n", 8, "'lok', which is not a tool of the scenario: look; add"),
        (TOOLS + "trajectory: {tools: [{name: look, arguments: {id: 1}}]}\n", 8, "argument 'id' of look, which has: order"),
        (TOOLS + "trajectory: {forbidden: [loook]}\n", 8, "forbids 'loook'; did you mean the tool 'look'?"),
        (TOOLS + "trajectory: {tools: [{name: look}], forbidden: [look]}\n", 8, "'look' that is also forbidden"),
        (TOOLS + "turn: 0\n    expected_tools: [{name: look, arguments: {order: a}}]\n"
         "  - trajectory: {forbidden: [{name: look, arguments: {order: a}}]}\n", 9, "'look' that is also forbidden"),
        (TOOLS + "required_text: [b, [monday, Mondays]]\n  - forbidden_text: [MONDAY]\n", 8, "forbidden text 'MONDAY'"),
        (HEAD + "tools:\n  - name: t\n    parameters:\n      type: objekt\n", 6, "not a JSON schema: type: 'objekt'"),
        (HEAD + "tools:\n  - name: t\n    parameters: {type: object, properties: {a: {type: strin}}}\n", 5, "properties.a.type: 'strin'"),
        (HEAD + "tools:\n  - name: t\n    parameters: {type: array}\n", 5, "the type 'array'; allowed: object"),
        (HEAD + "tools:\n  - name: t\n    parameters: {properties: {a: {}}, required: [b]}\n", 5, "require 'b'; properties: a"),
        (STATE + "state: {do: list, at: ordres}\n", 8, "not a key of the state: names, orders; did you mean 'orders'?"),
        (STATE + "sequence: [{constant: 1}, {state: {do: get, at: x, key: order}}]\n", 8, "at is 'x'"),
        (STATE + "state: {do: put, at: order}\n", 8, "did you mean 'orders'?"),
        (STATE + "state: {do: list, at: names}\n", 8, "names of the state is not a mapping"),
        (STATE + "state: {do: get, at: orders, key: id}\n", 8, "key is 'id', which is not an argument of the tool: order"),
        (STATE + "table: [{arguments: {id: 1}, constant: 1}]\n", 8, "'id' is not an argument of the tool: order"),
        ("- a\n", 1, "expected a mapping with the keys"),
        (HEAD + "x: [\n", 4, "not YAML"),
    ],
)  # fmt: skip
def test_a_problem_is_named_with_file_line_key_and_fix(root: Path, text: str, line: int, reason: str) -> None:
    folder = write_suite(root, {"good": EIGHT["d1"]})
    (folder / "bad.scenario.yaml").write_text(text)
    done = invoke("scenarios", "check")
    assert done.exit_code == 1
    problem = next(row for row in done.stdout.splitlines() if row.startswith("shop/bad.scenario.yaml"))
    assert problem.startswith(f"shop/bad.scenario.yaml:{line}: "), problem
    assert reason in problem
    assert " in 1 suite, 1 problem" in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "unmocked: pass\nassertions:\n  - expected_tools: [{name: own}]\n",
        TOOLS + "trajectory: {tools: [{name: look}], forbidden: [{name: look, arguments: {order: a}}, refund]}\n",
        TOOLS + "trajectory: {tools: [{name: look, arguments: {order: a}}], forbidden: [{name: look, arguments: {order: b}}]}\n",
        TOOLS + "trajectory: {mode: within, tools: [{name: look}, {name: elsewhere}], forbidden: [look]}\n",
        TOOLS + "turn: 0\n    trajectory: {forbidden: [look]}\n  - trajectory: {mode: contains, tools: [{name: look}]}\n",
        TOOLS + "required_text: [[monday, tuesday]]\n  - forbidden_text: [monday]\n",
        HEAD + "tools:\n  - name: t\n    parameters: {properties: {a: {}}, additionalProperties: true, required: [b]}\n",
        STATE + "state: {do: put, at: tickets}\n  - {name: read, mock: {state: {do: list, at: tickets}}}\n",
    ],
)  # fmt: skip
def test_what_can_work_is_no_problem(root: Path, text: str) -> None:
    (write_suite(root, {"good": EIGHT["d1"]}) / "fine.scenario.yaml").write_text(text)
    done = invoke("scenarios", "check")
    assert (done.exit_code, "2 valid scenarios in 1 suite, 0 problems" in done.stdout) == (0, True), (
        done.stdout
    )


def test_files_that_are_not_read_and_names_that_do_not_exist_are_problems(root: Path) -> None:
    folder = write_suite(root, {"one": EIGHT["d1"] | {"thresholds": {"helpfullness": 3}}})
    (folder / "two.yaml").write_text("")
    (folder / "suite.yaml").write_text("verson: 1\n")
    shown = invoke("scenarios", "check").stdout
    assert "shop/two.yaml: is not read; name it ID.scenario.yaml" in shown
    assert "shop/suite.yaml:1: unknown key verson; allowed: version" in shown
    assert ": thresholds: 'helpfullness' is not a metric, or it is switched off" in shown


def test_a_scenario_file_beside_or_below_a_suite_is_a_problem(root: Path) -> None:
    folder = write_suite(root, {"one": EIGHT["d1"]})
    (folder / "deep").mkdir()
    for parent in (folder / "deep", folder.parent):
        (parent / "lost.scenario.yaml").write_text(HEAD)
    done = invoke("scenarios", "check")
    assert done.exit_code == 1
    for file in ("lost", "shop/deep/lost"):
        assert (
            f"\n{file}.scenario.yaml: is not read here; move it to data/scenarios/SUITE" in "\n" + done.stdout
        )


def test_the_json_schema_accepts_what_is_read_and_refuses_what_is_not(root: Path) -> None:
    assert invoke("scenarios", "check", "--schema", str(root / "s.json")).exit_code == 0
    schema = json.loads((root / "s.json").read_text())
    assert schema == json.loads(json_schema())
    for fields in EIGHT.values():
        jsonschema.validate(fields, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(EIGHT["d1"] | {"slot": "D9"}, schema)


def test_the_hash_is_of_what_affects_the_conversations(root: Path) -> None:
    one = BenchmarkScenario.model_validate({"id": "a", **EIGHT["d1"]})
    gates = {
        "thresholds": {"helpfulness": 4},
        "metrics": ["helpfulness"],
        "fail_on_error_severity": "low",
        "trials": 3,
    }
    assert one.hash == one.model_validate({"id": "a", **EIGHT["d1"], **gates}).hash
    changes: tuple[dict[str, object], ...] = (
        {"opening": "Hi."},
        {"seed": 1},
        {"state": {"a": 1}},
        {"assertions": []},
        {"max_turns": 3},
    )
    for change in changes:
        assert one.hash != one.model_validate({"id": "a", **EIGHT["d1"], **change}).hash
    write_suite(root, {"a": EIGHT["d1"]})
    before = read_suites(root / "data" / "scenarios")[0]
    write_suite(root, {"a": EIGHT["d1"] | {"opening": "Hi."}})
    after = read_suites(root / "data" / "scenarios")[0]
    assert before.hash != after.hash
    assert before.task_id(before.scenarios[0]) != after.task_id(after.scenarios[0])


def test_a_wrong_address_of_an_agent_is_explained_as_an_address(root: Path) -> None:
    write_suite(root, {"one": EIGHT["d1"]})
    write_agents(root, {"mine": {"kind": "openai", "url": "file:///etc/passwd", "model": "m"}})
    with pytest.raises(AgentEvalError, match=r"allowed: an address that begins with http"):
        invoke("simulate", "mine")
