"""Define the errors that prevent the import of a whole file."""

from collections.abc import Iterable
from pathlib import Path

from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.files import SLUG_FORM


def unknown_format(name: str, formats: Iterable[str]) -> NotFoundError:
    """Return the error if the format is unknown."""
    return NotFoundError(f"Format {name!r} is not known. Formats: {', '.join(sorted(formats))}.")


def invalid_agent_id(agent_id: str) -> InputError:
    """Return the error if a string cannot be used as an agent's folder name and partition key."""
    return InputError(f"Agent id {agent_id[:140]!r} cannot be used. Allowed: {SLUG_FORM}. Choose another id.")


def invalid_session_id(session_id: str) -> InputError:
    """Return the error if a string cannot be used as a session's folder name."""
    return InputError(
        f"Session id {session_id[:140]!r} cannot be used. Allowed: {SLUG_FORM}. Choose another id."
    )


def no_transcripts(path: Path, reason: str) -> NotFoundError:
    """Return the error if the path has no file to read."""
    return NotFoundError(f"{path}: {reason}. Specify a transcript file (plain or gzipped).")


def session_exists(session_id: str, agent_id: str, reason: str) -> InputError:
    """Return the error if the folder of a session was not imported from the same file."""
    return InputError(
        f"Session {session_id!r} of agent {agent_id!r} already exists and was not changed: {reason}. "
        "Import it under another session id."
    )
