"""`agent-eval reliability` on stored trials: any k that they allow, and the real largest n in the error."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.definitions import defs
from agent_eval.defs.resources import use_project
from agent_eval.errors import AgentEvalError
from agent_eval.project import Project
from agent_eval.project.data_versions import read_sources
from agent_eval.scores.reliability.pass_rates import TrialTables, reliability
from agent_eval.tables import table
from tests.untyped import any_table

VERSION = "1.3.0"
COMMAND = ["reliability", "--methodology", VERSION, "--json"]
COUNTS = dict.fromkeys(("n_turns", "n_user_messages", "n_agent_messages"), 1) | {"n_tool_calls": 0}
CONVERSATION: dict[str, Any] = COUNTS | {
    "methodology_version": VERSION, "session_id": "s", "benchmark_id": "s", "tests": [], "task_id": "t",
    "is_admitted": True, "content_hash": "h",
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Agent 'many' with 16 trials of one task, 12 of them correct; 'few' with 2; 'unjudged' with 1 unknown."""
    outcomes: dict[str, list[bool | None]] = {"few": [True, True], "unjudged": [None]}
    outcomes["many"] = [i < 12 for i in range(16)]
    for agent in outcomes:
        (tmp_path / "data" / "sessions" / agent / "s").mkdir(parents=True)
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    rows = [
        CONVERSATION | {"agent_id": agent, "conversation_id": f"c{i}", "outcome_correct": is_correct}
        for agent, trials in outcomes.items()
        for i, is_correct in enumerate(trials)
    ]
    frames = {name: table(name).frame(rows) for name in ("transcripts", "conversations")}
    known = {name: frames.get(name, table(name).empty()) for name in TrialTables._fields}
    frames["reliability"] = reliability(TrialTables(**any_table(known)))
    for name, frame in frames.items():
        Project.open(tmp_path).store.upsert(table(name), frame, run_id="r")
    return tmp_path


def rows_of(*arguments: str) -> pl.DataFrame:
    result = CliRunner().invoke(app, [*COMMAND, *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return table("reliability").frame(json.loads(result.stdout))


def test_without_k_the_stored_rows_are_printed_and_with_it_those_of_k(root: Path) -> None:
    stored = rows_of("--agent", "many")
    assert stored["k"].to_list() == list(range(1, 9))
    assert_frame_equal(
        rows_of("--agent", "many", "-k", "8", "-k", "2"), stored.filter(pl.col("k").is_in([2, 8]))
    )


def test_a_k_beyond_those_stored_is_computed(root: Path) -> None:
    # 4 wrong of 16: each draw of 10 holds a right one; all right in C(12,10)/C(16,10) = 66/8008 of them
    counts = ("agent_id", "k", "n_tasks", "n_trials", "n_successes", "pass_at_k", "pass_hat_k")
    actual = rows_of("--agent", "many", "-k", "10").select(counts)
    assert actual.rows() == [("many", 10, 1, 16, 12, 1.0, pytest.approx(66 / 8008))]


def test_an_agent_without_so_many_trials_has_a_row_that_says_why_and_keeps_its_others(root: Path) -> None:
    rows = rows_of("-k", "1", "-k", "3")
    assert rows.filter(k=1).equals(rows_of("-k", "1"))
    # C(12,3)/C(16,3) = 220/560
    assert rows.filter(k=3).select("agent_id", "n_tasks", "n_tasks_excluded", "pass_hat_k").rows() == [
        ("few", 0, 1, None),
        ("many", 1, 0, pytest.approx(220 / 560)),
        ("unjudged", 0, 1, None),
    ]
    (why,) = rows.filter(agent_id="few", k=3)["reason"]
    assert why == "no estimate: k is 3, but no task has more than 2 trials with a known outcome"


@pytest.mark.parametrize(
    ("arguments", "reasons"),
    [
        ("-k 17", [("few", 17, "more than 2"), ("many", 17, "more than 16"), ("unjudged", 17, "no trial")]),
        ("-k 1 -k 3 --agent few", [("few", 1, None), ("few", 3, "more than 2")]),
        ("-k 1 --agent unjudged", [("unjudged", 1, "no trial")]),
    ],
)
def test_a_k_beyond_every_task_has_a_row_with_the_reason(
    root: Path, arguments: str, reasons: list[tuple[str, int, str | None]]
) -> None:
    rows = rows_of(*arguments.split())
    assert rows.select("agent_id", "k").rows() == [row[:2] for row in reasons]
    for row, (_, _, why) in zip(rows.iter_rows(named=True), reasons, strict=True):
        assert (row["pass_hat_k"] is None) == (why is not None)
        assert (why or "") in (row["reason"] or "")
    printed = CliRunner().invoke(app, [*COMMAND[:-1], *arguments.split()], catch_exceptions=False)
    assert printed.exit_code == 0
    assert all(why in " ".join(printed.stdout.split()) for *_, why in reasons if why)


def test_a_k_below_one_is_refused_for_what_it_is(root: Path) -> None:
    with pytest.raises(AgentEvalError, match="k is 0"):
        rows_of("-k", "0")


ASKED = {"agent_id": "many", "conversation_id": "asked"}


@pytest.fixture
def answered(root: Path) -> Project:
    """Agent 'many' has answered one question, 0.75 right."""
    expected = json.dumps([{"turn_index": 0, "answer": "42"}])
    asked = CONVERSATION | ASKED | {"task_id": "q", "expected": expected}
    judged = {
        "turn_index": 0,
        "metric": "answer_correctness",
        "judge": "m",
        "value": 0.75,
        "status": "scored",
    }
    judged |= {"methodology_version": VERSION, "is_effective": True, "further_labels": []}
    project = Project.open(root)
    for name, made in {
        "transcripts": asked,
        "conversations": asked,
        "turn_judgments": ASKED | judged,
    }.items():
        project.store.upsert(table(name), table(name).frame([made]), run_id="r")
    return project


def correct_trials_of_q(rows: pl.DataFrame) -> int:
    # 12 of the 16 trials of t are correct: pass@1 over both tasks is (0.75 + q) / 2
    row = rows.filter(agent_id="many", k=1, estimator="unbiased").row(0, named=True)
    n_right: float = row["pass_at_1"] * row["n_tasks_known"]
    return round(n_right - 0.75)


@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize(("threshold", "n_correct"), [("0.7", 1), ("0.8", 0)])
def test_the_answer_threshold_of_the_settings_decides(
    threshold: str, n_correct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_EVAL_ANSWER_THRESHOLD", threshold)
    assert correct_trials_of_q(rows_of("--agent", "many", "-k", "1")) == n_correct
    printed = CliRunner().invoke(app, [*COMMAND, "--agent", "many", "--interactions", "-k", "1"])
    assert json.loads(printed.stdout)[0]["n_interactions_correct"] == n_correct


def materialise(asset: str, project: Project) -> None:
    sources = read_sources(project, ["many"], [VERSION])
    with dg.DagsterInstance.ephemeral() as instance, use_project(project, sources):
        instance.add_dynamic_partitions("agent", ["many"])
        defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(asset)],
            partition_key=dg.MultiPartitionKey({"agent": "many", "version": VERSION}),
        )


def test_a_new_answer_threshold_makes_the_asset_stale_and_is_what_it_uses(answered: Project) -> None:
    strict = answered.with_settings(answer_threshold=0.8)
    before, after = (read_sources(p, [], [VERSION]).scoring_spec for p in (answered, strict))
    assert before != after
    keys = pl.DataFrame({"agent_id": ["many"], "methodology_version": [VERSION]})
    for project, n_correct in ((answered, 1), (strict, 0)):
        materialise("reliability", project)
        assert correct_trials_of_q(project.store.read(table("reliability"), keys)) == n_correct


def test_the_prior_and_the_credible_level_of_the_settings_decide_the_bayesian_rows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bayesian() -> dict[str, Any]:
        return rows_of("--agent", "many", "-k", "1", "--estimator", "bayesian").row(0, named=True)

    usual = bayesian()
    assert usual["pass_hat_k"] == pytest.approx(13 / 18)  # Beta(1 + 12, 1 + 4)
    assert usual["interval"].startswith("prior Beta(1, 1); covers these tasks again")
    monkeypatch.setenv("AGENT_EVAL_BETA_PRIOR", "[0.5, 3]")
    monkeypatch.setenv("AGENT_EVAL_CREDIBLE_LEVEL", "0.8")
    chosen = bayesian()
    assert chosen["pass_hat_k"] == pytest.approx(12.5 / 19.5)  # Beta(0.5 + 12, 3 + 4)
    assert chosen["interval"].startswith("80 % interval, prior Beta(0.5, 3); covers these tasks again")
    width, usual_width = (row["pass_hat_k_high"] - row["pass_hat_k_low"] for row in (chosen, usual))
    assert 0 < width < usual_width


@pytest.mark.usefixtures("answered")
def test_the_bayesian_mode_works_within_one_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    def printed() -> dict[str, Any]:
        arguments = ["--agent", "many", "--interactions", "-k", "2", "--estimator", "bayesian"]
        (row,) = json.loads(CliRunner().invoke(app, [*COMMAND, *arguments], catch_exceptions=False).stdout)
        return dict(row)

    row = printed()
    # one interaction, correct: p ~ Beta(2, 1), E[p²] = 2/3 × 3/4
    assert row["interaction_pass_hat_k"] == pytest.approx(1 / 2)
    assert row["interaction_pass_hat_k_low"] < 1 / 2 < row["interaction_pass_hat_k_high"]
    monkeypatch.setenv("AGENT_EVAL_BETA_PRIOR", "[1, 3]")
    assert printed()["interaction_pass_hat_k"] == pytest.approx(2 / 5 * 3 / 6)


@pytest.mark.parametrize(
    "changed",
    [
        {"tool_threshold": 0.9},
        {"tool_weights": {"selection": 1.0}},
        {"tool_profile": "fair-forge"},
        {"beta_prior": (2.0, 1.0)},
        {"credible_level": 0.9},
    ],
)
def test_a_changed_setting_of_the_scores_makes_them_stale_and_leaves_the_judgments_alone(
    root: Path, changed: dict[str, Any]
) -> None:
    project = Project.open(root)
    before, after = (read_sources(p, [], [VERSION]) for p in (project, project.with_settings(**changed)))
    assert before.scoring_spec != after.scoring_spec
    assert before.judge_config == after.judge_config


def test_tool_weights_threshold_and_profile_of_the_settings_reach_the_table(answered: Project) -> None:
    expected = json.dumps([{"turn_index": 0, "tools": [{"name": "f"}, {"name": "g"}]}])
    asked = CONVERSATION | ASKED | {"n_tool_calls": 1, "expected": expected}
    made = {"turn_index": 0, "call_index": 0, "name": "f", "arguments": "{}", "requestor": "assistant"}
    for name, stored in {"conversations": asked, "tool_calls": ASKED | made}.items():
        answered.store.upsert(table(name), table(name).frame([stored]), run_id="r")
    lenient = answered.with_settings(tool_threshold=0.5, tool_weights={"selection": 1.0})
    profile = answered.with_settings(tool_profile="fair-forge")
    found = []
    for project in (answered, lenient, profile):
        materialise("tool_correctness", project)
        (row,) = project.table("tool_correctness").iter_rows(named=True)
        found.append((row["overall"], row["is_correct"]))
    # g is missing: selection, parameters and sequence are 1/2; of the profile, sequence is 1 and utilisation 0
    assert found == [(0.5, False), (0.5, True), (0.5, False)]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TOOL_WEIGHTS", '{"selecton": 1}', "'selecton' is unknown"),
        ("TOOL_WEIGHTS", '{"selection": 0}', "all weights are 0"),
        ("TOOL_WEIGHTS", '{"selection": -1}', "greater than or equal to 0"),
        ("TOOL_THRESHOLD", "1.5", "less than or equal to 1"),
        ("BETA_PRIOR", "[0, 1]", "greater than 0"),
        ("BETA_PRIOR", "[1]", "Field required"),
        ("CREDIBLE_LEVEL", "1", "less than 1"),
    ],
)
def test_an_impossible_setting_of_the_scores_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"AGENT_EVAL_{name}", value)
    with pytest.raises(AgentEvalError, match=said):
        Project.open(root)
