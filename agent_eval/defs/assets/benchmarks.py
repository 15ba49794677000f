"""Define the asset that holds benchmark sessions, and its schedule.

An agent is started only if this asset is selected alone, and only with a cap. The definitions contain the asset if
agents.yaml has an agent with an endpoint when they are loaded.
"""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import polars as pl
from pydantic import Field

from agent_eval.defs.assets.common import OWNERS, watch_of
from agent_eval.defs.partitions import project_settings
from agent_eval.project import Project
from agent_eval.project.benchmarks.sessions import (
    conversation_ids,
    hold_sessions,
    runnable_agents,
    session_folders,
)
from agent_eval.report.links import REPORT, row_page
from agent_eval.report.markdown import markdown_table
from agent_eval.settings.home import NoRootError
from agent_eval.simulate.runner import SimulationReport
from agent_eval.transcripts.sessions import CONVERSATIONS

NAME = "benchmark_sessions"
MOST_LINKS = 100  # maximum number of conversations of a session that are listed
NOT_REQUESTED = (
    "0 new sessions: benchmark sessions are held only if this asset is materialised alone, because each conversation "
    "calls an agent."
)


class BenchmarkConfig(dg.Config):
    """Define what is run of an agent."""

    sessions: int = 3  # three make up a test of repeatability
    suites: list[str] = Field(default_factory=list)  # empty for all suites in data/scenarios
    seed: int = 0  # another seed begins new sessions


def benchmark_sessions_of(agents: list[str]) -> dg.AssetsDefinition:
    """Return the asset, with one partition for each of these agents."""

    @dg.asset(
        name=NAME,
        group_name="ingest",
        partitions_def=dg.StaticPartitionsDefinition(agents),
        description="Sessions that agents with an endpoint hold on the scenarios in data/scenarios. Materialise this asset "
        "alone to hold them; it needs a cap on calls or cost. Finished conversations are kept and not held again.",
        kinds={"json"},
        owners=OWNERS,
        pool="llm",
    )
    def benchmark_sessions(
        context: dg.AssetExecutionContext, config: BenchmarkConfig, project: dg.ResourceParam[Project]
    ) -> Iterator[dg.MaterializeResult[None]]:
        """Hold the missing conversations of the run's agents."""
        if not is_selected_alone(context):
            yield dg.MaterializeResult(metadata={"n_conversations_held": 0, "why": NOT_REQUESTED})
            return
        keys = list(context.partition_keys)
        watch = watch_of(context, project)
        report = hold_sessions(project, keys, config.suites, config.sessions, config.seed, watch)
        yield dg.MaterializeResult(metadata=_page(project, keys, report))
        if report.exit_code == 2:
            raise dg.Failure(f"no conversation was held: {'; '.join(report.problems)[:500]}")

    return benchmark_sessions


def is_selected_alone(context: dg.AssetExecutionContext) -> bool:
    """Return whether the run, and the backfill that it belongs to, materialises no other asset."""
    only = {dg.AssetKey(NAME)}
    backfill_id = context.run.tags.get("dagster/backfill")
    backfill = context.instance.get_backfill(backfill_id) if backfill_id else None
    selected = backfill.asset_selection if backfill is not None else None
    of_run = set(context.run.asset_selection or context.job_def.asset_layer.selected_asset_keys)
    return of_run == only and (selected is None or set(selected) == only)


def _page(project: Project, agents: list[str], report: SimulationReport) -> dict[str, dg.MetadataValue]:
    folders = session_folders(project, agents, report)
    outcomes = {name: n for name, n in sorted(report.outcomes.items()) if name != "unknown"}
    cost = project.judges.budget.known_cost_usd
    page: dict[str, dg.MetadataValue] = {
        "n_sessions": dg.MetadataValue.int(len(folders)),
        "n_conversations_held": dg.MetadataValue.int(report.n_held),
        "n_conversations_kept": dg.MetadataValue.int(report.n_kept),
        "n_conversations_left": dg.MetadataValue.int(report.n_left),
        "n_errors": dg.MetadataValue.int(sum(outcomes.values())),
        "errors": dg.MetadataValue.json(outcomes),
        "transcripts": dg.MetadataValue.md("\n".join(_links(project, folders)) or "none"),
        "scenarios": dg.MetadataValue.md(_scenarios(project)),
        "cost_usd": dg.MetadataValue.text("not known") if cost is None else dg.MetadataValue.float(cost),
    }
    return page | ({"problems": dg.MetadataValue.json(report.problems)} if report.problems else {})


def _links(project: Project, folders: list[Path]) -> Iterator[str]:
    """Yield a line of Markdown per session, with links to its conversations in the report, which the next run writes."""
    for folder in folders:
        yield f"- {folder.relative_to(project.home.root)}/{CONVERSATIONS}"
        for name in conversation_ids(folder)[:MOST_LINKS]:
            row = {"agent_id": folder.parent.name, "conversation_id": name}
            yield f"    - [{name}]({row_page(row, project.settings.report_url or REPORT)})"


def _scenarios(project: Project) -> str:
    """Return the scenarios in data/scenarios with the task under which results name them."""
    rows = [
        {"task": suite.task_id(scenario), "slot": scenario.slot or "", "file": f"data/scenarios/{suite.name}/{scenario.id}.scenario.yaml"}
        for suite in project.suites
        for scenario in suite.scenarios
    ]  # fmt: skip
    return markdown_table(
        pl.DataFrame(rows, schema={"task": pl.String, "slot": pl.String, "file": pl.String})
    )


def _agents() -> list[str]:
    try:
        return runnable_agents(Project.open())
    except NoRootError:
        return []


AGENTS_WITH_ENDPOINT = _agents()
IS_ON = bool(AGENTS_WITH_ENDPOINT)
ASSETS: tuple[dg.AssetsDefinition, ...] = (benchmark_sessions_of(AGENTS_WITH_ENDPOINT),) if IS_ON else ()

benchmark = dg.define_asset_job(
    "benchmark",
    selection=dg.AssetSelection.assets(NAME),
    description="Holds benchmark sessions of agents with an endpoint.",
)


@dg.schedule(
    job=benchmark,
    name="weekly_benchmark",
    cron_schedule=project_settings().benchmark_cron,
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Holds benchmark sessions of every agent with an endpoint, with the date as the seed. Needs a cap for automation.",
)
def weekly_benchmark(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
    """Request one run per agent; the date is the seed, so that each week has sessions of its own."""
    seed = int(context.scheduled_execution_time.strftime("%Y%m%d"))
    config = {"ops": {NAME: {"config": {"seed": seed}}}}
    return [dg.RunRequest(partition_key=agent, run_config=config) for agent in AGENTS_WITH_ENDPOINT]


JOBS = (benchmark,) if IS_ON else ()
SCHEDULES = (weekly_benchmark,) if IS_ON else ()
