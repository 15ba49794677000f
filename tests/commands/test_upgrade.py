"""After an upgrade that rewords questions, the earlier answers are used until the new ones are there."""

from pathlib import Path

import polars as pl
import pytest

from agent_eval.judge.keys import cache_key, question_key
from agent_eval.metrics.earlier import EARLIER
from agent_eval.project import Project
from agent_eval.tables import table
from tests.commands.conftest import AGENT, Model
from tests.commands.test_judge_run import VERSION, run

pytestmark = pytest.mark.slow
_CACHE = table("judge_cache")


def reword_the_stored_answers(monkeypatch: pytest.MonkeyPatch) -> int:
    """Give the stored answers of models the wording of an earlier release; return how many there are."""
    store = Project.open().store
    stored = store.read(_CACHE).filter(
        pl.col("is_recorded").is_null(), pl.col("metric").is_in([m for m in EARLIER if m != "U4"])
    )
    rows = []
    for row in stored.iter_rows(named=True):
        rubric, profile = EARLIER[row["metric"]]
        key = question_key(row["content_hash"], row["turn_index"], row["metric"], str(rubric), profile)
        reworded = {"question_key": key, "rubric_hash": rubric, "profile_version": profile}
        rows.append(row | reworded | {"cache_key": cache_key(key, row["model"], {}, row["repeat"] or 0)})
    store.delete(_CACHE, stored.select(_CACHE.key))
    store.upsert(_CACHE, _CACHE.frame(rows), run_id="earlier")
    monkeypatch.setattr("agent_eval.project.data_versions.PROFILE_VERSION", "of the new release")
    return len(rows)


def board() -> dict[str, object]:
    row = Project.open().table("leaderboard").filter(agent_id=AGENT, methodology_version=VERSION)
    columns = ("status", "rank", "composite_score", "n_earlier_wording")
    return row.select(columns).row(0, named=True)


def test_a_capped_run_after_an_upgrade_keeps_the_row_of_the_board_marked_until_the_rest_is_asked(
    judged_copy: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of repeats: tests/metrics/test_earlier.py."""
    before, n_asked = (
        board(),
        Project.open().store.read(_CACHE).filter(pl.col("is_recorded").is_null()).height,
    )
    n_reworded = reword_the_stored_answers(monkeypatch)
    assert n_reworded > 20
    code, said = run("--max-calls", "2")
    assert (code, model.n_asked()) == (1, 2)
    assert "stored answers belong to earlier wordings of their questions" in said
    capped = board()
    assert capped | {"n_earlier_wording": None} == before
    assert 0 < int(str(capped["n_earlier_wording"])) <= n_reworded
    gates = Project.open().table("gate_results").filter(agent_id=AGENT, methodology_version=VERSION)
    assert gates.filter(gate="coverage")["evidence"].str.contains("of them in an earlier wording").all()
    assert run()[0] == 0
    assert 0 < model.n_asked() <= n_asked - 2
    assert board() == before
    assert run()[0] == 0
    assert model.n_asked() == 0
