"""Endpoints: a litellm model, a JSON service by template, sessions kept by the server, and what each request holds."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.errors import JudgeError
from agent_eval.project import Project
from agent_eval.simulate.preparation import prepared
from tests.simulate.agent_server import Server
from tests.simulate.suites import held, openai, ran, scenario, write_agents, write_suite


def calls(root: Path, agent: str = "bot") -> list[tuple[str, str | None]]:
    return [(c.name, c.result) for turn in held(root, agent)[0].turns() for c in turn.tool_calls]


@pytest.mark.slow
def test_a_litellm_model_plays_an_agent_with_tools(
    root: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    write_suite(root, {"one": scenario("D1")})
    write_agents(
        root, {"bot": {"kind": "litellm", "model": "openai/varied", "system_prompt": "You sell shoes."}}
    )
    report = ran(root, "bot")
    assert report.outcomes == {"unknown": 1}, report
    assert calls(root) == [("lookup_order", "shipped on Monday")]
    body = server.requests[-1][1]
    assert body["messages"][0] == {"role": "system", "content": "You sell shoes."}
    assert body["seed"]
    benchmark = held(root, "bot")[0].metadata["benchmark"]
    assert isinstance(benchmark, dict)
    assert benchmark["served_models"] == ["served-1"]


def test_a_template_fills_the_body_and_reads_the_reply_at_its_path(root: Path, server: Server) -> None:
    body = {"model": "varied", "messages": "{{messages}}", "tools": "{{tools}}", "seed": "{{seed}}",
            "nested": ["{{message}}", "{{conversation_id}}", "as {{message}} is"]}  # fmt: skip
    endpoint = {"kind": "http", "url": f"{server.url}/chat/completions", "body": body, "reply": "choices.0.message",
                "tool_results": "results"}  # fmt: skip
    write_suite(root, {"one": scenario("D1")})
    write_agents(root, {"bot": endpoint, "lost": endpoint | {"reply": "output.0.text"}})
    ran(root, "bot", "lost")
    assert calls(root) == [("lookup_order", "shipped on Monday")]
    assert "nothing at output.0.text" in (held(root, "lost")[0].outcome.error or "")
    sent = [request for _, request in server.requests if len(request["messages"]) > 1]
    assert sent[-1]["nested"][0] == "And can you promise that it arrives today?"
    assert sent[-1]["nested"][2] == "as {{message}} is"
    assert any(request.get("results") for request in sent)


def test_a_server_that_keeps_the_history_receives_only_what_is_new(root: Path, server: Server) -> None:
    write_suite(root, {"one": scenario("D1")})
    write_agents(
        root, {"bot": openai(server.url, memory="session", session_key="thread", system_prompt="Be kind.")}
    )
    ran(root, "bot")
    roles = [[m["role"] for m in body["messages"]] for _, body in server.requests]
    assert roles == [["system", "user"], ["tool"], ["user"]]
    assert len({body["thread"] for _, body in server.requests}) == 1


def test_an_agent_that_crashes_over_a_request_is_not_asked_again(root: Path, server: Server) -> None:
    write_suite(root, {"one": scenario("D1") | {"slot": None}})
    write_agents(root, {"bot": openai(server.url, "closes-once"), "gone": openai(server.url, "drop")})
    ran(root, "bot", "gone")
    for name, model, n_requests in (("bot", "closes-once", 2), ("gone", "drop", 1)):
        [conversation] = held(root, name)
        assert conversation.outcome.classified == "agent_error"
        assert sum(body["model"] == model for _, body in server.requests) == n_requests


def test_headers_come_from_allowed_variables_and_no_secret_is_stored(
    root: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "sk-shop-0123456789")
    write_suite(root, {"one": scenario("D1") | {"turns": []}})
    write_agents(
        root, {"bot": openai(server.url, "echo-key", headers={"Authorization": "Bearer ${SHOP_KEY}"})}
    )
    ran(root, "bot", agent_variables=("SHOP_KEY",))
    assert server.requests[0][0]["authorization"] == "Bearer sk-shop-0123456789"
    files = [path.read_text() for path in (root / "data").rglob("*.*") if path.suffix in {".jsonl", ".yaml"}]
    assert [text for text in files if "sk-shop" in text] == []
    assert "[hidden]" in (held(root, "bot")[0].messages[-1].content or "")


@pytest.mark.parametrize(("more", "fails"), [({}, True), ({"price_in": 1, "price_out": 2}, False)])
def test_a_cap_in_dollars_needs_the_price_of_the_agent(root: Path, more: dict[str, Any], fails: bool) -> None:
    write_suite(root, {"one": scenario("D1")})
    write_agents(root, {"bot": {"kind": "openai", "url": "https://example.invalid/v1", "model": "m", **more}})
    setup = Project.open(root).with_settings(max_cost_usd=1.0).simulation_setup()
    if fails:
        with pytest.raises(JudgeError, match="price_in"):
            prepared(setup, ["bot"])
    else:
        assert prepared(setup, ["bot"]).n_jobs == 1


def test_costs_of_an_agent_end_a_run_at_the_cap(root: Path, server: Server) -> None:
    write_suite(root, {f"s{i}": scenario("D1") for i in range(9)})
    write_agents(root, {"bot": openai(server.url, price_in=100_000, price_out=0)})  # a dollar a call
    report = ran(root, "bot", concurrency=1, max_cost_usd=7.0)
    assert (len(server.requests), report.n_left) == (7, 7)
    assert "$7 is reached" in report.problems[0]
    assert json.loads(json.dumps(report.outcomes)) == {"unknown": 2}


def test_several_messages_of_the_user_are_one_turn_and_none_is_lost(root: Path, server: Server) -> None:
    fields = {
        "opening": ["Hello.", "Where is order 1042?"],
        "turns": [{"say": ["Well?", "Are you there?"], "kind": "correction"}, {"say": "Bye."}],
        "assertions": [{"turn": 1, "forbidden_text": ["x"]}, {"turn": 2, "forbidden_text": ["y"]}],
    }
    write_suite(root, {"one": fields})
    template = {"kind": "http", "url": f"{server.url}/chat/completions", "reply": "choices.0.message",
                "body": {"model": "varied", "messages": "{{messages}}", "said": "{{message}}"}}  # fmt: skip
    write_agents(root, {"bot": openai(server.url, memory="session"), "http": template})
    ran(root, "bot", "http")
    one = held(root, "bot")[0]
    assert [turn.turn_index for turn in one.turns()] == [0, 2, 4]
    assert [i.turn_index for i in one.interventions or ()] == [2]
    assert [e.turn_index for e in one.expected] == [2, 4]
    new = [[m["content"] for m in body["messages"]] for _, body in server.requests if "session_id" in body]
    said = [body["said"] for _, body in server.requests if "said" in body]
    assert new == [["Hello.", "Where is order 1042?"], ["Well?", "Are you there?"], ["Bye."]]
    assert said == ["Hello.\n\nWhere is order 1042?", "Well?\n\nAre you there?", "Bye."]
