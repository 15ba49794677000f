"""Define the base classes of all errors that a user can fix.

Each package defines its own errors next to the code that raises them. A message states the cause, the allowed
values and the fix. The command line prints the message without a traceback.
"""

PLATFORMS = "agent_eval runs on Linux and macOS. On Windows, use the Windows Subsystem for Linux."
"""Error message on Windows, which lacks POSIX file locks and permissions."""


class AgentEvalError(Exception):
    """Base class of all errors that a user can fix. Only its subclasses are raised."""


class InputError(AgentEvalError):
    """Raised when transcripts, ratings, verdicts or arguments are invalid."""


class ConfigurationError(AgentEvalError):
    """Raised when a setting, methodology version, metric, agents.yaml, gate or cluster file is invalid."""


class NotFoundError(AgentEvalError):
    """Raised when a name, file or project does not exist."""


class JudgeError(AgentEvalError):
    """Raised when no judge model can be used. A single failed answer does not raise: its judgment is unscored."""


class StorageError(AgentEvalError):
    """Raised when the store, a report or Dagster's records cannot be read or written."""


class RunError(AgentEvalError):
    """Raised when a run fails."""


class InvalidValueError(InputError, ValueError):
    """Raised when an argument of a Python function has a value that is not allowed."""


class ArgumentError(InputError, TypeError):
    """Raised when an argument of a Python function has an unsupported type or is empty."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"Argument `{name}` is {_shown(value)}. Expected {expected}.")


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())  # the repr of a data frame has several lines
    return "None" if value is None else f"{text[:80]}, of type {type(value).__name__}"
