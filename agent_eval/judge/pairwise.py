"""Let judge models compare two agents' conversations on the same task, in both orders.

Comparisons use the same engine as judgments: each answer is stored on arrival, is never paid for twice and counts
against the caps. The next run asks for missing answers.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.judge.keys import question_key
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.panel import Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.prompts import BlindedTerms
from agent_eval.judge.protocol import Question, Scored, Unscored
from agent_eval.metrics.base import Metric
from agent_eval.metrics.profile import asked_since
from agent_eval.scores.statistics.tournament import VERDICTS
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.models import Conversation

PAIRWISE_PREFERENCE = Metric(
    name="pairwise_preference",
    grain="session",
    kind="label",
    question=(
        "Two agents were given the same task, one in conversation 1 and the other in conversation 2. Which of them did the "
        "better work for its user?"
    ),
    anchors={
        "first": "The agent of conversation 1 did the better work.",
        "second": "The agent of conversation 2 did the better work.",
        "tie": "Neither is better in anything that matters to the user.",
    },
    notes=(
        "Compare what was reached, whether it is right by the tools' results and the policy, and what it cost the user. "
        "Which conversation comes first, and which is longer, means nothing."
    ),
)
_KEY = ("agent_id", "conversation_id")


@dataclass(frozen=True)
class Comparison:
    """Represent the comparison of two agents' conversations on a task, in one of the two orders."""

    task: str
    task_set: str | None
    first: str
    second: str
    question: Question


@dataclass(frozen=True)
class PairwiseAnswers:
    """Hold the verdicts (columns of `tournament.VERDICTS`, winner null if missing) and the lost answers."""

    verdicts: pl.DataFrame
    lost: tuple[Unscored, ...]


def comparisons(conversations: pl.DataFrame, turns: pl.DataFrame) -> list[Comparison]:
    """Return the comparisons of all agents on their common tasks, in both orders, sorted by task and agents.

    If an agent has several trials of a task, the trial with the lowest number is compared, or the lowest
    conversation id if the numbers are equal. Trials that failed because of the harness and conversations without a
    task or a turn are omitted.

    Args:
        conversations: Table conversations.
        turns: Table turns of these conversations.
    """
    played = conversations.filter(
        pl.col("task_id").is_not_null(),
        pl.col("n_turns") > 0,
        pl.col("outcome_class").fill_null("unknown") != "harness_error",
    )
    one_each = played.sort("trial", "conversation_id", nulls_last=True).unique(
        ["task_set", "task_id", "agent_id"], keep="first", maintain_order=True
    )
    tasks = one_each.group_by("task_set", "task_id").agg("agent_id").filter(pl.col("agent_id").list.len() > 1)
    compared_rows = one_each.join(tasks, on=["task_set", "task_id"], how="semi", nulls_equal=True)
    hashes = {(a, c): h for a, c, h in compared_rows.select(*_KEY, "content_hash").iter_rows()}
    by_key = {
        (a, c.conversation_id): c
        for a, c in conversations_from(compared_rows, turns.join(compared_rows, on=_KEY, how="semi"))
    }
    by_task: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for row in compared_rows.iter_rows(named=True):
        place = (row["task_set"] or "", row["task_id"])
        by_task.setdefault(place, {})[row["agent_id"]] = (row["agent_id"], row["conversation_id"])
    return [
        Comparison(
            task,
            task_set or None,
            one,
            other,
            _question([(by_key[by_agent[a]], hashes[by_agent[a]]) for a in (one, other)]),
        )
        for (task_set, task), by_agent in sorted(by_task.items())
        for a, b in combinations(sorted(by_agent), 2)
        for one, other in ((a, b), (b, a))
    ]


def _question(pair: list[tuple[Conversation, str]]) -> Question:
    metric, content = PAIRWISE_PREFERENCE, digest("pair", *(content_hash for _, content_hash in pair))
    key = question_key(content, None, metric.name, metric.rubric_hash, asked_since(metric.name))
    sides = tuple(conversation for conversation, _ in pair)
    return Question(sides, tuple(c.turns() for c in sides), None, content, (metric,), {metric.name: key})


def compare_pairs(
    pairs: Collection[Comparison],
    panel: Panel,
    lookup: Callable[[Collection[str]], pl.DataFrame],
    *,
    names: Mapping[str, BlindedTerms],
    watch: Watch | None = None,
) -> PairwiseAnswers:
    """Return the panel's verdicts on the comparisons. Comparisons with a stored answer are not asked again.

    Args:
        pairs: The comparisons.
        panel: The judge models; each gives its own verdicts.
        lookup: Returns the rows of judge_cache for question keys.
        names: Names to hide from the models, by agent; the names of both compared agents are hidden.
        watch: Callback that receives the progress.
    """
    sequences = [
        QuestionSequence([one.question], _both(names.get(one.first), names.get(one.second))) for one in pairs
    ]
    cache = lookup({one.question.keys[PAIRWISE_PREFERENCE.name] for one in pairs})
    answers_of_key = panel.answers(sequences, cache, watch=watch)
    rows: list[dict[str, object]] = []
    lost: list[Unscored] = []
    for one in pairs:
        for model, verdict in answers_of_key.get(one.question.keys[PAIRWISE_PREFERENCE.name], ()):
            if model not in panel.spec.models:  # skip the combined answer of an ensemble
                continue
            if isinstance(verdict, Unscored):
                lost.append(verdict)
            winner = verdict.label if isinstance(verdict, Scored) else None
            rows.append(
                {"task": one.task, "task_set": one.task_set, "first": one.first, "second": one.second,
                 "winner": winner, "judge": model}
            )  # fmt: skip
    return PairwiseAnswers(pl.DataFrame(rows, schema=VERDICTS), tuple(lost))


def _both(*terms: BlindedTerms | None) -> BlindedTerms:
    words = dict(_words(terms))
    personal = next((one.personal for one in terms if one is not None), None)
    return BlindedTerms(tuple(sorted(words.items(), key=lambda pair: (-len(pair[0]), pair))), personal)


def _words(terms: Collection[BlindedTerms | None]) -> Iterator[tuple[str, str]]:
    for one in terms:
        yield from one.words if one is not None else ()
