"""Hold one conversation between a user and an agent, and record how it ended.

The agent sees the messages and the tool schemas. Everything else of the scenario is stored for the judges only.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from agent_eval.formats.json_text import clean
from agent_eval.judge.llm.budget import Budget, Usage
from agent_eval.judge.llm.redaction import redact
from agent_eval.simulate.agents.replies import (
    AgentConversation,
    AgentFailureError,
    AgentReply,
    AgentRequest,
    chat_message,
    numbered,
)
from agent_eval.simulate.call_record import CallRecord
from agent_eval.simulate.mocks import ConversationMocks, MockFailureError
from agent_eval.simulate.scenarios import INTERVENTIONS, BenchmarkScenario
from agent_eval.simulate.users import NoBudgetError, SimulatorError, User
from agent_eval.transcripts.models import Conversation, Intervention, Message, MessageToolCall, Outcome
from agent_eval.transcripts.outcomes import OutcomeClass

MOST_ROUNDS = 25  # replies with tool calls to one user message; more is a loop
MOST_WAITS = 4  # requests after which a rate limit of the agent ends the conversation


@dataclass(frozen=True)
class AgentSetup:
    """Define how conversations with an agent are held."""

    agent_id: str
    name: str  # name under which its calls are counted
    system_prompt: str | None
    tools: Literal["mocks", "own"]
    budget: Budget


@dataclass
class LiveConversation:
    """Hold the state of a conversation while it is held."""

    setup: AgentSetup
    agent: AgentConversation
    user: User
    mocks: ConversationMocks
    scenario: BenchmarkScenario
    opaque_id: str  # shown to the agent; contains nothing of the scenario
    seed: int
    record: CallRecord = field(default_factory=CallRecord)
    messages: list[Message] = field(default_factory=list[Message])
    interventions: list[Intervention] = field(default_factory=list[Intervention])
    models: list[str] = field(default_factory=list[str])
    n_replies: int = 0
    n_calls: int = 0
    n_sent: int = 0  # number of messages that the agent has received or written
    outcome: Outcome = field(default_factory=Outcome)

    async def run(self) -> None:
        """Hold the conversation up to its end. Failures are recorded in `outcome`.

        Raises:
            NoBudgetError: If a cap is reached; the conversation is not finished.
        """
        if self.setup.system_prompt:
            self.messages.append(Message(role="system", content=self.setup.system_prompt))
        try:
            for turn_index in range(self.scenario.max_turns):
                user_turn = await self.user.next(self.messages)
                if user_turn is None:
                    break
                if user_turn.kind in INTERVENTIONS:
                    index = self.scenario.first_message_of(turn_index)
                    self.interventions.append(Intervention(turn_index=index, kind=user_turn.kind))
                self.messages += (Message(role="user", content=clean(text)) for text in user_turn.texts)
                text = await self._turn(turn_index)
                if any(end.casefold() in text.casefold() for end in self.scenario.stop_when_text):
                    break
            await self.user.check(self.messages)
        except AgentFailureError as error:
            self._fail(error.outcome_class, error.detail)
        except SimulatorError as error:
            self._fail("harness_error", str(error))
        except MockFailureError as error:
            self._fail("harness_error", redact(str(error)))

    def _fail(self, outcome_class: OutcomeClass, detail: str) -> None:
        self.outcome = Outcome(outcome_class=outcome_class, error=detail, source="simulate", basis="error")
        if outcome_class == "agent_error" and self.messages and self.messages[-1].role != "assistant":
            self.messages.append(Message(role="assistant", content=None, is_error=True))

    async def _turn(self, turn_index: int) -> str:
        """Return the agent's last text in reply to a user message, after all its tool calls are answered."""
        for _ in range(MOST_ROUNDS):
            reply = await self._reply()
            calls = numbered(reply.calls, self.n_calls)
            self.n_calls += len(calls)
            self.messages += [*reply.executed, self._message(reply, calls)]
            self.n_sent = len(self.messages)
            if not calls or self.setup.tools == "own" or not await self._answered(calls, turn_index):
                return reply.text or ""
        raise AgentFailureError(
            "agent_error", f"the agent calls tools in a loop: more than {MOST_ROUNDS} rounds without a reply"
        )

    async def _answered(self, calls: Sequence[MessageToolCall], turn_index: int) -> bool:
        """Add the results of calls in order; return False if a call is left to the agent."""
        is_complete = True
        for call in calls:
            result = await self.mocks.answer(call.name, call.arguments, turn_index)
            if result is None:
                is_complete = False
                continue
            self.messages.append(
                Message(
                    role="tool",
                    tool_call_id=call.id,
                    content=clean(result.text),
                    is_error=result.is_error or None,
                )
            )
        return is_complete

    async def _reply(self) -> AgentReply:
        own = () if self.setup.tools == "own" else tuple(t.schema_for_agent for t in self.scenario.tools)
        n_new = len(self.messages) - self.n_sent
        request = AgentRequest(self.opaque_id, tuple(self.messages), n_new, own, self.seed)
        request_hash = self.record.request_hash("agent", [chat_message(m) for m in request.new])
        was_stateless = self.agent.is_stateless
        reply = self.record.replay_agent(request_hash) if was_stateless else None
        if reply is None:
            reply = await self._called(request)
            if self.agent.is_stateless:
                self.record.add(request_hash, reply)
            elif was_stateless:
                self.record.forget()
        self.n_replies += 1
        if reply.model and reply.model not in self.models:
            self.models.append(reply.model)
        return reply

    async def _called(self, request: AgentRequest) -> AgentReply:
        for attempt in range(MOST_WAITS):
            if (why := self.setup.budget.begin_call(self.setup.name)) is not None:
                raise NoBudgetError(why)
            usage: Usage | None = None
            try:
                reply = await self.agent.reply(request)
                usage = reply.usage
                return reply
            except AgentFailureError as error:
                if error.retry_after_s is None or attempt == MOST_WAITS - 1:
                    raise
                wait = error.retry_after_s
            finally:
                self.setup.budget.end_call(self.setup.name, usage)
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _message(self, reply: AgentReply, calls: tuple[MessageToolCall, ...]) -> Message:
        counts: dict[str, JsonValue] = {
            name: n
            for name, n in (("prompt_tokens", reply.usage.n_in), ("completion_tokens", reply.usage.n_out))
            if n is not None
        }
        return Message(
            role="assistant",
            content=None if reply.text is None else clean(reply.text),
            tool_calls=calls,
            latency_ms=reply.latency_ms,
            usage=counts or None,
            cost_usd=reply.usage.cost_usd,
            finish_reason=reply.finish_reason,
        )

    def conversation(
        self, conversation_id: str, task_id: str, trial: int, facts: Mapping[str, JsonValue]
    ) -> Conversation:
        """Return the conversation as it is stored. `facts` are hashes and names for its metadata."""
        scenario = self.scenario
        metadata: dict[str, JsonValue] = {"benchmark": {**facts, "served_models": list(self.models)}}
        if scenario.policy:
            metadata["policy"] = scenario.policy
        has_tools = bool(scenario.tools) or self.setup.tools == "mocks"
        return Conversation(
            conversation_id=conversation_id,
            task_id=task_id,
            trial=trial,
            scenario=scenario.slot,
            goal=scenario.goal,
            profile=scenario.profile,
            knowledge=scenario.knowledge,
            tools=tuple(t.schema_for_agent for t in scenario.tools) if has_tools else None,
            messages=tuple(self.messages),
            expected=tuple(a.expected(scenario) for a in scenario.assertions),
            outcome=self.outcome,
            interventions=tuple(self.interventions),
            injected_error=scenario.injected_error,
            metadata=metadata,
        )
