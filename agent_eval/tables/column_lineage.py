"""Declare the columns that each column of a score or board is computed from, for the Dagster UI."""

from collections.abc import Iterator, Mapping

from agent_eval.tables.schema import table

Origin = tuple[str, str]
"""A table and one of its columns."""

_RATING = ("target", "criterion", "rating_1to5", "is_effective")
_U, _D = tuple(f"u{i}" for i in range(1, 7)), tuple(f"d{i}" for i in range(1, 6))
_RATED = {
    **dict.fromkeys(("judges", "judge_models"), ("judge", "is_effective")),
    **dict.fromkeys(("n_unscored", "is_disputed", "missing"), ("status", "reason", "target", "criterion")),
    **dict.fromkeys(("session_ids", "n_sessions"), ("session_id",)),
    "criteria": ("criterion",),
}
_SCORE = ("universal_exact", "domain_exact")
_PENALISED = (*_SCORE, "session_universal", "session_domain", "repeatability_tested")
_RANKED = ("composite_exact", "status", "template", "session_scores", "point_0to100", "repeatability_penalty")

_MEAN = ("mean", "low", "high", "mean_of_judge", "n_labels_drawn", "n_labels_own", "n_conversations")
_SUMMARISED = {
    **dict.fromkeys(_MEAN, ("metric", "rating_1to5", "value", "label", "status", "is_effective")),
    **dict.fromkeys(("n_scored", "n_unscored", "n_unasked", "unscored_share"), ("status", "unscored_reason")),
    **dict.fromkeys(("quantity", "scale_low", "scale_high"), ("metric",)),
    "judges": ("judge",),
}
_BOUNDS = {"": "mean", "_low": "low", "_high": "high", "_of_judge": "mean_of_judge"}
_HEADLINES = (
    *("success_rate", "helpfulness_1to5", "behavior_failure_rate", "tool_failure_rate"),
    "cost_usd_per_conversation",
)

_CARRIED: Mapping[str, tuple[str, ...]] = {
    "universal_scores": ("rubric_ratings",),
    "domain_scores": ("rubric_ratings", "transcripts"),
    "composite_scores": ("universal_scores", "domain_scores", "sessions", "conversations"),
    "leaderboard": ("composite_scores", "reliability", "agents"),
    "reliability_leaderboard": ("reliability",),
    "pairwise_comparisons": ("composite_scores",),
    "quality_summary": ("transcripts",),
    "log_leaderboard": ("transcripts", "agents", "error_clusters"),
}
"""Table → the tables whose columns it carries on under the same name; where several have the column, all of them."""

_CALIBRATED = {
    "calibration": ("metric", "judge", "rubric_hash", "is_stale", "kappa_low", "weighted_kappa_low"),
    "calibration_metric": ("metric",),
    "calibration_judge": ("judge",),
    "calibration_n": ("n",),
    "calibration_agreement": ("raw_agreement",),
    **{f"calibration_kappa{end}": (f"kappa{end}", f"weighted_kappa{end}") for end in ("", "_low", "_high")},
    **dict.fromkeys(("n_metrics_calibrated", "n_metrics_judged"), ("metric",)),
}

_COMPUTED: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "universal_scores": {
        "rubric_ratings": {
            **dict.fromkeys((*_U, "session_universal", "universal_0to100", "universal_exact"), _RATING),
            **_RATED,
        }
    },
    "domain_scores": {
        "rubric_ratings": {
            **dict.fromkeys((*_D, *(f"{d}_c{i}" for d in _D for i in (1, 2, 3))), _RATING),
            **dict.fromkeys(("session_domain", "domain_0to100", "domain_exact"), _RATING),
            **_RATED,
        }
    },
    "composite_scores": {
        "universal_scores": {
            **dict.fromkeys(("composite_score", "composite_exact"), _SCORE[:1]),
            **dict.fromkeys(("raw_composite_score", "raw_composite_exact", "status"), _SCORE[:1]),
            "session_scores": ("session_universal",),
            "judge": ("judges",),
        },
        "domain_scores": {
            **dict.fromkeys(("composite_score", "composite_exact"), _SCORE[1:]),
            **dict.fromkeys(("raw_composite_score", "raw_composite_exact", "status"), _SCORE[1:]),
            "session_scores": ("session_domain",),
            "judge": ("judges",),
        },
        "sessions": {
            **dict.fromkeys(
                ("repeatability_penalty", "composite_score", "composite_exact"), ("repeatability_tested",)
            ),
            "session_dates": ("session_date",),
            "evaluators": ("evaluator",),
        },
        "conversation_judgments": {
            **dict.fromkeys(
                ("n_judged", "n_seen_in_part", "least_seen_share"), ("judge", "status", "seen_share")
            ),
            **dict.fromkeys(("n_sampled", "n_to_sample"), ("conversation_id", "unscored_reason")),
            "several_models": ("judge", "response_model"),
            **dict.fromkeys(
                (
                    "goal_completion",
                    "goal_completion_of_judge",
                    "n_goal_completion",
                    "n_goal_unknown",
                    "hallucination_passed",
                ),
                ("metric", "value", "status", "is_effective"),
            ),
            **dict.fromkeys(("goal_completion_worst", "goal_completion_best"), ("metric", "value", "status")),
        },
        "conversations": {
            **dict.fromkeys(
                ("n_planned", "n_harness_errors", "n_unexplained_errors", "goal_completion"),
                ("outcome_class",),
            ),
            "n_conversations": ("conversation_id",),
            "suites": ("metadata",),
        },
        "import_errors": {"n_refused": ("session_id", "line"), "refused_sessions": ("session_id",)},
    },
    "leaderboard": {
        "composite_scores": {
            **dict.fromkeys(
                (
                    *("rank", "rank_low", "rank_high", "rank_if_tested", "rank_overall", "low", "high"),
                    *("lead_points", "lead_survives_point", "interval_method", "smallest_detectable"),
                ),
                _RANKED,
            ),
            "is_pareto": (*_RANKED, "cost_usd"),
            "cost_usd_per_conversation": ("cost_usd", "n_conversations"),
        },
        "reliability": dict.fromkeys(("n_tasks", "n_known", "n_unknown", "is_pareto"), ("pass_at_1", "k")),
        "judge_calibration": _CALIBRATED,
    },
    "reliability_leaderboard": {
        "reliability": dict.fromkeys(
            ("rank", "rank_low", "rank_high", "task_group", "n_common_tasks"), ("pass_hat_k", "tasks")
        ),
        "judge_calibration": _CALIBRATED,
    },
    "pairwise_comparisons": {
        "composite_scores": {
            **dict.fromkeys(
                (
                    *("difference", "low", "high", "probability_better", "p_value", "p_holm", "verdict"),
                    *("reason", "smallest_detectable"),
                ),
                ("composite_exact", "session_scores", "point_0to100", "repeatability_penalty", "status"),
            ),
            "other_agent_id": ("agent_id",),
            "other_n_sessions": ("n_sessions",),
        }
    },
    "quality_summary": {
        "turn_judgments": _SUMMARISED,
        "conversation_judgments": _SUMMARISED,
        "conversations": dict.fromkeys(
            (*_MEAN, "n_scored", "n_unscored", "unscored_share"), ("outcome_correct", "cost_usd")
        ),
        "transcripts": dict.fromkeys(("n_clusters", "clustered_by"), ("session_id", "task_id")),
    },
    "log_leaderboard": {
        "quality_summary": {
            **{
                f"{name}{end}": ("quantity", value)
                for name in _HEADLINES
                for end, value in _BOUNDS.items()
                if (name, end) != (_HEADLINES[-1], "_of_judge")
            },
            **{name: (name,) for name in ("n_scored", "n_unscored", "n_unasked", "judges")},
            "helpfulness_by_rule": ("quantity", "n_scored", "n_unasked"),
        },
        "transcripts": {"n_conversations": ("is_admitted",), "n_sessions": ("session_id",)},
        "error_clusters": {
            "top_cluster_id": ("cluster_id", "severity", "n_turns"),
            "top_error": ("title",),
            "top_error_rate_per_100_turns": ("rate_per_100_turns",),
        },
        "judge_calibration": _CALIBRATED,
    },
}
"""Table → parent → column → the parent's columns that it is computed from."""


def column_lineage(name: str) -> dict[str, tuple[Origin, ...]]:
    """Return the columns of parent tables that each column of a score or board table is computed from.

    Other tables, and columns that are computed only from files or settings, have no entries.
    """
    if name not in _CARRIED:
        return {}
    found = {column: tuple(dict.fromkeys(_origins(name, column))) for column in table(name).schema}
    return {column: origins for column, origins in found.items() if origins}


def _origins(name: str, column: str) -> Iterator[Origin]:
    for parent in _CARRIED[name]:
        if column in table(parent).schema:
            yield parent, column
    for parent, computed in _COMPUTED[name].items():
        for origin in computed.get(column, ()):
            yield parent, origin
