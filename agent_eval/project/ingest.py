"""Ingest a project's folders into rows of the ingest tables and of human_ratings.

Files are read and checked in `transcripts` and `judge.inputs`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval import __version__
from agent_eval.formats.hashing import digest
from agent_eval.project.project import Project
from agent_eval.scores.tools.expected_calls import expected_calls
from agent_eval.tables import table
from agent_eval.transcripts.agents import policy_of
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.sessions import IngestedSession, read_sessions, sessions_hash

_BY_AGENT = ("sessions", "conversations", "turns", "tool_calls", "import_errors")


def ingest(project: Project, agents: Sequence[str]) -> dict[str, Any]:
    """Return the ingest tables of the given agents, read from their session folders.

    An agent without a folder has no rows.

    Raises:
        NotFoundError: If the data folder does not exist.
    """
    folders = project.home.existing_sessions()
    hashes = {  # computed before the files are read, so that a later change makes the rows stale
        agent: agent_sessions_hash(project, agent) for agent in agents
    }
    ingested = {
        agent: read_sessions(
            agent,
            folders / agent,
            project.settings.success_reward,
            _policy(project, agent),
            project.settings.error_causes,
        )
        for agent in agents
    }
    frames = {
        name: pl.concat([table(name).empty(), *(_part(one, name) for one in ingested.values())])
        for name in _BY_AGENT
    }
    present = [
        agent
        for agent, one in ingested.items()
        if not one.sessions.is_empty() or not one.import_errors.is_empty()
    ]
    truth = expected_calls(frames["conversations"], frames["tool_calls"])
    agents_rows = _agent_rows(project, {agent: hashes[agent] for agent in present})
    return frames | {"expected_calls": truth, "agents": agents_rows}


def ingest_fingerprint(sessions_hash: str) -> str:
    """Return the value of column `ingest_fingerprint` of table agents for session files with this hash.

    It also depends on the release and on the columns of the ingest tables. If these change, the session files are
    ingested again.
    """
    columns = [list(table(name).schema) for name in (*_BY_AGENT, "expected_calls")]
    return digest(__version__, columns, sessions_hash)


def agent_sessions_hash(project: Project, agent: str) -> str:
    """Return the hash of an agent's entry in agents.yaml and its session files; a missing folder has a hash too."""
    files = sessions_hash(project.declared[0].get(agent), project.home.sessions / agent)
    least, policy = project.settings.success_reward, _policy(project, agent)
    files = files if policy is None else digest(files, "policy", policy)
    causes = {name: list(patterns) for name, patterns in project.settings.error_causes.items()}
    files = digest(files, "error_causes", causes) if causes else files
    return files if least is None else digest(files, str(least))


def _policy(project: Project, agent: str) -> str | None:
    """Return the policy text in the file that the agent's entry names; None without such a file."""
    return policy_of(project.home.agents_file, project.declared[0].get(agent))


def store_recorded(project: Project, agents: Sequence[str], *, run_id: str) -> None:
    """Update the stored recorded verdicts, and the human ratings of the given agents, from the files."""
    project.judges.answers.sync_recorded(project.verdicts[0], run_id=run_id)
    owners = pl.DataFrame({"agent_id": list(agents)}, schema={"agent_id": pl.String})
    project.store.replace(table("human_ratings"), project.ratings_of(agents), owners, run_id=run_id)


def _agent_rows(project: Project, hashes: Mapping[str, str]) -> pl.DataFrame:
    """Return table agents for the agents in `hashes`, which contains the hash of each agent's entry and files."""
    current = project.registry.current
    entries = [project.declared[0].get(agent) or Agent(agent_id=agent) for agent in hashes]
    templates = [current.template_for(entry.category) for entry in entries]
    return table("agents").frame(
        {
            **entry.model_dump(include={"agent_id", "category", "provider", "baseline"}),
            "name": entry.name or entry.agent_id,
            "ingest_fingerprint": ingest_fingerprint(hashes[entry.agent_id]),
            "sessions_hash": hashes[entry.agent_id],
            "template": template.slug if template else None,
        }
        for entry, template in zip(entries, templates, strict=True)
    )


def _part(ingested: IngestedSession, name: str) -> pl.DataFrame:
    frame: pl.DataFrame = getattr(ingested, name)
    return frame
