"""Check the arguments of the functions in `api` before data is read, sent to a judge or stored."""

import inspect
import os
from collections.abc import Iterable

import polars as pl

from agent_eval.commands.estimate import unusable_judge
from agent_eval.errors import ArgumentError, InvalidValueError
from agent_eval.judge.llm.client import problem_of


def _invalid_trials(problem: str) -> InvalidValueError:
    return InvalidValueError(
        f"The frame of trials cannot be used: {problem}. Expected the columns `task_id` and `is_correct`, with true, false "
        "or null. To use rewards, first decide which reward counts as a success."
    )


def require(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Check the type of an argument.

    Raises:
        ArgumentError: If the value has none of the types.
    """
    if not isinstance(value, kinds):
        raise ArgumentError(name, value, expected)


def path_of(name: str, value: object, expected: str) -> str:
    """Return a path as text.

    Raises:
        ArgumentError: If the value is not a path, is empty or contains a NUL character.
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or not path or "\0" in path:
        raise ArgumentError(name, value, expected)
    return path


def check_id(name: str, value: object, what: str) -> None:
    """Check that an argument is a non-empty string.

    Raises:
        ArgumentError: If the value is not a string or is empty.
    """
    if not isinstance(value, str) or not value:
        raise ArgumentError(name, value, what)


def names_of(name: str, value: object) -> list[str]:
    """Return the distinct names of a list of names, or of a single name.

    Raises:
        ArgumentError: If a name is not a string.
    """
    listed = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    names = [each for each in listed if isinstance(each, str)]
    if len(names) < len(listed):
        raise ArgumentError(name, value, "a list of names")
    return list(dict.fromkeys(names))


def check_judge(judge: object) -> None:
    """Check that a judge is either a model that can be called or a function of two arguments.

    Raises:
        ArgumentError: If the judge is neither.
        JudgeError: If the API key of the model is missing or the model is unknown.
    """
    if isinstance(judge, str):
        if problem := problem_of(judge) if judge.strip() else "The name of the judge model is empty":
            raise unusable_judge([problem])
        return
    if not callable(judge):
        raise ArgumentError("judge", judge, "the name of a model, or a function")
    try:
        inspect.signature(judge).bind("metric", "prompt")
    except TypeError as error:
        expected = f"a function of two arguments, a metric's name and the prompt ({error})"
        raise ArgumentError("judge", judge, expected) from error
    except ValueError:  # some built-in functions have no signature
        return


def check_trials(trials: object) -> None:
    """Check a frame of trials.

    Raises:
        ArgumentError: If `trials` is not a polars frame.
        InvalidValueError: If a column is missing, or `is_correct` has values other than true, false, 0, 1 and null.
    """
    if not isinstance(trials, pl.DataFrame):
        raise ArgumentError("trials", trials, "a polars frame with `task_id` and `is_correct`")
    if missing := {"task_id", "is_correct"} - {*trials.columns}:
        raise _invalid_trials(f"the column {sorted(missing)[0]!r} is missing")
    values = trials["is_correct"].drop_nulls()
    if values.dtype not in (pl.Boolean, pl.Null) and not (
        values.dtype.is_numeric() and values.cast(pl.Float64).is_in([0.0, 1.0]).all()
    ):
        raise _invalid_trials(f"`is_correct` is {values.dtype} and has values other than 0 and 1")
