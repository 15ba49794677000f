"""One project: its folders, settings, methodology versions and store, opened together.

The command line and the Dagster resources both start here, so that they see the same thing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from agent_eval import __version__
from agent_eval.errors import AgentEvalError
from agent_eval.home import Home
from agent_eval.judge.ratings import read_ratings
from agent_eval.judge.recorded import read_verdicts
from agent_eval.methodology import Methodology, Registry
from agent_eval.settings import Settings, home_around, read_settings
from agent_eval.storage import Store
from agent_eval.tables import table
from agent_eval.transcripts.agents import read_agents
from agent_eval.transcripts.hashing import digest
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.records import Refusal
from agent_eval.transcripts.sessions import TakenIn, agent_ids, read_sessions, sessions_hash


class UnknownAgentError(AgentEvalError):
    """An agent was named that the project does not have."""

    def __init__(self, agent: str, known: Collection[str]) -> None:
        super().__init__(
            f"Agent {agent!r} is not known. Known: {', '.join(sorted(known)) or 'none yet'}. "
            "Import transcripts with `agent-eval import FORMAT PATH --agent ID`."
        )


class MissingDataError(AgentEvalError):
    """The data folder is not there: an unmounted disk must not look like a project whose agents are all gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"The data folder {folder} does not exist. Mount its disk, create it, or import transcripts; "
            "`data_dir` in agent_eval.toml says where it lies."
        )


@dataclass(frozen=True)
class Project:
    """The project at one root."""

    home: Home
    settings: Settings

    @classmethod
    def open(cls, start: Path | str | None = None) -> "Project":
        """The project around `start` (default: the working directory), by the root rule."""
        home = home_around(Path(start) if start else None)
        return cls(home=home, settings=read_settings(home.root))

    @cached_property
    def store(self) -> Store:
        """The DuckDB file of the settings, relative to the root."""
        named = self.settings.store
        return Store.at(self.home.root / named if named else self.home.data / "agent_eval.duckdb")

    @cached_property
    def registry(self) -> Registry:
        """Every methodology version: the packaged ones and the project's own."""
        return Registry.read(self.home.methodologies)

    @cached_property
    def declared(self) -> tuple[dict[str, Agent], list[Refusal]]:
        """agents.yaml: entries by id, and what was refused."""
        return read_agents(self.home.agents_file)

    @cached_property
    def with_sessions(self) -> tuple[list[str], list[Refusal]]:
        """Agents that have a session folder, and folders whose names are no agent ids.

        Raises:
            MissingDataError: If the data folder itself is not there.
        """
        return agent_ids(self._session_folders())

    @cached_property
    def human_ratings(self) -> tuple[pl.DataFrame, list[Refusal]]:
        """All of data/ratings: table human_ratings, and what was refused."""
        return read_ratings(self.home.ratings)

    @cached_property
    def verdicts(self) -> tuple[pl.DataFrame, list[Refusal]]:
        """All of data/verdicts: table judge_cache, and what was refused."""
        return read_verdicts(self.home.verdicts)

    def known_agents(self) -> list[str]:
        """Agents with a session folder now, or with rows from an earlier run."""
        earlier = self.store.read(table("run_state"), columns=["agent_id"])["agent_id"].to_list()
        return sorted({*self.with_sessions[0], *earlier})

    def some_agents(self, named: Sequence[str]) -> list[str]:
        """The named agents, or all known ones when none is named.

        Raises:
            UnknownAgentError: If an agent is named that has neither sessions nor rows.
        """
        known = self.known_agents()
        for agent in named:
            if agent not in known:
                raise UnknownAgentError(agent, known)
        return list(named) or known

    def methodologies(self, versions: Collection[str]) -> dict[str, Methodology]:
        """The named versions, in semantic order."""
        return {v: self.registry.get(v) for v in self.registry.versions if v in versions}

    def ratings_of(self, agents: Sequence[str]) -> pl.DataFrame:
        """The human ratings of some agents."""
        return self.human_ratings[0].filter(pl.col("agent_id").is_in(list(agents)))

    def cached_verdicts(self, question_keys: Collection[str]) -> pl.DataFrame:
        """Stored verdicts that answer any of the questions: table judge_cache."""
        wanted = pl.DataFrame({"question_key": sorted(question_keys)}, schema={"question_key": pl.String})
        return self.store.read(table("judge_cache"), wanted)

    def sessions_hash(self, agent: str) -> str:
        """Hash of the agent's entry in agents.yaml and of its session files; no folder has a hash too."""
        return sessions_hash(self.declared[0].get(agent), self.home.sessions / agent)

    def take_in(self, agents: Sequence[str]) -> dict[str, pl.DataFrame]:
        """The ingest tables of some agents, read from their session folders; an agent without a folder has no rows.

        Raises:
            MissingDataError: If the data folder itself is not there.
        """
        folders = self._session_folders()
        hashes = {agent: taken_in(self.sessions_hash(agent)) for agent in agents}  # before anything is read
        taken = {agent: read_sessions(agent, folders / agent) for agent in agents}
        names = ("sessions", "conversations", "turns", "tool_calls", "import_errors")
        frames = {
            name: pl.concat([table(name).empty(), *(_part(t, name) for t in taken.values())])
            for name in names
        }
        present = [
            agent for agent, t in taken.items() if not t.sessions.is_empty() or not t.import_errors.is_empty()
        ]
        return frames | {"agents": self._agent_rows({agent: hashes[agent] for agent in present})}

    def keep_recorded(self, agents: Sequence[str], *, run_id: str) -> None:
        """Make the store hold what the files hold: all recorded verdicts, and the human ratings of some agents."""
        cache, ratings = table("judge_cache"), table("human_ratings")
        recorded = self.verdicts[0].with_columns(is_recorded=pl.lit(True))
        stored = self.store.read(cache, pl.DataFrame({"is_recorded": [True]}))
        changed = recorded.join(stored, on=["cache_key", "verdict", "judged_at"], how="anti")
        withdrawn = stored.join(recorded, on="cache_key", how="anti")
        self.store.upsert(cache, changed, run_id=run_id)
        self.store.delete(cache, withdrawn.select("cache_key"))
        owners = pl.DataFrame({"agent_id": list(agents)}, schema={"agent_id": pl.String})
        self.store.replace(ratings, self.ratings_of(agents), owners, run_id=run_id)

    def _session_folders(self) -> Path:
        if not self.home.data.is_dir():
            raise MissingDataError(self.home.data)
        return self.home.sessions

    def _agent_rows(self, agents: Mapping[str, str]) -> pl.DataFrame:
        """Table agents, from agent → hash of what was taken in."""
        current = self.registry.current
        entries = [self.declared[0].get(agent) or Agent(agent_id=agent) for agent in agents]
        templates = [current.template_for(entry.category) for entry in entries]
        return table("agents").frame(
            {
                **entry.model_dump(include={"agent_id", "category", "provider", "baseline"}),
                "name": entry.name or entry.agent_id,
                "taken_in": agents[entry.agent_id],
                "template": template.slug if template else None,
            }
            for entry, template in zip(entries, templates, strict=True)
        )


def taken_in(sessions_hash: str) -> str:
    """What stands in table agents for session files with this hash, taken in by this release."""
    return digest(__version__, sessions_hash)


def _part(taken: TakenIn, name: str) -> pl.DataFrame:
    frame: pl.DataFrame = getattr(taken, name)
    return frame
