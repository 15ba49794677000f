"""Implement `agent-eval ui`: serve the Dagster UI of the project."""

import json
import os
import sys
from typing import NoReturn

from rich.console import Console

from agent_eval.definitions import defs
from agent_eval.defs.launch import Launch, dagster_home
from agent_eval.defs.ui.guard import HOSTS, WITHOUT_TOKEN, kept_token
from agent_eval.project import Project
from agent_eval.project.data_versions import read_sources


def ui(project: Project, err: Console, *, host: str, port: int, has_token: bool = True) -> NoReturn:
    """Prepare DAGSTER_HOME, observe the sources and serve the UI until interrupted; telemetry is disabled.

    The server accepts requests only from its own pages, under the name of this machine, `host` or `ui_allowed_hosts`,
    and with the token in the printed address, unless `has_token` is false.

    Raises:
        StorageError: If the file of the token is empty or cut.
    """
    agents, versions = project.known_agents(), list(project.registry.versions)
    with project.store.exclusive_section("run", wait=False) as is_idle:
        if is_idle:  # otherwise the sensor observes the sources
            launch = Launch.at(project, defs, read_sources(project, agents, versions))
            with launch.close_abandoned_runs():
                launch.observe(agents=agents, versions=versions)
    root = project.home.root
    workspace = root / "workspace.yaml"
    source = ["-w", str(workspace)] if workspace.is_file() else ["-m", "agent_eval.definitions"]
    command = [sys.executable, "-m", "agent_eval.defs.ui.dev", "dev", *source, "-h", host, "-p", str(port)]
    environment = os.environ | {
        "DAGSTER_HOME": str(dagster_home(root)),
        "AGENT_EVAL_HOME": str(root),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        HOSTS: json.dumps([*project.settings.ui_allowed_hosts, host]),
        WITHOUT_TOKEN: "" if has_token else "1",
    }
    token = f"/?token={kept_token(dagster_home(root))}" if has_token else ""
    url_host = f"[{host}]" if ":" in host else host
    err.print(f"Dagster UI on http://{url_host}:{port}{token} (Ctrl-C to stop)", markup=False, soft_wrap=True)
    os.chdir(root)
    os.execve(command[0], command, environment)  # replaces this process, so that signals reach Dagster
