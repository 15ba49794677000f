"""Adapt the concurrency of a pass: how many calls run at once, which go first, and when all of them pause.

If more than a tenth of a round of calls is rejected for rate (429), the limit is halved; after any other
round it grows by one. Single rejections do not change it. A call that waits before a retry holds no slot.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

TOLERATED = 0.1  # share of a round that may be rejected for rate before the limit is halved


AHEAD_AFTER_S = 0.005
"""Seconds that a free slot waits for the next call of a sequence before it takes one that is ahead."""


@dataclass
class Place:
    """Give a call's place in the queue: its sequence, and whether calls of that sequence precede it.

    Calls that come next in their sequence go first, because the prefix they share with the previous call is
    then cached. The others use slots that would be idle.
    """

    sequence: int
    is_ahead: bool = False
    waiting: asyncio.Future[None] | None = None


class AdaptiveConcurrency:
    """Limits the concurrent calls of one event loop. The first runs alone and fills the provider's cache."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = 1.0
        self.n_running = 0
        self._waiting: list[tuple[bool, int, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._is_warm = False
        self._is_filling = False
        self._has_waited = False  # since the last slot became free, for calls that come next
        self._paused_until = 0.0
        self._n_done = self._n_refused = 0

    @asynccontextmanager
    async def slot(self, place: Place) -> AsyncIterator[None]:
        """Hold a slot; lower sequences go first, so that conversations are finished while they are cached."""
        await self._take(place)
        try:
            yield
        finally:
            self.n_running -= 1
            self._has_waited = False
            if not self._is_warm:
                self._is_warm, self.limit = True, float(self.most)
            self._fill()

    def pause(self, seconds: float) -> None:
        """Start no call for the given number of seconds."""
        loop = asyncio.get_running_loop()
        self._paused_until = max(self._paused_until, loop.time() + seconds)
        loop.call_later(seconds, self._fill)

    def finished(self, *, is_refused: bool) -> None:
        """Count one finished call; `is_refused`: rejected for its rate (429)."""
        self._n_done += 1
        self._n_refused += is_refused
        if self._n_done >= self.limit:
            is_too_fast = self._n_refused > TOLERATED * self._n_done
            self.limit = max(1.0, self.limit / 2) if is_too_fast else min(self.most, self.limit + 1)
            self._n_done = self._n_refused = 0

    def comes_next(self, place: Place) -> None:
        """Mark the calls before this one as done."""
        place.is_ahead = False
        if place.waiting is not None and not place.waiting.done():
            heapq.heappush(self._waiting, (False, place.sequence, next(self._count), place.waiting))
            self._fill()

    async def _take(self, place: Place) -> None:
        if not self._waiting and not place.is_ahead and self._has_room():
            self.n_running += 1
            return
        mine = asyncio.get_running_loop().create_future()
        place.waiting = mine
        heapq.heappush(self._waiting, (place.is_ahead, place.sequence, next(self._count), mine))
        self._fill()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.n_running -= 1
                self._fill()
            raise

    def _has_room(self) -> bool:
        is_paused = asyncio.get_running_loop().time() < self._paused_until
        return self.n_running < int(self.limit) and not is_paused

    def _fill(self) -> None:
        """Grant free slots, one in each step of the loop.

        If granted together, calls would be built and sent together, and all slots would wait at once.
        """
        if not self._is_filling and self._waiting and self._has_room():
            self._is_filling = True
            loop = asyncio.get_running_loop()
            if self._waiting[0][0] and not self._has_waited:
                self._has_waited = True
                loop.call_later(AHEAD_AFTER_S, self._grant)
            else:
                loop.call_soon(self._grant)

    def _grant(self) -> None:
        self._is_filling = False
        while self._waiting and self._has_room():
            *_, future = heapq.heappop(self._waiting)
            if not future.done():
                self.n_running += 1
                future.set_result(None)
                break
        self._fill()
