"""Format rubrics as text, and build the strict JSON schema of a reply.

The order in the schema is evidence, reason, answer, so that a model generates its reasoning before the answer. Every
field is required, and no other fields are allowed.
"""

import json
from collections.abc import Mapping
from functools import lru_cache

from pydantic import JsonValue

from agent_eval.formats.hashing import digest
from agent_eval.metrics.base import NO_FAILURE, QUESTION_CODE, SEVERITIES, Items, Metric
from agent_eval.metrics.findings import checks_of, rules_of


def rubric(metric: Metric) -> str:
    """Return the text of a metric's rubric in the system message."""
    lines = [f"{metric.name} ({metric.grain}; {_answer_in_words(metric)})", metric.question]
    lines += [f"  {answer}: {meaning}" for answer, meaning in metric.anchors.items()]
    lines += [metric.notes] if metric.notes else []
    lines += rules_of(metric.name)
    lines.append(
        f"Its part of the reply: {json.dumps(_short_skeleton(_reply_form(metric)), ensure_ascii=False)}"
    )
    return "\n".join(lines)


def _answer_in_words(metric: Metric) -> str:
    if metric.kind == "label":
        return "label, further_labels and causes" if metric.is_failure else "label"
    if metric.items is not None:
        severity = ", severity" if metric.items.has_severity else ""
        verdicts = " or ".join(metric.items.verdicts)
        return f"{metric.items.name}: a list of {{{metric.items.each}, evidence, verdict ({verdicts}){severity}}}"
    low, high = metric.scale or (0, 1)
    return f"score {low:g} to {high:g}, {'an integer' if is_integer(metric) else 'any number'}"


def is_integer(metric: Metric) -> bool:
    """Return whether the answer must be an integer: a rating from 1 to 5, or 0 or 1."""
    return metric.answer == "rating_1to5" or (metric.kind == "value" and metric.is_binary)


@lru_cache(maxsize=256)
def schema_of(metrics: tuple[Metric, ...]) -> tuple[Mapping[str, JsonValue], str]:
    """Return the schema of a reply about the metrics, and its hash. The schema is cached and must not be modified."""
    code: dict[str, JsonValue] = {QUESTION_CODE: {"type": "string"}}
    schema = object_form({metric.name: _reply_form(metric) for metric in metrics} | code)
    return schema, digest("schema", schema)


@lru_cache(maxsize=256)
def schema_text(metrics: tuple[Metric, ...]) -> str:
    """Return the text of the schema as it is sent."""
    return json.dumps(schema_of(metrics)[0], ensure_ascii=False)


def _reply_form(metric: Metric) -> JsonValue:
    form: dict[str, JsonValue] = {"evidence": {"type": ["string", "null"]}}
    form |= {check.name: {"type": "boolean"} for check in checks_of(metric.name)}
    if metric.items is not None:
        form[metric.items.name] = _items_form(metric.items)
        form["reason"] = {"type": "string"}
        return object_form(form)
    form["reason"] = {"type": "string"}
    if metric.kind == "label":
        form["label"] = _or_null(metric, {"type": "string", "enum": list(metric.labels)})
        if metric.is_failure:
            failures: list[JsonValue] = [label for label in metric.labels if label != NO_FAILURE]
            form["further_labels"] = {
                "type": "array",
                "items": {"type": "string", "enum": failures},
                "minItems": 0,
            }
            form["causes"] = _causes_form(failures)
    else:
        low, high = metric.scale or (0, 1)
        whole = is_integer(metric)
        form["score"] = _or_null(
            metric,
            {
                "type": "integer" if whole else "number",
                "minimum": int(low) if whole else low,
                "maximum": int(high) if whole else high,
            },
        )
    return object_form(form)


def _causes_form(labels: list[JsonValue]) -> JsonValue:
    text: dict[str, JsonValue] = {"type": "string"}
    of_label: dict[str, JsonValue] = {"type": "string", "enum": labels}
    each = object_form({"label": of_label, "cause": text, "should_have": text})
    return {"type": "array", "items": each, "minItems": 0}


def may_be_untold(metric: Metric) -> bool:
    """Return whether a judge may answer 'cannot tell', which holds for all metrics except those of a methodology."""
    return metric.grain != "session" and "." not in metric.name


def _or_null(metric: Metric, form: dict[str, JsonValue]) -> JsonValue:
    return {"anyOf": [form, {"type": "null"}]} if may_be_untold(metric) else form


def _items_form(items: Items) -> JsonValue:
    form: dict[str, JsonValue] = {
        items.each: {"type": "string"},
        "evidence": {"type": ["string", "null"]},
        "verdict": {"type": "string", "enum": list(items.verdicts)},
    }
    if items.has_severity:
        form["severity"] = {"type": "string", "enum": list(SEVERITIES)}
    return {"type": "array", "items": object_form(form), "minItems": 0}


def object_form(properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema of an object with exactly the given fields, all of them required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def skeleton_text(schema: Mapping[str, JsonValue]) -> str:
    """Return an example of a reply with descriptions as values, for servers that accept no schema."""
    return json.dumps(_skeleton(schema), ensure_ascii=False)


def _short_skeleton(form: JsonValue) -> JsonValue:
    """Return the part of the example about one metric, without its labels and verdicts, which the rubric lists."""
    schema = form if isinstance(form, dict) else {}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        return {
            name: "one of the labels" if name == "label" else _short_skeleton(part)
            for name, part in properties.items()
        }
    if isinstance(items := schema.get("items"), dict):
        return ["labels"] if "enum" in items else [_short_skeleton(items)]
    return _skeleton(schema)


def _skeleton(schema: Mapping[str, JsonValue]) -> JsonValue:
    options, properties, allowed = schema.get("anyOf"), schema.get("properties"), schema.get("enum")
    if isinstance(options, list) and isinstance(options[0], dict):
        return f"{_skeleton(options[0])} or null"
    if isinstance(properties, dict):
        return {name: _skeleton(part) for name, part in properties.items() if isinstance(part, dict)}
    if isinstance(items := schema.get("items"), dict):
        return [_skeleton(items)]
    if isinstance(allowed, list):
        return f"one of: {' | '.join(map(str, allowed))}"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"{kind} from {low} to {high}" if low is not None else str(kind)
