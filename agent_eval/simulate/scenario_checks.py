"""Find parts of a valid scenario that can never work: names of nothing, and requirements that exclude each other."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import JsonValue

from agent_eval.formats.yaml import Location
from agent_eval.scores.tools.calls import ExpectedCall, read_expected
from agent_eval.simulate.mock_state import StateAction
from agent_eval.simulate.mocks import Mock

Problem = tuple[Location, str]
_OF_LISTS = ("table", "sequence", "random")


class _Tool(Protocol):
    """Describe what is checked of `scenarios.Tool`."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, JsonValue]: ...
    @property
    def mock(self) -> Mock | None: ...


class _Trajectory(Protocol):
    """Describe what is checked of `scenarios.Trajectory`."""

    @property
    def mode(self) -> str | None: ...
    @property
    def tools(self) -> Sequence[Mapping[str, JsonValue]] | None: ...
    @property
    def forbidden(self) -> Sequence[str | Mapping[str, JsonValue]] | None: ...


class _Assertion(Protocol):
    """Describe what is checked of `scenarios.Assertion`."""

    @property
    def turn(self) -> int | None: ...
    @property
    def trajectory(self) -> _Trajectory | None: ...
    @property
    def expected_tools(self) -> Sequence[Mapping[str, JsonValue]] | None: ...
    @property
    def forbidden_text(self) -> Sequence[str]: ...
    @property
    def required_text(self) -> Sequence[Sequence[str]]: ...


class _Scenario(Protocol):
    """Describe what is checked of `scenarios.BenchmarkScenario`."""

    @property
    def tools(self) -> Sequence[_Tool]: ...
    @property
    def assertions(self) -> Sequence[_Assertion]: ...
    @property
    def state(self) -> Mapping[str, JsonValue]: ...
    @property
    def unmocked(self) -> str: ...


def scenario_problems(scenario: _Scenario) -> Iterator[Problem]:
    """Yield the location and the text of each problem."""
    for at, tool in enumerate(scenario.tools):
        schema = list(_schema_problems(tool, ("tools", at, "parameters")))
        yield from schema
        if tool.mock is not None:
            arguments = () if schema else _arguments(tool)
            yield from _mock_problems(tool.mock, scenario, arguments, ("tools", at, "mock"))
    tools = {tool.name: tool for tool in scenario.tools}
    for number, assertion in enumerate(scenario.assertions):
        where: Location = ("assertions", number)
        for key, call in _required(assertion):
            yield from _call_problems(call, tools, (*where, key), is_open=scenario.unmocked == "pass")
        for call in _forbidden(assertion):
            near = difflib.get_close_matches(call.name, tools, n=1, cutoff=0.8)
            if call.name not in tools and near and scenario.unmocked != "pass":
                yield (*where, "trajectory"), f"forbids {call.name!r}; did you mean the tool {near[0]!r}?"
        for other in scenario.assertions:
            if other.turn is None or other.turn == assertion.turn:
                yield from _contradictions(assertion, other, where)


def _schema_problems(tool: _Tool, at: Location) -> Iterator[Problem]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    where = f"parameters of tool {tool.name}"
    try:
        Draft202012Validator.check_schema(tool.parameters)
    except SchemaError as error:
        key = ".".join(map(str, error.absolute_path))
        place = (*at, *(part for part in error.absolute_path if isinstance(part, str | int)))
        yield place, f"{where} are not a JSON schema: {f'{key}: ' if key else ''}{error.message:.160}"
        return
    if tool.parameters.get("type", "object") != "object":
        yield (*at, "type"), f"{where} have the type {tool.parameters['type']!r}; allowed: object"
    required = tool.parameters.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in (arguments := _arguments(tool)) and arguments:
            yield (*at, "required"), f"{where} require {name!r}; properties: {', '.join(sorted(arguments))}"


def _arguments(tool: _Tool) -> Collection[str]:
    """Return the names of a tool's arguments; none if its schema does not list them all."""
    properties, keys = tool.parameters.get("properties"), tool.parameters.keys()
    is_open = keys - {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "description",
        "title",
        "$schema",
    }
    if is_open or tool.parameters.get("additionalProperties") not in (None, False):
        return ()
    return properties.keys() if isinstance(properties, dict) else ()


def _mock_problems(
    mock: Mock, scenario: _Scenario, parameters: Collection[str], at: Location
) -> Iterator[Problem]:
    if (action := mock.state) is not None:
        place = (*at, "state", "at")
        filled = {*scenario.state, *(one.at for tool in scenario.tools for one in _puts(tool.mock))}
        near = difflib.get_close_matches(action.at, scenario.state, n=1, cutoff=0.8)
        if action.at not in scenario.state and (near or action.at not in filled):
            hint = f"did you mean {near[0]!r}?" if near else "add it, e.g. as {}"
            yield (
                place,
                f"at is {action.at!r}, which is not a key of the state: {_names(scenario.state)}; {hint}",
            )
        elif not isinstance(scenario.state.get(action.at, {}), dict):
            yield place, f"{action.at} of the state is not a mapping of records by id"
        for key, name in (("key", action.key), ("value", action.value)):
            if name is not None and parameters and name not in parameters:
                yield (
                    (*at, "state", key),
                    f"{key} is {name!r}, which is not an argument of the tool: {_names(parameters)}",
                )
    for name in mock.arguments or ():
        if parameters and name not in parameters:
            yield (*at, "arguments", name), f"{name!r} is not an argument of the tool: {_names(parameters)}"
    for kind in _OF_LISTS:
        for number, nested in enumerate(getattr(mock, kind) or ()):
            yield from _mock_problems(nested, scenario, parameters, (*at, kind, number))


def _puts(mock: Mock | None) -> Iterator[StateAction]:
    """Yield the actions of a mock that store records, under a key of the state that need not exist before."""
    if mock is not None:
        if mock.state is not None and mock.state.do == "put":
            yield mock.state
        for kind in _OF_LISTS:
            for nested in getattr(mock, kind) or ():
                yield from _puts(nested)


def _required(assertion: _Assertion) -> Iterator[tuple[str, ExpectedCall]]:
    """Yield the calls that the agent should make, with the key that names them; mode `within` requires none."""
    trajectory = assertion.trajectory
    for key, calls in (
        ("trajectory", trajectory and trajectory.mode != "within" and trajectory.tools),
        ("expected_tools", assertion.expected_tools),
    ):
        for call in read_expected(calls or ()):
            if call.requestor == "assistant":
                yield key, call


def _forbidden(assertion: _Assertion) -> list[ExpectedCall]:
    forbidden_calls = (assertion.trajectory and assertion.trajectory.forbidden) or ()
    return read_expected([{"name": call} if isinstance(call, str) else call for call in forbidden_calls])


def _call_problems(
    call: ExpectedCall, tools: Mapping[str, _Tool], at: Location, *, is_open: bool
) -> Iterator[Problem]:
    if (tool := tools.get(call.name)) is None:
        if not is_open:
            yield (
                at,
                (
                    f"requires a call of {call.name!r}, which is not a tool of the scenario: {_names(tools)}; add it to "
                    "tools, or set `unmocked: pass` for an agent that runs tools of its own"
                ),
            )
        return
    arguments = _arguments(tool)
    for name in call.asked:
        if arguments and name not in arguments:
            yield at, f"requires the argument {name!r} of {call.name}, which has: {_names(arguments)}"


def _contradictions(one: _Assertion, other: _Assertion, at: Location) -> Iterator[Problem]:
    """Yield what `one` requires and `other`, which covers the same turn or the conversation, forbids."""
    barred = _forbidden(other)
    for key, call in _required(one):
        if any(_always_barred(call, bar) for bar in barred):
            yield (
                (*at, key),
                f"requires a call of {call.name!r} that is also forbidden; remove one of the two",
            )
    for options in one.required_text:
        forbidden_in_options = [
            [text for text in other.forbidden_text if text.casefold() in option.casefold()]
            for option in options
        ]
        if all(forbidden_in_options):
            yield (
                (*at, "required_text"),
                f"requires {options[0]!r}, which contains the forbidden text {forbidden_in_options[0][0]!r}",
            )


def _always_barred(call: ExpectedCall, bar: ExpectedCall) -> bool:
    """Return whether every call that meets the requirement is forbidden."""
    if call.name != bar.name:
        return False
    if bar.match == "ignore" or not (bar.arguments or bar.match):
        return True
    is_exact = call.match == "exact" or (call.match is None and bool(call.arguments))
    is_literal = not call.compare and call.match != "ignore" and bool(call.arguments)
    return is_literal and (is_exact or bar.match == "partial") and bar.fits(call)


def _names(names: Collection[Any]) -> str:
    return ", ".join(map(str, sorted(names))) or "none"
