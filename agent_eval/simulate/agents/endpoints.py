"""Define the endpoints of agents (`endpoint:` in agents.yaml), and what a project allows them to run and to read."""

import importlib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, JsonValue, StringConstraints, TypeAdapter, ValidationError

from agent_eval.errors import ConfigurationError
from agent_eval.formats.hashing import digest
from agent_eval.formats.json_text import dumps
from agent_eval.formats.validation_messages import problems
from agent_eval.judge.llm.budget import Price
from agent_eval.transcripts.models import Agent, Frozen

_VARIABLE = re.compile(r"\$\{(\w+)\}")
Price_ = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$", max_length=2_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class EndpointError(ConfigurationError):
    """Raised when an agent has no valid endpoint, or its endpoint or a mock uses what agent_eval.toml does not allow.

    Fix: Correct the agent's entry in agents.yaml, or allow what it uses in agent_eval.toml.
    """


class _Endpoint(Frozen):
    timeout_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 120  # per reply of the agent
    max_reply_mb: Annotated[float, Field(gt=0, le=100)] = 4
    price_in: Price_ | None = None  # US dollars per million prompt tokens
    price_out: Price_ | None = None
    tools: Literal["mocks", "own"] = "mocks"  # own: the agent executes its tools itself and reports the calls


class _Http(_Endpoint):
    url: Url
    headers: dict[str, str] = Field(default_factory=dict)  # ${NAME} is an environment variable


class OpenAIEndpoint(_Http):
    """Define a server with OpenAI's chat API. `url` is its base, such as http://localhost:8000/v1."""

    kind: Literal["openai"]
    model: Name
    system_prompt: str | None = None
    memory: Literal["history", "session"] = "history"  # session: the server keeps the history under an id
    session_key: Name = "session_id"  # key of the request with the id
    stream: bool = False
    sends_seed: bool = True
    body: dict[str, JsonValue] = Field(default_factory=dict)  # further keys of the request

    @property
    def sends_history(self) -> bool:
        """Return whether each request contains the whole conversation and no id of it."""
        return self.memory == "history"


class LitellmEndpoint(_Endpoint):
    """Define a model that litellm calls, with a system prompt."""

    kind: Literal["litellm"]
    model: Name
    system_prompt: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    max_tokens: Annotated[int, Field(ge=1)] = 1_024
    sends_seed: bool = True


class HttpEndpoint(_Http):
    """Define any JSON service. Texts in `body` that are exactly {{message}}, {{messages}}, {{tools}}, {{seed}} or {{conversation_id}} are replaced."""

    kind: Literal["http"]
    method: Literal["POST", "PUT"] = "POST"
    body: dict[str, JsonValue]
    reply: Name  # path of the reply in the answer, such as output.text or choices.0.message
    tool_calls: Name | None = None  # path of a list of calls
    tool_results: Name | None = None  # key under which results of mocks are sent back

    @property
    def sends_history(self) -> bool:
        """Return whether each request contains the whole conversation and no id of it."""
        template = dumps(self.body)
        return '"{{messages}}"' in template and '"{{conversation_id}}"' not in template


class PythonEndpoint(_Endpoint):
    """Define a Python function `module:name`; it receives a dict and returns a text or a message."""

    kind: Literal["python"]
    function: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


class CommandEndpoint(_Endpoint):
    """Define a command that reads a JSON line per request and writes a JSON line per reply."""

    kind: Literal["command"]
    command: Name  # as in a shell, without expansions
    environment: tuple[Name, ...] = ()  # variables that the command receives, besides PATH, HOME and LANG


class ScriptedEndpoint(_Endpoint):
    """Define a scripted agent of a packaged suite: a faultless one, or one with a planted fault. It needs no model."""

    kind: Literal["scripted"]
    suite: Name
    fault: Name | None = None


Endpoint = Annotated[
    OpenAIEndpoint | LitellmEndpoint | HttpEndpoint | PythonEndpoint | CommandEndpoint | ScriptedEndpoint,
    Field(discriminator="kind"),
]
_ENDPOINT: TypeAdapter[Any] = TypeAdapter(Endpoint)
_MODELS: Mapping[str, type[BaseModel]] = {
    "openai": OpenAIEndpoint, "litellm": LitellmEndpoint, "http": HttpEndpoint, "python": PythonEndpoint,
    "command": CommandEndpoint, "scripted": ScriptedEndpoint,
}  # fmt: skip


def endpoint_of(agent: Agent) -> Any:
    """Return the endpoint of an agent.

    Raises:
        EndpointError: If the entry has no endpoint, or an invalid one; the message lists every problem.
    """
    where = f"Agent {agent.agent_id!r} in agents.yaml"
    kinds = ", ".join(_MODELS)
    if agent.endpoint is None:
        raise EndpointError(
            f"{where} has no endpoint, so it cannot be run. Add endpoint: with a kind: {kinds}."
        )
    try:
        return _ENDPOINT.validate_python(agent.endpoint)
    except ValidationError as error:
        model = _MODELS.get(str(agent.endpoint.get("kind")))
        if model is None:
            raise EndpointError(
                f"{where}: endpoint.kind is {agent.endpoint.get('kind')!r}. Allowed: {kinds}."
            ) from error
        try:
            model.model_validate(agent.endpoint)
        except ValidationError as direct:
            problems_text = "; ".join(f"endpoint.{reason}" for _, reason in problems(direct, model))
            raise EndpointError(f"{where}: {problems_text}.") from error
        raise


def agent_hash(endpoint: _Endpoint) -> str:
    """Return the hash of an agent's configuration: address, model, system prompt and all other keys (32 hex digits)."""
    return digest("agent", endpoint.model_dump(mode="json", exclude={"timeout_s", "price_in", "price_out"}))


def price_in_endpoint(endpoint: _Endpoint) -> Price | None:
    """Return the price that an endpoint states, or None."""
    if endpoint.price_in is None or endpoint.price_out is None:
        return None
    return Price(endpoint.price_in, endpoint.price_out)


@dataclass(frozen=True)
class Allowed:
    """Hold what agent_eval.toml allows: modules, commands and environment variables."""

    modules: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def function(self, name: str) -> Callable[..., Any]:
        """Return the function `module:name`.

        Raises:
            EndpointError: If the module is not in the setting agent_modules, or does not contain the function.
        """
        module, _, attribute = name.partition(":")
        if module not in self.modules:
            raise EndpointError(
                f"Python function {name!r} is not run: its module is not allowed. To allow it, add {module!r} to "
                "agent_modules in agent_eval.toml."
            )
        try:
            function = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # the import runs the module's code, which can raise any exception
            raise EndpointError(
                f"Python function {name!r} cannot be loaded ({type(error).__name__}: {error}). Install the module, "
                "or put its folder on PYTHONPATH."
            ) from error
        if not callable(function):
            raise EndpointError(f"Python function {name!r} is not callable.")
        return function  # type: ignore[no-any-return]

    def argv(self, command: str) -> list[str]:
        """Return the words of a command.

        Raises:
            EndpointError: If the command is not, word by word, in the setting agent_commands.
        """
        words = shlex.split(command)
        if words not in [shlex.split(allowed_command) for allowed_command in self.commands]:
            raise EndpointError(
                f"Command {command!r} is not run: it is not allowed. To allow it, add exactly this text to "
                "agent_commands in agent_eval.toml."
            )
        return words

    def expanded(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers with ${NAME} replaced by the environment variable.

        Raises:
            EndpointError: If a variable is not in the setting agent_variables, or not set.
        """
        return {name: _VARIABLE.sub(lambda m: self.variable(m[1]), value) for name, value in headers.items()}

    def variable(self, name: str) -> str:
        """Return an environment variable that agent_eval.toml allows; raises EndpointError as `expanded` does."""
        if name not in self.variables:
            raise EndpointError(
                f"Environment variable {name} is not sent to an agent. To allow it, add {name!r} to "
                "agent_variables in agent_eval.toml."
            )
        if name not in os.environ:
            raise EndpointError(
                f"Environment variable {name}, which an endpoint in agents.yaml uses, is not set."
            )
        return os.environ[name]
