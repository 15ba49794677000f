"""Merge the verdicts on the windows of a record: unite the labels, and select the ratings to ask again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from agent_eval.judge.protocol import Scored, Unscored, Verdict, is_lost, united_causes
from agent_eval.metrics.answers import most_severe_first
from agent_eval.metrics.base import NO_FAILURE, Metric


def merge_windows(
    metrics: Sequence[Metric], read: Sequence[Mapping[str, Verdict]]
) -> tuple[dict[str, Verdict], list[Metric]]:
    """Return the merged verdicts by metric, and the metrics that must be asked again, given all verdicts.

    Failure labels are united: a failure in any window is a failure of the whole. The reason and the quote are those of
    the window with the most severe label. Other metrics with a score must be asked again. If all windows of a metric
    are undecided, the merged verdict is 'cannot tell' if any of them is, else 'nothing to judge'. A metric without an
    answer is in neither result.
    """
    united: dict[str, Verdict] = {}
    rated: list[Metric] = []
    for metric in metrics:
        window_verdicts = [v for part in read if isinstance(v := part.get(metric.name), Scored)]
        if window_verdicts and metric.is_failure:
            each = [label for v in window_verdicts for label in (v.label or NO_FAILURE, *v.further_labels)]
            labels = most_severe_first(metric, [label for label in each if label != NO_FAILURE])
            main = labels[0] if labels else NO_FAILURE
            voice = next(v for v in window_verdicts if main in (v.label, *v.further_labels))
            causes = united_causes([voice, *window_verdicts], labels)
            united[metric.name] = replace(voice, label=main, further_labels=labels[1:], causes=causes)
        elif window_verdicts:
            rated.append(metric)
        else:
            answers = [part.get(metric.name) for part in read]
            undecided = [v for v in answers if isinstance(v, Unscored) and not is_lost(v)]
            if undecided and len(undecided) == len(read):
                united[metric.name] = min(undecided, key=lambda v: v.reason != "cannot_tell")
    return united, rated


def said_of(read: Mapping[str, Verdict]) -> dict[str, JsonValue]:
    """Return the verdicts on a window as data for the call that merges them."""
    return {
        name: {
            "answer": next(a for a in (v.rating_1to5, v.value, v.label) if a is not None),
            "reason": v.rationale,
            "evidence": v.evidence,
        }
        for name, v in read.items()
        if isinstance(v, Scored)
    }
