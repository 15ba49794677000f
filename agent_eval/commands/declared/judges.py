"""Declare the commands about judges: prompts, audits, and labels of people."""

from pathlib import Path
from typing import Annotated

import typer

from agent_eval.commands.declared.common import (
    JUDGES,
    Agents,
    AsJson,
    Version,
    chosen_version,
    consoles,
    judge_app,
    judge_models,
    labels_app,
    open_project,
    project_or_packaged,
    renamed,
)
from agent_eval.errors import InputError

app = typer.Typer()


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

    project = project_or_packaged() if agent is None else open_project()
    version = project.registry.get(chosen_version(project, methodology))
    if agent is None and conversation is not None:
        raise InputError("--conversation requires --agent: conversation ids are unique only within an agent.")
    if agent is None:
        subject = example_subject(version, project.metrics.metrics, turn)
    else:
        subject = agent_subject(project, version, agent, conversation, turn)
    show(*consoles(), name=metric, subject=subject, as_json=as_json)


@renamed(app, "mock-judge", now="judge mock")
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


@renamed(app, "audit", now="judge audit")
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
    from agent_eval.commands.terminal.progress import shown_progress

    if against:
        raise typer.Exit(compare_foreign(open_project(), *consoles(), against, as_json=as_json))
    project = open_project().with_settings(
        judge_model=judge_models(judge),
        max_cost_usd=max_cost,
        max_calls=max_calls,
        audit_size=size,
    )
    out, err = consoles()
    with shown_progress(err, "Asking the judges …") as progress:
        code = show(project.watched(progress.watch), out, err, as_json=as_json)
    raise typer.Exit(code)


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
    """Import labels into data/ratings, and print how far labels by judges of other tools agree with people.

    Labels are matched to conversations by the ids in their source. Labels from people count as ratings. Labels from
    judges are stored as judge `import:NAME` and do not affect scores. A CSV file has the columns conversation, turn,
    metric, rater or judge, label or rating, reason and time, separated by commas or semicolons. Importing a file twice
    changes nothing.

    Exit code: 0 all labels were imported; 1 some labels were rejected; 2 no label could be read.
    """
    from agent_eval.commands.labels import import_labels

    out, err = consoles()
    raise typer.Exit(
        import_labels(open_project(), out, err, paths, agent_id=agent, metric=metric, as_json=as_json)
    )


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

    printed, err = consoles()
    raise typer.Exit(
        write_sheets(
            open_project(), printed, err, version=version, n=n,
            metrics=metric or (), agents=agent or (), raters=rater or (), folder=out,
        )
    )  # fmt: skip
