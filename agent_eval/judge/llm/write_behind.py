"""Write answers as they arrive, in small batches, in a separate thread (write-behind).

Answers that arrive while a batch is being written form the next batch. The event loop therefore never waits for the
disk, and a slow disk only makes the batches larger.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

Row = Mapping[str, object]


class AnswerWriter:
    """Writes rows with the function `write`, one batch at a time. An instance belongs to one event loop."""

    def __init__(self, write: Callable[[Sequence[Row]], None]) -> None:
        self._write = write
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge-answers")
        self._pending: list[tuple[Sequence[Row], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, rows: Sequence[Row]) -> None:
        """Write rows, and return when they are stored.

        Raises:
            OSError: If the rows cannot be written, e.g. because the disk is full.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._pending.append((rows, done))
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
        await done

    async def close(self) -> None:
        """Wait until all pending rows are written."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                await loop.run_in_executor(
                    self._thread, self._write, [row for rows, _ in batch for row in rows]
                )
            except Exception as error:  # the waiting callers raise the error
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
            else:
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)
        self._writing = None
