"""Faulty replies in a real run: eight conversations, one of which gets a fault at every try. By hand: minutes.

`python -m benchmarks.faults [NAME …]` prints a line per fault and `n of n`: 7 of 8 conversations scored, one unscored
with its reason, `run` exits with 1 and the gate not with 0, the next run asks exactly the one call, no request is held
longer than twice the time-out, and no process grows by more than 200 MB over one without a fault.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

from benchmarks.fault_server import FAULTS, MARK, ODD_BUT_GOOD, FaultServer, fault_server

TIMEOUT_S = 2.0
MOST_MB = 200
N = 8


def main(names: list[str]) -> None:
    """Try each fault and say how many cost no more than their call."""
    unknown = set(names) - FAULTS.keys() - ODD_BUT_GOOD.keys()
    if unknown:
        sys.exit(f"Unknown faults: {', '.join(sorted(unknown))}")
    with fault_server() as server, tempfile.TemporaryDirectory() as folder:
        _, usual_mb, _ = _attempt(server, "none", Path(folder) / "none")
        held = 0
        wanted = names or [*FAULTS, *ODD_BUT_GOOD]
        for number, name in enumerate(wanted):
            problems, mb, reason = _attempt(server, name, Path(folder) / str(number))
            if mb > usual_mb + MOST_MB:
                problems.append(f"{mb:.0f} MB, {usual_mb:.0f} without a fault")
            held += not problems
            print(f"{name}: {'; '.join(problems) or 'held'}, {mb:.0f} MB. {reason}", flush=True)
        print(f"{held} of {len(wanted)}")


def _attempt(server: FaultServer, fault: str, root: Path) -> tuple[list[str], float, str]:
    _project(root)
    is_fault = fault in FAULTS
    server.fault = fault
    server.requests.clear()
    server.served_s.clear()
    first, mb = _command(
        server, root, "run", "--judge", "openai/mock", "--methodology", "1.3.0", "--agent", "bot"
    )
    counts, reason = _judged(root)
    wanted = (N - is_fault, int(is_fault))
    problems = []
    if counts != wanted:
        problems.append(f"scored and unscored {counts}, expected {wanted}")
    if is_fault and not reason:
        problems.append("no reason")
    if first != int(is_fault):
        problems.append(f"run exits with {first}")
    if max(server.served_s, default=0) > 2 * TIMEOUT_S:
        problems.append(f"a request took {max(server.served_s):.1f} s")
    if server.elsewhere:
        problems.append("a redirect was followed")
    if is_fault and _command(server, root, "gate", "--methodology", "1.3.0", "--agent", "bot")[0] == 0:
        problems.append("the gate passes")
    server.fault = "none"
    server.requests.clear()
    again, _ = _command(
        server, root, "run", "--judge", "openai/mock", "--methodology", "1.3.0", "--agent", "bot"
    )
    if len(server.requests) != int(is_fault) or again != 0:
        problems.append(f"the next run asks {len(server.requests)} calls and exits with {again}")
    leaks = [path for path in root.rglob("*") if path.is_file() and b"sk-planted" in path.read_bytes()]
    return problems + [f"the key is in {path.name}" for path in leaks], mb, reason[:120]


def _project(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    lines = [
        {
            "id": f"c{i}",
            "task_id": f"t{i}",
            "correct": True,
            "messages": [
                {"role": "user", "content": MARK if i == 5 else f"Call {i}"},
                {"role": "assistant", "content": f"Answer {i}."},
            ],
        }
        for i in range(1, N + 1)
    ]
    (root / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    command = [
        sys.executable,
        "-m",
        "agent_eval",
        "import",
        "openai",
        str(root / "chats.jsonl"),
        "--agent",
        "bot",
    ]
    subprocess.run(command, env=os.environ | {"AGENT_EVAL_HOME": str(root)}, check=True, capture_output=True)


def _command(server: FaultServer, root: Path, *arguments: str) -> tuple[int, float]:
    """The exit code, and the peak of its memory in MB."""
    environment = server.environment | {
        "AGENT_EVAL_HOME": str(root),
        "AGENT_EVAL_JUDGE_TIMEOUT_S": str(TIMEOUT_S),
        "AGENT_EVAL_JUDGE_CONCURRENCY": "2",
    }
    environment = os.environ | environment
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_eval", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss / 1024


def _judged(root: Path) -> tuple[tuple[int, int], str]:
    """Conversations whose helpfulness is scored, and those where it is unscored with the first reason."""
    with duckdb.connect(str(root / "data" / "agent_eval.duckdb"), read_only=True) as con:
        rows = con.execute(
            "SELECT status, coalesce(unscored_reason, ''), coalesce(rationale, '') FROM turn_judgments "
            "WHERE metric = 'helpfulness' AND is_effective"
        ).fetchall()
    lost = [f"{reason}: {why}" for status, reason, why in rows if status == "unscored"]
    return (sum(status == "scored" for status, *_ in rows), len(lost)), next(iter(lost), "")


if __name__ == "__main__":
    main(sys.argv[1:])
