"""Define the sensors, schedules and jobs that detect changes, re-run stale partitions and report failures.

- `source_changes` detects changes of the sources and reports them to Dagster.
- `redo_stale` starts job `reconcile`, which runs `agent-eval run` for the stale partitions.
- `nightly` starts the same job every night, including the boards and the report.
- `weekly_audit` asks the judge models a sample of questions again.
- `failed_runs` reports failed runs.

All but `weekly_audit` are on by default. Automation has its own spending cap for judges; without that cap it
does not call judge models that cost money.
"""

import contextlib
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg

from agent_eval.defs.dagster_internals import has_backfill_under_way
from agent_eval.defs.instance import (
    UNFINISHED,
    close_abandoned_runs,
    close_lost_runs,
    end_lost_retries,
    records_in,
    runs_of_failed_tasks,
    what_differs,
)
from agent_eval.defs.observations import new_observations, observed, report_unreported
from agent_eval.defs.partitions import AGENTS, VERSIONS, project_settings
from agent_eval.defs.resources import is_automatic
from agent_eval.errors import StorageError
from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import one_line
from agent_eval.methodology import EditedVersionError
from agent_eval.project import Project
from agent_eval.project.data_versions import read_sources
from agent_eval.project.fingerprints import RUN_STATE, Fingerprints, stale_places
from agent_eval.project.project import PARENT_RUN

EVERY_S = 10
EVERY_LOST_S = 60  # Dagster itself retries a lost run sooner
BUSY = "a run is in progress; the sources are checked when it ends"
PAUSED = "A backfill is in progress. When it ends, redo_stale requests what is stale then."
LISTED = 5  # maximum number of stale partitions that a tick lists


@dg.sensor(
    minimum_interval_seconds=EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Reports new, changed and removed sessions, ratings, methodology and judge settings, by partition, and rows of a restored store.",
)
def source_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Observe sources that changed since the last observation, and add the partitions of new agents.

    Rows that this instance does not know, e.g. of a restored store, are also reported; the cursor is the state of the
    store in which all were.

    The sensor skips its tick while a run uses the store, because Dagster would assume that the run has already read
    any observation that is made during the run.
    """
    project, instance = Project.open(), context.instance
    lost = close_abandoned_runs(instance, project.store, also=runs_of_failed_tasks(instance))
    with project.store.exclusive_section("run", wait=False) as is_idle:
        if is_idle:
            lost += close_lost_runs(instance, project.home.root, project.store)
        for run_id in lost:
            context.log.warning(
                f"The process of run {run_id} has ended; the run is marked as failed or canceled."
            )
        if not is_idle:
            return dg.SkipReason(BUSY)
        sources = read_sources(project, project.known_agents(), _loaded_versions(context, project))
        events = new_observations(sources, observed(instance))
        state = digest(project.store.read(RUN_STATE).rows())
        is_reported = state == context.cursor
        if not is_reported and not events:  # what was computed from these sources is reported after them
            report_unreported(instance, Fingerprints.of(project, sources))
            is_reported = True
    new = sorted(set(project.with_sessions[0]) - set(instance.get_dynamic_partitions("agent")))
    return dg.SensorResult(
        asset_events=events,
        dynamic_partitions_requests=[AGENTS.build_add_request(new)] if new else [],
        cursor=state if is_reported else context.cursor,
        skip_reason=None if events else "no source has changed",
    )


def _loaded_versions(context: dg.SensorEvaluationContext, project: Project) -> list[str]:
    loaded = VERSIONS.get_partition_keys()
    for version in set(project.registry.versions) - set(loaded):
        context.log.warning(
            f"Methodology {version} is new. Reload the definitions to add its partitions; with several "
            "workers, restart the code server and the workers."
        )
    edited = project.registry.edited()  # these are not observed, so their boards stay unchanged
    for problem in edited.values():
        context.log.warning(str(EditedVersionError(problem)))
    return [v for v in project.registry.versions if v in loaded and v not in edited]


# The op has no output: the table IO manager would hold the lock for runs, which the child process needs.
@dg.op(
    out=dg.Out(dg.Nothing, io_manager_key="no_io_manager"),
    config_schema={
        "boards": dg.Field(bool, default_value=True, description="Rebuild all boards and the report."),
        "methodologies": dg.Field(
            [str], default_value=[], description="Methodology versions to run. Default: all."
        ),
    },
)
def run_what_is_stale(context: dg.OpExecutionContext) -> None:
    """Run `agent-eval run` in a separate process; exit code 1 logs a warning, and exit code 2 fails this run.

    A run that `redo_stale` requested just before a backfill does nothing: one worker would do the work of all.
    """
    if _is_in_the_way(context):
        context.log.info(PAUSED)
        return
    with Project.open().store.process_of_run(context.run_id):
        done = _run_in_process(context)
    for line in (*done.stdout.splitlines(), *done.stderr.splitlines()):
        context.log.info(line)
    if done.returncode:
        _report_exit(context, done)


def _run_in_process(context: dg.OpExecutionContext) -> "subprocess.CompletedProcess[str]":
    """Do `agent-eval run` in a process of its own, for automation or for a person."""
    command = [sys.executable, "-m", "agent_eval", "run", *["--boards"] * context.op_config["boards"]]
    command += [word for version in context.op_config["methodologies"] for word in ("--methodology", version)]
    by = "automation" if is_automatic(context.run) else "person"
    environment = os.environ | {PARENT_RUN: f"{context.run_id} {by}"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            out, err = _output(process, context)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _output(process: "subprocess.Popen[str]", context: dg.OpExecutionContext) -> tuple[str, str]:
    """Return stdout and stderr of a process, which is ended when it is in the way; stored work is kept."""
    while True:
        try:
            return process.communicate(timeout=EVERY_S)
        except subprocess.TimeoutExpired:
            if _is_in_the_way(context):
                process.terminate()


def _report_exit(context: dg.OpExecutionContext, done: "subprocess.CompletedProcess[str]") -> None:
    """Log exit code 1, and an end on behalf of a backfill; fail the run for every other one."""
    if done.returncode == 1:
        context.log.warning("Some records were refused, or some judgments are unscored: see the lines above.")
    elif _is_in_the_way(context):
        context.log.info(PAUSED)
    else:
        last_line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise dg.Failure(f"agent-eval run ended with {done.returncode}: {last_line[:500]}")


def _is_in_the_way(context: dg.OpExecutionContext) -> bool:
    """Return whether `redo_stale` requested the run and a backfill, which waits for it, is in progress."""
    if context.run.tags.get("dagster/sensor_name") != "redo_stale":
        return False
    with contextlib.suppress(StorageError), records_in(Path(context.instance.root_directory)):
        return has_backfill_under_way(context.instance)
    return False


# Dagster retries the job after a crash, because `redo_stale` does not request the same state twice.
@dg.job(
    description="Computes all stale partitions, as `agent-eval run` does; with `boards`, also all boards and the report.",
    tags={"dagster/max_retries": "2", "dagster/retry_on_asset_or_op_failure": "false"},
)
def reconcile() -> None:
    """Run op `run_what_is_stale`, the only op of this job."""
    run_what_is_stale()


@dg.sensor(
    job=reconcile,
    minimum_interval_seconds=EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Runs `reconcile` if a partition is stale and no run is in progress. Stop it to materialise manually.",
)
def redo_stale(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Compute which partitions are stale, as `agent-eval run` does, and request one run for all of them.

    The request depends on the current state and not on the order of events, so no work is lost or done twice.
    Partitions that a run could not bring up to date are not retried until the files, the settings or the stored
    rows change, the server of the store restarts or another backfill was started: the cursor is the state that was
    requested last. A run that no worker has started is requested again.
    """
    project, instance = Project.open(), context.instance
    if (differs := what_differs(instance, is_shared=project.store.is_shared)) is not None:
        context.log.warning(differs)
    if instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED)) or has_backfill_under_way(instance):
        if lost := end_lost_retries(instance):
            context.log.warning(
                f"Dagster did not retry runs {', '.join(lost)}; their backfill waits no longer."
            )
        return dg.SensorResult(skip_reason="a run or a backfill is in progress", cursor=context.cursor)
    with project.store.exclusive_section("run", wait=False) as is_idle:
        if not is_idle:
            return dg.SensorResult(skip_reason=BUSY, cursor=context.cursor)
        agents, versions = project.known_agents(), _loaded_versions(context, project)
        marks = Fingerprints.of(project, read_sources(project, agents, versions))
        stale = stale_places(project, marks, agents, versions)
    if stale.is_empty():
        return dg.SensorResult(skip_reason="all partitions are up to date", cursor="up to date")
    changed = marks.wanted(agents, versions).join(stale, on=stale.columns, how="semi", nulls_equal=True)
    state = digest(
        stale.rows(),
        changed.rows(),
        [marks.stored.get((a, b, c)) for a, b, c in stale.iter_rows()],
        project.store.server_start(),  # a run that failed because the server was restarted is repeated
        [
            backfill.backfill_id for backfill in instance.get_backfills(limit=1)
        ],  # during which runs do nothing
    )
    if state == context.cursor and not _was_never_started(instance):
        return dg.SensorResult(
            skip_reason=f"the last run could not bring {stale.height} partitions up to date: see its log",
            cursor=state,
        )
    listing = ", ".join("|".join(filter(None, row)) for row in stale.head(LISTED).iter_rows())
    context.log.info(f"{stale.height} stale partitions: {listing}{' …' if stale.height > LISTED else ''}")
    # A run of all versions fails if one of them was edited, so only the other versions are run.
    only = versions if project.registry.edited() else []
    config = {"ops": {"run_what_is_stale": {"config": {"boards": False, "methodologies": only}}}}
    return dg.SensorResult(run_requests=[dg.RunRequest(run_config=config)], cursor=state)


def _was_never_started(instance: dg.DagsterInstance) -> bool:
    """Return whether the latest run of `reconcile` failed without being started, at least `EVERY_LOST_S` ago.

    The broker could not be reached or lost the run, and so did the retries.
    """
    latest = instance.get_run_records(dg.RunsFilter(job_name="reconcile"), limit=1)
    return any(
        record.dagster_run.status == dg.DagsterRunStatus.FAILURE
        and record.start_time is None
        and time.time() - (record.end_time or 0) > EVERY_LOST_S
        for record in latest
    )


nightly = dg.ScheduleDefinition(
    name="nightly",
    job=reconcile,
    cron_schedule=project_settings().nightly_cron,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Computes all stale partitions, all boards and the report. Setting: nightly_cron.",
)


audit = dg.define_asset_job(
    "audit",
    selection=dg.AssetSelection.assets("judge_audits"),
    description="Asks the judge models a fixed sample of answered questions again, to measure drift.",
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
    description="Calls the function in the setting failure_hook with the failed run and its error.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Report a failed run to the log, and to the project's own hook if it has one."""
    run = context.dagster_run
    assets = sorted(key.to_user_string() for key in run.asset_selection or ())
    why = one_line(context.failure_event.message or "")
    failure = {
        "run_id": run.run_id,
        "job": run.job_name,
        "assets": assets,
        "tags": dict(run.tags),
        "error": why,
    }
    context.log.error(f"Run {run.run_id} of {run.job_name} failed: {why}")
    if hook := Project.open().settings.failure_hook:
        module, _, function = hook.partition(":")
        getattr(importlib.import_module(module), function)(failure)


SENSORS = [source_changes, redo_stale, failed_runs]
SCHEDULES = [nightly, weekly_audit]
JOBS = (reconcile, audit)
