"""Track the caps and the cost of a run in calls, tokens and US dollars. An unknown price never counts as 0."""

import contextlib
import threading
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent_eval.errors import StorageError


@dataclass(frozen=True)
class Price:
    """Hold the prices of a model in US dollars per million tokens.

    `sent` is the price of prompt tokens and `received` that of completion tokens. `cached` and `written` are the prices
    of prompt tokens that are read from or written to the provider's cache; None means the same price as `sent`.
    """

    sent: float
    received: float
    cached: float | None = None
    written: float | None = None

    def of(self, n_in: int, n_out: int, n_cached: int = 0, n_written: int = 0) -> float:
        """Return the cost of a call in US dollars. `n_in` includes the tokens read from and written to the cache."""
        cached = self.sent if self.cached is None else self.cached
        written = self.sent if self.written is None else self.written
        fresh = n_in - n_cached - n_written
        return (fresh * self.sent + n_cached * cached + n_written * written + n_out * self.received) / 1e6


@dataclass(frozen=True)
class Usage:
    """Hold the tokens and cost of one or more calls. A sum is None (unknown) if any summand is None."""

    n_in: int | None = 0
    n_out: int | None = 0
    n_cached: int | None = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            _sum(self.n_in, other.n_in),
            _sum(self.n_out, other.n_out),
            _sum(self.n_cached, other.n_cached),
            None if self.cost_usd is None or other.cost_usd is None else self.cost_usd + other.cost_usd,
        )

    def shares(self, n: int) -> list["Usage"]:
        """Split the usage into n parts that add up to it. The first parts get the remainder of the tokens."""
        columns = zip(*(_split(count, n) for count in (self.n_in, self.n_out, self.n_cached)), strict=True)
        cost = None if self.cost_usd is None else self.cost_usd / n
        return [Usage(n_in, n_out, n_cached, cost) for n_in, n_out, n_cached in columns]


class SharedBudget(Protocol):
    """Counts calls across runs and processes, and enforces the caps that apply to their total."""

    def reserve(self, model: str) -> str | None:
        """Count a call before it is sent. Return a description of the cap if the call would exceed it, else None."""
        ...

    def settle(self, model: str, *, n_in: int | None, n_out: int | None, cost_usd: float | None) -> None:
        """Record the tokens and cost of a reserved call; None means unknown."""
        ...


@dataclass
class Budget:
    """Hold the caps and the usage of a run, shared by everything in the run that calls a model.

    `closed` is the reason if no call is allowed at all. `ledger` enforces the caps that apply beyond the run.
    """

    max_calls: int | None = None
    max_cost_usd: float | None = None
    ledger: SharedBudget | None = None
    closed: str | None = None
    n_calls: int = 0
    cost_usd: float = 0.0
    n_of_unknown_price: int = 0
    n_scored: int = 0  # number of answers with a score
    n_unscored: int = 0
    _unsettled: list[tuple[str, Usage]] = field(default_factory=list[tuple[str, Usage]])
    _settling: threading.Lock = field(default_factory=threading.Lock)

    @property
    def known_cost_usd(self) -> float | None:
        """Return the cost so far in US dollars, or None if the price of any call is unknown."""
        return None if self.n_of_unknown_price else self.cost_usd

    def why_exhausted(self) -> str | None:
        """Return a description of the cap that the run has reached, or None if further calls are allowed."""
        if self.closed is not None:
            return self.closed
        if self.max_calls is not None and self.n_calls >= self.max_calls:
            return f"the cap of {self.max_calls:,} calls is reached; run again to continue"
        if self.max_cost_usd is not None and self.cost_usd >= self.max_cost_usd:
            return f"the cap of ${self.max_cost_usd:g} is reached (${self.cost_usd:.4f} spent); run again to continue"
        return None

    def begin_call(self, model: str) -> str | None:
        """Count a call before it is sent, so that concurrent calls cannot exceed a cap.

        Returns:
            A description of the cap if the call would exceed it, else None.

        Raises:
            StorageError: If calls cannot be counted; the call must not be sent in this case.
        """
        why = self.why_exhausted()
        if why is None and self.ledger is not None:
            self._settle(self.ledger)
            why = self.ledger.reserve(model)
        if why is not None:
            return why
        self.n_calls += 1
        return None

    def end_call(self, model: str, usage: Usage | None) -> None:
        """Record the usage of a call. None means that it got no reply, which is assumed to be free of charge.

        Calls that are in progress when a cap is reached are completed and recorded. A usage that cannot be recorded is
        recorded before the next call, so that the paid reply is not lost; until then, the call counts as in progress.
        """
        if usage is not None and usage.cost_usd is None:
            self.n_of_unknown_price += 1
        cost = 0.0 if usage is None else usage.cost_usd
        self.cost_usd += cost or 0.0
        if self.ledger is not None:
            self._unsettled.append((model, replace(usage or Usage(), cost_usd=cost)))
            with contextlib.suppress(StorageError):
                self._settle(self.ledger)

    def _settle(self, ledger: SharedBudget) -> None:
        with self._settling:
            while self._unsettled:
                model, used = self._unsettled[0]
                ledger.settle(model, n_in=used.n_in, n_out=used.n_out, cost_usd=used.cost_usd)
                del self._unsettled[0]


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _split(count: int | None, n: int) -> list[int | None]:
    if count is None:
        return [None] * n
    whole, rest = divmod(count, n)
    return [whole + (i < rest) for i in range(n)]
