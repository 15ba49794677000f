"""Ingest: agents, sessions, conversations, turns, tool calls, import errors, and what counts under a version."""

from typing import Any

from agent_eval.tables.columns import AGENT, BY_PAIR, CONVERSATION, NAMES, SESSION, VERSION, B, F, I, S
from agent_eval.tables.contract import DATE, Column, Table
from agent_eval.tables.vocabularies import OUTCOME_CLASS, REQUESTOR, U3_SCOPE

DECLARED: tuple[Table[Any], ...] = (
    Table(
        "agents",
        "one row per agent",
        ("agent_id",),
        (
            AGENT,
            Column("name", S, "Display name"),
            Column("category", S, "Methodology category, e.g. customer_service"),
            Column("provider", S, "Who makes it"),
            Column("template", S, "Domain template of the category in the current version; null when none"),
            Column("baseline", S, "The agent that this one is compared with in error trends"),
            Column(
                "ingest_fingerprint",
                S,
                "Hash of the session files these rows were read from, and of the release",
            ),
            Column("sessions_hash", S, "Hash of these session files and of the entry in agents.yaml"),
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
            Column("benchmark_id", S, "Sessions that share it form one run", nullable=False),
            Column("session_date", DATE, "Date of the session, as session.yaml states it; null without one"),
            Column(
                "session_run", S, "Name of the run, where several were made on one date; null without one"
            ),
            Column("evaluator", S, "Who ran it"),
            Column("methodology_versions", NAMES, "Versions it was run for, or ['any']", nullable=False),
            Column("u3_scope", U3_SCOPE, "Declared scope of U3"),
            Column("repeatability_tested", B, "Declared; null when not disclosed"),
            Column("links", S, "JSON object: slot → required test that it also serves"),
            Column("task_set", S, "Name of the set of tasks"),
            Column(
                "invalid_reason", S, "Set when the harness failed: the session never counts against the agent"
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
            Column("task_id", S, "The task that was attempted; trials of one task share it"),
            Column("task_set", S, "The set the task belongs to; null without a task"),
            Column(
                "task_family",
                S,
                "Tasks of one family depend on each other: intervals and tests take families as units; null: none declared",
            ),
            Column("trial", I, "Trial number as recorded"),
            Column("scenario", S, "D1..D5, standardised_task, hallucination, error_injection or null"),
            Column("n_turns", I, "Turns; 0 when the run produced no message", nullable=False),
            Column("n_user_messages", I, "Messages of role user", nullable=False),
            Column("n_agent_messages", I, "Messages of role assistant", nullable=False),
            Column("n_tool_calls", I, "Tool calls, by agent or user", nullable=False),
            Column("goal", S, "What the user wanted"),
            Column("profile", S, "Who the user is"),
            Column("knowledge", S, "JSON array of texts a judge may know"),
            Column("tools", S, "JSON array of tool schemas; null when unknown"),
            Column("expected", S, "JSON array of ground truth per turn"),
            Column("interventions", S, "JSON array; null when not recorded, [] when there were none"),
            Column("injected_error", S, "JSON: the deliberately broken input, null when none"),
            Column("outcome_correct", B, "Declared outcome; null when unknown"),
            Column("outcome_reward", F, "Declared reward; null when unknown"),
            Column("outcome_source", S, "Where the outcome comes from"),
            Column(
                "outcome_class",
                OUTCOME_CLASS,
                "passed, failed, agent_error (counts as failed), harness_error (says nothing of the agent) or unknown; docs/formats.md",
            ),
            Column("outcome_error", S, "The error that ended the run, as recorded; null without one"),
            Column("cost_usd", F, "What the agent cost, US dollars; null when unknown"),
            Column("content_hash", S, "Hash of all that a judge may see", nullable=False),
            Column(
                "messages_hash",
                S,
                "Hash of the messages alone, equal in copies; null in conversations that fill no slot or test",
            ),
            Column(
                "opening_hash",
                S,
                "Hash of the first user message, letter case and spacing aside; null without one",
            ),
            Column("source", S, "Format, file and record it came from"),
            Column("source_line", I, "1-based line of the session's conversations.jsonl"),
            Column("metadata", S, "JSON object, kept as found"),
        ),
        ("agent_id",),
    ),
    Table(
        "turns",
        "one row per turn: a user message and the reply up to the next",
        ("agent_id", "conversation_id", "turn_index"),
        (
            AGENT,
            CONVERSATION,
            Column("turn_index", I, "0-based", nullable=False),
            Column("user_message", S, "Null when the conversation has no user message"),
            Column(
                "agent_message", S, "The agent's texts after it, joined by a blank line; null without a reply"
            ),
            Column("messages", S, "JSON array of the turn's messages in order", nullable=False),
            Column("n_tool_calls", I, "Tool calls in this turn", nullable=False),
            Column("latency_ms", F, "Milliseconds from user message to the last reply; null when unknown"),
            Column("content_hash", S, "Hash of all content up to and with this turn", nullable=False),
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
            Column("turn_index", I, "0-based", nullable=False),
            Column("call_index", I, "0-based within the turn", nullable=False),
            Column("name", S, "Tool name", nullable=False),
            Column("arguments", S, "JSON; a string when the call's arguments were not JSON", nullable=False),
            Column("result", S, "The tool's answer as text; null when none came"),
            Column("is_error", B, "The result is an error; null when unknown"),
            Column("requestor", REQUESTOR, "assistant or user", nullable=False),
            Column("note", S, "How the arguments were read where they were not JSON; null when they were"),
        ),
        ("agent_id",),
    ),
    Table(
        "expected_calls",
        "one row per tool call that the truth of a conversation expects",
        ("agent_id", "conversation_id", "call_index"),
        (
            AGENT,
            CONVERSATION,
            Column(
                "call_index", I, "0-based within the conversation, as `expected` lists them", nullable=False
            ),
            Column(
                "turn_index", I, "The turn that the call belongs to, 0-based; null = the whole conversation"
            ),
            Column("name", S, "Tool name; null when the truth gives none"),
            Column("arguments", S, "Expected arguments, JSON", nullable=False),
            Column("compare_args", NAMES, "Arguments that are compared; null = all"),
            Column("requestor", REQUESTOR, "Who should make the call: assistant or user", nullable=False),
            Column("is_matched", B, "A call that was made answers it, each at most one; null when unknown"),
            Column("matched_turn_index", I, "turn_index in tool_calls of the call that answers it"),
            Column("matched_call_index", I, "call_index in tool_calls of the call that answers it"),
            Column(
                "recorded_match",
                B,
                "What the source's own check says, e.g. tau2's action_match; null without one",
            ),
            Column(
                "note", S, "How the call was read or matched where that is not plain, or why it is unknown"
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
            Column("session_id", S, "The session it would have joined; null when unknown"),
            Column("file", S, "File name, without folders outside the project", nullable=False),
            Column(
                "line", I, "1-based line, or record number in an array; 0 for the whole file", nullable=False
            ),
            Column("reason", S, "What is wrong, what is allowed, the fix", nullable=False),
        ),
        ("agent_id",),
    ),
    Table(
        "transcripts",
        "one row per conversation and version: its file and content, whether it counts, and as what",
        ("methodology_version", "agent_id", "conversation_id"),
        (
            VERSION,
            AGENT,
            CONVERSATION,
            SESSION,
            Column("benchmark_id", S, "The run it belongs to", nullable=False),
            Column("template", S, "The agent's domain template under this version; null when none"),
            Column("slot", S, "D1..D5 or a required test; null for undeclared sessions"),
            Column("tests", NAMES, "Required tests that this conversation serves", nullable=False),
            Column("task_id", S, "The task"),
            Column("task_family", S, "Tasks of one family depend on each other; null: none declared"),
            Column("task_set", S, "The set of tasks"),
            Column("trial", I, "Trial number as recorded"),
            Column("n_turns", I, "Turns", nullable=False),
            Column("n_user_messages", I, "User messages", nullable=False),
            Column("n_tool_calls", I, "Tool calls, by agent or user"),
            Column("content_hash", S, "Hash of all that a judge may see"),
            Column("source_file", S, "File of the conversation, below data/sessions; null without a file"),
            Column("source_line", I, "1-based line of that file; null without a file"),
            Column("is_admitted", B, "Counts under this version", nullable=False),
            Column("reason", S, "Why it does not count; null when it does"),
            Column("superseded_by", S, "The later run that replaced this one"),
        ),
        BY_PAIR,
    ),
)
