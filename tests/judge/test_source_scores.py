"""Scores of an import's source: judgments beside ours, on their own scale, never effective."""

import json

import polars as pl

from agent_eval.judge.inputs.source_scores import source_judgments
from agent_eval.tables import table

SCORES = [
    {"name": "correctness", "value": 0, "comment": "wrong city", "timestamp": "2026-02-10T17:15:56Z"},
    {"name": "helpfulness", "value": 4.5, "turn_index": 0},
    {"name": "helpfulness", "value": True, "turn_index": 7},  # there is no such turn
    {"name": "match", "value": "C", "explanation": "Yes"},
    {"name": "match", "value": {"a": 1}},
    {"name": "nothing", "value": None},
    {"value": 1},
    "no score",
]


def frames(metadata: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    where = {"agent_id": "bot", "conversation_id": "c"}
    conversation = where | {"source": "langfuse:traces.json#1", "metadata": json.dumps(metadata)}
    return table("conversations").frame([conversation]), table("turns").frame([where | {"turn_index": 0}])


def test_scores_are_judgments_of_their_source_and_never_count() -> None:
    found = list(source_judgments(*frames({"source_scores": SCORES})))
    shown = [(turn, r["metric"], r.get("value"), r.get("label"), r["rationale"]) for turn, r in found]
    assert shown == [
        (None, "correctness", 0.0, None, "wrong city"),
        (0, "helpfulness", 4.5, None, None),
        (None, "helpfulness", 1.0, None, None),
        (None, "match", None, "C", "Yes"),
        (None, "match (2)", None, '{"a": 1}', None),
    ]
    assert {row["judge"] for _, row in found} == {"import:langfuse"}
    assert not any(row["is_effective"] for _, row in found)
    whole = [row | {"methodology_version": "1.3.0"} for turn, row in found if turn is None]
    table("conversation_judgments").conform(table("conversation_judgments").frame(whole))  # keys are unique


def test_metadata_of_another_form_gives_no_judgment() -> None:
    for metadata in ({"source_scores": "high"}, {"source_scores": None}, {}):
        assert list(source_judgments(*frames(metadata))) == []
