"""Select the judgments that count, by who judged, and the rows of transcripts that a harness failure excludes."""

from collections.abc import Sequence

import polars as pl

HARNESS_FAILURE = "harness failure"
"""First words of `reason` in table transcripts if the session is invalid; the reason is made in `transcripts.admission`."""
HUMAN = "human"
"""Name of the judge of people's answers."""
IMPORTED = "import:"
"""Prefix of the names of other tools' judges, followed by a transcript format or a name; their answers never count.

It is reserved: a judge model with such a name is refused (`judge.llm.client.problem_of`).
"""


def is_harness_failure() -> pl.Expr:
    """Return whether a row of table transcripts does not count because the harness failed in its session."""
    return pl.col("reason").str.contains(rf"\A{HARNESS_FAILURE}[:,] ").fill_null(False)


def is_imported(judge: str) -> bool:
    """Return whether the name is that of another tool's judge."""
    return judge.startswith(IMPORTED)


def is_imported_judge() -> pl.Expr:
    """Return whether the column `judge` names another tool's judge."""
    return pl.col("judge").str.starts_with(IMPORTED)


def enters_means(judgments: pl.DataFrame) -> pl.Expr:
    """Return whether an answer in these rows of turn_judgments or conversation_judgments enters means and rates.

    These are the effective answers, except for the parts that a rating sheet drew: there the judge's answer enters, and
    people's labels correct the mean (`scores.labelled_parts`).
    """
    is_counted = [name for name in ("is_counted",) if name in judgments.columns]
    return pl.coalesce(*is_counted, "is_effective")


def without_checks_of_judges(judgments: pl.DataFrame, part: Sequence[str]) -> pl.DataFrame:
    """Return the judgments without those of models beside a declared outcome, which never count.

    `part` names the columns of a question. The setting judge_outcome_sample asks for such answers.
    """
    is_declared = (pl.col("judge") == "rule") & (pl.col("status").cast(pl.String) == "scored")
    is_model = ~pl.col("judge").is_in(["rule", HUMAN, "recorded"]) & ~is_imported_judge()
    is_declared &= pl.col("label").is_null()
    if not judgments.select(is_declared.any() & is_model.any()).item():
        return judgments
    return judgments.filter(~(is_model & is_declared.any().over(part)))


def deciding_answers(judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of all judgments of some agents that decide their trials.

    If people labelled every part that a judge answered about a metric of an agent, their answers decide; else those that
    enter means do, so that no trials of an agent are decided by people beside others by its judge, except where people
    decided a part that no sheet drew.
    """
    entering = judgments.filter(enters_means(judgments))
    if "is_counted" not in judgments.columns or not judgments["is_counted"].any():
        return entering
    metric = ["methodology_version", "agent_id", "metric"]
    part = [*metric, "conversation_id", *(["turn_index"] if "turn_index" in judgments.columns else [])]
    effective = judgments.filter("is_effective")
    by_people = effective.filter(pl.col("judge") == HUMAN, pl.col("status").cast(pl.String) == "scored")
    is_judge = ~pl.col("judge").is_in([HUMAN, "rule"]) & (pl.col("status").cast(pl.String) == "scored")
    unlabelled = entering.filter(is_judge).join(by_people, on=part, how="anti", nulls_equal=True)
    return pl.concat(
        [entering.join(unlabelled, on=metric, how="semi"), effective.join(unlabelled, on=metric, how="anti")]
    )
