"""Declare the commands that show results, decide on them and write them down."""

from pathlib import Path
from typing import Annotated

import typer

from agent_eval.commands.declared.common import (
    DECIDE,
    MOST_ATTEMPTS,
    READ,
    Agents,
    AsJson,
    Notes,
    Version,
    chosen_version,
    consoles,
    judge_models,
    marked_version,
    open_project,
    renamed,
)
from agent_eval.errors import InputError

app = typer.Typer()


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

    if output_format not in FORMATS:
        raise InputError(f"--format {output_format!r} is unknown. Formats: {', '.join(FORMATS)}.")
    project = open_project()
    rendering = "json" if as_json else output_format
    versions = list(dict.fromkeys(methodology or ()))
    if changes:
        if as_of is not None:
            raise InputError("--changes lists the changes of all days; omit --as-of.")
        of = versions or [chosen_version(project, None)]
        print_edited(project.registry, of, consoles()[1])
        show_changes(project, consoles()[0], versions=of, template=template, output_format=rendering)
        return
    if len(versions) > 1:
        side_by_side(
            project, consoles()[0], versions=versions, template=template, output_format=rendering, as_of=as_of
        )
        return
    show(
        project,
        consoles()[0],
        version=chosen_version(project, versions[0] if versions else None),
        template=template,
        output_format=rendering,
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

    if is_plan:
        plan(agent, other, 5.0 if difference is None else difference, methodology, as_json)
        return
    if difference is not None:
        raise typer.BadParameter("--difference needs --plan.")
    if other is None:
        raise typer.BadParameter("Name a second agent B, or pass --plan.")
    project = open_project()
    version = marked_version(project, methodology)
    show(project, consoles()[0], version=version, agent=agent, other=other, as_json=as_json, notes=notes)


@renamed(app, "plan", now="compare A B --plan")
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

    project = open_project()
    version = marked_version(project, methodology)
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

    project = open_project()
    version, out = marked_version(project, methodology), consoles()[0]
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

    project = open_project()
    if spend:
        from agent_eval.commands.results.spend import spend as show_spending

        show_spending(project, consoles()[0], since=since, as_json=as_json)
        return
    version = marked_version(project, methodology)
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

    project = open_project()
    out, version = consoles()[0], marked_version(project, methodology)
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
    from agent_eval.commands.terminal.progress import shown_progress

    if judge:
        if verdicts is not None:
            raise typer.BadParameter(
                "--verdicts reads recorded verdicts and --judge calls a model. Use only one of them."
            )
        project = open_project().with_settings(
            judge_model=judge_models(judge), max_cost_usd=max_cost, max_calls=max_calls
        )
        out, err = consoles()
        with shown_progress(err, "Asking the judges …") as progress:
            code = ask_tournament(
                project, out, err, agents=agent or (), watch=progress.watch, as_json=as_json
            )
        raise typer.Exit(code)
    code = show_tournament(open_project(), *consoles(), folder=verdicts, agents=agent or (), as_json=as_json)
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

    does = {"--accept/--undo": accept or undo, "--proposals": is_proposals, "--export": export is not None}
    if len(exclusive_options := [name for name, is_given in does.items() if is_given]) > 1:
        raise typer.BadParameter(f"{' and '.join(exclusive_options)} exclude each other.")
    if case_format != "scenario" and export is None:
        raise typer.BadParameter("--as needs --export CLUSTER.")
    project = open_project()
    out, err = consoles()
    if consolidate:
        command.consolidate(project, err)
    if accept or undo:
        command.decide(project, out, accepted=accept or (), undone=undo or ())
        return
    if is_proposals:
        command.list_proposals(project, out, as_json=as_json)
        return
    version = marked_version(project, methodology)
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

    project = open_project()
    code = show(
        project,
        consoles()[0],
        version=marked_version(project, methodology),
        agents=agent or (),
        as_json=as_json,
        config=config,
        github=github,
        junit_file=junit,
        is_whole=is_whole,
        markdown=markdown,
    )
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

    write(open_project(), consoles()[0], out, version=methodology)


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

    project = open_project()
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
