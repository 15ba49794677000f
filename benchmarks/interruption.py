"""Runs killed and interrupted at random moments, over and over, until one goes through: by hand, not part of `all`.

`python -m benchmarks interruption` takes minutes; the seed of every round is its number.
"""

import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.commands.interrupting import disturbed, project_at, runs_under_way, start, tables

ROUNDS = 12
LONGEST_S = 8.0


def measure(rounds: int = ROUNDS) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        calm = project_at(Path(folder) / "calm")
        start(calm).communicate()
        expected = tables(calm)
        for sign in (signal.SIGINT, signal.SIGKILL):
            codes: Counter[int] = Counter()
            lines: Counter[int] = Counter()
            for seed in range(rounds):
                root = project_at(Path(folder) / f"{sign.name}-{seed}")
                for _ in range(3):  # the same project is disturbed again and again
                    code, err = disturbed(root, sign, random.Random(seed), LONGEST_S)
                    codes[code] += 1
                    lines[len(err.splitlines())] += 1
                (last := start(root)).communicate()
                found = tables(root)
                different = [name for name, frame in expected.items() if not found[name].equals(frame)]
                if last.returncode or different or runs_under_way(root):
                    raise SystemExit(
                        f"{sign.name}, seed {seed}: exit {last.returncode}, other rows in {different}"
                    )
            yield f"{sign.name}: {3 * rounds} disturbed runs, exit codes {dict(codes)}, lines on stderr {dict(lines)}; every last run gave the undisturbed tables"
