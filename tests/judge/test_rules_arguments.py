"""Wrong arguments: what a tool's own schema refuses, without trusting the schema."""

import socket
import subprocess
import sys
import time

import pytest
from pydantic import JsonValue

from agent_eval.judge.protocol import Scored
from agent_eval.metrics.builtin.tool_call_behavior_failure import WRONG_ARGUMENTS
from agent_eval.transcripts.models import Conversation
from tests.judge.material import agent, call, conversation, user
from tests.judge.test_rules import verdicts

Schema = dict[str, JsonValue]

BOOK: Schema = {
    "type": "object",
    "properties": {
        "room": {"type": "integer", "minimum": 1},
        "day": {"type": "string"},
        "kind": {"enum": ["single", "double"]},
        "guests": {"type": "array", "items": {"$ref": "#/$defs/guest"}},
        "note": {"type": "string"},
    },
    "$defs": {"guest": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    "required": ["room", "day"],
    "additionalProperties": False,
}
GOOD: Schema = {"room": 3, "day": "2026-04-01"}


def reason(of: Conversation) -> str | None:
    verdict = verdicts(of, 0)["tool_call_behavior_failure"]
    if not isinstance(verdict, Scored):
        return None
    assert verdict.label == WRONG_ARGUMENTS
    return verdict.rationale


def misfit(arguments: JsonValue, schema: Schema = BOOK, result: str = "ok", name: str = "book") -> str | None:
    tools = [{"type": "function", "function": {"name": "book", "parameters": schema}}]
    return reason(conversation(user("Book it"), call(name, arguments, result), agent("Booked."), tools=tools))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param({"room": 3}, "'day' is a required property", id="missing"),
        pytest.param(GOOD | {"room": 0}, "room: 0 is less than the minimum", id="too small"),
        pytest.param(
            GOOD | {"room": ["three"]}, "room: ['three'] is not of type 'integer'", id="another type"
        ),
        pytest.param(GOOD | {"kind": "suite"}, "kind: 'suite' is not one of", id="no such value"),
        pytest.param(GOOD | {"colour": "red"}, "'colour' was unexpected", id="no such argument"),
        pytest.param(GOOD | {"guests": [{}]}, "guests.0: 'name' is a required property", id="deep within"),
        pytest.param("room three", "the arguments are not a JSON object", id="no JSON"),
        pytest.param("{'room': 0, 'day': ''}", "room: 0 is less than the minimum", id="a Python dict"),
    ],
)
def test_arguments_that_the_schema_refuses_are_wrong(arguments: JsonValue, says: str) -> None:
    found = misfit(arguments)
    assert found is not None
    assert says in found


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(GOOD, id="as it should be"),
        pytest.param(GOOD | {"kind": "double", "guests": [{"name": "Ada", "age": 3}]}, id="all of it"),
        pytest.param(GOOD | {"room": "3"}, id="a number as text"),
        pytest.param(GOOD | {"day": 20260401}, id="a text as number"),
        pytest.param(GOOD | {"note": None}, id="null for what may be left out"),
        pytest.param(GOOD | {"guests": '[{"name": "Ada"}]'}, id="JSON within JSON"),
        pytest.param("{'room': 3, 'day': '2026-04-01'}", id="a Python dict"),
    ],
)
def test_what_fits_or_was_taken_in_another_spelling_is_not_wrong(arguments: JsonValue) -> None:
    assert misfit(arguments) is None


def test_another_spelling_is_wrong_where_the_tool_refused_it() -> None:
    assert misfit(GOOD | {"room": "3"}, result="Error: room must be an integer") is not None


def test_without_a_schema_for_the_tool_nothing_is_decided() -> None:
    assert misfit({}, name="book_table") is None
    both = [{"name": "book", "parameters": BOOK}, {"name": "book", "parameters": {"type": "object"}}]
    assert reason(conversation(user("Book"), call("book", {}), tools=both)) is None
    assert reason(conversation(user("Book"), call("book", {}))) is None


@pytest.mark.parametrize("key", ["parameters", "input_schema", "inputSchema"])
def test_schemas_are_found_in_every_vendors_form(key: str) -> None:
    assert reason(conversation(user("Book"), call("book", {}), tools=[{"name": "book", key: BOOK}]))


def test_calls_by_the_user_are_not_the_agents() -> None:
    by_user = [message.model_copy(update={"role": "user"}) for message in call("book", {}, None)]
    assert reason(conversation(by_user, agent("y"), tools=[{"name": "book", "parameters": BOOK}])) is None


def test_a_choice_is_refused_only_when_every_branch_is() -> None:
    schema: Schema = {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}
    assert misfit({"c": 1}, schema) is not None
    assert misfit({"b": 1}, schema) is None
    both: Schema = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert misfit({"a": 1, "b": 1}, both) is None  # a schema that allows too much says nothing


def doubling(levels: int) -> Schema:
    """Each level applies the one below twice."""
    found: Schema = {"a0": {"type": "string"}}
    for i in range(1, levels):
        below: JsonValue = {"$ref": f"#/$defs/a{i - 1}"}
        found[f"a{i}"] = {"allOf": [below, below]}
    return found


EVIL: JsonValue = "a" * 40 + "!"


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        pytest.param(
            {"properties": {"a": {"$ref": "http://127.0.0.1:9/s.json"}}}, {"a": 1}, id="reference away"
        ),
        pytest.param({"$ref": "file:///etc/passwd"}, {"a": 1}, id="reference to a file"),
        pytest.param({"$ref": "#"}, {"a": 1}, id="reference to itself"),
        pytest.param({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": EVIL}, id="pattern without end"),
        pytest.param({"patternProperties": {"^(a+)+$": False}}, {str(EVIL): 1}, id="pattern for keys"),
        pytest.param({"propertyNames": {"pattern": "^(a+)+$"}}, {str(EVIL): 1}, id="pattern for names"),
        pytest.param({"$defs": doubling(40), "$ref": "#/$defs/a39"}, {"a": 1}, id="doubling"),
        pytest.param({"items": {"enum": list(range(9000))}}, [-1] * 3000, id="long enum"),
        pytest.param({"properties": {"a": {"multipleOf": 0.1}}}, {"a": 10**400}, id="huge number"),
        pytest.param({"type": "strange", "required": ["b"]}, {"a": 1}, id="no schema"),
    ],
)
def test_a_hostile_schema_decides_nothing_fetches_nothing_and_ends(
    schema: Schema, arguments: JsonValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    before = time.process_time()
    assert misfit(arguments, schema) is None
    assert time.process_time() - before < 5


SEARCH: Schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def searched(arguments: JsonValue, schema: Schema | None = None, name: str = "search_docs") -> str | None:
    tools = None if schema is None else [{"name": name, "parameters": schema}]
    return reason(conversation(user("Find it"), call(name, arguments, "[]"), agent("Nothing."), tools=tools))


def test_a_search_for_nothing_is_wrong_unless_a_blank_may_mean_all() -> None:
    for schema in (None, SEARCH):
        assert searched({"query": "  "}, schema) == "search_docs: query is empty."
    assert searched({"query": "", "category": "shoes"}) is None
    assert searched({"query": ""}, SEARCH | {"required": []}) is None
    assert searched({"title": ""}) is None
    assert searched({"query": ""}, name="create_survey") is None
    assert searched({"query": "shoes"}) is None


def test_the_schema_library_is_loaded_only_for_a_schema() -> None:
    code = "import sys, agent_eval.judge.rules; sys.exit('jsonschema' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
