"""Control the concurrency of a pass: the number of concurrent calls, their order and pauses.

If more than a tenth of a round of calls is rejected by a rate limit (429), the concurrency is halved; after any other
round it is increased by one. Single rejections have no effect. A call that waits for a retry holds no slot.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

TOLERATED = 0.1  # share of a round that may be rejected (429) before the concurrency is halved


START_GAP_S = 0.002
"""Minimum seconds between the starts of two calls, about the CPU time of a call. If calls started together, their
answers would arrive together, and no slot would be filled again before the last of them is read."""
AHEAD_AFTER_S = 0.005
"""Seconds that a free slot waits for a call that is next in its sequence before it takes a later call."""


@dataclass
class Place:
    """Represent the place of a call in the queue: its sequence, and whether earlier calls of the sequence are pending.

    Calls that are next in their sequence go first, because the prefix that they share with the previous call is
    cached. Later calls use slots that would otherwise be idle.
    """

    sequence: int
    is_ahead: bool = False
    waiting: asyncio.Future[None] | None = None


class AdaptiveConcurrency:
    """Limits the concurrent calls of an event loop. The first call runs alone to fill the provider's cache."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = 1.0
        self.n_running = 0
        self._waiting: list[tuple[bool, int, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._is_warm = False
        self._is_filling = False
        self._has_waited = False  # whether the free slot has waited for a call that is next in its sequence
        self._paused_until = self._next_start = 0.0
        self._failure: OSError | None = None
        self._n_done = self._n_refused = 0

    @asynccontextmanager
    async def slot(self, place: Place) -> AsyncIterator[None]:
        """Hold a slot. Lower sequence numbers go first, so that conversations are completed while they are cached.

        After an OSError in a slot, no call starts: its answer was paid for and could not be stored.
        """
        await self._take(place)
        try:
            if self._failure is not None:
                raise self._failure
            yield
        except OSError as error:
            self._failure = error
            for *_, future in self._waiting:
                future.cancel()
            raise
        finally:
            self.n_running -= 1
            self._has_waited = False
            if not self._is_warm:
                self._is_warm, self.limit = True, float(self.most)
            self._fill()

    def pause(self, seconds: float) -> None:
        """Do not start calls for the given number of seconds."""
        loop = asyncio.get_running_loop()
        self._paused_until = max(self._paused_until, loop.time() + seconds)
        loop.call_later(seconds, self._fill)

    def finished(self, *, is_refused: bool) -> None:
        """Count a finished call, and adapt the limit at the end of a round.

        Args:
            is_refused: Whether the call was rejected by a rate limit (429).
        """
        self._n_done += 1
        self._n_refused += is_refused
        if self._n_done >= self.limit:
            is_too_fast = self._n_refused > TOLERATED * self._n_done
            self.limit = max(1.0, self.limit / 2) if is_too_fast else min(self.most, self.limit + 1)
            self._n_done = self._n_refused = 0

    def comes_next(self, place: Place) -> None:
        """Mark a call as the next of its sequence, because the calls before it are done."""
        place.is_ahead = False
        if place.waiting is not None and not place.waiting.done():
            heapq.heappush(self._waiting, (False, place.sequence, next(self._count), place.waiting))
            self._fill()

    async def _take(self, place: Place) -> None:
        is_next = not self._waiting and not place.is_ahead and self._wait_s() <= 0 and self._has_room()
        if is_next or self._failure is not None:  # after a failure, `slot` raises it
            self._start()
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
        return self.n_running < int(self.limit) and not is_paused and self._failure is None

    def _fill(self) -> None:
        """Grant free slots, one after the other, so that the prompt of a call is built just before the call is sent."""
        if not self._is_filling and self._waiting and self._has_room():
            self._is_filling = True
            loop = asyncio.get_running_loop()
            if self._waiting[0][0] and not self._has_waited:
                self._has_waited = True
                loop.call_later(max(AHEAD_AFTER_S, self._wait_s()), self._grant)
            elif (wait_s := self._wait_s()) > 0:
                loop.call_later(wait_s, self._grant)
            else:
                loop.call_soon(self._grant)

    def _grant(self) -> None:
        self._is_filling = False
        while self._waiting and self._has_room():
            *_, future = heapq.heappop(self._waiting)
            if not future.done():
                self._start()
                future.set_result(None)
                break
        self._fill()

    def _start(self) -> None:
        self.n_running += 1
        self._next_start = asyncio.get_running_loop().time() + START_GAP_S

    def _wait_s(self) -> float:
        """Return the seconds until the next call may start; not positive if it may start now."""
        return self._next_start - asyncio.get_running_loop().time()
