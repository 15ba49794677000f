"""Run the checks and the `measure` of custom metrics, and combine the findings into verdicts."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from agent_eval.judge.protocol import NotApplicable, Question, Scored, Unscored, Verdict
from agent_eval.judge.rules.calls import step_efficiency
from agent_eval.judge.rules.declared import AUTONOMY, autonomy, declared_outcome, declared_use
from agent_eval.judge.rules.finding import REGISTERED, RULE, Check, general_cause
from agent_eval.judge.rules.silence import rated_for_silence
from agent_eval.metrics.answers import most_severe_first, why_unfit
from agent_eval.metrics.base import NEEDS_MODEL, Metric
from agent_eval.metrics.builtin.goal_completion import BY_AGENT, GOAL_COMPLETION
from agent_eval.metrics.builtin.step_efficiency import STEP_EFFICIENCY
from agent_eval.metrics.builtin.tool_result_utilisation import TOOL_RESULT_UTILISATION
from agent_eval.metrics.metric_set import BUILT_IN

for _path in Path(__file__).parent.glob("[!_]*.py"):
    if _path.stem != "judge":
        import_module(f"agent_eval.judge.rules.{_path.stem}")  # its checks register themselves
CHECKS: Mapping[str, tuple[Check, ...]] = {
    metric.name: tuple(check for _, check in sorted(REGISTERED[metric.name], key=lambda found: found[0]))
    for metric in BUILT_IN.metrics
    if metric.name in REGISTERED
}
"""The checks of each failure metric, in order."""

_ABSTENTION = NotApplicable(NEEDS_MODEL, is_abstention=True)


class RulesJudge:
    """Answers questions by checks, declared data, counted interventions (U5) and the `measure` of custom metrics."""

    name = RULE

    async def judge(self, question: Question) -> Mapping[str, Verdict]:
        """Return a verdict for each metric of the question, or an abstention if no rule decides it."""
        return {metric.name: _decide(metric, question) for metric in question.metrics}


def first_failure(answers: Iterable[Mapping[str, Sequence[tuple[str, Verdict]]]]) -> Verdict:
    """Return the decisive step of a failed conversation: the first failure with a quote that a check found.

    Args:
        answers: The judges and verdicts by metric, for each question about the conversation in the order of its turns.
    """
    for of_question in answers:
        for name in CHECKS:
            for judge, verdict in of_question.get(name, ()):
                if judge == RULE and isinstance(verdict, Scored) and verdict.evidence:
                    reason = f"The first failure that a rule found: {verdict.label}. {verdict.rationale}"
                    return Scored(reason, verdict.evidence, label=BY_AGENT, answered_by=RULE)
    return _ABSTENTION


def _decide(metric: Metric, question: Question) -> Verdict:
    if (checks := CHECKS.get(metric.name)) is not None:
        return _found(metric, checks, question) or _ABSTENTION
    if (silent := rated_for_silence(metric, question)) is not None:
        return silent
    if metric.name == TOOL_RESULT_UTILISATION.name:
        return declared_use(question) or _ABSTENTION
    if metric.name == GOAL_COMPLETION.name:
        return declared_outcome(question.conversations[0]) or _ABSTENTION
    if metric.name == STEP_EFFICIENCY.name:
        return step_efficiency(question)
    if metric.name == AUTONOMY:
        return autonomy(question.conversations)
    if type(metric) is Metric or inspect.iscoroutinefunction(type(metric).measure):
        return _ABSTENTION
    return _own_measure(metric, question)


def _found(metric: Metric, checks: tuple[Check, ...], question: Question) -> Verdict | None:
    """Return a verdict with the labels of all findings, the most severe first, or None without a finding."""
    each = [finding for check in checks if (finding := check(question)) is not None]
    if not each:
        return None
    ordered = most_severe_first(metric, [finding.label for finding in each])
    findings_by_severity = [next(finding for finding in each if finding.label == label) for label in ordered]
    return Scored(
        rationale=" ".join(
            finding.rationale for finding in sorted(each, key=lambda f: ordered.index(f.label))
        ),
        evidence=next((finding.quote for finding in findings_by_severity if finding.quote), None),
        label=ordered[0],
        further_labels=ordered[1:],
        causes=tuple(general_cause(metric, label) for label in ordered),
        answered_by=RULE,
    )


def _own_measure(metric: Metric, question: Question) -> Verdict:
    """Return the result of a custom metric's `measure`. An error in its code counts as a failure of the judge."""
    conversation, turns = question.conversations[0], question.turns[0]
    at = question.turn_index
    expected = next((e for e in conversation.expected if e.turn_index == at), None)
    try:
        if at is not None:
            metric.applies(question.turn, conversation, expected)
        measured = metric.measure(turns, conversation, expected)
    except Exception as error:
        return Unscored("judge_error", f"the metric's own code failed: {type(error).__name__}: {error}"[:300])
    if measured is None:
        return NotApplicable("its measure decides nothing here") if metric.is_measured else _ABSTENTION
    if reason := why_unfit(metric, measured):
        return Unscored("judge_error", f"the metric's own measure gave {reason}")
    return Scored(
        rationale=measured.rationale,
        evidence=measured.evidence,
        rating_1to5=measured.rating_1to5,
        value=measured.value,
        label=measured.label,
        further_labels=measured.further_labels,
        answered_by=RULE,
    )
