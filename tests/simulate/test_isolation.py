"""What parallel conversations, the agent, the user and the judge can never see."""

import json
from pathlib import Path

from agent_eval.judge.prompts import build_prompt
from agent_eval.simulate.preparation import prepared
from tests.judge.test_requests import questions
from tests.simulate.agent_server import Server
from tests.simulate.suites import held, openai, ran, scenario, write_agents, write_suite
from tests.simulate.test_users import Simulated, simulated_setup

SECRETS = (
    "GOAL-WORDS",
    "PROFILE-WORDS",
    "KNOWN-WORDS",
    "WITHHELD-WORDS",
    "POLICY-WORDS",
    "RUBRIC-WORDS",
    "d4-trap",
)


def test_parallel_conversations_share_no_state_of_mocks(root: Path) -> None:
    tool = {"name": "count", "mock": {"python": "tests.simulate.toys:count", "latency_ms": 5}}
    names = [f"n{i}" for i in range(40)]
    fields = {"tools": [tool], "state": {"nested": {"n": 0}}}
    write_suite(root, {name: fields | {"opening": f"My name is {name}"} for name in names})
    write_agents(root, {"toy": {"kind": "python", "function": "tests.simulate.toys:counting_agent"}})
    ran(root, "toy", agent_modules=("tests.simulate.toys",))
    said = {c.messages[0].content: json.loads(c.messages[-1].content or "") for c in held(root, "toy")}
    assert said == {f"My name is {n}": {"seen": [n, n], "n": 2, "call": 1} for n in names}


def test_parallel_conversations_share_no_cookies_sessions_or_ids(root: Path, server: Server) -> None:
    write_suite(root, {f"s{i}": scenario("D1") | {"slot": None} for i in range(20)})
    write_agents(root, {"bot": openai(server.url, "cookie", memory="session")})
    ran(root, "bot")
    by_id: dict[str, list[str]] = {}
    for headers, body in server.requests:
        by_id.setdefault(body["session_id"], []).append(headers.get("cookie", ""))
    assert len(by_id) == 20
    for session, cookies in by_id.items():
        assert {*cookies} == {"", f"of={session}"}, "the cookie of another conversation was sent"


def test_the_agent_sees_only_messages_and_tools(root: Path, server: Server) -> None:
    fields = {
        "goal": "GOAL-WORDS", "profile": "PROFILE-WORDS", "knowledge": ["KNOWN-WORDS"], "withheld": ["WITHHELD-WORDS"],
        "policy": "POLICY-WORDS", "description": "RUBRIC-WORDS", "slot": "hallucination",
        "assertions": [{"expected_answer": "RUBRIC-WORDS"}],
    }  # fmt: skip
    write_suite(root, {"d4-trap": scenario("D4") | fields})
    write_agents(root, {"bot": openai(server.url)})
    ran(root, "bot")
    sent = json.dumps([(headers, body) for headers, body in server.requests])
    assert server.requests
    assert [word for word in (*SECRETS, "hallucination") if word in sent] == []


def test_the_user_sees_no_rubric_and_the_judge_does_not_learn_that_it_is_simulated(
    root: Path, server: Server
) -> None:
    client = Simulated(["And when does it arrive?", None])
    fields = scenario("D1") | {"turns": [], "user": {}, "assertions": [{"expected_answer": "RUBRIC-WORDS"}]}
    write_suite(root, {"one": fields | {"slot": None, "policy": "POLICY-WORDS"}})
    write_agents(root, {"bot": openai(server.url)})
    prepared(simulated_setup(root, client), ["bot"]).run()
    asked = json.dumps(client.sent)
    assert "hurried customer" in asked
    assert [word for word in ("RUBRIC-WORDS", "POLICY-WORDS", "lookup_order") if word in asked] == []
    conversation = held(root, "bot")[0]
    shown = json.dumps(build_prompt(questions(conversation)[-1:], secret=b"").messages)
    assert "hurried customer" in shown
    assert [word for word in ("simulat", "benchmark", "scripted", "suite") if word in shown.lower()] == []
