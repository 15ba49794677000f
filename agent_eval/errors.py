"""Define the base classes of all errors that a user can fix.

A class is a kind of error, defined next to the code that raises it; docs/reference/errors.md lists all kinds. The
message, at its `raise`, states the cause, the allowed values and the fix. The command line prints it without a
traceback.
"""

import re
from typing import ClassVar

PLATFORMS = "agent_eval runs on Linux and macOS. On Windows, use the Windows Subsystem for Linux."
"""Error message on Windows, which lacks POSIX file locks and permissions."""


class AgentEvalError(Exception):
    """Base class of all errors that a user can fix. Only its subclasses are raised.

    `code` is a class's name without `Error`, such as 'busy-store'. Its docstring states the cause and the fix.
    """

    code: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.code = "-".join(re.findall("[A-Z][a-z]+", cls.__name__.removesuffix("Error"))).lower()


class InputError(AgentEvalError):
    """Raised when transcripts, ratings, verdicts or arguments are invalid.

    Fix: Correct the file, row or argument that the message names.
    """


class ConfigurationError(AgentEvalError):
    """Raised when a setting, methodology version, metric, agents.yaml, gate or cluster file is invalid.

    Fix: Correct the file and key that the message names.
    """


class NotFoundError(AgentEvalError):
    """Raised when a name, file or project does not exist.

    Fix: Use one of the names or paths that the message lists.
    """


class JudgeError(AgentEvalError):
    """Raised when no judge model can be used.

    Fix: Set the model, its API key or its price as the message says.
    """


class StorageError(AgentEvalError):
    """Raised when the store, a report or Dagster's records cannot be read or written.

    Fix: Free space, or correct the path or permission that the message names, and run again.
    """


class RunError(AgentEvalError):
    """Raised when a run fails.

    Fix: Read the run's log in the Dagster UI, correct the cause and run again; finished work is kept.
    """


class InvalidValueError(InputError, ValueError):
    """Raised when an argument of a Python function has a value that is not allowed.

    Fix: Pass a value that the message allows.
    """


class ArgumentError(InputError, TypeError):
    """Raised when an argument of a Python function has an unsupported type or is empty.

    Fix: Pass the type that the message expects.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"Argument `{name}` is {_shown(value)}. Expected {expected}.")


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())  # the repr of a data frame has several lines
    return "None" if value is None else f"{text[:80]}, of type {type(value).__name__}"
