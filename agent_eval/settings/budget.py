"""Define the table [budget]: caps on what judge models may be called and cost."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field


class BudgetSettings(BaseModel, extra="forbid", frozen=True):
    """Define caps on calls and their cost; None: no cap."""

    max_cost_usd: float | None = Field(
        default=None, ge=0, description="Maximum cost of judge calls in one run, in US dollars."
    )
    max_calls: int | None = Field(default=None, ge=0, description="Maximum number of judge calls in one run.")
    max_cost_usd_per_day: float | None = Field(
        default=None,
        ge=0,
        description="Maximum cost of judge calls per day (UTC) over all runs, in US dollars.",
    )
    max_calls_per_day: int | None = Field(
        default=None, ge=0, description="Maximum number of judge calls per day (UTC) over all runs."
    )
    max_cost_usd_in_all: float | None = Field(
        default=None, ge=0, description="Maximum total cost of the project's judge calls, in US dollars."
    )
    max_calls_in_all: int | None = Field(
        default=None, ge=0, description="Maximum total number of the project's judge calls."
    )
    automation_max_cost_usd_per_day: float | None = Field(
        default=None,
        ge=0,
        description="Maximum cost of judge calls per day (UTC) in runs started by sensors and schedules, in US dollars. "
        "If neither this nor `automation_max_calls_per_day` is set, these runs call no judge that costs money.",
    )
    automation_max_calls_per_day: int | None = Field(
        default=None,
        ge=0,
        description="Maximum number of judge calls per day (UTC) in runs started by sensors and schedules.",
    )


def in_table(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the caps outside of the table moved into it."""
    outside = {name: values[name] for name in BudgetSettings.model_fields if name in values}
    if not outside:
        return dict(values)
    rest = {name: value for name, value in values.items() if name not in outside}
    table = rest.get("budget", {})
    return {**rest, "budget": {**outside, **table} if isinstance(table, Mapping) else table}
