"""Automation: who notices a change, who redoes what it makes stale, who repairs what was missed, who tells of failures.

`source_changes` notices, `redo_stale` redoes (the condition of each asset is `eager`), `redo_missed` and `nightly` do
what `agent-eval run --boards` does, `weekly_audit` asks judge models again, `failed_runs` tells. The sensors run from
the start, the schedules start stopped.
"""

import importlib
import subprocess
import sys
from collections.abc import Sequence

import dagster as dg

from agent_eval.defs.dagster_internals import has_backfill_under_way
from agent_eval.defs.instance import UNFINISHED, close_lost_runs
from agent_eval.defs.observations import news, observed
from agent_eval.defs.partitions import AGENTS, VERSIONS, project_settings
from agent_eval.defs.settling import settled_pairs
from agent_eval.formats.hashing import digest
from agent_eval.methodology import EditedVersionError
from agent_eval.project import Project
from agent_eval.project.data_versions import Sources, read_sources, with_open_judgments
from agent_eval.project.ingest import ingest_fingerprint
from agent_eval.tables import table

EVERY_S = 10
BUSY = "a run is under way; the sources are looked at when it is done"
QUIET_TICKS = 3
RUN_STATE = table("run_state")


@dg.sensor(
    minimum_interval_seconds=EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Reports new, changed and removed sessions, ratings, methodology and judge settings, by partition.",
)
def source_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Observe what differs from what was observed last, and keep run_state true to what runs have done.

    Never while a run works on the store: an observation in its middle would count as consumed by it.
    """
    project = Project.open()
    with project.store.only_one("run", wait=False) as is_idle:
        if not is_idle:
            return dg.SensorResult(skip_reason=BUSY)
        instance = context.instance
        for run_id in close_lost_runs(instance, project.home.root, project.store):
            context.log.warning(f"Run {run_id} had no process any more; it is marked as failed.")
        cursor = str(instance.event_log_storage.get_maximum_record_id())
        seen, versions = observed(instance), _loaded_versions(context, project)
        agents = sorted({*project.known_agents(), *instance.get_dynamic_partitions("agent")})
        gone: set[str] = set()
        if cursor != context.cursor:  # something was made since
            if (repository := context.repository_def) is None:
                raise dg.DagsterInvariantViolationError(
                    "source_changes needs the definitions that it is part of."
                )
            gone = keep_run_state(project, instance, repository, seen, agents, versions)
        kept = [agent for agent in agents if agent not in gone]
        events = news(read_sources(project, kept, versions), seen)
    new = sorted(set(kept) - set(instance.get_dynamic_partitions("agent")))
    added, deleted = AGENTS.build_add_request(new), AGENTS.build_delete_request(sorted(gone))
    return dg.SensorResult(
        asset_events=events,
        dynamic_partitions_requests=[*([added] if new else []), *([deleted] if gone else [])],
        skip_reason=None if events or gone else "nothing new",
        cursor=cursor,
    )


def keep_run_state(
    project: Project,
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    seen: Sources,
    agents: Sequence[str],
    versions: Sequence[str],
) -> set[str]:
    """Write the fingerprints of pairs that any run has brought up to date; `agent-eval run` then leaves them alone.

    Returns:
        Agents without sessions whose rows are all gone by now: their partitions can go too.
    """
    held = dict(project.store.read(table("agents"), columns=["agent_id", "taken_in"]).iter_rows())
    settled = {
        pair
        for pair in settled_pairs(instance, repository, agents, versions)
        if held.get(pair.agent_id) in (None, ingest_fingerprint(seen.agent_sessions[pair.agent_id]))
    }
    wanted = seen.fingerprints().join(
        project.store.read(RUN_STATE), on=["agent_id", "methodology_version", "fingerprint"], how="anti"
    )
    rows = [
        row
        for row in wanted.iter_rows(named=True)
        if row["agent_id"] in held and (row["agent_id"], row["methodology_version"]) in settled
    ]
    made = RUN_STATE.frame(rows)
    unfinished = with_open_judgments(project, made.select("agent_id", "methodology_version"))
    project.store.upsert(RUN_STATE, made.join(unfinished, on=unfinished.columns, how="anti"), run_id="")
    absent = set(agents) - set(held) - set(project.with_sessions[0])
    gone = {agent for agent in absent if all((agent, version) in settled for version in versions)}
    project.store.delete(
        RUN_STATE, RUN_STATE.frame({"agent_id": agent} for agent in sorted(gone)).select("agent_id")
    )
    return gone


def _loaded_versions(context: dg.SensorEvaluationContext, project: Project) -> list[str]:
    loaded = VERSIONS.get_partition_keys()
    for version in set(project.registry.versions) - set(loaded):
        context.log.warning(f"Methodology {version} is new: reload the code location to get its partitions.")
    edited = project.registry.edited()  # not observed: its boards stay as they were
    for problem in edited.values():
        context.log.warning(str(EditedVersionError(problem)))
    return [v for v in project.registry.versions if v in loaded and v not in edited]


redo_stale = dg.AutomationConditionSensorDefinition(
    name="redo_stale",
    target=dg.AssetSelection.all(),
    minimum_interval_seconds=EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Requests every partition whose inputs changed, in ranges. Stop it to materialise by hand only.",
)


# Hands nothing on. The table IO manager would keep the place for runs from the process that needs it.
@dg.op(out=dg.Out(dg.Nothing, io_manager_key="no_io_manager"))
def run_what_is_stale(context: dg.OpExecutionContext) -> None:
    """`agent-eval run --boards` in a process of its own: its exit code 2 fails this run, 1 is a warning."""
    command = [sys.executable, "-m", "agent_eval", "run", "--boards"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in (*done.stdout.splitlines(), *done.stderr.splitlines()):
        context.log.info(line)
    if done.returncode == 1:
        context.log.warning("Records were refused, or judgments are unscored: see the lines above.")
    elif done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise dg.Failure(f"agent-eval run ended with {done.returncode}: {said[:500]}")


@dg.job(
    description="What `agent-eval run --boards` does: everything stale, whatever automation missed, and all boards."
)
def reconcile() -> None:
    """One op."""
    run_what_is_stale()


@dg.sensor(
    job=reconcile,
    minimum_interval_seconds=EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Runs `reconcile` once for a change that automation lost: partitions still stale when all is quiet.",
)
def redo_missed(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """`redo_stale` is told of changes, and loses one that lands between its request and the run; this looks at the state.

    Asks once per state, after QUIET_TICKS in which nothing happened, so that a failing run is not repeated.
    """
    project, instance = Project.open(), context.instance
    wanted = observed(instance).fingerprints()
    stale = wanted.join(project.store.read(RUN_STATE), on=wanted.columns, how="anti")
    unfinished = instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED))
    if stale.is_empty() or unfinished or has_backfill_under_way(instance):
        return dg.SensorResult(skip_reason="nothing is stale, or work is under way", cursor="")
    state = digest(stale.rows(), instance.event_log_storage.get_maximum_record_id())
    before, _, n_quiet = (context.cursor or "").partition(" ")
    n_quiet = str(int(n_quiet or 0) + 1) if before == state else "0"
    if int(n_quiet) < QUIET_TICKS:
        return dg.SensorResult(
            skip_reason=f"{stale.height} stale pairs; waiting for automation", cursor=f"{state} {n_quiet}"
        )
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=digest(stale.rows()))], cursor=f"{state} {n_quiet}"
    )


nightly = dg.ScheduleDefinition(
    name="nightly",
    job=reconcile,
    cron_schedule=project_settings().nightly_cron,
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Repairs what automation missed, makes the boards anew, publishes the report. Setting: nightly_cron.",
)


audit = dg.define_asset_job(
    "audit",
    selection=dg.AssetSelection.assets("judge_audits"),
    description="Puts a fixed sample of answered questions to the judge models again: do they drift?",
)

weekly_audit = dg.ScheduleDefinition(
    name="weekly_audit",
    job=audit,
    cron_schedule=project_settings().audit_cron,
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Asks the judge models a fixed sample again. Needs a judge model. Settings: audit_cron, audit_size.",
)


@dg.run_failure_sensor(
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Calls the function that setting failure_hook names, with what failed and why.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Tell of a failed run: to the log, and to the project's own hook if it has one."""
    run = context.dagster_run
    assets = sorted(key.to_user_string() for key in run.asset_selection or ())
    why = context.failure_event.message
    told = {"run_id": run.run_id, "job": run.job_name, "assets": assets, "tags": dict(run.tags), "error": why}
    context.log.error(f"Run {run.run_id} of {run.job_name} failed: {why}")
    if hook := Project.open().settings.failure_hook:
        module, _, function = hook.partition(":")
        getattr(importlib.import_module(module), function)(told)


SENSORS = [source_changes, redo_stale, redo_missed, failed_runs]
SCHEDULES = [nightly, weekly_audit]
JOBS = (reconcile, audit)
