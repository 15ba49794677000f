"""Combine several judges' answers to a question into one answer with their disagreement.

Labels and 0/1 values are decided by majority. On a tie, the first judge with one of the tied answers decides. Ratings
and other values are combined by the median or mean. With an even number of judges, the median is the lower of the two
middle answers. The mean of ratings is rounded to an integer, with halves rounded down. Judges without an answer are
not counted.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from agent_eval.judge.llm.budget import Usage
from agent_eval.judge.llm.spec import Combine
from agent_eval.judge.protocol import NotApplicable, Scored, Unscored, Verdict, is_lost, united_causes
from agent_eval.metrics.base import Metric


def combined(metric: Metric, answers: Mapping[str, Verdict], combine: Combine = "median") -> Verdict:
    """Return the verdict that combines the verdicts of several judges.

    `disagreement` is the highest rating or value minus the lowest; for labels, it is the share of judges with another
    main label. The combined verdict has no cost and tokens, which are stored with the verdicts of the judges. It was shown
    the smallest share of the evidence that a judge was shown, and answers an earlier wording if a judge did.

    Args:
        metric: The metric of the question.
        answers: Verdicts by judge, in the order of the configuration.
        combine: How ratings and values are combined; labels and 0/1 values are decided by majority.
    """
    scored = {name: verdict for name, verdict in answers.items() if isinstance(verdict, Scored)}
    if not scored:
        return _nobody(answers)
    verdicts = list(scored.values())
    answers_text = "; ".join(f"{name}: {_answer(verdict)}" for name, verdict in scored.items())
    silent = f" {len(answers) - len(scored)} gave none." if len(scored) < len(answers) else ""
    if metric.kind == "label":
        return _by_majority(verdicts, [v.label for v in verdicts], f"Answers: {answers_text}.{silent}")
    if metric.kind == "value" and metric.is_binary:
        return _by_majority(verdicts, [v.value for v in verdicts], f"Answers: {answers_text}.{silent}")
    return _by_middle(metric, verdicts, combine, f"Answers: {answers_text}.{silent}")


def repeated(metric: Metric, answers: Sequence[Verdict]) -> Verdict:
    """Return the verdict that combines repeated answers of a model: the median, or for labels the majority.

    `disagreement` is computed as in an ensemble. Tokens and cost are the sums over all answers. If one answer is
    lost, the combined answer is lost too, so that the question is asked again.
    """
    lost = next((v for v in answers if is_lost(v)), None)
    if len(answers) == 1 or lost is not None:
        return answers[0] if lost is None else lost
    combined_verdict = combined(metric, {f"answer {i}": v for i, v in enumerate(answers, start=1)}, "median")
    scored_answers = [v for v in answers if isinstance(v, Scored)]
    if not isinstance(combined_verdict, Scored):
        return answers[0]
    usages = (Usage(v.n_tokens_in, v.n_tokens_out, v.n_tokens_cached, v.cost_usd) for v in scored_answers)
    paid = sum(usages, Usage())
    return replace(
        scored_answers[0],
        rationale=combined_verdict.rationale,
        evidence=combined_verdict.evidence,
        rating_1to5=combined_verdict.rating_1to5,
        value=combined_verdict.value,
        label=combined_verdict.label,
        further_labels=combined_verdict.further_labels,
        causes=combined_verdict.causes,
        item_verdicts=combined_verdict.item_verdicts,
        answered_at=combined_verdict.answered_at,
        disagreement=combined_verdict.disagreement,
        cost_usd=paid.cost_usd,
        n_tokens_in=paid.n_in,
        n_tokens_out=paid.n_out,
        n_tokens_cached=paid.n_cached,
        **_marks(scored_answers),
    )


class _Marks(TypedDict):
    """Define what is true of a combined answer if it is true of one of its parts."""

    seen_share: float | None
    earlier_profile: str | None


def _marks(verdicts: Sequence[Scored]) -> _Marks:
    shares = [v.seen_share for v in verdicts if v.seen_share is not None]
    earlier = next((v.earlier_profile for v in verdicts if v.earlier_profile is not None), None)
    return {"seen_share": min(shares, default=None), "earlier_profile": earlier}


def _by_majority(verdicts: Sequence[Scored], votes: Sequence[object], answers_text: str) -> Scored:
    counts = {vote: votes.count(vote) for vote in votes}  # keys are in the order of the judges
    winner = max(counts, key=lambda vote: counts[vote])
    voice = verdicts[votes.index(winner)]
    values = [v.value for v in verdicts if v.value is not None]
    n_needed = len(verdicts) / 2
    further = dict.fromkeys(label for v in verdicts for label in v.further_labels)
    majority_labels = [
        label
        for label in further
        if label != winner and sum(label in (v.label, *v.further_labels) for v in verdicts) > n_needed
    ]
    return Scored(
        rationale=f"{voice.rationale} {answers_text}",
        evidence=voice.evidence,
        value=voice.value,
        label=voice.label,
        further_labels=tuple(majority_labels),
        causes=united_causes([voice, *verdicts], (voice.label, *majority_labels)),
        item_verdicts=voice.item_verdicts,
        answered_by=_names(verdicts),
        answered_at=_last(verdicts),
        **_marks(verdicts),
        disagreement=max(values) - min(values) if values else 1 - counts[winner] / len(votes),
    )


def _by_middle(metric: Metric, verdicts: Sequence[Scored], combine: Combine, answers_text: str) -> Scored:
    is_integer = metric.answer == "rating_1to5"
    numbers = [float(n) for v in verdicts if (n := v.rating_1to5 if is_integer else v.value) is not None]
    middle = statistics.median_low(numbers) if combine == "median" else statistics.fmean(numbers)
    nearest = min(range(len(numbers)), key=lambda i: abs(numbers[i] - middle))
    voice = verdicts[nearest]
    return Scored(
        rationale=f"{voice.rationale} {answers_text}",
        evidence=voice.evidence,
        rating_1to5=math.ceil(middle - 0.5) if is_integer else None,
        value=None if is_integer else middle,
        item_verdicts=voice.item_verdicts,
        answered_by=_names(verdicts),
        answered_at=_last(verdicts),
        **_marks(verdicts),
        disagreement=max(numbers) - min(numbers),
    )


def _nobody(answers: Mapping[str, Verdict]) -> Verdict:
    lost = next((v for v in answers.values() if isinstance(v, Unscored)), None)
    if lost is None:
        return NotApplicable("no judge of the ensemble answered", is_abstention=True)
    return Unscored(lost.reason, lost.detail)


def _answer(verdict: Scored) -> str:
    number = verdict.rating_1to5 if verdict.rating_1to5 is not None else verdict.value
    return str(verdict.label) if number is None else f"{number:g}"


def _names(verdicts: Sequence[Scored]) -> str:
    return " + ".join(v.answered_by or "?" for v in verdicts)


def _last(verdicts: Sequence[Scored]) -> str | None:
    return max((v.answered_at for v in verdicts if v.answered_at), default=None)
