"""Declared outcomes check a judge: it is asked beside them, and its answers change no result."""

import json
from pathlib import Path

import polars as pl
import pytest

from agent_eval.project import Project
from tests.commands.conftest import Model, invoke, use
from tests.untyped import any_table

pytestmark = pytest.mark.slow
N = 12
RESULTS = ("log_leaderboard", "quality_summary", "reliability", "reliability_leaderboard", "composite_scores", "gate_results")  # fmt: skip


def shown(name: str) -> list[dict[str, object]]:
    frame = any_table(Project.open().table(name))
    return list(frame.sort(frame.columns[:3]).to_dicts())


def test_a_judge_is_asked_beside_declared_outcomes_and_its_answers_count_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    root = use(monkeypatch, tmp_path / "project")
    invoke("init", str(root))
    talks = [
        {"id": f"c{i}", "task_id": f"t{i}", **({"correct": i % 3 != 0} if i < N else {}), "messages": [{"role": "user", "content": f"Cancel order {i}."}, {"role": "assistant", "content": f"Order {i} is cancelled."}]}
        for i in range(N + 3)
    ]  # fmt: skip
    (root / "chats.jsonl").write_text("\n".join(map(json.dumps, talks)))
    assert invoke("import", "auto", str(root / "chats.jsonl"), "--agent", "alpha").exit_code == 0
    model.answers["goal_completion"] = 1
    run = ("run", "--judge", "scripted")
    assert invoke(*run).exit_code in (0, 1)
    before = {name: shown(name) for name in RESULTS}
    assert Project.open().table("judge_calibration").is_empty()

    settings = root / "agent_eval.toml"
    written = settings.read_text()
    for share, answer in ((0.5, 1), (1, "unreadable")):
        model.answers["goal_completion"] = answer
        settings.write_text(f"judge_outcome_sample = {share}\n{written}")
        model.n_asked()
        assert invoke(*run).exit_code in (0, 1, 2)  # 2: no answer of this run could be read
        assert model.n_asked() >= N / 2
        for name in RESULTS:
            for row, other in zip(shown(name), before[name], strict=True):
                assert {k: (v, other[k]) for k, v in row.items() if v != other[k]} == {}, name
    goals = Project.open().table("conversation_judgments").filter(metric="goal_completion")
    assert goals.filter(judge="scripted", is_effective=False).height >= N / 2
    rows = Project.open().table("judge_calibration").to_dicts()
    assert {(row["reference"], row["metric"], row["judge"], row["n"], row["n_raters"]) for row in rows} == {
        ("declared outcomes", "goal_completion", "scripted", N / 2, 0)
    }
    outcomes = goals.filter(judge="rule").join(goals.filter(judge="scripted"), on="conversation_id")
    agreed = outcomes.select((pl.col("value") == pl.col("value_right")).mean()).item()
    assert rows[0]["raw_agreement"] == pytest.approx(agreed)
    assert "scripted against 6 declared outcomes (never counted): raw agreement" in invoke("summary").output
    sheet = invoke("labels", "sheet", "--n", "50", "--metric", "goal_completion")
    assert "3 parts" in sheet.output, sheet.output
