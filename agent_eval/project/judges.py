"""Give a project its judge models: their stored answers, budget, prices and limits, and what is hidden from them.

Answers are first written to files or a catalog next to the store, so that they survive a killed run, and are then
merged into the store. Only what judges or simulates imports this module.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from agent_eval.errors import JudgeError
from agent_eval.judge.keys import question_key
from agent_eval.judge.llm.budget import Budget, Price, SharedBudget
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
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import CONTEXT_TOKENS, ViewLimits
from agent_eval.judge.prompts.attachments import MEDIA_TYPES
from agent_eval.judge.prompts.cache_marks import READ, WRITTEN
from agent_eval.judge.prompts.personal_data import Redactor
from agent_eval.metrics.earlier import EARLIER, rubric_hash_now
from agent_eval.metrics.profile import asked_since
from agent_eval.project.beside_store import BesideStore, Caps
from agent_eval.settings import Settings
from agent_eval.storage import Store
from agent_eval.storage.ledger import SpendingCap
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import Transcripts
from agent_eval.transcripts.attachments import AttachmentKind

_ANSWERED_BY = ["question_key", "model", "parameters", "repeat", "is_recorded"]
_CACHE, _STATE = table("judge_cache"), table("judge_state")


@dataclass(frozen=True)
class AnswerCache:
    """Read and write the answers of one store. `beside` contains the answers that are not merged yet."""

    beside: BesideStore
    keeps_earlier: bool = False  # whether answers to earlier wordings of a question answer it

    @property
    def store(self) -> Store:
        """Return the store."""
        return self.beside.store

    def find(self, question_keys: Collection[str]) -> pl.DataFrame:
        """Return the stored answers to the questions (rows of judge_cache), including those of a killed run.

        If earlier answers are kept, a question without an answer has that to its earlier wording, under its own key.
        """
        self.beside.merge()
        key_frame = pl.DataFrame({"question_key": sorted(question_keys)}, schema={"question_key": pl.String})
        stored = self.store.read(_CACHE, key_frame)
        if not self.keeps_earlier:
            return stored
        earlier = self.find_earlier(question_keys)
        return pl.concat([stored, earlier.join(stored, on=_ANSWERED_BY, how="anti", nulls_equal=True)])

    def find_earlier(self, question_keys: Collection[str]) -> pl.DataFrame:
        """Return the answers to earlier wordings of the questions (rows of judge_cache), under their own keys."""
        return self.earlier().filter(pl.col("question_key").is_in(list(question_keys)))

    def earlier(self) -> pl.DataFrame:
        """Return the answers to earlier wordings (rows of judge_cache), each under the key of the current question."""
        forms = [{"metric": name, "profile_version": version} for name, (_, version) in EARLIER.items()]
        rows = self.store.read(_CACHE, pl.DataFrame(forms))
        names = ("metric", "rubric_hash", "profile_version", "content_hash", "turn_index")
        keys = [_key_now(*row) for row in rows.select(names).iter_rows()]
        now = pl.Series("question_key", keys, dtype=pl.String)
        return rows.with_columns(now).drop_nulls("question_key")

    def sync_recorded(self, verdicts: pl.DataFrame, *, run_id: str) -> None:
        """Replace the recorded verdicts in table judge_cache with these; answers of models are not changed."""
        stored = self.store.read(_CACHE, pl.DataFrame({"is_recorded": [True]}))
        changed = verdicts.join(stored, on=["cache_key", "verdict", "judged_at"], how="anti")
        withdrawn = stored.join(verdicts, on="cache_key", how="anti")
        self.store.upsert(_CACHE, changed, run_id=run_id)
        self.store.delete(_CACHE, withdrawn.select(_CACHE.key))

    def last_judges(self, pairs: Collection[AgentVersion]) -> dict[AgentVersion, JudgeSpec]:
        """Return the judge last used for each of these pairs; pairs that no model has judged are omitted."""
        rows = self.store.read(_STATE, columns=["agent_id", "methodology_version", "spec"]).iter_rows()
        by_pair = {(agent, version): spec for agent, version, spec in rows}
        return {pair: JudgeSpec.from_json(by_pair[pair]) for pair in pairs if by_pair.get(pair) is not None}

    def record_judge(self, pairs: Collection[AgentVersion], spec: JudgeSpec | None, *, run_id: str) -> None:
        """Record this judge as the last one used for these pairs; if it is None, do nothing."""
        if spec is None:
            return
        rows = (pair._asdict() | {"spec": spec.to_json()} for pair in pairs)
        self.store.upsert(_STATE, _STATE.frame(rows), run_id=run_id)


def _key_now(
    metric: str, rubric_hash: str, profile_version: str, content_hash: str, turn_index: int | None
) -> str | None:
    """Return the current key of a question that was asked in an earlier wording; None for other questions."""
    now = rubric_hash_now(metric, rubric_hash, profile_version)
    return None if now is None else question_key(content_hash, turn_index, metric, now, asked_since(metric))


@dataclass(frozen=True, repr=False)
class ProjectJudges:
    """Provide the judge models of a project with their answers, budget, prices and limits.

    `run` and `is_automatic` name the run that calls models, and whether a sensor or a schedule started it. All uses of
    one object share its budget and the counts of its redactor.
    """

    settings: Settings
    beside: BesideStore
    run: str
    is_automatic: bool
    heard: Heard | None = None  # receives the answers of each judge call

    @cached_property
    def answers(self) -> AnswerCache:
        """Return access to the answers of judges in the store."""
        keeps_earlier = self.settings.keep_answers or self.own is None
        return AnswerCache(self.beside, keeps_earlier)

    def specs(self, pairs: Collection[AgentVersion]) -> dict[AgentVersion, JudgeSpec]:
        """Return the judge of each pair: the models in the settings, else the models last used for the pair, if any."""
        if (own := self.own) is not None:
            return dict.fromkeys(pairs, own)
        return self.answers.last_judges(pairs)

    @property
    def own(self) -> JudgeSpec | None:
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
        if (own := self.own) is not None:
            yield Panel(own, self.runtime, self.view_limits, self.answers.find_earlier), transcripts
            return
        of_pair = transcripts.select(AgentVersion._fields).unique().sort(AgentVersion._fields)
        specs = self.specs([AgentVersion(*row) for row in of_pair.iter_rows()])
        judges = [specs.get(AgentVersion(*row)) for row in of_pair.iter_rows()]
        for judge in dict.fromkeys(judges) or [None]:
            pairs = of_pair.filter(pl.Series([other == judge for other in judges], dtype=pl.Boolean))
            panel = None if judge is None else Panel(judge)
            yield panel, transcripts.join(pairs, on=AgentVersion._fields, how="semi")

    @cached_property
    def runtime(self) -> JudgeRuntime:
        """Return the runtime that calls judge models; all uses of this project object share its budget.

        Raises:
            JudgeError: If there is a cap in dollars and a model's price is unknown.
        """
        s = self.settings
        runtime = JudgeRuntime(
            client=lambda model: LiteLLMClient(
                model,
                s.judge_temperature,
                s.judge_timeout_s,
                self.price_of(model),
                s.judge_max_reply_mb,
                s.judge_direct,
            ),
            writing=self.beside.writing,
            claiming=self.beside.claiming,
            secret=self.prompt_secret,
            budget=self.budget,
            concurrency=s.judge_concurrency,
            max_tokens=s.judge_max_tokens,
            heard=self.heard,
        )
        for model in s.judge_models if self.is_capped_in_dollars else ():
            if self.price_of(model) is None:
                raise JudgeError(
                    f"The price of judge model {model!r} is not known, so a limit in dollars cannot be enforced. Set judge_price_in "
                    "and judge_price_out (US dollars per million tokens) in agent_eval.toml, or cap calls with --max-calls."
                )
        return runtime

    @cached_property
    def budget(self) -> Budget:
        """Return the budget of this project object, which judges, simulated users and agents under test share."""
        s = self.settings
        return Budget(s.budget.max_calls, s.budget.max_cost_usd, self._ledger, self._why_closed())

    @property
    def is_capped_in_dollars(self) -> bool:
        """Return whether a cap in dollars applies, so that every price must be known."""
        s = self.settings.budget
        in_dollars = [s.max_cost_usd, s.max_cost_usd_per_day, s.max_cost_usd_in_all]
        in_dollars += [s.automation_max_cost_usd_per_day] * self.is_automatic
        return any(cap is not None for cap in in_dollars)

    def problems(self, *, needs_key: bool = True) -> list[str]:
        """Return one sentence for each judge model in the settings whose calls cannot succeed, with the reason.

        If `needs_key` is False, missing API keys are ignored.
        """
        s = self.settings
        is_priced = s.judge_price_in is not None and s.judge_price_out is not None
        problems = [problem_of(model, is_listed=is_priced, needs_key=needs_key) for model in s.judge_models]
        return [problem for problem in problems if problem]

    @cached_property
    def _ledger(self) -> SharedBudget:
        s = self.settings.budget
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
        return self.beside.ledger(self.run, is_automatic=self.is_automatic, caps=caps)

    def _why_closed(self) -> str | None:
        """Return why judge models must not be called, or None: automation must not spend money without a cap."""
        s = self.settings
        caps = (s.budget.automation_max_calls_per_day, s.budget.automation_max_cost_usd_per_day)
        if not self.is_automatic or any(cap is not None for cap in caps):
            return None
        paid = [model for model in s.judge_models if is_paid(model, self.price_of(model))]
        return (
            f"automation does not call judge models that cost money ({', '.join(paid)}) without a cap: set "
            "automation_max_cost_usd_per_day or automation_max_calls_per_day, or run manually"
            if paid
            else None
        )

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
        return self.beside.secret()

    @cached_property
    def redactor(self) -> Redactor:
        """Return the redactor of personal data; all uses of this project object share its counts.

        Raises:
            ConfigurationError: If the function in the settings cannot be imported.
        """
        s = self.settings
        return Redactor(self.prompt_secret, s.redact_patterns, s.redact_function)
