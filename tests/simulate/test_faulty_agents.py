"""Forty kinds of faulty agents: each ends in bounded time, in its class, and stops no other conversation."""

import time
from pathlib import Path

import pytest

from agent_eval.project import Project
from agent_eval.simulate.preparation import prepared
from agent_eval.transcripts.sessions import read_sessions
from tests.simulate.agent_server import FAULTS, Server
from tests.simulate.suites import held, openai, scenario, write_agents, write_suite

STREAMED = {name for name in FAULTS if name.startswith("stream")}
CLASSES = {
    "agent_error": {
        "500", "502-html", "hang", "slow-drip", "cut", "drop", "endless-calls", "endless-parallel", "65-calls", "no-choices",
        "null-message", "error-200", "not-json", "empty-body", "list", "nan", "deep", "not-utf8", "number-content", "10-mb",
        "calls-not-a-list", "call-without-name", "stream-garbage", "stream-cut", "stream-error", "stream-not", "stream-drip", "slow-headers", "gzip-bomb", "bad-usage",
    },
    "harness_error": {"401", "404", "429", "429-nan", "redirect"},
    "unexplained_error": {"400"},
}  # fmt: skip
"""Every other kind is not an error: the conversation goes on, and the outcome is for the judges."""


@pytest.mark.slow
def test_each_kind_ends_in_bounded_time_in_its_class_and_stops_no_other(root: Path, server: Server) -> None:
    fields = scenario("D1") | {"slot": None}
    write_suite(root, {"one": fields})
    endpoints = {
        f"a-{name}": openai(server.url, name, timeout_s=4.0, stream=name in STREAMED) for name in FAULTS
    }
    write_agents(root, endpoints | {"a-good": openai(server.url)})
    started = time.monotonic()
    report = prepared(Project.open(root).simulation_setup(), [*endpoints, "a-good"]).run(concurrency=20)
    assert time.monotonic() - started < 180
    unusable = {line.partition(":")[0] for line in report.problems}
    assert unusable == {
        f"a-{name}" for name in CLASSES["harness_error"]
    }  # never replied: nothing is recorded
    assert "sk-secret" not in str(report.problems)
    found = {name: held(root, f"a-{name}") for name in [*FAULTS, "good"]}
    for name, conversations in found.items():
        expected = next((c for c, names in CLASSES.items() if name in names), "unknown")
        if expected == "harness_error":
            assert conversations == []
            continue
        assert [c.outcome.classified for c in conversations] == [expected], name
        assert (conversations[0].outcome.error is None) == (expected == "unknown"), name
        assert conversations[0].messages[0].content == fields["opening"], name
    for agent in ("a-odd-unicode", "a-10-mb", "a-endless-calls"):  # what is stored can be ingested
        ingested = read_sessions(agent, root / "data" / "sessions" / agent)
        assert ingested.import_errors.is_empty()
        assert ingested.conversations.height == 1


def test_calls_and_texts_of_odd_replies_are_kept_in_order(root: Path, server: Server) -> None:
    write_suite(root, {"one": scenario("D1") | {"slot": None, "turns": []}})
    kinds = ("parallel", "same-call-ids", "no-call-id", "text-and-calls", "bad-arguments", "unknown-tool", "other-model",
             "cut-at-limit", "content-parts", "stream", "stream-done", "stream-line-separator", "stream-calls", "refusal", "function-call")  # fmt: skip
    write_agents(
        root, {f"a-{k}": openai(server.url, k, stream=k.startswith("stream"), timeout_s=5) for k in kinds}
    )
    prepared(Project.open(root).simulation_setup(), [f"a-{kind}" for kind in kinds]).run()
    of = {kind: held(root, f"a-{kind}")[0] for kind in kinds}
    results = {
        kind: [(c.name, c.result, c.is_error) for c in one.turns()[0].tool_calls] for kind, one in of.items()
    }
    shipped, unknown = ("lookup_order", "shipped on Monday", None), ("lookup_order", "unknown order", True)
    assert results["parallel"] == results["same-call-ids"] == [shipped, unknown]
    assert results["no-call-id"] == results["function-call"] == [unknown]
    assert results["text-and-calls"] == results["stream-calls"] == [shipped]
    assert results["bad-arguments"] == [("lookup_order", "The arguments are not a JSON object.", True)]
    assert results["unknown-tool"][0][2] is True
    assert of["stream-done"].messages[1].content == "Hello."
    assert of["stream-line-separator"].messages[1].content == "One.\u2028Two.\x85"
    assert of["text-and-calls"].messages[1].content == "Let me look."
    assert of["cut-at-limit"].messages[1].is_cut_off
    assert of["content-parts"].messages[1].content == "One.\nTwo."
    assert of["stream"].messages[1].content == "Hello."
    assert of["refusal"].messages[1].content == "I cannot."


@pytest.mark.parametrize("stops", [True, False])
def test_an_agent_that_cannot_be_reached_is_not_recorded_and_the_others_go_on(
    root: Path, server: Server, stops: bool
) -> None:
    write_suite(root, {f"s{i}": scenario("D1") | {"slot": None} for i in range(3)})
    write_agents(root, {"down": openai("http://127.0.0.1:9/v1"), "up": openai(server.url)})
    report = prepared(Project.open(root).simulation_setup(), ["down", "up"][: 1 if stops else 2]).run()
    assert (report.exit_code, report.n_left) == ((2, 3) if stops else (1, 3))
    assert "cannot be reached" in report.problems[0]
    assert held(root, "down") == []
