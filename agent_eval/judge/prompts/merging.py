"""Merge the verdicts on the windows of one record: unite labels, ask ratings once more."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from agent_eval.judge.protocol import Scored, Unscored, Verdict, is_lost
from agent_eval.metrics.answers import most_severe_first
from agent_eval.metrics.base import NO_FAILURE, Metric


def merge_windows(
    metrics: Sequence[Metric], read: Sequence[Mapping[str, Verdict]]
) -> tuple[dict[str, Verdict], list[Metric]]:
    """Return the united labels of all windows, by metric, and the metrics to ask once more over the verdicts.

    A failure in any window is a failure of the whole; 'no failure' requires it in every window. The reason
    and the quote are those of the window with the most severe label. If every window answered without a value,
    so does the whole: that judges cannot decide it, if one window says so, else that there is nothing to judge.
    A metric that no window answered is in neither.
    """
    united: dict[str, Verdict] = {}
    rated: list[Metric] = []
    for metric in metrics:
        given = [v for part in read if isinstance(v := part.get(metric.name), Scored)]
        if given and metric.is_failure:
            each = [label for v in given for label in (v.label or NO_FAILURE, *v.further_labels)]
            found = most_severe_first(metric, [label for label in each if label != NO_FAILURE])
            main = found[0] if found else NO_FAILURE
            voice = next(v for v in given if main in (v.label, *v.further_labels))
            united[metric.name] = replace(voice, label=main, further_labels=found[1:])
        elif given:
            rated.append(metric)
        else:
            answers = [part.get(metric.name) for part in read]
            undecided = [v for v in answers if isinstance(v, Unscored) and not is_lost(v)]
            if undecided and len(undecided) == len(read):
                united[metric.name] = min(undecided, key=lambda v: v.reason != "cannot_tell")
    return united, rated


def said_of(read: Mapping[str, Verdict]) -> dict[str, JsonValue]:
    """Return a window's verdicts as data for the call that merges them."""
    return {
        name: {
            "answer": next(a for a in (v.rating_1to5, v.value, v.label) if a is not None),
            "reason": v.rationale,
            "evidence": v.evidence,
        }
        for name, v in read.items()
        if isinstance(v, Scored)
    }
