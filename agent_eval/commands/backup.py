"""Implement `agent-eval store backup`, which copies the store while runs are active."""

from pathlib import Path

from rich.console import Console

from agent_eval.formats.plain_text import count_of
from agent_eval.project import Project
from agent_eval.storage import back_up


def backup(project: Project, out: Console, target: Path, *, force: bool) -> None:
    """Copy the store to `target` and print the number of rows, the number of tables and the size of the copy.

    Raises:
        StorageError: If the copy cannot be written to `target`.
        StoreError: If the store cannot be read.
    """
    store_copy = back_up(project.store, target, force=force)
    out.print(
        f"{store_copy.file}: {count_of(sum(store_copy.rows.values()), 'row')} of {len(store_copy.rows)} tables, {store_copy.n_bytes / 1e6:.1f} MB; the copy was verified.",
        markup=False,
        soft_wrap=True,
    )
