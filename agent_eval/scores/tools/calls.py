"""Read tool calls from plain lists and compare them argument by argument.

An expected call can define how it is compared:

- `"match": "exact" | "partial" | "ignore"` applies to the whole call;
- `"compare": {argument: "ignore" | "subset" | {"regex": …} | {"tolerance": …}}` applies to single arguments;
- `"compare_args": [names]` lists the arguments that count (all if null or omitted);
- `"requestor": "user"` marks a call that the user makes.

Other arguments are compared as JSON: 1 equals 1.0, but does not equal true.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import polars as pl
from polars.exceptions import ComputeError

from agent_eval.errors import InputError
from agent_eval.formats.hashing import canonical
from agent_eval.formats.python_literal import NOTE, read_dict

Match = Literal["exact", "partial", "ignore"]
Requestor = Literal["assistant", "user"]
LONGEST_TEXT = 10_000  # maximum characters for a regex; a longer text does not match
_ROUNDING = 1e-12


class MalformedCallError(InputError, ValueError):
    """Raised when a call cannot be read, or an expected call has an invalid comparison.

    Fix: Correct the call in the transcript or in the expected calls.
    """


@dataclass(frozen=True)
class Call:
    """Hold one call that was made."""

    name: str
    arguments: Mapping[str, object]  # plain JSON, whole floats as integers
    texts: Mapping[str, bytes]  # the arguments as canonical JSON
    note: str | None = field(default=None, kw_only=True)  # how the arguments were read, if they were not JSON


@dataclass(frozen=True)
class ExpectedCall(Call):
    """Hold one expected call and how it is compared."""

    match: Match | None = None  # None if not specified
    compare: Mapping[str, object] = field(default_factory=dict[str, object])
    compare_args: tuple[str, ...] | None = None  # None if all arguments count
    requestor: Requestor = "assistant"

    @property
    def asked(self) -> tuple[str, ...]:
        """Return the names of the expected arguments that are compared."""
        if self.match == "ignore":
            return ()
        return tuple(
            name for name in self.arguments if self._counts(name) and self.compare.get(name) != "ignore"
        )

    @property
    def weight(self) -> int:
        """Return the number of compared arguments; a call without any has the weight of one argument."""
        return max(1, len(self.asked))

    def is_right(self, name: str, call: Call) -> bool:
        """Return whether the call has the expected value for this argument."""
        return name in call.texts and _agree(call, self, name)

    def extra(self, call: Call) -> tuple[str, ...]:
        """Return the names of the call's arguments that count but were not expected."""
        return tuple(name for name in call.arguments if self._counts(name) and name not in self.arguments)

    def _counts(self, name: str) -> bool:
        return self.compare_args is None or name in self.compare_args

    def n_right(self, call: Call) -> int:
        """Return the number of correct arguments, minus the number of extra ones if match is exact; at least 0.

        If no argument is compared, the call itself counts as one correct argument.
        """
        right = sum(self.is_right(name, call) for name in self.asked) if self.asked else 1
        return max(0, right - len(self.extra(call))) if self.match == "exact" else right

    def fits(self, call: Call) -> bool:
        """Return whether tool and arguments match; the default is exact if arguments are given, else ignore."""
        if call.name != self.name:
            return False
        match = self.match or ("exact" if self.arguments else "ignore")
        if match == "ignore":
            return True
        if any(not self.is_right(name, call) for name in self.asked):
            return False
        return match == "partial" or not self.extra(call)


def read_calls(calls: object, side: str = "used") -> list[Call]:
    """Read calls of the form `{"name": …, "arguments": {…}}` in order.

    The arguments can be an object, JSON text, null or missing. The text of a Python dict is also read, and noted
    on the call.

    Raises:
        MalformedCallError: If a call cannot be read; the message has its number and the reason.
    """
    return [_call(call, where) for call, where in _listed(calls, side)]


def read_expected(calls: object, side: str = "expected") -> list[ExpectedCall]:
    """Read expected calls and their comparisons in order.

    Raises:
        MalformedCallError: If a call cannot be read or a comparison is invalid.
    """
    return [_expected(call, where) for call, where in _listed(calls, side)]


def _listed(calls: object, side: str) -> list[tuple[object, str]]:
    if not isinstance(calls, list | tuple):
        raise MalformedCallError(f"{side} calls are a {type(calls).__name__}, expected a list")
    return [(call, f"{side} call {i}") for i, call in enumerate(calls)]


def _call(call: object, where: str) -> Call:
    if not isinstance(call, Mapping):
        raise MalformedCallError(f"{where} is a {type(call).__name__}, expected an object with a name")
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise MalformedCallError(f"{where} has no name")
    where = f"{where} ({name})"
    arguments, note = call.get("arguments"), None
    try:
        if isinstance(arguments, str):
            arguments, note = _read(arguments)
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, Mapping):
            raise MalformedCallError(f"{where}: arguments are not a JSON object")
        plain = {str(key): _plain(value) for key, value in arguments.items()}
        texts = {key: canonical(value) for key, value in plain.items()}
        return Call(name, plain, texts, note=note and f"{where}: arguments {note}")
    except (json.JSONDecodeError, TypeError) as error:
        raise MalformedCallError(f"{where}: arguments are not JSON: {error}") from error
    except RecursionError as error:
        raise MalformedCallError(f"{where}: arguments are nested too deeply") from error


def _read(text: str) -> tuple[object, str | None]:
    """Parse arguments given as text, with a note if they are a Python dict rather than JSON.

    A JSON string that contains a dict is parsed again.
    """
    if not text.strip():
        return {}, None
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        if (read := read_dict(text)) is None:
            raise
        return read, NOTE
    read = read_dict(value) if isinstance(value, str) else None
    return (value, None) if read is None else (read, NOTE)


def _expected(call: object, where: str) -> ExpectedCall:
    read = _call(call, where)
    fields = call if isinstance(call, Mapping) else {}
    match, compare = fields.get("match"), fields.get("compare")
    where = f"{where} ({read.name})"
    if match is not None and match not in get_args(Match):
        raise MalformedCallError(f"{where}: match is {match!r}. Allowed: {', '.join(get_args(Match))}")
    if compare is not None and not isinstance(compare, Mapping):
        raise MalformedCallError(f"{where}: compare is a {type(compare).__name__}, expected an object")
    for name, how in (compare or {}).items():
        _check_comparison(f"{where}: compare.{name}", how)
    return ExpectedCall(
        read.name,
        read.arguments,
        read.texts,
        match,
        dict(compare or {}),
        _compare_args(fields, where),
        _requestor(fields, where),
        note=read.note,
    )


def _compare_args(call: Mapping[str, object], where: str) -> tuple[str, ...] | None:
    """Return the names of the arguments that count; None if all of them count."""
    names = call.get("compare_args")
    if names is None:
        return None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise MalformedCallError(f"{where}: compare_args is {names!r}, expected a list of argument names")
    return tuple(names)


def _requestor(call: Mapping[str, object], where: str) -> Requestor:
    requestor = call.get("requestor") or "assistant"
    if requestor not in ("assistant", "user"):
        raise MalformedCallError(f"{where}: requestor is {requestor!r}. Allowed: assistant, user")
    return requestor


def _check_comparison(where: str, how: object) -> None:
    if how in ("ignore", "subset"):
        return
    if isinstance(how, Mapping) and len(how) == 1:
        if isinstance(pattern := how.get("regex"), str):
            try:
                pl.Series([""]).str.contains(pattern)  # `_matches` adds a group: "a)|(b"
                _matches(pattern, "")
            except ComputeError as error:
                why = " ".join(str(error).split())[:300]
                raise MalformedCallError(
                    f"{where}: {pattern!r} is not a supported regex (look-around and backreferences are not allowed): {why}"
                ) from error
            return
        tolerance = how.get("tolerance")
        if _is_number(tolerance) and math.isfinite(tolerance) and tolerance >= 0:  # type: ignore[arg-type,operator]
            return
    raise MalformedCallError(
        f"{where} is {how!r}. Allowed: 'ignore', 'subset', {{'regex': text}}, {{'tolerance': number ≥ 0}}"
    )


def _agree(call: Call, expected: ExpectedCall, name: str) -> bool:
    how = expected.compare.get(name)
    used, expected_value = call.arguments[name], expected.arguments[name]
    if how == "subset":
        return _is_within(expected_value, used)
    if isinstance(how, Mapping) and "regex" in how:
        text = used if isinstance(used, str) else call.texts[name].decode()
        return len(text) <= LONGEST_TEXT and _matches(how["regex"], text)
    if isinstance(how, Mapping) and isinstance(used, int | float) and isinstance(expected_value, int | float):
        is_near = abs(used - expected_value) <= how["tolerance"] * (1 + _ROUNDING) + _ROUNDING
        return is_near and _is_number(used) and _is_number(expected_value)
    return call.texts[name] == expected.texts[name]


def _matches(pattern: str, text: str) -> bool:
    """Return whether a regex matches the whole text.

    The Rust crate `regex` takes time linear in the text's length, because patterns may be malicious.

    Raises:
        ComputeError: If the pattern is not a regex of this crate.
    """
    return bool(pl.Series([text]).str.contains(rf"\A(?:{pattern})\z").item())


def _is_within(expected_value: object, used: object) -> bool:
    """Return whether every expected key and list member is present; other values must be equal as JSON."""
    if isinstance(expected_value, Mapping) and isinstance(used, Mapping):
        return all(key in used and _is_within(value, used[key]) for key, value in expected_value.items())
    if isinstance(expected_value, list) and isinstance(used, list):
        left = [canonical(member) for member in used]
        for member in map(canonical, expected_value):
            if member not in left:
                return False
            left.remove(member)
        return True
    return canonical(expected_value) == canonical(used)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: object) -> object:
    """Convert whole floats to integers, so that 1 and 1.0 have the same JSON text; booleans are unchanged."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
