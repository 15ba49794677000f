"""Declare the tables of failures, error clusters, their registry, rates and trends."""

from typing import Any

import polars as pl

from agent_eval.tables.columns import AGENT, BY_PAIR, CONVERSATION, NAMES, VERSION, B, F, I, S
from agent_eval.tables.contract import DATE, Column, Table
from agent_eval.tables.vocabularies import (
    ASSIGNED_BY,
    CLUSTER_EVENT,
    FAULT_AUTHOR,
    MERGED_BY,
    SEVERITY,
    TREND,
)

SEVERITY_RANK = Column(
    "severity_rank", I, "Rank of the severity: 1 low, 2 medium, 3 high, 4 critical", False, rank_of="severity"
)

DECLARED: tuple[Table[Any], ...] = (
    Table(
        "failures",
        "one row per failure label of a judged turn",
        ("failure_id",),
        (
            Column(
                "failure_id",
                S,
                "Hash of agent, version, conversation, turn, metric and label",
                nullable=False,
            ),
            AGENT,
            VERSION,
            CONVERSATION,
            Column("turn_index", I, "0-based", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("quote", S, "The evidence, or the rationale without one"),
            Column("reason", S, "The judge's rationale; null without one"),
            Column("tool", S, "The tool concerned, for tool failures"),
            Column("fault_author", FAULT_AUTHOR, "agent or environment; null: unknown"),
            Column("cluster_id", S, "The error cluster it belongs to", nullable=False),
            Column("text_hash", S, "What was compared, see error_members; null without words"),
            Column(
                "distance", F, "Mean cosine distance to the cluster when it was assigned, 0–2; 0 for blocks"
            ),
            Column(
                "method",
                ASSIGNED_BY,
                "How its words were first assigned: minted, prototype, human, or block (no words)",
                nullable=False,
            ),
        ),
        BY_PAIR,
    ),
    Table(
        "error_clusters",
        "one row per cluster with failures of this agent under this version",
        ("methodology_version", "agent_id", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("cluster_id", S, "Lasting id, see error_registry", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("tool", S, "The tool, for tool failures"),
            Column("title", S, "Short name"),
            Column("root_cause", S, "Explanation"),
            Column("severity", SEVERITY, "low < medium < high < critical", nullable=False),
            SEVERITY_RANK,
            Column("n_failures", I, "Failures", nullable=False),
            Column("n_turns", I, "Turns with such a failure", nullable=False),
            Column("n_conversations", I, "Conversations with such a failure", nullable=False),
            Column("n_turns_eligible", I, "Turns judged for it by others than rules; null when none"),
            Column("rate_per_100_turns", F, "Eligible turns with it per 100 eligible turns; null when none"),
            Column("examples", NAMES, "Up to three turn references, conversation#turn", nullable=False),
            Column("first_seen", DATE, "UTC date of the first failure, of any agent"),
            Column("last_seen", DATE, "UTC date of the last run with such a failure, of any agent"),
            Column(
                "trend",
                TREND,
                "Against the agent's run before, as in error_trends; null: no earlier run, or see error_trends for a baseline agent",
            ),
        ),
        BY_PAIR,
    ),
    Table(
        "error_registry",
        "one row per cluster id ever minted",
        ("cluster_id",),
        (
            Column("cluster_id", S, "Never reused", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("tool", S, "The tool, for tool failures"),
            Column(
                "severity",
                SEVERITY,
                "low < medium < high < critical: a person's, else the highest",
                nullable=False,
            ),
            SEVERITY_RANK,
            Column("title", S, "Short name: a person's, else the model's, else the rule's"),
            Column(
                "root_cause", S, "Explanation: a person's, else the model's, else the reason of its medoid"
            ),
            Column("first_seen", DATE, "UTC date of the first failure"),
            Column("last_seen", DATE, "UTC date of the last run with such a failure"),
            Column("merged_into", S, "The id that replaced this one"),
            Column("merged_by", MERGED_BY, "human or consolidation; null when not merged"),
            Column("founder", S, "text_hash of the text it was minted for; null for a block without words"),
            Column(
                "rule_title", S, "Label with the quote of the medoid, the most typical failure at minting"
            ),
            Column("rule_root_cause", S, "The reason of that failure"),
            Column("rule_severity", SEVERITY, "By label"),
            Column("model_title", S, "The model's name; null until named"),
            Column("model_root_cause", S, "The model's explanation"),
            Column("model_severity", SEVERITY, "The model's rating"),
            Column("named_by", S, "The model that named it; null until named"),
            Column("n_texts_named", I, "Distinct texts when it was last named; twice as many are a change"),
            Column(
                "naming_problem", S, "Why the judge model gave no name when it was last asked; null: it did"
            ),
        ),
    ),
    Table(
        "error_members",
        "one row per distinct text of a block (label and tool): the cluster it was assigned to, for good",
        ("label", "tool", "text_hash"),
        (
            Column("label", S, "The failure label", nullable=False),
            Column("tool", S, "The tool, for tool failures"),
            Column("text_hash", S, "Hash of the text", nullable=False),
            Column("text", S, "The words compared: no ids, numbers or turn references", nullable=False),
            Column("quote", S, "The evidence of the first failure with this text"),
            Column("reason", S, "Its rationale"),
            Column("cluster_id", S, "Its cluster before merges, see error_registry", nullable=False),
            Column("distance", F, "Mean cosine distance to the cluster when it was assigned, 0–2"),
            Column("method", ASSIGNED_BY, "minted, prototype or human", nullable=False),
        ),
    ),
    Table(
        "error_events",
        "one row per merge or split of clusters that was made, or merge that a model proposed",
        ("event_id",),
        (
            Column("event_id", S, "Hash of the other columns but the time", nullable=False),
            Column("kind", CLUSTER_EVENT, "merge, split or merge proposed", nullable=False),
            Column("cluster_id", S, "The cluster that was merged away or split", nullable=False),
            Column("other_id", S, "The cluster that it went into, or that came out of it", nullable=False),
            Column("by", S, "human, consolidation or a model's name", nullable=False),
            Column("reason", S, "Why"),
            Column("at", DATE, "UTC date of the event", nullable=False),
        ),
    ),
    Table(
        "failure_vectors",
        "one row per text and embedding model: a cache, may be deleted at any time",
        ("text_hash", "model"),
        (
            Column("text_hash", S, "Hash of the text", nullable=False),
            Column("model", S, "Embedding model and its version here", nullable=False),
            Column("vector", pl.List(pl.Float32), "Its length is at most 1", nullable=False),
        ),
    ),
    Table(
        "error_rates",
        "one row per agent, run (benchmark_id) and cluster seen in it, and per set of metrics one with its eligible turns; runs that were superseded stay",
        ("methodology_version", "agent_id", "benchmark_id", "metrics", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("benchmark_id", S, "The run", nullable=False),
            Column("run_date", DATE, "Date of its latest session; null when unknown"),
            Column("is_current", B, "Its conversations count now", nullable=False),
            Column("metrics", S, "Metrics whose turns are eligible, joined by +", nullable=False),
            Column("cluster_id", S, "Null: the eligible turns of these metrics"),
            Column("n_conversations", I, "Conversations with eligible turns; null for a cluster"),
            Column(
                "n_turns", I, "Turns: eligible ones, or for a cluster those of them with it", nullable=False
            ),
            Column("sum_squares", I, "Σ over conversations of the square of its n_turns", nullable=False),
            Column("sum_products", I, "Σ over conversations of turns with it × eligible turns; null without"),
            Column(
                "unit",
                S,
                "task_family where all tasks of the run declare one, else session: what tests take as independent; null: none of its turns are eligible, or a store of an earlier release",
            ),
            Column("units", NAMES, "The names of the units with such turns"),
            Column("unit_turns", pl.List(pl.Int64), "n_turns of each of them"),
        ),
        BY_PAIR,
    ),
    Table(
        "error_trends",
        "one row per agent and cluster: its rate beside its baseline's",
        ("methodology_version", "agent_id", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("cluster_id", S, "See error_registry", nullable=False),
            Column("label", S, "The failure label", nullable=False),
            Column("title", S, "Short name"),
            Column("severity", SEVERITY, "low < medium < high < critical", nullable=False),
            SEVERITY_RANK,
            Column(
                "baseline_agent_id", S, "The agent compared with; itself for an earlier run", nullable=False
            ),
            Column("benchmark_id", S, "The run compared; null: all that count"),
            Column("baseline_benchmark_id", S, "The earlier run; null: all of the baseline agent that count"),
            Column("n_turns", I, "Eligible turns with the failure", nullable=False),
            Column("n_turns_eligible", I, "Turns judged for it by others than rules", nullable=False),
            Column("rate_per_100_turns", F, "Rate; 0 when judged and never seen, null when not judged"),
            Column("rate_low", F, "Lower 95 % bound"),
            Column("rate_high", F, "Upper 95 % bound"),
            Column("baseline_n_turns", I, "The baseline's eligible turns with the failure", nullable=False),
            Column("baseline_n_turns_eligible", I, "The baseline's eligible turns", nullable=False),
            Column("baseline_rate_per_100_turns", F, "The baseline's rate"),
            Column("baseline_rate_low", F, "Lower 95 % bound"),
            Column("baseline_rate_high", F, "Upper 95 % bound"),
            Column(
                "unit",
                S,
                "What the test takes as independent: task_family, session (where both sides have two or more) or conversation",
            ),
            Column("design_effect", F, "How much turns of one unit go together; 1: not at all"),
            Column(
                "p_value",
                F,
                "Test of equal rates, two-sided; null when a side was not judged, or as `reason` says",
            ),
            Column("q_value", F, "Benjamini–Hochberg over the clusters of this comparison"),
            Column("is_significant", B, "q ≤ 0.05; null without q"),
            Column(
                "trend",
                TREND,
                "new or gone (seen on one side only), regressed or improved (seen on both and significant), unchanged (seen on both, no clear difference) or unknown (a side was not judged, or as `reason` says)",
                nullable=False,
            ),
            Column(
                "reason", S, "Why there is no test although both sides were judged: too few task families"
            ),
        ),
        ("methodology_version",),
    ),
)
