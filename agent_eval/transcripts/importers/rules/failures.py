"""Recognise from a tool's result whether its call failed."""

import re
from collections.abc import Mapping

from pydantic import JsonValue

from agent_eval.formats.json_text import loads
from agent_eval.transcripts.importers.rules.values import listed, mapping, text_of

_MARKS = ("is_error", "isError")
"""Keys of a result that are true if its call failed (MCP: isError)."""
_WRAPPERS, _WRAPPERS_DEEP = ("Ok", "result", "output"), 3
"""Keys of a result that contain the result itself, such as those of Codex: {"result": {"Ok": {"isError": true}}}."""
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_HEAD = re.compile(
    r"(?:Error: )?(?:<returncode>|(?:Process|Command) (?:exited|failed) with (?:exit )?(?:code|status)|Exit ?code:?|Exit status:?|exit_code:)"
    r"\s*(-?\d{1,10})\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"(?:Chunk ID|Wall time|Original token count|Total output lines|Duration):? ", re.IGNORECASE
)
"""Lines of a program that may precede the exit status in the head of a result."""
_TAIL = re.compile(
    r"\[(?:The )?command (?:finished|completed|exited) with exit code (-?\d{1,10})\.?\]", re.IGNORECASE
)
_ABORTED = re.compile(r"aborted by user(?: after \d{1,9}(?:\.\d{1,9})?s)?", re.IGNORECASE)
"""The whole result of a command of Codex that the person stopped."""
_LINES = 6
_LONGEST_JSON = 1_000_000
_FAILED = frozenset({"error", "failed", "failure", "errored"})
"""States of a call or a result that say that it failed."""
_FAILED_OUTPUTS = ("error-text", "error-json", "execution-denied")
"""Types of a result of the AI SDK that say that its call failed."""


def exit_failed(content: JsonValue) -> bool | None:
    """Return whether a result states an exit status other than 0, an error or `success: false`; None if it states none."""
    if isinstance(content, str):
        text = content.strip()
        if _ABORTED.fullmatch(text):
            return True
        if not text.startswith("{") or len(text) > _LONGEST_JSON:
            code = _in_text(text)
            return None if code is None else code != 0
        try:
            content = loads(text)
        except (ValueError, RecursionError):
            return None
    fields = mapping(content)
    code = _code(fields)
    if code:
        return True
    if fields.get("success") is False or _is_marked(fields) or (code is None and _is_error(fields)):
        return True
    return None if code is None else False


def _is_marked(fields: Mapping[str, JsonValue], depth: int = 0) -> bool:
    """Return whether a result, or the result that it wraps, says that the call failed: `isError`, or a value of `Err`."""
    if fields.get("Err") is not None or any(fields.get(key) is True for key in _MARKS):
        return True
    if depth == _WRAPPERS_DEEP:
        return False
    wrapped = [value for key in _WRAPPERS if isinstance(value := fields.get(key), dict)]
    return any(_is_marked(value, depth + 1) for value in wrapped)


def _is_error(fields: Mapping[str, JsonValue]) -> bool:
    return fields.get("error") not in (None, False, "", {}, [])


def _code(fields: Mapping[str, JsonValue]) -> int | None:
    for place in (fields, mapping(fields.get("metadata"))):
        for key in _CODES:
            code = place.get(key)
            if isinstance(code, int) and not isinstance(code, bool):
                return code
    return None


def _in_text(text: str) -> int | None:
    """Return the exit status in the first or the last lines of a result; text of the command is not searched."""
    for line in text.split("\n", _LINES)[:_LINES]:
        if match := _HEAD.match(line):
            return int(match[1])
        if not _BESIDE.match(line):
            break
    tail = next((m for line in text.rsplit("\n", _LINES)[-_LINES:] if (m := _TAIL.match(line))), None)
    return int(tail[1]) if tail else None


def failed(value: Mapping[str, JsonValue]) -> bool | None:
    """Return whether a call or a result says that it failed, by its error or its state; None if it says nothing."""
    flag = next((value[key] for key in ("is_error", "isError") if isinstance(value.get(key), bool)), None)
    if isinstance(flag, bool):
        return flag
    error = value.get("error")
    if isinstance(error, bool):
        return error
    if value.get("success") is False:
        return True
    state = value.get("status", value.get("state"))
    is_failed = isinstance(state, str) and state.lower() in _FAILED
    is_failed = is_failed or value.get("type") in _FAILED_OUTPUTS
    return True if _is_error(value) or is_failed else None


def error_said(value: Mapping[str, JsonValue]) -> str | None:
    """Return the text of an error beside a result, or None."""
    error = value.get("error")
    if isinstance(error, dict):
        error_message = next(
            (text for key in ("message", "detail", "text") if isinstance(text := error.get(key), str)), None
        )
        blocks = (mapping(block).get("text") for block in listed(error.get("content")))  # of MCP
        return error_message or "\n".join(text for text in blocks if isinstance(text, str)) or text_of(error)
    return error if isinstance(error, str) and error else None


def with_error(content: object, error: str | None) -> object:
    """Return a result with the text of the error that its source states beside it."""
    if not error or (isinstance(content, str) and error in content):
        return content
    return f"{content}\n{error}" if isinstance(content, str) and content.strip() else content or error
