"""Detect wrong arguments: a call that violates the JSON schema of its tool, or a search with an empty query.

Schemas are part of the transcripts and therefore untrusted: nothing is fetched, patterns (whose evaluation might not
terminate) are ignored, references are resolved only within the schema, and the work is limited. If a schema cannot be
applied under these restrictions, the check abstains.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from agent_eval.judge.evidence import call_text
from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.finding import (
    RuleFinding,
    calls_of,
    cut,
    decides,
    may_have_failed,
    word_set,
    words_of_name,
)
from agent_eval.metrics.builtin.tool_call_behavior_failure import TOOL_CALL_BEHAVIOR_FAILURE, WRONG_ARGUMENTS
from agent_eval.transcripts.models import Conversation, ToolCall

MAX_SCHEMA = 100_000  # characters
MAX_STEPS = 10_000  # maximum keywords and parts of keywords in one check, which takes well under a second
_NOT_RUN = (
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")
_QUERY = word_set("query q search keyword keywords question term search_query search_term query_text")
_SEARCHING = word_set("search query find lookup look retrieve google grep")

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


class _TooMuchError(Exception):
    """Raised when a check exceeds MAX_STEPS."""


_steps: ContextVar[int] = ContextVar("steps", default=0)


@decides(TOOL_CALL_BEHAVIOR_FAILURE, order=20)
def wrong_arguments(question: Question) -> RuleFinding | None:
    """Return a finding if a call violates the schema of its tool, or a search has an empty query."""
    for tool_call in calls_of(question):
        tool = _tool(question.conversations[0], tool_call.call.name)
        reason = _misfit(tool, tool_call.call) or _empty_query(tool, tool_call.call)
        if reason:
            return RuleFinding(
                WRONG_ARGUMENTS,
                f"{tool_call.call.name}: {reason}.",
                call_text(tool_call.call.name, tool_call.call.arguments),
            )
    return None


def _tool(conversation: Conversation, name: str) -> Mapping[str, JsonValue] | None:
    """Return the schema of the tool with the given name, or None if there is no such tool or several that differ."""
    schemas = {json.dumps(s, sort_keys=True): s for t in conversation.tools or () if (s := _schema(t, name))}
    return next(iter(schemas.values())) if len(schemas) == 1 else None


def _schema(tool: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue] | None:
    """Return the argument schema of a tool in the format of OpenAI, Anthropic or MCP.

    The result is None if the tool has another name or no schema.
    """
    inner = tool.get("function")
    described = inner if isinstance(inner, dict) else tool
    if described.get("name") != name:
        return None
    candidates = (described.get(key) for key in _SCHEMA_KEYS)
    return next((schema for schema in candidates if isinstance(schema, dict)), None)


# Schema


def _misfit(schema: Mapping[str, JsonValue] | None, call: ToolCall) -> str | None:
    """Return why the arguments violate the schema, or None if they do not or the result is uncertain."""
    if schema is None:
        return None
    if isinstance(call.arguments, str):
        is_object = schema.get("type") == "object"
        return "the arguments are not a JSON object" if is_object and call.arguments.strip() else None
    validator = _validator(json.dumps(schema, sort_keys=True))
    if validator is None:
        return None
    token = _steps.set(0)
    try:
        errors = list(validator.iter_errors(call.arguments))
    except Exception:  # a malicious schema can raise any error; abstain
        return None
    finally:
        _steps.reset(token)
    is_refused = may_have_failed(call)
    sure = [error for error in errors if _is_sure(error, is_refused)]
    return _told(sure[0]) if sure else None


def _step(check: Any) -> Any:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> "Iterator[ValidationError]":
        _steps.set(_steps.get() + 1 + (len(value) if isinstance(value, list | dict) else 0))
        if _steps.get() > MAX_STEPS:
            raise _TooMuchError
        return check(validator, value, instance, schema) or iter(())

    return counted


@cache
def _bounded() -> Any:
    """Return a JSON Schema validator without the keywords that might not terminate. Imports the library lazily."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    checks = {k: _step(check) for k, check in Draft202012Validator.VALIDATORS.items() if k not in _NOT_RUN}
    return extend(Draft202012Validator, checks | dict.fromkeys(_NOT_RUN))


@lru_cache(maxsize=1024)
def _validator(text: str) -> Any:
    """Return a validator for a schema, or None if the schema is invalid, too large or uses `patternProperties`.

    The validator does not fetch references.
    """
    from jsonschema import FormatChecker
    from referencing import Registry

    if len(text) > MAX_SCHEMA or '"patternProperties"' in text:
        return None
    schema = json.loads(text)
    try:
        _bounded().check_schema(schema, format_checker=FormatChecker(formats=()))
    except Exception:  # invalid, or nested too deeply to be checked
        return None
    return _bounded()(schema, registry=Registry())


def _is_sure(error: "ValidationError", is_refused: bool) -> bool:
    """Return whether a violation is certainly the agent's fault.

    Many tools accept a scalar of another type, or null for an optional value, so such a violation counts only if the
    call failed. A value that matches two branches of `oneOf` is a fault of the schema.
    """
    if error.validator in ("anyOf", "oneOf"):
        branches: dict[object, list[ValidationError]] = {}
        for part in error.context or ():
            branches.setdefault(part.schema_path[0], []).append(part)
        return bool(branches) and all(any(_is_sure(e, is_refused) for e in es) for es in branches.values())
    if error.validator in ("type", "enum", "const") and not is_refused:
        return not (error.instance is None or _is_near(error.instance, _types(error)))
    return error.validator in _SURE


_SURE = word_set(
    "type enum const required additionalProperties minimum maximum exclusiveMinimum exclusiveMaximum "
    "minLength maxLength minItems maxItems dependentRequired"
)


def _types(error: "ValidationError") -> Sequence[str]:
    if error.validator == "type":
        type_names = error.validator_value
        return [type_names] if isinstance(type_names, str) else list(type_names)
    return ["string"]


def _is_near(instance: object, types: Iterable[str]) -> bool:
    """Return whether a value has an equivalent of an expected type, such as 3 for '3' or true for 'true'."""
    if isinstance(instance, str):
        try:
            read = json.loads(instance)
        except (ValueError, RecursionError):
            return False
        return any(_bounded().TYPE_CHECKER.is_type(read, t) for t in types if t != "string")
    return isinstance(instance, bool | int | float) and "string" in types


def _told(error: "ValidationError") -> str:
    at = ".".join(str(part) for part in error.absolute_path)
    return cut(" ".join(f"{at + ': ' if at else ''}{error.message}".split()))


# Empty query


def _empty_query(schema: Mapping[str, JsonValue] | None, call: ToolCall) -> str | None:
    """Return a description of an empty search query, or None.

    A query that the schema makes optional is not reported, because an empty one may mean 'all'.
    """
    if not isinstance(call.arguments, dict) or not _SEARCHING & set(words_of_name(call.name)):
        return None
    blank = [name for name, value in call.arguments.items() if isinstance(value, str) and not value.strip()]
    others = [
        v for name, v in call.arguments.items() if name not in blank and isinstance(v, str | list | dict)
    ]
    query = next((name for name in blank if name.lower() in _QUERY), None)
    if query is None or any(others):
        return None
    if schema is not None:
        required = schema.get("required")
        if not isinstance(required, list) or query not in required:
            return None
    return f"{query} is empty"
