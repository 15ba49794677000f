"""Boards: leaderboards and pairwise comparisons."""

from agent_eval.tables.columns import (
    AGENT,
    BENCHMARK,
    BOARD_FACTS,
    COMPOSED,
    COUNTED,
    DISCLOSED,
    DISPUTED,
    MEASURED,
    MISSING,
    PASS_K,
    STATUS,
    VERSION,
    B,
    F,
    I,
    S,
)
from agent_eval.tables.contract import Column, Table

DECLARED = (
    Table(
        "leaderboard",
        "one row per agent: the board of one version",
        ("methodology_version", "agent_id"),
        (
            VERSION,
            AGENT,
            Column("name", S, "Display name"),
            Column("template", S, "Domain template: ranks are within it"),
            Column(
                "rank", I, "Competition rank (1, 2, 2, 4) among published rows of the template; else null"
            ),
            Column("rank_low", I, "Best rank that the intervals allow; null without an interval of its own"),
            Column(
                "rank_high", I, "Worst rank that the intervals allow; peers without one may stand anywhere"
            ),
            Column("rank_if_tested", I, "What if: rank in the template had no agent paid the penalty"),
            Column("rank_overall", I, "Rank over all templates: rubrics differ, read with care"),
            *COMPOSED,
            Column("low", F, "Lower 95 % bound of the composite, over sessions; null with fewer than two"),
            Column("high", F, "Upper 95 % bound"),
            Column(
                "lead_points", F, "Points above the next one of the template (0: shared); null for the last"
            ),
            Column("point_0to100", F, "The most that one rating point in one session moves the composite"),
            Column(
                "lead_survives_point", B, "The lead is larger than one rating point of either agent moves"
            ),
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
            Column(
                "superseded_by",
                S,
                "The version that superseded this one when the board was made; null for the current one",
            ),
            STATUS,
            MISSING,
            DISPUTED,
        ),
        ("methodology_version",),
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
            Column("p_value", F, "Two-sided, Welch's t over sessions"),
            Column("p_holm", F, "The same, corrected for all pairs of the template after Holm"),
            Column("n_sessions", I, "Sessions of agent_id", nullable=False),
            Column("other_n_sessions", I, "Sessions of the other", nullable=False),
            Column("verdict", S, "better, worse, tie, not distinguishable or unknown", nullable=False),
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
        ),
        ("methodology_version",),
    ),
)
