"""Define closed vocabularies, which are column types with a fixed set of words.

Such a column is `pl.Enum` in a frame and VARCHAR in the store. Words without an order are listed alphabetically, so
that sorting in polars gives the same order as sorting the texts in SQL. Metrics, failure labels, judges and gates are text
columns, because a project can add its own names, and gates register themselves.
"""

import polars as pl


def _words(*words: str) -> pl.Enum:
    return pl.Enum(sorted(words))


SEVERITY = pl.Enum(["low", "medium", "high", "critical"])
"""Severities in ascending order.

In polars, `pl.col("severity") >= "high"` includes critical. In SQL, the column is text, so use `severity_rank >= 3`;
`severity_rank` is the position in this order, from 1.
"""

JUDGMENT_STATUS = _words("scored", "unscored", "missing", "invalid", "disputed", "not_applicable")
"""Status words of both judgments and rubric ratings, so that their frames can be concatenated."""
SCORE_STATUS = _words("published", "provisional", "incomplete", "invalid", "not_applicable")
TOOL_STATUS = _words("scored", "not_applicable", "unscored")
OUTCOME_CLASS = _words("passed", "failed", "agent_error", "harness_error", "unexplained_error", "unknown")
OUTCOME_BASIS = _words("declared", "reward", "error", "exit", "contradicting")
RESULT = _words("passed", "failed", "unknown")
REQUESTOR = _words("assistant", "user")
U3_SCOPE = _words("single_message", "multi_turn")
RATER_ROLE = _words("adjudicator", "judge")
STARTED_BY = _words("person", "automation")
FAULT_AUTHOR = _words("agent", "environment")
ASSIGNED_BY = _words("minted", "prototype", "human", "block", "learned", "consolidation")
MERGED_BY = _words("human", "consolidation", "model", "regrouping")
CLUSTER_EVENT = _words("merge", "split", "merge proposed", "moved")
ISSUE_STATUS = _words("open", "fixed", "came back")
TREND = _words("new", "gone", "regressed", "improved", "unchanged", "unknown")
ASSERTION_KIND = _words("tools", "trajectory", "text")
ESTIMATOR = _words("unbiased", "plug_in", "bayesian", "pooled")
ESTIMAND = _words("new tasks of this kind", "these tasks again")
ASSESSMENT = _words(
    "reliable", "inconsistent", "needs improvement", "between (not rated)", "single run", "unknown"
)
INTERVAL_METHOD = _words("t", "t_near_end", "bounded")
COMPARISON = _words("better", "worse", "tie", "not distinguishable", "unknown")
CALIBRATION_REFERENCE = _words("people", "declared outcomes", "annotations")
CALIBRATION = _words("calibrated", "stale", "not calibrated")
