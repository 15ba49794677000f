"""Play the user of a scenario: from its script, or with a model. The texts of the model's prompts are in `prompts`.

A simulated user sees the profile, the goal and its facts, and never an assertion or a rubric. Its own slips are found
by rules, after which it is asked again, and by a check question at the end. They are charged to the simulator.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import count_of
from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.client import CallError, Client
from agent_eval.judge.llm.redaction import hide_secrets
from agent_eval.judge.prompts import Prompt
from agent_eval.simulate import prompts
from agent_eval.simulate.call_record import CallRecord
from agent_eval.simulate.scenarios import BenchmarkScenario, Kind
from agent_eval.transcripts.models import Message, is_blank

MOST_TRIES = 4  # requests for one message, after failures that may pass
MOST_REPAIRS = 2  # requests for another message after a slip that a rule found
USER_TEMPERATURE = 0.7
MAX_TOKENS = 1_024
FIRST_PAUSE_S = 0.25
_PASSING = frozenset({"rate", "server", "connection", "timeout"})
_AS_AGENT = re.compile(
    r"\bhow (?:can|may) i (?:help|assist) you\b|\bas an ai\b|\bi(?:'|’)?(?: a)?m (?:an? )?(?:ai|virtual|language model|"
    r"support agent|customer service)\b|\bis there anything else i can (?:help|do|assist)\b|\bhappy to (?:help|assist) you\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[\d.,:/-]*\d\d|\d{3,}")
_WORDS_OF_GOAL = 8  # a run of this many words of the goal gives it away


class NoBudgetError(Exception):
    """Raised when a cap on calls or cost is reached; the conversation is not finished and not stored."""


class SimulatorError(Exception):
    """Raised when the simulated user failed: a fault of the harness."""


@dataclass(frozen=True)
class UserMessage:
    """Hold what the user says in one turn, as one or several messages, with its purpose."""

    texts: tuple[str, ...]
    kind: Kind


class User(Protocol):
    """Plays the user of one conversation."""

    async def next(self, messages: Sequence[Message]) -> UserMessage | None:
        """Return the next message, or None if the user ends the conversation."""
        ...

    async def check(self, messages: Sequence[Message]) -> None:
        """Check the user's messages of a finished conversation; raise SimulatorError after a slip."""
        ...


@dataclass
class ScriptedUser:
    """Play the messages of a scenario in order."""

    scenario: BenchmarkScenario
    n_said: int = 0

    async def next(self, messages: Sequence[Message]) -> UserMessage | None:
        """Return the next message of the script, whatever the agent wrote."""
        self.n_said += 1
        if self.n_said == 1:
            return UserMessage(self.scenario.opening, "task")
        if self.n_said - 2 >= len(self.scenario.turns):
            return None
        turn = self.scenario.turns[self.n_said - 2]
        return UserMessage(turn.say, turn.kind)

    async def check(self, messages: Sequence[Message]) -> None:
        """Do nothing: a script makes no slips."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid")
    message: str
    kind: Kind
    is_done: bool


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str
    speaks_as_agent: bool
    invents_facts: bool
    reveals_withheld: bool
    gives_goal_away: bool
    goes_on_after_the_end: bool


Answer = TypeVar("Answer", _Said, _Checked)


def user_call(scenario: BenchmarkScenario, messages: Sequence[Message]) -> Prompt:
    """Return the prompt for the next message of a simulated user."""
    return _prompt(list(prompts.user_prompt(scenario, messages)), _Said)


def check_call(scenario: BenchmarkScenario, messages: Sequence[Message]) -> Prompt:
    """Return the prompt of the check question about a simulated user's messages."""
    return _prompt(prompts.check_prompt(scenario, messages), _Checked)


def _prompt(messages: Sequence[Mapping[str, str]], form: type[BaseModel]) -> Prompt:
    schema = _strict(form)
    sent = tuple(dict(m) for m in messages)
    return Prompt(sent, schema, "reply", (), digest("prompt", sent, schema))


@dataclass
class SlipCount:
    """Count the messages of a simulator and its slips."""

    n_messages: int = 0
    n_slips: int = 0
    of: dict[str, int] = field(default_factory=dict[str, int])

    def slip(self, kinds: Sequence[str]) -> None:
        """Count a slip of these kinds."""
        self.n_slips += 1
        for kind in kinds:
            self.of[kind] = self.of.get(kind, 0) + 1

    def line(self) -> str:
        """Return a sentence with the rate of slips."""
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(self.of.items()))
        rate = self.n_slips / self.n_messages if self.n_messages else 0.0
        return f"simulated user: {self.n_slips} slips in {count_of(self.n_messages, 'message')} ({rate:.1%}{f'; {kinds}' if kinds else ''})"


@dataclass(frozen=True)
class Simulator:
    """Hold the model that plays users, and the budget that it shares with the judges."""

    client: Client
    budget: Budget
    slips: SlipCount = field(default_factory=SlipCount)

    @property
    def hash(self) -> str:
        """Return the hash of the model and the prompts (32 hex digits)."""
        return digest("simulator", self.client.model, prompts.TEXTS)

    def user(self, scenario: BenchmarkScenario, record: CallRecord) -> "SimulatedUserOf":
        """Return the user of one conversation, whose calls are in `record`."""
        return SimulatedUserOf(self, scenario, record)

    async def ask(self, prompt: Prompt, form: type[Answer]) -> Answer:
        """Make a call until it is answered, and return the answer.

        Raises:
            NoBudgetError: If a cap is reached.
            SimulatorError: If there is no answer.
        """
        detail = ""
        for attempt in range(MOST_TRIES):
            if (why := self.budget.begin_call(self.client.model)) is not None:
                raise NoBudgetError(why)
            usage = None
            try:
                reply = await self.client.complete(prompt.messages, prompt, MAX_TOKENS)
                usage = reply.usage
                return form.model_validate_json(_object_in(reply.text))
            except ValidationError as error:
                detail = f"its reply cannot be read: {error.errors()[0]['msg']}"
            except CallError as error:
                detail = error.detail
                if error.next_form is not None:
                    prompt = replace(prompt, rung=error.next_form)
                elif error.failure not in _PASSING:
                    break
                await asyncio.sleep(max(error.retry_after_s or 0, FIRST_PAUSE_S * 2**attempt))
            finally:
                self.budget.end_call(self.client.model, usage)
        raise SimulatorError(f"simulated user: no message: {detail}")


@dataclass
class SimulatedUserOf:
    """Play one user with a model."""

    simulator: Simulator
    scenario: BenchmarkScenario
    record: CallRecord = field(default_factory=CallRecord)
    said: list[str] = field(default_factory=list[str])

    async def next(self, messages: Sequence[Message]) -> UserMessage | None:
        """Return the next message; the first one is the opening of the scenario.

        Raises:
            NoBudgetError: If a cap is reached.
            SimulatorError: If the model gives no message without a slip.
        """
        if not self.said:
            self.said += self.scenario.opening
            return UserMessage(self.scenario.opening, "task")
        prompt = user_call(self.scenario, messages)
        for _ in range(1 + MOST_REPAIRS):
            answer = await self._answer(prompt, _Said)
            self.simulator.slips.n_messages += 1
            if answer.is_done:
                return None
            text = hide_secrets(answer.message.strip())
            slips = list(slips_in(text, self.scenario, self.said, messages))
            if not slips:
                self.said.append(text)
                return UserMessage((text,), answer.kind)
            self.simulator.slips.slip(slips)
            again = {"role": "user", "content": prompts.AGAIN.format(slips=", ".join(slips))}
            prompt = replace(prompt, messages=(*prompt.messages, again))
        raise SimulatorError(f"simulated user: {', '.join(slips)}")

    async def check(self, messages: Sequence[Message]) -> None:
        """Ask the check question about the whole conversation, unless the user said nothing of its own.

        Raises:
            NoBudgetError: If a cap is reached.
            SimulatorError: If the answer names a slip.
        """
        if len(self.said) == len(self.scenario.opening):
            return
        answer = await self._answer(check_call(self.scenario, messages), _Checked)
        slips = [name.replace("_", " ") for name, value in answer.model_dump().items() if value is True]
        if slips:
            self.simulator.slips.slip(slips)
            raise SimulatorError(f"simulated user: {', '.join(slips)} (check question)")

    async def _answer(self, prompt: Prompt, form: type[Answer]) -> Answer:
        request_hash = self.record.request_hash("user", *(dict(message) for message in prompt.messages))
        if (recorded := self.record.replay(request_hash)) is not None:
            try:
                return form.model_validate(recorded)
            except ValidationError:
                self.record.reject()
        answer = await self.simulator.ask(prompt, form)
        self.record.add(request_hash, answer.model_dump())
        return answer


def slips_in(
    text: str, scenario: BenchmarkScenario, earlier_texts: Sequence[str], messages: Sequence[Message]
) -> Iterator[str]:
    """Yield the slips of a simulated user's message that rules can decide."""
    heard = " ".join(m.content or "" for m in messages if m.role == "assistant")
    small, agents = _plain(text), _plain(heard)
    if is_blank(text):
        yield "empty message"
        return
    if _AS_AGENT.search(text):
        yield "speaks as agent"
    if small in {_plain(earlier) for earlier in earlier_texts}:
        yield "repeats itself"
    public = _plain(" ".join((*scenario.opening, *scenario.knowledge, scenario.profile or "")))
    for fact in scenario.withheld:
        numbers = [n for n in _NUMBER.findall(fact) if n in text and n not in heard]
        if (_plain(fact) in small and _plain(fact) not in agents) or numbers:
            yield "reveals withheld"
            break
    words = _plain(scenario.goal or "").split()
    runs = (" ".join(words[i : i + _WORDS_OF_GOAL]) for i in range(len(words) - _WORDS_OF_GOAL + 1))
    if any(run in small and run not in public and run not in agents for run in runs):
        yield "gives goal away"
    known_text = " ".join(
        (
            scenario.goal or "",
            scenario.profile or "",
            *scenario.opening,
            *scenario.knowledge,
            *scenario.withheld,
            heard,
        )
    )
    digits = re.sub(r"\D", "", known_text)
    if any(n not in known_text and re.sub(r"\D", "", n) not in digits for n in _NUMBER.findall(text)):
        yield "invents facts"


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _object_in(text: str) -> str:
    """Return the JSON object in a reply, without a fence or text around it."""
    begin, end = text.find("{"), text.rfind("}")
    return text[begin : end + 1] if 0 <= begin < end else text


def _strict(form: type[BaseModel]) -> Mapping[str, JsonValue]:
    schema = form.model_json_schema()
    return {
        "type": "object",
        "properties": {
            n: {k: v for k, v in p.items() if k != "title"} for n, p in schema["properties"].items()
        },
        "required": list(schema["properties"]),
        "additionalProperties": False,
    }
