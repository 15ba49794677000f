"""Convert scores and labels from other tools to judgments that are shown but never count."""

import json
from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from pydantic import JsonValue

from agent_eval.formats.plain_text import one_line
from agent_eval.judge.evidence import Transcript
from agent_eval.judge.inputs.human_ratings import JUDGE, latest_ratings
from agent_eval.judge.judging_pass import step_columns
from agent_eval.tables.judging import IMPORTED, is_imported
from agent_eval.transcripts.importers.shared.threads import MESSAGE_INDEX, SOURCE_SCORES
from agent_eval.transcripts.steps import ConversationStep

LONGEST = 200  # maximum characters of a name or of a non-numeric value
_ANSWERED = ("rating_1to5", "value", "label", "further_labels", "rationale", "evidence")
_REASONS = ("comment", "reason", "explanation", "rationale")
Row = dict[str, object]


def label_judgments(human_ratings: pl.DataFrame, admitted: pl.DataFrame, turns: pl.DataFrame) -> list[Row]:
    """Return the labels by judges of other tools as rows of judgments, one per label and version.

    `turn_index` is None for labels of a whole conversation. If a judge has several labels on a part, the last one is
    used. Labels of conversations that are not judged, of turns that do not exist, and of sessions or slots are omitted.

    Args:
        human_ratings: Table human_ratings; only rows with the role `judge` are used.
        admitted: Columns methodology_version, agent_id and conversation_id of the conversations that are judged.
        turns: Table turns of the same agents.
    """
    labels = human_ratings.filter(
        (pl.col("role").cast(pl.String) == JUDGE)
        & pl.col("conversation_id").is_not_null()
        & pl.col("criterion").is_null()
    )
    if labels.is_empty():
        return []
    conversation = ["agent_id", "conversation_id"]
    last = latest_ratings(labels, admitted["methodology_version"].unique().to_list(), by=("rater",))
    last = last.join(admitted, on=["methodology_version", *conversation], how="semi", maintain_order="left")
    places = set(turns.select(*conversation, "turn_index").iter_rows())
    rows: list[Row] = []
    for row in last.iter_rows(named=True):
        index, name = row["turn_index"], row["rater"]
        if index is not None and (row["agent_id"], row["conversation_id"], index) not in places:
            continue
        judge = name if is_imported(name) else f"{IMPORTED}{name}"
        rows.append(
            {
                column: row[column]
                for column in ("methodology_version", *conversation, "turn_index", *_ANSWERED)
            }
            | {"metric": row["target"], "judge": judge, "judge_model": judge, "judged_at": row["rated_at"]}
            | {"status": "scored", "is_effective": False}
        )
    return rows


def source_judgments(
    conversations: pl.DataFrame,
    turns: pl.DataFrame,
    transcripts: Mapping[tuple[str, str], Transcript],
) -> Iterator[tuple[int | None, Row]]:
    """Yield the scores that the source of a conversation stored with it, as judgments with their turn index.

    The turn index is None for the whole conversation. A number or boolean becomes the `value`, on the scale of the
    source; any other value becomes the `label`. Scores without a name or value are skipped. If a turn or conversation
    has several scores with the same name, a number is appended to the name of the later ones. A score with a
    `message_index` cites that message; an index that names no message is ignored.

    Args:
        conversations: Table conversations, with the columns source and metadata.
        turns: Table turns. A score of a turn that does not exist is assigned to the conversation.
        transcripts: The conversations that were judged, by agent and conversation.
    """
    with_scores = conversations.filter(pl.col("metadata").str.contains(f'"{SOURCE_SCORES}"', literal=True))
    places = set(turns.select("agent_id", "conversation_id", "turn_index").iter_rows())
    for agent, conversation, source, metadata in with_scores.select("agent_id", "conversation_id", "source", "metadata").iter_rows():  # fmt: skip
        counts: dict[tuple[int | None, str], int] = {}
        transcript = transcripts.get((agent, conversation))
        scores = json.loads(metadata).get(SOURCE_SCORES)
        for score in scores if isinstance(scores, list) else ():
            if (
                not isinstance(score, dict)
                or not isinstance(score.get("name"), str)
                or score.get("value") is None
            ):
                continue
            turn = score.get("turn_index")
            index = turn if (agent, conversation, turn) in places else None
            name = one_line(score["name"])[:LONGEST]
            counts[index, name] = n = counts.get((index, name), 0) + 1
            judge = f"{IMPORTED}{str(source or 'unknown').partition(':')[0]}"
            yield (
                index,
                {
                    "agent_id": agent,
                    "conversation_id": conversation,
                    "metric": name if n == 1 else f"{name} ({n})",
                    "judge": judge,
                    "judge_model": judge,
                    "status": "scored",
                    "is_effective": False,
                    **_given(score),
                    **step_columns(_cited(score, transcript.steps if transcript is not None else ())),
                },
            )


def _cited(score: dict[str, JsonValue], steps: Sequence[ConversationStep]) -> ConversationStep | None:
    """Return the step that a score cites by its index, or None."""
    index = score.get(MESSAGE_INDEX)
    is_known = type(index) is int and 0 <= index < len(steps)
    return steps[index] if is_known and isinstance(index, int) else None


def _given(score: dict[str, JsonValue]) -> Row:
    """Return the value or label of a score, with its reason and time."""
    value = score["value"]
    reason = next((text for key in _REASONS if isinstance(text := score.get(key), str) and text), None)
    when = score.get("timestamp")
    row: Row = {"rationale": reason, "judged_at": when if isinstance(when, str) else None}
    if isinstance(value, bool | int | float):
        return row | {"value": float(value)}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return row | {"label": one_line(text)[:LONGEST]}
