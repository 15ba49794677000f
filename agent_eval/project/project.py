"""Open a project: its folders, settings, methodology versions and store.

The command line and the Dagster resources both use this module to open projects, so they use the same data.
"""

import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import polars as pl

from agent_eval.errors import ArgumentError, NotFoundError
from agent_eval.formats.refusals import Refusal
from agent_eval.judge.inputs.human_ratings import read_ratings
from agent_eval.judge.inputs.recorded_verdicts import read_verdicts
from agent_eval.judge.llm.budget import Budget, Price, SharedBudget, UnknownPriceError
from agent_eval.judge.llm.client import (
    LiteLLMClient,
    attachment_kinds_of,
    caches_marked_blocks,
    context_tokens_of,
    is_paid,
    price_of,
    problem_of,
)
from agent_eval.judge.llm.panel import Heard, JudgeRuntime, Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import CONTEXT_TOKENS, BlindedTerms, ViewLimits
from agent_eval.judge.prompts.attachments import MEDIA_TYPES
from agent_eval.judge.prompts.cache_marks import READ, WRITTEN
from agent_eval.judge.prompts.personal_data import Redactor
from agent_eval.methodology import Methodology, Registry
from agent_eval.metrics.custom import load_metrics
from agent_eval.metrics.metric_set import MetricSet
from agent_eval.project.answers import AnswerCache
from agent_eval.project.beside_store import BesideStore, Caps, keep_model_facts, open_store
from agent_eval.settings import Settings, read_settings
from agent_eval.settings.home import Home, NoRootError, find_root
from agent_eval.storage import Store, StoreError
from agent_eval.storage.ledger import SpendingCap
from agent_eval.storage.run_owners import RunOwners
from agent_eval.tables import TABLES, table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import Transcripts
from agent_eval.transcripts.agents import read_agents
from agent_eval.transcripts.attachments import AttachmentKind
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.sessions import agent_ids, n_conversations

if TYPE_CHECKING:  # imported where they are used: the commands that simulate nothing start 0.1 s earlier
    from agent_eval.simulate.preparation import SimulationSetup
    from agent_eval.simulate.scenarios import LoadedSuite

PARENT_RUN = "AGENT_EVAL_PARENT_RUN"
"""Environment variable of processes that a Dagster run starts: the run's id, then 'automation' or 'person'."""


class UnknownAgentError(NotFoundError):
    """Raised when a requested agent does not exist in the project."""

    def __init__(self, agent: str, agents: Collection[str]) -> None:
        super().__init__(
            f"Agent {agent!r} is not known. Known: {', '.join(sorted(agents)) or 'none yet'}. "
            "Import transcripts with `agent-eval import FORMAT PATH --agent ID`."
        )


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
    watch: Watch | None = None  # receives the progress of judge models
    heard: Heard | None = None  # receives the answers of each judge call
    origin: Origin = field(default_factory=Origin.of_environment)

    @classmethod
    def open(cls, start: Path | str | None = None) -> Self:
        """Open the project that contains `start` (default: the working directory), found by the root rule."""
        root = find_root(Path(start) if start else None)
        settings = read_settings(root)
        home = Home(root=root, data=root / settings.data_dir)
        keep_model_facts(home, settings.store)
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
        """Return a copy of the project with some settings changed; values that are None are ignored."""
        new_values = {name: value for name, value in changed.items() if value is not None}
        return replace(self, settings=self.settings.model_copy(update=new_values))

    def watched(self, watch: Watch, heard: Heard | None = None) -> "Project":
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
            MissingDataError: If the data folder does not exist.
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
        return read_ratings(self.home.ratings, self.metrics)

    @cached_property
    def verdicts(self) -> tuple[pl.DataFrame, list[Refusal]]:
        """Return the recorded verdicts in data/verdicts as rows of judge_cache, and the refused lines."""
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
            UnknownAgentError: If a named agent has neither sessions nor rows.
        """
        known_agents = self.known_agents()
        for agent in agents:
            if agent not in known_agents:
                raise UnknownAgentError(agent, known_agents)
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
    def answers(self) -> AnswerCache:
        """Return access to the answers of judges in the store."""
        keeps_earlier = self.settings.keep_answers or self.own_judge is None
        return AnswerCache(self.beside_store, keeps_earlier)

    def judge_specs(self, pairs: Collection[AgentVersion]) -> dict[AgentVersion, JudgeSpec]:
        """Return the judge of each pair: the models in the settings, else the models last used for the pair, if any."""
        if (own := self.own_judge) is not None:
            return dict.fromkeys(pairs, own)
        return self.answers.last_judges(pairs)

    @property
    def own_judge(self) -> JudgeSpec | None:
        """Return the judge models in the settings; None if no model is set."""
        s = self.settings
        if not s.judge_models:
            return None
        return JudgeSpec(
            *(s.judge_models, s.judge_temperature, s.judge_mode, s.judge_combine, s.judge_context_tokens),
            repeats=s.judge_repeats,
            sample=s.judge_sample if s.judge_sample != 1 else None,
            outcome_sample=s.judge_outcome_sample,
            multimodal=s.judge_multimodal,
            redaction=self.redactor.fingerprint if s.judge_redact else None,
        )

    def by_judge(self, transcripts: Transcripts) -> Iterator[tuple[Panel | None, Transcripts]]:
        """Yield each judge with the transcripts of its pairs; the judge is None for pairs that no model has judged.

        If the settings name a model, it judges every pair. Otherwise the stored answers of the judge last used for
        each pair are used.
        """
        if (own := self.own_judge) is not None:
            yield Panel(own, self.judge_runtime, self.view_limits, self.answers.find_earlier), transcripts
            return
        of_pair = transcripts.select(AgentVersion._fields).unique().sort(AgentVersion._fields)
        specs = self.judge_specs([AgentVersion(*row) for row in of_pair.iter_rows()])
        judges = [specs.get(AgentVersion(*row)) for row in of_pair.iter_rows()]
        for judge in dict.fromkeys(judges) or [None]:
            pairs = of_pair.filter(pl.Series([other == judge for other in judges], dtype=pl.Boolean))
            panel = None if judge is None else Panel(judge)
            yield panel, transcripts.join(pairs, on=AgentVersion._fields, how="semi")

    @cached_property
    def judge_runtime(self) -> JudgeRuntime:
        """Return the runtime that calls judge models; all uses of this project object share its budget.

        Raises:
            UnknownPriceError: If there is a cap in dollars and a model's price is unknown.
        """
        s = self.settings
        runtime = JudgeRuntime(
            client=lambda model: LiteLLMClient(
                model, s.judge_temperature, s.judge_timeout_s, self.price_of(model), s.judge_max_reply_mb
            ),
            writing=self.beside_store.writing,
            claiming=self.beside_store.claiming,
            secret=self.prompt_secret,
            budget=self.budget,
            concurrency=s.judge_concurrency,
            max_tokens=s.judge_max_tokens,
            heard=self.heard,
        )
        for model in s.judge_models if self.is_capped_in_dollars else ():
            if self.price_of(model) is None:
                raise UnknownPriceError(model)
        return runtime

    @cached_property
    def budget(self) -> Budget:
        """Return the budget of this project object, which judges, simulated users and agents under test share."""
        s = self.settings
        return Budget(s.max_calls, s.max_cost_usd, self._ledger, self._why_closed())

    @property
    def is_capped_in_dollars(self) -> bool:
        """Return whether a cap in dollars applies, so that every price must be known."""
        s = self.settings
        in_dollars = [s.max_cost_usd, s.max_cost_usd_per_day, s.max_cost_usd_in_all]
        in_dollars += [s.automation_max_cost_usd_per_day] * self.origin.is_automatic
        return any(cap is not None for cap in in_dollars)

    def simulation_setup(
        self, sessions: Path | None = None, budget: Budget | None = None
    ) -> "SimulationSetup":
        """Return what simulations use of the project: folders, agents, budget and what the settings allow to be run.

        Sessions are written to `sessions`, by default data/sessions. The default budget is the one of this object, which
        writes to the ledger of the store.
        """
        from agent_eval.simulate.agents.endpoints import Allowed
        from agent_eval.simulate.preparation import SimulationSetup
        from agent_eval.simulate.users import USER_TEMPERATURE

        s = self.settings
        user = None
        if s.user_model is not None:
            price = self.price_of(s.user_model)
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
            budget=self.budget if budget is None else budget,
            is_capped_in_dollars=self.is_capped_in_dollars,
            price_of=self.price_of,
            user=user,
            concurrency=s.agent_concurrency,
        )

    def judge_problems(self, *, needs_key: bool = True) -> list[str]:
        """Return one sentence for each judge model in the settings whose calls cannot succeed, with the reason.

        If `needs_key` is False, missing API keys are ignored.
        """
        s = self.settings
        is_priced = s.judge_price_in is not None and s.judge_price_out is not None
        problems = [problem_of(model, is_listed=is_priced, needs_key=needs_key) for model in s.judge_models]
        return [problem for problem in problems if problem]

    @cached_property
    def _ledger(self) -> SharedBudget:
        s = self.settings
        caps = Caps(
            of_run=SpendingCap(s.max_calls, s.max_cost_usd, "max_{} of this run", "run again to continue"),
            in_all=SpendingCap(
                s.max_calls_in_all, s.max_cost_usd_in_all, "max_{}_in_all", "raise it to continue"
            ),
            per_day=SpendingCap(
                s.max_calls_per_day,
                s.max_cost_usd_per_day,
                "max_{}_per_day",
                "run again tomorrow (UTC) to continue",
            ),
            of_automation=SpendingCap(
                s.automation_max_calls_per_day,
                s.automation_max_cost_usd_per_day,
                "automation_max_{}_per_day",
                "run manually, or wait until tomorrow (UTC), to continue",
            ),
        )
        return self.beside_store.ledger(self.origin.run, is_automatic=self.origin.is_automatic, caps=caps)

    def _why_closed(self) -> str | None:
        """Return why judge models must not be called, or None: automation must not spend money without a cap."""
        s = self.settings
        caps = (s.automation_max_calls_per_day, s.automation_max_cost_usd_per_day)
        if not self.origin.is_automatic or any(cap is not None for cap in caps):
            return None
        paid = [model for model in s.judge_models if is_paid(model, self.price_of(model))]
        return (
            f"automation does not call judge models that cost money ({', '.join(paid)}) without a cap: set "
            "automation_max_cost_usd_per_day or automation_max_calls_per_day, or run manually"
            if paid
            else None
        )

    def record_spending(self, *, run_id: str) -> None:
        """Copy the ledger of judge calls to table spending."""
        self.store.upsert(table("spending"), self.beside_store.spent(), run_id=run_id)

    def view_limits(self, model: str) -> ViewLimits:
        """Return the limits on the input of a judge model, from the settings, else from litellm."""
        s = self.settings
        tokens = s.judge_context_tokens or context_tokens_of(model) or CONTEXT_TOKENS
        kinds = (
            frozenset[AttachmentKind]()
            if s.judge_multimodal is None and s.judge_redact  # no text can be redacted in them
            else attachment_kinds_of(model)
            if s.judge_multimodal is None
            else frozenset(MEDIA_TYPES)
            if s.judge_multimodal
            else frozenset[AttachmentKind]()
        )
        return ViewLimits(tokens, s.judge_max_tokens, s.judge_window, kinds)

    def price_of(self, model: str) -> Price | None:
        """Return a model's price from the settings, else from litellm; None if neither has it."""
        s = self.settings
        if s.judge_price_in is not None and s.judge_price_out is not None:
            sent, received = s.judge_price_in, s.judge_price_out
            if caches_marked_blocks(model):
                return Price(sent, received, sent * READ, sent * WRITTEN)
            return Price(sent, received)
        return price_of(model)

    @cached_property
    def prompt_secret(self) -> bytes:
        """Return the random key for the codes that delimit transcripts in prompts; it is created once and stored."""
        return self.beside_store.secret()

    def blinded_terms(self, agents: Collection[str]) -> dict[str, BlindedTerms]:
        """Return the names that are hidden from judge models, by agent id, with the redactor if the settings use it."""
        personal = self.redactor if self.settings.judge_redact else None
        return {a: BlindedTerms.of(self.declared[0].get(a) or Agent(agent_id=a), personal) for a in agents}

    @cached_property
    def redactor(self) -> Redactor:
        """Return the redactor of personal data; all uses of this project object share its counts.

        Raises:
            RedactionError: If the function in the settings cannot be imported.
        """
        s = self.settings
        return Redactor(self.prompt_secret, s.redact_patterns, s.redact_function)
