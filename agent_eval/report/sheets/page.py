"""Build a rating sheet: a single HTML file with the transcripts as data, which a script displays as text.

The file opens from disk and loads no other files. Its content security policy allows only its script and its style
sheet, by their hashes, so text of a transcript can neither run nor load anything.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import escaped_json
from agent_eval.report.downloads import csv_text
from agent_eval.report.html.conversation import said
from agent_eval.report.html.texts import LONGEST, clean

COLUMNS = (
    "agent",
    "conversation",
    "turn",
    "metric",
    "rater",
    "label",
    "reason",
    "time",
    "stratum",
    "rubric",
    "text",
)
"""Columns of the CSV that `agent-eval labels import` reads."""  # fmt: skip
_LONGEST_CELL = 2_000  # maximum number of characters in column shown_text


@dataclass(frozen=True)
class Option:
    """Represent an answer that raters can choose, with its anchor."""

    value: str
    meaning: str


@dataclass(frozen=True)
class SheetMetric:
    """Describe a question of a sheet, answered by options or by a number from `low` to `high`."""

    question: str
    notes: str
    options: tuple[Option, ...]
    is_several: bool = False  # several options can be chosen; the first is the main label
    low: float | None = None
    high: float | None = None
    has_reference: bool = False  # the expected answer of the turn is shown


@dataclass(frozen=True)
class SheetItem:
    """Represent one part to label; `turn` is None for the whole conversation."""

    agent: str
    conversation: str
    turn: int | None
    metric: str
    stratum: str  # sealed: weight and stratum of the sample
    rubric: str
    text: str | None = None  # hash of the messages of the turn


Conversations = Mapping[tuple[str, str], Mapping[str, Any]]
"""Content of conversations by (agent, conversation): goal, knowledge, expected and turns.

`knowledge` is a list of texts, `expected` has the expected answers by turn, and `turns` is a list of (index, messages).
"""


def sheet_html(
    items: Sequence[SheetItem],
    metrics: Mapping[str, SheetMetric],
    conversations: Conversations,
    rater: str = "",
) -> str:
    """Return a rating sheet as one HTML file.

    Args:
        items: The parts to label, in order.
        metrics: The questions by metric name.
        conversations: The content of the conversations; turns after the last labelled turn are not shown.
        rater: The rater's name, if it is known.
    """
    places = list(dict.fromkeys((item.agent, item.conversation) for item in items))
    last = {place: _last_turn(items, place) for place in places}
    data = {
        "id": digest("sheet", rater, [asdict(item) for item in items])[:16],
        "rater": rater,
        "columns": COLUMNS,
        "metrics": {name: asdict(metric) for name, metric in metrics.items()},
        "conversations": [_shown(conversations[place], last[place]) for place in places],
        "items": [asdict(item) | {"at": places.index((item.agent, item.conversation))} for item in items],
    }
    parts = {name: _own(name) for name in ("sheet.css", "sheet.js")}
    policy = (
        f"default-src 'none'; style-src {_hash(parts['sheet.css'])}; script-src {_hash(parts['sheet.js'])}; "
        "base-uri 'none'; form-action 'none'"
    )
    text = _own("sheet.html").replace("@policy@", policy)
    for name, content in parts.items():
        text = text.replace(f"@{name}@", content)
    return text.replace("@data@", _inert(data))


def sheet_csv(
    items: Iterable[SheetItem],
    metrics: Mapping[str, SheetMetric],
    conversations: Conversations,
    rater: str = "",
) -> str:
    """Return a rating sheet as CSV: one line per part, with the question, the text and empty cells for the answer."""
    rows = [
        dict.fromkeys(COLUMNS, "")
        | {name: str(value) for name, value in asdict(item).items() if value is not None}
        | {"rater": rater}
        | _beside(item, metrics[item.metric], conversations[item.agent, item.conversation])
        for item in items
    ]
    names = [*COLUMNS, "shown_question", "shown_answers", "shown_text"]
    return csv_text(pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String)))


def _beside(item: SheetItem, metric: SheetMetric, conversation: Mapping[str, Any]) -> dict[str, str]:
    allowed = " | ".join(option.value for option in metric.options) or f"{metric.low:g} to {metric.high:g}"
    turns = [turn for turn in conversation["turns"] if item.turn in (None, turn[0])]
    text = "\n".join(
        f"{said_one.title}: {said_one.text}" for _, messages in turns for said_one in said(messages)
    )
    return {
        "shown_question": f"{metric.question} {metric.notes}".strip(),
        "shown_answers": allowed,
        "shown_text": text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…",
    }  # fmt: skip


def _last_turn(items: Iterable[SheetItem], place: tuple[str, str]) -> int | None:
    """Return the last turn that an item of the conversation shows; None if an item shows the whole conversation."""
    turns = [item.turn for item in items if (item.agent, item.conversation) == place]
    turn_indices = [turn for turn in turns if turn is not None]
    return None if len(turn_indices) < len(turns) else max(turn_indices)


def _shown(conversation: Mapping[str, Any], last: int | None) -> dict[str, Any]:
    return {
        "goal": _cut(conversation["goal"] or ""),
        "knowledge": [_cut(text) for text in conversation["knowledge"]],
        "expected": {index: _cut(text) for index, text in conversation["expected"].items()},
        "turns": [
            {
                "index": index,
                "said": [
                    {"kind": one.kind, "title": one.title, "text": _cut(one.text), "error": one.is_error}
                    for one in said(messages)
                ],
            }
            for index, messages in conversation["turns"]
            if last is None or index <= last
        ],
    }


def _cut(text: str) -> str:
    start = clean(text)[:LONGEST]
    return start if len(start) == len(text) else f"{start}\n… {len(text) - len(start):,} more characters"


def _own(name: str) -> str:
    return (resources.files("agent_eval.report.sheets") / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """Return the CSP hash expression of an inline script or style sheet."""
    hash_bytes = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(hash_bytes).decode()}'"


def _inert(data: object) -> str:
    """Return JSON that can neither close the HTML element that contains it nor open another one."""
    text = escaped_json(json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    return (
        text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").replace("@", "\\u0040")
    )
