"""Use what the data declare: outcomes, results that need not be used, counted interventions."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent_eval.judge.protocol import NotApplicable, Question, Scored, Verdict
from agent_eval.judge.rules.finding import RULE
from agent_eval.metrics.base import HARNESS_ERROR
from agent_eval.metrics.metric_set import expected_of
from agent_eval.transcripts.models import Conversation, Intervention

AUTONOMY = "U5"


def declared_use(question: Question) -> Verdict | None:
    """Decide that the results of a turn's calls need not appear in the answer, if the data say so."""
    truth = expected_of(question.turn.turn_index, question.conversations[0].expected)
    if truth is not None and truth.results_should_be_used is False:
        return NotApplicable("declared: the results need not reach the answer")
    return None


def declared_outcome(conversation: Conversation) -> Verdict | None:
    """Decide goal completion if the data say whether the outcome is correct; a bare reward decides nothing.

    If the harness failed, the goal cannot be judged.
    """
    outcome = conversation.outcome
    if outcome.classified == "harness_error":
        return NotApplicable(HARNESS_ERROR)
    if outcome.correct is None:
        return None
    source = f" ({outcome.source})" if outcome.source else ""
    said = "correct" if outcome.correct else "not correct"
    return Scored(
        rationale=f"Declared outcome: {said}{source}.", value=float(outcome.correct), answered_by=RULE
    )


def autonomy(conversations: Sequence[Conversation]) -> Verdict:
    """Count U5 per task; the session has the rating of its worst task.

    Each conversation is one task. No intervention: 5. One confirmation: 4. One to three with a correction: 3.
    Two or three confirmations are between the anchors 4 and 3. Help in two or more turns, and in most of
    them: 2. More than three: 2, exactly if they are more than half of the task's turns, else between the
    anchors 3 and 2. The agent could not continue unguided: 1. Between two anchors, the lower one counts, and
    the rationale says so. Help counts as a correction: the agent did not succeed alone. Abstains if
    interventions were not recorded in all conversations.

    Source: methodology, U5; the counting rule is ours (docs/decisions/0017).
    """
    unknown = [c.conversation_id for c in conversations if c.interventions is None]
    if unknown or not conversations:
        named = ", ".join(unknown[:3]) or "no conversation"
        return NotApplicable(f"interventions were not recorded: {named}", is_abstention=True)
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
    """Hold the interventions of one task, and the rating that follows from them."""

    name: str
    found: tuple[Intervention, ...]
    rating: int
    between: tuple[int, int] | None  # the two anchors around the count

    @property
    def description(self) -> str:
        """Describe the number and kinds of interventions, and the anchors around the count."""
        n = len(self.found)
        listed = ", ".join(i.kind + _at(i.turn_index) for i in self.found)
        counted = f"{n} intervention{'s' if n != 1 else ''} in {self.name} ({listed})"
        if self.between is None:
            return counted
        return f"{counted}; between anchors {self.between[0]} and {self.between[1]}, the lower is taken"


def _task(conversation: Conversation) -> _Task:
    found = conversation.interventions or ()
    rating, between = _level(found, len(conversation.turns()))
    return _Task(conversation.conversation_id, found, rating, between)


def _level(found: Sequence[Intervention], n_turns: int) -> tuple[int, tuple[int, int] | None]:
    """Return the rating of one task by its interventions, and the two anchors it lies between, if any."""
    kinds = [i.kind for i in found]
    helped = {n if i.turn_index is None else (i.turn_index,) for n, i in enumerate(found) if i.kind == "help"}
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
