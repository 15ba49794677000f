"""Compute reliability from trials: pass@k and pass^k with intervals."""

from agent_eval.scores.reliability.attempts import pass_at_k, pass_hat_k, posterior

__all__ = ["pass_at_k", "pass_hat_k", "posterior"]
