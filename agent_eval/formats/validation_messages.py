"""Format a validation error as a single line with the key, its value and the allowed values."""

from collections.abc import Iterator, Mapping
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

LONGEST = 300
_SHOWN = 40
_WANTED = {
    "string_type": "a text (in YAML, put it in quotes)",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list",
    "date_from_datetime_parsing": "a date such as 2026-04-09",
    "date_from_datetime_inexact": "a date such as 2026-04-09",
    "date_parsing": "a date such as 2026-04-09",
    "date_type": "a date such as 2026-04-09",
}

_FORMS = {
    "^[a-z0-9]": "lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit",
    "^https?:": "an address that begins with http:// or https:// and contains neither spaces nor @",
    "^[A-Za-z_]": "a function, as module:name",
    "^[A-Za-z0-9_.-]": "1 to 64 letters, digits, '.', '_' and '-'",
}
"""What a pattern allows, by its beginning."""
_LIMITS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "string_too_short": ("min_length", "a text of at least {} character(s)"),
    "string_too_long": ("max_length", "a text of at most {} characters"),
    "too_long": ("max_length", "at most {} entries"),
}


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem in at most 300 characters, with the number of additional problems."""
    return first_problem(error, model)[1]


def first_problem(error: ValidationError, model: type[BaseModel]) -> tuple[tuple[int | str, ...], str]:
    """Return the location of the first problem, and the text of `explain`."""
    problems = error.errors(include_url=False)
    # A list with an invalid message is also reported as too short, which is redundant.
    real = [p for p in problems if p["type"] != "too_short" or len(problems) == 1] or problems
    first = real[0]
    paths = {_path(p["loc"]) for p in real} - {_path(first["loc"])}
    more = f" (and {len(paths)} more)" if paths else ""
    return first["loc"], shorten(_sentence(first, model) + more)


def problems(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield every problem with its location, in at most 300 characters each."""
    for problem in error.errors(include_url=False):
        yield problem["loc"], shorten(_sentence(problem, model))


def shorten(text: str) -> str:
    """Return the text on one line, truncated to 300 characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _sentence(problem: ErrorDetails, model: type[BaseModel]) -> str:
    loc, kind = problem["loc"], problem["type"]
    at = _path(loc)
    context: Mapping[str, object] = problem.get("ctx", {})
    if loc[:1] == ("methodology_versions",) and kind != "missing":
        return "methodology_versions must be 'any' or a list of texts such as ['1.2.0', '1.3.0']"
    if kind == "missing":
        return f"{at} is missing"
    if kind == "extra_forbidden":
        return f"unknown key {at}; allowed: {', '.join(_allowed(loc, model))}"
    if kind == "value_error":
        return f"{at}: {context.get('error')}" if at else str(context.get("error"))
    if kind == "too_short":
        least, n = int(str(context.get("min_length", 1))), int(str(context.get("actual_length", 0)))
        needed = "one entry is" if least == 1 else f"{least} entries are"
        return f"{at} {f'has {n}' if n else 'is empty'}; at least {needed} needed"
    allowed_values = _WANTED.get(kind) or _limit(kind, context) or context.get("expected") or problem["msg"]
    is_key = loc[-1:] == ("[key]",)
    offending_value = repr(loc[-2]) if is_key else _show(problem["input"])
    return f"{at}{' (the key)' if is_key else ''} is {offending_value}; allowed: {allowed_values}"


def _limit(kind: str, context: Mapping[str, object]) -> str | None:
    """Return what a limit or a pattern allows, or None for other kinds of problems."""
    if kind == "string_pattern_mismatch":
        pattern = str(context.get("pattern"))
        return next(
            (text for start, text in _FORMS.items() if pattern.startswith(start)), f"the form {pattern}"
        )
    name, phrase = _LIMITS.get(kind, ("", ""))
    return phrase.format(context[name]) if name in context else None


def _path(loc: tuple[int | str, ...]) -> str:
    """Format a location as a path such as `messages[3].role`, without pydantic's parts such as `tuple[str, ...]`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "[" not in part:
            text += f".{part[:_SHOWN]}" if text else part[:_SHOWN]
    return text


def _allowed(loc: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """Return the keys of the model that contains the last key of `loc`, searching from the outermost model."""
    holder = model
    for part in loc[:-1]:
        if isinstance(part, str) and (field := holder.model_fields.get(part)):
            holder = next(_models_in(field.annotation), holder)
    return list(holder.model_fields)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _show(value: object) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return "a huge number"
    if isinstance(value, int | float):
        return str(value)
    return {"dict": "an object", "list": "a list"}.get(type(value).__name__, type(value).__name__)
