"""`agent-eval import`: a transcript source into data/sessions, in the native form."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agent_eval.errors import AgentEvalError
from agent_eval.formats.plain_text import one_line
from agent_eval.project import Project
from agent_eval.transcripts.agents import add_agent
from agent_eval.transcripts.importers import import_file
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.outcomes import contradicting_components, unreadable_rewards

SHOWN = 20


class OtherCategoryError(AgentEvalError):
    """The agent is declared with another category."""

    def __init__(self, agent: str, declared: str | None, wanted: str) -> None:
        super().__init__(
            f"Agent {agent!r} stands in agents.yaml with category {declared!r}, not {wanted!r}. "
            "Edit the entry there, or leave --category out."
        )


class UnknownCategoryError(AgentEvalError):
    """No methodology version has a template for the category."""

    def __init__(self, category: str, known: Sequence[str]) -> None:
        super().__init__(
            f"Category {category!r} has no template in any methodology version. Categories: {', '.join(known)}."
        )


def import_transcripts(
    project: Project,
    out: Console,
    err: Console,
    *,
    format_name: str,
    path: Path,
    agent_id: str,
    category: str | None,
    session_id: str | None,
    versions: tuple[str, ...],
    task_set: str | None,
) -> int:
    """Import one file and return the exit code.

    0: all records were imported. 1: some records were refused, outcomes cannot be read, or conversations that the
    session held before were removed. 2: none was imported.
    """
    for version in versions:
        project.registry.get(version)
    _check_category(project, agent_id, category)
    report = import_file(
        format_name,
        path,
        sessions_folder=project.home.sessions,
        agent_id=agent_id,
        session_id=session_id,
        methodology_versions=versions or None,
        task_set=task_set,
    )
    for refusal in report.refusals[:SHOWN]:
        err.print(one_line(f"{refusal.file}:{refusal.line}: {refusal.reason}"), markup=False, soft_wrap=True)
    if (more := report.n_refused - SHOWN) > 0:
        err.print(f"… and {more} more.")
    for note in report.notes:
        err.print(one_line(note), markup=False, soft_wrap=True)
    if not report.n_imported:
        err.print("Nothing was imported.")
        if report.is_changed:
            err.print(
                one_line(_kept(agent_id, report.session_id, report.n_refused)), markup=False, soft_wrap=True
            )
        return 2
    state = "imported" if report.is_changed else "already there, unchanged"
    out.print(
        f"{report.n_imported} conversations {state}: {agent_id}/{report.session_id}. Next: agent-eval run",
        markup=False,
    )
    if report.n_removed:
        removed = (
            f"{report.n_removed:,} of the {report.n_before:,} conversations that the session held before"
        )
        err.print(f"{removed} are not in this file and were removed.", markup=False, soft_wrap=True)
    add_agent(project.home.agents_file, Agent(agent_id=agent_id, category=category))
    is_unread = report.n_rewards_between > 0 and project.settings.success_reward is None
    if is_unread:
        said = unreadable_rewards(report.n_rewards_between, report.n_passed)
        err.print(one_line(said), markup=False, soft_wrap=True)
    if report.n_contradicting:
        err.print(one_line(contradicting_components(report.n_contradicting)), markup=False, soft_wrap=True)
    return 1 if report.refusals or is_unread or report.n_contradicting or report.n_removed else 0


def _kept(agent_id: str, session_id: str, n_refused: int) -> str:
    return (
        f"{n_refused} refused records are stored in session {agent_id}/{session_id} and count as missing. "
        "Import a corrected file under this session id, or delete the folder of the session."
    )


def _check_category(project: Project, agent_id: str, category: str | None) -> None:
    if category is None:
        return
    known = sorted({t.category for m in project.registry.all() for t in m.templates})
    if category not in known:
        raise UnknownCategoryError(category, known)
    declared = project.declared[0].get(agent_id)
    if declared is not None and declared.category != category:
        raise OtherCategoryError(agent_id, declared.category, category)
