"""Run `dagster-webserver` and the report behind the guard; started by `defs.ui.dev`."""

from typing import Any

from dagster_webserver import cli

from agent_eval.defs.ui.guard import App, Guard, allowed_hosts
from agent_eval.defs.ui.report import WithReport, pages_of_project

_create_app = getattr(cli, "create_app_from_workspace_process_context")  # noqa: B009  # not one of its interface


def guarded_app(*args: Any, **kwargs: Any) -> App:
    """Create Dagster's application with the report beside it and the guard around both."""
    return Guard(WithReport(_create_app(*args, **kwargs), pages_of_project()), allowed_hosts())


if __name__ == "__main__":
    setattr(cli, "create_app_from_workspace_process_context", guarded_app)  # noqa: B010
    cli.cli(auto_envvar_prefix="DAGSTER_WEBSERVER")
