"""Declare the inputs of each table's asset, parents first; a test compares them with Dagster's graph."""

from collections.abc import Collection, Mapping
from typing import Literal

from agent_eval.tables.schema import table

Shape = Literal["agent", "version", "agent x version"]

SOURCES: Mapping[str, Shape] = {
    "agent_sessions": "agent",
    "human_ratings": "agent",
    "judge_config": "agent x version",
    "scoring_spec": "version",
    "cluster_spec": "version",
    "gate_spec": "version",
}
"""The inputs that are read from files and settings, with the partitions of their data versions."""

_INGESTED = ("sessions", "conversations", "turns", "tool_calls", "expected_calls", "import_errors", "agents")
_JUDGED = ("transcripts", "conversations", "turns", "judge_config", "human_ratings")
_CLUSTERED = ("turn_judgments", "tool_calls", "sessions", "transcripts", "cluster_spec")
_BOARD = ("composite_scores", "reliability", "agents", "judge_calibration")

MADE_FROM: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_INGESTED, ("agent_sessions",)),
    "transcripts": ("conversations", "sessions", "agents", "judge_config"),
    "assertion_results": ("conversations", "tool_calls", "turns", "transcripts"),
    "turn_judgments": _JUDGED,
    "conversation_judgments": _JUDGED,
    **dict.fromkeys(("failures", "error_clusters", "error_rates"), _CLUSTERED),
    "rubric_ratings": (
        *("transcripts", "conversations", "turns", "sessions"),
        *("turn_judgments", "conversation_judgments", "judge_config", "human_ratings"),
    ),
    "judge_calibration": ("turn_judgments", "conversation_judgments", "rubric_ratings", "human_ratings"),
    "tool_correctness": ("conversations", "tool_calls", "transcripts", "turn_judgments", "scoring_spec"),
    "universal_scores": ("rubric_ratings", "scoring_spec"),
    "domain_scores": ("rubric_ratings", "transcripts", "scoring_spec"),
    "reliability": (
        *("transcripts", "conversations", "import_errors", "turn_judgments", "conversation_judgments"),
        *("tool_correctness", "scoring_spec"),
    ),
    "quality_summary": (
        *("transcripts", "conversations", "tool_correctness", "turn_judgments", "conversation_judgments"),
        *("error_clusters", "scoring_spec"),
    ),
    "composite_scores": (
        *("universal_scores", "domain_scores", "transcripts", "sessions", "conversations"),
        *("conversation_judgments", "import_errors", "scoring_spec"),
    ),
    "gate_results": (
        *("agents", "conversations", "transcripts", "turn_judgments", "conversation_judgments", "error_clusters"),
        *("assertion_results", "universal_scores", "domain_scores", "composite_scores", "reliability", "judge_calibration",
        "gate_spec",),
    ),
    "error_trends": ("error_clusters", "error_rates", "agents"),
    **dict.fromkeys(("leaderboard", "board_changes", "board_history", "board_inputs"), _BOARD),
    "pairwise_comparisons": ("composite_scores", "judge_calibration"),
    "reliability_leaderboard": ("reliability", "judge_calibration"),
    "log_leaderboard": ("quality_summary", "error_clusters", "transcripts", "agents", "judge_calibration"),
}  # fmt: skip
"""The tables and sources that each table's asset reads; tables are listed after the tables that they depend on."""


def below(names: Collection[str]) -> set[str]:
    """Return the tables that depend directly or indirectly on these tables or sources."""
    found = set(names)
    for name, parents in MADE_FROM.items():  # parents first
        if found & {*parents}:
            found.add(name)
    return found - {*names}


def shape_of(name: str) -> Shape:
    """Return the kind of partitions that a table or a source has."""
    if name in SOURCES:
        return SOURCES[name]
    columns = table(name).partition
    if columns == ("agent_id",):
        return "agent"
    return "agent x version" if "agent_id" in columns else "version"  # board history: not partitioned
