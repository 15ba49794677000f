"""Scores of an import's source: judgments beside ours, on their own scale, never effective."""

import json

import polars as pl
import pytest

from agent_eval.judge.evidence import Transcript
from agent_eval.judge.inputs.source_scores import label_judgments, source_judgments
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation, Message
from tests.judge.material import human

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
    found = list(source_judgments(*frames({"source_scores": SCORES}), {}))
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
        assert list(source_judgments(*frames(metadata), {})) == []


@pytest.mark.parametrize(
    ("index", "cited"), [(1, (1, "Planner")), (2, (None, None)), (-1, (None, None)), ("1", (None, None)), (True, (None, None))]
)  # fmt: skip
def test_a_score_cites_its_message_only_if_there_is_one(index: object, cited: tuple[object, object]) -> None:
    score = {"name": "decisive_step", "value": "Planner", "reason": "wrong", "message_index": index}
    messages = (Message(role="user", content="a"), Message(role="assistant", name="Planner", content="b"))
    transcripts = {("bot", "c"): Transcript(Conversation(conversation_id="c", messages=messages).turns())}
    ((turn, row),) = source_judgments(*frames({"source_scores": [score]}), transcripts)
    assert (turn, row["label"], row["rationale"]) == (None, "Planner", "wrong")
    assert (row["message_index"], row["speaker"]) == cited


def label(**row: object) -> dict[str, object]:
    said = human("goal_completion", 1, agent_id="bot", conversation_id="c", rater="import:gpt", role="judge")
    return said | {"rating_1to5": None, "value": 1.0, "rated_at": None} | row


def test_labels_of_judges_are_judgments_beside_ours_and_never_count() -> None:
    ratings = [
        label(rationale="done"),
        label(line=3, value=0.0),  # the judge's last word
        label(line=4, rater="mini"),
        label(line=5, role=None, rater="anna"),
        label(line=6, target="helpfulness", value=None, rating_1to5=4, turn_index=0),
        label(line=7, target="helpfulness", value=None, rating_1to5=4, turn_index=7),  # there is no such turn
        label(line=8, conversation_id="elsewhere"),
        label(line=9, methodology_version="1.2.0", value=1.0),
        label(line=10, conversation_id=None, session_id="s", target="U1", value=None, rating_1to5=4),
    ]
    admitted = pl.DataFrame(
        {"methodology_version": ["1.2.0", "1.3.0"], "agent_id": ["bot"] * 2, "conversation_id": ["c"] * 2}
    )
    rows = label_judgments(table("human_ratings").frame(ratings), admitted, frames({})[1])
    found = {
        (r["methodology_version"], r["turn_index"], r["judge"]): r["rating_1to5"] or r["value"] for r in rows
    }
    of_gpt, of_mini = "import:gpt", "import:mini"
    assert found == {
        ("1.2.0", None, of_gpt): 1.0, ("1.3.0", None, of_gpt): 0.0, ("1.2.0", 0, of_gpt): 4, ("1.3.0", 0, of_gpt): 4,
        ("1.2.0", None, of_mini): 1.0, ("1.3.0", None, of_mini): 1.0,
    }  # fmt: skip
    assert not any(row["is_effective"] for row in rows)
    table("turn_judgments").conform(table("turn_judgments").frame(r for r in rows if r["turn_index"] == 0))
