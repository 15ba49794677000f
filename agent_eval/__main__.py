"""Run the command line: `python -m agent_eval` is the same as `agent-eval`."""

from agent_eval.cli import main

main()
