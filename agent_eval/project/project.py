"""Open a project: its folders, settings, methodology versions and store.

The command line and the Dagster resources both open projects here, so that they see the same data.
"""

import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

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
from agent_eval.methodology import Methodology, Registry
from agent_eval.metrics.custom import load_metrics
from agent_eval.metrics.metric_set import MetricSet
from agent_eval.project.answers import AnswerCache
from agent_eval.project.beside_store import BesideStore, Caps, open_store
from agent_eval.settings import Settings, read_settings
from agent_eval.settings.home import Home, NoRootError, find_root
from agent_eval.storage import Store
from agent_eval.storage.ledger import SpendingCap
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import Transcripts
from agent_eval.transcripts.agents import read_agents
from agent_eval.transcripts.attachments import AttachmentKind
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.sessions import agent_ids, n_conversations

PARENT_RUN = "AGENT_EVAL_PARENT_RUN"
"""Set for the process that a Dagster run starts: the run's id, and 'automation' if not started by hand."""


class UnknownAgentError(NotFoundError):
    """Raised when an agent was named that the project does not have."""

    def __init__(self, agent: str, known: Collection[str]) -> None:
        super().__init__(
            f"Agent {agent!r} is not known. Known: {', '.join(sorted(known)) or 'none yet'}. "
            "Import transcripts with `agent-eval import FORMAT PATH --agent ID`."
        )


@dataclass(frozen=True)
class Origin:
    """Identify who asks judges: a run, and whether a sensor or a schedule started it."""

    run: str
    is_automatic: bool = False

    @classmethod
    def of_environment(cls) -> "Origin":
        """Return the run that started this process (PARENT_RUN), else the process itself."""
        parent, _, by = os.environ.get(PARENT_RUN, "").partition(" ")
        return cls(parent or f"process {uuid.uuid4().hex[:12]}", by == "automation")


@dataclass(frozen=True)
class Project:
    """Access the folders, settings and store of the project at one root."""

    home: Home
    settings: Settings
    watch: Watch | None = None  # receives the progress of judge models
    heard: Heard | None = None  # receives the answers of each judge call
    origin: Origin = field(default_factory=Origin.of_environment)

    @classmethod
    def open(cls, start: Path | str | None = None) -> "Project":
        """Return the project around `start` (default: the working directory), by the root rule."""
        root = find_root(Path(start) if start else None)
        settings = read_settings(root)
        return cls(home=Home(root=root, data=root / settings.data_dir), settings=settings)

    @classmethod
    def open_or_packaged(cls) -> "Project":
        """Return the project around the working directory; without one, the packaged methodologies, metrics and settings."""
        try:
            return cls.open()
        except NoRootError:
            here = Path.cwd()
            return cls(home=Home(root=here, data=here / "data"), settings=Settings())

    def table(self, name: str) -> pl.DataFrame:
        """Return all rows of a stored table in key order; docs/reference/tables.md describes them.

        Raises:
            UnknownTableError: If there is no such table.
            StoreError: If the store cannot be read.
        """
        if not isinstance(name, str):
            raise ArgumentError("name", name, "the name of a table")
        return self.store.read(table(name))

    def with_settings(self, **changed: object) -> "Project":
        """Return the same project with some settings changed; those that are None stay unchanged."""
        given = {name: value for name, value in changed.items() if value is not None}
        return replace(self, settings=self.settings.model_copy(update=given))

    def watched(self, watch: Watch, heard: Heard | None = None) -> "Project":
        """Return the same project with receivers for the progress and the answers of judge models."""
        return replace(self, watch=watch, heard=heard)

    @cached_property
    def store(self) -> Store:
        """Return the DuckDB file or the lake of the settings, relative to the root."""
        return self.beside_store.store

    @cached_property
    def beside_store(self) -> BesideStore:
        """Return the data of the store that is not in its tables: unmerged answers, ledger and prompt secret."""
        return open_store(self.home, self.settings.store)

    @cached_property
    def registry(self) -> Registry:
        """Return every methodology version: the packaged ones and the project's own."""
        return Registry.read(self.home.methodologies)

    @cached_property
    def metrics(self) -> MetricSet:
        """Return the metrics: the built-in ones and the project's own, without disabled ones."""
        s = self.settings
        return load_metrics(self.home.data / "metrics", s.metric_modules, s.metrics_off, s.metrics)

    @cached_property
    def declared(self) -> tuple[dict[str, Agent], list[Refusal]]:
        """Return the entries of agents.yaml by id, and the refused entries."""
        return read_agents(self.home.agents_file)

    @cached_property
    def with_sessions(self) -> tuple[list[str], list[Refusal]]:
        """Return agents that have a session folder, and folders whose names are not agent ids.

        Raises:
            MissingDataError: If the data folder itself is not there.
        """
        return agent_ids(self.home.existing_sessions())

    @cached_property
    def human_ratings(self) -> tuple[pl.DataFrame, list[Refusal]]:
        """Return table human_ratings from data/ratings, and the refusals."""
        return read_ratings(self.home.ratings, self.metrics)

    @cached_property
    def verdicts(self) -> tuple[pl.DataFrame, list[Refusal]]:
        """Return table judge_cache from data/verdicts, and the refusals."""
        return read_verdicts(self.home.verdicts)

    def known_agents(self) -> list[str]:
        """Return agents with a session folder now, or with rows from an earlier run."""
        with self.store.reading():
            earlier = [
                self.store.read(table(name), columns=["agent_id"])["agent_id"]
                for name in ("run_state", "agents")
            ]
        return sorted({*self.with_sessions[0], *(agent for held in earlier for agent in held if agent)})

    def some_agents(self, named: Sequence[str]) -> list[str]:
        """Return the named agents, or all known ones when none is named.

        Raises:
            UnknownAgentError: If an agent is named that has neither sessions nor rows.
        """
        known = self.known_agents()
        for agent in named:
            if agent not in known:
                raise UnknownAgentError(agent, known)
        return list(named) or known

    def n_conversations(self, agents: Iterable[str]) -> dict[str, int]:
        """Return how many conversations the session folders of each agent hold, whether or not they are ingested."""
        return {agent: n_conversations(self.home.sessions / agent) for agent in agents}

    @property
    def conversations_at_once(self) -> int | None:
        """Return how many conversations of an agent are judged together: so many that a run has them under all versions."""
        limit = self.settings.max_conversations_per_run
        return None if limit is None else max(1, limit // len(self.registry.versions))

    def methodologies(self, versions: Collection[str]) -> dict[str, Methodology]:
        """Return the named versions, in semantic order."""
        return {v: self.registry.get(v) for v in self.registry.versions if v in versions}

    def ratings_of(self, agents: Sequence[str]) -> pl.DataFrame:
        """Return the human ratings of some agents."""
        return self.human_ratings[0].filter(pl.col("agent_id").is_in(list(agents)))

    @cached_property
    def answers(self) -> AnswerCache:
        """Return the answers of judges in the store."""
        return AnswerCache(self.beside_store)

    def judge_specs(self, pairs: Collection[AgentVersion]) -> dict[AgentVersion, JudgeSpec]:
        """Return the judge of each pair: the models of the settings, else those last used for it, if any."""
        if (own := self.own_judge) is not None:
            return dict.fromkeys(pairs, own)
        return self.answers.last_judges(pairs)

    @property
    def own_judge(self) -> JudgeSpec | None:
        """Return the judge models of the settings."""
        s = self.settings
        if not s.judge_models:
            return None
        return JudgeSpec(
            *(s.judge_models, s.judge_temperature, s.judge_mode, s.judge_combine, s.judge_context_tokens),
            repeats=s.judge_repeats,
            sample=s.judge_sample if s.judge_sample != 1 else None,
            multimodal=s.judge_multimodal,
        )

    def by_judge(self, transcripts: Transcripts) -> Iterator[tuple[Panel | None, Transcripts]]:
        """Yield each judge with the transcripts of the pairs that it judges; None if no model was ever asked.

        A model of the settings judges every pair. Without one each pair keeps its last judge, whose stored
        answers are used.
        """
        if (own := self.own_judge) is not None:
            yield Panel(own, self.judge_runtime, self.view_limits), transcripts
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
            budget=Budget(s.max_calls, s.max_cost_usd, self._ledger, self._why_closed()),
            concurrency=s.judge_concurrency,
            max_tokens=s.judge_max_tokens,
            heard=self.heard,
        )
        in_dollars = [s.max_cost_usd, s.max_cost_usd_per_day, s.max_cost_usd_in_all]
        in_dollars += [s.automation_max_cost_usd_per_day] * self.origin.is_automatic
        for model in s.judge_models if any(cap is not None for cap in in_dollars) else ():
            if self.price_of(model) is None:
                raise UnknownPriceError(model)
        return runtime

    def judge_problems(self) -> list[str]:
        """Return why calls to the judge models of the settings cannot succeed, one sentence for each such model."""
        s = self.settings
        is_priced = s.judge_price_in is not None and s.judge_price_out is not None
        found = [problem_of(model, is_listed=is_priced) for model in s.judge_models]
        return [problem for problem in found if problem]

    @cached_property
    def _ledger(self) -> SharedBudget:
        s = self.settings
        caps = Caps(
            of_run=SpendingCap(s.max_calls, s.max_cost_usd, "max_{} of this run", "run again to go on"),
            in_all=SpendingCap(
                s.max_calls_in_all, s.max_cost_usd_in_all, "max_{}_in_all", "raise it to go on"
            ),
            per_day=SpendingCap(
                s.max_calls_per_day,
                s.max_cost_usd_per_day,
                "max_{}_per_day",
                "a run of tomorrow (UTC) goes on",
            ),
            of_automation=SpendingCap(
                s.automation_max_calls_per_day,
                s.automation_max_cost_usd_per_day,
                "automation_max_{}_per_day",
                "a run by hand, or of tomorrow (UTC), goes on",
            ),
        )
        return self.beside_store.ledger(self.origin.run, is_automatic=self.origin.is_automatic, caps=caps)

    def _why_closed(self) -> str | None:
        """Return why no model may be asked, else None: automation spends money only under a cap."""
        s = self.settings
        caps = (s.automation_max_calls_per_day, s.automation_max_cost_usd_per_day)
        if not self.origin.is_automatic or any(cap is not None for cap in caps):
            return None
        paid = [model for model in s.judge_models if is_paid(model, self.price_of(model))]
        return (
            f"automation asks no judge that costs money ({', '.join(paid)}) without a cap: set "
            "automation_max_cost_usd_per_day or automation_max_calls_per_day, or run by hand"
            if paid
            else None
        )

    def record_spending(self, *, run_id: str) -> None:
        """Copy the ledger into table spending."""
        self.store.upsert(table("spending"), self.beside_store.spent(), run_id=run_id)

    def view_limits(self, model: str) -> ViewLimits:
        """Return how much a judge model can be shown, from the settings, else from litellm."""
        s = self.settings
        tokens = s.judge_context_tokens or context_tokens_of(model) or CONTEXT_TOKENS
        kinds = (
            attachment_kinds_of(model)
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
        """Return the random key of the codes that fence transcripts in prompts, made once and stored."""
        return self.beside_store.secret()

    def blinded_terms(self, agents: Collection[str]) -> dict[str, BlindedTerms]:
        """Return the names that are hidden from judge models, by agent."""
        return {a: BlindedTerms.of(self.declared[0].get(a) or Agent(agent_id=a)) for a in agents}
