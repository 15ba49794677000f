"""A real benchmark file with 34 crashes of mixed causes: the printed range contains each possible attribution.

Skipped where the file is absent.
"""

import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from math import comb
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from tests.conftest import at_home

pytestmark = pytest.mark.slow

FILE = "tau1/airline__gpt-4o__4trials.json.gz"
AGENT_S = (
    "MaxTurnsExceeded: Max turns (30) exceeded",
    "agent stopped: step limit of 30 reached",
    "invalid arguments for tool book_reservation",
    "AgentParsingError: the reply has no action",
)
HARNESS_S = ("litellm.RateLimitError: Error code: 429", "openai.APIConnectionError: Connection error.")
UNKNOWN = (
    "Your credit balance is too low",
    "please slow down, the account is over its rate",
    "OSError: [Errno 28] No space left on device",
    "torch.cuda.OutOfMemoryError: CUDA out of memory",
    "node preempted by a job of higher priority",
    "ModuleNotFoundError: No module named 'redis'",
    "exit code 137",
    "KeyError: 'choices'",
)
TEXTS = [*AGENT_S, *HARNESS_S, *UNKNOWN]
Record = dict[str, Any]


@pytest.fixture(scope="module")
def records(shared_data: Path) -> list[Record]:
    """The file with 34 crashes, spread over passed and failed runs; each ends with reward 0, as tau-bench writes it."""
    with gzip.open(shared_data / FILE) as stream:
        found: list[Record] = json.load(stream)
    for i, record in enumerate(random.Random(5).sample(found, 34)):
        record |= {"reward": 0.0, "traj": record["traj"][:3]}
        record["info"]["error"] = TEXTS[i % len(TEXTS)]
    return found


@pytest.fixture(scope="module")
def printed(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    root = tmp_path_factory.mktemp("crashes")
    (root / "data").mkdir()
    path = root / "runs.json"
    path.write_text(json.dumps(records))
    with at_home(root), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_EVAL_HOME", str(root))
        patch.setenv("COLUMNS", "400")
        asked = [
            "tau-bench",
            str(path),
            "--agent",
            "a",
            "--category",
            "customer_service",
            "--task-set",
            "airline",
        ]
        assert CliRunner().invoke(app, ["import", *asked]).exit_code == 0
        assert CliRunner().invoke(app, ["run", "--methodology", "1.3.0"]).exit_code == 0
        command = ["reliability", "--methodology", "1.3.0"]
        rows = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
        board = CliRunner().invoke(app, ["leaderboard", "--methodology", "1.3.0"]).stdout
        yield {"rows": rows, "text": CliRunner().invoke(app, command).stdout, "board": board}


def pass_hat(tasks: list[list[bool]], k: int) -> float:
    return sum(comb(sum(of), k) / comb(len(of), k) for of in tasks) / len(tasks)


def attributed(records: list[Record], choose: random.Random, bias: float) -> list[list[bool]]:
    """Outcomes by task: a crash is the agent's failure, or a loss of the harness that had passed or failed."""
    tasks: dict[object, list[bool]] = defaultdict(list)
    for record in records:
        error = record["info"].get("error")
        is_open = error is not None and error not in AGENT_S
        tasks[record["task_id"]].append(choose.random() < bias if is_open else record["reward"] == 1)
    return list(tasks.values())


def test_the_point_is_the_declared_rate_without_what_the_harness_is_known_to_have_lost(
    records: list[Record], printed: dict[str, Any]
) -> None:
    known = defaultdict(list)
    for record in records:
        if record["info"].get("error") not in HARNESS_S:
            known[record["task_id"]].append(record["reward"] == 1)
    row = next(row for row in printed["rows"] if row["k"] == 1)
    assert row["pass_hat_k"] == pytest.approx(pass_hat(list(known.values()), 1))
    n_unknown = sum(record["info"].get("error") in UNKNOWN for record in records)
    n_harness = sum(record["info"].get("error") in HARNESS_S for record in records)
    assert (row["n_unexplained_errors"], row["n_harness_errors"], row["n_planned"]) == (
        n_unknown,
        n_harness,
        200,
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_range_contains_the_truth_for_each_attribution(
    records: list[Record], printed: dict[str, Any], k: int
) -> None:
    row = next(row for row in printed["rows"] if row["k"] == k)
    choose = random.Random(k)
    truths = [
        pass_hat(attributed(records, choose, bias), k) for bias in [0.0, 1.0, *[i / 200 for i in range(200)]]
    ]
    low, high = row["pass_hat_k_worst"], row["pass_hat_k_best"]
    assert all(low - 1e-9 <= truth <= high + 1e-9 for truth in truths)
    # and it is no wider than that
    assert min(truths) == pytest.approx(low)
    assert max(truths) == pytest.approx(high)
    ranges = re.findall(
        rf"k = {k} \(unbiased\), worst to best case: .*pass\^k (\S+) to ([\d.]+)", printed["text"]
    )
    assert ranges == [(f"{low:.3f}", f"{high:.3f}")]


def test_the_errors_of_unknown_cause_are_told_wherever_the_range_is(printed: dict[str, Any]) -> None:
    n = printed["rows"][0]["n_unexplained_errors"]
    for place in ("text", "board"):
        assert f"{n} ended in errors of unknown cause" in " ".join(printed[place].split())
