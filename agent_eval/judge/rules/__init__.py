"""Answer by rules the questions that can be answered reliably without a model, and abstain on all others.

A rule reports only definite failures, because a false alarm would blame an agent wrongly. No finding means "not
assessed", not "no failure". The docstring of each module defines its checks.
"""

from agent_eval.judge.rules.declared import AUTONOMY, autonomy
from agent_eval.judge.rules.finding import RULE
from agent_eval.judge.rules.judge import RulesJudge, first_failure
from agent_eval.metrics.base import NEEDS_MODEL

__all__ = ["AUTONOMY", "NEEDS_MODEL", "RULE", "RulesJudge", "autonomy", "first_failure"]
