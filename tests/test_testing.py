"""Scenarios as tests: the pytest plugin and `simulate`, in a project with an agent of its own."""

import importlib.metadata
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_eval import testing
from agent_eval.errors import NotFoundError
from agent_eval.simulate.scenarios import ScenarioError
from agent_eval.testing import simulate
from benchmarks.judge_server import mock_judge

AGENT = """
def reply(request):
    last = request["messages"][-1]
    if last["role"] == "user" and request["tools"]:
        return {"content": None, "tool_calls": [{"name": "lookup", "arguments": {"order": "7"}}]}
    return f"It arrives on Monday. ({request['seed']})"
"""
TOOL = "tools: [{name: lookup, mock: {constant: Monday}}]\n"
SCENARIOS = {
    "good": "opening: Where is order 7?\n" + TOOL + "assertions: [{trajectory: {mode: contains, tools: [{name: lookup, match: ignore}]}}]\n",
    "bad": "opening: Where is order 7?\nassertions: [{required_text: [Tuesday]}]\n",
    "unknown": "opening: Where is order 7?\nthresholds: {helpfulness: 1}\n",
    "twice": "opening: Where is order 7?\ntrials: 2\nassertions: [{forbidden_text: [Friday]}]\n",
}  # fmt: skip

# connections of the judge's client, which the inner pytest finds when they are collected
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("AGENT_EVAL_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_agent", raising=False)
    (tmp_path / "agent_eval.toml").write_text('agent_modules = ["own_agent"]\n')
    (tmp_path / "own_agent.py").write_text(AGENT)
    folder = tmp_path / "data" / "scenarios" / "shop"
    folder.mkdir(parents=True)
    for name, text in SCENARIOS.items():
        (folder / f"{name}.scenario.yaml").write_text(text)
    entry = "- {agent_id: mine, endpoint: {kind: python, function: 'own_agent:reply', price_in: 0, price_out: 0}}\n"
    (tmp_path / "data" / "agents.yaml").write_text(entry)
    return tmp_path


@dataclass
class Reports:
    """What a run of pytest in this process reports."""

    outcomes: dict[str, str] = field(default_factory=dict)
    text: str = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.outcomes[report.nodeid.rpartition("/")[2]] = report.outcome
            self.text += str(report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.text += str(report.longrepr or "")


def ran(*arguments: str) -> Reports:
    is_installed = importlib.metadata.entry_points(group="pytest11", name="agent_eval")
    reports = Reports()
    given = ("-q", "-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider", "-p", "no:terminalreporter")
    pytest.main([*given, *arguments], plugins=[reports, *([] if is_installed else [testing])])
    return reports


def files(project: Path) -> set[str]:
    return {p.name for p in (project / "data").rglob("*") if p.suffix in (".jsonl", ".yaml")}


@pytest.mark.slow
def test_scenarios_are_tests_with_the_reason_in_the_failure(project: Path) -> None:
    before = files(project)
    done = ran("--agent", "mine", "--junit-xml=out.xml", "data/scenarios")
    assert done.outcomes == {
        "good.scenario.yaml::mine": "passed", "bad.scenario.yaml::mine": "failed", "unknown.scenario.yaml::mine": "failed",
        "twice.scenario.yaml::mine-0": "passed", "twice.scenario.yaml::mine-1": "passed",
    }  # fmt: skip
    assert "failed: assertion says 'Tuesday': did not say: 'Tuesday'" in done.text
    assert "unknown: threshold helpfulness in shop/unknown: helpfulness has no score" in done.text
    assert "assistant: It arrives on Monday." in done.text
    assert "Traceback" not in done.text
    assert 'tests="5"' in (project / "out.xml").read_text()
    assert files(project) == before, "no session is written"


@pytest.mark.slow
def test_an_unknown_result_is_skipped_on_request_and_a_judge_decides_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = "data/scenarios/shop/unknown.scenario.yaml"
    assert [*ran("--agent", "mine", "--allow-unknown", file).outcomes.values()] == ["skipped"]
    with mock_judge() as judge:
        judge.reset(latency_ms=0, fail_rate=0)
        for name, value in judge.environment.items():
            monkeypatch.setenv(name, value)
        done = ran("--agent", "mine", "--judge", "openai/mock", file)
    assert [*done.outcomes.values()] == ["passed"], done.text


@pytest.mark.slow
def test_without_an_agent_nothing_is_called_and_wrong_names_say_what_to_do(project: Path) -> None:
    assert [*ran("data/scenarios").outcomes.values()] == ["skipped"] * 4
    assert sorted(path.name for path in (project / "data").iterdir()) == ["agents.yaml", "scenarios"]
    (project / "data/scenarios/shop/bad.scenario.yaml").write_text("openin: Hm.\n")
    text = ran("--agent", "nobody", "--continue-on-collection-errors", "data/scenarios").text
    assert "unknown key openin" in text
    assert "Agent 'nobody' has no valid entry in agents.yaml" in text


def test_the_plugin_imports_nothing_of_agent_eval_until_a_scenario_is_collected() -> None:
    code = "import sys, agent_eval.testing; print([m for m in sys.modules if m.startswith('agent_eval.')], 'polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['agent_eval.testing'] False"


def test_simulate_holds_a_scenario_with_a_function_or_an_agent(project: Path) -> None:
    asked: dict[str, Any] = {
        "opening": "Where is it?",
        "assertions": [{"required_text": [["Monday", "Tuesday"]]}],
    }
    assert simulate(asked, lambda request: f"On Tuesday, {len(request['messages'])}.").passed
    for name in ("shop/good", "good", "data/scenarios/shop/good.scenario.yaml"):
        assert simulate(name, "mine").passed, name
    (project / "data/scenarios/other").mkdir()
    (project / "data/scenarios/other/good.scenario.yaml").write_text(SCENARIOS["good"])
    with pytest.raises(NotFoundError, match="'good' is in several suites"):
        simulate("good", "mine")
    hello = {"opening": "Hello."}
    for more, reply, outcome in (
        ({}, "Hi.", "passed"), ({}, "", "failed"), ({"thresholds": {"nope": 1}}, "Hi.", "unknown"),
        ({"thresholds": {"helpfulness": 9}}, "Hi.", "unknown"), ({"fail_on_error_severity": "low"}, "Hi.", "unknown"),
        ({"assertions": [{"expected_answer": "Hi."}]}, "Hi.", "unknown"),
        ({"assertions": [{"turn": 0, "expected_answer": "Hi."}]}, "Hi.", "unknown"),
        ({"assertions": [{"expected_answer": "Hi."}, {"required_text": [["Ho"]]}]}, "Hi.", "failed"),
    ):  # fmt: skip
        assert simulate(hello | more, lambda request, reply=reply: reply).outcome == outcome, more
    with pytest.raises(ScenarioError, match="id is"):
        simulate(hello | {"id": "../x"}, "mine")
    lost = simulate(asked, lambda request: 1 / 0)
    assert (lost.outcome, lost.findings[0][1]) == (
        "failed",
        "the agent crashed: ZeroDivisionError: division by zero",
    )
    twice = Path("data/scenarios/shop/twice.scenario.yaml")
    assert len({simulate(twice, "mine", trial=n).report() for n in (0, 1)}) == 2, "each trial has its seed"
    with pytest.raises(ScenarioError, match=r"opening is missing\.\n.*unknown key opning"):
        simulate({"opning": "?"}, "mine")
