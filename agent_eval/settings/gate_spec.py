"""Define the table `[gates]` of agent_eval.toml: conditions for all agents, one methodology version or one agent.

Limits are exact fractions, so that a mean that equals its threshold passes. An omitted key sets no condition. Later
layers override earlier ones, in the order `[gates]`, `[gates.methodologies."1.3.0"]` and `[gates.agents.<id>]`. This
module only validates values; `gates.names` checks that the names exist.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

Level = Literal["low", "medium", "high", "critical", "none"]
Asserted = Literal["slotted", "all", "none"]
Confidence = Literal["point", "lower"]
"""What a threshold is compared with: the point estimate, or the lower end of its 95 % interval."""
_WRITTEN = re.compile(r"-?\d{1,18}(\.\d{1,18}|/\d{1,18})?\Z")  # no exponents (too slow)


def exact(value: object) -> Fraction:
    """Return a number, or a text such as '11/3', as an exact fraction; 0.1 becomes 1/10.

    Raises:
        ValueError: If the value is not a finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction):
        raise ValueError("expected a number, or a text like '11/3'")
    if isinstance(value, str) and not _WRITTEN.match(value):
        raise ValueError("expected a number, or a text like '11/3'")
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError("expected a finite number, or a text like '11/3'") from error


def _limit(value: object) -> Fraction | None:
    """Parse a limit; false removes the limit of an earlier layer."""
    return None if value is False or value is None else exact(value)


def _share(value: object) -> Fraction:
    share = exact(value)
    if not 0 <= share <= 1:
        raise ValueError("expected a share from 0 to 1")
    return share


_TEXT = PlainSerializer(lambda value: None if value is None else str(value), return_type=str | None)
Limit = Annotated[Fraction | None, PlainValidator(_limit), _TEXT]
Share = Annotated[Fraction, PlainValidator(_share), _TEXT]
ShareOrOff = Annotated[
    Fraction | Literal[False],
    PlainValidator(lambda value: False if value is False else _share(value)),
    PlainSerializer(lambda value: False if value is False else str(value), return_type=str | bool),
]
Number = Annotated[Fraction, PlainValidator(exact), _TEXT]


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Baseline(_Closed):
    """Define the baseline of a comparison: another agent or another methodology version of the same agent."""

    agent: str | None = None
    methodology: str | None = None
    quantities: tuple[str, ...] = ()  # names as in `agent-eval compare`; empty for all except cost_usd

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.agent is None) == (self.methodology is None):
            raise ValueError("name either agent or methodology")
        return self


class DriftLimits(_Closed):
    """Limit the drift of a judge model between its stored answers and the latest audit."""

    max_mean_difference: Number | None = None  # rating points, in either direction
    min_share_equal: Share | None = None
    min_kappa: Number | None = None  # weighted, -1 to 1

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.max_mean_difference is None and self.min_share_equal is None and self.min_kappa is None:
            raise ValueError("name max_mean_difference, min_share_equal or min_kappa")
        return self


class RegressionLimits(_Closed):
    """Limit how much worse an agent can be than its baseline."""

    margin: Number  # points of the composite; for other quantities, % of their scale

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if not 0 < self.margin <= 100:
            raise ValueError("margin: expected a number above 0 and at most 100")
        return self


class CalibrationLimits(_Closed):
    """Require a minimum agreement of each judge with people (lower bound of kappa) and a minimum number of labels."""

    min_kappa: Number | None = None  # -1 to 1; with quadratic weights for ratings
    min_n: int | None = Field(default=None, ge=1)  # labels per metric
    metrics: tuple[str, ...] = ()  # empty for all metrics that people labelled

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.min_kappa is None and self.min_n is None:
            raise ValueError("name min_kappa or min_n")
        if self.min_kappa is not None and not -1 <= self.min_kappa < 1:
            raise ValueError("min_kappa: expected a number from -1 to below 1")
        return self


class Layer(_Closed):
    """Define the conditions of a layer; None if a condition is not set in this layer."""

    thresholds: dict[str, Limit] = Field(default_factory=dict[str, Fraction | None])  # for every scenario
    overall: dict[str, Limit] = Field(default_factory=dict[str, Fraction | None])  # for the agent as a whole
    confidence: Confidence | None = None
    fail_on_error_severity: Level | None = None
    silent_turns: ShareOrOff | None = None
    issues: bool | None = None
    assertions: Asserted | None = None
    max_unscored_share: Share | None = None
    judge_drift: DriftLimits | Literal[False] | None = None
    calibration: CalibrationLimits | Literal[False] | None = None
    baseline: Baseline | Literal[False] | None = None
    regression: RegressionLimits | Literal[False] | None = None


class ScenarioGates(_Closed):
    """Define the conditions of a benchmark scenario; its file sets them, and they replace the project's there."""

    thresholds: dict[str, Limit] = Field(default_factory=dict[str, Fraction | None])
    metrics: tuple[str, ...] | None = None  # metrics whose thresholds apply; None: all
    invalid_reason: str | None = (
        None  # why the scenario's file cannot be read, so that its thresholds are unknown
    )
    fail_on_error_severity: Level | None = None

    @property
    def has_thresholds(self) -> bool:
        """Return whether the scenario's means are compared with thresholds of its own."""
        return bool(self.thresholds) or self.metrics is not None


class GateSpec(Layer):
    """Define the table `[gates]` with the layers for agents and methodology versions, and scenarios by suite/id."""

    agents: dict[str, Layer] = Field(default_factory=dict[str, Layer])
    methodologies: dict[str, Layer] = Field(default_factory=dict[str, Layer])
    scenarios: dict[str, ScenarioGates] = Field(default_factory=dict[str, ScenarioGates])

    def rules(self, agent_id: str, version: str, *, max_unscored_share: float = 0.05) -> "Rules":
        """Return the conditions for an agent under a version; `max_unscored_share` is the default of this limit."""
        rules_so_far = Rules(max_unscored_share=exact(max_unscored_share), scenarios=self.scenarios)
        for layer in (self, self.methodologies.get(version), self.agents.get(agent_id)):
            rules_so_far = rules_so_far if layer is None else rules_so_far.with_layer(layer)
        return rules_so_far

    @property
    def threshold_names(self) -> frozenset[str]:
        """Return the names of all metrics and scores that have a threshold in any layer."""
        layers = [layer for _, layer in self.layers()]
        of_layers = frozenset(name for layer in layers for name in (*layer.thresholds, *layer.overall))
        return of_layers.union(*(own.thresholds for own in self.scenarios.values()))

    @property
    def separate_scenarios(self) -> frozenset[str]:
        """Return the scenarios with thresholds of their own, whose means are kept apart."""
        return frozenset(name for name, own in self.scenarios.items() if own.has_thresholds)

    @property
    def severity_scenarios(self) -> frozenset[str]:
        """Return the scenarios with a severity of their own."""
        return frozenset(
            name for name, own in self.scenarios.items() if own.fail_on_error_severity is not None
        )

    def layers(self) -> Iterator[tuple[str, Layer]]:
        """Yield each layer with its name for error messages."""
        yield "gates", self
        yield from ((f"gates.methodologies.{name!r}", layer) for name, layer in self.methodologies.items())
        yield from ((f"gates.agents.{name}", layer) for name, layer in self.agents.items())


_SWITCHES = frozenset({"issues"})  # keys for which false is a value, and not the removal of a limit


@dataclass(frozen=True)
class Rules:
    """Hold the conditions for an agent under a version, with all layers combined."""

    thresholds: Mapping[str, Fraction | None] = field(default_factory=dict[str, Fraction | None])
    overall: Mapping[str, Fraction | None] = field(default_factory=dict[str, Fraction | None])
    confidence: Confidence = "point"
    fail_on_error_severity: Level = "critical"
    silent_turns: Fraction | None = Fraction(0)  # maximum share; None for no limit
    issues: bool = True  # whether an issue that came back fails
    assertions: Asserted = "slotted"
    max_unscored_share: Fraction = Fraction(1, 20)
    judge_drift: DriftLimits | None = None
    calibration: CalibrationLimits | None = None
    baseline: Baseline | None = None
    regression: RegressionLimits | None = None
    scenarios: Mapping[str, ScenarioGates] = field(default_factory=dict[str, ScenarioGates])
    configured: frozenset[str] = frozenset()  # keys that a layer sets; the others have their defaults

    def sets_thresholds(self, scenario: str) -> bool:
        """Return whether a scenario has thresholds of its own."""
        return scenario in self.scenarios and self.scenarios[scenario].has_thresholds

    @property
    def threshold_metrics(self) -> tuple[str, ...]:
        """Return the metrics that have a threshold, in the order of the settings."""
        return tuple(dict.fromkeys((*self.thresholds, *self.overall)))

    def with_layer(self, layer: Layer) -> "Rules":
        """Return the rules with a layer applied on top: limits by name are added, and false removes a limit."""
        layer_values = {
            name: value for name in Layer.model_fields if (value := getattr(layer, name)) is not None
        }
        changed: dict[str, Any] = {
            name: {**getattr(self, name), **value} if isinstance(value, dict) else value
            for name, value in layer_values.items()
        }
        changed |= {
            name: None for name, value in layer_values.items() if value is False and name not in _SWITCHES
        }
        return replace(self, **changed, configured=self.configured | layer_values.keys())
