"""Score tool use: tool correctness, trajectories, and the assertions of `expected`."""

from agent_eval.scores.tools.correctness import tool_correctness

__all__ = ["tool_correctness"]
