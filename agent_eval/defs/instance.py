"""Manage a command's Dagster instance: errors in one line, interrupts, runs left open by a kill."""

import contextlib
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg

from agent_eval.defs.dagster_internals import IN_PROGRESS_RUN_STATUSES
from agent_eval.errors import StorageError
from agent_eval.storage import Store

UNDER_WAY = [*IN_PROGRESS_RUN_STATUSES, dg.DagsterRunStatus.NOT_STARTED]
UNFINISHED = [*UNDER_WAY, dg.DagsterRunStatus.QUEUED]
LAUNCHED_BY = "agent_eval/launched_by"  # on the same runs: the command or the job that started it
PROJECT_TAG = "agent_eval/project"  # on every run that `agent-eval run` starts: the project's root

REGISTERED = "agent_eval/failures_registered"  # the failures of this run's pairs have their clusters already


class DagsterHomeError(StorageError):
    """Raised when Dagster cannot store its own records of runs and events."""

    def __init__(self, home: Path, why: str) -> None:
        super().__init__(
            f"Dagster cannot keep its records in DAGSTER_HOME {home}: {why}. Free some space there, or set DAGSTER_HOME "
            "to another folder, and run again. Completed work is in the store."
        )


@contextlib.contextmanager
def records_in(home: Path) -> Iterator[None]:
    """Raise errors of Dagster's databases as one line that names the folder.

    Raises:
        DagsterHomeError: If they cannot be read or written, e.g. because the disk is full.
    """
    from sqlalchemy.exc import DBAPIError  # slower than the time limit for loading the definitions

    try:
        yield
    except DBAPIError as error:
        raise DagsterHomeError(home, str(error.orig)) from error
    except sqlite3.Error as error:
        raise DagsterHomeError(home, str(error)) from error


def close_lost_runs(instance: dg.DagsterInstance, root: Path, store: Store) -> list[str]:
    """Mark runs left open by a killed process as failed; return their ids. Dagster would wait forever.

    Call only while holding the store's lock for runs: then a run of `agent-eval run` is dead, since the
    command held the lock before it started one, and so is a run whose recorded process is gone.
    """
    under_way = [dg.RunsFilter(statuses=UNDER_WAY, tags={PROJECT_TAG: str(root)})]
    if abandoned := store.abandoned_runs():
        under_way.append(dg.RunsFilter(statuses=UNDER_WAY, run_ids=abandoned))
    lost = {run.run_id: run for each in under_way for run in instance.get_runs(each)}
    for run in lost.values():
        instance.report_run_failed(
            run, "The process was killed. Completed work is stored, and the next run resumes the rest."
        )
    if abandoned:
        store.forget_runs(abandoned)
    return sorted(lost)


def what_differs(instance: dg.DagsterInstance, *, is_shared: bool = False) -> str | None:
    """Return which setup of `agent-eval ui` an instance lacks, in one line; None if it lacks nothing.

    `is_shared`: the store allows several runs at once.

    A `dagster dev` with its own DAGSTER_HOME is such an instance. The store's lock still serialises runs, but
    they wait as processes.
    """
    queue = instance.get_concurrency_config().run_queue_config
    lacks = [
        name
        for name, is_there in (
            (
                "a queue of one run at a time (concurrency.runs.max_concurrent_runs: 1)",
                is_shared or (queue is not None and queue.max_concurrent_runs == 1),
            ),
            ("run_monitoring, which fails runs whose process died", instance.run_monitoring_enabled),
            ("run_retries, which repeat `reconcile` after a crash", instance.run_retries_enabled),
        )
        if not is_there
    ]
    if not lacks:
        return None
    home = instance.root_directory
    return (
        f"dagster.yaml in DAGSTER_HOME {home} lacks {'; '.join(lacks)}. Start the UI with `agent-eval ui`, or copy "
        "agent_eval/defs/dagster.yaml there."
    )


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function: was Ctrl-C pressed? Dagster makes it a failed step, or loses it between steps."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def is_interrupted() -> bool:
        with contextlib.suppress(BlockingIOError):
            return bool({signal.SIGINT, signal.SIGTERM} & set(os.read(read_end, 4096)))
        return False

    try:
        yield is_interrupted
    finally:
        signal.set_wakeup_fd(before)
        os.close(read_end)
        os.close(write_end)
