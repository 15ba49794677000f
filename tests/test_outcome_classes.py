"""Edited copies of a real benchmark file, from the file to board, reliability, compare, gate and report.

Each number is derived a second time: in plain Python from the edited file, or by SQL from the store. Skipped where the
files are absent.
"""

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import comb
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.project import Project
from agent_eval.tables import table
from tests.conftest import at_home, made_once

pytestmark = pytest.mark.slow

N_TASKS = 10  # of 50; the published numbers of the whole file: tests/test_api.py, tests/test_real_data.py
N, N_LOST = 4 * N_TASKS, 4
FILE = "tau1/airline__gpt-4o__4trials.json.gz"
AGENTS = ("emptied", "lines", "harness", "success", "between", "refused", "crashes")
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
VERSION = ["--methodology", "1.3.0"]
Record = dict[str, Any]


def original(shared_data: Path) -> list[Record]:
    with gzip.open(shared_data / FILE) as stream:
        records: list[Record] = json.load(stream)
    tasks = sorted({r["task_id"] for r in records})[:N_TASKS]
    return [r for r in records if r["task_id"] in tasks]


def shortest_failures(records: list[Record], n: int = N_LOST) -> list[Record]:
    return sorted((r for r in records if r["reward"] == 0), key=lambda r: len(r["traj"]))[:n]


def emptied(records: list[Record]) -> list[Record]:
    for record in shortest_failures(records):
        record["traj"] = []
        record["info"]["error"] = "KeyError: 'reservation_id'"
    return records


def harness(records: list[Record]) -> list[Record]:
    """A tenth of the runs, spread over tasks and trials, end in a provider's rate limit."""
    for i in range(0, len(records), 10):
        record = records[(i * 7) % len(records)]
        record |= {"reward": 0.0, "traj": []}
        record["info"]["error"] = "litellm.RateLimitError: OpenAIException - Error code: 429"
    return records


def composite(records: list[Record], *, has_component: bool) -> list[Record]:
    for record in records:
        is_right = record["reward"] == 1
        record["reward"] = 0.83 if is_right else 0.0
        if has_component:
            record["info"]["reward_info"] = {"parts": {"base_success": float(is_right)}}
    return records


def refused(records: list[Record]) -> list[Record]:
    for record in shortest_failures(records):
        record["traj"] = ["unreadable"]
    return records


def crashes(records: list[Record]) -> list[Record]:
    """A crash of each text, spread over passed and failed runs; each ends with reward 0, as tau-bench writes it."""
    for i, record in enumerate(random.Random(5).sample(records, len(TEXTS))):
        record |= {"reward": 0.0, "traj": record["traj"][:3]}
        record["info"]["error"] = TEXTS[i % len(TEXTS)]
    return records


def as_lines(records: list[Record]) -> str:
    lost = {id(r) for r in shortest_failures(records)}
    lines = (
        {"task_id": str(r["task_id"]), "trial": r["trial"], "correct": r["reward"] == 1}
        | {"messages": [] if id(r) in lost else r["traj"]}
        for r in records
    )
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def files(folder: Path, shared_data: Path) -> Iterator[tuple[str, str, Path]]:
    """Agent, format and file of each edited copy."""
    made = {
        "emptied": emptied(original(shared_data)),
        "harness": harness(original(shared_data)),
        "success": composite(original(shared_data), has_component=True),
        "between": composite(original(shared_data), has_component=False),
        "refused": refused(original(shared_data)),
        "crashes": crashes(original(shared_data)),
    }
    for agent, records in made.items():
        path = folder / f"{agent}.json"
        path.write_text(json.dumps(records))
        yield agent, "tau-bench", path
    (folder / "lines.jsonl").write_text(as_lines(original(shared_data)))
    yield "lines", "openai", folder / "lines.jsonl"


@pytest.fixture(scope="module")
def project(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.open(made_once(tmp_path_factory, "outcomes", lambda root: make(root, shared_data)))


def make(root: Path, shared_data: Path) -> None:
    (root / "data").mkdir()
    with at_home(root):
        codes = {}
        for agent, format_name, path in files(root, shared_data):
            arguments = [format_name, str(path), "--agent", agent, "--category", "customer_service"]
            asked = [*arguments, "--task-set", "tau-bench"]
            codes[agent] = CliRunner().invoke(app, ["import", *asked]).exit_code
        # unreadable rewards and refused records are told by the exit code
        assert codes == dict.fromkeys(AGENTS, 0) | {"between": 1, "refused": 1}
        assert CliRunner().invoke(app, ["run", *VERSION]).exit_code == 1


@pytest.fixture(autouse=True)
def _at_home(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(project.home.root))
    monkeypatch.setenv("COLUMNS", "400")


def output(*arguments: str) -> str:
    return CliRunner().invoke(app, [*arguments, *VERSION]).stdout


def reliability_of(agent: str) -> list[Record]:
    rows: list[Record] = json.loads(output("reliability", "--agent", agent, "--json"))
    return rows


def by_task(outcomes: list[tuple[object, bool | None]]) -> list[list[bool | None]]:
    tasks: dict[object, list[bool | None]] = defaultdict(list)
    for task, outcome in outcomes:
        tasks[task].append(outcome)
    return list(tasks.values())


def pass_hat(tasks: list[list[bool | None]], k: int, unknown: bool | None = None, least: int = 4) -> float:
    """pass^k in plain Python, over tasks with four trials; unknown ones are left out, or taken as they are told."""
    filled = [[unknown if o is None else o for o in of] for of in tasks]
    known = [of for of in ([o for o in of if o is not None] for of in filled) if len(of) >= least]
    return sum(comb(sum(of), k) / comb(len(of), k) for of in known) / len(known)


def pass_hat_k_of_the_file(shared_data: Path) -> list[float]:
    tasks = by_task([(r["task_id"], r["reward"] == 1) for r in original(shared_data)])
    return [pass_hat(tasks, k) for k in range(1, 5)]


@pytest.mark.parametrize("agent", ["emptied", "lines", "success"])
def test_runs_without_messages_and_composite_rewards_give_the_pass_hat_k_of_the_file(
    agent: str, shared_data: Path
) -> None:
    rows = reliability_of(agent)
    assert [row["pass_hat_k"] for row in rows] == pytest.approx(pass_hat_k_of_the_file(shared_data))
    assert {(row["n_tasks"], row["n_planned"], row["n_known"]) for row in rows} == {(N_TASKS, N, N)}


def test_sql_on_the_store_finds_the_same_trials(project: Project, shared_data: Path) -> None:
    with duckdb.connect(str(project.home.data / "agent_eval.duckdb"), read_only=True) as con:
        counts = con.execute(
            "SELECT agent_id, outcome_class, count(*), count(*) FILTER (n_turns = 0) FROM conversations WHERE agent_id <> 'crashes' GROUP BY ALL"
        ).fetchall()
        rate = con.execute(
            "SELECT avg(p) FROM (SELECT avg(outcome_correct::INT) p FROM conversations WHERE agent_id = 'emptied' GROUP BY task_id)"
        ).fetchone()
    right = sum(r["reward"] == 1 for r in original(shared_data))
    wrong = N - right
    left = Counter(r["reward"] for r in harness(original(shared_data)) if not r["info"].get("error"))
    assert {(a, c): (n, empty) for a, c, n, empty in counts} == {
        ("emptied", "passed"): (right, 0), ("emptied", "failed"): (wrong - N_LOST, 0),
        ("emptied", "unexplained_error"): (N_LOST, N_LOST),
        ("lines", "passed"): (right, 0), ("lines", "failed"): (wrong, N_LOST),
        ("harness", "passed"): (left[1.0], 0), ("harness", "failed"): (left[0.0], 0), ("harness", "harness_error"): (N_LOST, N_LOST),
        ("success", "passed"): (right, 0), ("success", "failed"): (wrong, 0),
        ("between", "unknown"): (N, 0),
        ("refused", "passed"): (right, 0), ("refused", "failed"): (wrong - N_LOST, 0),
    }  # fmt: skip
    assert rate == (pytest.approx(right / N),)


def test_a_tenth_of_harness_errors_shows_worst_and_best_case_everywhere(shared_data: Path) -> None:
    records = harness(original(shared_data))
    tasks = by_task([(r["task_id"], None if r["info"].get("error") else r["reward"] == 1) for r in records])
    for row in reliability_of("harness"):
        k = row["k"]
        assert row["pass_hat_k"] == pytest.approx(pass_hat(tasks, k))
        assert row["pass_hat_k_worst"] == pytest.approx(pass_hat(tasks, k, unknown=False))
        assert row["pass_hat_k_best"] == pytest.approx(pass_hat(tasks, k, unknown=True))
        assert (row["n_planned"], row["n_known"], row["n_harness_errors"]) == (N, N - N_LOST, N_LOST)
    flat = [o for of in tasks for o in of]
    worst, best = sum(o is True for o in flat) / N, sum(o is not False for o in flat) / N
    cases = f"worst to best case {worst:.3f} to {best:.3f}"
    told = f"{N - N_LOST} of {N} planned trials known: {N_LOST} lost to the harness"
    for shown in (output("leaderboard"), output("leaderboard", "--format", "md")):
        (line,) = [text for text in shown.splitlines() if text.startswith("harness:")]
        assert told in line
        assert cases in line
    assert told in output("reliability", "--agent", "harness")
    assert cases in output("reliability", "--agent", "harness")
    compared = output("compare", "harness", "emptied", "--notes")
    assert f"pass@1 of harness: {told}" in compared
    assert f"{worst:.3f} to {best:.3f}" in compared
    gates: list[Record] = json.loads(output("gate", "--agent", "harness", "--json"))
    (coverage,) = [row for row in gates if row["gate"] == "coverage"]
    assert coverage["result"] == "unknown"
    assert told in coverage["evidence"]
    assert f"pass@1 on tau-bench is {worst:.3f} to {best:.3f} from worst to best case" in coverage["evidence"]


def test_rewards_that_tell_no_success_are_unknown_and_never_zero(project: Project, shared_data: Path) -> None:
    (row,) = reliability_of("between")
    assert (row["pass_at_1"], row["pass_hat_k"], row["n_known"], row["n_unknown"]) == (None, None, 0, N)
    board = project.store.read(table("leaderboard")).filter(agent_id="between")
    assert board.select("pass_at_1", "goal_completion").rows() == [(None, None)]
    errors = project.store.read(table("import_errors")).filter(agent_id="between")
    right = sum(r["reward"] == 1 for r in original(shared_data))
    assert [reason.startswith(f"reading error: {right} rewards") for reason in errors["reason"]] == [True]
    assert "0.000;" not in output("leaderboard")


def test_refused_records_are_on_board_reliability_and_coverage_by_session(shared_data: Path) -> None:
    told = f"{N - N_LOST} of {N} planned trials known: {N_LOST} refused at import (refused: {N_LOST})"
    of_file = pass_hat_k_of_the_file(shared_data)
    for row in reliability_of("refused"):
        assert (row["n_refused"], row["refused_sessions"]) == (N_LOST, [f"refused: {N_LOST}"])
        assert row["pass_hat_k_worst"] <= of_file[row["k"] - 1] <= row["pass_hat_k_best"]
    assert told in output("leaderboard")
    gates: list[Record] = json.loads(output("gate", "--agent", "refused", "--json"))
    (coverage,) = [row for row in gates if row["gate"] == "coverage"]
    assert (coverage["result"], told in coverage["evidence"]) == ("failed", True)


def test_nothing_is_asked_about_conversations_without_turns(project: Project) -> None:
    pair = pl.DataFrame({"agent_id": ["emptied"]})
    empty = project.store.read(table("conversations"), pair).filter(n_turns=0).select("conversation_id")
    whole = project.store.read(table("conversation_judgments"), pair).join(empty, on="conversation_id")
    # the declared outcome decides goal completion; no judge model has anything to read
    assert sorted(whole.select("metric", "judge", "status", "value").unique().rows()) == [
        ("goal_completion", "rule", "scored", 0.0),
        ("plan_adherence", "rule", "not_applicable", None),
        ("step_efficiency", "rule", "not_applicable", None),
    ]
    turns = project.store.read(table("turn_judgments"), pair).join(empty, on="conversation_id")
    assert turns.is_empty()
    asked = ["run", *VERSION, "--dry-run", "--judge", "openai/gpt-4o-mini", "--agent", "emptied"]
    dry = CliRunner().invoke(app, asked, env={"OPENAI_API_KEY": "unused"})
    assert dry.exit_code == 0, dry.output


def test_reports_and_prompts_cope_with_conversations_without_turns(project: Project, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", "--out", str(tmp_path / "out"), *VERSION])
    assert result.exit_code == 0, result.output
    pages = "".join(p.read_text() for p in (tmp_path / "out").rglob("*.html"))
    assert "No turns: the run produced no message." in pages
    assert f"{N - N_LOST} of {N} planned trials known: {N_LOST} lost to the harness" in pages
    empty = project.store.read(table("conversations")).filter(agent_id="emptied", n_turns=0)
    name = empty["conversation_id"][0]
    for metric in ("helpfulness", "goal_completion"):
        options = ["--metric", metric, "--agent", "emptied", "--conversation", name]
        assert "no turns" in str(CliRunner().invoke(app, ["prompts", *options]).exception)
    assert CliRunner().invoke(app, ["explain", "emptied", *VERSION]).exit_code == 0


# Crashes of mixed causes: the printed range contains each possible attribution


def attributed(records: list[Record], choose: random.Random, bias: float) -> list[list[bool | None]]:
    """Outcomes by task: a crash is the agent's failure, or a loss of the harness that had passed or failed."""
    lost = {*HARNESS_S, *UNKNOWN}
    return by_task(
        [
            (r["task_id"], choose.random() < bias if r["info"].get("error") in lost else r["reward"] == 1)
            for r in records
        ]
    )


def test_the_point_is_the_declared_rate_without_what_the_harness_lost(shared_data: Path) -> None:
    records = crashes(original(shared_data))
    errors = [r["info"].get("error") for r in records]
    known = [(r["task_id"], r["reward"] == 1) for r in records if r["info"].get("error") not in HARNESS_S]
    row = reliability_of("crashes")[0]
    assert row["pass_hat_k"] == pytest.approx(pass_hat(by_task(known), 1, least=1))
    counts = (sum(e in UNKNOWN for e in errors), sum(e in HARNESS_S for e in errors), N)
    assert (row["n_unexplained_errors"], row["n_harness_errors"], row["n_planned"]) == counts
    for shown in (output("reliability", "--agent", "crashes"), output("leaderboard")):
        assert f"{counts[0]} ended in errors of unknown cause" in " ".join(shown.split())


def test_the_range_contains_the_truth_for_each_attribution_and_is_no_wider(shared_data: Path) -> None:
    records, text = crashes(original(shared_data)), output("reliability", "--agent", "crashes")
    for row in reliability_of("crashes"):
        k, choose = row["k"], random.Random(row["k"])
        biases = [0.0, 1.0, *[i / 200 for i in range(200)]]
        truths = [pass_hat(attributed(records, choose, bias), k) for bias in biases]
        low, high = row["pass_hat_k_worst"], row["pass_hat_k_best"]
        assert all(low - 1e-9 <= truth <= high + 1e-9 for truth in truths)
        assert [min(truths), max(truths)] == pytest.approx([low, high])
        ranges = re.findall(rf"k = {k} \(unbiased\), worst to best case: .*pass\^k (\S+) to ([\d.]+)", text)
        assert ranges == [(f"{low:.3f}", f"{high:.3f}")]
