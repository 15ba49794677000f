"""Claim questions, so that only one of several workers asks each and the others wait for its answer.

A worker claims the questions of a call just before it sends the call, so that workers with the same questions divide
them among each other. A claim expires unless its worker renews it, so that the questions of a killed worker are asked
by another worker.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import polars as pl

T = TypeVar("T")
RENEW_S = 20.0
"""Seconds between two renewals of a claim, which lasts three times as long."""
_POLL_S = 0.2


class TakenError(Exception):
    """Raised when another worker has claimed or answered one of the questions of a call."""


class ClaimTable(Protocol):
    """Stores claims and answers that all workers can read. The keys are those of judge_cache."""

    def claim(self, keys: Collection[str]) -> bool:
        """Claim all keys and return True, or claim none and return False if one is taken or answered."""
        ...

    def arrived(self, keys: Collection[str]) -> tuple[pl.DataFrame, set[str]]:
        """Return the answers to the keys (rows of judge_cache), and the keys that another worker has claimed."""
        ...

    def release(self, keys: Collection[str] | None = None) -> None:
        """Release this worker's claims on `keys`, or all of its claims by default."""
        ...

    def renew(self) -> None:
        """Renew all claims of this worker."""
        ...

    def close(self) -> None:
        """Release all claims of this worker and close the connection."""
        ...


class Claims:
    """Claims questions for the calls of one event loop. A separate thread accesses the table."""

    def __init__(self, table: ClaimTable, renew_s: float = RENEW_S) -> None:
        self._table, self._renew_s = table, renew_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="question-claims")
        self._waiting: list[tuple[frozenset[str], asyncio.Future[pl.DataFrame]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def claim(self, keys: Collection[str]) -> None:
        """Claim the questions of a call.

        Raises:
            TakenError: If another worker has claimed or answered one of them. No question is claimed then.
        """
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._poll())]
        if not await self._done(self._table.claim, keys):
            raise TakenError

    async def wait(self, keys: Collection[str]) -> pl.DataFrame:
        """Wait until no other worker has a claim on the questions. Return their answers (rows of judge_cache)."""
        arrived: asyncio.Future[pl.DataFrame] = asyncio.get_running_loop().create_future()
        self._waiting.append((frozenset(keys), arrived))
        return await arrived

    async def release(self, keys: Collection[str]) -> None:
        """Release the claims on questions that this worker could not get answered."""
        await self._done(self._table.release, keys)

    async def close(self) -> None:
        """Release all claims on unanswered questions, and close the table."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._done(self._table.close)
        self._thread.shutdown()

    async def _done(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._renew_s)
            with contextlib.suppress(Exception):  # the next claim raises the error
                await self._done(self._table.renew)

    async def _poll(self) -> None:
        """Look up the questions of all waiting calls, with one query per interval."""
        while True:
            await asyncio.sleep(_POLL_S)
            if not (waiting := self._waiting):
                continue
            try:
                rows, is_open = await self._done(
                    self._table.arrived, frozenset[str]().union(*(keys for keys, _ in waiting))
                )
            except Exception as error:  # the waiting calls raise the error
                self._waiting = []
                _end(waiting, error)
                continue
            self._waiting = [one for one in self._waiting if one[0] & is_open or one not in waiting]
            for keys, arrived in waiting:
                if not keys & is_open and not arrived.done():
                    arrived.set_result(rows.filter(pl.col("cache_key").is_in(list(keys))))


def _end(waiting: Sequence[tuple[frozenset[str], asyncio.Future[pl.DataFrame]]], error: Exception) -> None:
    for _, arrived in waiting:
        if not arrived.done():
            arrived.set_exception(error)
