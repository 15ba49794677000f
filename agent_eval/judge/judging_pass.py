"""Run one judging pass over turns, conversations or rubrics: collect the answers and select the effective ones.

Stored answers are looked up once. Rules answer first, judge models answer what the rules leave open, and recorded
verdicts come last. The first answer to a question is effective. An answer that is missing because the judge failed
is effective only if there is no other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from agent_eval.judge.inputs.recorded_verdicts import RecordedJudge
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import AnswersByQuestion, Lookup, Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.own_measures import measure_async
from agent_eval.judge.prompts import NO_BLINDED_TERMS, BlindedTerms
from agent_eval.judge.protocol import Judge, NotApplicable, Question, Scored, Unscored, Verdict
from agent_eval.judge.rules import RULE, RulesJudge, first_failure
from agent_eval.judge.run_sync import run_sync
from agent_eval.metrics.base import GOAL_MISSED, Metric
from agent_eval.metrics.builtin.goal_completion import DECISIVE_STEP, GOAL_COMPLETION
from agent_eval.metrics.findings import RatingFinding, apply_caps
from agent_eval.metrics.metric_set import is_put_to_a_model
from agent_eval.tables.judging import HUMAN as HUMAN
from agent_eval.transcripts.attachments import AttachmentKind
from agent_eval.transcripts.steps import ConversationStep

Answers = dict[str, list[tuple[str, Verdict]]]
"""Judges and their verdicts by metric name, in order of precedence."""
Row = dict[str, object]

PAID = (
    "prompt_hash", "cost_usd", "n_tokens_in", "n_tokens_out", "n_tokens_cached", "response_model",
    "system_fingerprint", "dropped_parameters", "seen_share", "n_left_out", "earlier_profile",
)  # fmt: skip
"""Columns on the call of a model: its cost, the model that answered, and how much of the evidence it was shown."""


@dataclass
class AskedQuestions:
    """Hold the questions about one conversation or session of an agent and, after a pass, their answers.

    `findings` are shown to models and limit their ratings. Stored answers keep the ratings that the models gave.
    """

    agent_id: str
    questions: list[Question] = field(default_factory=list[Question])
    findings: tuple[RatingFinding, ...] = ()
    is_sampled: bool = True  # if False, no model is asked
    is_checked: bool = False  # if True, models are asked goal_completion beside the declared outcome
    kinds: frozenset[AttachmentKind] | None = None  # kinds that the models read; None: no model
    missed_by_people: bool | None = None  # whether people say that the goal was missed, if they decided it
    answers: list[Answers] = field(default_factory=list[Answers])  # one entry per question

    def with_answers(self) -> Iterator[tuple[Question, Answers]]:
        """Return each question with its answers."""
        return zip(self.questions, self.answers, strict=True)

    def goal_is_missed(self, answers: Answers) -> bool | None:
        """Return whether the goal was missed, by people or else by the effective answer; None if it is not decided."""
        if self.missed_by_people is not None:
            return self.missed_by_people
        of_goal = answers.get(GOAL_COMPLETION.name, [])
        at = effective_answer(of_goal)
        verdict = None if at is None else of_goal[at][1]
        return verdict.value == 0 if isinstance(verdict, Scored) and verdict.value is not None else None


def judge_questions(
    groups: Sequence[AskedQuestions],
    lookup: Lookup,
    *,
    rubrics: Sequence[Metric] | None = None,
    panel: Panel | None = None,
    names: Mapping[str, BlindedTerms] | None = None,
    watch: Watch | None = None,
) -> None:
    """Answer all questions and store the answers in `groups`.

    Args:
        groups: The questions.
        lookup: Returns the rows of judge_cache for question keys.
        rubrics: Metrics whose rubrics are in every system message. By default, a message has those of its own call.
        panel: The judge models. They are asked only questions that rules leave open and that have no stored answer.
        names: Names to hide from the models, by agent.
        watch: Callback that receives the progress of the models.
    """
    kinds = None if panel is None or panel.runtime is None else panel.kinds
    for one in groups:
        one.kinds = kinds if one.is_sampled else None
    questions = [question for one in groups for question in one.questions]
    cache = lookup({key for question in questions for key in question.keys.values()})
    _ask_rules(groups)
    if panel is not None:
        _add(groups, panel.answers(_sequences(groups, names or {}), cache, rubrics, watch=watch))
    _add_recorded(groups, cache)
    missed = [] if panel is None else _sequences_of_missed_goals(groups, names or {})
    if panel is not None and any(sequence.questions for sequence in missed):
        _add(groups, panel.answers(missed, cache, rubrics, watch=watch))
    cases = [
        (question, (names or {}).get(one.agent_id, NO_BLINDED_TERMS), answers)
        for one in groups
        if one.is_sampled
        for question, answers in one.with_answers()
    ]
    measure_async(cases, panel, lookup, watch)


def unanswered_sequences(
    groups: Sequence[AskedQuestions],
    names: Mapping[str, BlindedTerms],
    stored: Callable[[Sequence[QuestionSequence]], AnswersByQuestion] | None = None,
) -> list[QuestionSequence]:
    """Apply the rules, and return the questions that they leave to models: one sequence per entry of `groups`.

    Further sequences ask about missed goals, which may be any goal that neither the rules nor the answers of the models
    that `stored` returns find reached.
    """
    _ask_rules(groups)
    first = _sequences(groups, names)
    if stored is not None:
        _add(groups, stored(first))
    later = _sequences_of_missed_goals(groups, names, if_unknown=True)
    return [*first, *(sequence for sequence in later if sequence.questions)]


def _ask_rules(groups: Sequence[AskedQuestions]) -> None:
    ruled = iter(answer_without_model((q for one in groups for q in one.questions), RulesJudge()))
    for one in groups:
        one.answers = [next(ruled) for _ in one.questions]
        for answers in one.answers:
            if DECISIVE_STEP.name in answers:
                answers[DECISIVE_STEP.name] = [(RULE, first_failure(one.answers))]


def _add(groups: Sequence[AskedQuestions], of_models: AnswersByQuestion) -> None:
    """Add the models' answers to those of the rules. Without turns, only rules answer, from the declared outcome."""
    for one in groups:
        for question, answers in one.with_answers():
            for name, key in question.keys.items() if any(question.turns) else ():
                answers[name] += [
                    (judge, _bounded(name, v, one.findings)) for judge, v in of_models.get(key, ())
                ]


def _add_recorded(groups: Sequence[AskedQuestions], cache: pl.DataFrame) -> None:
    """Add the recorded verdicts among the rows of judge_cache; most questions have none."""
    recorded_keys = set(cache.filter("is_recorded")["question_key"])
    answered = [
        (question, answers)
        for one in groups
        for question, answers in one.with_answers()
        if any(question.turns) and not recorded_keys.isdisjoint(question.keys.values())
    ]
    recorded = answer_without_model([question for question, _ in answered], RecordedJudge(cache))
    for (question, answers), of_question in zip(answered, recorded, strict=True):
        for name in question.keys:
            answers[name] += of_question[name]


def _sequences(groups: Sequence[AskedQuestions], names: Mapping[str, BlindedTerms]) -> list[QuestionSequence]:
    return [
        QuestionSequence(
            [
                part
                for pair in one.with_answers()
                if one.is_sampled
                and any(pair[0].turns)
                and (part := unanswered_part(*pair, is_checked=one.is_checked))
            ],
            names.get(one.agent_id, NO_BLINDED_TERMS),
            one.findings,
        )
        for one in groups
    ]


def _sequences_of_missed_goals(
    groups: Sequence[AskedQuestions], names: Mapping[str, BlindedTerms], *, if_unknown: bool = False
) -> list[QuestionSequence]:
    """Return the questions that depend on a missed goal; with `if_unknown`, also where it is not known."""
    missed = (True, None) if if_unknown else (True,)
    return [
        QuestionSequence(
            [
                question.about(metrics)
                for question, answers in one.with_answers()
                if one.is_sampled and any(question.turns) and one.goal_is_missed(answers) in missed
                if (metrics := _conditional(question, answers))
            ],
            names.get(one.agent_id, NO_BLINDED_TERMS),
            one.findings,
        )
        for one in groups
    ]


def _conditional(question: Question, answers: Answers) -> list[Metric]:
    return [m for m in question.metrics if m.applies_when == GOAL_MISSED and needs_answer(m, answers[m.name])]


def answer_without_model(questions: Iterable[Question], judge: Judge) -> list[Answers]:
    """Return the answers, including abstentions, of a judge that is not a model."""

    async def ask() -> list[Answers]:
        return [
            {name: [(judge.name, verdict)] for name, verdict in (await judge.judge(question)).items()}
            for question in questions
        ]

    return run_sync(ask())


def unanswered_part(question: Question, answers: Answers, *, is_checked: bool = False) -> Question | None:
    """Return the question limited to the metrics that a model must answer, or None if there are none.

    Metrics about missed goals are asked later, because they depend on the answers.
    With `is_checked`, goal_completion is one of them even if the declared outcome answers it.
    """
    if question.turn_index is not None and not is_put_to_a_model(question.turn):
        return None
    metrics = [
        m
        for m in question.metrics
        if m.applies_when != GOAL_MISSED
        and (needs_answer(m, answers[m.name]) or (is_checked and m.name == GOAL_COMPLETION.name))
    ]
    return question.about(metrics) if metrics else None


def needs_answer(metric: Metric, answers: Iterable[tuple[str, Verdict]]) -> bool:
    """Return whether a model must answer a metric.

    If a rule gave a failure label, a model is still asked, because the rule does not decide about the other labels.
    """
    return not metric.is_measured and not any(
        (isinstance(verdict, Scored) and not (metric.is_failure and judge == RULE))
        or (isinstance(verdict, NotApplicable) and not verdict.is_abstention)
        for judge, verdict in answers
    )  # fmt: skip


def effective_answer(answers: Sequence[tuple[str, Verdict]]) -> int | None:
    """Return the index of the effective answer, or None if all judges abstained.

    It is the first scored or not applicable answer, else the first answer.
    """
    indices = [i for i, (_, verdict) in enumerate(answers) if not is_abstention(verdict)]
    return min(indices, key=lambda i: (isinstance(answers[i][1], Unscored), i), default=None)


def is_abstention(verdict: Verdict) -> bool:
    """Return whether the judge abstained, i.e. left the question to other judges."""
    return isinstance(verdict, NotApplicable) and verdict.is_abstention


def given_answers(answers: Sequence[tuple[str, Verdict]]) -> Iterator[tuple[str, Verdict, bool]]:
    """Yield the judge, the verdict and whether it is effective for each answer, except abstentions."""
    best = effective_answer(answers)
    for i, (judge, verdict) in enumerate(answers):
        if not is_abstention(verdict):
            yield judge, verdict, i == best


def verdict_row(judge: str, verdict: Verdict, is_quoted: Callable[[str], bool]) -> Row:
    """Return the columns that the tables turn_judgments, conversation_judgments and rubric_ratings share.

    Args:
        judge: The judge that answered.
        verdict: The verdict.
        is_quoted: Function that returns whether a quote occurs in the transcript.
    """
    row: Row = {"judge": judge}
    if isinstance(verdict, NotApplicable):
        return row | {"status": "not_applicable"}
    row |= {name: getattr(verdict, name) for name in PAID}
    if isinstance(verdict, Unscored):
        status = "not_applicable" if verdict.reason == "nothing_to_judge" else "unscored"
        return row | {"status": status, "rationale": verdict.detail, "evidence": verdict.evidence}
    quote = verdict.evidence or None
    return row | {
        "status": "scored",
        "rating_1to5": verdict.rating_1to5,
        "rationale": verdict.rationale,
        "evidence": quote,
        "evidence_verified": is_quoted(quote) if quote else None,
        "disagreement": verdict.disagreement,
    }


def step_columns(step: ConversationStep | None) -> Row:
    """Return the columns on the message that a judgment cites; they are null if no message is known."""
    return {"message_index": step and step.message_index, "speaker": step and step.speaker}


def _bounded(name: str, verdict: Verdict, findings: Sequence[RatingFinding]) -> Verdict:
    """Return the verdict with its rating limited by the findings; the rationale states the reason."""
    if not isinstance(verdict, Scored) or verdict.rating_1to5 is None:
        return verdict
    rating, why = apply_caps(name, verdict.rating_1to5, findings)
    return replace(verdict, rating_1to5=rating, rationale=f"{verdict.rationale} {why}") if why else verdict
