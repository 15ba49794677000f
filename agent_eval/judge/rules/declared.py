"""Use declared data: outcomes, the use of tool results, and recorded interventions."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent_eval.judge.protocol import NotApplicable, Question, Scored, Verdict
from agent_eval.judge.rules.finding import RULE
from agent_eval.metrics.base import HARNESS_ERROR, UNEXPLAINED_ERROR
from agent_eval.metrics.metric_set import expected_of
from agent_eval.transcripts.models import Conversation, Intervention

AUTONOMY = "U5"


def declared_use(question: Question) -> Verdict | None:
    """Return whether the results of a turn were used, if `expected` declares it, else None.

    If the results need not be used, the verdict is not applicable.
    """
    truth = expected_of(question.turn.turn_index, question.conversations[0].expected)
    if truth is not None and truth.results_should_be_used is False:
        return NotApplicable("declared: the results need not reach the answer")
    if truth is None or truth.results_used is None:
        return None
    verb = "reached" if truth.results_used else "did not reach"
    return Scored(
        f"Declared: the results {verb} the answer.", value=float(truth.results_used), answered_by=RULE
    )


def declared_outcome(conversation: Conversation) -> Verdict | None:
    """Return goal completion if the conversation declares whether its outcome is correct, else None.

    A reward alone does not decide. If the harness failed, or if an error of unknown cause ended the conversation and its
    source declares no outcome, the result is not applicable.
    """
    outcome = conversation.outcome
    if outcome.classified == "harness_error":
        return NotApplicable(HARNESS_ERROR)
    if outcome.classified == "unexplained_error" and outcome.correct is None:
        return NotApplicable(UNEXPLAINED_ERROR)
    if outcome.correct is None:
        return None
    source = f" ({outcome.source})" if outcome.source else ""
    correctness = "correct" if outcome.correct else "not correct"
    return Scored(
        rationale=f"Declared outcome: {correctness}{source}.", value=float(outcome.correct), answered_by=RULE
    )


def autonomy(conversations: Sequence[Conversation]) -> Verdict:
    """Rate U5 by counting interventions per task. The session gets the rating of its worst task.

    Each conversation is a task. Its rating is:

    - 5 without an intervention.
    - 4 with one confirmation.
    - 3 with two or three confirmations (between the anchors 4 and 3), or with one to three interventions that include
      a correction or help.
    - 2 with more than three interventions (between the anchors 3 and 2 if they are at most half the number of turns),
      or with help in at least two turns and in more than half of the turns.
    - 1 if the agent was blocked and could not continue unguided.

    Between two anchors, the lower one counts, and the rationale says so. Abstains if interventions were not recorded
    in all conversations.

    Source: methodology, U5; the counting rule is ours (docs/decisions/0017).
    """
    unknown = [c.conversation_id for c in conversations if c.interventions is None]
    if unknown or not conversations:
        conversation_names = ", ".join(unknown[:3]) or "no conversation"
        return NotApplicable(f"interventions were not recorded: {conversation_names}", is_abstention=True)
    tasks = sorted((_task(c) for c in conversations), key=lambda task: (task.rating, -len(task.found)))
    worst, others = tasks[0], [task for task in tasks[1:] if task.found]
    n_tasks = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    if not worst.found:
        return Scored(f"Counted per task: no intervention in {n_tasks}.", rating_1to5=5, answered_by=RULE)
    head = f"Counted per task{'' if len(tasks) == 1 else f', the worst of {n_tasks} counts'}: {worst.description}."
    rest = f" Others: {', '.join(f'{len(t.found)} in {t.name}' for t in others)}." if others else ""
    return Scored(head + rest, rating_1to5=worst.rating, answered_by=RULE)


@dataclass(frozen=True)
class _Task:
    """Hold the interventions of a task and the resulting rating."""

    name: str
    found: tuple[Intervention, ...]
    rating: int
    between: tuple[int, int] | None  # the two adjacent anchors, if the count is between them

    @property
    def description(self) -> str:
        """Return a description of the interventions and of the anchors that the count is between."""
        n = len(self.found)
        listed = ", ".join(i.kind + _at(i.turn_index) for i in self.found)
        count_text = f"{n} intervention{'s' if n != 1 else ''} in {self.name} ({listed})"
        if self.between is None:
            return count_text
        return f"{count_text}; between anchors {self.between[0]} and {self.between[1]}, the lower is taken"


def _task(conversation: Conversation) -> _Task:
    interventions = conversation.interventions or ()
    rating, between = _level(interventions, len(conversation.turns()))
    return _Task(conversation.conversation_id, interventions, rating, between)


def _level(events: Sequence[Intervention], n_turns: int) -> tuple[int, tuple[int, int] | None]:
    """Return the rating of a task, and the two anchors that its interventions are between, if any."""
    kinds = [i.kind for i in events]
    helped = {
        n if i.turn_index is None else (i.turn_index,) for n, i in enumerate(events) if i.kind == "help"
    }
    if "blocked" in kinds:
        return 1, None
    if len(helped) > 1 and 2 * len(helped) > n_turns:
        return 2, None
    if len(kinds) > 3:
        return 2, None if 2 * len(kinds) > n_turns else (3, 2)
    if set(kinds) - {"confirmation"}:
        return 3, None
    return (5, None) if not kinds else (4, None) if len(kinds) == 1 else (3, (4, 3))


def _at(turn_index: int | None) -> str:
    return "" if turn_index is None else f" turn {turn_index}"
