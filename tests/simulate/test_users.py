"""Simulated users: the right role, slips found by rules and by the check question, and who is charged."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import pytest

from agent_eval.judge.llm.budget import Usage
from agent_eval.judge.llm.client import CallError, Reply
from agent_eval.judge.prompts import Prompt
from agent_eval.project import Project
from agent_eval.simulate.preparation import SimulationSetup, prepared
from agent_eval.simulate.scenarios import BenchmarkScenario
from agent_eval.simulate.users import slips_in
from agent_eval.transcripts.models import Message
from tests.simulate.agent_server import Server
from tests.simulate.suites import held, openai, scenario, write_agents, write_suite

CLEAN = {
    "reason": "Fine.", "speaks_as_agent": False, "invents_facts": False, "reveals_withheld": False,
    "gives_goal_away": False, "goes_on_after_the_end": False,
}  # fmt: skip


@dataclass
class Simulated:
    """A model that says these messages in order; None ends the conversation, an error is raised."""

    script: Sequence[str | CallError | None]
    checked: Mapping[str, object] = field(default_factory=lambda: CLEAN)
    model: str = "openai/user"
    sent: list[list[Mapping[str, object]]] = field(default_factory=list)
    n_said: int = 0

    async def complete(
        self, messages: Sequence[Mapping[str, object]], form: Prompt, max_tokens: int
    ) -> Reply:
        self.sent.append(list(messages))
        if "speaks_as_agent" in str(form.schema):
            return Reply(json.dumps(self.checked), Usage(1, 1, 0, 0.25))
        said = self.script[self.n_said % len(self.script)]
        self.n_said += 1
        if isinstance(said, CallError):
            raise said
        value = {"message": said or "", "kind": "correction", "is_done": said is None}
        return Reply(f"```json\n{json.dumps(value)}\n```", Usage(1, 1, 0, 0.25))

    async def close(self) -> None:
        """Nothing to close."""


def simulated_setup(root: Path, client: Simulated, **settings: object) -> SimulationSetup:
    """Return the setup of a project whose users this client plays."""
    setup = Project.open(root).with_settings(**settings).simulation_setup()
    return replace(setup, user=client, price_of=lambda _: None)


@pytest.fixture
def one(root: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a simulated user."""
    monkeypatch.setattr("agent_eval.simulate.users.FIRST_PAUSE_S", 0.001)
    write_suite(root, {"one": scenario("D1") | {"slot": None, "turns": [], "user": {}, "max_turns": 4}})
    write_agents(root, {"bot": openai(server.url)})
    return root


def test_roles_are_inverted_and_the_kind_of_each_message_is_stored(one: Path) -> None:
    client = Simulated(["That is wrong.", None])
    report = prepared(simulated_setup(one, client), ["bot"]).run()
    conversation = held(one, "bot")[0]
    assert [m.content for m in conversation.messages if m.role == "user"][1] == "That is wrong."
    assert [(i.turn_index, i.kind) for i in conversation.interventions or ()] == [(1, "correction")]
    roles = [(m["role"], str(m["content"])[:9]) for m in client.sent[0]]
    assert roles[1:] == [("user", "(The conv"), ("assistant", '{"message'), ("user", "The order")]
    assert (report.slips.n_slips, report.slips.n_messages, report.exit_code) == (0, 2, 0)


@pytest.mark.parametrize(
    ("client", "cause"),
    [
        (Simulated(["How can I help you today?"]), "speaks as agent"),
        (Simulated(["My card is 4711 0815 2222."]), "invents facts"),
        (Simulated(["Hm.", "Hm."]), "repeats itself"),
        (Simulated([" "]), "empty message"),
        (Simulated(["Well.", None], CLEAN | {"gives_goal_away": True}), "gives goal away (check question)"),
        (Simulated([CallError("server", "500")]), "no message: 500"),
        (Simulated([CallError("refused", "no such model")]), "no such model"),
    ],
)
def test_a_slip_of_the_simulator_is_the_harness_s_and_repeated_within_a_limit(
    one: Path, client: Simulated, cause: str
) -> None:
    report = prepared(simulated_setup(one, client), ["bot"]).run()
    conversation = held(one, "bot")[0]
    assert conversation.outcome.outcome_class == "harness_error"
    assert cause in (conversation.outcome.error or "")
    assert report.exit_code == 1
    assert (report.slips.n_slips > 0) == (not cause.startswith("no "))
    assert client.n_said <= 3 * 2 * 4  # conversations, messages, tries


def test_a_slip_that_is_repaired_counts_and_does_no_harm(one: Path) -> None:
    report = prepared(simulated_setup(one, Simulated(["I am an AI assistant.", "Oh.", None])), ["bot"]).run()
    assert held(one, "bot")[0].outcome.outcome_class in (None, "unknown")
    assert (report.slips.n_slips, report.slips.of) == (1, {"speaks as agent": 1})
    assert "1 slips in 3 messages" in report.slips.line()


@pytest.mark.parametrize(
    ("text", "slip"),
    [
        ("Is there anything else I can help with?", "speaks as agent"),
        ("The discount code is ZX-9931.", "reveals withheld"),
        ("I was told to get a full refund without ever naming the receipt at all.", "gives goal away"),
        ("My order number is 55512.", "invents facts"),
        ("My order is 1042, and I live in Rome.", None),
        ("You said 20 days. Why?", None),
        ("It was on 2024-03-05.", "invents facts"),
        ("", "empty message"),
    ],
)
def test_rules_find_slips_and_no_others(text: str, slip: str | None) -> None:
    one = BenchmarkScenario.model_validate(
        {
            "id": "x", "opening": "Hello.", "knowledge": ["The order is 1042."], "withheld": ["The discount code is ZX-9931."],
            "goal": "You want to get a full refund without ever naming the receipt at all.", "user": {},
        }
    )  # fmt: skip
    heard = [Message(role="assistant", content="It takes 20 days.")]
    assert list(slips_in(text, one, ["Hello."], heard)) == ([slip] if slip else [])


def test_users_and_agents_share_one_budget_and_a_cap_keeps_what_is_finished(one: Path) -> None:
    stopped = prepared(simulated_setup(one, Simulated(["Hm.", None]), max_calls=3), ["bot"]).run()
    assert (stopped.exit_code, stopped.n_left) == (2, 1)
    assert "the cap of 3 calls is reached" in stopped.problems[0]
    assert held(one, "bot") == []
    project = Project.open(one)
    spent = project.beside_store.spent()
    assert dict(zip(spent["model"], spent["n_calls"], strict=True)) == {"agent bot": 2, "openai/user": 1}
    rest = Simulated(["And now?", None])  # the message "Hm." is not asked for again
    done = prepared(simulated_setup(one, rest), ["bot"]).run()
    assert (done.exit_code, done.n_held) == (0, 1)
    said = [m.content for m in held(one, "bot")[0].messages if m.role == "user"]
    assert said[1:] == ["Hm.", "And now?"]
    spent = project.beside_store.spent().group_by("model").agg(pl.col("n_calls").sum())
    assert dict(spent.iter_rows()) == {"agent bot": 4, "openai/user": 4}  # two messages, the end, the check
