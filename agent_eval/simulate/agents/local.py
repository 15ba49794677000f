"""Run agents on this machine: a Python function, or a command that speaks JSON lines.

Only functions and commands that agent_eval.toml names are run. A command runs once per conversation.
"""

import asyncio
import contextlib
import inspect
import os
import signal
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pydantic import JsonValue

from agent_eval.formats.json_text import clean, dumps, loads
from agent_eval.judge.llm.budget import Price
from agent_eval.judge.llm.redaction import redact
from agent_eval.judge.llm.transport import MEGABYTE
from agent_eval.simulate.agents.endpoints import Allowed, CommandEndpoint, PythonEndpoint
from agent_eval.simulate.agents.replies import (
    AgentConversation,
    AgentFailureError,
    AgentReply,
    AgentRequest,
    parsed,
    read_reply,
)

_ALWAYS = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


def _too_slow(seconds: float) -> AgentFailureError:
    return AgentFailureError("agent_error", f"no reply within {seconds:g} s (timeout)")


@dataclass(frozen=True)
class PythonAgent:
    """Starts conversations with a Python function, which may be asynchronous."""

    endpoint: PythonEndpoint
    function: Callable[..., Any]
    price: Price | None

    def start(self, conversation_id: str) -> AgentConversation:
        """Return a conversation; the function receives the whole history each time, so no state is kept."""
        return _PythonConversation(self)


@dataclass(frozen=True)
class _PythonConversation:
    agent: PythonAgent
    is_stateless: ClassVar[bool] = False  # the function may keep a state under the id of the conversation

    async def reply(self, request: AgentRequest) -> AgentReply:
        seconds, started = self.agent.endpoint.timeout_s, time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                value = await _called(self.agent.function, request.as_json())
        except TimeoutError:
            raise _too_slow(seconds) from None
        latency_ms = (time.monotonic() - started) * 1000
        try:
            text = dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise AgentFailureError(
                "agent_error", f"the function returned no JSON: {redact(str(error))}"
            ) from None
        if len(text) > self.agent.endpoint.max_reply_mb * MEGABYTE:
            raise AgentFailureError("agent_error", _too_large(self.agent.endpoint.max_reply_mb))
        try:
            value = loads(clean(text))
        except ValueError as error:
            raise AgentFailureError("agent_error", f"the function returned no JSON: {error}") from None
        return replace(read_reply(value, self.agent.price), latency_ms=latency_ms)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


async def _called(function: Callable[..., Any], request: dict[str, JsonValue]) -> Any:
    """Call a function in a thread that does not delay the end of the process; exceptions are the agent's."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(_crash(error)) if error is not None else done.set_result(value)

    def work() -> None:
        value, failure = None, None
        try:
            value = function(request)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
        except BaseException as error:  # SystemExit of an agent must not end the run
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the reply came after the time limit
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=work, daemon=True, name="agent").start()
    return await done


def _crash(error: BaseException) -> AgentFailureError:
    return AgentFailureError("agent_error", redact(f"the agent crashed: {type(error).__name__}: {error}"))


def _too_large(megabytes: float) -> str:
    return f"the reply is larger than {megabytes:g} MB (max_reply_mb of the endpoint)"


@dataclass(frozen=True)
class CommandAgent:
    """Starts conversations with a command."""

    endpoint: CommandEndpoint
    argv: tuple[str, ...]
    allowed: Allowed
    price: Price | None

    def start(self, conversation_id: str) -> AgentConversation:
        """Return a conversation with a process of its own, which starts with the first request."""
        return _CommandConversation(self)

    def environment(self) -> dict[str, str]:
        """Return the variables that the command receives."""
        allowed_variables = {name: self.allowed.variable(name) for name in self.endpoint.environment}
        return {name: os.environ[name] for name in _ALWAYS if name in os.environ} | allowed_variables


@dataclass
class _CommandConversation:
    agent: CommandAgent
    is_stateless: ClassVar[bool] = False
    process: Process | None = None
    errors: bytearray = field(default_factory=bytearray)
    drain: "asyncio.Task[None] | None" = None

    async def reply(self, request: AgentRequest) -> AgentReply:
        endpoint, started = self.agent.endpoint, time.monotonic()
        try:
            async with asyncio.timeout(endpoint.timeout_s):
                line = await self._exchanged(dumps(request.as_json()))
        except TimeoutError:
            raise _too_slow(endpoint.timeout_s) from None
        except ValueError:  # asyncio's error for a line beyond the limit
            raise AgentFailureError("agent_error", _too_large(endpoint.max_reply_mb)) from None
        except OSError as error:
            if self.process is None:
                raise AgentFailureError(
                    "harness_error", f"the command cannot be started: {error.strerror}"
                ) from None
            line = b""
        if not line.endswith(b"\n"):
            raise AgentFailureError("agent_error", await self._ended())
        reply = read_reply(parsed(line), self.agent.price)
        return replace(reply, latency_ms=(time.monotonic() - started) * 1000)

    async def _exchanged(self, text: str) -> bytes:
        if self.process is None:
            limit = int(self.agent.endpoint.max_reply_mb * MEGABYTE)
            self.process = await asyncio.create_subprocess_exec(
                *self.agent.argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=limit, start_new_session=True,
                env=self.agent.environment(),
            )  # fmt: skip
            self.drain = asyncio.create_task(self._drained(self.process))
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(clean(text).encode() + b"\n")
        await self.process.stdin.drain()
        return await self.process.stdout.readline()

    async def _drained(self, process: Process) -> None:
        """Read the error output so that the command never waits for it; keep its end."""
        assert process.stderr
        while block := await process.stderr.read(4096):
            self.errors = (self.errors + block)[-4096:]

    async def _ended(self) -> str:
        assert self.process
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.process.wait()), 1)
        last = self.errors.decode("utf-8", "replace").strip().splitlines()[-1:]
        return redact(f"the command ended with code {self.process.returncode}: {' '.join(last)}")

    async def close(self) -> None:
        """End the process and its children."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        if self.drain is not None:
            self.drain.cancel()
            await asyncio.gather(self.drain, return_exceptions=True)
