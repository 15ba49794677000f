"""Declare the commands that operate a project: its UI, methodology versions and store."""

from pathlib import Path
from typing import Annotated

import typer

from agent_eval.commands.declared.common import (
    OPERATE,
    START,
    Agents,
    AsJson,
    Versions,
    consoles,
    methodology_app,
    open_project,
    project_or_packaged,
    renamed,
    store_app,
)

app = typer.Typer()


@app.command(rich_help_panel=START)
def ui(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 3000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    no_token: Annotated[
        bool,
        typer.Option("--no-token", help="Require no token; only behind a proxy that authenticates users."),
    ] = False,
) -> None:
    """Serve the Dagster UI of this project, and run the Dagster daemon.

    Open the printed address: it contains a token, without which the UI refuses every request.
    """
    from agent_eval.commands.ui import ui as serve

    serve(open_project(), consoles()[1], host=host, port=port, has_token=not no_token)


@app.command(rich_help_panel=OPERATE)
def backfill(agent: Agents = None, methodology: Versions = None) -> None:
    """Compute what is stale on several workers, one run per agent, through the Dagster instance in DAGSTER_HOME.

    Needs a DuckLake. Clusters, gates and boards are computed by automation afterwards.
    """
    from agent_eval.commands.run import backfill as start

    for line in start(open_project(), agent or (), methodology or ()):
        consoles()[0].print(line, markup=False, soft_wrap=True)


@methodology_app.command("list")
def methodology_list(as_json: AsJson = False) -> None:
    """List every version with its date, status, hash and requirements."""
    from agent_eval.commands.methodology import show_list

    show_list(project_or_packaged().registry, consoles()[0], as_json=as_json)


@methodology_app.command("show")
def methodology_show(
    version: Annotated[
        str | None, typer.Argument(help="Version to show, e.g. 1.3.0. Default: the current one.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="Show only this domain template, e.g. research_v1.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the weights, anchors, templates, tests and rules of one version, or one of its templates."""
    from agent_eval.commands.methodology import show

    registry = project_or_packaged().registry
    show(registry, version or registry.current.version, consoles()[0], as_json=as_json, template=template)


@methodology_app.command("diff")
def methodology_diff(
    before: Annotated[str, typer.Argument(help="Earlier version.")],
    after: Annotated[str, typer.Argument(help="Later version.")],
    as_json: AsJson = False,
) -> None:
    """Show the differences between two versions."""
    from agent_eval.commands.methodology import show_diff

    show_diff(project_or_packaged().registry, before, after, consoles()[0], as_json=as_json)


@methodology_app.command("validate")
def methodology_validate(
    freeze: Annotated[
        bool, typer.Option("--freeze", help="First record the hashes of the project's new versions.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the frozen hash, the worked example and the numbers in the rules of every version, and the current version.

    Exit code: 0 all checks passed; 1 a check failed.
    """
    from agent_eval.commands.methodology import validate
    from agent_eval.methodology import freeze as freeze_own

    project = open_project()
    out, err = consoles()
    if freeze:
        for version in freeze_own(project.home.methodologies):
            err.print(f"Frozen: {version}", markup=False)
    raise typer.Exit(validate(project.registry, out, as_json=as_json))


@renamed(app, "backup", now="store backup")
@store_app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the backup.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
) -> None:
    """Back up the store to FILE; safe while runs are active. To restore, replace the store file with the backup."""
    from agent_eval.commands.backup import backup as copy

    copy(open_project(), consoles()[0], file, force=force)


@store_app.command("init")
def store_init() -> None:
    """Create the lake that the table `store` of agent_eval.toml configures. An existing lake is not changed."""
    from agent_eval.commands.setup import store

    store.init(open_project(), consoles()[0])


@store_app.command("check")
def store_check() -> None:
    """Check the whole lake: rows, keys, files, the data folder and the clocks.

    Exit code: 0 no problems; 1 problems were found, which are printed with their fixes; 2 the lake cannot be opened.
    """
    from agent_eval.commands.setup import store

    raise typer.Exit(store.check(open_project(), consoles()[0]))


@store_app.command("compact")
def store_compact() -> None:
    """Merge small files of the lake, and delete files that have been unused for an hour. Runs wait meanwhile."""
    from agent_eval.commands.setup import store

    store.compact(open_project(), consoles()[0])


@store_app.command("copy")
def store_copy(
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Store file to copy into the lake, which must be empty."),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="New store file to copy the lake into.")
    ] = None,
) -> None:
    """Copy a store file into the lake, or the lake into a file. Runs wait until the copy is complete."""
    from agent_eval.commands.setup import store

    store.copy(open_project(), consoles()[0], source=source, target=target)


@store_app.command("forget")
def store_forget(
    conversation: Annotated[str, typer.Argument(help="Id of the conversation.")],
    agent: Annotated[
        str | None, typer.Option(help="Its agent, if several have a conversation with this id.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove a conversation: its line in data/sessions, its rows, answers of judges, texts in clusters and report pages.

    Answers about other conversations are kept. Answers about its whole session (U1 to U6) are removed.

    Exit code: 0 it was removed; 1 you declined, or a backup below the project's folder still has it; 2 it is unknown.
    """
    from agent_eval.commands.setup.forget import forget

    code = forget(
        open_project(),
        consoles()[0],
        conversation_id=conversation,
        agent_id=agent,
        confirm=lambda question: yes or typer.confirm(question),
    )
    raise typer.Exit(code)
