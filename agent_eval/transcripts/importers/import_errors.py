"""Define the errors that prevent the import of a whole file."""

from collections.abc import Iterable
from pathlib import Path

from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.files import SLUG_FORM


class UnknownFormatError(NotFoundError):
    """Raised when the format is unknown."""

    def __init__(self, name: str, formats: Iterable[str]) -> None:
        super().__init__(f"Format {name!r} is not known. Formats: {', '.join(sorted(formats))}.")


class InvalidAgentIdError(InputError):
    """Raised when a string cannot be used as an agent's folder name and partition key."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            f"Agent id {agent_id[:140]!r} cannot be used. Allowed: {SLUG_FORM}. Choose another id."
        )


class InvalidSessionIdError(InputError):
    """Raised when a string cannot be used as a session's folder name."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session id {session_id[:140]!r} cannot be used. Allowed: {SLUG_FORM}. Choose another id."
        )


class NoTranscriptsError(NotFoundError):
    """Raised when the path has no file to read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}. Specify a transcript file (plain or gzipped).")


class SessionExistsError(InputError):
    """Raised when the session's folder contains files that were not imported from this file."""

    def __init__(self, session_id: str, agent_id: str, reason: str) -> None:
        super().__init__(
            f"Session {session_id!r} of agent {agent_id!r} already exists and was not changed: {reason}. "
            "Import it under another session id."
        )
