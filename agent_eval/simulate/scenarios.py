"""Define scenarios and suites, read them from YAML files, and report every problem with file, line, key and fix.

A suite is a folder data/scenarios/<suite>/ with one file <id>.scenario.yaml per scenario and an optional suite.yaml.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    model_validator,
)

from agent_eval.errors import ConfigurationError, NotFoundError
from agent_eval.formats.files import Bounds, entries
from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import count_of
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.validation_messages import problems
from agent_eval.formats.yaml import Location, YamlError, read_document, read_text
from agent_eval.scores.tools.trajectory import MalformedCallError, Mode, match
from agent_eval.settings.gate_spec import Level, Limit
from agent_eval.simulate.mocks import ConversationMocks, Mock, Resolve
from agent_eval.simulate.scenario_checks import scenario_problems
from agent_eval.transcripts.injected_errors import describes_error
from agent_eval.transcripts.models import Expected, Frozen, Links, SessionRun, Slug
from agent_eval.transcripts.models import Scenario as Slot
from agent_eval.transcripts.scenario_names import task_of

SUFFIX = ".scenario.yaml"
SUITE = "suite.yaml"
Text = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]


def _listed(value: object) -> object:
    """Return a text as a list of one text."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a text or a list of texts, got {value!r:.80}")
    return value


Texts = Annotated[
    tuple[Text, ...],
    Field(min_length=1, max_length=50),
    BeforeValidator(_listed, json_schema_input_type=Text | list[Text]),
    PlainSerializer(lambda texts: texts[0] if len(texts) == 1 else list(texts)),
]
"""One text or several; a file may contain a text or a list of texts."""
Kind = Literal["task", "information", "confirmation", "correction", "help"]
"""Purpose of a user message. U5 counts confirmation, correction and help as interventions."""
INTERVENTIONS = frozenset({"confirmation", "correction", "help"})
_NO_PARAMETERS: dict[str, JsonValue] = {"type": "object", "properties": {}}
OF_GATES = frozenset({"thresholds", "metrics", "fail_on_error_severity", "trials"})
"""Keys of a scenario that do not affect its conversations; they are not part of its hash."""


class ScenarioError(ConfigurationError):
    """Raised when a suite has no valid scenario, or scenarios that are to be run are invalid.

    Fix: Correct the files; `agent-eval scenarios check` checks them again.
    """

    def __init__(self, problems: Sequence[Refusal]) -> None:
        sentences = [(f"{p.file}:{p.line}" if p.line else p.file, p.reason.rstrip(".")) for p in problems]
        lines = [f"{where}: {reason}." for where, reason in sentences]
        super().__init__(
            "\n".join([*lines, "Fix the files; `agent-eval scenarios check` checks them again."])
        )


def unknown_suite(
    what: str, name: str, names: Sequence[str], problem: str = "does not exist"
) -> NotFoundError:
    """Return the error if a requested suite or scenario does not exist, or several suites have it."""
    return NotFoundError(
        f"{what} {name!r} {problem}. Known: {', '.join(names) or 'none'}. Scenarios are files "
        f"data/scenarios/SUITE/ID{SUFFIX}."
    )


class Tool(Frozen):
    """Define a tool that the agent may call, and the mock that answers."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=lambda: {**_NO_PARAMETERS})
    mock: Mock | None = None  # None: `unmocked` of the scenario applies

    @property
    def schema_for_agent(self) -> dict[str, JsonValue]:
        """Return the tool in OpenAI's form, without its mock."""
        function: dict[str, JsonValue] = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


class ScriptedMessage(Frozen):
    """Define what a scripted user says in one turn: a message, or several before the agent replies."""

    say: Texts
    kind: Kind = "information"


class SimulatedUser(Frozen):
    """Define a user that a model plays."""

    stop_when: Text = "The goal is reached, or it is clear that the agent cannot reach it."
    style: Text | None = None  # how the user writes


class Trajectory(Frozen):
    """Define an assertion on the sequence of calls; the modes are those of `scores.tools.trajectory`."""

    mode: Mode | None = None
    tools: tuple[dict[str, JsonValue], ...] | None = None
    forbidden: tuple[str | dict[str, JsonValue], ...] | None = None
    at_most_once: tuple[dict[str, JsonValue], ...] | None = None

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if not (self.tools or self.forbidden or self.at_most_once) and self.mode in (None, "contains"):
            raise ValueError("it requires nothing: name tools, forbidden or at_most_once")
        try:
            match((), self.at_most_once or (), mode="contains")
            match((), self.tools or (), mode=self.mode or "strict", forbidden=self.forbidden or ())
        except MalformedCallError as error:
            raise ValueError(str(error)) from error
        return self


class Assertion(Frozen):
    """Define one requirement of a scenario, for a turn or, without `turn`, for the whole conversation."""

    turn: Annotated[int, Field(ge=0, le=1_000)] | None = None
    trajectory: Trajectory | None = None
    expected_tools: tuple[dict[str, JsonValue], ...] | None = None
    in_order: bool = False  # whether the order of expected_tools matters
    expected_answer: Text | None = None
    forbidden_text: tuple[Text, ...] = ()
    required_text: tuple[Texts, ...] = Field(default=(), exclude_if=lambda value: not value)
    """An entry with several texts requires one of them. It is part of the hash only if it is used."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        texts = (self.forbidden_text or None, self.required_text or None)
        conditions = (self.trajectory, self.expected_tools, self.expected_answer, *texts)
        if sum(value is not None for value in conditions) != 1:
            raise ValueError(
                "name one of trajectory, expected_tools, expected_answer, forbidden_text, required_text"
            )
        if self.expected_tools is not None:
            try:
                match((), self.expected_tools)
            except MalformedCallError as error:
                raise ValueError(str(error)) from error
        return self

    def expected(self, scenario: "BenchmarkScenario") -> Expected:
        """Return the requirement as the ground truth of a conversation."""
        required: list[JsonValue] = []
        if self.trajectory is not None:
            required.append(self.trajectory.model_dump(mode="json", exclude_none=True))
        if self.forbidden_text:
            required.append({"forbidden_text": list(self.forbidden_text)})
        if self.required_text:
            required.append({"required_text": [list(texts) for texts in self.required_text]})
        return Expected(
            turn_index=None if self.turn is None else scenario.first_message_of(self.turn),
            tools=self.expected_tools,
            tool_sequence_matters=self.in_order,
            answer=self.expected_answer,
            assertions=tuple(required),
        )


class BenchmarkScenario(Frozen):
    """Define one scenario: what the user wants, what the agent can do, and what is required of it."""

    id: Slug
    description: Text | None = None
    template: Text | None = None  # domain template, such as customer_service_v1
    slot: Slot | None = None
    profile: Text | None = None
    goal: Text | None = None
    knowledge: tuple[Text, ...] = ()  # facts that the user may reveal
    withheld: tuple[Text, ...] = ()  # facts that the user knows and must not reveal
    policy: Text | None = None  # rules of the agent's operator, for judges; it is not sent to the agent
    opening: Texts
    turns: tuple[ScriptedMessage, ...] = ()
    user: SimulatedUser | None = None  # None: a scripted user
    tools: tuple[Tool, ...] = ()
    unmocked: Literal["error", "pass"] = "error"
    state: dict[str, JsonValue] = Field(default_factory=dict)  # initial state of the mocks
    assertions: tuple[Assertion, ...] = ()
    injected_error: JsonValue = None
    max_turns: Annotated[int, Field(ge=1, le=200)] = 10
    stop_when_text: tuple[Text, ...] = ()  # end the conversation after an agent's message that contains one
    trials: Annotated[int, Field(ge=1, le=1_000)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    thresholds: dict[str, Limit] = Field(default_factory=dict)
    metrics: tuple[str, ...] | None = None  # metrics whose thresholds apply to this scenario; None: all
    fail_on_error_severity: Level | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.user is not None and self.turns:
            raise ValueError("turns and user exclude each other: the user is scripted or simulated")
        if self.user is not None and self.goal is None:
            raise ValueError("goal is missing: a simulated user needs one")
        if 1 + len(self.turns) > self.max_turns:
            raise ValueError(
                f"opening and turns are {count_of(1 + len(self.turns), 'message')}, but max_turns is {self.max_turns}"
            )
        unused = [name for name in self.thresholds if self.metrics is not None and name not in self.metrics]
        if unused:
            raise ValueError(
                f"thresholds names {unused[0]!r}, but metrics does not, so the limit would never apply; add it to metrics"
            )
        if not any(text.strip() for text in self.opening):
            raise ValueError("opening is blank; write what the user says first")
        names = [tool.name for tool in self.tools]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"tools names {repeated[0]!r} twice; give each tool one name")
        if self.slot == "error_injection" and not describes_error(self.injected_error):
            raise ValueError(
                "injected_error is missing or empty: the slot error_injection needs a description of the error"
            )
        last = self.max_turns if self.user is not None else 1 + len(self.turns)
        for at, assertion in enumerate(self.assertions):
            if assertion.turn is not None and assertion.turn >= last:
                raise ValueError(
                    f"assertions[{at}].turn is {assertion.turn}; allowed: 0 to {last - 1}, or omit it"
                )
        return self

    @property
    def n_messages(self) -> int:
        """Return the largest number of user messages in a conversation."""
        if self.user is not None:
            return len(self.opening) + self.max_turns - 1
        return sum(len(texts) for texts in (self.opening, *(turn.say for turn in self.turns)))

    def first_message_of(self, turn: int) -> int:
        """Return the number of user messages before a turn, which is the index of the turn in a transcript."""
        texts_by_turn = (self.opening, *(scripted.say for scripted in self.turns))[:turn]
        return sum(len(texts) for texts in texts_by_turn) + turn - len(texts_by_turn)

    def mocks(self, conversation_id: str, seed: int, resolve: Resolve) -> ConversationMocks:
        """Return the mocks of one conversation, with a state of its own."""
        of_tools = {tool.name: tool.mock for tool in self.tools}
        return ConversationMocks(of_tools, self.unmocked, self.state, conversation_id, seed, resolve)

    @cached_property
    def hash(self) -> str:
        """Return the hash of everything that affects a conversation (32 hex digits)."""
        return digest("scenario", self.model_dump(mode="json", exclude=set(OF_GATES)))


class Shared(Frozen):
    """Define what several scenarios of a suite use, so that it is written once."""

    template: Text | None = None  # for scenarios without a template
    policy: Text | None = None  # for scenarios without a policy
    tools: tuple[Tool, ...] = ()  # scenarios include one by its name in their `tools`
    state: dict[str, JsonValue] = Field(default_factory=dict)  # keys in a scenario's state replace these

    def completed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a scenario with what it uses of the shared ones; unknown names of tools are kept."""
        common = {
            name: value for name in ("template", "policy") if (value := getattr(self, name)) is not None
        }
        by_name = {tool.name: tool.model_dump(mode="json", exclude_unset=True) for tool in self.tools}
        whole: dict[str, Any] = {**common, **fields}
        if isinstance(tools := fields.get("tools"), list):
            whole["tools"] = [by_name.get(tool, tool) if isinstance(tool, str) else tool for tool in tools]
        if self.state and isinstance(state := fields.get("state", {}), dict):
            whole["state"] = {**self.state, **state}
        return whole


class Suite(Frozen):
    """Define the settings of a suite (suite.yaml). Every key is optional."""

    version: SessionRun | None = None
    description: Text | None = None
    public: bool | None = None  # whether agents may have been trained on it
    methodology_versions: Literal["any"] | tuple[str, ...] | None = None  # None: all versions
    links: Links = Field(default_factory=dict)
    shared: Shared = Shared()


@dataclass(frozen=True)
class LoadedSuite:
    """Hold a suite with its valid scenarios, in the order of their ids, and the problems of the others."""

    name: str
    suite: Suite
    scenarios: tuple[BenchmarkScenario, ...]
    problems: tuple[Refusal, ...]

    @property
    def hash(self) -> str:
        """Return the hash of the suite: its version, links and the hashes of all its scenarios."""
        suite_fields = self.suite.model_dump(mode="json", exclude={"description", "shared"})
        return digest("suite", suite_fields, sorted((s.id, s.hash) for s in self.scenarios))

    def task_id(self, scenario: BenchmarkScenario) -> str:
        """Return the task of a scenario: it contains its hash, so that results of different texts are never mixed."""
        return task_of(self.name, scenario.id, scenario.hash)


def read_suites(folder: Path, suite_names: Sequence[str] = ()) -> list[LoadedSuite]:
    """Return the named suites (default: all) in data/scenarios. A missing folder has no suites.

    Raises:
        NotFoundError: If a named suite does not exist.
    """
    bounds = Bounds.of(folder)
    present = entries(folder)
    folders = [p for p in present if p.is_dir()]
    names = [path.name for path in folders]
    for name in suite_names:
        if name not in names:
            raise unknown_suite("Suite", name, names)
    read = [_read_suite(path, bounds) for path in folders if not suite_names or path.name in suite_names]
    beside = [] if suite_names else [_misplaced(path, path.name) for path in present if _is_misplaced(path)]
    return [*read, *(LoadedSuite(p.file, Suite(), (), (p,)) for p in beside)]


def _is_misplaced(path: Path) -> bool:
    return path.name.endswith(SUFFIX) and not path.is_dir()


def _misplaced(path: Path, file: str) -> Refusal:
    return Refusal(file, 0, f"is not read here; move it to data/scenarios/SUITE/{path.name}")


def _read_suite(folder: Path, bounds: Bounds) -> LoadedSuite:
    if reason := bounds.refused_folder(folder, "suite"):
        return LoadedSuite(folder.name, Suite(), (), (Refusal(folder.name, 0, reason),))
    refusals: list[Refusal] = []
    suite = Suite()
    scenarios: dict[str, BenchmarkScenario] = {}
    for path in sorted(entries(folder), key=lambda path: path.name != SUITE):  # first what is shared
        file = f"{folder.name}/{path.name}"
        is_suite, is_scenario = path.name == SUITE, path.name.endswith(SUFFIX)
        if path.is_dir() and not path.is_symlink():
            deeper = sorted(path.rglob(f"*{SUFFIX}"))
            refusals += [_misplaced(one, f"{folder.name}/{one.relative_to(folder)}") for one in deeper]
            continue
        if not (is_suite or is_scenario):
            if path.suffix in {".yaml", ".yml"}:
                refusals.append(Refusal(file, 0, f"is not read; name it ID{SUFFIX} or {SUITE}"))
            continue
        if reason := bounds.refused_file(path):
            refusals.append(Refusal(file, 0, reason))
            continue
        model: type[BaseModel] = Suite if is_suite else BenchmarkScenario
        read = list(_read(path, file, model, suite.shared))
        refusals += [item for item in read if isinstance(item, Refusal)]
        for item in read:
            if isinstance(item, Suite):
                suite = item
            elif isinstance(item, BenchmarkScenario):
                scenarios[item.id] = item
    if not scenarios and not refusals:
        refusals.append(Refusal(folder.name, 0, f"contains no scenario; add a file ID{SUFFIX}"))
    ordered = tuple(scenarios[name] for name in sorted(scenarios))
    return LoadedSuite(folder.name, suite, ordered, tuple(refusals))


def _read(path: Path, file: str, model: type[BaseModel], shared: Shared) -> Iterator[BaseModel | Refusal]:
    """Yield the model in a file, or a refusal for each of its problems."""
    try:
        document = read_document(read_text(path).removeprefix("\ufeff"), "typed")
    except YamlError as error:
        yield Refusal(file, error.line, error.reason)
        return
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        yield Refusal(
            file, 1, f"expected a mapping with the keys {', '.join(list(model.model_fields)[:6])}, …"
        )
        return
    name = path.name.removesuffix(SUFFIX)
    if model is BenchmarkScenario:
        value = {"id": name, **shared.completed(value)}
    try:
        loaded = model.model_validate(value)
    except ValidationError as error:
        for location, reason in problems(error, model):
            yield Refusal(file, document.line_of(location) or 1, reason)
        return
    if isinstance(loaded, BenchmarkScenario) and loaded.id != name:
        yield Refusal(
            file,
            document.line_of(("id",)) or 1,
            f"id is {loaded.id!r}; rename the file to {loaded.id}{SUFFIX}, or remove the key",
        )
        return
    if isinstance(loaded, BenchmarkScenario) and (problem_list := list(scenario_problems(loaded))):
        for location, reason in problem_list:
            yield Refusal(file, document.line_of(location) or 1, reason)
        return
    yield loaded


def line_in(file: Path, location: Location) -> int:
    """Return the line of a key in a file, or of its nearest parent; 0 if it is unknown, such as for a shared key."""
    try:
        return read_document(read_text(file).removeprefix("\ufeff"), "typed").line_of(location) or 0
    except YamlError:
        return 0


def json_schema() -> str:
    """Return the JSON Schema of a scenario file, for editors."""
    schema: dict[str, Any] = BenchmarkScenario.model_json_schema()
    schema["required"] = [name for name in schema.get("required", ()) if name != "id"]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=1)
