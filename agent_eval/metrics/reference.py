"""Write the reference of all metrics as Markdown, which is the generated part of docs/metrics.md.

Regenerate it after a change to a metric: `python -m agent_eval.metrics.reference docs/metrics.md`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from agent_eval.metrics.base import Condition, Metric
from agent_eval.metrics.metric_set import BUILT_IN, ON_REQUEST, MetricSet

BEGIN = "<!-- generated from agent_eval/metrics by agent_eval.metrics.reference; do not edit by hand -->"
END = "<!-- end of the generated part -->"

_WHERE: dict[Condition, str] = {
    "always": "every turn with a reply",
    "has_tool_calls": "turns in which the agent called a tool",
    "has_tools": "turns in which the agent called a tool or could have called one",
    "has_expected_answer": "turns with an expected answer",
    "has_policy": "turns of conversations whose policy is known",
    "has_earlier_turns": "turns after the first",
    "goal_missed": "conversations whose goal was not reached",
}


def reference(metrics: MetricSet = BUILT_IN) -> str:
    """Return a table of all metrics, followed by the question, anchors, severities and notes of each metric.

    Metrics that are asked on the same and answered alike share a row.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for m in metrics.metrics:
        names.setdefault((_where(m), _answer(m)), []).append(f"[`{m.name}`](#{m.name})")
    head = ["| metric | asked on | answer |", "|---|---|---|"]
    rows = [f"| {', '.join(alike)} | {where} | {answer} |" for (where, answer), alike in names.items()]
    note = ["A label is followed by its severity; only rules or people assign one with a star.", ""]
    return "\n".join([*head, *rows, "", *note, *(line for m in metrics.metrics for line in _section(m))])


def with_reference(text: str) -> str:
    """Return a page with its generated part replaced.

    Raises:
        ValueError: If the page does not contain the two markers of that part.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


def _where(metric: Metric) -> str:
    is_each = metric.grain != "turn" and metric.applies_when == "always"
    where = f"every {metric.grain}" if is_each else _WHERE[metric.applies_when]
    return f"{where}, on request" if metric in ON_REQUEST else where


def _answer(metric: Metric) -> str:
    if metric.scale is None:
        return "one or more labels" if metric.is_failure else "a label"
    low, high = metric.scale
    if metric.is_binary:
        return "0 or 1"
    return f"integer {low:g}–{high:g}" if metric.answer == "rating_1to5" else f"{low:g}–{high:g}"


def _section(metric: Metric) -> Iterator[str]:
    yield from (f"### {metric.name}", "", metric.question, "")
    if not metric.is_failure:
        yield from (*(f"- **{part}** {words}" for part, words in metric.anchors.items()), "")
        yield from (metric.notes, "") if metric.notes else ()
        return
    for i, (part, words) in enumerate(metric.anchors.items()):
        yield f"- **{part}**{f' ({metric.severity_of(part)})' if i else ''}: {words}"
    for label, words in metric.by_rule.items():
        yield f"- **{label}**\\* ({metric.severity_of(label)}): {words}"
    yield from ("", metric.notes, "") if metric.notes else ("",)


def main(path: Path) -> None:
    """Replace the generated part of a page."""
    path.write_text(with_reference(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
