"""Define the metric set: the metrics to ask by grain, and the turns that they apply to."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

from agent_eval.errors import ConfigurationError, NotFoundError
from agent_eval.formats.hashing import digest
from agent_eval.metrics import builtin
from agent_eval.metrics.base import (
    ENDED,
    NO_FAILURE,
    NO_REPLY,
    QUESTION_CODE,
    SEVERITIES,
    BuiltIn,
    Metric,
    Severity,
)
from agent_eval.transcripts.models import Conversation, Expected, Turn

BUILT_IN_METRICS: tuple[BuiltIn, ...] = tuple(
    sorted(
        (
            declared
            for path in Path(builtin.__path__[0]).glob("[!_]*.py")
            for declared in import_module(f"{builtin.__name__}.{path.stem}").BUILT_IN
        ),
        key=lambda declared: declared.order,
    )
)
"""The built-in metrics, in the order of their questions."""
_ASKED = [declared.metric for declared in BUILT_IN_METRICS if not declared.is_on_request]
TURN_METRICS = tuple(metric for metric in _ASKED if metric.grain == "turn")
CONVERSATION_METRICS = tuple(metric for metric in _ASKED if metric.grain == "conversation")
ON_REQUEST = tuple(declared.metric for declared in BUILT_IN_METRICS if declared.is_on_request)
"""Metrics that are asked only if the setting `metrics` names them."""
BY_DEFAULT = "default"
"""Word in the setting `metrics` for all metrics except those on request; no metric can have this name."""

OF_SILENCE = frozenset(declared.metric.name for declared in BUILT_IN_METRICS if declared.is_of_silence)
"""Metrics that a rule decides in a turn in which the agent should have replied but did not."""
_OF_CALLS = frozenset(declared.metric.name for declared in BUILT_IN_METRICS if declared.is_of_calls)


def unknown_metric(name: str, metrics: Iterable[str], where: str = "") -> NotFoundError:
    """Return the error if a named metric is not in the set."""
    names = sorted(metrics)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    at = f" in {where}" if where else ""
    if name in {metric.name for metric in ON_REQUEST}:
        hint = f'It is asked on request: metrics = ["default", "{name}"] in agent_eval.toml. '
    return NotFoundError(f"Metric {name!r}{at} is not known. {hint}Known: {', '.join(names)}.")


@dataclass(frozen=True)
class MetricSet:
    """Hold the metrics to ask, in order; two sets with the same metrics are equal."""

    metrics: tuple[Metric, ...]

    @cached_property
    def turn(self) -> tuple[Metric, ...]:
        """Return the metrics of single turns."""
        return tuple(m for m in self.metrics if m.grain == "turn")

    @cached_property
    def conversation(self) -> tuple[Metric, ...]:
        """Return the metrics of whole conversations."""
        return tuple(m for m in self.metrics if m.grain == "conversation")

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of all metrics in the set."""
        return frozenset(m.name for m in self.metrics)

    def get(self, name: str) -> Metric:
        """Return the metric with this name.

        Raises:
            NotFoundError: If the metric is not in the set; the message suggests the closest match.
        """
        named_metric = next((m for m in self.metrics if m.name == name), None)
        if named_metric is None:
            raise unknown_metric(name, self.names)
        return named_metric

    @cached_property
    def rubric_hashes(self) -> dict[str, str]:
        """Return the hash of each metric's rubric, by metric name."""
        return {m.name: m.rubric_hash for m in self.metrics}

    @cached_property
    def hash(self) -> str:
        """Return a hash of everything that can change a row: rubrics, conditions, severities and enabled metrics."""
        return digest(
            "metrics",
            sorted(
                [m.name, m.rubric_hash, m.applies_when, dict(m.severities), m.is_binary, m.is_measured]
                for m in self.metrics
            ),
        )

    @cached_property
    def severities(self) -> dict[str, Severity]:
        """Return the severity of each failure label; the higher one if two metrics have the same label."""
        severity_of_label: dict[str, Severity] = {}
        for metric in self.metrics:
            for label in metric.all_labels if metric.is_failure else ():
                both = (metric.severity_of(label), severity_of_label.get(label, "low"))
                severity_of_label[label] = max(both, key=SEVERITIES.index)
        severity_of_label.pop(NO_FAILURE, None)
        return severity_of_label

    @cached_property
    def descriptions(self) -> dict[str, str]:
        """Return the description of each failure label."""
        failing = (metric for metric in self.metrics if metric.is_failure)
        return {label: text for metric in failing for label, text in metric.described.items()}

    def only(self, metric_names: Iterable[str] | None) -> "MetricSet":
        """Return the set with only these metrics; for None or the name 'default', with all except those on request.

        Raises:
            NotFoundError: If a name is not in the set.
        """
        names = {BY_DEFAULT} if metric_names is None else set(metric_names)
        if BY_DEFAULT in names:
            names = names - {BY_DEFAULT} | (self.names - {metric.name for metric in ON_REQUEST})
        for name in sorted(names - self.names):
            raise unknown_metric(name, self.names, "metrics")
        return MetricSet(tuple(m for m in self.metrics if m.name in names))

    def without(self, off: Iterable[str]) -> "MetricSet":
        """Return the set without these metrics.

        Raises:
            NotFoundError: If a name is not in the set.
        """
        unwanted = set(off)
        for name in sorted(unwanted - self.names):
            raise unknown_metric(name, self.names, "metrics_off")
        return MetricSet(tuple(m for m in self.metrics if m.name not in unwanted))

    def with_custom(self, custom: Iterable[Metric]) -> "MetricSet":
        """Return the set with additional metrics, sorted by name.

        Raises:
            ConfigurationError: If a name is already in the set.
        """
        reserved_names = {*self.names, QUESTION_CODE, BY_DEFAULT}
        added = sorted(custom, key=lambda m: m.name)
        for metric in added:
            if metric.name in reserved_names:
                is_built_in = metric.name in {*BUILT_IN_NAMES, QUESTION_CODE, BY_DEFAULT}
                by = "a metric of agent-eval" if is_built_in else "another of your metrics"
                raise ConfigurationError(
                    f"Metric {metric.name!r}: the name is already used by {by}. Rename your metric."
                )
            reserved_names.add(metric.name)
        return MetricSet((*self.metrics, *added))


DEFAULT = MetricSet((*TURN_METRICS, *CONVERSATION_METRICS))
BUILT_IN = MetricSet((*DEFAULT.metrics, *ON_REQUEST))
BUILT_IN_NAMES = BUILT_IN.names
_FAILURES = frozenset(m.name for m in DEFAULT.metrics if m.is_failure)
_BEST = {m.name: m.best for m in DEFAULT.metrics if m.best}


def best_answer(name: str) -> str:
    """Return the meaning of a metric's highest answer: 'best', unless the name suggests the opposite.

    Example: 'none' for user_frustration, whose rating 5 means no frustration.
    """
    return _BEST.get(name, "best")


def may_be_failure(name: str) -> bool:
    """Return whether labels of a metric can be failures; labels of a custom metric can."""
    return name in _FAILURES or name not in BUILT_IN_NAMES


def mean_of(name: str) -> str:
    """Return what the mean of a metric is: 'mean', also with the meaning of the highest answer, or a share of labels."""
    if name in _FAILURES:
        return "share without a failure"
    return f"mean (5 = {_BEST[name]})" if name in _BEST else "mean"


def directed(name: str) -> str:
    """Return the name of a metric; if it suggests the opposite, with the meaning of the highest answer.

    Example: 'user_frustration (5 = none)'.
    """
    return f"{name} (5 = {_BEST[name]})" if name in _BEST else name


def expected_of(turn_index: int, expected: Iterable[Expected]) -> Expected | None:
    """Return the ground truth of one turn, which does not include that of the whole conversation."""
    return next((e for e in expected if e.turn_index == turn_index), None)


def why_not_applicable(
    metric: Metric, turn: Turn, conversation: Conversation, expected: Expected | None
) -> str | None:
    """Return why a turn metric does not apply to this turn; None if it does.

    `expected` is the turn's ground truth from `expected_of`. If an overridden `applies` raises an exception, the
    metric is asked, so that its row reports the error.
    """
    if not _may_arise(metric, turn):
        return no_answer(turn)
    try:
        applies = metric.applies(turn, conversation, expected)
    except Exception:  # a custom metric can raise any exception
        return None
    if applies:
        return None
    return metric.why_not(turn, conversation, expected) or f"{metric.name} does not apply to this turn"


def _may_arise(metric: Metric, turn: Turn) -> bool:
    """Return whether a turn has what the metric judges: a reply, a missing reply, or calls."""
    if turn.reply == "replied":
        return True
    if turn.reply == "no reply" and metric.name in OF_SILENCE:
        return True
    if turn.reply == "no reply":
        return turn.has_reply and metric.applies_when in ("has_tools", "has_tool_calls")
    return turn.has_reply and metric.name in _OF_CALLS


def no_answer(turn: Turn) -> str:
    """Return why a turn cannot be measured: it ended the conversation or has no reply."""
    return ENDED if turn.reply == "ended" else NO_REPLY


def is_put_to_a_model(turn: Turn) -> bool:
    """Return whether models are asked about a turn; the calls of an ending turn are judged only by rules."""
    return turn.has_reply and turn.reply != "ended"


def applicable(metric: Metric, turn: Turn, conversation: Conversation, expected: Expected | None) -> bool:
    """Return whether a turn metric applies to this turn."""
    return why_not_applicable(metric, turn, conversation, expected) is None
