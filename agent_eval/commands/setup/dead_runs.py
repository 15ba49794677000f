"""Mark the runs of killed processes as failed, whatever command is run next."""

from rich.console import Console

from agent_eval.errors import StorageError
from agent_eval.project import Project


def close_dead_runs(project: Project, err: Console) -> None:
    """Mark the runs of killed processes as failed, and print their number; an error is printed and stops nothing."""
    if not project.dead_runs:
        return
    from agent_eval.defs.instance import close_dead_runs_of  # slow import (1 s), only after a crash

    try:
        closed = close_dead_runs_of(project.home.root, project.store)
    except StorageError as error:
        err.print(str(error), markup=False, soft_wrap=True)
        return
    if closed:
        what = "run of a killed process is" if len(closed) == 1 else "runs of killed processes are"
        err.print(f"{len(closed)} {what} marked as failed or canceled.", markup=False)
