"""Two runs and a live daemon on one store, killed at random moments: by hand, not part of `all`.

`python -m benchmarks together` takes minutes; the seed of every round is its number.
"""

import contextlib
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.commands.interrupting import project_at, start, tables
from tests.defs.live import Ui, served
from tests.defs.test_live import is_settled

ROUNDS = 10
LONGEST_S = 8.0
TARGETS = ("run, Ctrl-C", "run, kill -9", "daemon, kill -9", "nobody")


def measure(rounds: int = ROUNDS) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as serving:
        root = project_at(Path(folder) / "together")
        ui = serving.enter_context(served(root))
        hit: Counter[str] = Counter()
        codes: Counter[int] = Counter()
        for seed in range(rounds):
            draw = random.Random(seed)
            touch(root, draw, seed)
            runs = [start(root), start(root)]
            time.sleep(draw.uniform(0.5, LONGEST_S))
            hit[target := TARGETS[seed % len(TARGETS)]] += 1
            if target.startswith("run"):
                runs[0].send_signal(signal.SIGINT if "Ctrl-C" in target else signal.SIGKILL)
            elif target.startswith("daemon"):
                ui = again(serving, ui, root)
            for run in runs:
                _, err = run.communicate(timeout=300)
                codes[run.returncode] += 1
                if run.returncode not in (0, 130, -signal.SIGKILL):
                    raise SystemExit(f"round {seed}, {target}: exit {run.returncode}: {err}")
        (last := start(root)).communicate(timeout=300)
        wait_until_settled(root)
        calm = project_at(Path(folder) / "calm")
        for round_ in range(rounds):
            touch(calm, random.Random(round_), round_)
        start(calm).communicate(timeout=300)
        expected, found = tables(calm), tables(root)
        different = [name for name, frame in expected.items() if not found[name].equals(frame)]
        if last.returncode or different:
            raise SystemExit(f"exit {last.returncode}, other rows in {different}")
        yield f"{rounds} rounds with a daemon and two runs, hit: {dict(hit)}; exit codes of runs {dict(codes)}; tables as undisturbed"


def touch(root: Path, draw: random.Random, number: int) -> None:
    """Change an agent's session file: its agent is stale everywhere, its scores are the same."""
    files = sorted((root / "data" / "sessions").glob("*/*/session.yaml"))
    file = draw.choice(files)
    file.write_text(file.read_text() + f"# {number}\n")


def again(serving: contextlib.ExitStack, ui: Ui, root: Path) -> Ui:
    """Kill the daemon with all that it started, and start another."""
    os.killpg(ui.process.pid, signal.SIGKILL)
    serving.pop_all().close()
    return serving.enter_context(served(root))


def wait_until_settled(root: Path) -> None:
    end = time.monotonic() + 300
    while not is_settled(root):
        if time.monotonic() > end:
            raise SystemExit("run_state is behind after 300 s")
        time.sleep(1)
