"""Run `dagster dev` with the guarded web server instead of Dagster's own."""

from agent_eval.defs.dagster_internals import run_dev_with_webserver

if __name__ == "__main__":
    run_dev_with_webserver("agent_eval.defs.ui.webserver")
