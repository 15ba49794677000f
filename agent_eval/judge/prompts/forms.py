"""Rubrics in words, and the strict JSON schema of a reply.

In the schema's order a judge writes evidence, then its reason, then the answer: what comes first is thought first.
Every field is required and nothing may be added; evidence alone may be null.
"""

import json
from collections.abc import Mapping
from functools import lru_cache

from pydantic import JsonValue

from agent_eval.formats.hashing import digest
from agent_eval.metrics.base import NO_FAILURE, Metric
from agent_eval.metrics.findings import checks_of, rules_of


def rubric(metric: Metric) -> str:
    """One rubric as it stands in the system message."""
    lines = [f"{metric.name} ({metric.grain}; {_answer_in_words(metric)})", metric.question]
    lines += [f"  {answer}: {meaning}" for answer, meaning in metric.anchors.items()]
    lines += [metric.notes] if metric.notes else []
    lines += rules_of(metric.name)
    return "\n".join(lines)


def _answer_in_words(metric: Metric) -> str:
    if metric.kind == "label":
        return "label, and further_labels" if metric.is_failure else "label"
    low, high = metric.scale or (0, 1)
    return f"score {low:g} to {high:g}, {'an integer' if is_integer(metric) else 'any number'}"


def is_integer(metric: Metric) -> bool:
    """Whether the answer is a whole number: a rating 1–5, or 0 or 1."""
    return metric.answer == "rating_1to5" or (metric.kind == "value" and metric.is_binary)


@lru_cache(maxsize=256)
def schema_of(metrics: tuple[Metric, ...]) -> tuple[Mapping[str, JsonValue], str]:
    """The schema of a reply about the metrics, and its hash. Not to be changed: it is made once."""
    schema = object_form({metric.name: _reply_form(metric) for metric in metrics})
    return schema, digest("schema", schema)


@lru_cache(maxsize=256)
def schema_text(metrics: tuple[Metric, ...]) -> str:
    """The schema as it is sent."""
    return json.dumps(schema_of(metrics)[0], ensure_ascii=False)


def _reply_form(metric: Metric) -> JsonValue:
    form: dict[str, JsonValue] = {"evidence": {"type": ["string", "null"]}}
    form |= {check.name: {"type": "boolean"} for check in checks_of(metric.name)}
    form["reason"] = {"type": "string"}
    if metric.kind == "label":
        form["label"] = {"type": "string", "enum": list(metric.labels)}
        if metric.is_failure:
            failures: list[JsonValue] = [label for label in metric.labels if label != NO_FAILURE]
            form["further_labels"] = {
                "type": "array",
                "items": {"type": "string", "enum": failures},
                "minItems": 0,
            }
    else:
        low, high = metric.scale or (0, 1)
        whole = is_integer(metric)
        form["score"] = {
            "type": "integer" if whole else "number",
            "minimum": int(low) if whole else low,
            "maximum": int(high) if whole else high,
        }
    return object_form(form)


def object_form(properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema of an object that has these fields, all of them and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
