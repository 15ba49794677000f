"""Check that an answer is valid for its metric: exactly one rating, value or label, on the metric's scale."""

import math
from collections.abc import Iterable
from typing import Protocol

from agent_eval.metrics.base import NO_FAILURE, SEVERITIES, Metric


class AnswerLike(Protocol):
    """Define the values of a verdict from any source."""

    @property
    def rating_1to5(self) -> int | None: ...
    @property
    def value(self) -> float | None: ...
    @property
    def label(self) -> str | None: ...
    @property
    def further_labels(self) -> tuple[str, ...]: ...


def why_unfit(metric: Metric, reply: AnswerLike) -> str | None:
    """Return the reason why an answer is invalid, with the allowed values; None if it is valid."""
    answers = {"rating_1to5": reply.rating_1to5, "value": reply.value, "label": reply.label}
    filled_fields = [name for name, answer in answers.items() if answer is not None]
    if filled_fields != [metric.answer]:
        return f"{' and '.join(filled_fields) or 'nothing'}; {metric.name} has a {metric.answer}"
    if metric.kind == "label":
        return _unfit_labels(metric, [reply.label or "", *reply.further_labels])
    number = answers[metric.answer]
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        return f"{number!r:.40}; allowed: a number"
    low, high = metric.scale or (0.0, 1.0)
    if not low <= number <= high:
        return f"{number:g}; allowed: {low:g} to {high:g}"
    if (metric.answer == "rating_1to5" or metric.is_binary) and number != int(number):
        return f"{number:g}; allowed: whole numbers from {low:g} to {high:g}"
    return "further labels; only labels have them" if reply.further_labels else None


def most_severe_first(metric: Metric, labels: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels of a failure metric, most severe first; labels of equal severity keep their order."""
    return tuple(
        sorted(dict.fromkeys(labels), key=lambda label: -SEVERITIES.index(metric.severity_of(label)))
    )


def _unfit_labels(metric: Metric, labels: list[str]) -> str | None:
    for label in labels:
        if label not in metric.labels:
            return f"the label {label!r:.80}; allowed: {', '.join(metric.labels)}"
    if len(set(labels)) < len(labels):
        return "a label twice"
    if NO_FAILURE in labels and len(labels) > 1:
        return f"{NO_FAILURE!r} beside a failure"
    return None
