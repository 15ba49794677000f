"""Stop a pass early if the judge is unavailable, so that it does not receive thousands of failing requests."""

from typing import Literal

from agent_eval.judge.protocol import UnscoredReason

FailureKind = Literal["connection", "timeout", "authentication", "given_up", "refused", "unreadable"]

MOST_IN_A_ROW: dict[FailureKind, int] = {
    "connection": 5,
    "timeout": 5,
    "authentication": 5,
    "given_up": 5,  # calls that still fail with 429 or 5xx after all retries
    "refused": 20,  # calls rejected as invalid: some conversations cause one, but not twenty in a row
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
    """Ends a pass after too many consecutive failures of one kind. Any readable answer resets the counts.

    If concurrent calls lose their connections, only the first failure is counted. After each counted connection
    failure, the pass waits 0.5, 1, 2 and 4 seconds; the fifth one ends it.
    """

    def __init__(self, judge: str) -> None:
        self.judge = judge
        self.why_ended: str | None = None
        self.reason: UnscoredReason = "judge_error"
        self._in_a_row: dict[FailureKind, int] = {}
        self._last_counted = float("-inf")

    def answered(self) -> None:
        """Reset all counts after a readable answer."""
        self._in_a_row.clear()

    def count(self, kind: FailureKind, *, started: float, now: float, detail: str) -> float:
        """Count a failure of a call that began at `started`. Return the seconds to wait before the next call."""
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
