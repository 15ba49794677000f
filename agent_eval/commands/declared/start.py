"""Declare the commands that begin something: a project, a run, a benchmark, an import."""

from pathlib import Path
from typing import Annotated

import typer

from agent_eval.commands.declared.common import (
    START,
    Agents,
    AsJson,
    Versions,
    consoles,
    judge_models,
    open_project,
    scenarios_app,
)
from agent_eval.transcripts.importers import FORMAT_NAMES

app = typer.Typer()


@app.command(rich_help_panel=START)
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the project; created if it does not exist.")
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SAMPLE]", help="With --sample: smollm2 for the sessions of a small real model."
        ),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Copy the sample: agents, sessions, ratings and recorded verdicts."),
    ] = False,
    benchmark: Annotated[
        str | None,
        typer.Option(
            metavar="SUITE",
            help="Copy a packaged suite of scenarios, with agents.yaml and a rating sheet: automation_workflow, "
            "coding_development, customer_service or data_analysis.",
        ),
    ] = None,
) -> None:
    """Create a project with a commented agent_eval.toml, data folders, workspace.yaml and .gitignore.

    Existing files are kept.
    """
    from agent_eval.commands.setup.init import init as make

    make(consoles()[0], folder, with_sample=sample, sample=name, benchmark=benchmark)


@app.command(rich_help_panel=START)
def run(
    agent: Agents = None,
    methodology: Versions = None,
    is_current_only: Annotated[
        bool,
        typer.Option(
            "--current-only",
            help="Compute only the current version, not the others.",
        ),
    ] = False,
    boards: Annotated[
        bool,
        typer.Option(
            "--boards",
            help="Rebuild the leaderboards even if nothing is stale, and publish them to data/report.",
        ),
    ] = False,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge", help="litellm name of a judge model (repeatable). Several models form an ensemble."
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", help="Judge only this metric (repeatable). Default: all."),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", min=0, help="Maximum cost of judge calls in this run, in US dollars."),
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option("--max-calls", min=0, help="Maximum number of judge calls in this run.")
    ] = None,
    keep_answers: Annotated[
        bool,
        typer.Option(
            "--keep-answers",
            help="Keep stored answers to earlier wordings of the questions instead of asking again; they are marked.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Estimate calls, tokens and, if the model's price is known, cost. No judge is called.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print each judge's answers and reasons as they arrive.")
    ] = False,
    is_whole: Annotated[
        bool, typer.Option("--all", help="Print the whole board with all reasons, and the worst findings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ingest new data, materialise every stale asset with Dagster, and print who leads, what is unknown and the scores.

    Exit code: 0 done, regardless of gate results; 1 a record was rejected or some judgments are unscored;
    2 no judge request was scored, or the run failed.
    """
    from agent_eval.commands.estimate import estimate_run, price_of_asking_again, refuse_unusable_judges
    from agent_eval.commands.run import run as run_project
    from agent_eval.commands.terminal.printing import print_run
    from agent_eval.commands.terminal.progress import shown_progress

    project = open_project().with_settings(
        judge_model=judge_models(judge),
        metrics=tuple(metrics) if metrics else None,
        max_cost_usd=max_cost,
        max_calls=max_calls,
        keep_answers=keep_answers or None,
    )
    if is_current_only and methodology:
        raise typer.BadParameter("--current-only and --methodology exclude each other.")
    methodology = [project.registry.current.version] if is_current_only else methodology
    out, err = consoles()
    if dry_run:
        estimate_run(project, out, agent or (), methodology or (), as_json=as_json)
        return
    refuse_unusable_judges(project, agent or (), methodology or ())
    if price := price_of_asking_again(project, agent or (), methodology or ()):
        err.print(price, markup=False)
    with shown_progress(err) as progress:
        report = run_project(
            project.watched(progress.watch, progress.heard if verbose else None),
            agent or (),
            methodology or (),
            say=progress.say,
            boards=boards,
        )
    shown_version = methodology[-1] if methodology else project.registry.current.version
    print_run(project, out, err, report, version=shown_version, as_json=as_json, is_whole=is_whole)
    raise typer.Exit(report.exit_code)


@app.command(rich_help_panel=START)
def simulate(
    agents: Annotated[
        list[str], typer.Argument(metavar="AGENT…", help="Ids of agents with an endpoint in agents.yaml.")
    ],
    suite: Annotated[
        list[str] | None, typer.Option("--suite", help="Run only this suite (repeatable). Default: all.")
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            help="Run only this scenario (repeatable). Sessions with a part of a suite fill no slots.",
        ),
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, max=1_000, help="Number of sessions. Three make up a test of repeatability.")
    ] = 1,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000, help="Trials of each scenario in a session. Default: as in the scenario."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed. Another seed begins new sessions.")] = 0,
    user: Annotated[
        str | None, typer.Option("--user", help="litellm name of the model that plays simulated users.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=1_000, help="Maximum number of concurrent conversations."),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost", min=0, help="Maximum cost of agents, users and judges together, in US dollars."
        ),
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option(
            "--max-calls", min=0, help="Maximum number of calls of agents, users and judges together."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be run. Nothing is called or written.")
    ] = False,
    gate: Annotated[
        bool,
        typer.Option(
            "--gate", help="Then do the same as `run`, and print one line per scenario with its result."
        ),
    ] = False,
    judge: Annotated[
        list[str] | None, typer.Option("--judge", help="Judge model for --gate (repeatable).")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Run again whenever a file in data/scenarios changes.")
    ] = False,
) -> None:
    """Run benchmark scenarios against agents and write the conversations to data/sessions.

    A run that was interrupted, or stopped by a cap, continues where it stopped. Exit code: 0 done; 1 some
    conversations are missing or were lost to the harness, or with --gate a scenario or gate failed; 2 no conversation
    was held, or with --gate a result is unknown.
    """
    from agent_eval.commands.benchmarks.simulate import Options, run_simulation

    options = Options(
        tuple(agents), tuple(suite or ()), tuple(scenario or ()), sessions, trials, seed, concurrency,
        dry_run=dry_run, gate=gate or bool(judge),
    )  # fmt: skip
    project = open_project().with_settings(
        judge_model=judge_models(judge), user_model=user, max_cost_usd=max_cost, max_calls=max_calls
    )
    raise typer.Exit(run_simulation(project, *consoles(), options, watch=watch))


@scenarios_app.command("check")
def scenarios_check(
    suite: Annotated[
        list[str] | None, typer.Option("--suite", help="Check only this suite (repeatable).")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="FILE", help="Also write the JSON Schema of scenario files to FILE."
        ),
    ] = None,
) -> None:
    """Check the files in data/scenarios and list every problem with file, line and fix.

    Exit code: 0 all scenarios are valid; 1 there are problems.
    """
    from agent_eval.commands.benchmarks.scenarios import check_scenarios

    raise typer.Exit(check_scenarios(open_project(), consoles()[0], suite or (), schema))


@app.command("import", rich_help_panel=START)
def import_(
    format_name: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help=f"auto detects the format of each file. Other values: {', '.join(sorted(FORMAT_NAMES))}.",
        ),
    ],
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH…", help="Files (also .gz and .zip), folders or patterns, or - for standard input."
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Id of the agent. Allowed characters: a-z 0-9 . _ -")
    ] = None,
    category: Annotated[
        str | None, typer.Option(help="Category of the agent in the methodology, e.g. customer_service.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="Id of the session. Default: derived from the name of the file.")
    ] = None,
    methodology: Annotated[
        list[str] | None,
        typer.Option(
            "--methodology",
            help="Methodology version of the session (repeatable). "
            "By default the session counts for every version but fills no scenario slots.",
        ),
    ] = None,
    task_set: Annotated[
        str | None,
        typer.Option(
            help="Name of the task set. Default: the domain of a tau2 file, else the name of the format."
        ),
    ] = None,
    slots: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with task_id, slot and disclosures that assigns conversations to benchmark slots.",
        ),
    ] = None,
    is_trial: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Write nothing: print the format, the counts, the first conversation with its roles, and what is not read. "
            "FORMAT and --agent can be omitted.",
        ),
    ] = False,
) -> None:
    """Import transcripts into data/sessions, one session per file. Importing a file twice changes nothing.

    Exit code: 0 all records were imported; 1 files or records were rejected, outcomes could not be determined, or
    earlier conversations were removed; 2 nothing was imported.
    """
    from agent_eval.commands.imports import import_transcripts, parsed_arguments, try_import

    format_name, file_paths = parsed_arguments(format_name, paths or [], agent, is_trial=is_trial)
    if is_trial or agent is None:
        raise typer.Exit(
            try_import(*consoles(), format_name=format_name, paths=file_paths, agent_id=agent or "agent")
        )
    code = import_transcripts(
        open_project(),
        *consoles(),
        format_name=format_name,
        paths=file_paths,
        agent_id=agent,
        category=category,
        session_id=session,
        versions=tuple(methodology or ()),
        task_set=task_set,
        slots_file=slots,
    )
    raise typer.Exit(code)
