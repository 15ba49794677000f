"""Declare the tables of judgments, rubric ratings, ratings by people, and stored answers of judges."""

from typing import Any

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

IMPORTED = "import:"
"""How a judge of another tool begins, followed by the format of imported transcripts or its name; it never counts."""

DECLARED: tuple[Table[Any], ...] = (
    Table(
        "turn_judgments",
        "one row per turn, metric, judge and, of people, rater",
        (
            "methodology_version",
            "agent_id",
            "conversation_id",
            "turn_index",
            "metric",
            "judge",
            "judge_model",
        ),
        (VERSION, AGENT, CONVERSATION, Column("turn_index", I, "0-based", nullable=False), *JUDGMENT),
        BY_PAIR,
    ),
    Table(
        "conversation_judgments",
        "one row per conversation, metric, judge and, of people, rater",
        ("methodology_version", "agent_id", "conversation_id", "metric", "judge", "judge_model"),
        (VERSION, AGENT, CONVERSATION, *JUDGMENT),
        BY_PAIR,
    ),
    Table(
        "rubric_ratings",
        "one row per session (U) or conversation (D), target, criterion and rater; a part without a rating has a row that says so",
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
            Column("session_id", S, "The session; null when no session was declared for this version"),
            Column("conversation_id", S, "Null for a session rating"),
            Column("target", S, "U1..U6 or D1..D5", nullable=False),
            Column(
                "criterion", S, "One of the template's three; null for U and where the template is unknown"
            ),
            Column("rating_1to5", I, "Integer 1–5; null unless scored"),
            Column(
                "status",
                JUDGMENT_STATUS,
                "scored, unscored, missing, invalid, disputed or not_applicable",
                nullable=False,
            ),
            Column("reason", S, "Why there is no rating"),
            Column("rationale", S, "The rater's words"),
            Column("evidence", S, "A quote or a turn reference"),
            Column("evidence_verified", B, "The quote was found in the transcript; null without a quote"),
            Column("judge", S, "human, rule, recorded, a model's name, or none", nullable=False),
            Column("rater", S, "Who rated: a person, a model, a rule"),
            Column("rated_at", TIME, "ISO 8601"),
            Column(
                "is_effective", B, "Counts in the scores: human > rule > model or recorded", nullable=False
            ),
            Column("question_key", S, "Hash of what was asked"),
            Column("prompt_hash", S, "Hash of the exact prompt; null where no model was asked"),
            *PAID,
            DECIDED_BY,
        ),
        BY_PAIR,
    ),
    Table(
        "human_ratings",
        "one row per line of data/ratings/*.csv",
        ("file", "line"),
        (
            AGENT,
            Column("session_id", S, "The session"),
            Column("conversation_id", S, "Null for a session rating"),
            Column("turn_index", I, "0-based; null above turn level"),
            Column("methodology_version", S, "A version, or 'any'", nullable=False),
            Column("target", S, "U1..U6, D1..D5, a metric or hallucination_passed", nullable=False),
            Column("criterion", S, "For D1..D5"),
            Column("rating_1to5", I, "Integer 1–5; null where the target is answered by a value or a label"),
            Column("rationale", S, "The rater's words"),
            Column("evidence", S, "Quote or turn reference"),
            Column("rater", S, "Who rated", nullable=False),
            Column("rated_at", TIME, "ISO 8601"),
            Column("value", F, "The value of a 0/1 or real-valued target; null otherwise"),
            Column("label", S, "The main failure label, or 'no failure'; null otherwise"),
            Column("further_labels", NAMES, "Failure labels that apply as well"),
            Column(
                "role",
                RATER_ROLE,
                "'adjudicator', who decides where raters differ; 'judge', a judge of another tool, whose label counts for no score; null: a rater",
            ),
            Column(
                "weight", F, "Parts that the label represents, as drawn for a rating sheet; null: not drawn"
            ),
            Column("stratum", S, "The group that the part was drawn from; null: not drawn"),
            Column("rubric_hash", S, "Hash of the rubric that the rater saw; null where it is not known"),
            Column("file", S, "File it came from", nullable=False),
            Column("line", I, "1-based line", nullable=False),
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
            Column("content_hash", S, "Hash of the content judged", nullable=False),
            Column("turn_index", I, "0-based; null above turn level"),
            Column("metric", S, "Metric name, 'U3', 'D2.accuracy', or a cluster's id", nullable=False),
            Column("rubric_hash", S, "Hash of rubric and answer schema", nullable=False),
            Column(
                "profile_version",
                S,
                "The judge profile that last changed what is asked about the metric",
                nullable=False,
            ),
            Column("model", S, "The model or person that answered", nullable=False),
            Column("parameters", S, "JSON object of model parameters", nullable=False),
            Column("repeat", I, "0-based number of the repeat", nullable=False),
            Column(
                "verdict",
                S,
                "JSON object: status, rating/value/label, further_labels, rationale, evidence",
                nullable=False,
            ),
            Column("prompt_hash", S, "Hash of the exact prompt"),
            Column("n_tokens_in", I, "This answer's share of the call's prompt tokens"),
            Column("n_tokens_out", I, "Its share of the answer tokens"),
            Column("n_tokens_cached", I, "Its share of the cached prompt tokens"),
            Column(
                "cost_usd", F, "Its share of the call, US dollars; the sum is the bill; null when unknown"
            ),
            Column("judged_at", TIME, "ISO 8601", nullable=False),
            *ANSWERED,
            *SEEN,
            Column(
                "context_tokens", I, "Tokens that the view was made for; null in rows of earlier releases"
            ),
            Column(
                "is_recorded",
                B,
                "True: it is a line of data/verdicts, answers as `recorded` only and is removed with its line; null: a model answered here, and it answers for that model only",
            ),
        ),
    ),
    Table(
        "judge_state",
        "one row per agent and version whose judgments a model was asked for: the judge that it keeps",
        ("agent_id", "methodology_version"),
        (
            Column(
                "agent_id",
                S,
                "The agent; null (only in rows of an earlier release): all agents without a separate row",
            ),
            VERSION,
            Column("spec", S, "JSON object: models, temperature, mode, combine", nullable=False),
        ),
        BY_PAIR,
    ),
    Table(
        "spending",
        "one row per day, run and judge model: its calls and what they cost",
        ("day", "run", "model"),
        (
            Column("day", DATE, "Day in UTC", nullable=False),
            Column("run", S, "The Dagster run, or the process of a command, that called", nullable=False),
            Column("model", S, "As litellm names it", nullable=False),
            Column("started_by", STARTED_BY, "person, or automation: a sensor or a schedule", nullable=False),
            Column("n_calls", I, "Requests that were sent, repeated ones included", nullable=False),
            Column("n_reserved", I, "Of these, those under way when the row was copied", nullable=False),
            Column("n_unknown_cost", I, "Of these, those of unknown cost", nullable=False),
            Column("n_tokens_in", I, "Prompt tokens", nullable=False),
            Column("n_tokens_out", I, "Answer tokens", nullable=False),
            Column("cost_usd", F, "US dollars, of the calls whose cost is known", nullable=False),
        ),
    ),
    Table(
        "judge_audits",
        "one row per audit and answer that was asked for again; the stored answers stay as they are",
        ("audit_id", "cache_key"),
        (
            Column("audit_id", S, "When the audit began, ISO 8601 with microseconds", nullable=False),
            Column("cache_key", S, "The stored answer, see judge_cache", nullable=False),
            Column("question_key", S, "What was asked", nullable=False),
            Column("content_hash", S, "Hash of the content judged", nullable=False),
            Column("turn_index", I, "0-based; null above turn level"),
            Column("metric", S, "What was asked, e.g. helpfulness", nullable=False),
            Column("model", S, "The judge model", nullable=False),
            Column("parameters", S, "JSON object of model parameters", nullable=False),
            Column("verdict_before", S, "The stored verdict, JSON", nullable=False),
            Column("judged_before_at", TIME, "When that was given, ISO 8601", nullable=False),
            Column("verdict", S, "The new verdict, JSON", nullable=False),
            Column("prompt_hash", S, "Hash of the exact prompt of the new one"),
            Column("n_tokens_in", I, "Its share of the call's prompt tokens"),
            Column("n_tokens_out", I, "Its share of the answer tokens"),
            Column("n_tokens_cached", I, "Its share of the cached prompt tokens"),
            Column("cost_usd", F, "Its share of the call, US dollars; null when unknown"),
            Column("judged_at", TIME, "ISO 8601", nullable=False),
        ),
    ),
)
