"""CPU seconds, wall seconds and peak memory of a child process, as the operating system counts them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    cpu_s: float
    wall_s: float
    peak_mb: float
    exit_code: int

    def __str__(self) -> str:
        failed = f", but exit code {self.exit_code}" if self.exit_code else ""
        return f"{self.cpu_s:.2f} CPU s, {self.wall_s:.2f} s wall, {self.peak_mb:.0f} MB peak{failed}"


def cost(command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Cost:
    """Run a command to its end; its output is thrown away unless it fails."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        child = subprocess.Popen(
            command, env=os.environ | dict(env or {}), cwd=cwd, stdout=output, stderr=output
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 1):
            output.seek(0)
            sys.stderr.write(output.read().decode(errors="replace")[-3000:])
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, child.returncode)


def best(command: Sequence[str], runs: int = 5) -> Cost:
    """The cheapest of several runs: the least disturbed one on a shared machine."""
    return min((cost(command) for _ in range(runs)), key=lambda c: c.cpu_s)
