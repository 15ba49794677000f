"""A mock judge on a free port: the shared one beside the shared data where it is at hand, else the project's own."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_WELL = {"p429": 0, "p500": 0, "pmal": 0, "ptrunc": 0, "phang": 0, "garbage": 0, "retry_after": 0}


@dataclass(frozen=True)
class MockJudge:
    """A running server."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to call it as `openai/mock`."""
        return {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.port}/v1",
            "OPENAI_API_KEY": "none",
            "AGENT_EVAL_JUDGE_MODEL": "openai/mock",
        }

    def reset(self, **faults: float) -> None:
        """Counters to zero, and exactly these faults."""
        self._call("/reset", json.dumps(_WELL | faults).encode())

    def stats(self) -> dict[str, int]:
        """Counted since the last reset: calls, ok, tokens, repeated calls."""
        counted: dict[str, int] = json.loads(self._call("/stats"))
        return counted

    def _call(self, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", body, timeout=30) as answer:
            read: bytes = answer.read()
        return read


@contextlib.contextmanager
def mock_judge() -> Iterator[MockJudge]:
    """Started, and stopped when the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        judge = MockJudge(free.getsockname()[1])
    process = subprocess.Popen([sys.executable, *_command(), "--port", str(judge.port)])
    try:
        for _ in range(600):
            with contextlib.suppress(urllib.error.URLError):
                judge.stats()
                break
            time.sleep(0.1)
        yield judge
    finally:
        process.kill()  # a hanging answer would be waited for
        process.wait()


def _command() -> list[str]:
    root = Path(__file__).parents[1]
    data = Path(os.environ.get("AGENT_EVAL_SHARED_DATA") or root.parent / "shared" / "data")
    shared = data.parent / "tools" / "mock_judge_server.py"
    return [str(shared)] if shared.is_file() else ["-m", "benchmarks.mock_judge"]
