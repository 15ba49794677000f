"""Small transcripts for the judge's tests: from a few texts to the frames that the pass takes."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl
from pydantic import JsonValue

from agent_eval.judge.keys import cache_key, question_key
from agent_eval.judge.llm.panel import Lookup
from agent_eval.metrics.base import Metric
from agent_eval.metrics.profile import asked_since
from agent_eval.tables import table
from agent_eval.transcripts.frames import ConversationRows
from agent_eval.transcripts.models import Conversation, Message, MessageToolCall

AGENT, SESSION, VERSION = "ada", "s1", "1.3.0"
Said = str | tuple[str, str | None, str | None]
Row = dict[str, object]


def call(name: str, arguments: JsonValue, result: str | None = "ok") -> list[Message]:
    made = MessageToolCall(name=name, arguments=arguments)
    asked = Message(role="assistant", tool_calls=(made,))
    return [asked] if result is None else [asked, Message(role="tool", content=result)]


def user(text: str) -> list[Message]:
    return [Message(role="user", content=text)]


def agent(text: str, name: str | None = None) -> list[Message]:
    return [Message(role="assistant", content=text, name=name)]


def conversation(*parts: Sequence[Message], conversation_id: str = "c1", **facts: object) -> Conversation:
    messages = tuple(message for part in parts for message in part)
    return Conversation.model_validate({"conversation_id": conversation_id, "messages": messages, **facts})


def tables(
    *conversations: Conversation, agent_id: str = AGENT, session_id: str = SESSION
) -> ConversationRows:
    rows = ConversationRows()
    for one in conversations:
        rows.add(agent_id, session_id, None, one)
    return rows


def admitted(
    rows: pl.DataFrame,
    versions: Sequence[str] = (VERSION,),
    template: str | None = None,
    tests: Mapping[str, list[str]] | None = None,
) -> pl.DataFrame:
    """Table transcripts that admits every conversation under every version, its scenario as its slot."""
    return table("transcripts").frame(
        {
            **{n: row[n] for n in ("agent_id", "conversation_id", "session_id", "task_id", "trial")},
            "methodology_version": version,
            "benchmark_id": row["session_id"],
            "template": template,
            "slot": row["scenario"],
            "tests": (tests or {}).get(row["conversation_id"], []),
            "n_turns": row["n_turns"],
            "n_user_messages": row["n_user_messages"],
            "is_admitted": True,
        }
        for version in versions
        for row in rows.iter_rows(named=True)
    )


def sessions(*ids: str, versions: Sequence[str] = (VERSION,)) -> pl.DataFrame:
    return table("sessions").frame(
        {"agent_id": AGENT, "session_id": i, "benchmark_id": i, "methodology_versions": list(versions)}
        for i in ids
    )


def recorded(content_hash: str, turn_index: int | None, metric: Metric, **verdict: object) -> Row:
    """One line of data/verdicts."""
    question = question_key(
        content_hash, turn_index, metric.name, metric.rubric_hash, asked_since(metric.name)
    )
    return {
        "cache_key": cache_key(question, "model-a", {}),
        "question_key": question,
        "content_hash": content_hash,
        "turn_index": turn_index,
        "metric": metric.name,
        "rubric_hash": metric.rubric_hash,
        "profile_version": asked_since(metric.name),
        "model": "model-a",
        "parameters": {},
        "repeat": 0,
        "verdict": {"status": "scored", "rationale": "because", **verdict},
        "judged_at": "2026-04-01T00:00:00Z",
    }


def finding(cache: pl.DataFrame) -> Lookup:
    def lookup(keys: Collection[str]) -> pl.DataFrame:
        return cache.filter(pl.col("question_key").is_in(list(keys)))

    return lookup


def nothing(keys: Collection[str]) -> pl.DataFrame:
    return table("judge_cache").empty()


def human(target: str, rating: int, line: int = 2, **row: object) -> Row:
    return {
        "agent_id": AGENT,
        "methodology_version": "any",
        "target": target,
        "rating_1to5": rating,
        "rater": "kim",
        "rated_at": "2026-04-02T00:00:00Z",
        "file": "r.csv",
        "line": line,
        **row,
    }


def humans(*rows: Row) -> pl.DataFrame:
    return table("human_ratings").frame(rows)
