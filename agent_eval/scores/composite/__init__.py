"""Compute universal, domain and composite scores from rubric ratings, and the leaderboard.

The arithmetic is exact: scores are compared and ranked as fractions. Weights and penalties are defined in
`methodology`.
"""

from agent_eval.scores.composite.score import composite

__all__ = ["composite"]
