"""What several commands share: groups, panels of `--help`, options, and how a command opens its project."""

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from agent_eval.project import Project

START, READ, DECIDE, JUDGES, OPERATE = "Start", "Read", "Decide", "Judges", "Operate"
"""The panels of `--help`, by what a user wants to do."""
methodology_app = typer.Typer(
    help="List, show, compare and validate methodology versions.", no_args_is_help=True
)
labels_app = typer.Typer(
    help="Import labels from people and from other tools, and write rating sheets.", no_args_is_help=True
)
store_app = typer.Typer(
    help="Back up the store; remove a conversation from it; create, check, compact and copy a DuckLake, the store for several workers.",
    no_args_is_help=True,
)
scenarios_app = typer.Typer(help="Check the scenarios of benchmark suites.", no_args_is_help=True)
judge_app = typer.Typer(help="Audit judge models, and serve a mock judge.", no_args_is_help=True)
GROUPS = {
    "methodology": (methodology_app, OPERATE),
    "labels": (labels_app, JUDGES),
    "store": (store_app, OPERATE),
    "scenarios": (scenarios_app, START),
    "judge": (judge_app, JUDGES),
}
"""The groups of commands by name, each with its panel."""
MOST_ATTEMPTS = 2**31 - 1

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON array of rows to stdout.")]
Notes = Annotated[
    bool, typer.Option("--notes", help="Also print how to read the figures and what is unknown.")
]
Version = Annotated[
    str | None, typer.Option("--methodology", help="Methodology version. Default: the current one.")
]
Versions = Annotated[
    list[str] | None,
    typer.Option("--methodology", help="Include only this version (repeatable). Default: all."),
]
Agents = Annotated[list[str] | None, typer.Option("--agent", help="Include only this agent (repeatable).")]


def consoles() -> "tuple[Console, Console]":
    """Return the consoles for results (stdout) and for progress and diagnostics (stderr)."""
    from agent_eval.commands.terminal.output import consoles as made

    return made()


def judge_models(judge: list[str] | None) -> str | None:
    """Return the values of `--judge` as a value of the setting `judge_model`; an empty value is an error."""
    if judge and not all(name.strip() for name in judge):
        raise typer.BadParameter("The value of --judge is empty. Is an environment variable unset?")
    return ",".join(judge) if judge else None


def project_or_packaged() -> "Project":
    """Return the project of the working directory, else a project with only the packaged methodologies and metrics."""
    from agent_eval.project import Project

    return Project.open_or_packaged()


def open_project() -> "Project":
    """Return the project of the working directory, after the runs of killed processes were marked as failed."""
    from agent_eval.commands.setup.dead_runs import close_dead_runs
    from agent_eval.project import Project
    from agent_eval.settings import misplaced_caps

    project = Project.open()
    for hint in misplaced_caps(project.home.root):
        consoles()[1].print(hint, markup=False, soft_wrap=True)
    close_dead_runs(project, consoles()[1])
    return project


def chosen_version(project: "Project", version: str | None) -> str:
    """Return the version, or the current one if none is given."""
    return project.registry.current.version if version is None else version


def marked_version(project: "Project", version: str | None) -> str:
    """Return the version whose results are shown; warn on stderr if it was edited after it was frozen."""
    from agent_eval.commands.results.leaderboard import print_edited

    shown_version = chosen_version(project, version)
    print_edited(project.registry, [shown_version], consoles()[1])
    return shown_version


def renamed(app: typer.Typer, old: str, *, now: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Also register a command, hidden, under an earlier name; there it names the new one on stderr."""

    def registered(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def said(*arguments: object, **options: object) -> None:
            sys.stderr.write(f"Note: `agent-eval {old}` is now `agent-eval {now}`.\n")
            command(*arguments, **options)

        app.command(old, hidden=True)(said)
        return command

    return registered
