"""docs/howto/from-agentest.md: each row is tried in one project, with real agents and a mock judge."""

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.commands.benchmarks import simulate
from agent_eval.project import Project
from agent_eval.simulate.mocks import MockContext
from agent_eval.simulate.prompts import facts
from agent_eval.simulate.scenarios import read_suites
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation
from benchmarks.judge_server import mock_judge
from tests.commands.conftest import use
from tests.conftest import REPOSITORY
from tests.simulate.agent_server import serving
from tests.simulate.suites import held, openai, write_suite
from tests.simulate.toys import PROGRAM

HERE = "tests.docs.test_from_agentest"
PAGE = (REPOSITORY / "docs/howto/from-agentest.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!Agentest|---)(.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
COMMAND = f"{sys.executable} agent.py"
CALLS = [
    ("fn", {}),
    ("const", {}),
    ("tab", {"id": 7}),
    ("seq", {}),
    ("seq", {}),
    ("seq", {}),
    ("err", {}),
    ("free", {}),
]
SEEN: dict[str, Any] = {"now": 0, "peak": 0, "new": []}
LOCK = threading.Lock()


def context_of(arguments: dict[str, Any], context: MockContext) -> dict[str, Any]:
    """A mock: what it knows of its conversation."""
    return {"call": context.call_index, "turn": context.turn_index, "id": context.conversation_id}


def following(request: dict[str, Any]) -> object:
    """An agent: it makes all calls in its first reply, and then answers."""
    with LOCK:
        SEEN["now"] += 1
        SEEN["peak"] = max(SEEN["peak"], SEEN["now"])
        SEEN["new"].append(json.dumps(request))
    time.sleep(0.02)
    with LOCK:
        SEEN["now"] -= 1
    if len(request["messages"]) == 1 and request["tools"]:
        return {"content": None, "tool_calls": [{"name": n, "arguments": a} for n, a in CALLS]}
    return f"It is done ({request['seed']})."


def tools(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in names]


def trajectory(mode: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"trajectory": {"mode": mode, "tools": list(calls), **more}}


MADE = [{"name": name, "arguments": arguments} for name, arguments in CALLS]
MAIN: dict[str, Any] = {
    "description": "The main one.", "profile": "A tester.", "goal": "Have it done.", "knowledge": ["It is 7."], "withheld": ["WITHHELD"],
    "opening": "Please do it.", "turns": [{"say": "And now?"}],
    "tools": [
        {"name": "fn", "mock": {"python": f"{HERE}:context_of"}},
        {"name": "const", "mock": {"constant": "c"}},
        {"name": "tab", "mock": {"table": [{"arguments": {"id": 7}, "constant": "seven"}]}},
        {"name": "seq", "mock": {"sequence": [{"constant": 1}, {"python": f"{HERE}:context_of"}, {"error": "down"}]}},
        {"name": "err", "mock": {"error": "boom"}},
        {"name": "free"},
    ],
    "unmocked": "error",
    "assertions": [
        trajectory("strict", *MADE), trajectory("contains", *tools("const", "tab", match="ignore")),
        trajectory("unordered", *reversed(MADE)), trajectory("within", *MADE, *tools("more")),
        trajectory("strict", *MADE[1:]), trajectory("contains", {"name": "tab", "arguments": {"id": 8}}),
        trajectory("contains", {"name": "tab", "arguments": {}, "match": "partial"}),
        {"turn": 0, **trajectory("contains", forbidden=["err"])}, {"turn": 1, **trajectory("contains", *tools("const"))},
    ],
    "thresholds": {"helpfulness": 1}, "metrics": ["helpfulness"], "fail_on_error_severity": "low", "max_turns": 3,
}  # fmt: skip
RESULTS = ["passed"] * 4 + ["failed", "failed", "passed", "failed", "failed"]
POLITE = {"name": "politeness", "grain": "turn", "kind": "rating", "question": "Is it polite?",
          "anchors": {str(i): f"level {i}" for i in range(1, 6)}}  # fmt: skip


@dataclass
class Ran:
    """What the commands did and printed."""

    root: Path
    printed: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def run(self, name: str, *arguments: str) -> None:
        done = CliRunner().invoke(app, arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), (name, done.output)
        self.printed[name], self.codes[name] = done.output, done.exit_code

    def rows(self, name: str, **where: Any) -> list[dict[str, Any]]:
        return Project.open(self.root).store.read(table(name)).filter(**where).to_dicts()

    @property
    def main(self) -> Conversation:
        return next(c for c in held(self.root, "py") if "main/all" in str(c.task_id))

    @property
    def results(self) -> dict[str, list[str | None]]:
        found: dict[str, list[str | None]] = {}
        for call in self.main.turns()[0].tool_calls:
            found.setdefault(call.name, []).append(call.result)
        return found

    def asserted(self) -> list[str]:
        rows = self.rows("assertion_results", agent_id="py", conversation_id=self.main.conversation_id)
        return [row["result"] for row in sorted(rows, key=lambda row: row["assertion_index"])]

    def bodies(self, model: str) -> list[dict[str, Any]]:
        return [body for _, body in self.requests if body["model"] == model]

    def gates(self, gate: str) -> list[str]:
        return [row["subject"] for row in self.rows("gate_results", gate=gate, agent_id="py")]

    def metrics(self) -> set[str]:
        return {
            row["metric"] for name in ("turn_judgments", "conversation_judgments") for row in self.rows(name)
        }


@pytest.fixture
def ran(tmp_path: Path) -> Iterator[Ran]:
    root = tmp_path
    with serving() as server, mock_judge() as judge, pytest.MonkeyPatch.context() as patch:
        judge.reset(latency_ms=0, fail_rate=0)
        for name, value in {**judge.environment, "SHOP_KEY": "sk-shop-0123456789"}.items():
            patch.setenv(name, value)
        patch.chdir(root)
        use(patch, root)
        (root / "data" / "metrics").mkdir(parents=True)
        (root / "data" / "sessions").mkdir()
        (root / "data" / "metrics" / "politeness.yaml").write_text(yaml.safe_dump(POLITE))
        (root / "agent.py").write_text(PROGRAM)
        (root / "agent_eval.toml").write_text(
            f'agent_modules = ["{HERE}"]\nagent_commands = ["{COMMAND}"]\nagent_variables = ["SHOP_KEY"]\nuser_model = "openai/user"\n'
            "agent_concurrency = 2\njudge_concurrency = 3\nmetrics_off = ['coherence']\n[gates.thresholds]\nrelevance = 1\n"
            "[gates]\nfail_on_error_severity = 'critical'\n"
        )
        write_suite(root, {"all": MAIN, "other": {"opening": "Hello.", "trials": 2}}, "main")
        write_suite(root, {"one": {"opening": "Where is order 1042?"}}, "small")
        py = {"kind": "python", "function": f"{HERE}:following", "price_in": 0, "price_out": 0}
        bot = openai(server.url, headers={"Authorization": "Bearer ${SHOP_KEY}"}, body={"top_p": 0.5})
        template = {"kind": "http", "url": f"{server.url}/chat/completions", "reply": "choices.0.message",
                    "body": {"model": "template", "messages": "{{messages}}"}}  # fmt: skip
        agents = {"py": py, "py2": py, "bot": bot, "http": template, "stream": openai(server.url, "stream", stream=True),
                  "cmd": {"kind": "command", "command": COMMAND}, "slow": openai(server.url, "hang", timeout_s=0.2),
                  "busy": openai(server.url, "busy")}  # fmt: skip
        entries = [{"agent_id": name, "endpoint": endpoint} for name, endpoint in agents.items()]
        (root / "data" / "agents.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(entries))))
        done = Ran(root)
        done.run("main", "simulate", "py", "py2", "--suite", "main")
        done.run("small", "simulate", *agents, "--suite", "small", "--concurrency", "3")
        done.run("trials", "simulate", "py", "--suite", "small", "--trials", "3", "--dry-run")
        done.run("scenario", "simulate", "py", "--scenario", "other", "--dry-run")
        done.run("verbose", "run", "--verbose", "--methodology", "1.3.0")
        done.run("gate", "simulate", "py", "--suite", "main", "--gate")
        done.run("judge", "simulate", "bot", "--suite", "small", "--judge", "openai/mock")
        done.run("compare", "compare", "py", "py2")
        done.run("errors", "errors", "--agent", "py")
        done.run("prompts", "prompts", "--metric", "simulated_user")
        done.run("json", "gate", "--agent", "py", "--json", "--github", "--junit", str(root / "out.xml"))
        patch.setattr(simulate, "time", SimpleNamespace(sleep=_interrupt))
        done.run("watch", "simulate", "py", "--suite", "main", "--watch")
        done.requests = list(server.requests)
        yield done


def _interrupt(_: float) -> None:
    raise KeyboardInterrupt


def _style(r: Ran) -> bool:
    scenario = next(s for s in Project.open(r.root).suites[0].scenarios if s.id == "all")
    user = scenario.model_validate(
        {**scenario.model_dump(exclude={"turns", "tools"}), "user": {"style": "IN RHYMES"}}
    )
    return "IN RHYMES" in facts(user) and "You play a person" in r.printed["prompts"]


def _too_many(r: Ran) -> bool:
    folder = write_suite(
        r.root, {"long": {"opening": "a", "turns": [{"say": "b"}], "max_turns": 1}}, "toolong"
    )
    [suite] = read_suites(folder.parent, [folder.name])
    (folder / "long.scenario.yaml").unlink()
    folder.rmdir()
    return "max_turns is 1" in suite.problems[0].reason


TRIED: dict[str, Callable[[Ran], object]] = {
    "`scenario(name, options)`": lambda r: str(r.main.task_id).startswith("main/all@"),
    "`profile`": lambda r: r.main.profile == "A tester.",
    "`goal`": lambda r: r.main.goal == "Have it done.",
    "`knowledge`": lambda r: r.main.knowledge == ("It is 7.",) and "WITHHELD" not in str(SEEN["new"]),
    "`userPromptTemplate`": _style,
    "`turns`": lambda r: r.main.n_turns == 2,
    "`userMessage`": lambda r: [m.content for m in r.main.messages if m.role == "user"] == ["Please do it.", "And now?"],
    "`mocks`, functions": lambda r: (r.results["const"], r.results["tab"]) == (["c"], ["seven"]) and '"call": 0' in str(r.results["fn"]),
    "`callIndex`, `conversationId`, `turnIndex`": lambda r: json.loads(r.results["seq"][1] or "")
    == {"call": 1, "turn": 0, "id": r.main.conversation_id},
    "`sequence`": lambda r: (r.results["seq"][0], r.results["seq"][2]) == ("1", "down"),
    "`throw` in a mock": lambda r: [c.is_error for c in r.main.turns()[0].tool_calls if c.name == "err"] == [True],
    "`unmockedTools`": lambda r: r.results["free"] == ["Tool 'free' is not available."],
    "`assertions`, `toolCalls`": lambda r: r.asserted() == RESULTS,
    "`assertions` of a turn": lambda r: r.asserted()[8] == "failed",
    "`matchMode`": lambda r: r.asserted()[:4] == ["passed"] * 4,
    "`expected`": lambda r: r.asserted()[4] == "failed",
    "`args`, `argMatchMode`": lambda r: (r.asserted()[1], r.asserted()[5], r.asserted()[6]) == ("passed", "failed", "passed"),
    "`forbidden`": lambda r: r.asserted()[7] == "failed",
    "`agent`, `name`": lambda r: (r.root / "data/sessions/py").is_dir(),
    "`type: chat_completions`, `endpoint`": lambda r: r.bodies("varied") and r.bodies("template"),
    "`type: custom`, `handler`": lambda r: len(held(r.root, "py")) == 4 and len(held(r.root, "cmd")) == 1,
    "`headers`": lambda r: {h["authorization"] for h, b in r.requests if b["model"] == "varied"} == {"Bearer sk-shop-0123456789"},
    "`body`": lambda r: r.bodies("varied")[0]["top_p"] == 0.5,
    "`streaming`": lambda r: r.bodies("stream")[0]["stream"] and held(r.root, "stream")[0].messages[-1].content == "Hello.",
    "`requestTimeoutMs`": lambda r: "no reply within 0.2 s" in str(held(r.root, "slow")[0].outcome.error),
    "`provider`, `model`, `providerOptions`": lambda r: getattr(Project.open(r.root).simulation_setup().user, "model", None) == "openai/user"
    and "openai/mock" in {row["judge"] for row in r.rows("turn_judgments")},
    "`conversationsPerScenario`": lambda r: "3 conversations to hold" in r.printed["trials"]
    and sum("main/other" in str(c.task_id) for c in held(r.root, "py")) == 2,
    "`maxTurns`": _too_many,
    "`concurrency`": lambda r: SEEN["peak"] in (2, 3) and Project.open(r.root).judges.runtime.concurrency == 3,
    "`debounceMs`": lambda r: len(r.bodies("busy")) == 2 and held(r.root, "busy")[0].messages[-1].content == "Ready.",
    "`metrics`": lambda r: "coherence" not in r.metrics() and "relevance in main/all" not in r.gates("threshold"),
    "`thresholds`": lambda r: {"helpfulness in main/all"} < {*r.gates("threshold")}
    and any(subject.startswith("relevance in main/other") for subject in r.gates("threshold")),
    "`failOnErrorSeverity`": lambda r: {"low in main/all", "critical"} <= {*r.gates("errors")},
    "`customMetrics`": lambda r: "politeness" in r.metrics(),
    "`include`, `exclude`": lambda r: {str(c.task_id).partition("/")[0] for c in held(r.root, "bot")} == {"small"},
    "`compare`": lambda r: r.codes["compare"] in (0, 2) and "py2" in r.printed["compare"],
    "`helpfulness`, `coherence`, `relevance`, `faithfulness`, `verbosity`": lambda r: {"helpfulness", "relevance", "verbosity"} <= r.metrics(),
    "`agent_behavior_failure`, `tool_call_behavior_failure`": lambda r: {"agent_behavior_failure", "tool_call_behavior_failure"} <= r.metrics(),
    "`goal_completion`": lambda r: "goal_completion" in r.metrics(),
    "error deduplication": lambda r: r.codes["errors"] == 0,
    "`run`": lambda r: r.codes["judge"] in (0, 2) and "small/one" in r.printed["judge"],
    "`--scenario`": lambda r: "2 conversations to hold" in r.printed["scenario"],
    "`--watch`": lambda r: r.codes["watch"] == 130 and "Waiting for changes" in r.printed["watch"],
    "`--verbose`": lambda r: "helpfulness" in r.printed["verbose"],
    "`show-prompts`": lambda r: "You play a person" in r.printed["prompts"],
    "exit code": lambda r: r.codes["gate"] == 1,
    "`reporters: console`": lambda r: "main/all" in r.printed["gate"] and "failed" in r.printed["gate"],
    "`reporters: json`": lambda r: '"gate"' in r.printed["json"],
    "`reporters: github-actions`": lambda r: "::error" in r.printed["json"] and "<testsuite" in (r.root / "out.xml").read_text(),
    "Vitest and Jest": lambda r: (REPOSITORY / "tests/test_testing.py").is_file(),  # tried there
}  # fmt: skip


def test_every_row_is_tried() -> None:
    assert [there for there, _ in ROWS] == list(TRIED)


@pytest.mark.slow
def test_the_counterpart_in_each_row_does_what_it_says(ran: Ran) -> None:
    failed = [there for there, does in TRIED.items() if not does(ran)]
    assert failed == [], (ran.asserted(), ran.gates("threshold"), ran.gates("errors"))
