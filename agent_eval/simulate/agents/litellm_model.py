"""Run a model that litellm calls as an agent."""

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar

from agent_eval.judge.llm.client import CallError, LiteLLMClient
from agent_eval.judge.llm.redaction import hide_secrets
from agent_eval.simulate.agents.endpoints import LitellmEndpoint
from agent_eval.simulate.agents.replies import (
    AgentConversation,
    AgentFailureError,
    AgentReply,
    AgentRequest,
    chat_message,
    read_completion,
)


@dataclass(frozen=True)
class LitellmAgent:
    """Starts conversations with a model."""

    endpoint: LitellmEndpoint
    client: LiteLLMClient

    def start(self, conversation_id: str) -> AgentConversation:
        """Return a conversation; the model receives the whole history each time, so no state is kept."""
        return _LitellmConversation(self)


@dataclass(frozen=True)
class _LitellmConversation:
    agent: LitellmAgent
    is_stateless: ClassVar[bool] = True

    async def reply(self, request: AgentRequest) -> AgentReply:
        endpoint, client = self.agent.endpoint, self.agent.client
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            value = await client.chat(
                [chat_message(m) for m in request.messages],
                tools=request.tools,
                max_tokens=endpoint.max_tokens,
                seed=request.seed if endpoint.sends_seed else None,
            )
        except CallError as error:
            is_rate = error.failure == "rate"
            # a provider that fails is not evidence about the model; a reply that cannot be used is
            whose = "agent_error" if error.failure in ("unfit", "too_long", "timeout") else "harness_error"
            raise AgentFailureError(
                whose,  # type: ignore[arg-type]
                error.detail,
                retry_after_s=min(error.retry_after_s or 1.0, 60.0) if is_rate else None,
            ) from None
        reply = read_completion(value, client.price)  # type: ignore[arg-type]
        text = None if reply.text is None else hide_secrets(reply.text)
        return replace(reply, text=text, latency_ms=(loop.time() - started) * 1000)

    async def close(self) -> None:
        """Do nothing: the connections belong to litellm."""
