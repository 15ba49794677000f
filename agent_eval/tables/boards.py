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
    MIXED,
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
    Column("template", S, "Domain template, within which agents are ranked"),
    Column(
        "rank", I, "Competition rank (1, 2, 2, 4) among published rows of the template; null if not published"
    ),
    Column("rank_low", I, "Best rank that the intervals allow; null if the agent has no interval"),
    Column(
        "rank_high",
        I,
        "Worst rank that the intervals allow, if agents without an interval may have any rank; null if the agent has no interval",
    ),
    Column("rank_if_tested", I, "Hypothetical rank in the template without penalties"),
    Column("rank_overall", I, "Rank over all templates, whose rubrics differ; interpret with caution"),
    *COMPOSED,
    Column(
        "low", F, "Lower 95 % bound of the composite over sessions, 0–100; null with fewer than two sessions"
    ),
    Column(
        "high", F, "Upper 95 % bound of the composite over sessions, 0–100; null with fewer than two sessions"
    ),
    Column(
        "interval_method",
        INTERVAL_METHOD,
        "t; t_near_end (t, but there are fewer than 20 sessions, all within 5 points of an end of the scale, so that the spread "
        "of other sessions is unknown); or bounded (valid for any spread of sessions); null without an interval",
    ),
    Column(
        "smallest_detectable",
        F,
        "True difference in points, from an agent with the same number and spread of sessions, that is found with 80 % power "
        "at a two-sided 5 %; null with fewer than two sessions",
    ),
    Column(
        "lead_points",
        F,
        "Lead in points over the next agent of the template (0 for a tie); null for the last agent",
    ),
    Column("point_0to100", F, "Largest change of the composite by one rating point in one session, 0–100"),
    Column(
        "lead_survives_point",
        B,
        "Whether the lead is larger than any change by one rating point of either agent; null for the last agent",
    ),
    Column(
        "is_pareto",
        B,
        "Whether no other agent of the template has both a composite at least as high and a cost per conversation at least as low, one of them strictly better; null if the cost is unknown",
    ),
    Column(
        "cost_usd_per_conversation",
        F,
        "Cost of the admitted conversations divided by their number, US dollars; null if any cost is unknown",
    ),
    Column("n_sessions", I, "Number of sessions averaged", nullable=False),
    *DISCLOSED,
    Column(
        "pass_at_1",
        F,
        "Mean share of correct trials over tasks, 0–1; null if unknown or if there are several task sets",
    ),
    Column("pass_at_1_worst", F, "pass_at_1 with every unknown trial counted as failed, 0–1"),
    Column(
        "pass_at_1_best",
        F,
        "pass_at_1 with every unknown trial, and every failure by an error of unknown cause, counted as passed, 0–1",
    ),
    Column("n_tasks", I, "Tasks with a known trial, over which pass_at_1 is averaged"),
    *(column for column in COUNTED if column.name in ("n_known", "n_unknown")),
    *MEASURED,
    BENCHMARK,
    *BOARD_FACTS,
    *MIXED,
    *CALIBRATED,
    Column(
        "superseded_by",
        S,
        "Version that had superseded this one when the board was made; null for the current version",
    ),
    STATUS,
    MISSING,
    DISPUTED,
)


def _with_bounds(name: str, meaning: str) -> tuple[Column, ...]:
    return (
        Column(name, F, f"{meaning}; null if unknown"),
        Column(f"{name}_low", F, f"Lower 95 % bound of {name}; null with fewer than two clusters"),
        Column(f"{name}_high", F, f"Upper 95 % bound of {name}; null with fewer than two clusters"),
    )


def _of_judge(name: str) -> Column:
    words = f"{name} before the labels of rating sheets correct it; null if no such label does"
    return Column(f"{name}_of_judge", F, words)


DECLARED: tuple[Table[Any], ...] = (
    Table(
        "leaderboard",
        "one row per agent on the board of a version",
        ("methodology_version", "agent_id"),
        _BOARD,
        ("methodology_version",),
    ),
    Table(
        "board_inputs",
        "one row per agent on a board, with the inputs of its row",
        ("methodology_version", "agent_id"),
        (VERSION, AGENT, *INPUTS),
        ("methodology_version",),
    ),
    Table(
        "board_changes",
        "one row per change of an agent's composite, rank or status on the board of a version; rows are only added",
        ("methodology_version", "agent_id", "changed_at"),
        (
            VERSION,
            AGENT,
            Column(
                "changed_at",
                TIME,
                "Time of the run that made the board, ISO 8601 in UTC",
                nullable=False,
                is_content=False,
            ),
            Column("name", S, "Display name"),
            Column(
                "template",
                S,
                "Domain template; that of the earlier row if the agent was removed from the board",
            ),
            Column("old_composite", F, "Composite before the change, 0–100; null without one"),
            Column("new_composite", F, "Composite after the change, 0–100; null without one"),
            Column("old_composite_exact", S, "Composite before the change, as an exact fraction"),
            Column("new_composite_exact", S, "Composite after the change, as an exact fraction"),
            Column("old_rank", I, "Rank before the change; null without one"),
            Column("new_rank", I, "Rank after the change; null without one"),
            Column(
                "old_status", SCORE_STATUS, "Status before the change; null if the agent is new on the board"
            ),
            Column(
                "new_status",
                SCORE_STATUS,
                "Status after the change; null if the agent was removed from the board",
            ),
            Column(
                "cause",
                S,
                "Inputs that changed: session, rating, judge, methodology or code; several are joined by ' + '",
                nullable=False,
            ),
            Column(
                "cause_agents",
                NAMES,
                "Agents whose inputs changed: the agent itself, or other agents if only its rank changed",
                nullable=False,
            ),
        ),
    ),
    Table(
        "board_history",
        "one row per recorded state of an agent's row in table leaderboard; rows are only added, whenever a value changes",
        ("methodology_version", "agent_id", "recorded_at"),
        (
            *_BOARD,
            Column(
                "recorded_at",
                TIME,
                "Time of the run that made the board, ISO 8601 in UTC",
                nullable=False,
                is_content=False,
            ),
            Column(
                "is_on_board",
                B,
                "Whether the agent is on the board; if false, it was removed and the row has its last values",
                nullable=False,
            ),
        ),
    ),
    Table(
        "pairwise_comparisons",
        "one row per pair of published agents of a template, compared over their sessions",
        ("methodology_version", "agent_id", "other_agent_id"),
        (
            VERSION,
            AGENT,
            Column(
                "other_agent_id", S, "Id of the other agent, where agent_id < other_agent_id", nullable=False
            ),
            Column("template", S, "Domain template"),
            Column(
                "difference",
                F,
                "Composite of agent_id minus that of other_agent_id, in points",
                nullable=False,
            ),
            Column("low", F, "Lower 95 % bound of the difference; null if either agent has a single session"),
            Column(
                "high", F, "Upper 95 % bound of the difference; null if either agent has a single session"
            ),
            Column(
                "probability_better", F, "Probability that agent_id is truly better, 0–1, with a flat prior"
            ),
            Column(
                "smallest_detectable",
                F,
                "True difference in points that these sessions show with 80 % power at a two-sided 5 %; null if the interval is",
            ),
            Column("p_value", F, "Two-sided p of Welch's t test over sessions, 0–1"),
            Column("p_holm", F, "p_value corrected for all pairs of the template after Holm, 0–1"),
            Column("n_sessions", I, "Sessions of agent_id", nullable=False),
            Column("other_n_sessions", I, "Sessions of other_agent_id", nullable=False),
            Column(
                "verdict", COMPARISON, "better, worse, tie, not distinguishable or unknown", nullable=False
            ),
            Column(
                "reason", S, "Reason why the verdict on a significant difference is unknown; null otherwise"
            ),
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
            Column("task_set", S, "Task set, within which agents are ranked", nullable=False),
            Column(
                "rank",
                I,
                "Rank by pass_hat_k within task_group, with shared ranks for ties; null without an estimate or a common task, or "
                "if the worst or best case could change it",
            ),
            Column("rank_low", I, "Best rank that the worst and best cases allow"),
            Column("rank_high", I, "Worst rank that the worst and best cases allow"),
            Column(
                "task_group",
                I,
                "Number of the group of agents that have tasks in common and are ranked together; null without a common task",
            ),
            Column("n_common_tasks", I, "Tasks in the estimates of all agents of the task_group"),
            *PASS_K,
            *CALIBRATED,
        ),
        ("methodology_version",),
    ),
    Table(
        "log_leaderboard",
        "one row per agent whose conversations fill no slot, with headline figures of its logs and without ranks",
        ("methodology_version", "agent_id"),
        (
            VERSION,
            AGENT,
            Column("name", S, "Display name"),
            Column("n_conversations", I, "Admitted conversations", nullable=False),
            Column("n_sessions", I, "Sessions of these conversations", nullable=False),
            *_with_bounds("success_rate", "Mean of known outcomes, 0–1"),
            _of_judge("success_rate"),
            *_with_bounds("helpfulness_1to5", "Mean helpfulness over conversations, 1–5"),
            _of_judge("helpfulness_1to5"),
            Column(
                "helpfulness_by_rule",
                S,
                "Turns that rules rated if there is no mean, e.g. '1 of 100 turns, by rule'",
            ),
            *_with_bounds("behavior_failure_rate", "Share of judged turns with a behaviour failure, 0–1"),
            _of_judge("behavior_failure_rate"),
            *_with_bounds("tool_failure_rate", "Share of judged turns with a tool failure, 0–1"),
            _of_judge("tool_failure_rate"),
            *_with_bounds("cost_usd_per_conversation", "Mean cost of a conversation, US dollars"),
            Column("n_scored", I, "Answers of judges, people and rules", nullable=False),
            Column("n_unscored", I, "Answers that were lost or disputed between people", nullable=False),
            Column(
                "n_unasked",
                I,
                "Missing answers that only a judge model could give, because none was asked",
                nullable=False,
            ),
            Column("judges", NAMES, "Judges that answered, sorted", nullable=False),
            Column(
                "top_cluster_id",
                S,
                "Most severe error cluster, or the one with the most turns among several; null without a cluster",
            ),
            Column("top_error", S, "Title of this cluster"),
            Column("severity", SEVERITY, "Severity of this cluster: low < medium < high < critical"),
            Column(
                "top_error_rate_per_100_turns",
                F,
                "Rate of this cluster per 100 judged turns; null if only rules reported it",
            ),
            *CALIBRATED,
        ),
        ("methodology_version",),
    ),
)
