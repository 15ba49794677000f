"""Declare the tables of leaderboards and pairwise comparisons."""

from typing import Any

from agent_eval.tables.columns import (
    AGENT,
    BENCHMARK,
    BOARD_FACTS,
    CALIBRATED,
    COMPOSED,
    COUNTED,
    DISCLOSED,
    DISPUTED,
    INPUTS,
    MEASURED,
    MISSING,
    NAMES,
    PASS_K,
    STATUS,
    VERSION,
    B,
    F,
    I,
    S,
)
from agent_eval.tables.contract import TIME, Column, Table
from agent_eval.tables.vocabularies import COMPARISON, INTERVAL_METHOD, SCORE_STATUS, SEVERITY

_BOARD = (
    VERSION,
    AGENT,
    Column("name", S, "Display name"),
    Column("template", S, "Domain template: ranks are within it"),
    Column("rank", I, "Competition rank (1, 2, 2, 4) among published rows of the template; else null"),
    Column("rank_low", I, "Best rank that the intervals allow; null if the agent has no interval"),
    Column("rank_high", I, "Worst rank that the intervals allow; peers without one may stand anywhere"),
    Column("rank_if_tested", I, "What if: rank in the template had no agent paid the penalty"),
    Column("rank_overall", I, "Rank over all templates: rubrics differ, read with care"),
    *COMPOSED,
    Column("low", F, "Lower 95 % bound of the composite, over sessions; null with fewer than two"),
    Column("high", F, "Upper 95 % bound"),
    Column(
        "interval_method",
        INTERVAL_METHOD,
        "t; t_near_end: t, but fewer than 20 sessions all lie within 5 points of an end of the scale, which do not show how far "
        "others fall; or bounded: holds for any spread of sessions; null without an interval",
    ),
    Column(
        "smallest_detectable",
        F,
        "True difference in points, from an agent with as many sessions of the same spread, that is found with 80 % power at "
        "a two-sided 5 %; null with fewer than two sessions",
    ),
    Column("lead_points", F, "Points above the next one of the template (0: shared); null for the last"),
    Column("point_0to100", F, "The most that one rating point in one session moves the composite"),
    Column("lead_survives_point", B, "The lead is larger than one rating point of either agent moves"),
    Column(
        "is_pareto",
        B,
        "No agent of the template costs no more per conversation and scores no less, one of them truly; null when its cost is unknown",
    ),
    Column("n_sessions", I, "Sessions averaged", nullable=False),
    *DISCLOSED,
    Column(
        "pass_at_1",
        F,
        "Mean over tasks of the share of correct trials, 0–1; null when unknown or over several task sets",
    ),
    Column("pass_at_1_worst", F, "The same if every trial that is not known had failed"),
    Column("pass_at_1_best", F, "The same if every trial that is not known had passed"),
    Column("n_tasks", I, "Tasks behind pass_at_1"),
    *(column for column in COUNTED if column.name in ("n_known", "n_unknown")),
    *MEASURED,
    BENCHMARK,
    *BOARD_FACTS,
    *CALIBRATED,
    Column(
        "superseded_by",
        S,
        "The version that superseded this one when the board was made; null for the current one",
    ),
    STATUS,
    MISSING,
    DISPUTED,
)


def _with_bounds(name: str, meaning: str) -> tuple[Column, ...]:
    return (
        Column(name, F, f"{meaning}; null when unknown"),
        Column(f"{name}_low", F, "Lower 95 % bound; null with fewer than two clusters"),
        Column(f"{name}_high", F, "Upper 95 % bound"),
    )


DECLARED: tuple[Table[Any], ...] = (
    Table(
        "leaderboard",
        "one row per agent: the board of one version",
        ("methodology_version", "agent_id"),
        _BOARD,
        ("methodology_version",),
    ),
    Table(
        "board_inputs",
        "one row per agent of a board: what its row was made from",
        ("methodology_version", "agent_id"),
        (VERSION, AGENT, *INPUTS),
        ("methodology_version",),
    ),
    Table(
        "board_changes",
        "one row per agent and change of its composite, rank or status on the board of a version; rows are only added",
        ("methodology_version", "agent_id", "changed_at"),
        (
            VERSION,
            AGENT,
            Column("changed_at", TIME, "When the run made the board, ISO 8601 in UTC", nullable=False),
            Column("name", S, "Display name"),
            Column("template", S, "Domain template; of the earlier row when the agent left the board"),
            Column("old_composite", F, "Composite before, 0–100; null without one"),
            Column("new_composite", F, "Composite after, 0–100; null without one"),
            Column("old_composite_exact", S, "Before, as an exact fraction"),
            Column("new_composite_exact", S, "After, as an exact fraction"),
            Column("old_rank", I, "Rank before; null when it had none"),
            Column("new_rank", I, "Rank after; null when it has none"),
            Column("old_status", SCORE_STATUS, "Status before; null when the agent is new on the board"),
            Column("new_status", SCORE_STATUS, "Status after; null when the agent left the board"),
            Column(
                "cause",
                S,
                "What changed: session, rating, judge, methodology or code, several joined by ' + '",
                nullable=False,
            ),
            Column(
                "cause_agents",
                NAMES,
                "Whose: the agent itself, or those that moved when only its rank changed",
                nullable=False,
            ),
        ),
    ),
    Table(
        "board_history",
        "one row per agent and state of its row of table leaderboard; rows are only added, when a value changed",
        ("methodology_version", "agent_id", "recorded_at"),
        (
            *_BOARD,
            Column("recorded_at", TIME, "When the run made the board, ISO 8601 in UTC", nullable=False),
            Column(
                "is_on_board", B, "False: the agent left the board, with these last values", nullable=False
            ),
        ),
    ),
    Table(
        "pairwise_comparisons",
        "one row per two published agents of a template, compared over their sessions",
        ("methodology_version", "agent_id", "other_agent_id"),
        (
            VERSION,
            AGENT,
            Column("other_agent_id", S, "The other agent; agent_id < other_agent_id", nullable=False),
            Column("template", S, "Domain template"),
            Column("difference", F, "Composite of agent_id minus that of the other", nullable=False),
            Column("low", F, "Lower 95 % bound of the difference; null when one has a single session"),
            Column("high", F, "Upper 95 % bound"),
            Column("probability_better", F, "That agent_id is truly the better one, 0–1, flat prior"),
            Column(
                "smallest_detectable",
                F,
                "True difference in points that these sessions show with 80 % power at a two-sided 5 %; null with the interval",
            ),
            Column("p_value", F, "Two-sided, Welch's t over sessions"),
            Column("p_holm", F, "The same, corrected for all pairs of the template after Holm"),
            Column("n_sessions", I, "Sessions of agent_id", nullable=False),
            Column("other_n_sessions", I, "Sessions of the other", nullable=False),
            Column(
                "verdict", COMPARISON, "better, worse, tie, not distinguishable or unknown", nullable=False
            ),
            Column("reason", S, "Why a significant difference is unknown; null otherwise"),
        ),
        ("methodology_version",),
    ),
    Table(
        "reliability_leaderboard",
        "one row per agent, task set, k and estimator, ranked",
        ("methodology_version", "agent_id", "task_set", "k", "estimator"),
        (
            VERSION,
            AGENT,
            Column("task_set", S, "The set of tasks: agents are ranked within it", nullable=False),
            Column(
                "rank",
                I,
                "By pass_hat_k within task_group, ties shared; null without an estimate or a common task, or where worst and "
                "best could turn it",
            ),
            Column("rank_low", I, "Best rank that worst and best allow"),
            Column("rank_high", I, "Worst rank that worst and best allow"),
            Column(
                "task_group",
                I,
                "Agents of one number have tasks in common and are ranked together; null without a common task",
            ),
            Column("n_common_tasks", I, "Tasks that all agents of the task_group were estimated on"),
            *PASS_K,
            *CALIBRATED,
        ),
        ("methodology_version",),
    ),
    Table(
        "log_leaderboard",
        "one row per agent whose conversations fill no slot: headline figures of its logs, without ranks",
        ("methodology_version", "agent_id"),
        (
            VERSION,
            AGENT,
            Column("name", S, "Display name"),
            Column("n_conversations", I, "Admitted conversations", nullable=False),
            Column("n_sessions", I, "Their sessions", nullable=False),
            *_with_bounds("success_rate", "Mean of known outcomes, 0–1"),
            *_with_bounds("helpfulness_1to5", "Mean helpfulness over conversations, 1–5"),
            *_with_bounds("behavior_failure_rate", "Share of judged turns with a behaviour failure, 0–1"),
            *_with_bounds("tool_failure_rate", "Share of judged turns with a failed use of a tool, 0–1"),
            *_with_bounds("cost_usd_per_conversation", "Mean cost of a conversation, US dollars"),
            Column("n_scored", I, "Answers of judges, people and rules", nullable=False),
            Column("n_unscored", I, "Answers that were lost or that people differ on", nullable=False),
            Column(
                "n_unasked",
                I,
                "Answers that only a judge model could give, and none was asked",
                nullable=False,
            ),
            Column("judges", NAMES, "Who answered, sorted", nullable=False),
            Column(
                "top_cluster_id",
                S,
                "The most severe error cluster, of these the one of most turns; null without one",
            ),
            Column("top_error", S, "Its short name"),
            Column("severity", SEVERITY, "Its severity: low < medium < high < critical"),
            Column(
                "top_error_rate_per_100_turns",
                F,
                "Its rate per 100 judged turns; null when only rules saw it",
            ),
            *CALIBRATED,
        ),
        ("methodology_version",),
    ),
)
