"""Commands: what each `agent-eval` command does. `cli.py` parses and calls; here results are made and printed.

Rich and the stores are used here; formulas, SQL and prompts belong in their own rooms.
"""
