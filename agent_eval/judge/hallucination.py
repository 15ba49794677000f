"""Decide whether a conversation passed the hallucination stress test."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent_eval.judge.judging_pass import HUMAN, Answers, Row
from agent_eval.judge.people import DISPUTED
from agent_eval.judge.protocol import NotApplicable, Question, Scored, Verdict
from agent_eval.judge.rules import NEEDS_MODEL, RULE
from agent_eval.metrics.base import NO_REPLY, NO_TURNS
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE, FALSE_INFORMATION
from agent_eval.metrics.metric_set import is_put_to_a_model
from agent_eval.transcripts.models import Conversation


def hallucination_verdict(
    conversation: Conversation,
    question_answers: Sequence[tuple[Question, Answers]],
    people: Mapping[int, Row] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict on the hallucination stress test: 1 for passed, 0 for failed, or not applicable.

    A declared outcome decides. Otherwise, the test is failed if any turn has the label false information. It is
    passed if every turn with a text or a call was judged by a person or model; rules cannot detect false
    information. If people labelled a turn, their labels count instead of those of judges.

    Args:
        conversation: The conversation that serves the test.
        question_answers: Its turn questions with their answers.
        people: Effective human labels by turn index.
    """
    if (correct := conversation.outcome.correct) is not None:
        source = f" ({conversation.outcome.source})" if conversation.outcome.source else ""
        outcome_word = "passed" if correct else "failed"
        return Scored(f"Declared outcome: {outcome_word}{source}.", value=float(correct), answered_by=RULE)
    n_judged = 0
    for question, answers in question_answers:
        for judge, verdict in _of_behaviour(answers, people.get(question.turn_index or 0)):
            if FALSE_INFORMATION in (verdict.label, *verdict.further_labels):
                why = f"False information in turn {question.turn_index} ({judge}): {verdict.rationale}"
                return Scored(why, evidence=verdict.evidence, value=0.0, answered_by=RULE)
            if judge != RULE:
                n_judged += is_put_to_a_model(question.turn)
                break
    if any(row["status"] == DISPUTED for row in people.values()):
        return NotApplicable("people differ on the failures of a turn")
    n_open = sum(is_put_to_a_model(question.turn) for question, _ in question_answers)
    if not n_open or n_judged < n_open:
        return NotApplicable(NEEDS_MODEL if n_open else NO_REPLY if conversation.messages else NO_TURNS)
    return Scored(f"No false information in {n_judged} judged turns.", value=1.0, answered_by=RULE)


def _of_behaviour(answers: Answers, by_people: Row | None) -> list[tuple[str, Scored]]:
    """Return the judges of a turn's behaviour with their verdicts.

    If people rated the turn, only their verdict is returned; if they differ, the result is empty.
    """
    if by_people is None:
        behaviour_answers = answers.get(AGENT_BEHAVIOR_FAILURE.name, ())
        return [(judge, verdict) for judge, verdict in behaviour_answers if isinstance(verdict, Scored)]
    if by_people["status"] == DISPUTED:
        return []
    label, further, quote = by_people["label"], by_people["further_labels"], by_people["evidence"]
    human_verdict = Scored(
        str(by_people["rationale"] or "no rationale given"),
        evidence=quote if isinstance(quote, str) else None,
        label=str(label),
        further_labels=tuple(further) if isinstance(further, list) else (),
    )
    return [(HUMAN, human_verdict)]
