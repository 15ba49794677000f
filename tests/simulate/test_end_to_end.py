"""From an empty folder to a published board: init, simulate, run, gate, in this process and over real HTTP."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.commands.benchmarks import simulate
from agent_eval.errors import AgentEvalError
from agent_eval.simulate.agents.scripted import packaged_suites
from benchmarks.judge_server import MockJudge, mock_judge
from tests.commands.conftest import invoke, use
from tests.simulate.agent_server import Server
from tests.simulate.suites import EIGHT, openai, scenario, write_agents, write_suite


def _mock_judged(monkeypatch: pytest.MonkeyPatch, judge: MockJudge) -> None:
    judge.reset(latency_ms=0, fail_rate=0)
    for name, value in judge.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_three_sessions_of_eight_slots_are_published_and_a_deterministic_agent_is_provisional(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """Of a suite of one's own and of each packaged one."""
    use(monkeypatch, tmp_path)
    suites = packaged_suites()
    for suite in suites:
        assert invoke("init", str(tmp_path), "--benchmark", suite).exit_code == 0
    write_suite(tmp_path, EIGHT, version=1)
    scripted = {f"of-{suite}": {"kind": "scripted", "suite": suite} for suite in suites}
    own = {"varied": openai(server.url), "fixed": openai(server.url, "fixed")}
    category = {f"of-{suite}": suite for suite in suites}
    entries = [
        {"agent_id": agent, "category": category.get(agent, "customer_service"), "endpoint": endpoint}
        for agent, endpoint in (own | scripted).items()
    ]
    (tmp_path / "data" / "agents.yaml").write_text(json.dumps(entries))
    asked = ("simulate", *own, "--suite", "shop", "--sessions", "3")
    assert invoke(*asked).exit_code == 0
    n_requests = len(server.requests)
    assert n_requests == 2 * 3 * 8 * 3  # agents, sessions, slots; a look-up and two answers
    for suite in suites:
        assert invoke("simulate", f"of-{suite}", "--suite", suite, "--sessions", "3").exit_code == 0
    with mock_judge() as judge:
        _mock_judged(monkeypatch, judge)
        assert invoke("run", "--judge", "openai/mock", "--methodology", "1.3.0").exit_code == 0
    rows = json.loads(invoke("leaderboard", "--json").stdout)
    of = {row["agent_id"]: row for row in rows}
    assert {agent: of[agent]["status"] for agent in scripted} == dict.fromkeys(scripted, "published")
    assert (of["varied"]["status"], of["varied"]["repeatability_tested"]) == ("published", True)
    assert (of["fixed"]["status"], of["fixed"]["repeatability_tested"]) == ("provisional", None)
    assert invoke("gate", "--agent", "varied").exit_code == 0
    assert "is a copy of session" in invoke("gate", "--agent", "fixed").stdout
    assert invoke(*asked).exit_code == 0
    assert len(server.requests) == n_requests  # nothing is held twice
    assert invoke("report").exit_code == 0
    pages = [p.read_text() for p in (tmp_path / "data" / "report" / "conversations").rglob("*.html")]
    named = {match for page in pages for match in re.findall(r"scenario (data/scenarios/[^<]+\.yaml)", page)}
    assert len(named) == 8 * len([*suites, "shop"])
    assert all((tmp_path / scenario_file).is_file() for scenario_file in named)


@pytest.mark.slow
def test_the_gate_names_each_scenario_with_its_result_and_sessions_of_an_earlier_text(
    root: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    good = scenario("D1") | {"slot": None}
    failing = good | {"assertions": [{"trajectory": {"forbidden": ["lookup_order"]}}]}
    rude = good | {"assertions": [{"forbidden_text": ["SHIPPED on"]}]}
    strict = good | {"thresholds": {"answer_correctness": 0.5}}
    off = good | {"thresholds": {"verbosity": 3}}
    whole = good | {"assertions": [{"expected_answer": "Yes."}]}
    of_suite = {"good": good, "failing": failing, "rude": rude, "strict": strict, "off": off, "whole": whole}
    write_suite(root, of_suite)
    (root / "agent_eval.toml").write_text('metrics_off = ["verbosity"]\n')
    write_agents(root, {"bot": openai(server.url)})
    with mock_judge() as judge:
        _mock_judged(monkeypatch, judge)
        done = invoke("simulate", "bot", "--judge", "openai/mock")
    lines = {name: line for line in done.stdout.splitlines() for name in EXPECTED if f"shop/{name} " in line}
    assert {name: result for name, result in EXPECTED.items() if f" {result} " not in lines[name]} == {}, (
        done.output
    )
    assert done.exit_code == 1, done.stdout
    assert "earlier text" not in done.stdout
    assert re.search(
        r"Scenario shop/off\.scenario\.yaml:\d+: thresholds: 'verbosity' is not a metric", done.stderr
    )
    write_suite(root, {"rude": good})
    again = invoke("simulate", "bot", "--scenario", "rude", "--gate").stdout
    lines_of_rude = [line for line in again.splitlines() if "shop/rude " in line]
    assert len(lines_of_rude) == 2
    is_failed = [" failed " in line for line in lines_of_rude]
    assert is_failed == ["an earlier text" in line for line in lines_of_rude]


EXPECTED = {"good": "passed", "failing": "failed", "rude": "failed", "strict": "unknown", "off": "unknown"}
EXPECTED |= {"whole": "unknown"}  # judges compare an expected answer with the reply of its turn only


def test_a_plan_is_printed_without_a_call_and_errors_name_the_fix(root: Path, server: Server) -> None:
    write_suite(root, EIGHT)
    write_agents(root, {"bot": openai(server.url)})
    done = invoke("simulate", "bot", "--sessions", "3", "--trials", "2", "--dry-run")
    assert "3 sessions, 48 conversations to hold, 0 finished; at most 96 messages" in done.stdout
    assert (done.exit_code, server.requests, list((root / "data/sessions").iterdir())) == (0, [], [])
    for arguments, fix in (
        (["nobody"], "Add an entry with an endpoint"),
        (["bot", "--suite", "shops"], "Known: shop"),
        (["bot", "--scenario", "d9"], "Known: d1, d2"),
    ):
        with pytest.raises(AgentEvalError, match=fix):
            invoke("simulate", *arguments)


def test_watch_runs_again_after_a_change(root: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    write_suite(root, {"one": scenario("D1")})
    write_agents(root, {"bot": openai(server.url)})
    changes = iter([{"one": scenario("D2")}, {"one": {"opening": 1}}])

    def edit(_: float) -> None:
        if (change := next(changes, None)) is None:
            raise KeyboardInterrupt
        write_suite(root, change)

    monkeypatch.setattr(simulate, "time", SimpleNamespace(sleep=edit))
    done = CliRunner().invoke(app, ["simulate", "bot", "--watch"])
    assert done.exit_code == 130
    assert len({body["messages"][0]["content"] for _, body in server.requests}) == 2
    assert "shop/one.scenario.yaml:1: opening: expected a text" in done.output
