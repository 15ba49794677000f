"""Define the base of all errors that a user can fix, and its kinds.

Each package declares its specific errors next to the code that raises them. A message names the cause, the allowed
values and the fix. The command line prints it without a traceback.
"""

PLATFORMS = "agent_eval runs on Linux and macOS. On Windows, use the Windows Subsystem for Linux."
"""The message on Windows, where the file locks and permissions of POSIX are not available."""


class AgentEvalError(Exception):
    """The base class of all errors that a user can fix. Only its subclasses are raised."""


class InputError(AgentEvalError):
    """Raised when transcripts, ratings, verdicts or arguments are invalid."""


class ConfigurationError(AgentEvalError):
    """Raised when a setting, methodology version, metric, agents.yaml, gate or cluster file is invalid."""


class NotFoundError(AgentEvalError):
    """Raised when a name, file or project does not exist."""


class JudgeError(AgentEvalError):
    """Raised when no judge model can be used. A single failed answer is an unscored judgment, not an error."""


class StorageError(AgentEvalError):
    """Raised when the store, a report or Dagster's records cannot be read or written."""


class RunError(AgentEvalError):
    """Raised when a run does not succeed."""


class ArgumentError(InputError, TypeError):
    """Raised when an argument of a Python function has an unsupported type or is empty."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"Argument `{name}` is {_shown(value)}. Expected {expected}.")


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())  # the text of a frame has several lines
    return "None" if value is None else f"{text[:80]}, of type {type(value).__name__}"
