"""Pauses of a hundredth, for tests of servers that do not answer."""

import pytest


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the tries of a call and after a lost connection, in the same proportion."""
    monkeypatch.setattr("agent_eval.judge.llm.requests.FIRST_PAUSE_S", 0.0025)
    monkeypatch.setattr("agent_eval.judge.llm.circuit_breaker.FIRST_PAUSE_S", 0.005)
