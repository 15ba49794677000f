"""One project: its folders, settings, methodology versions and store, opened together.

The command line and the Dagster resources both start here, so that they see the same thing.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from agent_eval import __version__
from agent_eval.errors import AgentEvalError
from agent_eval.formats.hashing import digest
from agent_eval.formats.refusals import Refusal
from agent_eval.judge.inputs.human_ratings import read_ratings
from agent_eval.judge.inputs.recorded_verdicts import read_verdicts
from agent_eval.judge.llm.budget import Budget, Price, UnknownPriceError
from agent_eval.judge.llm.client import LiteLLMClient, price_of
from agent_eval.judge.llm.panel import Asking, Panel
from agent_eval.judge.llm.progress import Watch
from agent_eval.judge.llm.redaction import kept_secret
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import Names
from agent_eval.methodology import Methodology, Registry
from agent_eval.metrics.custom import load_metrics
from agent_eval.metrics.metric_set import MetricSet
from agent_eval.settings import Settings, read_settings
from agent_eval.settings.home import Home, find_root
from agent_eval.storage import Store
from agent_eval.storage.journal import Journal, finished_journals
from agent_eval.tables import table
from agent_eval.transcripts.agents import read_agents
from agent_eval.transcripts.models import Agent
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
    watch: Watch | None = None  # told how far judge models are

    @classmethod
    def open(cls, start: Path | str | None = None) -> "Project":
        """The project around `start` (default: the working directory), by the root rule."""
        root = find_root(Path(start) if start else None)
        settings = read_settings(root)
        return cls(home=Home(root=root, data=root / settings.data_dir), settings=settings)

    def with_settings(self, **changed: object) -> "Project":
        """The same project with some settings set otherwise; those that are None stay as they are."""
        given = {name: value for name, value in changed.items() if value is not None}
        return replace(self, settings=self.settings.model_copy(update=given))

    def watched(self, watch: Watch) -> "Project":
        """The same project, with somebody to be told how far judge models are."""
        return replace(self, watch=watch)

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
    def metrics(self) -> MetricSet:
        """What is asked: the built-in metrics and the project's own, without those switched off."""
        s = self.settings
        return load_metrics(self.home.data / "metrics", s.metric_modules, s.metrics_off)

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
        """Stored verdicts that answer any of the questions: table judge_cache, with what an earlier end left behind."""
        self.merge_answers()
        wanted = pl.DataFrame({"question_key": sorted(question_keys)}, schema={"question_key": pl.String})
        return self.store.read(table("judge_cache"), wanted)

    def sessions_hash(self, agent: str) -> str:
        """Hash of the agent's entry in agents.yaml and of its session files; no folder has a hash too."""
        return sessions_hash(self.declared[0].get(agent), self.home.sessions / agent)

    @property
    def journals(self) -> Path:
        """Folder of answers on their way into the store."""
        return self._beside_store(".journal")

    @contextlib.contextmanager
    def answers_kept(self) -> Iterator[Callable[[Sequence[Mapping[str, object]]], None]]:
        """A function that stores answers of models (rows of judge_cache), safe when it returns; merged at the end."""
        journal = Journal.begin(self.journals)
        try:
            yield journal.append
        finally:
            journal.close()
            self.merge_answers()

    def merge_answers(self) -> None:
        """Bring answers from journals that nobody holds into the store."""
        if not self.journals.is_dir():
            return
        cache = table("judge_cache")
        with finished_journals(self.journals, cache) as rows:
            self.store.upsert(cache, rows, run_id="judge")

    def judge_specs(self, versions: Collection[str]) -> dict[str, JudgeSpec]:
        """Version → the judge models of the settings, else those that its judgments were last asked of, if any were."""
        if (own := self.own_judge) is not None:
            return dict.fromkeys(versions, own)
        kept = self.kept_judges
        return {version: JudgeSpec.from_json(kept[version]) for version in versions if version in kept}

    @property
    def own_judge(self) -> JudgeSpec | None:
        """The judge models of the settings."""
        s = self.settings
        if not s.judge_models:
            return None
        return JudgeSpec(s.judge_models, s.judge_temperature, s.judge_mode, s.judge_combine)

    @property
    def kept_judges(self) -> dict[str, str]:
        """Version → the judge that its judgments were last asked of, as JSON."""
        return dict(
            self.store.read(table("judge_state"), columns=["methodology_version", "spec"]).iter_rows()
        )

    def panel(self, versions: Collection[str]) -> Panel | None:
        """The judge models for some versions, ready to be asked; None where no model was ever asked.

        Without a model in the settings they are those that were last asked, with their earlier answers only.
        """
        if (own := self.own_judge) is not None:
            return Panel(own, self.asking)
        kept = self.judge_specs(sorted(versions))
        return Panel(list(kept.values())[-1]) if kept else None

    @cached_property
    def asking(self) -> Asking:
        """What it takes to call judge models; its budget is that of everything done with this project object.

        Raises:
            UnknownPriceError: If there is a cap in dollars and a model's price is unknown.
        """
        s = self.settings
        asking = Asking(
            client=lambda model: LiteLLMClient(
                model, s.judge_temperature, s.judge_timeout_s, self.price_of(model)
            ),
            writing=self.answers_kept,
            secret=self.prompt_secret,
            budget=Budget(s.max_calls, s.max_cost_usd),
            concurrency=s.judge_concurrency,
            max_tokens=s.judge_max_tokens,
        )
        for model in s.judge_models if s.max_cost_usd is not None else ():
            if self.price_of(model) is None:
                raise UnknownPriceError(model)
        return asking

    def price_of(self, model: str) -> Price | None:
        """A model's price: of the settings, else litellm's; None when neither knows it."""
        s = self.settings
        if s.judge_price_in is not None and s.judge_price_out is not None:
            return Price(s.judge_price_in, s.judge_price_out)
        return price_of(model)

    @cached_property
    def prompt_secret(self) -> bytes:
        """Key of the codes that fence transcripts in prompts: random, made once, kept beside the store."""
        return kept_secret(self._beside_store(".key"))

    def names_of(self, agents: Collection[str]) -> dict[str, Names]:
        """By agent, the names that a judge model is not to see."""
        return {a: Names.of(self.declared[0].get(a) or Agent(agent_id=a)) for a in agents}

    def keep_judge(self, versions: Collection[str], *, run_id: str) -> None:
        """Remember which models the judgments of some versions were asked of."""
        own = self.own_judge
        if own is not None:
            rows = ({"methodology_version": v, "spec": own.to_json()} for v in versions)
            self.store.upsert(table("judge_state"), table("judge_state").frame(rows), run_id=run_id)

    def _beside_store(self, ending: str) -> Path:
        file = self.store.lock_file or self.home.data / "agent_eval.duckdb.lock"
        return file.with_name(file.name.removesuffix(".lock") + ending)

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
