"""Import files that arrive by themselves: each complete file once, and again if it changes.

`inbox.json` in the data folder contains what was done with each file.
"""

import glob
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agent_eval.formats.atomic_files import write_atomically
from agent_eval.transcripts.agents import add_agent
from agent_eval.transcripts.importers.auto import import_files
from agent_eval.transcripts.importers.inputs import InputFile
from agent_eval.transcripts.models import Agent

STATE = "inbox.json"
QUIET_S = 10
"""Seconds without a change after which a file counts as complete."""
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".swp", "~")


@dataclass(frozen=True)
class Inbox:
    """Describe the files of an agent: an absolute pattern, and the name of a format or `auto`."""

    pattern: str
    agent_id: str
    format_name: str = "auto"


@dataclass(frozen=True)
class Arrival:
    """Hold what was done with one file. `problems` names what was refused or not read; empty if all was read."""

    file: str
    version: str  # size and time of change
    agent_id: str
    session_id: str | None
    n_imported: int
    problems: tuple[str, ...]


def arrivals(folder: Path) -> list[Arrival]:
    """Return what was done with each file so far, by name; empty if the state is missing or cannot be read."""
    try:
        values = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return [Arrival(**{**value, "problems": tuple(value["problems"])}) for value in values]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def take_in(inboxes: Iterable[Inbox], data: Path, *, now: float | None = None) -> list[Arrival]:
    """Import the complete files that are new or changed; return what was done with each of them.

    Args:
        inboxes: The inboxes.
        data: The project's data folder.
        now: Seconds since 1970; default: the time of the clock.
    """
    by_file = {(one.agent_id, one.file): one for one in arrivals(data)}
    done: list[Arrival] = []
    for inbox in inboxes:
        for path, version in _complete(inbox.pattern, time.time() if now is None else now):
            before = by_file.get((inbox.agent_id, str(path)))
            if before is None or before.version != version:
                done.append(_imported(inbox, path, version, data))
                by_file[inbox.agent_id, str(path)] = done[-1]
    if done:
        text = json.dumps([asdict(by_file[key]) for key in sorted(by_file)], ensure_ascii=False, indent=1)
        write_atomically(data / STATE, text + "\n")
    return done


def _complete(pattern: str, now: float) -> Iterator[tuple[Path, str]]:
    for name in sorted(glob.glob(pattern, recursive=True)):  # noqa: PTH207 - pathlib takes no absolute patterns
        path = Path(name)
        try:
            state = path.stat()
        except OSError:
            continue
        is_hidden = path.name.startswith(".") or path.name.endswith(_UNFINISHED)
        if path.is_file() and not is_hidden and now - state.st_mtime >= QUIET_S:
            yield Path(os.path.realpath(path)), f"{state.st_size} {state.st_mtime_ns}"


def _imported(inbox: Inbox, path: Path, version: str, data: Path) -> Arrival:
    files = [InputFile(path.name, path)]
    reports = import_files(
        inbox.format_name, files, sessions_folder=data / "sessions", agent_id=inbox.agent_id
    )
    (one,) = reports
    if one.report is None:
        return Arrival(str(path), version, inbox.agent_id, None, 0, (one.reason,))
    n = one.report.n_imported
    if n:
        add_agent(data / "agents.yaml", Agent(agent_id=inbox.agent_id))
    problems = tuple(f"{refusal.line}: {refusal.reason}" for refusal in one.report.refusals)
    return Arrival(str(path), version, inbox.agent_id, one.report.session_id, n, problems)
