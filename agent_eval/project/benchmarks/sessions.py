"""Hold benchmark sessions for Dagster: which agents can be run, whether a cap is set, and what a run did."""

import json
from collections.abc import Sequence
from pathlib import Path

from agent_eval.errors import JudgeError
from agent_eval.judge.llm.progress import Watch
from agent_eval.project.project import Project
from agent_eval.settings import BudgetSettings
from agent_eval.simulate.preparation import prepared
from agent_eval.simulate.runner import SimulationReport
from agent_eval.transcripts.sessions import CONVERSATIONS


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
    is_automatic = project.origin.is_automatic
    names = [n for n in BudgetSettings.model_fields if n.startswith("automation_") == is_automatic]
    if all(getattr(project.settings.budget, name) is None for name in names):
        raise JudgeError(
            f"No agent was started, because no cap is set. Set one of {', '.join(names)} in the table [budget] of agent_eval.toml."
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
