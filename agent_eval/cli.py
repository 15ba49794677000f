"""Parse the command line of `agent-eval`, call `commands`, and convert errors to one line and an exit code.

Large packages are imported in the body of each command, which keeps `--help` fast.
"""

import functools
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from agent_eval.errors import PLATFORMS, AgentEvalError, InputError
from agent_eval.formats.plain_text import one_line
from agent_eval.transcripts.importers import FORMAT_NAMES

if TYPE_CHECKING:
    from agent_eval.project import Project

app = typer.Typer(
    name="agent-eval",
    help="Turn agent transcripts into leaderboards you can defend.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
START, READ, DECIDE, JUDGES, OPERATE = "Start", "Read", "Decide", "Judges", "Operate"
"""The groups of `--help`, by what a user wants to do."""

methodology_app = typer.Typer(
    help="List, show, compare and validate methodology versions.", no_args_is_help=True
)
app.add_typer(methodology_app, name="methodology", rich_help_panel=OPERATE)
labels_app = typer.Typer(
    help="Import labels from people and from other tools, and write rating sheets.", no_args_is_help=True
)
app.add_typer(labels_app, name="labels", rich_help_panel=JUDGES)
store_app = typer.Typer(
    help="Back up the store; remove a conversation from it; create, check, compact and copy a DuckLake, the store for several workers.",
    no_args_is_help=True,
)
app.add_typer(store_app, name="store", rich_help_panel=OPERATE)

scenarios_app = typer.Typer(help="Check the scenarios of benchmark suites.", no_args_is_help=True)
app.add_typer(scenarios_app, name="scenarios", rich_help_panel=START)

judge_app = typer.Typer(help="Audit judge models, and serve a mock judge.", no_args_is_help=True)
app.add_typer(judge_app, name="judge", rich_help_panel=JUDGES)

INTERRUPTED = 130  # typer's exit code for Ctrl-C
MOST_ATTEMPTS = 2**31 - 1

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON array of rows to stdout.")]
Notes = Annotated[
    bool, typer.Option("--notes", help="Also print how to read the figures and what is unknown.")
]
Version = Annotated[
    str | None, typer.Option("--methodology", help="Methodology version. Default: the current one.")
]
Agents = Annotated[list[str] | None, typer.Option("--agent", help="Include only this agent (repeatable).")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from agent_eval import __version__

        typer.echo(f"agent-eval {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the release and exit."),
    ] = False,
) -> None:
    """Turn agent transcripts into leaderboards you can defend."""


def _models(judge: list[str] | None) -> str | None:
    """Return the values of `--judge` as a value of the setting `judge_model`; an empty value is an error."""
    if judge and not all(name.strip() for name in judge):
        raise typer.BadParameter("The value of --judge is empty. Is an environment variable unset?")
    return ",".join(judge) if judge else None


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
    from agent_eval.commands.terminal.output import consoles

    make(consoles()[0], folder, with_sample=sample, sample=name, benchmark=benchmark)


@judge_app.command("mock")
def mock_judge(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port on 127.0.0.1 to listen on.")] = 8901,
) -> None:
    """Serve a mock judge that always gives the best rating, so that you can try the commands without an API key.

    To use it, run OPENAI_BASE_URL=http://127.0.0.1:PORT/v1 OPENAI_API_KEY=none agent-eval run --judge openai/mock.
    Press Ctrl-C to stop the server.
    """
    from agent_eval.commands.setup.mock_judge import serve

    serve(port)


def _project_or_packaged() -> "Project":
    """Return the project of the working directory, else a project with only the packaged methodologies and metrics."""
    from agent_eval.project import Project

    return Project.open_or_packaged()


def _project() -> "Project":
    """Return the project of the working directory, after the runs of killed processes were marked as failed."""
    from agent_eval.commands.setup.dead_runs import close_dead_runs
    from agent_eval.commands.terminal.output import consoles
    from agent_eval.project import Project

    project = Project.open()
    close_dead_runs(project, consoles()[1])
    return project


def _version(project: "Project", version: str | None) -> str:
    return project.registry.current.version if version is None else version


def _marked_version(project: "Project", version: str | None) -> str:
    """Return the version whose results are shown; warn on stderr if it was edited after it was frozen."""
    from agent_eval.commands.results.leaderboard import print_edited
    from agent_eval.commands.terminal.output import consoles

    chosen = _version(project, version)
    print_edited(project.registry, [chosen], consoles()[1])
    return chosen


@app.command(rich_help_panel=START)
def run(
    agent: Agents = None,
    methodology: Annotated[
        list[str] | None,
        typer.Option("--methodology", help="Include only this version (repeatable). Default: all."),
    ] = None,
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
    from agent_eval.commands.terminal.output import consoles
    from agent_eval.commands.terminal.printing import print_run
    from agent_eval.commands.terminal.progress import shown_progress

    project = _project().with_settings(
        judge_model=_models(judge),
        metrics=tuple(metrics) if metrics else None,
        max_cost_usd=max_cost,
        max_calls=max_calls,
        keep_answers=keep_answers or None,
    )
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
    shown = methodology[-1] if methodology else project.registry.current.version
    print_run(project, out, err, report, version=shown, as_json=as_json, is_whole=is_whole)
    raise typer.Exit(report.exit_code)


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
    from agent_eval.commands.terminal.output import consoles

    raise typer.Exit(check_scenarios(_project(), consoles()[0], suite or (), schema))


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
    from agent_eval.commands.terminal.output import consoles

    options = Options(
        tuple(agents), tuple(suite or ()), tuple(scenario or ()), sessions, trials, seed, concurrency,
        dry_run=dry_run, gate=gate or bool(judge),
    )  # fmt: skip
    project = _project().with_settings(
        judge_model=_models(judge), user_model=user, max_cost_usd=max_cost, max_calls=max_calls
    )
    raise typer.Exit(run_simulation(project, *consoles(), options, watch=watch))


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
    from agent_eval.commands.terminal.output import consoles

    format_name, given = parsed_arguments(format_name, paths or [], agent, is_trial=is_trial)
    if is_trial or agent is None:
        raise typer.Exit(
            try_import(*consoles(), format_name=format_name, paths=given, agent_id=agent or "agent")
        )
    code = import_transcripts(
        _project(),
        *consoles(),
        format_name=format_name,
        paths=given,
        agent_id=agent,
        category=category,
        session_id=session,
        versions=tuple(methodology or ()),
        task_set=task_set,
        slots_file=slots,
    )
    raise typer.Exit(code)


@app.command(rich_help_panel=READ)
def leaderboard(
    methodology: Annotated[
        list[str] | None,
        typer.Option(
            "--methodology",
            help="Methodology version (repeatable; several versions are shown side by side). Default: the current one.",
        ),
    ] = None,
    template: Annotated[str | None, typer.Option(help="Show only this domain template.")] = None,
    output_format: Annotated[
        str, typer.Option("--format", help="Output format: table, json, csv or md.")
    ] = "table",
    as_json: AsJson = False,
    changes: Annotated[
        bool,
        typer.Option("--changes", help="Show the changes of the board and their causes, latest first."),
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Show the board as it was at the end of this day (ISO 8601, UTC)."),
    ] = None,
) -> None:
    """Show the current or an earlier leaderboard of one or several methodology versions, or its changes."""
    from agent_eval.commands.results.board_history import show_changes
    from agent_eval.commands.results.leaderboard import FORMATS, print_edited, side_by_side
    from agent_eval.commands.results.leaderboard import leaderboard as show
    from agent_eval.commands.terminal.output import consoles

    if output_format not in FORMATS:
        raise InputError(f"--format {output_format!r} is unknown. Formats: {', '.join(FORMATS)}.")
    project = _project()
    chosen = "json" if as_json else output_format
    versions = list(dict.fromkeys(methodology or ()))
    if changes:
        if as_of is not None:
            raise InputError("--changes lists the changes of all days; omit --as-of.")
        of = versions or [_version(project, None)]
        print_edited(project.registry, of, consoles()[1])
        show_changes(project, consoles()[0], versions=of, template=template, output_format=chosen)
        return
    if len(versions) > 1:
        side_by_side(
            project, consoles()[0], versions=versions, template=template, output_format=chosen, as_of=as_of
        )
        return
    show(
        project,
        consoles()[0],
        version=_version(project, versions[0] if versions else None),
        template=template,
        output_format=chosen,
        as_of=as_of,
    )


@app.command(rich_help_panel=READ)
def compare(
    agent: Annotated[str, typer.Argument(metavar="A", help="Id of the first agent.")],
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="Id of the second agent. With --plan it can be omitted: the other agent has data like A's.",
        ),
    ] = None,
    methodology: Version = None,
    notes: Notes = False,
    is_plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Show instead the smallest detectable difference, and the data needed to detect a given one.",
        ),
    ] = False,
    difference: Annotated[
        float | None,
        typer.Option(
            "--difference", help="With --plan: difference to detect, in percent of each scale. Default: 5."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two agents over their sessions, common tasks or conversations, with corrected p values."""
    from agent_eval.commands.results.compare import compare as show
    from agent_eval.commands.terminal.output import consoles

    if is_plan:
        plan(agent, other, 5.0 if difference is None else difference, methodology, as_json)
        return
    if difference is not None:
        raise typer.BadParameter("--difference needs --plan.")
    if other is None:
        raise typer.BadParameter("Name a second agent B, or pass --plan.")
    project = _project()
    version = _marked_version(project, methodology)
    show(project, consoles()[0], version=version, agent=agent, other=other, as_json=as_json, notes=notes)


def plan(
    agent: Annotated[str, typer.Argument(metavar="A", help="Id of the first agent.")],
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="B", help="Id of the second agent. Default: a hypothetical agent with data like A's."
        ),
    ] = None,
    difference: Annotated[
        float, typer.Option("--difference", help="Difference to detect, in percent of each scale.")
    ] = 5.0,
    methodology: Version = None,
    as_json: AsJson = False,
) -> None:
    """Show the smallest detectable difference, and the sessions, tasks or trials needed to detect a given one."""
    from agent_eval.commands.results.plan import plan as show
    from agent_eval.commands.terminal.output import consoles

    project = _project()
    version = _marked_version(project, methodology)
    show(
        project, consoles()[0], version=version, agent=agent, other=other, points=difference, as_json=as_json
    )


@app.command(rich_help_panel=READ)
def explain(
    agent: Annotated[str, typer.Argument(help="Id of the agent.")],
    methodology: Version = None,
    score: Annotated[
        str, typer.Option(help="Score to trace: composite, U, D, U1..U6 or D1..D5.")
    ] = "composite",
    metric: Annotated[
        str | None,
        typer.Option(help="Show the lowest-rated answers for this metric instead, e.g. helpfulness."),
    ] = None,
    turn: Annotated[
        str | None,
        typer.Option(
            help="Show this turn (CONVERSATION#TURN, as printed by errors) or conversation instead."
        ),
    ] = None,
    worst: Annotated[int, typer.Option(min=1, help="Number of answers to show with --metric.")] = 10,
    everything: Annotated[
        bool, typer.Option("--all", help="Print all rows instead of the first page.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Trace a score to its turns, the judge's rationales and the rubric, or show the worst answers for a metric or a turn."""
    from agent_eval.commands.results import explain as explaining
    from agent_eval.commands.terminal.output import consoles

    project = _project()
    version, out = _marked_version(project, methodology), consoles()[0]
    if turn is not None:
        explaining.explain_turn(
            project, out, agent_id=agent, version=version, reference=turn, as_json=as_json
        )
        return
    if metric is not None:
        explaining.explain_metric(
            project, out, agent_id=agent, version=version, metric=metric, n_worst=worst, as_json=as_json, is_whole=everything
        )  # fmt: skip
        return
    explaining.explain(
        project, out, agent_id=agent, version=version, score=score, as_json=as_json, is_whole=everything
    )


@app.command(rich_help_panel=READ)
def summary(
    agent: Agents = None,
    methodology: Version = None,
    notes: Notes = False,
    spend: Annotated[
        bool,
        typer.Option("--spend", help="Show instead what calls of models have cost, by day and model."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="DATE",
            help="Compare the conversations since this day (UTC) with earlier ones; with --spend: the first day.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Summarise each agent's conversations: success, metrics, failures and cost with intervals, and the worst errors.

    Use this command for logs, which have neither common tasks nor slots. Values are means over conversations, and
    agents are not ranked.
    """
    from agent_eval.commands.results.summary import summary as show
    from agent_eval.commands.terminal.output import consoles

    project = _project()
    if spend:
        from agent_eval.commands.results.spend import spend as show_spending

        show_spending(project, consoles()[0], since=since, as_json=as_json)
        return
    version = _marked_version(project, methodology)
    if since is not None:
        from agent_eval.commands.results.since import summary_since

        summary_since(project, consoles()[0], version=version, agents=agent or (), day=since, as_json=as_json)
        return
    show(project, consoles()[0], version=version, agents=agent or (), as_json=as_json, notes=notes)


@app.command(rich_help_panel=READ)
def reliability(
    agent: Agents = None,
    k: Annotated[
        list[int] | None,
        typer.Option(
            "-k",
            max=MOST_ATTEMPTS,
            help="Number of attempts (repeatable). Default: 1 to 8, limited by the number of trials.",
        ),
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator",
            help="Estimator (repeatable): unbiased (default), plug_in (default with --interactions), bayesian or pooled.",
        ),
    ] = None,
    interactions: Annotated[
        bool,
        typer.Option(
            "--interactions",
            help="Show interaction_pass_at_k, which treats the turns of one conversation as attempts.",
        ),
    ] = False,
    methodology: Version = None,
    as_json: AsJson = False,
) -> None:
    """Show pass@k and pass^k over the trials of each task, with intervals."""
    from agent_eval.commands.results.reliability import checked_estimators, show_interactions
    from agent_eval.commands.results.reliability import reliability as show
    from agent_eval.commands.terminal.output import consoles

    project = _project()
    out, version = consoles()[0], _marked_version(project, methodology)
    estimators = checked_estimators(estimator or ())
    if interactions:
        show_interactions(
            project, out, version=version, agents=agent or (), ks=k or (), as_json=as_json, estimators=estimators
        )  # fmt: skip
        return
    show(
        project, out, version=version, agents=agent or (), ks=k or (), as_json=as_json, estimators=estimators
    )


@app.command(rich_help_panel=READ)
def tournament(
    agent: Agents = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(
            "--verdicts", help="Folder with *.jsonl files of recorded verdicts. Default: data/pairwise."
        ),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            help="Judge model that compares all pairs of conversations on the same task (repeatable).",
        ),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", min=0, help="Maximum cost of judge calls with --judge, in US dollars."),
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option("--max-calls", min=0, help="Maximum number of judge calls with --judge.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank agents by pairwise verdicts (recorded or from a model), with ratings, win matrix, cycles and position bias.

    Exit code: 0 done; 1 a line was rejected or some comparisons have no verdict; 2 no comparison has a verdict.
    """
    from agent_eval.commands.results.tournament import ask_tournament, show_tournament
    from agent_eval.commands.terminal.output import consoles
    from agent_eval.commands.terminal.progress import shown_progress

    if judge:
        if verdicts is not None:
            raise typer.BadParameter(
                "--verdicts reads recorded verdicts and --judge calls a model. Use only one of them."
            )
        project = _project().with_settings(
            judge_model=_models(judge), max_cost_usd=max_cost, max_calls=max_calls
        )
        out, err = consoles()
        with shown_progress(err, "Asking the judges …") as progress:
            code = ask_tournament(
                project, out, err, agents=agent or (), watch=progress.watch, as_json=as_json
            )
        raise typer.Exit(code)
    code = show_tournament(_project(), *consoles(), folder=verdicts, agents=agent or (), as_json=as_json)
    raise typer.Exit(code)


@app.command(rich_help_panel=READ)
def errors(
    agent: Agents = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Day (UTC), agent or benchmark run (benchmark_id) to compare with. Default: the baseline agent or the previous "
            "run."
        ),
    ] = None,
    methodology: Version = None,
    consolidate: Annotated[
        bool, typer.Option("--consolidate", help="Merge and split clusters first, and record every change.")
    ] = False,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER",
            help="Write a scenario that repeats a failure of this cluster to data/scenarios/regressions.",
        ),
    ] = None,
    case_format: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help="With --export: print the failures for another tool instead: pytest (a test), inspect (samples), jsonl, or task (a task for a coding agent).",
        ),
    ] = "scenario",
    is_proposals: Annotated[
        bool, typer.Option("--proposals", help="List the merges of clusters that a judge model proposed.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLUSTER", help="Accept the proposed merge of this cluster, or `all`; can be repeated."
        ),
    ] = None,
    undo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLUSTER", help="Undo the accepted merge of this cluster, or `all`; can be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show error clusters with their causes, their frequency, and their change since an earlier run."""
    from agent_eval.commands import errors as command
    from agent_eval.commands.terminal.output import consoles

    does = {"--accept/--undo": accept or undo, "--proposals": is_proposals, "--export": export is not None}
    if len(given := [name for name, is_given in does.items() if is_given]) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other.")
    if case_format != "scenario" and export is None:
        raise typer.BadParameter("--as needs --export CLUSTER.")
    project = _project()
    out, err = consoles()
    if consolidate:
        command.consolidate(project, err)
    if accept or undo:
        command.decide(project, out, accepted=accept or (), undone=undo or ())
        return
    if is_proposals:
        command.list_proposals(project, out, as_json=as_json)
        return
    version = _marked_version(project, methodology)
    if export is not None:
        if as_json or since is not None:
            raise typer.BadParameter(f"--export and {'--json' if as_json else '--since'} exclude each other.")
        if case_format not in ("scenario", *command.CASE_FORMATS):
            raise typer.BadParameter(
                f"--as {case_format!r} is not a format: scenario, {', '.join(command.CASE_FORMATS)}."
            )
        agents = agent or ()
        if case_format == "scenario":
            command.export(project, out, version=version, agents=agents, cluster=export)
        else:
            text = command.exported(
                project, version=version, agents=agents, cluster=export, case_format=case_format
            )
            typer.echo(text, nl=False)
        return
    command.errors(project, out, version=version, agents=agent or (), since=since, as_json=as_json)


@app.command(rich_help_panel=DECIDE)
def gate(
    agent: Agents = None,
    methodology: Version = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file whose table `gates` replaces the one in agent_eval.toml."),
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Also print annotations for GitHub Actions.")
    ] = False,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Also write the results to this file as JUnit XML."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, e.g. for a comment on a pull request.")
    ] = False,
    is_whole: Annotated[bool, typer.Option("--all", help="Also list the gates that passed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate the release gates and set the exit code for CI.

    The gates check thresholds, errors, assertions, coverage, required tests and regression.

    If GITHUB_STEP_SUMMARY is set, the result is also appended to that file as Markdown.

    Exit code: 0 all gates passed; 1 a gate failed; 2 no gate failed, but one is unknown or none was evaluated.
    """
    from agent_eval.commands.gate import gate as show
    from agent_eval.commands.terminal.output import consoles

    project = _project()
    code = show(
        project,
        consoles()[0],
        version=_marked_version(project, methodology),
        agents=agent or (),
        as_json=as_json,
        config=config,
        github=github,
        junit_file=junit,
        is_whole=is_whole,
        markdown=markdown,
    )
    raise typer.Exit(code)


@judge_app.command("audit")
def audit(
    size: Annotated[
        int | None,
        typer.Option(
            "--size", min=1, help="Number of turns to judge again. Default: the setting audit_size."
        ),
    ] = None,
    judge: Annotated[
        list[str] | None, typer.Option("--judge", help="litellm name of a judge model (repeatable).")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", min=0, help="Maximum cost of the audit, in US dollars.")
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option("--max-calls", min=0, help="Maximum number of judge calls in the audit.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            help="File with verdicts of tau2-bench's judges (repeatable). Report their agreement with `policy_adherence` "
            "without calling a judge.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Repeat a fixed sample of questions to the judge models without the cache, and report how many answers changed.

    Exit code: 0 the audit is complete; 1 some answers are missing; 2 nothing could be audited.
    """
    from agent_eval.commands.audit import audit as show
    from agent_eval.commands.audit import compare_foreign
    from agent_eval.commands.terminal.output import consoles
    from agent_eval.commands.terminal.progress import shown_progress

    if against:
        raise typer.Exit(compare_foreign(_project(), *consoles(), against, as_json=as_json))
    project = _project().with_settings(
        judge_model=_models(judge),
        max_cost_usd=max_cost,
        max_calls=max_calls,
        audit_size=size,
    )
    out, err = consoles()
    with shown_progress(err, "Asking the judges …") as progress:
        code = show(project.watched(progress.watch), out, err, as_json=as_json)
    raise typer.Exit(code)


@app.command(rich_help_panel=READ)
def report(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Output folder of the report. Default: data/report."),
    ] = None,
    methodology: Version = None,
) -> None:
    """Write boards, agents and conversations as HTML pages that can be opened without a server or a network.

    The report contains all versions; --methodology selects the version on its first page. An earlier report in DIR is
    replaced.
    """
    from agent_eval.commands.report import report as write
    from agent_eval.commands.terminal.output import consoles

    write(_project(), consoles()[0], out, version=methodology)


@store_app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the backup.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
) -> None:
    """Back up the store to FILE; safe while runs are active. To restore, replace the store file with the backup."""
    from agent_eval.commands.backup import backup as copy
    from agent_eval.commands.terminal.output import consoles

    copy(_project(), consoles()[0], file, force=force)


@app.command(rich_help_panel=READ)
def export(
    format_name: Annotated[str, typer.Argument(metavar="FORMAT", help="Output format: openai or atif.")],
    agent: Annotated[str, typer.Option("--agent", help="Id of the agent.")],
    session: Annotated[
        list[str] | None, typer.Option("--session", help="Export only this session (repeatable).")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Output file. Default: stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
    redact: Annotated[
        bool | None,
        typer.Option(
            "--redact/--no-redact",
            help="Replace personal data by placeholders. Default: the setting `judge_redact`.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write an agent's conversations in another format, one JSON object per line. `import` can read the output.

    Exit code: 0 all conversations were written; 1 some lines of the session files are invalid; 2 nothing to export.
    """
    from agent_eval.commands.export import export as write
    from agent_eval.commands.terminal.output import consoles

    project = _project()
    code = write(
        project,
        consoles()[1],
        format_name=format_name,
        agent_id=agent,
        sessions=tuple(session or ()),
        out=out,
        force=force,
        redacts=project.settings.judge_redact if redact is None else redact,
    )
    raise typer.Exit(code)


@app.command(rich_help_panel=JUDGES)
def prompts(
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            help="Metric, or kind of call: turn, conversation, session, scenario, error_deduplication (which names "
            "error clusters), error_category (which sorts them into a taxonomy), simulated_user or simulated_user_check. Default: every call of a run.",
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Id of an agent. Default: an example in the package.")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option(help="Id of one of the agent's conversations. Default: the first.")
    ] = None,
    turn: Annotated[
        int | None,
        typer.Option(
            help="Index of the turn, starting at 0. Default: the last turn to which the metric applies."
        ),
    ] = None,
    methodology: Version = None,
    as_json: AsJson = False,
) -> None:
    """Show the exact prompts for a judge model: messages, reply schema and hashes.

    A run omits questions that are already decided by earlier answers. --json prints one row per prompt.
    """
    from agent_eval.commands.prompts import agent_subject, example_subject
    from agent_eval.commands.prompts import prompts as show
    from agent_eval.commands.terminal.output import consoles

    project = _project_or_packaged() if agent is None else _project()
    version = project.registry.get(_version(project, methodology))
    if agent is None and conversation is not None:
        raise InputError("--conversation requires --agent: conversation ids are unique only within an agent.")
    if agent is None:
        subject = example_subject(version, project.metrics.metrics, turn)
    else:
        subject = agent_subject(project, version, agent, conversation, turn)
    show(*consoles(), name=metric, subject=subject, as_json=as_json)


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
    from agent_eval.commands.terminal.output import consoles
    from agent_eval.commands.ui import ui as serve

    serve(_project(), consoles()[1], host=host, port=port, has_token=not no_token)


@methodology_app.command("list")
def methodology_list(as_json: AsJson = False) -> None:
    """List every version with its date, status, hash and requirements."""
    from agent_eval.commands.methodology import show_list
    from agent_eval.commands.terminal.output import consoles

    show_list(_project_or_packaged().registry, consoles()[0], as_json=as_json)


@methodology_app.command("show")
def methodology_show(
    version: Annotated[str, typer.Argument(help="Version to show, e.g. 1.3.0.")],
    template: Annotated[
        str | None, typer.Option(help="Show only this domain template, e.g. research_v1.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the weights, anchors, templates, tests and rules of one version, or one of its templates."""
    from agent_eval.commands.methodology import show
    from agent_eval.commands.terminal.output import consoles

    show(_project_or_packaged().registry, version, consoles()[0], as_json=as_json, template=template)


@methodology_app.command("diff")
def methodology_diff(
    before: Annotated[str, typer.Argument(help="Earlier version.")],
    after: Annotated[str, typer.Argument(help="Later version.")],
    as_json: AsJson = False,
) -> None:
    """Show the differences between two versions."""
    from agent_eval.commands.methodology import show_diff
    from agent_eval.commands.terminal.output import consoles

    show_diff(_project_or_packaged().registry, before, after, consoles()[0], as_json=as_json)


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
    from agent_eval.commands.terminal.output import consoles
    from agent_eval.methodology import freeze as freeze_own

    project = _project()
    out, err = consoles()
    if freeze:
        for version in freeze_own(project.home.methodologies):
            err.print(f"Frozen: {version}", markup=False)
    raise typer.Exit(validate(project.registry, out, as_json=as_json))


@labels_app.command("import")
def labels_import(
    paths: Annotated[
        list[Path], typer.Argument(help="CSV files, judge files from tau2-bench, or UniEval results.")
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            help="Agent of the conversations. Default: the agent that has a conversation with the id.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            help="Metric of labels that do not specify one. Default for tau2-bench: goal_completion.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import labels into data/ratings, and print the agreement between judges and people.

    Labels are matched to conversations by the ids in their source. Labels from people count as ratings. Labels from
    judges are stored as judge `import:NAME` and do not affect scores. A CSV file has the columns conversation, turn,
    metric, rater or judge, label or rating, reason and time, separated by commas or semicolons. Importing a file twice
    changes nothing.

    Exit code: 0 all labels were imported; 1 some labels were rejected; 2 no label could be read.
    """
    from agent_eval.commands.labels import import_labels
    from agent_eval.commands.terminal.output import consoles

    out, err = consoles()
    raise typer.Exit(
        import_labels(_project(), out, err, paths, agent_id=agent, metric=metric, as_json=as_json)
    )


@store_app.command("init")
def store_init() -> None:
    """Create the lake that the table `store` of agent_eval.toml configures. An existing lake is not changed."""
    from agent_eval.commands.setup import store
    from agent_eval.commands.terminal.output import consoles

    store.init(_project(), consoles()[0])


@store_app.command("check")
def store_check() -> None:
    """Check the whole lake: rows, keys, files, the data folder and the clocks.

    Exit code: 0 no problems; 1 problems were found, which are printed with their fixes; 2 the lake cannot be opened.
    """
    from agent_eval.commands.setup import store
    from agent_eval.commands.terminal.output import consoles

    raise typer.Exit(store.check(_project(), consoles()[0]))


@store_app.command("compact")
def store_compact() -> None:
    """Merge small files of the lake, and delete files that have been unused for an hour. Runs wait meanwhile."""
    from agent_eval.commands.setup import store
    from agent_eval.commands.terminal.output import consoles

    store.compact(_project(), consoles()[0])


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
    from agent_eval.commands.terminal.output import consoles

    store.copy(_project(), consoles()[0], source=source, target=target)


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
    from agent_eval.commands.terminal.output import consoles

    code = forget(
        _project(),
        consoles()[0],
        conversation_id=conversation,
        agent_id=agent,
        confirm=lambda question: yes or typer.confirm(question),
    )
    raise typer.Exit(code)


NEW_OBJECTS = 50_000
"""New objects between two garbage collections. With Python's default (700 or 2,000), collections take a tenth of the
CPU time of a small run: Dagster and litellm create many objects at import, which live until the process ends."""


def _alias(old: str, new: str, command: Callable[..., None]) -> None:
    """Register a hidden command under an earlier name; it says the new one on stderr and does the same."""

    @functools.wraps(command)
    def said(*arguments: object, **options: object) -> None:
        sys.stderr.write(f"Note: `agent-eval {old}` is now `agent-eval {new}`.\n")
        command(*arguments, **options)

    app.command(old, hidden=True)(said)


for _old, _new, _command in (
    ("plan", "compare A B --plan", plan),
    ("audit", "judge audit", audit),
    ("mock-judge", "judge mock", mock_judge),
    ("backup", "store backup", backup),
):
    _alias(_old, _new, _command)


def main() -> None:
    """Run a command.

    Errors that the user can fix are reported in one line on stderr with exit code 2. Ctrl-C results in exit code 130.
    Files that a command creates (store, event log, journal, report) are readable only by their owner.
    """
    if sys.platform == "win32":
        sys.stderr.write(f"Error: {PLATFORMS}\n")
        raise SystemExit(2)
    os.umask(0o077)
    gc.set_threshold(NEW_OBJECTS)
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:
            sys.stderr.write("Interrupted. Finished work is stored; run the same command to resume.\n")
        raise SystemExit(code)
    except AgentEvalError as error:
        _end(str(error), error)
    except OSError as error:
        _end(f"{error.strerror or error}: {error.filename or 'unknown file'}", error)
    except Exception as error:
        # a usage error, whose class is defined by click or by typer, depending on typer's version
        if (sentence := getattr(error, "format_message", None)) is None:
            raise
        if not sys.argv[1:] or type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            raise SystemExit(2) from error
        _end(f"{sentence()} Help: agent-eval --help", error)


def _end(sentence: str, error: Exception) -> NoReturn:
    sys.stderr.write(f"Error: {one_line(sentence)}\n")
    raise SystemExit(2) from error


@labels_app.command("sheet")
def labels_sheet(
    n: Annotated[int, typer.Option("--n", min=1, max=10_000, help="Number of parts on each sheet.")] = 50,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="Include only this metric (repeatable). Default: all judged metrics."),
    ] = None,
    agent: Agents = None,
    rater: Annotated[
        list[str] | None,
        typer.Option(
            "--rater",
            help="Name of a rater (repeatable). Each rater gets a separate sheet; a third of the parts are on all sheets.",
        ),
    ] = None,
    version: Version = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Output folder. Default: data/sheets.", file_okay=False),
    ] = None,
) -> None:
    """Write a sample of turns and conversations for people to label, as an HTML file and as a CSV file.

    The sample is stratified by metric, agent and answer. Parts on which judges disagree and parts with a rating in the
    middle of the scale are sampled more often; the stored weights keep the estimates unbiased. Judges' answers are not shown. The
    HTML page saves a CSV file for `agent-eval labels import`.

    Exit code: 0 sheets were written; 2 nothing to label.
    """
    from agent_eval.commands.labels import write_sheets
    from agent_eval.commands.terminal.output import consoles

    printed, err = consoles()
    raise typer.Exit(
        write_sheets(
            _project(), printed, err, version=version, n=n,
            metrics=metric or (), agents=agent or (), raters=rater or (), folder=out,
        )
    )  # fmt: skip
