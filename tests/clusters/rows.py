"""Rows that the tests of clusters are made of."""

from typing import Any

import polars as pl

from agent_eval.tables import table

BEHAVIOUR, TOOL = "agent_behavior_failure", "tool_call_behavior_failure"
VERSION = "1.3.0"


def judgment(label: str | None, metric: str = BEHAVIOUR, **more: Any) -> dict[str, Any]:
    place = {"methodology_version": VERSION, "agent_id": "a", "conversation_id": "c", "turn_index": 0}
    answer = {"judge": "m", "status": "scored", "is_effective": True, "rationale": "why"}
    return {**place, "metric": metric, "label": label, **answer, **more}


def judgments(*rows: dict[str, Any]) -> pl.DataFrame:
    return table("turn_judgments").frame(rows)


def call(name: str, turn_index: int = 0, **more: Any) -> dict[str, Any]:
    place = {"agent_id": "a", "conversation_id": "c", "turn_index": turn_index, "call_index": 0}
    return {**place, "name": name, "arguments": "{}", "requestor": "assistant", **more}


def calls(*rows: dict[str, Any]) -> pl.DataFrame:
    return table("tool_calls").frame(rows)
