"""Implement `agent-eval export`: write an agent's conversations in the format of another tool."""

import json
from pathlib import Path

from rich.console import Console

from agent_eval.errors import InputError
from agent_eval.formats.atomic_files import write_atomically
from agent_eval.formats.json_text import dumps
from agent_eval.formats.plain_text import count_of, one_line
from agent_eval.formats.refusals import Refusal
from agent_eval.judge.prompts.personal_data import counted
from agent_eval.project import Project
from agent_eval.transcripts.exporters import export_lines


def export(
    project: Project,
    err: Console,
    *,
    format_name: str,
    agent_id: str,
    sessions: tuple[str, ...],
    out: Path | None,
    force: bool,
    redacts: bool = False,
) -> int:
    """Write one JSON object per line to a file or to stdout.

    If `redacts` is true, personal data is replaced, and the numbers of distinct hidden values are printed.

    Return the exit code, which is 1 if a line of the session files is invalid.
    """
    if out is not None and out.exists() and not force:
        raise InputError(f"{out} already exists. Overwrite it with --force, or choose another file.")
    lines: list[str] = []
    n_refused = 0
    for line in export_lines(format_name, project.home.existing_sessions() / agent_id, sessions):
        if isinstance(line, Refusal):
            n_refused += 1
            err.print(one_line(f"{line.file}:{line.line}: {line.reason}"), markup=False, soft_wrap=True)
            continue
        output_line = dumps(project.judges.redactor.hide_in(json.loads(line))) if redacts else line
        if out is None:
            print(output_line)  # noqa: T201
        else:
            lines.append(output_line)
    if out is not None:
        write_atomically(out, "".join(f"{line}\n" for line in lines))
        err.print(
            f"{count_of(len(lines), 'conversation')} written to {one_line(str(out))}.",
            markup=False,
            soft_wrap=True,
        )
    if redacts:
        err.print(f"hidden: {counted(project.judges.redactor.counts)}", markup=False, soft_wrap=True)
    return 1 if n_refused else 0
