"""Play the scripted agents of the packaged suites: a faultless one, and one for each planted fault.

They show that a suite finds each fault, and that an installation works without a model. They are not evidence about any
model. The wording varies by the seed of a conversation, what they do does not.
"""

import itertools
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from agent_eval.errors import ConfigurationError
from agent_eval.formats.yaml import read_document, read_text
from agent_eval.judge.llm.budget import Usage
from agent_eval.simulate.agents.replies import (
    AgentConversation,
    AgentFailureError,
    AgentReply,
    AgentRequest,
)
from agent_eval.simulate.scenarios import LoadedSuite, read_suites
from agent_eval.transcripts.models import Frozen, Message, MessageToolCall

PACKAGED = Path(__file__).parents[1] / "suites"
SCRIPT = ".script.yaml"
"""End of the name of the file with the replies of a suite's scripted agents, which is not copied to projects."""
BEGINNING = (
    ("Thanks,", "Sure,", "Gladly,", "Right,", "Understood,", "Noted,", "Good,", "Well,"),
    ("here is", "this is", "below is", "I can give", "I wrote", "let me add", "you get", "now comes"),
    ("my", "a", "the", "one", "our", "this", "another", "some"),
    ("short", "plain", "careful", "full", "direct", "brief", "clear", "simple"),
    ("answer.", "reply.", "summary.", "account.", "result.", "note.", "overview.", "response."),
)
ENDING = (
    ("I read", "I compared", "I reviewed", "I followed", "I considered", "I weighed", "I noted", "I took"),
    ("these", "all", "the", "those", "our", "such", "both", "more"),
    ("entries", "lines", "notes", "details", "records", "sources", "facts", "points"),
    ("twice", "in order", "with care", "once more", "one by one", "at length", "side by side", "again"),
    ("before", "while", "when", "and then", "only", "just", "rather than", "until"),
    ("writing.", "replying.", "answering.", "finishing.", "stopping.", "ending.", "speaking.", "closing."),
)
"""Words of the sentences before and after each reply, of which the seed draws one per place. Sessions are near copies of each
other, and the board provisional, if most runs of three words are the same; so the sentences must rarely share one."""
FREE = Usage(None, None, None, 0.0)
Step = str | dict[str, dict[str, JsonValue]]
"""The text that ends a turn, or calls: arguments by tool."""
Turns = tuple[tuple[Step, ...], ...]


class Fault(Frozen):
    """Define a planted fault: how a scripted agent differs from the faultless one in one scenario."""

    scenario: str
    does: str  # what the agent does wrong, as a sentence without a subject
    found_by: Literal["assertion", "rule", "judge"]
    is_verbatim: bool = False  # whether its texts do not vary by the seed
    turns: dict[
        int, tuple[Step, ...]
    ]  # replaces these turns of the faultless agent; turn 0 answers the opening


class Script(Frozen):
    """Define the scripted agents of a suite: the turns of the faultless one by scenario, and the faults by name."""

    replies: dict[str, Turns]
    faults: dict[str, Fault] = Field(default_factory=dict)

    def turns(self, scenario: str, fault: str | None) -> Turns:
        """Return what an agent does in a scenario, turn by turn."""
        faultless = self.replies[scenario]
        planted = self.faults[fault] if fault is not None else None
        if planted is None or planted.scenario != scenario:
            return faultless
        return tuple(planted.turns.get(at, steps) for at, steps in enumerate(faultless))


def _unknown_script(what: str, name: str, names: list[str]) -> ConfigurationError:
    return ConfigurationError(f"endpoint: {what} {name!r} does not exist. Known: {', '.join(names)}.")


def packaged_suites() -> list[str]:
    """Return the names of the packaged suites, sorted."""
    return sorted(path.name.removesuffix(SCRIPT) for path in PACKAGED.glob(f"*{SCRIPT}"))


@lru_cache
def packaged(name: str) -> tuple[LoadedSuite, Script]:
    """Return a packaged suite with the script of its agents.

    Raises:
        ConfigurationError: If there is no packaged suite of this name.
    """
    if name not in (suites := packaged_suites()):
        raise _unknown_script("suite", name, suites)
    document = read_document(read_text(PACKAGED / f"{name}{SCRIPT}"), "typed", allow_aliases=True)
    return read_suites(PACKAGED, [name])[0], Script.model_validate(document.value)


@dataclass(frozen=True)
class ScriptedAgent:
    """Starts conversations with a scripted agent."""

    suite: str
    fault: str | None = None

    def __post_init__(self) -> None:
        faults = packaged(self.suite)[1].faults
        if self.fault is not None and self.fault not in faults:
            raise _unknown_script("fault", self.fault, list(faults))

    def start(self, conversation_id: str) -> AgentConversation:
        """Return a conversation; the position in the script follows from the messages, so no state is kept."""
        return _ScriptedConversation(self)

    def steps(self, messages: tuple[Message, ...]) -> tuple[Step, ...]:
        """Return the steps of the current turn; the scenario is recognised by its opening.

        Raises:
            AgentFailureError: If no scenario of the suite begins so, or the script has no such turn.
        """
        suite, script = packaged(self.suite)
        spoken = [m for m in messages if m.role in ("user", "assistant")]
        groups = [
            (role, [m.content for m in of]) for role, of in itertools.groupby(spoken, key=lambda m: m.role)
        ]
        user_texts = [tuple(texts) for role, texts in groups if role == "user"]
        scenario = next((s for s in suite.scenarios if user_texts and s.opening == user_texts[0]), None)
        turns = () if scenario is None else script.turns(scenario.id, self.fault)
        if len(user_texts) > len(turns):
            raise AgentFailureError(
                "harness_error", f"the script of suite {self.suite!r} has no reply to this message"
            )
        return turns[len(user_texts) - 1]


@dataclass(frozen=True)
class _ScriptedConversation:
    agent: ScriptedAgent
    is_stateless: ClassVar[bool] = True

    async def reply(self, request: AgentRequest) -> AgentReply:
        steps = self.agent.steps(request.messages)
        since = itertools.takewhile(lambda m: m.role != "user", reversed(request.messages))
        n_done = sum(m.role == "assistant" for m in since)
        step = steps[min(n_done, len(steps) - 1)]
        if isinstance(step, str):
            fault = packaged(self.agent.suite)[1].faults.get(self.agent.fault or "")
            if fault is not None and fault.is_verbatim:
                return AgentReply(step.strip(), usage=FREE, finish_reason="stop", latency_ms=0.0)
            generator = random.Random(f"{request.seed} {len(request.messages)}")
            before, after = (" ".join(map(generator.choice, places)) for places in (BEGINNING, ENDING))
            text = f"{before} {step.strip()} {after}"
            return AgentReply(text, usage=FREE, finish_reason="stop", latency_ms=0.0)
        calls = tuple(MessageToolCall(name=name, arguments=arguments) for name, arguments in step.items())
        return AgentReply(None, calls, usage=FREE, finish_reason="tool_calls", latency_ms=0.0)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
