"""The errors that a user can cause and fix, in three levels: the base, the kinds here, and the specific errors.

Each package declares its specific errors beside the code that raises them; a message names the cause, the allowed
values and the fix. The command line prints the message without a traceback.
"""

PLATFORMS = "agent_eval runs on Linux and macOS. On Windows, use the Windows Subsystem for Linux."
"""The message on Windows: locks and permissions of files are those of POSIX."""


class AgentEvalError(Exception):
    """The base of all errors that the user can fix. Raised as one of its kinds, never itself."""


class InputError(AgentEvalError):
    """Raised when given data cannot be used: transcripts, ratings, verdicts, arguments."""


class ConfigurationError(AgentEvalError):
    """Raised when a setting, methodology version, metric, agents.yaml, gate or cluster file is invalid."""


class NotFoundError(AgentEvalError):
    """Raised when a name, file or project does not exist."""


class JudgeError(AgentEvalError):
    """Raised when no judge model can be asked; a single lost answer is an unscored judgment, not an error."""


class StorageError(AgentEvalError):
    """Raised when the store, a report or Dagster's records cannot be read or written."""


class RunError(AgentEvalError):
    """Raised when a run does not succeed."""


class ArgumentError(InputError, TypeError):
    """Raised when an argument of a Python function has a type that the function does not take."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"Argument `{name}` is {_shown(value)}. Expected {expected}.")


def _shown(value: object) -> str:
    return "None" if value is None else f"{repr(value)[:80]}, of type {type(value).__name__}"
