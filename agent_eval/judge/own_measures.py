"""Run metrics with an async `measure`, which can ask judge models about the measured turn or conversation.

The questions of such a metric are asked like all others: of the panel's models, in a fenced prompt, only once, and
within the caps. `measure` runs until it asks a question without a stored answer. The open questions of all cases are
then asked together, and `measure` runs again with the answers.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_eval.judge.keys import question_key
from agent_eval.judge.llm.budget import Usage
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import Lookup, Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.prompts import BlindedTerms
from agent_eval.judge.protocol import NotApplicable, Question, Scored, Unscored, Verdict
from agent_eval.judge.run_sync import run_sync
from agent_eval.metrics.answers import why_unfit
from agent_eval.metrics.base import NEEDS_MODEL, Measured, Metric
from agent_eval.metrics.declared import problems_of
from agent_eval.metrics.metric_set import is_put_to_a_model
from agent_eval.metrics.profile import asked_since

MOST_ROUNDS = 10  # maximum number of questions that a measure can ask in sequence


class _Pending(BaseException):  # a measure must not catch it with `except Exception`
    """Raised to stop a measure that asks a question without an answer."""


@dataclass
class CaseJudge:
    """Asks judge models about the measured turn or conversation, on behalf of an async `measure`."""

    _question: Question
    _known: Mapping[str, Verdict]
    _wanted: dict[str, Metric] = field(default_factory=dict[str, Metric])
    _used: dict[str, Scored] = field(default_factory=dict[str, Scored])
    _lost: Unscored | None = None

    async def ask(self, metric: Metric) -> Scored:
        """Return the answer to a question about the measured turn or conversation.

        If there is no answer, the call does not return and the measured metric is unscored for the same reason. It is
        measured again when the question is asked again.

        Raises:
            ValueError: If the metric cannot be asked, or its grain differs from that of the measured metric.
        """
        grain = "conversation" if self._question.turn_index is None else "turn"
        if metric.grain != grain:
            raise ValueError(f"{metric.name!r} is about a {metric.grain}; here a {grain} is measured")
        if problems := problems_of(metric):
            raise ValueError(f"{metric.name!r}: {'; '.join(problems[:3])}")
        content, at = self._question.content_hash, self._question.turn_index
        key = question_key(content, at, metric.name, metric.rubric_hash, asked_since(metric.name))
        verdict = self._known.get(key)
        if isinstance(verdict, Scored):
            self._used[key] = verdict
            return verdict
        if isinstance(verdict, Unscored):
            self._lost = verdict
        else:
            self._wanted[key] = metric
        raise _Pending


@dataclass
class _Case:
    """Hold an async metric with the turn or conversation that it measures."""

    metric: Metric
    question: Question
    names: BlindedTerms
    into: list[tuple[str, Verdict]]
    wanted: dict[str, Metric] = field(default_factory=dict[str, Metric])

    async def run(self, verdicts: Mapping[str, Verdict]) -> Verdict | None:
        """Run the measure. Return its verdict, or None if it waits for the answers listed in `wanted`."""
        conversation, turns, at = (
            self.question.conversations[0],
            self.question.turns[0],
            self.question.turn_index,
        )
        expected = next((e for e in conversation.expected if e.turn_index == at), None)
        judge = CaseJudge(self.question, verdicts)
        measure: Any = self.metric.measure  # takes one more argument than the method of the base class
        try:
            measured = await measure(turns, conversation, expected, judge)
        except _Pending:
            self.wanted = judge._wanted
            return judge._lost
        except Exception as error:
            detail = f"the metric's own code failed: {type(error).__name__}: {error}"
            return Unscored("judge_error", detail[:300])
        return _verdict(self.metric, measured, list(judge._used.values()))


def is_async(metric: Metric) -> bool:
    """Return whether the metric has an async `measure`, which receives a judge."""
    return inspect.iscoroutinefunction(type(metric).measure)


def measure_async(
    cases: Sequence[tuple[Question, BlindedTerms, Mapping[str, list[tuple[str, Verdict]]]]],
    panel: Panel | None,
    lookup: Lookup,
    watch: Watch | None = None,
) -> None:
    """Run the async metrics of the questions, and add their verdicts to the answers.

    Args:
        cases: Questions, each with the names to hide from models and the answers by metric.
        panel: The judge models. Without a panel, a measure that asks a question has no result.
        lookup: Returns the rows of judge_cache for question keys.
        watch: Callback that receives the progress.
    """
    waiting = list(_cases(cases))
    verdicts: dict[str, Verdict] = {}
    for _ in range(MOST_ROUNDS):
        if not waiting:
            return
        still = []
        for case, verdict in run_sync(_run_all(waiting, verdicts)):
            if verdict is None:
                still.append(case)
            else:
                case.into.insert(0, ("rule" if panel is None else panel.spec.name, verdict))
        waiting = [case for case in still if panel is not None and _has_news(case, verdicts)]
        if waiting and panel is not None:
            _ask(waiting, panel, lookup, verdicts, watch)
    for case in waiting:
        detail = f"the metric's measure asks more than {MOST_ROUNDS} questions in sequence"
        case.into.insert(0, ("rule", Unscored("judge_error", detail)))


async def _run_all(
    cases: Sequence[_Case], verdicts: Mapping[str, Verdict]
) -> list[tuple[_Case, Verdict | None]]:
    return [(case, await case.run(verdicts)) for case in cases]


def _cases(
    cases: Sequence[tuple[Question, BlindedTerms, Mapping[str, list[tuple[str, Verdict]]]]],
) -> Iterator[_Case]:
    for question, names, answers in cases:
        if question.turn_index is not None and not is_put_to_a_model(question.turn):
            continue
        for metric in question.metrics:
            if is_async(metric) and any(question.turns):
                yield _Case(metric, question, names, answers[metric.name])


def _has_news(case: _Case, verdicts: Mapping[str, Verdict]) -> bool:
    """Return whether the case waits for a question that has not been asked in this pass."""
    return any(key not in verdicts for key in case.wanted)


def _ask(
    waiting: Sequence[_Case],
    panel: Panel,
    lookup: Lookup,
    verdicts: dict[str, Verdict],
    watch: Watch | None,
) -> None:
    open_keys: set[str] = set()
    sequences = []
    for case in waiting:
        # a call can ask only one metric per name
        by_name = {metric.name: (key, metric) for key, metric in case.wanted.items()}
        keys = {name: key for name, (key, _) in by_name.items()}
        question = replace(case.question, metrics=tuple(metric for _, metric in by_name.values()), keys=keys)
        sequences.append(QuestionSequence([question], case.names))
        open_keys |= set(keys.values())
    answers = panel.answers(sequences, lookup(open_keys), watch=watch)
    for key in open_keys:
        verdicts[key] = (
            answers[key][0][1] if key in answers else NotApplicable(NEEDS_MODEL, is_abstention=True)
        )


def _verdict(metric: Metric, measured: Measured | None, used: Sequence[Scored]) -> Verdict:
    if measured is None:
        return NotApplicable("its measure decides nothing here")
    if reason := why_unfit(metric, measured):
        return Unscored("judge_error", f"the metric's own measure gave {reason}")
    paid = sum((Usage(v.n_tokens_in, v.n_tokens_out, v.n_tokens_cached, v.cost_usd) for v in used), Usage())
    return Scored(
        rationale=measured.rationale,
        evidence=measured.evidence,
        rating_1to5=measured.rating_1to5,
        value=measured.value,
        label=measured.label,
        further_labels=measured.further_labels,
        answered_by=used[0].answered_by if used else "rule",
        answered_at=max((v.answered_at for v in used if v.answered_at), default=None),
        cost_usd=paid.cost_usd,
        n_tokens_in=paid.n_in,
        n_tokens_out=paid.n_out,
        n_tokens_cached=paid.n_cached,
        seen_share=min((v.seen_share for v in used if v.seen_share is not None), default=None),
    )
