"""Pauses of a hundredth, for tests of servers that do not answer, and a recorder of connections."""

import socket
from typing import Any

import pytest


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the tries of a call and after a lost connection, in the same proportion."""
    monkeypatch.setattr("agent_eval.judge.llm.requests.FIRST_PAUSE_S", 0.0025)
    monkeypatch.setattr("agent_eval.judge.llm.circuit_breaker.FIRST_PAUSE_S", 0.005)


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Addresses to which any socket of this process connects."""
    addresses: list[tuple[str, int]] = []
    connect = socket.socket.connect

    def recorded(self: socket.socket, address: Any) -> None:
        addresses.append(address)
        connect(self, address)

    monkeypatch.setattr("socket.socket.connect", recorded)
    return addresses
