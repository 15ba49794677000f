"""Implement the `agent-eval` commands. `declared` has their arguments, options and help.

The package uses Rich and the stores; formulas, SQL and prompts belong in other packages.
"""
