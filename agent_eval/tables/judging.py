"""Declare the tables of judgments, rubric ratings, human ratings and stored answers of judges."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from agent_eval.tables.columns import (
    AGENT,
    ANSWERED,
    BY_PAIR,
    CONVERSATION,
    DECIDED_BY,
    JUDGMENT,
    NAMES,
    PAID,
    SEEN,
    VERSION,
    B,
    F,
    I,
    S,
)
from agent_eval.tables.contract import DATE, TIME, Column, Table
from agent_eval.tables.vocabularies import JUDGMENT_STATUS, RATER_ROLE, STARTED_BY

HUMAN = "human"
"""Name of the judge of people's answers."""
IMPORTED = "import:"
"""Prefix of the names of other tools' judges, followed by a transcript format or a name; their answers never count.

It is reserved: a judge model with such a name is refused (`judge.llm.client.problem_of`).
"""


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


def only_checks_a_judge(part: Sequence[str]) -> pl.Expr:
    """Return whether a row of judgments is a model's answer beside a declared outcome, which never counts.

    `part` names the columns of a question. The setting judge_outcome_sample asks for such answers.
    """
    is_declared = (pl.col("judge") == "rule") & (pl.col("status").cast(pl.String) == "scored")
    is_model = ~pl.col("judge").is_in(["rule", HUMAN, "recorded"]) & ~is_imported_judge()
    return is_model & (is_declared & pl.col("label").is_null()).any().over(part)


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


DECLARED: tuple[Table[Any], ...] = (
    Table(
        "turn_judgments",
        "one row per turn, metric, judge and model or rater",
        (
            "methodology_version",
            "agent_id",
            "conversation_id",
            "turn_index",
            "metric",
            "judge",
            "judge_model",
        ),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based index of the turn", nullable=False),
            *JUDGMENT,
        ),
        BY_PAIR,
    ),
    Table(
        "conversation_judgments",
        "one row per conversation, metric, judge and model or rater",
        ("methodology_version", "agent_id", "conversation_id", "metric", "judge", "judge_model"),
        (VERSION, AGENT, CONVERSATION, *JUDGMENT),
        BY_PAIR,
    ),
    Table(
        "rubric_ratings",
        "one row per session (U) or conversation (D), target, criterion and rater; a part without a rating has a row with the reason",
        (
            "methodology_version",
            "agent_id",
            "session_id",
            "conversation_id",
            "target",
            "criterion",
            "judge",
            "rater",
        ),
        (
            VERSION,
            AGENT,
            Column("session_id", S, "Session id; null if no session was declared for this version"),
            Column("conversation_id", S, "Conversation id; null for a session rating"),
            Column("target", S, "Rated target: U1 to U6 or D1 to D5", nullable=False),
            Column(
                "criterion",
                S,
                "One of the template's three criteria; null for U and if the template is unknown",
            ),
            Column("rating_1to5", I, "Rating, integer 1–5; null unless scored"),
            Column(
                "status",
                JUDGMENT_STATUS,
                "scored, unscored, missing, invalid, disputed or not_applicable",
                nullable=False,
            ),
            Column(
                "reason",
                S,
                "Reason for a missing rating, or fact of the transcript that contradicts a rating; null otherwise",
            ),
            Column("rationale", S, "Rater's rationale"),
            Column("evidence", S, "Quote or turn reference"),
            Column(
                "evidence_verified", B, "Whether the quote was found in the transcript; null without a quote"
            ),
            Column(
                "judge",
                S,
                "Source of the rating: human, rule, recorded, a model's name, or none",
                nullable=False,
            ),
            Column("rater", S, "Person, model or rule that rated"),
            Column("rated_at", TIME, "Time of the rating, ISO 8601", is_content=False),
            Column(
                "is_effective",
                B,
                "Whether the rating counts in scores; priority: human > rule > model or recorded",
                nullable=False,
            ),
            Column("question_key", S, "Hash of the question"),
            Column("prompt_hash", S, "Hash of the exact prompt; null if no model was asked"),
            *PAID,
            DECIDED_BY,
        ),
        BY_PAIR,
    ),
    Table(
        "human_ratings",
        "one row per line of data/ratings/*.csv",
        ("agent_id", "file", "line"),
        (
            AGENT,
            Column("session_id", S, "Session id"),
            Column("conversation_id", S, "Conversation id; null for a session rating"),
            Column("turn_index", I, "0-based index of the turn; null above turn level"),
            Column("methodology_version", S, "Methodology version, or 'any'", nullable=False),
            Column(
                "target",
                S,
                "Rated target: U1 to U6, D1 to D5, a metric or hallucination_passed",
                nullable=False,
            ),
            Column("criterion", S, "Criterion for D1 to D5; null for other targets"),
            Column("rating_1to5", I, "Rating, integer 1–5; null if the target has values or labels"),
            Column("rationale", S, "Rater's rationale"),
            Column("evidence", S, "Quote or turn reference"),
            Column("rater", S, "Name of the rater", nullable=False),
            Column("rated_at", TIME, "Time of the rating, ISO 8601"),
            Column("value", F, "Value of a 0/1 or real-valued target; null for other targets"),
            Column("label", S, "Main failure label, or 'no failure'; null for targets without labels"),
            Column("further_labels", NAMES, "Additional failure labels"),
            Column(
                "role",
                RATER_ROLE,
                "'adjudicator', who decides if raters disagree; 'judge' for a judge of another tool, whose labels do not affect scores; null for a rater",
            ),
            Column(
                "weight",
                F,
                "Number of parts that the label represents in the sample of a rating sheet; null if not sampled",
            ),
            Column("stratum", S, "Group that the part was sampled from; null if not sampled"),
            Column("rubric_hash", S, "Hash of the rubric that the rater saw; null if unknown"),
            Column("text_hash", S, "Hash of the turn's messages that the rater saw; null if unknown"),
            Column("file", S, "Name of the source file", nullable=False),
            Column(
                "line",
                I,
                "1-based line in the file when the agent's ratings last changed; lines of other agents may have moved it since",
                nullable=False,
            ),
        ),
        ("agent_id",),
    ),
    Table(
        "judge_cache",
        "one row per answered question and judge",
        ("cache_key", "is_recorded"),
        (
            Column("cache_key", S, "Hash of question_key, model, parameters and repeat", nullable=False),
            Column("question_key", S, "Hash of content, turn, metric, rubric and profile", nullable=False),
            Column("content_hash", S, "Hash of the judged content", nullable=False),
            Column("turn_index", I, "0-based index of the turn; null above turn level"),
            Column(
                "metric",
                S,
                "Name of the metric, e.g. 'helpfulness', 'U3' or 'D2.accuracy', or a cluster's id",
                nullable=False,
            ),
            Column("rubric_hash", S, "Hash of rubric and answer schema", nullable=False),
            Column(
                "profile_version",
                S,
                "Version of the judge profile that last changed the questions about the metric",
                nullable=False,
            ),
            Column("model", S, "Model or person that answered", nullable=False),
            Column("parameters", S, "JSON object of model parameters", nullable=False),
            Column("repeat", I, "0-based number of the repeat", nullable=False),
            Column(
                "verdict",
                S,
                "Answer as a JSON object: status, rating, value or label, further_labels, rationale and evidence",
                nullable=False,
            ),
            Column("prompt_hash", S, "Hash of the exact prompt"),
            Column("n_tokens_in", I, "Answer's share of the call's prompt tokens"),
            Column("n_tokens_out", I, "Answer's share of the call's reply tokens"),
            Column("n_tokens_cached", I, "Answer's share of the call's cached prompt tokens"),
            Column(
                "cost_usd",
                F,
                "Answer's share of the cost of its call, US dollars; the sum is the total cost; null if unknown",
            ),
            Column("judged_at", TIME, "Time of the answer, ISO 8601", nullable=False),
            *ANSWERED,
            *SEEN,
            Column(
                "context_tokens",
                I,
                "Context size in tokens that the prompt was built for; null in rows of earlier releases",
            ),
            Column(
                "is_recorded",
                B,
                "True for a line of data/verdicts, which counts only as judge `recorded` and is removed with its line; null for an answer of a model, which counts only for that model",
            ),
        ),
    ),
    Table(
        "judge_state",
        "one row per agent and version that judge models were asked about, with the judge configuration that it keeps",
        ("agent_id", "methodology_version"),
        (
            Column(
                "agent_id",
                S,
                "Agent id; null, in rows of an earlier release only, for all agents without a separate row",
            ),
            VERSION,
            Column(
                "spec",
                S,
                "Judge configuration as a JSON object: models, temperature, mode and combine",
                nullable=False,
            ),
        ),
        BY_PAIR,
    ),
    Table(
        "spending",
        "one row per day, run and judge model, with the number and cost of calls",
        ("day", "run", "model"),
        (
            Column("day", DATE, "Day in UTC", nullable=False),
            Column("run", S, "Dagster run, or process of a command, that made the calls", nullable=False),
            Column("model", S, "Judge model as named by litellm", nullable=False),
            Column(
                "started_by", STARTED_BY, "person, or automation for sensors and schedules", nullable=False
            ),
            Column("n_calls", I, "Requests sent, including retries", nullable=False),
            Column("n_reserved", I, "Requests that were in progress when the row was copied", nullable=False),
            Column("n_unknown_cost", I, "Requests with unknown cost", nullable=False),
            Column("n_tokens_in", I, "Prompt tokens", nullable=False),
            Column("n_tokens_out", I, "Reply tokens", nullable=False),
            Column("cost_usd", F, "Cost of the requests with known cost, US dollars", nullable=False),
        ),
    ),
    Table(
        "notified",
        "one row per state that the setting notify has reported last",
        ("kind", "subject"),
        (
            Column("kind", S, "gate, rank, cap or judge; begun for the first time", nullable=False),
            Column(
                "subject",
                S,
                "Agent, version and gate or template, or judge, separated by '|'",
                nullable=False,
            ),
            Column("value", S, "State, e.g. failed, or the rank", nullable=False),
            Column("notified_at", TIME, "Time of the notification", nullable=False),
        ),
    ),
    Table(
        "judge_audits",
        "one row per audit and repeated question; the stored answers are not changed",
        ("audit_id", "cache_key"),
        (
            Column("audit_id", S, "Start time of the audit, ISO 8601 with microseconds", nullable=False),
            Column("cache_key", S, "Key of the stored answer in judge_cache", nullable=False),
            Column("question_key", S, "Hash of the question", nullable=False),
            Column("content_hash", S, "Hash of the judged content", nullable=False),
            Column("turn_index", I, "0-based index of the turn; null above turn level"),
            Column("metric", S, "Metric, e.g. helpfulness", nullable=False),
            Column("model", S, "Judge model", nullable=False),
            Column("parameters", S, "JSON object of model parameters", nullable=False),
            Column("verdict_before", S, "Stored answer as JSON", nullable=False),
            Column("judged_before_at", TIME, "Time of the stored answer, ISO 8601", nullable=False),
            Column("verdict", S, "New answer as JSON", nullable=False),
            Column("prompt_hash", S, "Hash of the exact prompt for the new answer"),
            Column("n_tokens_in", I, "New answer's share of the call's prompt tokens"),
            Column("n_tokens_out", I, "New answer's share of the call's reply tokens"),
            Column("n_tokens_cached", I, "New answer's share of the call's cached prompt tokens"),
            Column("cost_usd", F, "New answer's share of the cost of its call, US dollars; null if unknown"),
            Column("judged_at", TIME, "Time of the new answer, ISO 8601", nullable=False),
        ),
    ),
)
