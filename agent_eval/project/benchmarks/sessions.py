"""Hold benchmark sessions for Dagster: which agents can be run, whether a cap is set, and what a run did."""

import json
from collections.abc import Sequence
from pathlib import Path

from agent_eval.errors import JudgeError
from agent_eval.judge.llm.progress import Watch
from agent_eval.project.project import Project
from agent_eval.simulate.preparation import prepared
from agent_eval.simulate.runner import SimulationReport
from agent_eval.transcripts.sessions import CONVERSATIONS

CAPS = (
    "max_calls",
    "max_cost_usd",
    "max_calls_per_day",
    "max_cost_usd_per_day",
    "max_calls_in_all",
    "max_cost_usd_in_all",
)
OF_AUTOMATION = ("automation_max_calls_per_day", "automation_max_cost_usd_per_day")


def runnable_agents(project: Project) -> list[str]:
    """Return the agents of agents.yaml that have an endpoint, sorted."""
    return sorted(name for name, agent in project.declared[0].items() if agent.endpoint is not None)


def hold_sessions(
    project: Project, agents: Sequence[str], suites: Sequence[str], n_sessions: int, seed: int, watch: Watch
) -> SimulationReport:
    """Hold the missing conversations of these agents, and write their sessions.

    Raises:
        JudgeError: If no cap applies; a schedule needs a cap for automation.
    """
    names = OF_AUTOMATION if project.origin.is_automatic else CAPS
    if all(getattr(project.settings, name) is None for name in names):
        raise JudgeError(
            f"No agent was started, because no cap is set. Set one of {', '.join(names)} in agent_eval.toml."
        )
    simulation = prepared(project.simulation_setup(), agents, suites, n_sessions=n_sessions, seed=seed)
    return simulation.run(watch)


def conversation_ids(folder: Path) -> list[str]:
    """Return the ids of the conversations of a session, in order."""
    lines = (folder / CONVERSATIONS).read_bytes().splitlines()  # a text would also be split at U+2028
    return [str(json.loads(line)["conversation_id"]) for line in lines]


def session_folders(project: Project, agents: Sequence[str], report: SimulationReport) -> list[Path]:
    """Return the folders of the sessions of a run that are complete."""
    folders = [project.home.sessions / agent / name for agent in agents for name in report.sessions]
    return [folder for folder in folders if folder.is_dir()]
