"""Decide whether the expected answers of scenarios were given; an answer that was not compared is unknown, never passed."""

from collections.abc import Iterator
from typing import Literal

from agent_eval.scores.reliability.trials import TrialTables, interaction_outcomes


def answer_findings(
    tables: TrialTables, *, answer_threshold: float
) -> Iterator[tuple[str, Literal["failed", "unknown", "passed"], str]]:
    """Yield the conversation, the result and the reason of every expected answer; '' if it was given.

    It failed if its effective `answer_correctness` is below the threshold, and is unknown if it has none: no judge was
    asked, the answer was lost or disputed, or the conversation ended before the turn.

    Args:
        tables: The tables of the conversations; tool correctness is not used.
        answer_threshold: The minimum score of a correct answer, 0–1.
    """
    answers = interaction_outcomes(tables, answer_threshold=answer_threshold, tools_count=False)
    for row in answers.iter_rows(named=True):
        where = "" if row["turn_index"] is None else f" in turn {row['turn_index']}"
        if row["answer_correct"] is None:
            why = "no person, rule or judge compared the reply with it"
            if row["turn_index"] is None:
                why += "; judges are asked about turns only, so add its turn to the scenario"
            yield row["conversation_id"], "unknown", f"expected answer{where}: {why}"
        elif not row["answer_correct"]:
            score = f"answer_correctness is {row['answer']:g}, at least {answer_threshold:g} is needed"
            yield row["conversation_id"], "failed", f"expected answer{where}: {score}"
        else:
            yield row["conversation_id"], "passed", ""
