"""Manage the Dagster instance of a command: database errors, interrupts, and runs of killed processes."""

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from agent_eval.defs.dagster_internals import IN_PROGRESS_RUN_STATUSES
from agent_eval.errors import StorageError
from agent_eval.storage import Store
from agent_eval.storage.run_owners import Owner, RunOwners

UNDER_WAY = [*IN_PROGRESS_RUN_STATUSES, dg.DagsterRunStatus.NOT_STARTED]
UNFINISHED = [*UNDER_WAY, dg.DagsterRunStatus.QUEUED]
LAUNCHED_BY = "agent_eval/launched_by"  # tag of the same runs: the command or the job that started the run
DEFINITIONS = "agent_eval.definitions"  # the module that workspace.yaml names
SILENT_S = 120.0  # a run that a process works on has recorded it, or has events, more often
CELERY_TASK = "dagster-celery/task_id"  # tag of every run that a Celery worker executes
PROJECT_TAG = "agent_eval/project"  # tag of every run that `agent-eval run` starts: the project's root

REGISTERED = "agent_eval/failures_registered"  # tag of a run whose failures are already assigned to clusters


def _unusable_home(home: Path, why: str) -> StorageError:
    return StorageError(
        f"Dagster cannot store its records in DAGSTER_HOME {home}: {why}. Free some space there, or set DAGSTER_HOME "
        "to another folder, and run again. Completed work is in the store."
    )


@contextlib.contextmanager
def records_in(home: Path) -> Iterator[None]:
    """Convert errors of Dagster's databases to StorageError, a message of one line that names the folder.

    Raises:
        StorageError: If the databases cannot be read or written, e.g. because the disk is full.
    """
    # The import takes longer than the time limit for loading the definitions.
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        raise _unusable_home(home, str(error.orig)) from error
    except sqlite3.Error as error:
        raise _unusable_home(home, str(error)) from error


def close_lost_runs(instance: dg.DagsterInstance, root: Path, store: Store) -> list[str]:
    """Mark runs of killed processes as failed, and return their ids. Dagster would wait for them indefinitely.

    Call this only while holding the store's lock for runs. `agent-eval run` holds this lock during its runs, so all
    of its open runs belong to killed processes. Other runs are included if their recorded process has ended, or if no
    process is recorded that this machine can see and they have been silent (`_silent_runs`).
    """
    own = instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY, tags={PROJECT_TAG: str(root)}))
    return close_abandoned_runs(instance, store, also=[*_silent_runs(instance, store), *own])


def close_dead_runs_of(root: Path, store: Store) -> list[str]:
    """Do what `close_abandoned_runs` does in the Dagster home of the project at `root`.

    Raises:
        StorageError: If Dagster's databases cannot be read or written.
    """
    home = RunOwners.of(root).home
    with records_in(home), dg.DagsterInstance.from_config(str(home)) as instance:
        return close_abandoned_runs(instance, store)


def close_abandoned_runs(
    instance: dg.DagsterInstance, store: Store, *, also: Sequence[dg.DagsterRun] = ()
) -> list[str]:
    """Mark the runs whose recorded process has ended, and the runs in `also`, as failed, and return their ids.

    Runs that were being terminated are marked as canceled. This does not need the lock for runs, which other runs may
    hold for hours.
    """
    lost = {run.run_id: run for run in also}
    owners, in_store = _owners(instance), store.abandoned_runs()
    abandoned = [*in_store, *owners.dead()]
    ended = instance.get_runs(dg.RunsFilter(run_ids=abandoned)) if abandoned else []
    lost |= {run.run_id: run for run in ended if run.status in UNDER_WAY}
    for run in lost.values():
        if run.status == dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run)
        else:
            instance.report_run_failed(
                run, "The process was killed. Completed work is stored, and the next run resumes the rest."
            )
    if of_store := [run.run_id for run in ended if run.run_id in in_store]:  # others: of another DAGSTER_HOME
        store.forget_runs(of_store)
    for run_id in {*abandoned, *lost} - {*in_store}:
        owners.forget(run_id)
    return sorted(lost)


def runs_of_failed_tasks(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return runs that are starting although their Celery task has failed, because Dagster's database was away.

    Dagster's run monitoring reads the tasks of started runs only. The list is empty while the broker is away.
    """
    starting = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))
    try:
        return [
            run
            for run in starting
            if CELERY_TASK in run.tags
            and instance.run_launcher.check_run_worker_health(run).status.name == "FAILED"
        ]
    except Exception:  # each broker's library raises errors of its own
        return []


def end_lost_retries(instance: dg.DagsterInstance) -> list[str]:
    """Mark failed runs of backfills as not to be retried if no retry was started for `SILENT_S`, and return their ids.

    Dagster starts a retry within seconds, but never if its database stopped meanwhile, and a backfill waits for it.
    """
    day = datetime.now(UTC) - timedelta(days=1)
    failed = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.FAILURE], tags={"dagster/will_retry": "true"}, updated_after=day
    )
    lost = [
        record.dagster_run.run_id
        for record in instance.get_run_records(failed)
        if record.dagster_run.is_complete_and_waiting_to_retry
        and "dagster/backfill" in record.dagster_run.tags
        and time.time() - (record.end_time or 0) > SILENT_S
    ]
    for run_id in lost:
        instance.add_run_tags(run_id, {"dagster/will_retry": "false"})
    return lost


def _owners(instance: dg.DagsterInstance) -> RunOwners:
    return RunOwners(Path(instance.root_directory))


def _silent_runs(instance: dg.DagsterInstance, store: Store) -> list[dg.DagsterRun]:
    """Return open runs of this project that no active process has recorded and that had no event for `SILENT_S`.

    Their worker was killed shortly before or after the run used the store, or works on another machine, or the event
    log of the instance does not record the process. Celery still reports them as started.
    """
    open_runs, owners = [], _owners(instance)
    statuses = [dg.DagsterRunStatus.STARTED] if store.is_shared else UNDER_WAY
    for record in instance.get_run_records(dg.RunsFilter(statuses=statuses)):
        run = record.dagster_run
        origin = run.job_code_origin
        module = getattr(origin.repository_origin.code_pointer, "module", "") if origin else ""
        events = instance.get_records_for_run(run.run_id, limit=1, ascending=False).records
        last = events[0].timestamp if events else record.create_timestamp.timestamp()
        if (
            module == DEFINITIONS
            and time.time() - last > SILENT_S
            and owners.state(run.run_id) is not Owner.ALIVE
        ):
            open_runs.append(run)
    recorded = {*store.recorded_runs()} if open_runs else set()
    return [run for run in open_runs if run.run_id not in recorded]


def what_differs(instance: dg.DagsterInstance, *, is_shared: bool = False) -> str | None:
    """Return in one line which settings of `agent-eval ui` an instance lacks; None if it has all of them.

    Settings can be missing if `dagster dev` is started with a different DAGSTER_HOME. The store's lock still
    serialises the runs, but each waiting run is a process.

    Args:
        instance: The instance.
        is_shared: Whether the store allows several runs at the same time.
    """
    queue = instance.get_concurrency_config().run_queue_config
    lacks = [
        name
        for name, is_there in (
            (
                "a queue of one run at a time (concurrency.runs.max_concurrent_runs: 1)",
                is_shared or (queue is not None and queue.max_concurrent_runs == 1),
            ),
            (  # with a lake, it may be off: deploy/kubernetes.yaml
                "run_monitoring, which fails runs whose process has ended",
                is_shared or instance.run_monitoring_enabled,
            ),
            ("run_retries, which retry `reconcile` after a crash", instance.run_retries_enabled),
        )
        if not is_there
    ]
    if not lacks:
        return None
    home = instance.root_directory
    own = "copy agent_eval/defs/dagster.yaml there"
    fix = "Add it as in deploy/celery.yaml" if is_shared else f"Start the UI with `agent-eval ui`, or {own}"
    return f"dagster.yaml in DAGSTER_HOME {home} lacks {'; '.join(lacks)}. {fix}."


_watched: set[int] = set()  # the pipes to which this process writes the signals it receives


def _watch_no_signals() -> None:
    """Stop a forked child from writing its signals to the parent's pipe, e.g. those that end a pool of processes."""
    if _watched:
        signal.set_wakeup_fd(-1)
        _watched.clear()


os.register_at_fork(after_in_child=_watch_no_signals)


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT (Ctrl-C) or SIGTERM was received.

    Dagster reports an interrupt as a failed step, or ignores it between steps.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    _watched.add(write_end)

    def is_interrupted() -> bool:
        with contextlib.suppress(BlockingIOError):
            return bool({signal.SIGINT, signal.SIGTERM} & set(os.read(read_end, 4096)))
        return False

    try:
        yield is_interrupted
    finally:
        signal.set_wakeup_fd(before)
        _watched.discard(write_end)
        os.close(read_end)
        os.close(write_end)
