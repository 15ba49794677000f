"""Ask for pairwise verdicts in both orders, and read recorded verdicts from data/pairwise/*.jsonl.

Each line is a JSON object: `{"task": …, "task_set": …, "first": …, "second": …, "winner": "first" | "second" | "tie" |
null, "judge": …, "rationale": …, "judged_at": …}`. `scores.statistics.tournament` computes a ranking from them.
"""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal, Protocol, Self

import polars as pl
from pydantic import Field, JsonValue, StringConstraints, ValidationError, model_validator

from agent_eval.formats.files import files_in
from agent_eval.formats.json_text import clean
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import Record, json_lines
from agent_eval.scores.statistics.tournament import VERDICTS
from agent_eval.transcripts.models import Frozen, Slug

Winner = Literal["first", "second", "tie"]
Text = Annotated[str, StringConstraints(min_length=1)]


class Ask(Protocol):
    """Compares two answers to a task without knowing the agents' names, e.g. by asking a model or a person."""

    def __call__(self, task: str, first: str, second: str) -> Winner | None:
        """Return which answer is better, or None if the verdict cannot be read."""
        ...


class PairwiseVerdict(Frozen):
    """Represent a line of data/pairwise/*.jsonl."""

    task: Text
    task_set: str | None = None
    first: Slug
    second: Slug
    winner: Winner | None = Field(description="null: the judge gave no readable verdict")
    judge: Text
    rationale: str | None = None
    judged_at: str | None = None

    @model_validator(mode="after")
    def _two_agents(self) -> Self:
        if self.first == self.second:
            raise ValueError(f"first and second are both {self.first!r}; name two agents")
        return self


def ask_both_ways(
    answers: Mapping[str, Mapping[str, str]], ask: Ask, *, judge: str, task_set: str | None = None
) -> pl.DataFrame:
    """Compare every two answers to each task, in both orders.

    Args:
        answers: Answers by task and agent. An agent without an answer to a task is not compared on it.
        ask: Function that compares two answers.
        judge: Name of the judge, stored in the rows.
        task_set: Name of the task set, stored in the rows.

    Returns:
        A frame with the columns of `tournament.VERDICTS`, sorted by task and agents.
    """
    rows = [
        {"task": task, "task_set": task_set, "first": one, "second": other,
         "winner": ask(task, answer_of_agent[one], answer_of_agent[other]), "judge": judge}
        for task, answer_of_agent in sorted(answers.items())
        for a, b in combinations(sorted(answer_of_agent), 2)
        for one, other in ((a, b), (b, a))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=VERDICTS)


def read_pairwise(folder: Path) -> tuple[pl.DataFrame, list[Refusal]]:
    """Read the *.jsonl files in a folder. Return the verdicts (columns of `tournament.VERDICTS`) and rejected lines.

    If a judge has several verdicts on the same task, agents and order, the first one is kept. Later lines are skipped
    if they are equal to it, and rejected if they contradict it.
    """
    rows: dict[tuple[object, ...], PairwiseVerdict] = {}
    refusals: list[Refusal] = []
    for path, reason in files_in(folder, ".jsonl"):
        file = clean(path.name)
        if reason:
            refusals.append(Refusal(file, 0, reason))
            continue
        for record in json_lines(path, file):
            verdict = _verdict(record.value) if isinstance(record, Record) else record.reason
            line = record.number if isinstance(record, Record) else record.line
            if isinstance(verdict, str):
                refusals.append(Refusal(file, line, verdict))
                continue
            key = (verdict.judge, verdict.task_set, verdict.task, verdict.first, verdict.second)
            if rows.setdefault(key, verdict).winner != verdict.winner:
                again = "an earlier line has a different verdict of this judge on this task in this order; it is kept. Remove one of the lines"
                refusals.append(Refusal(file, line, again))
    verdict_rows = pl.DataFrame([v.model_dump(include=set(VERDICTS)) for v in rows.values()], schema=VERDICTS)
    return verdict_rows, refusals


def _verdict(value: JsonValue) -> PairwiseVerdict | str:
    try:
        return PairwiseVerdict.model_validate(value)
    except ValidationError as error:
        return "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}"
            if e["loc"]
            else e["msg"].removeprefix("Value error, ")
            for e in error.errors()
        )
    except RecursionError:
        return "it is nested too deeply; write one verdict per line"
