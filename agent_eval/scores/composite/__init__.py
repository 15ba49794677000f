"""Composite: from rubric ratings to universal, domain and composite scores, and the leaderboard.

The arithmetic is exact: scores are compared and ranked as fractions. Weights and penalties belong in `methodology`.
"""

from agent_eval.scores.composite.score import composite

__all__ = ["composite"]
