"""Implement `agent-eval import`: convert transcripts to the native format in data/sessions."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.plain_text import count_of, one_line
from agent_eval.project import Project
from agent_eval.transcripts.agents import add_agent
from agent_eval.transcripts.importers.auto import AUTO, FileReport, import_files
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.import_errors import unknown_format
from agent_eval.transcripts.importers.importing import ImportReport
from agent_eval.transcripts.importers.inputs import STDIN, input_files, spooled
from agent_eval.transcripts.importers.slots import read_slots
from agent_eval.transcripts.models import Agent, Conversation
from agent_eval.transcripts.outcomes import contradicting_components, unreadable_rewards

SHOWN = 20
MOST_MESSAGES = 40
_LONGEST = 100  # characters of a message that are shown


def _missing_argument(what: str) -> InputError:
    return InputError(
        f"{what} is missing. Use: agent-eval import auto PATH… --agent ID, or agent-eval import --try PATH…."
    )


def parsed_arguments(
    format_name: str, paths: Sequence[str], agent_id: str | None, *, is_trial: bool
) -> tuple[str, list[str]]:
    """Return the format and the paths of an import; a trial without a format uses `auto`.

    Raises:
        InputError: If there is no path, or no agent and no trial.
    """
    transcript_paths = [*paths]
    if is_trial and format_name != AUTO and format_name not in FORMATS:
        transcript_paths = [format_name, *transcript_paths]
        format_name = AUTO
    if not transcript_paths:
        raise _missing_argument("PATH")
    if agent_id is None and not is_trial:
        raise _missing_argument("--agent")
    return format_name, transcript_paths


def import_transcripts(
    project: Project,
    out: Console,
    err: Console,
    *,
    format_name: str,
    paths: Sequence[str],
    agent_id: str,
    category: str | None,
    session_id: str | None,
    versions: tuple[str, ...],
    task_set: str | None,
    slots_file: Path | None = None,
) -> int:
    """Import files and return the exit code.

    0: All records were imported. 1: Some files or records were rejected, outcomes cannot be determined, or earlier
    conversations of a session were removed. 2: No file was imported.
    """
    for version in versions:
        project.registry.get(version)
    _check_category(project, agent_id, category)
    if format_name != AUTO and format_name not in FORMATS:
        raise unknown_format(format_name, [*FORMATS, AUTO])
    slots = read_slots(slots_file) if slots_file else None
    if slots and not versions:
        versions = (project.registry.current.version,)
        err.print(
            f"The session counts for methodology {versions[0]}, because it has slots. Use --methodology to choose another version."
        )
    with standard_input(paths) as stdin:
        files = input_files(paths, stdin)
        if session_id is not None and len(files) != 1:
            raise InputError(
                f"--session is for a single file, but there are {count_of(len(files), 'file')}. Omit it, or merge the records into one file."
            )
        reports = list(
            _announced(
                err,
                import_files(
                    format_name,
                    files,
                    sessions_folder=project.home.sessions,
                    agent_id=agent_id,
                    session_id=session_id,
                    methodology_versions=versions or None,
                    task_set=task_set,
                    slots=slots,
                ),
                agent_id,
                is_alone=len(files) == 1,
            )
        )
    unmet = slots.unmet() if slots else []
    for reason in unmet:
        err.print(one_line(reason), markup=False, soft_wrap=True)
    if not any(one.report and (one.report.n_imported or one.report.n_known) for one in reports):
        if len(files) == 1 and (refused := reports[0]).report is None:
            raise InputError(refused.reason if refused.format_name else f"{refused.name}: {refused.reason}.")
        err.print("Nothing was imported.")
        return 2
    _print_summary(out, reports, agent_id, is_alone=len(files) == 1)
    if (turn := _first_turn(reports)) is not None:
        out.print(one_line(turn), markup=False, soft_wrap=True)
    add_agent(project.home.agents_file, Agent(agent_id=agent_id, category=category))
    clean = [_is_clean(err, one, project.settings.success_reward) for one in reports]
    return 0 if all(clean) and not unmet else 1


def try_import(out: Console, err: Console, *, format_name: str, paths: Sequence[str], agent_id: str) -> int:
    """Print what an import would understand, without writing to the project; return the exit code of the import."""
    if format_name != AUTO and format_name not in FORMATS:
        raise unknown_format(format_name, [*FORMATS, AUTO])
    with standard_input(paths) as stdin, TemporaryDirectory(prefix="agent-eval-") as folder:
        files = input_files(paths, stdin)
        file_reports = import_files(format_name, files, sessions_folder=Path(folder), agent_id=agent_id)
        reports = list(_announced(err, file_reports, agent_id, is_alone=False, is_try=True))
    for one in reports:
        if (report := one.report) is None:
            continue
        counts = f"{_n(report.n_imported, 'conversation')}, {_n(report.n_turns, 'turn')}, {report.n_refused:,} rejected"
        out.print(one_line(f"{one.name} ({one.format_name}): {counts}"), markup=False, soft_wrap=True)
        if report.first is not None:
            _show(out, report.first)
    out.print("Nothing was written. To import, omit --try.")
    clean = [one.is_skipped if one.report is None else not one.report.refusals for one in reports]
    n_imported = sum(one.report.n_imported for one in reports if one.report)
    return 2 if not n_imported else 0 if all(clean) else 1


def _show(out: Console, conversation: Conversation) -> None:
    """Print the messages of a conversation with their roles."""
    out.print(one_line(f"  conversation {conversation.conversation_id}:"), markup=False, soft_wrap=True)
    for message in conversation.messages[:MOST_MESSAGES]:
        calls = "".join(f" [calls {call.name}]" for call in message.tool_calls)
        failed = " [error]" if message.is_error else ""
        message_line = f"  {message.role:>9}: {_shown(message.content)}{calls}{failed}"
        out.print(one_line(message_line), markup=False, soft_wrap=True)
    if (n_more := len(conversation.messages) - MOST_MESSAGES) > 0:
        out.print(f"  … and {_n(n_more, 'more message')}.")


def _shown(text: str | None) -> str:
    plain = " ".join((text or "").split())
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"


def _first_turn(reports: Sequence[FileReport]) -> str | None:
    """Return the first turn of the import as it was understood, or None if there is none."""
    talks = (one.report.first for one in reports if one.report and one.report.first)
    turn = next((turn for talk in talks for turn in talk.turns() if turn.user_message), None)
    if turn is None:
        return None
    calls = f", after {_n(len(turn.tool_calls), 'call')}" if turn.tool_calls else ""
    reply = repr(_shown(turn.agent_message)) if (turn.agent_message or "").strip() else "no reply"
    return f"First turn: user: {_shown(turn.user_message)!r} – agent{calls}: {reply}"


@contextmanager
def standard_input(paths: Sequence[str]) -> Iterator[Path | None]:
    """Yield a temporary file with the content of standard input, or None if no path is `-`."""
    path = spooled(sys.stdin.buffer) if STDIN in paths else None
    try:
        yield path
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def _announced(
    err: Console, reports: Iterable[FileReport], agent_id: str, *, is_alone: bool, is_try: bool = False
) -> Iterator[FileReport]:
    """Yield the reports, and print the rejected, omitted and removed records of each file."""
    for one in reports:
        yield one
        if one.report is None:
            if not one.is_skipped and not is_alone:
                err.print(one_line(f"{one.name}: {one.reason}"), markup=False, soft_wrap=True)
            continue
        report = one.report
        for refusal in report.refusals[:SHOWN]:
            where = f"{refusal.file}:{refusal.line}"
            err.print(one_line(f"{where}: {refusal.reason}"), markup=False, soft_wrap=True)
        if (more := report.n_refused - SHOWN) > 0:
            err.print(f"… and {more} more.")
        if report.n_known and report.n_imported:
            count_text = f"{_n(report.n_known, 'conversation')} of {one.name}"
            err.print(
                one_line(f"{count_text}: already in other sessions of {agent_id} and not imported again."),
                markup=False,
                soft_wrap=True,
            )
        for note in report.notes:
            err.print(one_line(note), markup=False, soft_wrap=True)
        if not report.n_imported and report.is_changed and not report.continued and not is_try:
            unchanged_note = _kept(agent_id, report.session_id, report.n_refused)
            err.print(one_line(unchanged_note), markup=False, soft_wrap=True)
        if report.n_removed:
            removed = f"{report.n_removed:,} of the {report.n_before:,} earlier conversations of the session"
            err.print(f"{removed} are not in this file and were removed.", markup=False, soft_wrap=True)


def _print_summary(out: Console, reports: Sequence[FileReport], agent_id: str, *, is_alone: bool) -> None:
    """Print a line for each file, followed by the totals."""
    done = [(one, one.report) for one in reports if one.report is not None]
    for one, report in () if is_alone else done:
        counts = f"{_n(report.n_imported, 'conversation')}, {_n(report.n_turns, 'turn')}, {report.n_refused:,} rejected"
        line = f"{one.name} ({one.format_name}): {counts}, {_state(report)}: {agent_id}/{report.session_id}"
        out.print(one_line(line), markup=False, soft_wrap=True)
    if skipped := sum(one.is_skipped for one in reports):
        was = "file without conversations was" if skipped == 1 else "files without conversations were"
        out.print(f"{skipped:,} {was} skipped.", markup=False)
    if is_alone:
        (one, report) = done[0]
        format_note = f" ({one.format_name})" if one.is_recognised else ""
        count_text = _n(report.n_imported or report.n_known, "conversation")
        what = f"{count_text} {_state(report)}{format_note}: {agent_id}/{report.session_id}"
    else:
        sessions = {report.session_id: report for _, report in done if report.n_imported}.values()
        turns = sum(r.n_turns for r in (*sessions, *(r for _, r in done if not r.n_imported)))
        n = sum(r.n_imported for r in sessions)
        refused = sum(r.n_refused for _, r in done)
        failed = sum(one.report is None and not one.is_skipped for one in reports)
        files = sum(r.n_imported > 0 or r.n_known > 0 for _, r in done)
        what = (
            f"{_n(n, 'conversation')} with {_n(turns, 'turn')} from {_n(files, 'file')}; "
            f"{_n(refused, 'record')} and {_n(failed, 'file')} rejected"
        )
    out.print(f"{one_line(what)}. Next: agent-eval run", markup=False, soft_wrap=True)


def _state(report: ImportReport) -> str:
    """Return a description of the import's effect on the session, such as "already there, unchanged"."""
    if not report.n_imported and not report.n_known:
        return "rejected"
    if not report.n_imported:
        return (
            "merged into the sessions that they continue" if report.continued else "already there, unchanged"
        )
    if not report.is_changed:
        return "already there, unchanged"
    changed = f", {report.n_changed:,} of {report.n_before:,} earlier ones changed" if report.n_before else ""
    return f"imported{changed}"


def _n(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _is_clean(err: Console, one: FileReport, success_reward: float | None) -> bool:
    """Return whether a file was imported completely and its outcomes could be determined; print the problems."""
    report = one.report
    if report is None:
        return one.is_skipped
    is_unread = report.n_rewards_between > 0 and success_reward is None
    if is_unread:
        rewards_problem = unreadable_rewards(report.n_rewards_between, report.n_passed)
        err.print(one_line(rewards_problem), markup=False, soft_wrap=True)
    if report.n_contradicting:
        err.print(one_line(contradicting_components(report.n_contradicting)), markup=False, soft_wrap=True)
    return not (report.refusals or is_unread or report.n_contradicting or report.n_removed)


def _kept(agent_id: str, session_id: str, n_refused: int) -> str:
    return (
        f"{n_refused} rejected records are stored in session {agent_id}/{session_id} and count as missing. "
        "Import a corrected file under this session id, or delete the folder of the session."
    )


def _check_category(project: Project, agent_id: str, category: str | None) -> None:
    if category is None:
        return
    categories = sorted({t.category for m in project.registry.all() for t in m.templates})
    if category not in categories:
        raise NotFoundError(
            f"Category {category!r} has no template in any methodology version. Categories: {', '.join(categories)}."
        )
    declared = project.declared[0].get(agent_id)
    if declared is not None and declared.category != category:
        raise InputError(
            f"Agent {agent_id!r} is in agents.yaml with category {declared.category!r}, not {category!r}. "
            "Edit the entry, or omit --category."
        )
