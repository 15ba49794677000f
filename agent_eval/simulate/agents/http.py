"""Call agents over HTTP: servers with OpenAI's chat API, streaming or not, and any JSON service by a template.

Every conversation has a client of its own, so cookies are never shared. Replies are read within a time limit and a
size limit, and redirects to other servers are not followed.
"""

import asyncio
import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import httpx
from pydantic import JsonValue

from agent_eval.formats.json_text import clean, dumps, loads
from agent_eval.judge.llm.budget import Price
from agent_eval.judge.llm.redaction import hide_secrets, redact
from agent_eval.judge.llm.transport import MEGABYTE, Exchange, bounded
from agent_eval.simulate.agents.endpoints import Allowed, HttpEndpoint, OpenAIEndpoint
from agent_eval.simulate.agents.replies import (
    AgentConversation,
    AgentFailureError,
    AgentReply,
    AgentRequest,
    chat_message,
    parsed,
    read_completion,
    read_reply,
)
from agent_eval.transcripts.models import Message, MessageToolCall

_LINE_END = re.compile(
    r"\r\n|\r|\n"
)  # of server-sent events; `splitlines` also splits at U+2028, which JSON allows
_OF_SETUP = frozenset({301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 407, 410})
"""Statuses that show a wrong address or key, which is not the agent's failure."""

_MOST_IDLE_S = (
    1.0  # connections that were idle for longer are not used again: servers close them, often after 2 or 5 s
)


@dataclass
class HttpAgent:
    """Starts conversations with an agent behind HTTP."""

    endpoint: OpenAIEndpoint | HttpEndpoint
    allowed: Allowed
    price: Price | None
    has_connected: bool = False  # whether any conversation reached the server

    @cached_property
    def headers(self) -> dict[str, str]:
        """Return the headers with the environment variables that they name."""
        return self.allowed.expanded(self.endpoint.headers)

    @cached_property
    def _ssl(self) -> ssl.SSLContext:
        return httpx.create_ssl_context()

    @property
    def secrets(self) -> frozenset[str]:
        """Return the values of the environment variables in the headers, to hide them in transcripts."""
        return frozenset(
            v for name, v in self.headers.items() if v != self.endpoint.headers[name]
        ) | frozenset(
            self.allowed.variable(name)
            for name in self.allowed.variables
            if name in str(self.endpoint.headers)
        )

    def start(self, conversation_id: str) -> AgentConversation:
        """Return a conversation with its own client."""
        is_tls = self.endpoint.url.startswith("https")
        limits = httpx.Limits(keepalive_expiry=_MOST_IDLE_S)
        client = httpx.AsyncClient(timeout=None, verify=self._ssl if is_tls else False, limits=limits)
        kind = _OpenAIConversation if isinstance(self.endpoint, OpenAIEndpoint) else _TemplateConversation
        return kind(self, client)

    async def post(
        self, client: httpx.AsyncClient, method: str, url: str, body: JsonValue
    ) -> tuple[bytes, float]:
        """Send a request and return the body of the reply with the latency in milliseconds.

        Raises:
            AgentFailureError: If there is no reply with a status of success.
        """
        exchange = Exchange(
            int(self.endpoint.max_reply_mb * MEGABYTE), is_tidied=False, limit="max_reply_mb of the endpoint"
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        headers = {"content-type": "application/json", "accept-encoding": "gzip", **self.headers}
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                request = client.build_request(
                    method, url, content=clean(dumps(body)).encode(), headers=headers
                )
                response = await client.send(request, stream=True)
                self.has_connected = True
                response = await bounded(response, request, exchange)
        except TimeoutError:
            raise AgentFailureError(
                "agent_error", f"no reply within {self.endpoint.timeout_s:g} s (timeout)"
            ) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            message = f"the agent's server cannot be reached: {redact(str(error))}"
            raise AgentFailureError(
                "unexplained_error" if self.has_connected else "harness_error", message
            ) from None
        except httpx.HTTPError as error:
            self.has_connected = True
            detail = (
                exchange.detail or f"the connection was lost: {redact(f'{type(error).__name__}: {error}')}"
            )
            is_setup = exchange.failure == "refused"
            raise AgentFailureError("harness_error" if is_setup else "agent_error", detail) from None
        except (httpx.InvalidURL, ValueError) as error:
            raise AgentFailureError("harness_error", redact(str(error))) from None
        if not response.is_success:
            raise self._rejected(response)
        return response.content, (loop.time() - started) * 1000

    def _rejected(self, response: httpx.Response) -> AgentFailureError:
        status = response.status_code
        message = redact(self.hidden(f"status {status}: {response.text[:300]}"))
        if status in (429, 529):
            try:
                wait = float(response.headers.get("retry-after", "1"))
            except ValueError:
                wait = 1.0
            wait = 1.0 if math.isnan(wait) else min(max(wait, 0.05), 60.0)
            return AgentFailureError("harness_error", message, retry_after_s=wait)
        if status in _OF_SETUP:
            return AgentFailureError("harness_error", message)
        return AgentFailureError("agent_error" if status >= 500 else "unexplained_error", message)

    def hidden(self, text: str) -> str:
        """Return a text without the secrets of the headers."""
        return hide_secrets(text, self.secrets)

    def cleaned(self, reply: AgentReply) -> AgentReply:
        """Return a reply without the secrets of the headers, which a server may repeat."""
        if not self.secrets:
            return reply
        calls = (MessageToolCall.model_validate_json(self.hidden(c.model_dump_json())) for c in reply.calls)
        executed = (Message.model_validate_json(self.hidden(m.model_dump_json())) for m in reply.executed)
        text = None if reply.text is None else self.hidden(reply.text)
        return replace(reply, text=text, calls=tuple(calls), executed=tuple(executed))


@dataclass
class _HttpConversation:
    agent: HttpAgent
    client: httpx.AsyncClient

    @property
    def is_stateless(self) -> bool:
        """Return whether the server receives the whole history each time, and nothing that could name a state of its own."""
        return self.agent.endpoint.sends_history and not self.client.cookies

    async def close(self) -> None:
        await self.client.aclose()


class _OpenAIConversation(_HttpConversation):
    async def reply(self, request: AgentRequest) -> AgentReply:
        endpoint = self.agent.endpoint
        assert isinstance(endpoint, OpenAIEndpoint)
        is_session = endpoint.memory == "session"
        messages = [chat_message(m) for m in (request.new if is_session else request.messages)]
        body: dict[str, JsonValue] = {"model": endpoint.model, "messages": list(messages), **endpoint.body}
        if request.tools:
            body["tools"] = list(request.tools)
        if endpoint.sends_seed:
            body["seed"] = request.seed
        if is_session:
            body[endpoint.session_key] = request.conversation_id
        if endpoint.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        url = f"{endpoint.url.rstrip('/')}/chat/completions"
        content, latency_ms = await self.agent.post(self.client, "POST", url, body)
        value = _assembled(content) if endpoint.stream else parsed(content)
        return replace(self.agent.cleaned(read_completion(value, self.agent.price)), latency_ms=latency_ms)


class _TemplateConversation(_HttpConversation):
    async def reply(self, request: AgentRequest) -> AgentReply:
        endpoint = self.agent.endpoint
        assert isinstance(endpoint, HttpEndpoint)
        user_text = "\n\n".join(m.content for m in request.new if m.role == "user" and m.content) or None
        values: dict[str, JsonValue] = {
            "{{message}}": user_text, "{{messages}}": [chat_message(m) for m in request.messages],
            "{{tools}}": list(request.tools), "{{seed}}": request.seed, "{{conversation_id}}": request.conversation_id,
        }  # fmt: skip
        body = _filled(endpoint.body, values)
        results = [chat_message(m) for m in request.new if m.role == "tool"]
        if results and endpoint.tool_results and isinstance(body, dict):
            body[endpoint.tool_results] = list(results)
        content, latency_ms = await self.agent.post(self.client, endpoint.method, endpoint.url, body)
        value = parsed(content)
        answer = _at(value, endpoint.reply)
        calls = _at(value, endpoint.tool_calls) if endpoint.tool_calls else None
        if calls is not None:
            answer = {"content": answer if isinstance(answer, str | None) else None, "tool_calls": calls}
        elif answer is None:
            raise AgentFailureError("agent_error", f"the reply contains nothing at {endpoint.reply}")
        usage = value.get("usage") if isinstance(value, dict) else None
        if usage is not None and isinstance(answer, str):
            answer = {"content": answer, "usage": usage}
        return replace(self.agent.cleaned(read_reply(answer, self.agent.price)), latency_ms=latency_ms)


def _filled(template: JsonValue, values: Mapping[str, JsonValue]) -> Any:
    if isinstance(template, str):
        return values.get(template, template)
    if isinstance(template, dict):
        return {name: _filled(item, values) for name, item in template.items()}
    return [_filled(item, values) for item in template] if isinstance(template, list) else template


def _at(value: JsonValue, path: str) -> JsonValue:
    """Return the value at a path of keys and positions, such as choices.0.message; None if there is none."""
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


@dataclass
class _Streamed:
    """Collect the parts of a streamed completion."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    rest: dict[str, JsonValue] = field(default_factory=dict)
    finish_reason: JsonValue = None
    n_chunks: int = 0

    def add(self, chunk: JsonValue) -> None:
        if not isinstance(chunk, dict):
            return
        self.n_chunks += 1
        self.rest |= {
            name: chunk[name] for name in ("model", "usage", "error") if chunk.get(name) is not None
        }
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        delta = choice.get("delta")
        if isinstance(delta, dict):
            text = delta.get("content")
            self.text += [text] if isinstance(text, str) else []
            parts = delta.get("tool_calls")
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict):
                    self._add_call(part)

    def _add_call(self, part: Mapping[str, Any]) -> None:
        at = part.get("index")
        call = self.calls.setdefault(at if isinstance(at, int) else len(self.calls), {"arguments": ""})
        function_part = part.get("function")
        function: Mapping[str, Any] = function_part if isinstance(function_part, dict) else {}
        if isinstance(part.get("id"), str):
            call["id"] = part["id"]
        if isinstance(function.get("name"), str):
            call["name"] = call.get("name", "") + function["name"]
        if isinstance(function.get("arguments"), str):
            call["arguments"] += function["arguments"]


def _assembled(content: bytes) -> JsonValue:
    """Return the completion that a stream of server-sent events contains."""
    streamed, is_done = _Streamed(), False
    for line in _LINE_END.split(content.decode("utf-8", "replace")):
        data = line.removeprefix("data:").strip()
        is_done = is_done or (line.startswith("data:") and data == "[DONE]")
        if line.startswith("data:") and not is_done:
            try:
                streamed.add(loads(data))
            except ValueError:
                raise AgentFailureError(
                    "agent_error", "the stream contains an event that is not JSON"
                ) from None
    if not streamed.n_chunks:
        raise AgentFailureError(
            "agent_error", f"the reply is not a stream of events ({len(content):,} bytes)"
        )
    if streamed.finish_reason is None and not is_done and not streamed.rest.get("error"):
        raise AgentFailureError("agent_error", "the stream ended before the reply was complete")
    if streamed.rest.get("error") is not None:
        return {"error": streamed.rest["error"]}
    message: dict[str, JsonValue] = {"role": "assistant", "content": "".join(streamed.text) or None}
    if streamed.calls:
        message["tool_calls"] = [streamed.calls[i] for i in sorted(streamed.calls)]
    choice: dict[str, JsonValue] = {"message": message, "finish_reason": streamed.finish_reason}
    return {**streamed.rest, "choices": [choice]}
