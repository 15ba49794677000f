"""Run `dagster-webserver` and serve the report behind the guard. `defs.ui.dev` starts this module."""

from typing import Any

from dagster_webserver import cli

from agent_eval.defs.ui.guard import App, Guard, allowed_hosts, needed_token
from agent_eval.defs.ui.report import WithReport, pages_of_project

_create_app = getattr(cli, "create_app_from_workspace_process_context")  # noqa: B009  # not one of its interface


def guarded_app(*args: Any, **kwargs: Any) -> App:
    """Return Dagster's application, extended by the report and wrapped by the guard."""
    served = WithReport(_create_app(*args, **kwargs), pages_of_project())
    return Guard(served, allowed_hosts(), needed_token())


if __name__ == "__main__":
    setattr(cli, "create_app_from_workspace_process_context", guarded_app)  # noqa: B010
    cli.cli(auto_envvar_prefix="DAGSTER_WEBSERVER")
