"""`compare`, `tournament`, `leaderboard` of several versions and `reliability` rows, on the shipped sample."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.errors import AgentEvalError, NotFoundError
from agent_eval.project import Project
from tests.commands.conftest import invoke, use

PAIR = ("lumen-support", "harbor-desk")


@pytest.fixture
def _sample(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample_root))


def rows_of(*arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(invoke(*arguments, "--json").stdout)
    return rows


@pytest.mark.usefixtures("_sample")
def test_two_agents_of_the_sample_are_compared_over_sessions_and_common_tasks() -> None:
    rows = {row["quantity"]: row for row in rows_of("compare", *PAIR)}
    assert rows["composite"]["difference"] == pytest.approx(22.3, abs=0.1)
    assert (rows["composite"]["n"], rows["composite"]["other_n"]) == (3, 1)
    assert (rows["composite"]["p_value"], rows["composite"]["verdict"]) == (None, "unknown")
    assert rows["pass@1"]["unit"] == "tasks"
    printed = invoke("compare", *PAIR).stdout
    assert "A = lumen-support · B = harbor-desk" in printed
    assert "3 and 1 sessions" in printed


@pytest.mark.usefixtures("_sample")
def test_a_comparison_with_itself_or_a_stranger_is_refused() -> None:
    with pytest.raises(AgentEvalError, match="compared with itself"):
        invoke("compare", PAIR[0], PAIR[0])
    with pytest.raises(NotFoundError, match="nobody"):
        invoke("compare", PAIR[0], "nobody")


@pytest.mark.usefixtures("_sample")
def test_the_board_has_an_interval_where_there_are_sessions_for_one() -> None:
    rows = {row["agent_id"]: row for row in rows_of("leaderboard", "--template", "customer_service_v1")}
    lumen, harbor = rows["lumen-support"], rows["harbor-desk"]
    assert lumen["low"] < lumen["composite_score"] < lumen["high"]
    # one session of a peer says nothing of its place
    assert (lumen["rank_low"], lumen["rank_high"]) == (1, 3)
    assert (harbor["low"], harbor["rank_low"]) == (None, None)
    assert lumen["lead_survives_point"] is True
    assert (harbor["rank"], harbor["rank_if_tested"]) == (2, 2)


@pytest.mark.usefixtures("_sample")
def test_versions_stand_side_by_side_only_when_asked_for() -> None:
    assert {row["methodology_version"] for row in rows_of("leaderboard")} == {"1.3.0"}
    rows = rows_of("leaderboard", "--methodology", "1.3.0", "--methodology", "1.2.0")
    assert [row["methodology_version"] for row in rows] == sorted(row["methodology_version"] for row in rows)
    harbor = {row["methodology_version"]: row for row in rows if row["agent_id"] == "harbor-desk"}
    assert (harbor["1.2.0"]["composite_score"], harbor["1.2.0"]["what_if_composite"]) == (80, 70)
    assert harbor["1.3.0"]["what_if_composite"] == harbor["1.3.0"]["composite_score"] == 70
    printed = invoke("leaderboard", "--methodology", "1.2.0", "--methodology", "1.3.0").stdout
    assert "not comparable" in printed


def test_every_two_ranked_agents_have_a_stored_comparison(sample: Project) -> None:
    stored = sample.table("pairwise_comparisons").filter(methodology_version="1.3.0")
    assert sorted(stored.select("agent_id", "other_agent_id", "verdict").rows()) == [
        ("harbor-desk", "lumen-support", "unknown"),
        ("harbor-desk", "quill-help", "tie"),
        ("lumen-support", "quill-help", "unknown"),
    ]


@pytest.mark.usefixtures("_sample")
def test_reliability_shows_the_bayesian_interval_where_trials_are_few() -> None:
    assert {row["estimator"] for row in rows_of("reliability", "--agent", "lumen-support")} == {"unbiased"}
    every = rows_of("reliability", "--estimator", "bayesian", "--estimator", "plug_in")
    assert {row["estimator"] for row in every} == {"bayesian", "plug_in"}
    printed = invoke("reliability", "--agent", "lumen-support").stdout
    assert "bayesian" in printed
    assert "more data are needed" in " ".join(printed.split())
    with pytest.raises(AgentEvalError, match="unbiased, plug_in, bayesian"):
        invoke("reliability", "--estimator", "magic")


@pytest.fixture
def verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project with a folder for pairwise verdicts."""
    use(monkeypatch, tmp_path)
    folder = tmp_path / "data" / "pairwise"
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, *lines: dict[str, Any] | str) -> None:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "verdicts.jsonl").write_text("\n".join(texts))


def verdict(first: str, second: str, winner: str | None, task: str = "t") -> dict[str, Any]:
    return {"task": task, "first": first, "second": second, "winner": winner, "judge": "m"}


def test_a_tournament_is_read_from_recorded_verdicts(verdicts: Path) -> None:
    write(verdicts, verdict("a", "b", "first"), verdict("b", "a", "second"))
    rows = rows_of("tournament")
    assert [(row["agent_id"], row["rank"], row["wins"]) for row in rows] == [("a", 1, 1), ("b", 2, 0)]
    printed = invoke("tournament").stdout
    assert "judged by m" in printed
    assert "No verdict changed with the order" in printed


def test_a_biased_judge_is_said(verdicts: Path) -> None:
    write(verdicts, *(verdict(*o, "first", f"t{i}") for i in range(8) for o in (("a", "b"), ("b", "a"))))
    printed = " ".join(invoke("tournament").stdout.split())
    assert "Position bias: 8 of 8 pairs" in printed
    assert "it is unknown which agent is better" in printed


def test_bad_lines_are_refused_by_number_and_the_rest_counts(verdicts: Path) -> None:
    write(
        verdicts, verdict("a", "b", "first"), "{", verdict("a", "a", "first"), verdict("b", "a", "a"),
        verdict("b", "a", "second"), verdict("b", "a", "first"), verdict("b", "a", "second"),
    )  # fmt: skip
    result = invoke("tournament")
    assert result.exit_code == 1
    refused = [line for line in result.stderr.splitlines() if line.startswith("Rejected:")]
    assert [line.split(":")[2] for line in refused] == ["2", "3", "4", "6"]
    assert "an earlier line has a different verdict" in refused[3]
    assert "first and second are both 'a'" in refused[1]


def test_without_verdicts_their_form_is_told(verdicts: Path) -> None:
    with pytest.raises(NotFoundError, match="one JSON object per line"):
        invoke("tournament")
    write(verdicts, verdict("a", "b", "first"), verdict("b", "a", "second"))
    with pytest.raises(NotFoundError, match="between a, c"):
        invoke("tournament", "--agent", "a", "--agent", "c")
