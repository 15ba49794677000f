"""Validate custom metrics from YAML and Python: their keys, limits and anchors."""

import math
import re
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from agent_eval.metrics.base import (
    NO_FAILURE,
    OF_CONVERSATIONS,
    SEVERITIES,
    Condition,
    Kind,
    Metric,
    Severity,
)

RATINGS = ("5", "4", "3", "2", "1")
MAX_ANCHORS = 30

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Key = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]
Bound = Annotated[float, Field(allow_inf_nan=False)]

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_ALLOWED = {
    "string_pattern_mismatch": "lower-case letters, digits and _, beginning with a letter",
    "missing": "it is needed",
    "extra_forbidden": "unknown key; remove it or correct its name",
}


class Declared(BaseModel):
    """Define the keys of a custom metric; `anchors` of ratings are sorted from 5 to 1, those of labels keep their order."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: Name
    grain: Literal["turn", "conversation"]  # sessions are rated by the methodology's U1–U6
    kind: Kind
    question: Words
    anchors: dict[Key, Words] = Field(min_length=2, max_length=MAX_ANCHORS)
    notes: Annotated[str, StringConstraints(strip_whitespace=True, max_length=4000)] = ""
    applies_when: Condition = "always"
    severities: dict[Key, Severity] = Field(default_factory=dict)
    minimum: Bound | None = None
    maximum: Bound | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for key, text in self._texts():
            if _INVISIBLE.search(text):
                raise ValueError(f"{key}: holds a control or invisible character; write plain text")
        of_turns = [when for when in get_args(Condition) if when not in OF_CONVERSATIONS]
        allowed = of_turns if self.grain == "turn" else ["always", *OF_CONVERSATIONS]
        if self.applies_when not in allowed:
            raise ValueError(
                f"applies_when: {self.applies_when!r} is not about a {self.grain}; allowed: {', '.join(allowed)}"
            )
        if self.kind != "rating" and (self.minimum is not None or self.maximum is not None):
            raise ValueError("minimum and maximum: only a rating has a scale of its own; remove them")
        if self.kind == "label":
            self._check_labels()
        else:
            self._check_numbers()
        return self

    def _texts(self) -> list[tuple[str, str]]:
        pairs = [(f"anchors.{part}", part + text) for part, text in self.anchors.items()]
        return [("question", self.question), ("notes", self.notes), *pairs]

    def _check_labels(self) -> None:
        if self.severities and NO_FAILURE not in self.anchors:
            raise ValueError(f"severities: only failures have one; give the label {NO_FAILURE!r} too")
        for label in self.severities:
            if label == NO_FAILURE or label not in self.anchors:
                failure_anchors = ", ".join(a for a in self.anchors if a != NO_FAILURE)
                raise ValueError(f"severities.{label}: not a failure label; allowed: {failure_anchors}")

    def _check_numbers(self) -> None:
        if self.severities:
            raise ValueError(f"severities: only labels have one ({', '.join(SEVERITIES)}); remove them")
        if self.kind == "value" and set(self.anchors) != {"0", "1"}:
            raise ValueError("anchors: a value has the two anchors 0 and 1")
        if self.kind == "rating" and self.minimum is None and self.maximum is None:
            if set(self.anchors) != set(RATINGS):
                raise ValueError(
                    "anchors: a rating has the anchors 5, 4, 3, 2 and 1, or a minimum and a maximum"
                )
        elif self.kind == "rating":
            self._check_scale()

    def _check_scale(self) -> None:
        low, high = self.minimum, self.maximum
        if low is None or high is None or low >= high:
            raise ValueError("minimum and maximum: give both, the minimum below the maximum")
        points = {part: _number(part) for part in self.anchors}
        for part, point in points.items():
            if point is None or not low <= point <= high:
                raise ValueError(f"anchors.{part}: not a number from {low:g} to {high:g}")
        if not {low, high} <= set(points.values()):
            raise ValueError(f"anchors: both ends of the scale need one, {low:g} and {high:g}")

    def metric(self) -> Metric:
        """Return the declared metric."""
        facts = self.model_dump() | {"anchors": self._in_order()}
        return Metric(**facts, is_binary=self.kind == "value")

    def _in_order(self) -> dict[str, str]:
        if self.kind == "label":
            first = [NO_FAILURE] if NO_FAILURE in self.anchors else []
            return {part: self.anchors[part] for part in dict.fromkeys([*first, *self.anchors])}
        return dict(sorted(self.anchors.items(), key=lambda anchor: float(anchor[0]), reverse=True))


def problems_of(metric: Metric) -> list[str]:
    """Return the problems of a metric declared in code as texts `key: reason`; empty if the metric is valid."""
    facts = {name: getattr(metric, name) for name in Declared.model_fields}
    try:
        Declared.model_validate(
            facts | {"anchors": dict(metric.anchors), "severities": dict(metric.severities)}
        )
    except ValidationError as error:
        return reasons(error)
    return []


def reasons(error: ValidationError) -> list[str]:
    """Return the problems of a validation error as texts `key: reason`."""
    texts = []
    for problem in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part)[:80] for part in problem["loc"] if part != "[key]")
        message = _ALLOWED.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        texts.append(f"{key}: {message}" if key else message)
    return texts


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def key_of(reason: str) -> tuple[str, ...]:
    """Return the keys at the start of a reason, by which its line in the file is found."""
    head = reason.partition(":")[0]
    return tuple(head.split(".")) if " " not in head else (head.split(" ")[0],)
