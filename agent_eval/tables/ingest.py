"""Declare the tables of agents, sessions, conversations, turns, tool calls, import errors and transcripts."""

from typing import Any

import polars as pl

from agent_eval.tables.columns import AGENT, BY_PAIR, CONVERSATION, NAMES, SESSION, VERSION, B, F, I, S
from agent_eval.tables.contract import DATE, Column, Table
from agent_eval.tables.vocabularies import OUTCOME_BASIS, OUTCOME_CLASS, REQUESTOR, U3_SCOPE

HARNESS_FAILURE = "harness failure"
"""First words of `reason` in table transcripts if the session is invalid; the reason is made in `transcripts.admission`."""


def is_harness_failure() -> pl.Expr:
    """Return whether a row of table transcripts does not count because the harness failed in its session."""
    return pl.col("reason").str.contains(rf"\A{HARNESS_FAILURE}[:,] ").fill_null(False)


DECLARED: tuple[Table[Any], ...] = (
    Table(
        "agents",
        "one row per agent",
        ("agent_id",),
        (
            AGENT,
            Column("name", S, "Display name"),
            Column("category", S, "Methodology category, e.g. customer_service"),
            Column("provider", S, "Provider of the agent"),
            Column("template", S, "Domain template of the category in the current version; null without one"),
            Column("baseline", S, "Agent that this one is compared with in error trends"),
            Column(
                "ingest_fingerprint",
                S,
                "Hash of the session files that the rows were read from, and of the release",
                is_content=False,
            ),
            Column(
                "sessions_hash",
                S,
                "Hash of these session files and the entry in agents.yaml",
                is_content=False,
            ),
        ),
        ("agent_id",),
    ),
    Table(
        "sessions",
        "one row per session folder",
        ("agent_id", "session_id"),
        (
            AGENT,
            SESSION,
            Column(
                "benchmark_id", S, "Id of the benchmark, whose sessions are scored together", nullable=False
            ),
            Column("session_date", DATE, "Date of the session in session.yaml; null without one"),
            Column(
                "session_run",
                S,
                "Name that distinguishes several sessions on the same date; null without one",
            ),
            Column("evaluator", S, "Person or team that ran the session"),
            Column(
                "methodology_versions",
                NAMES,
                "Versions that the session was run for, or ['any']",
                nullable=False,
            ),
            Column("u3_scope", U3_SCOPE, "Declared scope of U3; null if not disclosed"),
            Column(
                "repeatability_tested",
                B,
                "Declared value of the disclosure repeatability_tested; null if not disclosed",
            ),
            Column("links", S, "JSON object of slots, with the required test that each also serves"),
            Column("task_set", S, "Name of the task set"),
            Column(
                "invalid_reason",
                S,
                "Reason why the harness failed, so that the session does not count; null otherwise",
            ),
        ),
        ("agent_id",),
    ),
    Table(
        "conversations",
        "one row per conversation; the texts are in turns",
        ("agent_id", "conversation_id"),
        (
            AGENT,
            CONVERSATION,
            SESSION,
            Column("task_id", S, "Id of the attempted task, which all trials of the task share"),
            Column("task_set", S, "Task set of the task; null without a task"),
            Column(
                "task_family",
                S,
                "Family of the task; tasks of a family depend on each other, so intervals and tests take families as units; null if none is declared",
            ),
            Column("trial", I, "Trial number as recorded"),
            Column(
                "scenario",
                S,
                "Declared scenario or test: D1 to D5, standardised_task, hallucination or error_injection; null if none",
            ),
            Column("n_turns", I, "Number of turns; 0 if the conversation has no message", nullable=False),
            Column("n_user_messages", I, "Messages with role user", nullable=False),
            Column("n_agent_messages", I, "Messages with role assistant", nullable=False),
            Column(
                "n_replies",
                I,
                "Replies of the agent after the first user message, without empty ones and errors; null if an earlier release stored the row",
            ),
            Column("n_tool_calls", I, "Tool calls by the agent or the user", nullable=False),
            Column("goal", S, "Goal of the user"),
            Column("profile", S, "Description of the user"),
            Column("knowledge", S, "JSON array of texts that are shown to judges as knowledge"),
            Column("tools", S, "JSON array of tool schemas; null if unknown"),
            Column("expected", S, "JSON array of ground truth per turn"),
            Column(
                "interventions",
                S,
                "JSON array of human interventions; null if not recorded, [] if there were none",
            ),
            Column("injected_error", S, "Deliberately broken input as JSON; null without one"),
            Column("outcome_correct", B, "Declared outcome; null if unknown"),
            Column("outcome_reward", F, "Declared reward; null if unknown"),
            Column("outcome_source", S, "Source of the outcome"),
            Column(
                "outcome_class",
                OUTCOME_CLASS,
                "passed, failed, agent_error (counts as failed), harness_error (not a result of the agent), unexplained_error (an error "
                "of unknown cause: counts as declared, else unknown) or unknown; see docs/formats.md",
            ),
            Column(
                "outcome_basis",
                OUTCOME_BASIS,
                "What the outcome was derived from: declared, reward, error, exit, or contradicting (success components that "
                "differ); null without an outcome",
            ),
            Column("outcome_error", S, "Recorded error that ended the conversation; null without one"),
            Column("cost_usd", F, "Cost of the agent, US dollars; null if unknown"),
            Column("content_hash", S, "Hash of all content that a judge can see", nullable=False),
            Column(
                "messages_hash",
                S,
                "Hash of only the messages, which is the same for copies; null in conversations that fill no slot or test",
            ),
            Column(
                "opening_hash",
                S,
                "Hash of the first user message, ignoring case and whitespace; null without one",
            ),
            Column(
                "text_sketch",
                S,
                "Sketch of the agent's texts, by which near copies are found: numbers of words and shingles, and hashes; null in "
                "conversations that fill no slot or test or have fewer than three words",
            ),
            Column("source", S, "Format, file and record of the source"),
            Column("source_line", I, "1-based line in the session's conversations.jsonl"),
            Column("metadata", S, "JSON object of metadata, unchanged"),
        ),
        ("agent_id",),
    ),
    Table(
        "turns",
        "one row per turn, which is a user message with the reply up to the next user message",
        ("agent_id", "conversation_id", "turn_index"),
        (
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based index of the turn", nullable=False),
            Column("user_message", S, "Text of the user message; null if the conversation has none"),
            Column(
                "agent_message", S, "Texts of the agent's reply, joined by blank lines; null without a reply"
            ),
            Column("messages", S, "JSON array of the turn's messages in order", nullable=False),
            Column("n_tool_calls", I, "Tool calls in this turn", nullable=False),
            Column("latency_ms", F, "Milliseconds from the user message to the last reply; null if unknown"),
            Column("content_hash", S, "Hash of all content up to and including this turn", nullable=False),
        ),
        ("agent_id",),
    ),
    Table(
        "tool_calls",
        "one row per tool call",
        ("agent_id", "conversation_id", "turn_index", "call_index"),
        (
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based index of the turn", nullable=False),
            Column("call_index", I, "0-based index within the turn", nullable=False),
            Column("name", S, "Tool name", nullable=False),
            Column("arguments", S, "Arguments as JSON; a JSON string if they were not JSON", nullable=False),
            Column("result", S, "Result of the tool as text; null without a result"),
            Column("is_error", B, "Whether the result is an error; null if unknown"),
            Column("requestor", REQUESTOR, "Side that made the call: assistant or user", nullable=False),
            Column("note", S, "Explanation of how arguments that were not JSON were read; null otherwise"),
        ),
        ("agent_id",),
    ),
    Table(
        "expected_calls",
        "one row per tool call in the ground truth of a conversation",
        ("agent_id", "conversation_id", "call_index"),
        (
            AGENT,
            CONVERSATION,
            Column(
                "call_index",
                I,
                "0-based index within the conversation, in the order of `expected`",
                nullable=False,
            ),
            Column("turn_index", I, "0-based index of the turn of the call; null for the whole conversation"),
            Column("name", S, "Tool name; null if the ground truth has none"),
            Column("arguments", S, "Expected arguments as JSON", nullable=False),
            Column("compare_args", NAMES, "Arguments that are compared; null for all"),
            Column(
                "requestor", REQUESTOR, "Side that should make the call: assistant or user", nullable=False
            ),
            Column(
                "is_matched",
                B,
                "Whether an actual call matches, where each actual call matches at most one expected call; null if unknown",
            ),
            Column("matched_turn_index", I, "turn_index of the matching call in tool_calls"),
            Column("matched_call_index", I, "call_index of the matching call in tool_calls"),
            Column(
                "recorded_match",
                B,
                "Result of the source's own check, e.g. tau2's action_match; null without one",
            ),
            Column(
                "note",
                S,
                "Explanation of an unusual comparison, or the reason for an unknown match; null otherwise",
            ),
        ),
        ("agent_id",),
    ),
    Table(
        "import_errors",
        "one row per refused record",
        ("agent_id", "file", "line", "reason"),
        (
            AGENT,
            Column("session_id", S, "Session of the record; null if unknown"),
            Column("file", S, "File name, without folders outside the project", nullable=False),
            Column(
                "line", I, "1-based line, or record number in an array; 0 for the whole file", nullable=False
            ),
            Column("reason", S, "Description of the problem, the allowed values and the fix", nullable=False),
        ),
        ("agent_id",),
    ),
    Table(
        "transcripts",
        "one row per conversation and version, with its file and content, whether it counts, and its slot",
        ("methodology_version", "agent_id", "conversation_id"),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            SESSION,
            Column("benchmark_id", S, "Benchmark of the session", nullable=False),
            Column("template", S, "Domain template of the agent under this version; null without one"),
            Column("slot", S, "D1 to D5 or a required test; null for undeclared sessions"),
            Column("tests", NAMES, "Required tests that this conversation serves", nullable=False),
            Column("task_id", S, "Id of the attempted task"),
            Column("task_family", S, "Family of tasks that depend on each other; null if none is declared"),
            Column("task_set", S, "Task set"),
            Column("trial", I, "Trial number as recorded"),
            Column("n_turns", I, "Number of turns", nullable=False),
            Column("n_user_messages", I, "Messages with role user", nullable=False),
            Column("n_tool_calls", I, "Tool calls by the agent or the user"),
            Column("content_hash", S, "Hash of all content that a judge can see"),
            Column(
                "source_file", S, "File of the conversation, relative to data/sessions; null without a file"
            ),
            Column("source_line", I, "1-based line in this file; null without a file"),
            Column("is_admitted", B, "Whether the conversation counts under this version", nullable=False),
            Column("reason", S, "Reason why the conversation does not count; null if it counts"),
            Column("superseded_by", S, "Later run that replaced this one; null if none did"),
        ),
        BY_PAIR,
    ),
)
