"""Select the questions that an audit repeats, and compare the two modes of asking.

`audit_sample` draws the turns that are asked about again; `judge.audits.drift` compares the old and new answers.
`disagreements` compares answers to one call per metric with answers to one call for all metrics.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.judge.llm.cache import answers_of
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.protocol import Question, Scored, Verdict


def disagreements(cache: pl.DataFrame, spec: JudgeSpec) -> pl.DataFrame:
    """Return how often answers differ between the modes per_metric and one_call.

    The result has one row per model and metric that was answered in both modes. Columns: judge, metric, n_both,
    n_equal (same rating, value or main label) and mean_difference (per_metric minus one_call; null for labels).

    Args:
        cache: Table judge_cache.
        spec: The judge; its mode is ignored.
    """
    metric_of = dict(cache.select("question_key", "metric").iter_rows())
    rows = [
        {
            "judge": model,
            "metric": metric_of[key],
            "is_equal": _answer(alone[key]) == _answer(together[key]),
            "difference": _difference(alone[key], together[key]),
        }
        for model in spec.models
        for alone, together in [
            (
                _scored(answers_of(cache, model, replace(spec, mode="per_metric").parameters)),
                _scored(answers_of(cache, model, replace(spec, mode="one_call").parameters)),
            )
        ]
        for key in sorted(alone.keys() & together.keys())
    ]
    schema = {"judge": pl.String, "metric": pl.String, "is_equal": pl.Boolean, "difference": pl.Float64}
    return (
        pl.DataFrame(rows, schema=schema)
        .group_by("judge", "metric")
        .agg(n_both=pl.len(), n_equal=pl.col("is_equal").sum(), mean_difference=pl.col("difference").mean())
        .sort("judge", "metric")
    )


def _scored(answers: Mapping[str, Verdict]) -> dict[str, Scored]:
    return {key: answer for key, answer in answers.items() if isinstance(answer, Scored)}


def _answer(answer: Scored) -> object:
    return answer.label if answer.label is not None else _number(answer)


def _number(answer: Scored) -> float | None:
    return answer.rating_1to5 if answer.rating_1to5 is not None else answer.value


def _difference(one: Scored, other: Scored) -> float | None:
    first, second = _number(one), _number(other)
    return None if first is None or second is None else first - second


def audit_sample(
    sequences: Mapping[str, Sequence[QuestionSequence]], answered: Container[str], size: int
) -> list[QuestionSequence]:
    """Return the turns that an audit asks about again, each with its answered metrics.

    The turns of every agent are ordered by a hash of their content. The sample takes the first turn of each agent,
    then the second of each, and so on. It is therefore reproducible and spread over the agents. Questions about a
    whole conversation belong to its last turn.

    Args:
        sequences: Questions for models, by agent; one sequence per conversation.
        answered: The question keys that have a stored answer.
        size: Maximum number of turns.
    """
    ranked = []
    for units in (sorted(_units(of_agent, answered), key=_place) for of_agent in sequences.values()):
        ranked += [(place, _place(unit), unit) for place, unit in enumerate(units)]
    ranked.sort(key=lambda entry: entry[:2])
    return [unit for _, _, unit in ranked[:size]]


def _units(sequences: Sequence[QuestionSequence], answered: Container[str]) -> Iterator[QuestionSequence]:
    """Yield the answered questions of each turn. Questions about a conversation are added to its last turn."""
    for sequence in sequences:
        groups: list[list[Question]] = []
        for question in sequence.questions:
            metrics = [m for m in question.metrics if question.keys[m.name] in answered]
            if not metrics:
                continue
            part = question.about(metrics)
            if question.turn_index is None and groups:
                groups[-1].append(part)
            else:
                groups.append([part])
        yield from (replace(sequence, questions=group) for group in groups)


def _place(unit: QuestionSequence) -> str:
    first = unit.questions[0]
    return digest("audit", first.content_hash, first.turn_index)
