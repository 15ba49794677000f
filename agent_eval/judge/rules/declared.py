"""What the data declare: outcomes, results that need not be used, counted interventions."""

from collections.abc import Sequence

from agent_eval.judge.protocol import NotApplicable, Question, Scored, Verdict
from agent_eval.judge.rules.finding import RULE
from agent_eval.metrics.metric_set import expected_of
from agent_eval.transcripts.models import Conversation

AUTONOMY = "U5"


def declared_use(question: Question) -> Verdict | None:
    """Decides that the results of a turn's calls need not reach the answer, where the data say so."""
    truth = expected_of(question.turn.turn_index, question.conversations[0].expected)
    if truth is not None and truth.results_should_be_used is False:
        return NotApplicable("declared: the results need not reach the answer")
    return None


def declared_outcome(conversation: Conversation) -> Verdict | None:
    """Decides goal completion where the data say whether the outcome is correct; a bare reward decides nothing."""
    outcome = conversation.outcome
    if outcome.correct is None:
        return None
    source = f" ({outcome.source})" if outcome.source else ""
    said = "correct" if outcome.correct else "not correct"
    return Scored(
        rationale=f"Declared outcome: {said}{source}.", value=float(outcome.correct), answered_by=RULE
    )


def autonomy(conversations: Sequence[Conversation]) -> Verdict:
    """U5, counted over a session's conversations; abstains where interventions were not recorded in all of them.

    None: 5. One confirmation: 4. One correction, or one help: 3. Two or three of any kind: 3. More: 2.
    The agent could not go on unguided: 1. One help reads as a correction: the agent did not get there alone.

    Source: methodology, U5; the counting rule is ours.
    """
    unknown = [c.conversation_id for c in conversations if c.interventions is None]
    if unknown or not conversations:
        named = ", ".join(unknown[:3]) or "no conversation"
        return NotApplicable(f"interventions were not recorded: {named}", is_abstention=True)
    found = [(c.conversation_id, i) for c in conversations for i in c.interventions or ()]
    kinds = [intervention.kind for _, intervention in found]
    if "blocked" in kinds:
        rating = 1
    elif len(kinds) > 3:
        rating = 2
    elif len(kinds) > 1 or kinds in (["correction"], ["help"]):
        rating = 3
    else:
        rating = 4 if kinds else 5
    listed = ", ".join(f"{i.kind} in {name}" + _at(i.turn_index) for name, i in found)
    counted = (
        f"{len(found)} intervention{'s' if len(found) != 1 else ''}: {listed}" if found else "no intervention"
    )
    return Scored(rationale=f"Counted: {counted}.", rating_1to5=rating, answered_by=RULE)


def _at(turn_index: int | None) -> str:
    return "" if turn_index is None else f" turn {turn_index}"
