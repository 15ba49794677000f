"""Declare the tables of failures and of error clusters with their registry, rates and trends."""

from typing import Any

import polars as pl

from agent_eval.tables.columns import AGENT, BY_PAIR, CAUSE, CONVERSATION, NAMES, STEP, VERSION, B, F, I, S
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
            Column("turn_index", I, "0-based index of the turn", nullable=False),
            Column("label", S, "Failure label", nullable=False),
            Column("quote", S, "Judge's evidence, or the rationale if there is no evidence"),
            Column("reason", S, "Judge's rationale; null without one"),
            *CAUSE,
            *STEP,
            Column("tool", S, "Tool concerned, for tool failures; null if unknown"),
            Column(
                "fault_author", FAULT_AUTHOR, "Cause of the failure: agent or environment; null if unknown"
            ),
            Column("cluster_id", S, "Error cluster of the failure", nullable=False),
            Column("text_hash", S, "Hash of the compared text in error_members; null without text"),
            Column(
                "distance",
                F,
                "Mean cosine distance to the cluster at assignment, 0–2; 0 for failures without text",
            ),
            Column(
                "method",
                ASSIGNED_BY,
                "Method by which the text was first assigned: minted (new cluster), prototype (nearest cluster), human, or block (no text)",
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
            Column("cluster_id", S, "Permanent id of the cluster in error_registry", nullable=False),
            Column("label", S, "Failure label", nullable=False),
            Column("tool", S, "Tool concerned, for tool failures"),
            Column("title", S, "Title of the cluster"),
            Column("root_cause", S, "Explanation of the failures"),
            Column("severity", SEVERITY, "low < medium < high < critical", nullable=False),
            SEVERITY_RANK,
            Column("n_failures", I, "Number of failures", nullable=False),
            Column("n_turns", I, "Turns with such a failure", nullable=False),
            Column("n_conversations", I, "Conversations with such a failure", nullable=False),
            Column(
                "n_turns_eligible",
                I,
                "Turns that a person or model judged for such failures; null without eligible turns",
            ),
            Column(
                "rate_per_100_turns",
                F,
                "Eligible turns with such a failure per 100 eligible turns; null without eligible turns",
            ),
            Column("examples", NAMES, "Up to three turn references, as conversation#turn", nullable=False),
            Column("first_seen", DATE, "UTC date of the first such failure of any agent"),
            Column("last_seen", DATE, "UTC date of the last run with such a failure of any agent"),
            Column(
                "trend",
                TREND,
                "Trend against the agent's previous run, as in error_trends; null without an earlier run or for an agent with a declared baseline (see error_trends)",
            ),
        ),
        BY_PAIR,
    ),
    Table(
        "error_registry",
        "one row per cluster id that was ever created",
        ("cluster_id",),
        (
            Column("cluster_id", S, "Permanent id, which is never reused", nullable=False),
            Column("label", S, "Failure label", nullable=False),
            Column("tool", S, "Tool concerned, for tool failures"),
            Column(
                "severity",
                SEVERITY,
                "low < medium < high < critical: set by a person, else the highest of rule and model",
                nullable=False,
            ),
            SEVERITY_RANK,
            Column("title", S, "Title by a person, else by the model, else by rule"),
            Column(
                "root_cause",
                S,
                "Explanation by a person, else by the model, else the reason of the most typical failure",
            ),
            Column("first_seen", DATE, "UTC date of the first failure"),
            Column("last_seen", DATE, "UTC date of the last run with such a failure"),
            Column("merged_into", S, "Id of the cluster that this one was merged into; null if not merged"),
            Column("merged_by", MERGED_BY, "human or consolidation; null if not merged"),
            Column(
                "founder",
                S,
                "text_hash of the text that the cluster was created for; null for failures without text",
            ),
            Column(
                "rule_title",
                S,
                "Label and quote of the medoid, which is the most typical failure when the cluster was created",
            ),
            Column("rule_root_cause", S, "Reason of the medoid"),
            Column("rule_severity", SEVERITY, "Severity of the label"),
            Column("model_title", S, "Title by the model; null if not named"),
            Column("model_root_cause", S, "Explanation by the model; null if not named"),
            Column("model_severity", SEVERITY, "Severity by the model; null if not named"),
            Column("named_by", S, "Model that named the cluster; null if not named"),
            Column(
                "n_texts_named",
                I,
                "Distinct texts when the cluster was last named; it is named again at twice this number",
            ),
            Column(
                "naming_problem",
                S,
                "Reason why the model gave no name when it was last asked; null if it gave one",
            ),
        ),
    ),
    Table(
        "error_members",
        "one row per distinct text of a block (label and tool), with the cluster that it was permanently assigned to",
        ("label", "tool", "text_hash"),
        (
            Column("label", S, "Failure label", nullable=False),
            Column("tool", S, "Tool concerned, for tool failures"),
            Column("text_hash", S, "Hash of the text", nullable=False),
            Column("text", S, "Compared text, without ids, numbers and turn references", nullable=False),
            Column("quote", S, "Evidence of the first failure with this text"),
            Column("reason", S, "Rationale of the first failure with this text"),
            Column("cluster_id", S, "Cluster before merges; see error_registry", nullable=False),
            Column("distance", F, "Mean cosine distance to the cluster at assignment, 0–2"),
            Column(
                "method",
                ASSIGNED_BY,
                "Method of assignment: minted (new cluster), prototype (nearest cluster) or human",
                nullable=False,
            ),
        ),
    ),
    Table(
        "error_events",
        "one row per merge or split of clusters, or merge proposed by a model",
        ("event_id",),
        (
            Column("event_id", S, "Hash of the other columns except the date", nullable=False),
            Column("kind", CLUSTER_EVENT, "merge, split or merge proposed", nullable=False),
            Column("cluster_id", S, "Cluster that was merged into another or split", nullable=False),
            Column("other_id", S, "Target of the merge, or cluster created by the split", nullable=False),
            Column("by", S, "human, consolidation or a model's name", nullable=False),
            Column("reason", S, "Reason for the event"),
            Column("at", DATE, "UTC date of the event", nullable=False),
        ),
    ),
    Table(
        "failure_vectors",
        "one row per text and embedding model; this cache can be deleted at any time",
        ("text_hash", "model"),
        (
            Column("text_hash", S, "Hash of the text", nullable=False),
            Column("model", S, "Embedding model with its version in this project", nullable=False),
            Column("vector", pl.List(pl.Float32), "Vector of length at most 1", nullable=False),
        ),
    ),
    Table(
        "error_rates",
        "one row per agent, run (benchmark_id) and cluster found in it, and one row per set of metrics with its eligible turns; superseded runs are kept",
        ("methodology_version", "agent_id", "benchmark_id", "metrics", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("benchmark_id", S, "Benchmark id of the run", nullable=False),
            Column("run_date", DATE, "Date of the run's latest session; null if unknown"),
            Column("is_current", B, "Whether the run's conversations currently count", nullable=False),
            Column("metrics", S, "Metrics whose turns are eligible, joined by +", nullable=False),
            Column("cluster_id", S, "Cluster id; null in the row of the eligible turns of these metrics"),
            Column("n_conversations", I, "Conversations with eligible turns; null for a cluster"),
            Column(
                "n_turns", I, "Eligible turns, or for a cluster, the eligible turns with it", nullable=False
            ),
            Column("sum_squares", I, "Sum over conversations of n_turns²", nullable=False),
            Column(
                "sum_products",
                I,
                "Sum over conversations of turns with the cluster × eligible turns; null without a cluster",
            ),
            Column(
                "unit",
                S,
                "Unit that tests take as independent: task_family if all tasks of the run declare one, else session; null if no turns are eligible, and in rows of earlier releases",
            ),
            Column("units", NAMES, "Names of the units with such turns"),
            Column("unit_turns", pl.List(pl.Int64), "n_turns of each unit in units"),
        ),
        BY_PAIR,
    ),
    Table(
        "error_trends",
        "one row per agent and cluster, with the rates of the agent and its baseline",
        ("methodology_version", "agent_id", "cluster_id"),
        (
            VERSION,
            AGENT,
            Column("cluster_id", S, "Permanent id of the cluster in error_registry", nullable=False),
            Column("label", S, "Failure label", nullable=False),
            Column("title", S, "Title of the cluster"),
            Column("severity", SEVERITY, "low < medium < high < critical", nullable=False),
            SEVERITY_RANK,
            Column(
                "baseline_agent_id",
                S,
                "Baseline agent; the agent itself if an earlier run is the baseline",
                nullable=False,
            ),
            Column("benchmark_id", S, "Compared run; null for all runs that count"),
            Column(
                "baseline_benchmark_id", S, "Baseline run; null for all runs of the baseline agent that count"
            ),
            Column("n_turns", I, "Eligible turns with such a failure", nullable=False),
            Column(
                "n_turns_eligible", I, "Turns that a person or model judged for such failures", nullable=False
            ),
            Column("rate_per_100_turns", F, "n_turns per 100 eligible turns; null without eligible turns"),
            Column("rate_low", F, "Lower 95 % bound of rate_per_100_turns"),
            Column("rate_high", F, "Upper 95 % bound of rate_per_100_turns"),
            Column(
                "baseline_n_turns", I, "The baseline's eligible turns with such a failure", nullable=False
            ),
            Column("baseline_n_turns_eligible", I, "The baseline's eligible turns", nullable=False),
            Column(
                "baseline_rate_per_100_turns",
                F,
                "baseline_n_turns per 100 eligible turns of the baseline; null without eligible turns",
            ),
            Column("baseline_rate_low", F, "Lower 95 % bound of baseline_rate_per_100_turns"),
            Column("baseline_rate_high", F, "Upper 95 % bound of baseline_rate_per_100_turns"),
            Column(
                "unit",
                S,
                "Unit that the test takes as independent: task_family, session (if both sides have two or more) or conversation",
            ),
            Column(
                "design_effect",
                F,
                "Factor by which dependence between turns of a unit increases the variance; 1 without dependence",
            ),
            Column(
                "p_value",
                F,
                "Two-sided p of the test of equal rates, 0–1; null if a side was not judged or there is no test (see reason)",
            ),
            Column(
                "q_value",
                F,
                "p_value corrected over the clusters of the comparison after Benjamini and Hochberg, 0–1",
            ),
            Column("is_significant", B, "Whether q_value is at most 0.05; null without q_value"),
            Column(
                "trend",
                TREND,
                "new or gone (found on one side only), regressed or improved (found on both sides, significant), unchanged (found on both sides, not significant) or unknown (a side was not judged, or there is no test)",
                nullable=False,
            ),
            Column(
                "reason",
                S,
                "Reason why there is no test although both sides were judged; null otherwise",
            ),
        ),
        ("methodology_version",),
    ),
)
