"""Rows that the tests of clusters are made of, and a space of vectors that a test can see through."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import polars as pl

from agent_eval.clusters.cluster_registry import Grown, Space, register
from agent_eval.clusters.embedding import Vectors
from agent_eval.tables import table

BEHAVIOUR, TOOL = "agent_behavior_failure", "tool_call_behavior_failure"
VERSION = "1.3.0"
PLACE: dict[str, Any] = {"methodology_version": VERSION, "agent_id": "a"}
TODAY = date(2026, 6, 1)
REGISTRY, MEMBERS = table("error_registry").empty(), table("error_members").empty()
WORDS = ("refund", "baggage", "password", "flight", "address", "invoice", "german", "twice")


def judgment(label: str | None, metric: str = BEHAVIOUR, **more: Any) -> dict[str, Any]:
    place = PLACE | {"conversation_id": "c", "turn_index": 0}
    answer = {"judge": "m", "status": "scored", "is_effective": True, "rationale": "why"}
    return {**place, "metric": metric, "label": label, **answer, **more}


def judgments(*rows: dict[str, Any]) -> pl.DataFrame:
    return table("turn_judgments").frame(rows)


def call(name: str, turn_index: int = 0, **more: Any) -> dict[str, Any]:
    place = {"agent_id": "a", "conversation_id": "c", "turn_index": turn_index, "call_index": 0}
    return {**place, "name": name, "arguments": "{}", "requestor": "assistant", **more}


def calls(*rows: dict[str, Any]) -> pl.DataFrame:
    return table("tool_calls").frame(rows)


def by_words(texts: pl.DataFrame) -> Vectors:
    """One axis per word of WORDS that a text holds, and one for all others: texts that share a word are near."""
    rows = [[float(word in text.split()) for word in WORDS] for text in texts["text"]]
    vectors = np.array([[*row, 0.2 if any(row) else 1.0] for row in rows], dtype=np.float32)
    unit: Vectors = vectors.reshape(len(rows), -1)
    return unit / np.linalg.norm(unit, axis=1, keepdims=True) if len(rows) else unit


def never(texts: pl.DataFrame) -> Vectors:
    raise AssertionError(f"no text had to be compared, yet {texts['text'].to_list()} were")


SPACE = Space(by_words, radius=0.5)
UNASKED = Space(never, radius=0.5)


def told(
    *reasons: str, label: str = "false information", tool: str | None = None, agent_id: str = "a"
) -> pl.DataFrame:
    """Failures with these reasons, one per turn of one conversation."""
    common: dict[str, Any] = PLACE | {"agent_id": agent_id, "conversation_id": "c", "label": label}
    common |= {
        "tool": tool,
        "fault_author": "agent",
        "speaker": "assistant",
        "cause": None,
        "should_have": None,
    }
    rows = [
        {"failure_id": f"{agent_id}/{label}/{tool}/{reason}/{i}", "turn_index": i, "reason": reason, **common}
        | {"quote": f"quote of {reason}" if reason else None}
        for i, reason in enumerate(reasons)
    ]
    texts = ("failure_id", *common, "reason", "quote")
    return pl.DataFrame(
        rows, schema={"turn_index": pl.Int64, "message_index": pl.Int64, **dict.fromkeys(texts, pl.String)}
    )


def grown(
    failures: pl.DataFrame, before: Grown | None = None, space: Space = SPACE, seen_at: date = TODAY
) -> Grown:
    registry, members = (before.registry, before.members) if before else (REGISTRY, MEMBERS)
    return register(registry, members, failures, space, seen_at=seen_at)


def clusters_of(result: Grown) -> dict[str, str]:
    """Reason → cluster."""
    return dict(result.failures.select("reason", "cluster_id").iter_rows())


def together(result: Grown) -> set[frozenset[str]]:
    """The reasons that share a cluster, cluster by cluster."""
    groups: dict[str, set[str]] = {}
    for reason, cluster in clusters_of(result).items():
        groups.setdefault(cluster, set()).add(reason)
    return {frozenset(group) for group in groups.values()}


def named(reasons: Sequence[Sequence[str]]) -> set[frozenset[str]]:
    return {frozenset(group) for group in reasons}


def merged_by(registry: pl.DataFrame, away: str, into: str, by: str) -> pl.DataFrame:
    """The registry with one cluster merged into another."""
    is_away = pl.when(pl.col("cluster_id") == away)
    return registry.with_columns(merged_into=is_away.then(pl.lit(into)), merged_by=is_away.then(pl.lit(by)))
