"""Answer tool calls in place of real tools. Every conversation has its own mocks, counters, state and random numbers."""

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from agent_eval.formats.json_text import dumps, loads
from agent_eval.simulate.mock_state import StateAction, acted
from agent_eval.transcripts.models import Frozen

LONGEST_RESULT = 200_000  # maximum characters of a mock's result
_KINDS = ("constant", "table", "sequence", "random", "error", "state", "python")
Resolve = Callable[[str], Callable[..., Any]]
"""Returns the function that a text such as 'module:function' names; raises an error if it is not allowed."""


class Mock(Frozen):
    """Define the answer of a tool: exactly one of constant, table, sequence, random, error, state and python.

    Entries of `table`, `sequence` and `random` are mocks themselves. `arguments` is used in `table` only: the entry
    answers calls whose arguments contain these values.
    """

    constant: JsonValue = None
    table: "tuple[Mock, ...] | None" = None  # the first entry whose arguments match; else an error
    sequence: "tuple[Mock, ...] | None" = None  # one entry per call; the last one repeats
    random: "tuple[Mock, ...] | None" = None  # drawn with the seed of the conversation
    error: str | None = None
    state: StateAction | None = Field(default=None, exclude_if=lambda value: value is None)
    """Reads or changes the state of the conversation. It is part of a scenario's hash only if it is used."""
    python: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    arguments: dict[str, JsonValue] | None = None
    latency_ms: Annotated[float, Field(ge=0, le=600_000, allow_inf_nan=False)] = 0

    @model_validator(mode="after")
    def _one(self) -> Self:
        kinds = [name for name in _KINDS if name in self.model_fields_set]
        if len(kinds) != 1:
            raise ValueError(f"name one of {', '.join(_KINDS)}")
        if kinds[0] in ("table", "sequence", "random") and not getattr(self, kinds[0]):
            raise ValueError(f"{kinds[0]} is empty; add an entry")
        return self


def functions_of(mock: Mock | None) -> list[str]:
    """Return the names of all Python functions in a mock."""
    if mock is None:
        return []
    nested = [*(mock.table or ()), *(mock.sequence or ()), *(mock.random or ())]
    return [*([mock.python] if mock.python else []), *(name for one in nested for name in functions_of(one))]


@dataclass(frozen=True)
class MockContext:
    """Hold what a Python mock sees of its conversation. `state` is shared by all mocks of the conversation only."""

    state: dict[str, Any]
    tool: str
    call_index: int  # number of earlier calls of this tool in the conversation
    turn_index: int
    conversation_id: str
    rng: random.Random


@dataclass(frozen=True)
class ToolResult:
    """Hold the answer to one call: the text that the agent receives, and whether it is an error."""

    text: str
    is_error: bool = False


class MockFailureError(Exception):
    """Raised when a Python mock fails; the fault is the harness's."""


@dataclass
class ConversationMocks:
    """Answers the tool calls of one conversation. `mocks` has an entry for every tool; None: `unmocked` applies."""

    mocks: Mapping[str, Mock | None]
    unmocked: Literal["error", "pass"]
    initial_state: Mapping[str, JsonValue]
    conversation_id: str
    seed: int
    resolve: Resolve
    n_calls: Counter[str] = field(default_factory=Counter)
    n_used: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._state: dict[str, Any] = copy.deepcopy(dict(self.initial_state))
        self._rng = random.Random(f"mocks {self.seed}")

    async def answer(self, name: str, arguments: JsonValue, turn_index: int) -> ToolResult | None:
        """Return the answer to a call; None if the tool has no mock and the scenario passes such calls through.

        Raises:
            MockFailureError: If a Python mock raises an exception or does not return JSON.
        """
        call_index = self.n_calls[name]
        self.n_calls[name] += 1
        if name not in self.mocks:
            tool_names = ", ".join(self.mocks) or "none"
            return ToolResult(f"Tool {name!r} does not exist. Tools: {tool_names}.", is_error=True)
        if isinstance(arguments, str):
            return ToolResult("The arguments are not a JSON object.", is_error=True)
        mock = self.mocks[name]
        if mock is None:
            if self.unmocked == "pass":
                return None
            return ToolResult(f"Tool {name!r} is not available.", is_error=True)
        context = MockContext(self._state, name, call_index, turn_index, self.conversation_id, self._rng)
        result = await self._of(mock, arguments if isinstance(arguments, dict) else {}, context)
        return ToolResult(result.text[:LONGEST_RESULT], result.is_error)

    async def _of(self, mock: Mock, arguments: Mapping[str, JsonValue], context: MockContext) -> ToolResult:
        if mock.latency_ms:
            await asyncio.sleep(mock.latency_ms / 1000)
        if mock.error is not None:
            return ToolResult(mock.error, is_error=True)
        if mock.state is not None:
            return _of_state(mock.state, arguments, context)
        if mock.python is not None:
            return await self._of_function(mock.python, arguments, context)
        if mock.table is not None:
            matching_row = next((row for row in mock.table if _fits(row.arguments or {}, arguments)), None)
            if matching_row is None:
                return ToolResult("No entry matches these arguments.", is_error=True)
            return await self._of(matching_row, arguments, context)
        if mock.sequence is not None:
            at = min(self.n_used[id(mock)], len(mock.sequence) - 1)
            self.n_used[id(mock)] += 1
            return await self._of(mock.sequence[at], arguments, context)
        if mock.random is not None:
            return await self._of(_drawn(mock.random, self._rng), arguments, context)
        return ToolResult(_text(mock.constant))

    async def _of_function(
        self, name: str, arguments: Mapping[str, JsonValue], context: MockContext
    ) -> ToolResult:
        """Call a Python mock; LookupError and ValueError are errors of the tool, which the agent receives."""
        function = self.resolve(name)
        try:
            value = function(copy.deepcopy(dict(arguments)), context)
            if asyncio.iscoroutine(value):
                value = await value
            return ToolResult(_text(loads(dumps(value))))
        except (LookupError, ValueError) as error:
            return _failed(error)
        except Exception as error:
            raise MockFailureError(f"mock {name}: {type(error).__name__}: {error}") from error


def _of_state(action: StateAction, arguments: Mapping[str, JsonValue], context: MockContext) -> ToolResult:
    try:
        return ToolResult(_text(loads(dumps(acted(action, copy.deepcopy(arguments), context.state)))))
    except (LookupError, ValueError, TypeError) as error:
        return _failed(error)


def _failed(error: Exception) -> ToolResult:
    message = error.args[0] if error.args else error
    return ToolResult(f"{type(error).__name__}: {message}", is_error=True)


def _drawn(mocks: Sequence[Mock], rng: random.Random) -> Mock:
    return mocks[rng.randrange(len(mocks))]


def _fits(required_arguments: Mapping[str, JsonValue], arguments: Mapping[str, JsonValue]) -> bool:
    return all(name in arguments and arguments[name] == value for name, value in required_arguments.items())


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else dumps(value)
