"""The rules judge: what can be decided honestly without a model. On everything else it abstains.

A rule speaks only when it is sure, because a false alarm is a failure put on an agent. Its silence is never
"no failure": whoever looks at the rest has not looked yet. One module per check; each says what it decides.
"""

from agent_eval.judge.rules.declared import AUTONOMY, autonomy
from agent_eval.judge.rules.finding import RULE
from agent_eval.judge.rules.judge import RulesJudge
from agent_eval.metrics.base import NEEDS_MODEL

__all__ = ["AUTONOMY", "NEEDS_MODEL", "RULE", "RulesJudge", "autonomy"]
