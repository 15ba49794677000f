"""Implement the `agent-eval` commands. `cli.py` parses arguments and calls this package, which prints the results.

Rich and the stores are used here; formulas, SQL and prompts belong in their own rooms.
"""
