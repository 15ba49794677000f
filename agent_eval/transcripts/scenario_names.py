"""Name the task of a benchmark scenario: `suite/scenario@hash`, so that different texts of a scenario are never mixed."""

import re
from collections.abc import Collection

import polars as pl

_HASH = r"@[0-9a-f]{8}$"


def task_of(suite: str, scenario: str, scenario_hash: str) -> str:
    """Return the task id of a scenario."""
    return f"{suite}/{scenario}@{scenario_hash[:8]}"


def scenario_of(task_id: str) -> str:
    """Return the part of a task id that names the scenario (`suite/scenario`), without its hash."""
    return re.sub(_HASH, "", task_id)


def scenario_name() -> pl.Expr:
    """Return the name of the scenario from the column task_id; null without a task."""
    return pl.col("task_id").str.replace(_HASH, "")


def gated_scenario(apart: Collection[str] = ()) -> pl.Expr:
    """Return the scenario of a gate: a benchmark scenario in `apart`, else the slot, the task or the conversation."""
    own = pl.when(scenario_name().is_in(list(apart))).then(scenario_name())
    return pl.coalesce(own, "slot", "task_id", "conversation_id")
