"""`agent-eval reliability` on stored trials: any k that they allow, and the real largest n in the error."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.commands.results.reliability import TooFewTrialsError
from agent_eval.definitions import defs
from agent_eval.defs.resources import in_hand
from agent_eval.errors import AgentEvalError
from agent_eval.project import Project
from agent_eval.project.data_versions import read_sources
from agent_eval.scores.reliability.pass_rates import TrialTables, reliability
from agent_eval.tables import table

VERSION = "1.3.0"
COMMAND = ["reliability", "--methodology", VERSION, "--json"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Agent 'many' with 16 trials of one task, 12 of them correct; 'few' with 2; 'unjudged' with 1 unknown."""
    for agent in ("many", "few", "unjudged"):
        (tmp_path / "data" / "sessions" / agent / "s").mkdir(parents=True)
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    outcomes: dict[str, list[bool | None]] = {"few": [True, True], "unjudged": [None]}
    outcomes["many"] = [i < 12 for i in range(16)]
    store(
        Project.open(tmp_path), [(agent, i, c) for agent, row in outcomes.items() for i, c in enumerate(row)]
    )
    return tmp_path


def store(project: Project, trials: list[tuple[str, int, bool | None]]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "methodology_version": VERSION,
            "agent_id": agent,
            "conversation_id": f"c{i}",
            "session_id": "s",
            "benchmark_id": "s",
            "tests": [],
            "task_id": "t",
            "n_turns": 1,
            "n_user_messages": 1,
            "n_agent_messages": 1,
            "n_tool_calls": 0,
            "is_admitted": True,
            "outcome_correct": is_correct,
            "content_hash": f"{agent}{i}",
        }
        for agent, i, is_correct in trials
    ]
    frames = {name: table(name).frame(rows) for name in ("transcripts", "conversations")}
    known = {name: frames.get(name, table(name).empty()) for name in TrialTables._fields}
    frames["reliability"] = reliability(TrialTables(**known))
    for name, frame in frames.items():
        project.store.upsert(table(name), frame, run_id="r")


def rows_of(*arguments: str) -> pl.DataFrame:
    result = CliRunner().invoke(app, [*COMMAND, *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return table("reliability").frame(json.loads(result.stdout))


def test_without_k_the_stored_rows_are_printed(root: Path) -> None:
    assert rows_of("--agent", "many")["k"].to_list() == list(range(1, 9))


def test_a_k_beyond_those_stored_is_computed(root: Path) -> None:
    # 4 wrong of 16: each draw of 10 holds a right one; all right in C(12,10)/C(16,10) = 66/8008 of them
    counts = ("agent_id", "k", "n_tasks", "n_trials", "n_successes", "pass_at_k", "pass_hat_k")
    actual = rows_of("--agent", "many", "-k", "10").select(counts)
    assert actual.rows() == [("many", 10, 1, 16, 12, 1.0, pytest.approx(66 / 8008))]


def test_a_stored_k_comes_out_as_it_is_stored(root: Path) -> None:
    stored = rows_of("--agent", "many").filter(pl.col("k").is_in([2, 8]))
    assert rows_of("--agent", "many", "-k", "8", "-k", "2").equals(stored)


def test_an_agent_without_so_many_trials_has_a_row_without_estimates(root: Path) -> None:
    actual = rows_of("-k", "3").select("agent_id", "n_tasks", "n_tasks_excluded", "pass_hat_k")
    # C(12,3)/C(16,3) = 220/560
    assert actual.rows() == [
        ("few", 0, 1, None),
        ("many", 1, 0, pytest.approx(220 / 560)),
        ("unjudged", 0, 1, None),
    ]


@pytest.mark.parametrize(
    ("arguments", "largest"),
    [
        (["-k", "17"], 16),
        (["-k", "1", "-k", "3", "--agent", "few"], 2),
        (["-k", "1", "--agent", "unjudged"], 0),
    ],
)
def test_a_k_beyond_every_task_is_refused_with_the_largest_n(
    root: Path, arguments: list[str], largest: int
) -> None:
    with pytest.raises(TooFewTrialsError, match=f"the largest n is {largest}\\."):
        rows_of(*arguments)


def test_a_k_below_one_is_refused_for_what_it_is(root: Path) -> None:
    with pytest.raises(AgentEvalError, match="k is 0"):
        rows_of("-k", "0")


@pytest.fixture
def answered(root: Path) -> Project:
    """Agent 'many' has answered one question, 0.75 right."""
    project = Project.open(root)
    row: dict[str, Any] = {"agent_id": "many", "methodology_version": VERSION, "conversation_id": "asked"}
    transcript = {"session_id": "s", "benchmark_id": "s", "tests": [], "task_id": "q", "is_admitted": True}
    counts = dict.fromkeys(("n_turns", "n_user_messages", "n_agent_messages"), 1) | {"n_tool_calls": 0}
    expected = json.dumps([{"turn_index": 0, "answer": "42"}])
    judged = {"turn_index": 0, "metric": "answer_correctness", "judge": "m", "value": 0.75}
    frames = {
        "transcripts": row | transcript | counts,
        "conversations": row | transcript | counts | {"expected": expected, "content_hash": "h"},
        "turn_judgments": row | judged | {"status": "scored", "is_effective": True, "further_labels": []},
    }
    for name, made in frames.items():
        project.store.upsert(table(name), table(name).frame([made]), run_id="r")
    return project


def correct_trials_of_q(rows: pl.DataFrame) -> int:
    # 12 of the 16 trials of t are correct
    return int(rows.filter(agent_id="many", k=1, estimator="unbiased")["n_successes"].item()) - 12


@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize(("threshold", "n_correct"), [("0.7", 1), ("0.8", 0)])
def test_the_answer_threshold_of_the_settings_decides(
    threshold: str, n_correct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_EVAL_ANSWER_THRESHOLD", threshold)
    assert correct_trials_of_q(rows_of("--agent", "many", "-k", "1")) == n_correct
    printed = CliRunner().invoke(app, [*COMMAND, "--agent", "many", "--interactions", "-k", "1"])
    assert json.loads(printed.stdout)[0]["n_interactions_correct"] == n_correct


def test_a_new_answer_threshold_makes_the_asset_stale_and_is_what_it_uses(answered: Project) -> None:
    strict = answered.with_settings(answer_threshold=0.8)
    before, after = (read_sources(p, [], [VERSION]).scoring_spec for p in (answered, strict))
    assert before != after
    keys = pl.DataFrame({"agent_id": ["many"], "methodology_version": [VERSION]})
    for project, n_correct in ((answered, 1), (strict, 0)):
        with dg.DagsterInstance.ephemeral() as instance, in_hand(project):
            instance.add_dynamic_partitions("agent", ["many"])
            defs.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=instance,
                asset_selection=[dg.AssetKey("reliability")],
                partition_key=dg.MultiPartitionKey({"agent": "many", "version": VERSION}),
            )
        assert correct_trials_of_q(project.store.read(table("reliability"), keys)) == n_correct
