"""Real agent runs, from their files to the tables; skipped where the files are absent."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import agent_eval
from agent_eval.cli import app
from agent_eval.project import Project
from agent_eval.tables import table
from tests.conftest import at_home, made_once
from tests.transcripts.making import snapshot

pytestmark = pytest.mark.slow

FILES = {
    "gpt-4o": ("tau2", "tau2/airline__gpt-4o-2024-11-20.json.gz"),
    "qwen": ("tau2", "tau2/airline__qwen2.5-7b.json.gz"),
    "toolorchestra": ("tau2", "tau2/airline__toolorchestra-nemotron.json.gz"),
    "gpt-4o-tau1": ("tau-bench", "tau1/airline__gpt-4o__4trials.json.gz"),
    "gpt-4.1-solo": ("tau2", "tau2/telecom-solo__gpt-4.1__4trials.json.gz"),
}


BY_FUNCTION = "gpt-4o-tau1"


def import_one(agent: str, shared_data: Path) -> int:
    """Import by the command; the last by the function, which recognises the format."""
    format_name, file = FILES[agent]
    if agent == BY_FUNCTION:
        agent_eval.import_file(shared_data / file, agent=agent, project=agent_eval.open_project())
        return 0
    arguments = [format_name, str(shared_data / file), "--agent", agent, "--category", "customer_service"]
    return CliRunner().invoke(app, ["import", *arguments]).exit_code


@pytest.fixture(scope="module")
def project(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.open(made_once(tmp_path_factory, "real", lambda root: make(root, shared_data)))


def make(root: Path, shared_data: Path) -> None:
    (root / "data").mkdir()
    with at_home(root) as project:
        assert [import_one(agent, shared_data) for agent in FILES] == [0] * len(FILES)
        assert agent_eval.run_project(project, methodologies=["1.3.0"]).exit_code == 0


@pytest.fixture(autouse=True)
def _at_home(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(project.home.root))


def counted_in_file(path: Path) -> dict[str, int]:
    """Counted in the JSON itself, without any code of ours."""
    with gzip.open(path) as stream:
        loaded = json.load(stream)
    runs = loaded["simulations"] if isinstance(loaded, dict) else loaded
    messages = [m for run in runs for m in (run.get("messages") or run["traj"])]
    rewards = [(run.get("reward_info") or run)["reward"] for run in runs]
    return {
        "conversations": len(runs),
        "user": sum(m["role"] == "user" for m in messages),
        "agent": sum(m["role"] == "assistant" for m in messages),
        "calls": sum(len(m.get("tool_calls") or []) for m in messages),
        "successes": sum(abs(reward - 1) <= 1e-6 for reward in rewards),
    }


@pytest.mark.parametrize("agent", FILES)
def test_the_tables_hold_what_the_file_holds(project: Project, shared_data: Path, agent: str) -> None:
    rows = project.store.read(table("conversations"), pl.DataFrame({"agent_id": [agent]}))
    assert {
        "conversations": rows.height,
        "user": rows["n_user_messages"].sum(),
        "agent": rows["n_agent_messages"].sum(),
        "calls": rows["n_tool_calls"].sum(),
        "successes": rows["outcome_correct"].sum(),
    } == counted_in_file(shared_data / FILES[agent][1])
    calls = project.store.read(table("tool_calls"), pl.DataFrame({"agent_id": [agent]}))
    assert calls.height == rows["n_tool_calls"].sum()


def test_an_undeclared_agent_is_incomplete_with_everything_named_and_never_zero(project: Project) -> None:
    known = [agent for agent in FILES if agent != BY_FUNCTION]  # which names no category
    board = project.store.read(table("leaderboard")).filter(
        pl.col("agent_id").is_in(known), methodology_version="1.3.0"
    )
    assert board["status"].to_list() == ["incomplete"] * len(known)
    scores = ("universal_0to100", "domain_0to100", "raw_composite_score", "composite_score")
    unknown = board.select("rank", *scores, "repeatability_penalty").null_count().row(0)
    assert unknown == (board.height,) * 6
    named = {text.partition(":")[0] for text in board["missing"][0]}
    tests = {"standardised_task", "hallucination", "error_injection", "u3_scope", "repeatability_tested"}
    assert named >= tests | {f"U{i}" for i in range(1, 7)} | {f"D{i}" for i in range(1, 6)}


def expected_of(shared_data: Path, agent: str) -> dict[str, Any]:
    """The entry of expected.json on the agent's file."""
    entries: list[dict[str, Any]] = json.loads((shared_data / "expected.json").read_text())["entries"]
    (entry,) = (e for e in entries if e["file"] == FILES[agent][1])
    return entry


def reliability_of(agent: str, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["reliability", "--agent", agent, "--json", *arguments])
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_tau_bench_has_a_posterior_over_its_tasks(shared_data: Path) -> None:
    # 50 tasks: the hierarchical posterior lies where the unbiased estimate and its interval over tasks lie
    unbiased = reliability_of("gpt-4o-tau1")
    posterior = reliability_of("gpt-4o-tau1", "--estimator", "bayesian")
    for one, other in zip(unbiased, posterior, strict=True):
        assert other["estimand"] == one["estimand"] == "new tasks of this kind"
        assert other["pass_hat_k"] == pytest.approx(one["pass_hat_k"], abs=0.03)
        assert other["pass_hat_k_low"] == pytest.approx(one["pass_hat_k_low"], abs=0.04)
        assert other["pass_hat_k_high"] == pytest.approx(one["pass_hat_k_high"], abs=0.04)


@pytest.mark.parametrize("agent", ["gpt-4o-tau1", "gpt-4.1-solo"])
def test_every_pass_at_and_hat_k_is_the_expected_one(shared_data: Path, agent: str) -> None:
    found: dict[str, float] = {}
    for row in reliability_of(agent):
        found |= {f"pass^{row['k']}": row["pass_hat_k"], f"pass@{row['k']}": row["pass_at_k"]}
    expected = expected_of(shared_data, agent)
    if agent == "gpt-4o-tau1":
        assert [round(found[f"pass^{k}"], 3) for k in range(1, 5)] == [*expected["published"].values()]
    computed = expected["computed"]
    assert found == pytest.approx({name: v for name, v in computed.items() if name.startswith("pass")})


def test_tau2_gives_its_published_pass_1(shared_data: Path) -> None:
    (row,) = reliability_of("toolorchestra")
    published = expected_of(shared_data, "toolorchestra")["published"]
    assert (row["k"], row["n_tasks"], round(100 * row["pass_hat_k"], 1)) == (1, 50, published["pass_1"])
    assert row["pass_hat_k_low"] < 0.56 < row["pass_hat_k_high"]


def test_every_task_has_as_many_successes_as_expected(project: Project, shared_data: Path) -> None:
    rows = project.store.read(table("conversations"))
    counts = rows.group_by("agent_id", "task_id").agg(
        c=pl.col("outcome_correct").sum(), n=pl.col("outcome_correct").count()
    )
    solo = counts.filter(agent_id="gpt-4.1-solo").select("c", "n").sort("c").rows()
    assert solo == sorted(map(tuple, expected_of(shared_data, "gpt-4.1-solo")["computed"]["counts"]))
    histogram = dict(counts.filter(agent_id="gpt-4o-tau1").group_by("c").len().iter_rows())
    wanted = expected_of(shared_data, "gpt-4o-tau1")["extra"]["success_count_histogram_over_tasks"]
    assert {str(c): n for c, n in histogram.items()} == wanted


def test_two_real_agents_are_compared_task_by_task(project: Project) -> None:
    result = CliRunner().invoke(app, ["compare", "toolorchestra", "qwen", "--json"])
    (row,) = [row for row in json.loads(result.stdout) if row["quantity"] == "pass@1"]
    # 28 and 9 of the same 50 tasks
    assert (row["n"], round(row["difference"], 2), row["verdict"]) == (50, 0.38, "toolorchestra better")


@pytest.mark.parametrize("agent", ["gpt-4o", "gpt-4o-tau1"])
def test_importing_again_changes_nothing(project: Project, shared_data: Path, agent: str) -> None:
    agents = project.home.agents_file.read_bytes()
    before = snapshot(project.home.data / "sessions")
    assert import_one(agent, shared_data) == 0
    assert snapshot(project.home.data / "sessions") == before
    assert project.home.agents_file.read_bytes() == agents


def test_no_price_is_invented(project: Project) -> None:
    rows = project.store.read(table("conversations"))
    known = dict(rows.group_by("agent_id").agg(pl.col("cost_usd").count()).iter_rows())
    paid = rows.filter(agent_id="gpt-4o")["cost_usd"].sum()
    assert paid == pytest.approx(4.203311)  # the sum of agent_cost in the file
    # the file of the local model records 0.0 everywhere, the orchestrator's nothing at all
    assert known == {"gpt-4o": 50, "qwen": 0, "toolorchestra": 0, "gpt-4o-tau1": 0, "gpt-4.1-solo": 20}
