"""Combine the failure labels of a turn: add labels implied by other metrics, and select the main label."""

from collections.abc import Sequence
from dataclasses import replace

from agent_eval.judge.judging_pass import Answers, effective_answer
from agent_eval.judge.protocol import Scored, Verdict, united_causes
from agent_eval.judge.rules import RULE
from agent_eval.judge.rules.finding import general_cause
from agent_eval.metrics.answers import most_severe_first
from agent_eval.metrics.base import NO_FAILURE, Metric
from agent_eval.metrics.builtin.agent_behavior_failure import (
    AGENT_BEHAVIOR_FAILURE,
    POLICY_VIOLATION,
    UNSUPPORTED_CLAIM,
)
from agent_eval.metrics.builtin.faithfulness import FAITHFULNESS, UNSUPPORTED
from agent_eval.metrics.builtin.policy_adherence import BROKEN, POLICY_ADHERENCE

_DERIVED = (
    (POLICY_ADHERENCE.name, BROKEN, POLICY_VIOLATION),
    (FAITHFULNESS.name, UNSUPPORTED, UNSUPPORTED_CLAIM),
)
"""Metric, verdict on one of its items, and the failure label that this verdict implies for the turn."""


def with_derived_labels(answers: Answers) -> Answers:
    """Add the failure labels that each judge's verdicts on single rules or claims imply for the turn."""
    labelled = answers.get(AGENT_BEHAVIOR_FAILURE.name)
    if labelled is None:
        return answers
    for metric, verdict, label in _DERIVED:
        reasons = {
            j: v for j, v in answers.get(metric, ()) if isinstance(v, Scored) and verdict in v.item_verdicts
        }
        labelled = [(j, _with_label(v, label, reasons[j]) if j in reasons else v) for j, v in labelled]
    return {**answers, AGENT_BEHAVIOR_FAILURE.name: labelled}


def _with_label(verdict: Verdict, label: str, because: Scored) -> Verdict:
    """Return a verdict on the behaviour of a turn with one more failure label.

    `because` is the verdict of the same judge that implies the label.
    """
    if not isinstance(verdict, Scored) or verdict.label is None:
        return verdict
    others = tuple(n for n in (verdict.label, *verdict.further_labels) if n not in (NO_FAILURE, label))
    return replace(
        verdict,
        label=label,
        further_labels=others,
        rationale=f"{verdict.rationale} {label}: {because.rationale}",
        causes=(general_cause(AGENT_BEHAVIOR_FAILURE, label), *verdict.causes),
        evidence=verdict.evidence if others else because.evidence,
    )


def most_severe_is_main(metric: Metric, verdict: Verdict) -> Verdict:
    """Return the verdict with the most severe of its labels as the main label."""
    if not isinstance(verdict, Scored) or verdict.label is None or not verdict.further_labels:
        return verdict
    main, *further = most_severe_first(metric, [verdict.label, *verdict.further_labels])
    return replace(verdict, label=main, further_labels=tuple(further))


def with_further_labels(answers: Sequence[tuple[str, Verdict]]) -> Sequence[tuple[str, Verdict]]:
    """Add the failure labels of the next judge to an effective finding by a rule, which detects only one kind."""
    best = effective_answer(answers)
    judge, verdict = ("", None) if best is None else answers[best]
    if best is None or judge != RULE or not isinstance(verdict, Scored):
        return answers
    for other, second in answers[best + 1 :]:
        if isinstance(second, Scored) and second.label is not None:
            labels_so_far = {NO_FAILURE, verdict.label, *verdict.further_labels}
            more = [label for label in (second.label, *second.further_labels) if label not in labels_so_far]
            if not more:
                return answers
            together = replace(
                verdict,
                further_labels=(*verdict.further_labels, *dict.fromkeys(more)),
                rationale=f"{verdict.rationale} {', '.join(more)} ({other}): {second.rationale}",
                causes=(*verdict.causes, *united_causes([second], dict.fromkeys(more))),
            )
            return [*answers[:best], (judge, together), *answers[best + 1 :]]
    return answers
