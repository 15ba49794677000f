"""Implement the `agent-eval` commands. `cli.py` parses arguments and calls this package, which prints the results.

The package uses Rich and the stores; formulas, SQL and prompts belong in other packages.
"""
