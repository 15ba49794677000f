"""Open a project: its folders, settings, methodology versions and store.

The command line and the Dagster resources both use this module to open projects, so they use the same data.
"""

import os
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import polars as pl

from agent_eval.errors import ArgumentError, NotFoundError
from agent_eval.formats.refusals import Refusal
from agent_eval.methodology import Methodology, Registry
from agent_eval.metrics.custom import load_metrics
from agent_eval.metrics.metric_set import MetricSet
from agent_eval.project.beside_store import BesideStore, open_store
from agent_eval.settings import BudgetSettings, Settings, read_settings
from agent_eval.settings.home import Home, NoRootError, find_root
from agent_eval.storage import Store, StoreError
from agent_eval.storage.run_owners import RunOwners
from agent_eval.tables import TABLES, table
from agent_eval.transcripts.agents import read_agents
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.sessions import agent_ids, n_conversations

if TYPE_CHECKING:  # imported where they are used: the commands that neither judge nor simulate start sooner
    from agent_eval.judge.llm.budget import Budget
    from agent_eval.judge.llm.panel import Heard
    from agent_eval.judge.llm.progress import Watch
    from agent_eval.judge.prompts import BlindedTerms
    from agent_eval.project.judges import ProjectJudges
    from agent_eval.simulate.preparation import SimulationSetup
    from agent_eval.simulate.scenarios import LoadedSuite

PARENT_RUN = "AGENT_EVAL_PARENT_RUN"
"""Environment variable of processes that a Dagster run starts: the run's id, then 'automation' or 'person'."""


@dataclass(frozen=True)
class Origin:
    """Identify the run that calls judges, and whether a sensor or a schedule started it."""

    run: str
    is_automatic: bool = False

    @classmethod
    def of_environment(cls) -> "Origin":
        """Return the run that started this process (PARENT_RUN), else an id for this process."""
        parent, _, by = os.environ.get(PARENT_RUN, "").partition(" ")
        return cls(parent or f"process {uuid.uuid4().hex[:12]}", by == "automation")


@dataclass(frozen=True, repr=False)
class Project:
    """Provide access to the folders, settings and store of the project at one root."""

    home: Home
    settings: Settings
    watch: "Watch | None" = None  # receives the progress of judge models
    heard: "Heard | None" = None  # receives the answers of each judge call
    origin: Origin = field(default_factory=Origin.of_environment)

    @classmethod
    def open(cls, start: Path | str | None = None) -> Self:
        """Open the project that contains `start` (default: the working directory), found by the root rule."""
        root = find_root(Path(start) if start else None)
        settings = read_settings(root)
        home = Home(root=root, data=root / settings.data_dir)
        return cls(home=home, settings=settings)

    @classmethod
    def open_or_packaged(cls) -> "Project":
        """Open the project that contains the working directory.

        Outside of a project, the packaged methodologies and metrics and the default settings are used.
        """
        try:
            return cls.open()
        except NoRootError:
            here = Path.cwd()
            return cls(home=Home(root=here, data=here / "data"), settings=Settings())

    def __repr__(self) -> str:
        """Return three lines: the root, what is known there, and what to call."""
        judge = self.settings.judge_model or "none"
        return (
            f"Project {self.home.root}\n"
            f"methodology {self.registry.current.version}, judge model: {judge}\n"
            f".table('leaderboard') reads a table ({', '.join(list(TABLES)[-4:])}, …); agent_eval.run_project(project) updates it"
        )

    def table(self, name: str) -> pl.DataFrame:
        """Return all rows of a stored table in key order; docs/reference/tables.md describes them.

        Raises:
            UnknownTableError: If the table does not exist.
            StoreError: If the store cannot be read.
        """
        if not isinstance(name, str):
            raise ArgumentError("name", name, "the name of a table")
        return self.store.read(table(name))

    def with_settings(self, **changed: object) -> "Project":
        """Return a copy of the project with some settings or caps changed; values that are None are ignored."""
        new_values = {name: value for name, value in changed.items() if value is not None}
        caps = {name: new_values.pop(name) for name in BudgetSettings.model_fields if name in new_values}
        if caps:
            new_values["budget"] = self.settings.budget.model_copy(update=caps)
        return replace(self, settings=self.settings.model_copy(update=new_values))

    def watched(self, watch: "Watch", heard: "Heard | None" = None) -> "Project":
        """Return a copy of the project with receivers for the progress and the answers of judge models."""
        return replace(self, watch=watch, heard=heard)

    @property
    def dead_runs(self) -> list[str]:
        """Return the ids of Dagster's runs whose process was killed, sorted; they are still shown as started."""
        return RunOwners.of(self.home.root).dead()

    @cached_property
    def store(self) -> Store:
        """Return the store in the settings: a DuckDB file or a lake, with paths relative to the root."""
        return self.beside_store.store

    @cached_property
    def beside_store(self) -> BesideStore:
        """Return the data of the store that is not in its tables: unmerged answers, ledger and prompt secret."""
        return open_store(self.home, self.settings.store)

    @cached_property
    def registry(self) -> Registry:
        """Return all methodology versions: the packaged ones and those of the project."""
        return Registry.read(self.home.methodologies, self._scored_hashes)

    def _scored_hashes(self) -> dict[str, list[str]]:
        """Return the content hashes of the methodology versions that the stored composites were computed with."""
        columns = ["methodology_version", "methodology_content_hash", "raw_composite_score"]
        try:
            rows = self.store.read(table("composite_scores"), columns=columns)
        except StoreError:  # reported by the commands that need the rows
            return {}
        scored = rows.drop_nulls().group_by("methodology_version").agg("methodology_content_hash")
        return dict(scored.iter_rows())

    @cached_property
    def metrics(self) -> MetricSet:
        """Return the metrics: the built-in ones and those of the project, without disabled metrics."""
        s = self.settings
        return load_metrics(self.home.data / "metrics", s.metric_modules, s.metrics_off, s.metrics)

    @cached_property
    def declared(self) -> tuple[dict[str, Agent], list[Refusal]]:
        """Return the entries of agents.yaml by agent id, and the refused entries."""
        return read_agents(self.home.agents_file)

    @cached_property
    def with_sessions(self) -> tuple[list[str], list[Refusal]]:
        """Return the agents that have a session folder, and the folders whose names are not valid agent ids.

        Raises:
            NotFoundError: If the data folder does not exist.
        """
        return agent_ids(self.home.existing_sessions())

    @cached_property
    def suites(self) -> "list[LoadedSuite]":
        """Return the suites of benchmark scenarios, with the problems of their files."""
        from agent_eval.simulate.scenarios import read_suites

        return read_suites(self.home.scenarios)

    @cached_property
    def human_ratings(self) -> tuple[pl.DataFrame, list[Refusal]]:
        """Return table human_ratings, read from data/ratings, and the refused lines."""
        from agent_eval.judge.inputs.human_ratings import read_ratings

        return read_ratings(self.home.ratings, self.metrics)

    @cached_property
    def verdicts(self) -> tuple[pl.DataFrame, list[Refusal]]:
        """Return the recorded verdicts in data/verdicts as rows of judge_cache, and the refused lines."""
        from agent_eval.judge.inputs.recorded_verdicts import read_verdicts

        return read_verdicts(self.home.verdicts)

    def known_agents(self) -> list[str]:
        """Return the agents that have a session folder or rows of an earlier run."""
        with self.store.reading():
            earlier = [
                self.store.read(table(name), columns=["agent_id"])["agent_id"]
                for name in ("run_state", "agents")
            ]
        return sorted({*self.with_sessions[0], *(agent for column in earlier for agent in column if agent)})

    def some_agents(self, agents: Sequence[str]) -> list[str]:
        """Return the named agents, or all known agents if `agents` is empty.

        Raises:
            NotFoundError: If a named agent has neither sessions nor rows.
        """
        known_agents = self.known_agents()
        for agent in agents:
            if agent not in known_agents:
                raise NotFoundError(
                    f"Agent {agent!r} is not known. Known: {', '.join(sorted(known_agents)) or 'none yet'}. "
                    "Import transcripts with `agent-eval import FORMAT PATH --agent ID`."
                )
        return list(agents) or known_agents

    def n_conversations(self, agents: Iterable[str]) -> dict[str, int]:
        """Return the number of conversations in each agent's session folders, including those not ingested yet."""
        return {agent: n_conversations(self.home.sessions / agent) for agent in agents}

    @property
    def conversations_at_once(self) -> int | None:
        """Return the maximum number of conversations of an agent that are judged together; None for no limit.

        It is `max_conversations_per_run` divided by the number of versions, and at least 1.
        """
        limit = self.settings.max_conversations_per_run
        return None if limit is None else max(1, limit // len(self.registry.versions))

    def methodologies(self, versions: Collection[str]) -> dict[str, Methodology]:
        """Return the requested methodology versions, in semantic order."""
        return {v: self.registry.get(v) for v in self.registry.versions if v in versions}

    def ratings_of(self, agents: Sequence[str]) -> pl.DataFrame:
        """Return the human ratings of the given agents."""
        return self.human_ratings[0].filter(pl.col("agent_id").is_in(list(agents)))

    @cached_property
    def judges(self) -> "ProjectJudges":
        """Return the judge models of this project object, with their budget, prices and stored answers."""
        from agent_eval.judge.llm.sharing.model_facts import keep_in
        from agent_eval.project.judges import ProjectJudges

        keep_in(self.beside_store.model_facts)
        automatic, by = self.origin.is_automatic, self.origin.run
        return ProjectJudges(self.settings, self.beside_store, by, is_automatic=automatic, heard=self.heard)

    def blinded_terms(self, agents: Collection[str]) -> "dict[str, BlindedTerms]":
        """Return the names that are hidden from judge models, by agent id, with the redactor if the settings use it."""
        from agent_eval.judge.prompts import BlindedTerms

        personal = self.judges.redactor if self.settings.judge_redact else None
        return {a: BlindedTerms.of(self.declared[0].get(a) or Agent(agent_id=a), personal) for a in agents}

    def simulation_setup(
        self, sessions: Path | None = None, budget: "Budget | None" = None
    ) -> "SimulationSetup":
        """Return what simulations use of the project: folders, agents, budget and what the settings allow to be run.

        Sessions are written to `sessions`, by default data/sessions. The default budget is the one of this object, which
        writes to the ledger of the store.
        """
        from agent_eval.judge.llm.client import LiteLLMClient
        from agent_eval.simulate.agents.endpoints import Allowed
        from agent_eval.simulate.preparation import SimulationSetup
        from agent_eval.simulate.users import USER_TEMPERATURE

        s = self.settings
        user = None
        if s.user_model is not None:
            price = self.judges.price_of(s.user_model)
            user = LiteLLMClient(
                s.user_model, USER_TEMPERATURE, s.judge_timeout_s, price, s.judge_max_reply_mb
            )
        return SimulationSetup(
            scenarios=self.home.scenarios,
            sessions=self.home.existing_sessions() if sessions is None else sessions,
            agents=self.declared[0],
            agent_problems=self.declared[1],
            versions=tuple(self.registry.versions),
            allowed=Allowed(s.agent_modules, s.agent_commands, s.agent_variables),
            budget=self.judges.budget if budget is None else budget,
            is_capped_in_dollars=self.judges.is_capped_in_dollars,
            price_of=self.judges.price_of,
            user=user,
            concurrency=s.agent_concurrency,
        )

    def record_spending(self, *, run_id: str) -> None:
        """Copy the ledger of judge calls to table spending."""
        self.store.upsert(table("spending"), self.beside_store.spent(), run_id=run_id)
