"""Answers to earlier wordings: found under the key of today's question if they are kept, and marked."""

import json
from pathlib import Path

import pytest

from agent_eval.judge.keys import cache_key, question_key
from agent_eval.judge.llm.cache import answers_of
from agent_eval.metrics.earlier import EARLIER, asks_the_same, rubric_hash_now
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.metrics.profile import asked_since
from agent_eval.project import Project
from agent_eval.tables import table

ASKED = "helpfulness"
NOW = question_key("c", 0, ASKED, DEFAULT.rubric_hashes[ASKED], asked_since(ASKED))


def answer(rubric_hash: str, profile: str, rating: int, **more: object) -> dict[str, object]:
    key = question_key("c", 0, ASKED, rubric_hash, profile)
    said = {"status": "scored", "rating_1to5": rating, "rationale": "why"}
    return {
        **{"cache_key": cache_key(key, "m", {}), "question_key": key, "content_hash": "c", "turn_index": 0},
        **{"metric": ASKED, "rubric_hash": rubric_hash, "profile_version": profile, "model": "m"},
        **{"parameters": "{}", "repeat": 0, "verdict": json.dumps(said), "judged_at": "2026-01-01T00:00:00Z"},
    } | more


@pytest.mark.parametrize(
    ("rows", "asked", "kept"),
    [
        ([], None, None),
        ([answer(str(EARLIER[ASKED][0]), "1", 2)], None, (2, "1")),
        ([answer("of my own wording", "1", 2)], None, None),  # another question
        ([answer(str(EARLIER[ASKED][0]), "0", 2)], None, None),
        ([answer(str(EARLIER[ASKED][0]), "1", 2), answer(DEFAULT.rubric_hashes[ASKED], "1", 4)], (4, None), (4, None)),
    ],
)  # fmt: skip
def test_an_earlier_answer_counts_only_if_it_is_kept_and_only_without_a_newer_one(
    tmp_path: Path, rows: list[dict[str, object]], asked: object, kept: object
) -> None:
    (tmp_path / "data").mkdir()
    project = Project.open(tmp_path)
    repeats = [row | {"repeat": 2, "cache_key": f"{row['cache_key']}, again"} for row in rows]
    project.store.upsert(table("judge_cache"), table("judge_cache").frame([*rows, *repeats]), run_id="r")
    for keeps, expected in ((False, asked), (True, kept)):
        cache = type(project.judges.answers)(project.beside_store, keeps).find([NOW])
        for repeat in range(3):
            found = answers_of(cache, "m", {}, repeat=repeat).get(NOW)
            given = None if found is None else (getattr(found, "rating_1to5", None), found.earlier_profile)
            assert given == (None if repeat == 1 else expected)


def test_every_earlier_wording_differs_from_todays_and_labels_of_people_keep_their_weight() -> None:
    for metric, (earlier, version) in EARLIER.items():
        assert (earlier, version) != (DEFAULT.rubric_hashes.get(metric), asked_since(metric))
        if earlier is not None:
            assert rubric_hash_now(metric, earlier, version) == DEFAULT.rubric_hashes[metric]
            assert asks_the_same(metric, earlier, DEFAULT.rubric_hashes[metric])
            assert not asks_the_same(metric, "other", DEFAULT.rubric_hashes[metric])
