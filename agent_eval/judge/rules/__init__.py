"""Decide by rules what can be decided reliably without a model, and abstain on everything else.

A rule reports only definite failures, because a false alarm blames an agent wrongly. No finding means "not
assessed", not "no failure". There is one module per check, whose docstring defines it.
"""

from agent_eval.judge.rules.declared import AUTONOMY, autonomy
from agent_eval.judge.rules.finding import RULE
from agent_eval.judge.rules.judge import RulesJudge
from agent_eval.metrics.base import NEEDS_MODEL

__all__ = ["AUTONOMY", "NEEDS_MODEL", "RULE", "RulesJudge", "autonomy"]
