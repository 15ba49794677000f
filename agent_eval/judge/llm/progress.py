"""Report the progress of a pass at intervals: calls, rate, cost so far and remaining time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_eval.formats.plain_text import count_of

End = Literal["done", "by_others", "not_sent"]
"""How a planned call ended: it was sent, other workers answered its questions, or it was not sent, e.g. because of a
cap."""
Watch = Callable[["Progress"], None]


@dataclass
class Progress:
    """Track the progress of a pass. A call with its retries counts once."""

    judge: str
    n_calls: int
    n_done: int = 0
    n_by_others: int = 0  # number of calls whose questions other workers answered
    n_not_sent: int = 0
    n_unscored: int = 0  # number of unscored answers
    cost_usd: float | None = 0.0  # None if the price is unknown
    seconds: float = 0.0

    @property
    def n_left(self) -> int:
        """Return the number of calls that are not finished."""
        return self.n_calls - self.n_done - self.n_by_others - self.n_not_sent

    @property
    def calls_per_s(self) -> float:
        """Return the mean rate so far in calls of this process per second."""
        return self.n_done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Return the remaining seconds at the mean rate of all workers, or None before the first call is done."""
        n_answered = self.n_done + self.n_by_others
        return self.n_left * self.seconds / n_answered if n_answered and self.seconds else None

    def line(self) -> str:
        """Return a line such as 'openai/x: 120 of 2,000 calls, 41.3 a second, $0.12 so far, 46 s left'."""
        parts = [
            f"{self.judge}: {self.n_done:,} of {count_of(self.n_calls, 'call')}",
            f"{self.calls_per_s:.1f} a second",
        ]
        parts.append("cost unknown" if self.cost_usd is None else f"${self.cost_usd:.4f} so far")
        if self.n_unscored:
            parts.append(f"{count_of(self.n_unscored, 'answer')} unscored")
        if self.n_by_others:
            parts.append(f"{count_of(self.n_by_others, 'call')} made by other workers")
        if self.n_not_sent:
            parts.append(f"{count_of(self.n_not_sent, 'call')} not sent")
        if self.n_left and self.seconds_left is not None:
            parts.append(f"{self.seconds_left:.0f} s left")
        return ", ".join(parts)


class Reporter:
    """Calls the watcher with the progress at the beginning, at regular intervals and at the end."""

    def __init__(self, progress: Progress, watch: Watch | None, every_s: float) -> None:
        self.progress = progress
        self._watch, self._every_s = watch, every_s
        self._began = self._told = time.monotonic()
        self._tell()

    def call_ended(self, end: End, n_unscored: int, cost_usd: float | None) -> None:
        """Count a planned call that ended. `cost_usd` is the cost of the whole run so far."""
        progress, now = self.progress, time.monotonic()
        progress.n_done += end == "done"
        progress.n_by_others += end == "by_others"
        progress.n_not_sent += end == "not_sent"
        progress.n_unscored += n_unscored
        progress.cost_usd = cost_usd
        progress.seconds = now - self._began
        if now - self._told >= self._every_s or not progress.n_left:
            self._told = now
            self._tell()

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch(self.progress)
