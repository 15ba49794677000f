"""Convert people's ratings to rows of turn_judgments and conversation_judgments.

They take precedence over all judges where a part is shown. In means, labels of parts that a rating sheet drew correct
the judge's answers instead (`scores.labelled_parts`). Every rater has a row. If the raters differ and the difference is not resolved,
an additional row with the status `disputed` is effective.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from agent_eval.judge.evidence import Transcript
from agent_eval.judge.inputs.rater_rules import Rating
from agent_eval.judge.judging_pass import HUMAN, step_columns
from agent_eval.judge.rules import RULE
from agent_eval.metrics.base import ENDED, NO_REPLY, UNANSWERED
from agent_eval.tables import Table

DISPUTED = "disputed"
Transcripts = Mapping[tuple[str, str], Transcript]
"""Transcripts by agent and conversation."""

_ANSWER = ("rating_1to5", "value", "label", "further_labels")


def with_people(
    judgments: Table, rows: pl.DataFrame, ratings: pl.DataFrame, transcripts: Transcripts
) -> pl.DataFrame:
    """Return the rows with people's ratings added. A rating replaces the row of an unanswered question.

    Args:
        judgments: The table of the rows: turn_judgments or conversation_judgments.
        rows: Rows of that table without ratings by people.
        ratings: Ratings from `decided_ratings`; ratings of other questions are ignored.
        transcripts: Transcripts in which quotes are looked up.
    """
    of_turns = "turn_index" in judgments.schema
    question = [n for n in judgments.key if n not in ("judge", "judge_model")]
    of_grain = ratings.filter(pl.col("turn_index").is_not_null() == of_turns).rename({"target": "metric"})
    if of_grain.is_empty():
        return rows
    is_replied = ~pl.col("unscored_reason").is_in([NO_REPLY, ENDED]).fill_null(False)
    replied_questions = rows.filter("is_effective", is_replied).select(*question, "question_key")
    placed_ratings = of_grain.join(replied_questions, on=question, how="inner", maintain_order="left")
    if not of_turns:
        placed_ratings = placed_ratings.drop("turn_index")
    by_people = judgments.frame(_rows(placed_ratings.to_dicts(), question, transcripts))
    is_unanswered = (pl.col("judge") == RULE) & (pl.col("unscored_reason").is_in(UNANSWERED))
    overruled = rows.join(by_people, on=question, how="semi").filter(~is_unanswered.fill_null(value=False))
    untouched = rows.join(by_people, on=question, how="anti")
    of_judge = overruled.filter("is_effective", status="scored").filter(pl.col("judge") != RULE)
    corrected = (
        of_judge.join(by_people.drop_nulls("label_weight"), on=question, how="semi").select(question).unique()
    )
    overruled = _counted(overruled, corrected, question, pl.col("is_effective"))
    by_people = _counted(by_people, corrected, question, pl.lit(value=False))
    return pl.concat([untouched, overruled.with_columns(is_effective=pl.lit(value=False)), by_people])


def _counted(
    rows: pl.DataFrame, corrected: pl.DataFrame, question: Sequence[str], is_counted: pl.Expr
) -> pl.DataFrame:
    """Return the rows with `is_counted` set where people's labels correct the judge."""
    is_corrected = pl.struct(question).is_in(corrected.select(pl.struct(question)).to_series().implode())
    return rows.with_columns(is_counted=pl.when(is_corrected).then(is_counted))


def raters(ratings: Sequence[Rating]) -> str:
    """Return the sorted names of the raters as one text."""
    return ", ".join(sorted(rating["rater"] for rating in ratings))


def _rows(
    ratings: Sequence[Rating], question: Sequence[str], transcripts: Transcripts
) -> Iterator[dict[str, object]]:
    disputes: dict[tuple[object, ...], list[Rating]] = {}
    for rating in ratings:
        transcript = transcripts[rating["agent_id"], rating["conversation_id"]]
        question_columns = {name: rating[name] for name in (*question, "question_key", "rubric_hash")}
        quote = rating["evidence"]
        step = transcript.cited(quote, rating["metric"], rating.get("turn_index"), rating["label"])
        yield question_columns | {
            **{name: rating[name] for name in (*_ANSWER, "rationale", "evidence", "is_effective", "decided_by")},
            "judge": HUMAN,
            "status": "scored",
            "evidence_verified": step is not None if quote else None,
            **step_columns(step),
            "judge_model": rating["rater"],
            "judged_at": rating["rated_at"],
            "label_weight": rating["weight"],  # also of an earlier rubric: a drawn label stays drawn
        }  # fmt: skip
        if rating["dispute"]:
            disputes.setdefault(tuple(rating[name] for name in question), []).append(rating)
    for differing in disputes.values():
        first = differing[0]
        yield {name: first[name] for name in (*question, "question_key", "rubric_hash")} | {
            "judge": HUMAN,
            "status": DISPUTED,
            "unscored_reason": first["dispute"],
            "is_effective": True,
            "judge_model": raters(differing),
        }
