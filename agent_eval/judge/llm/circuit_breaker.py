"""Stop a pass early if the judge is down, so that it does not receive thousands of failing requests."""

from typing import Literal

from agent_eval.judge.protocol import UnscoredReason

FailureKind = Literal["connection", "timeout", "authentication", "given_up", "refused", "unreadable"]

MOST_IN_A_ROW: dict[FailureKind, int] = {
    "connection": 5,
    "timeout": 5,
    "authentication": 5,
    "given_up": 5,  # calls that failed after all retries, with 429 and 5xx
    "refused": 20,  # calls rejected as invalid: a single conversation may cause one, but not twenty in a row
    "unreadable": 20,
}
_SAID: dict[FailureKind, str] = {
    "connection": "it could not be reached",
    "timeout": "it did not answer in time",
    "authentication": "it refused the key",
    "given_up": "it kept refusing or failing",
    "refused": "it refused the request",
    "unreadable": "its replies could not be read",
}
FIRST_PAUSE_S = 0.5


class CircuitBreaker:
    """Counts consecutive failures of one kind; any readable answer resets the count.

    A burst of lost connections counts once: of simultaneous failures only the first is counted, and the pass
    waits 0.5, 1, 2 and 4 seconds between the five that end it.
    """

    def __init__(self, judge: str) -> None:
        self.judge = judge
        self.why_ended: str | None = None
        self.reason: UnscoredReason = "judge_error"
        self._in_a_row: dict[FailureKind, int] = {}
        self._last_counted = float("-inf")

    def answered(self) -> None:
        """Reset the count after a readable answer."""
        self._in_a_row.clear()

    def count(self, kind: FailureKind, *, started: float, now: float, detail: str) -> float:
        """Count one failure of a call that began at `started`; return the seconds for which no call should start."""
        if kind == "connection" and started < self._last_counted:
            return 0.0
        n = self._in_a_row[kind] = self._in_a_row.get(kind, 0) + 1
        if n >= MOST_IN_A_ROW[kind] and self.why_ended is None:
            self.why_ended = f"{self.judge}: {_SAID[kind]} {n} times in a row, so the pass ended: {detail}"
            self.reason = "parse_failure" if kind == "unreadable" else "judge_error"
        if kind != "connection":
            return 0.0
        pause = FIRST_PAUSE_S * 2.0 ** (n - 1)
        self._last_counted = now + pause
        return pause if self.why_ended is None else 0.0
