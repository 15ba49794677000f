"""Recorded verdicts: read strictly, found by content, lost by an edit."""

import asyncio
import gzip
import json
import tracemalloc
from pathlib import Path

import polars as pl
import pytest

from agent_eval.judge.inputs.recorded_verdicts import RecordedJudge, read_verdicts, verdicts_hash
from agent_eval.judge.protocol import NotApplicable, Question, Scored, Verdict
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE as FAILURE
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION as GOAL
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.tables import table
from tests.judge.material import Row, agent, conversation, recorded, user

GOOD = recorded("hash", 0, HELPFULNESS, rating_1to5=4)


def written(folder: Path, *rows: Row | str) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "v.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def refused(folder: Path, *rows: Row | str) -> list[tuple[str, int, str]]:
    frame, refusals = read_verdicts(written(folder, *rows))
    assert frame.is_empty()
    return [(r.file, r.line, r.reason) for r in refusals]


def test_a_line_becomes_a_row_of_the_cache(tmp_path: Path) -> None:
    frame, refusals = read_verdicts(written(tmp_path, GOOD, "", recorded("hash", None, GOAL, value=1)))
    assert refusals == []
    assert frame.schema == table("judge_cache").schema
    assert frame["metric"].to_list() == ["helpfulness", "goal_completion"]
    assert json.loads(frame["verdict"][0])["rating_1to5"] == 4


@pytest.mark.parametrize("rating", ["0", "6", "4.5", "true", "NaN", "null", '"4"', "4.0", "1e400"])
def test_a_rating_off_the_scale_is_refused_with_file_and_line(tmp_path: Path, rating: str) -> None:
    line = json.dumps(GOOD).replace('"rating_1to5": 4', f'"rating_1to5": {rating}')
    [(file, at, reason)] = refused(tmp_path, "", line)
    assert (file, at) == ("v.jsonl", 2)
    assert "rating" in reason or reason.startswith("not JSON: ")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (recorded("h", 0, FAILURE, label="rude"), "'rude' is not one of"),
        (recorded("h", 0, FAILURE, label="no failure", further_labels=["repetition"]), "further_labels"),
        (recorded("h", 0, FAILURE, label="repetition", further_labels=["repetition"]), "further_labels"),
        (recorded("h", None, GOAL, value=1.5), "value"),
        (recorded("h", None, GOAL, rating_1to5=5), "is a value, but the verdict holds rating"),
        (recorded("h", 0, HELPFULNESS, rating_1to5=4, value=1), "rating and value"),
        (recorded("h", 0, GOAL, value=1), "turn_index"),
        (recorded("h", None, HELPFULNESS, rating_1to5=4), "turn_index"),
        (GOOD | {"metric": "helpfullness"}, "'helpfullness' is not known"),
        (GOOD | {"verdict": {"status": "unscored", "rationale": "x"}}, "status"),
        (GOOD | {"verdict": {"status": "scored", "rating_1to5": 4}}, "rationale"),
        (GOOD | {"content_hash": "other"}, "question_key is not the hash"),
        (GOOD | {"model": "model-b"}, "cache_key is not the hash"),
        (GOOD | {"judged_at": "yesterday"}, "judged_at"),
        (GOOD | {"turn_index": 2**70}, "turn_index"),
        (GOOD | {"surprise": 1}, "surprise"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, row: Row, reason: str) -> None:
    [(_, _, said)] = refused(tmp_path, row)
    assert reason in said


@pytest.mark.parametrize("line", ["{", "[]", "4", '{"cache_key": "\\ud800"}', "[" * 100_000])
def test_a_line_that_is_no_object_is_refused_and_the_rest_goes_on(tmp_path: Path, line: str) -> None:
    frame, refusals = read_verdicts(written(tmp_path, line, GOOD))
    assert frame.height == 1
    assert [r.line for r in refusals] == [1]


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    rows = [recorded("hash", i, HELPFULNESS, rating_1to5=4, evidence="x" * 1000) for i in range(20)]
    written(tmp_path, *(row for row in rows for _ in range(500)))
    size = (tmp_path / "v.jsonl").stat().st_size
    tracemalloc.start()
    frame, refusals = read_verdicts(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (frame.height, refusals) == (20, [])
    assert peak < size / 4


def test_a_file_that_breaks_off_is_refused_and_the_next_one_is_read(tmp_path: Path) -> None:
    whole = (written(tmp_path, GOOD) / "v.jsonl").read_bytes()
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(whole)[:-6])
    frame, [refusal] = read_verdicts(tmp_path)
    assert frame.height == 1
    assert refusal.file == "a.jsonl"
    assert "the rest of the file cannot be read" in refusal.reason


def test_a_second_answer_under_one_key_is_refused_unless_it_is_the_same(tmp_path: Path) -> None:
    other = recorded("hash", 0, HELPFULNESS, rating_1to5=1)
    frame, refusals = read_verdicts(written(tmp_path, GOOD, GOOD, other))
    assert frame.height == 1
    assert json.loads(frame["verdict"][0])["rating_1to5"] == 4
    assert [r.line for r in refusals] == [3]


def test_the_hash_follows_the_content_and_not_the_order(tmp_path: Path) -> None:
    second = recorded("hash", 1, HELPFULNESS, rating_1to5=2)
    frame, _ = read_verdicts(written(tmp_path, GOOD, second))
    assert verdicts_hash(frame) == verdicts_hash(frame.reverse())
    assert verdicts_hash(frame) != verdicts_hash(frame.head(1))


MISS = NotApplicable("no recorded verdict on this content", is_abstention=True)


def verdict_of(cache: pl.DataFrame, key: object = GOOD["question_key"]) -> Verdict:
    of = conversation(user("Hi"), agent("Hello."))
    question = Question((of,), (of.turns(),), 0, "hash", (HELPFULNESS,), {"helpfulness": str(key)})
    return asyncio.run(RecordedJudge(cache).judge(question))["helpfulness"]


def test_the_latest_recorded_answer_of_any_model_counts(tmp_path: Path) -> None:
    later = recorded("hash", 0, HELPFULNESS, rating_1to5=2) | {"judged_at": "2026-04-01T01:00:00+00:30"}
    later |= {"model": "model-b", "cache_key": "unchecked"}
    frame, _ = read_verdicts(written(tmp_path, GOOD))
    row = frame.to_dicts()[0] | {n: later[n] for n in ("judged_at", "model", "cache_key")}
    row |= {"verdict": json.dumps(later["verdict"])}
    verdict = verdict_of(table("judge_cache").frame([row, *frame.to_dicts()]))
    assert isinstance(verdict, Scored)
    assert (verdict.rating_1to5, verdict.answered_by) == (2, "model-b")


def test_another_content_an_answer_given_here_and_one_without_a_score_are_a_miss(tmp_path: Path) -> None:
    frame, _ = read_verdicts(written(tmp_path, GOOD))
    assert isinstance(verdict_of(frame), Scored)
    assert verdict_of(frame, "another") == MISS
    assert verdict_of(frame.with_columns(is_recorded=pl.lit(None, dtype=pl.Boolean))) == MISS
    assert verdict_of(frame.with_columns(verdict=pl.lit('{"status": "unscored"}'))) == MISS
