"""Query the judge models of a project: find their stored answers, ask the open questions, and return all answers.

A panel serves one run, and everything that the run judges shares its budget. Without a runtime, only stored answers
are returned, and the other questions stay unanswered.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import polars as pl

from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.cache import AnswerWriter, answers_of, rows_of
from agent_eval.judge.llm.calls import JudgeCall, QuestionSequence, plan
from agent_eval.judge.llm.client import Client
from agent_eval.judge.llm.concurrency import AdaptiveConcurrency, Place
from agent_eval.judge.llm.ensemble import combined, repeated
from agent_eval.judge.llm.progress import End, Progress, Reporter, Watch
from agent_eval.judge.llm.redaction import redact
from agent_eval.judge.llm.requests import ModelJudge, PromptFormat
from agent_eval.judge.llm.sharing.claims import Claims, ClaimTable, TakenError
from agent_eval.judge.llm.sharing.shared_calls import SharedCalls
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import DEFAULT_LIMITS, ViewLimits, has_room_for_all
from agent_eval.judge.prompts.attachments import why_not_sent
from agent_eval.judge.protocol import Question, Scored, Unscored, Verdict, is_lost
from agent_eval.judge.run_sync import first_of, run_sync
from agent_eval.metrics.base import Metric
from agent_eval.transcripts.attachments import AttachmentKind

WARMING_S = 20.0
"""Maximum seconds that calls wait for the first call with the same system message."""
AnswersByQuestion = dict[str, list[tuple[str, Verdict]]]
"""Judges and their verdicts by question key, in order of precedence."""


Heard = Callable[[JudgeCall, str, Mapping[str, Verdict]], None]
"""Callback that receives a call, the model and the model's answers by metric name."""


FreshAnswers = Mapping[str, Mapping[tuple[int, str], Verdict]]
"""Verdicts of a pass by model, then by number of the repeat and question key."""
Lookup = Callable[[Collection[str]], pl.DataFrame]
"""Function that returns the rows of judge_cache that answer any of the given question keys."""


class Writing(Protocol):
    """Opens a context whose function stores rows of judge_cache.

    Rows are durable when the function returns, and visible to readers when the context ends.
    """

    def __call__(self) -> AbstractContextManager[Callable[[Sequence[Mapping[str, object]]], None]]: ...


@dataclass(frozen=True)
class JudgeRuntime:
    """Hold the clients, storage, limits and callbacks for calling judge models."""

    client: Callable[[str], Client]
    writing: Writing
    secret: bytes
    budget: Budget = field(default_factory=Budget)
    concurrency: int = 16
    max_tokens: int = 4096
    heard: "Heard | None" = None  # receives the answers of each call as they arrive
    claiming: Callable[[], ClaimTable] | None = None  # None if there are no other workers


@dataclass(frozen=True)
class Panel:
    """Queries one or more judge models. Without `runtime`, only stored answers are used."""

    spec: JudgeSpec
    runtime: JudgeRuntime | None = None
    limits: Callable[[str], ViewLimits] | None = None  # returns the view limits of a model; None: defaults
    earlier: Lookup | None = None  # finds answers to earlier wordings, which replace lost answers

    def answers(
        self,
        sequences: Sequence[QuestionSequence],
        cache: pl.DataFrame,
        rubrics: Sequence[Metric] | None = None,
        *,
        prompt_format: type[PromptFormat] = PromptFormat,
        watch: Watch | None = None,
        every_s: float = 10.0,
    ) -> AnswersByQuestion:
        """Return the stored and new answers of the models to the questions.

        Args:
            sequences: The questions, limited to the metrics that are unanswered.
            cache: Rows of judge_cache that may answer them.
            rubrics: Metrics whose rubrics are in every system message, including those asked. By default, a message has
                the rubrics of its own call.
            prompt_format: Format that builds prompts and reads replies.
            watch: Callback that receives the progress.
            every_s: Seconds between two progress reports.

        Raises:
            OSError: If answers cannot be stored.
        """
        by_model = {
            model: {
                repeat: dict[str, Verdict](stored) for repeat, stored in self._known(model, cache).items()
            }
            for model in self.spec.models
        }
        if self.runtime is not None:
            planned = {model: self._planned(model, sequences, repeats) for model, repeats in by_model.items()}
            fresh = run_sync(
                _ask(
                    self.spec,
                    self.runtime,
                    planned,
                    prompt_format(self.runtime.secret, self.shown(rubrics), self.runtime.max_tokens),
                    self.limits_of,
                    watch,
                    every_s,
                )
            )
            for model, verdicts in self._with_earlier(fresh).items():
                for (repeat, key), verdict in verdicts.items():
                    by_model[model][repeat][key] = verdict
        return self._given(sequences, by_model)

    def _with_earlier(self, fresh: FreshAnswers) -> FreshAnswers:
        """Return the answers; where one is lost, the answer to an earlier wording of the question takes its place."""
        lost = {
            key for answers in fresh.values() for (_, key), verdict in answers.items() if is_lost(verdict)
        }
        if self.earlier is None or not lost:
            return fresh
        rows = self.earlier(lost)
        earlier = {model: self._known(model, rows) for model in fresh}
        return {
            model: {
                (n, key): earlier[model][n].get(key, verdict) if is_lost(verdict) else verdict
                for (n, key), verdict in answers.items()
            }
            for model, answers in fresh.items()
        }

    def stored(self, sequences: Sequence[QuestionSequence], cache: pl.DataFrame) -> AnswersByQuestion:
        """Return the stored answers to the questions that all models have answered; no model is asked."""
        n_rows = len(self.spec.models) + (len(self.spec.models) > 1)
        by_key = replace(self, runtime=None).answers(sequences, cache)
        return {key: answers for key, answers in by_key.items() if len(answers) == n_rows}

    def planned(self, sequences: Sequence[QuestionSequence], cache: pl.DataFrame) -> list[list[JudgeCall]]:
        """Return the calls that `answers` would make, for all models."""
        return [
            calls
            for model in self.spec.models
            for calls in self._planned(model, sequences, self._known(model, cache))
        ]

    def _planned(
        self, model: str, sequences: Sequence[QuestionSequence], repeats: Mapping[int, Container[str]]
    ) -> list[list[JudgeCall]]:
        """Return the calls of a model, including repeats. Calls of the first repeat come first.

        Questions that depend on attachments that the model cannot read are not asked. A conversation that does not fit
        into the call of its last turn has a separate call, which is split into windows if necessary.
        """
        sequences = [
            replace(sequence, questions=[q for q in sequence.questions if self._can_read(model, q)])
            for sequence in sequences
        ]
        limits = self.limits_of(model)
        calls = [
            [replace(call, repeat=repeat) for call in calls]
            for repeat, answered in repeats.items()
            for calls in plan(
                sequences, answered, self.spec.mode, lambda turn: has_room_for_all(turn, limits)
            )
        ]
        return [[replace(call, number=i) for call in own_calls] for i, own_calls in enumerate(calls)]

    def _can_read(self, model: str, question: Question) -> bool:
        return why_not_sent(question, self.limits_of(model).kinds) is None

    def n_unreadable(self, sequences: Sequence[QuestionSequence]) -> int:
        """Return how many questions are not asked because the models cannot read their attachments.

        A question about one metric counts once per model.
        """
        return sum(
            len(question.metrics)
            for model in self.spec.models
            for sequence in sequences
            for question in sequence.questions
            if not self._can_read(model, question)
        )

    @property
    def kinds(self) -> frozenset[AttachmentKind]:
        """Return the kinds of attachments that any of the models reads."""
        return frozenset[AttachmentKind]().union(*(self.limits_of(model).kinds for model in self.spec.models))

    def shown(self, metrics: Sequence[Metric] | None) -> tuple[Metric, ...] | None:
        """Return the metrics whose rubrics are in every system message.

        The result is None in the mode per_metric, in which each call has only its own rubric.
        """
        return tuple(metrics) if metrics is not None and self.spec.mode == "one_call" else None

    def limits_of(self, model: str) -> ViewLimits:
        """Return the view limits of a model."""
        return DEFAULT_LIMITS if self.limits is None else self.limits(model)

    def _known(self, model: str, cache: pl.DataFrame) -> dict[int, dict[str, Scored | Unscored]]:
        """Return the stored answers by number of the repeat and question key."""
        now = None if self.limits is None else lambda: self.limits_of(model).context_tokens
        repeats = range(self.spec.repeats)
        return {n: answers_of(cache, model, self.spec.parameters, now, n) for n in repeats}

    def _given(
        self,
        sequences: Sequence[QuestionSequence],
        by_model: Mapping[str, Mapping[int, Mapping[str, Verdict]]],
    ) -> AnswersByQuestion:
        metrics = {q.keys[m.name]: m for t in sequences for q in t.questions for m in q.metrics}
        by_key: AnswersByQuestion = {}
        for key, metric in metrics.items():
            answers: dict[str, Verdict] = {}
            for model, repeats in by_model.items():
                if verdicts := [repeat[key] for repeat in repeats.values() if key in repeat]:
                    answers[model] = repeated(metric, verdicts)
            if not answers:
                continue
            own = list(answers.items())
            if len(self.spec.models) > 1:
                own.insert(0, (self.spec.name, combined(metric, answers, self.spec.combine)))
            by_key[key] = own
        return by_key


async def _ask(
    spec: JudgeSpec,
    runtime: JudgeRuntime,
    planned: Mapping[str, Sequence[Sequence[JudgeCall]]],
    prompt_format: PromptFormat,
    limits: Callable[[str], ViewLimits],
    watch: Watch | None,
    every_s: float,
) -> dict[str, dict[tuple[int, str], Verdict]]:
    """Make the planned calls. Return the verdicts by model, then by (repeat, question key)."""
    n_calls = sum(len(calls) for sequences in planned.values() for calls in sequences)
    if n_calls == 0:
        return {}
    reporter = Reporter(Progress(spec.name, n_calls), watch, every_s)
    with runtime.writing() as write:
        writer = AnswerWriter(write)
        claims = Claims(runtime.claiming()) if runtime.claiming is not None else None
        clients = {model: runtime.client(model) for model in planned}
        try:
            # if the answers of one model cannot be stored, no model is asked
            async with asyncio.TaskGroup() as group:
                passes = {
                    model: group.create_task(
                        _pass(
                            clients[model],
                            sequences,
                            spec,
                            runtime,
                            prompt_format,
                            limits(model),
                            writer,
                            reporter,
                            claims,
                        )
                    )
                    for model, sequences in planned.items()
                }
            return {model: task.result() for model, task in passes.items()}
        except ExceptionGroup as failed:
            raise first_of(failed) from None
        finally:
            await writer.close()
            if claims is not None:
                await claims.close()
            for client in clients.values():
                await client.close()


class _Warming:
    """Delays calls with the same system message until the first of them has filled the provider's cache."""

    def __init__(self) -> None:
        self._warm: dict[tuple[Metric, ...], asyncio.Event] = {}

    @contextlib.asynccontextmanager
    async def opened(self, rubrics: tuple[Metric, ...]) -> AsyncIterator[None]:
        """Wait for the first call with these rubrics, if there is one, for at most WARMING_S seconds."""
        if (warm := self._warm.get(rubrics)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WARMING_S):  # `wait_for` loses a cancellation in Python 3.11
                    await warm.wait()
            yield
            return
        self._warm[rubrics] = asyncio.Event()
        try:
            yield
        finally:
            self._warm[rubrics].set()


async def _pass(
    client: Client,
    sequences: Sequence[Sequence[JudgeCall]],
    spec: JudgeSpec,
    runtime: JudgeRuntime,
    prompt_format: PromptFormat,
    limits: ViewLimits,
    writer: AnswerWriter,
    reporter: Reporter,
    claims: Claims | None = None,
) -> dict[tuple[int, str], Verdict]:
    async def keep(call: JudgeCall, answers: Mapping[str, Scored | Unscored]) -> None:
        await writer.write(list(rows_of(call, answers, client.model, spec.parameters)))

    concurrency = AdaptiveConcurrency(runtime.concurrency)
    shared = None if claims is None else SharedCalls(claims, client.model, spec.parameters, limits)
    admit = None if shared is None else shared.claim
    judge = ModelJudge(client, prompt_format, concurrency, runtime.budget, keep, limits=limits, admit=admit)
    verdicts: dict[tuple[int, str], Verdict] = {}

    async def one(call: JudgeCall, place: Place) -> None:
        ask = partial(_answered, judge)
        answered = await (ask(call, place) if shared is None else shared.answered(ask, call, place))
        verdicts.update({(call.repeat, call.keys[name]): verdict for name, verdict in answered.items()})
        n_unscored = sum(map(is_lost, answered.values()))
        runtime.budget.n_unscored += n_unscored
        runtime.budget.n_scored += len(answered) - n_unscored
        if runtime.heard is not None:
            runtime.heard(call, client.model, answered)
        end: End = "done" if judge.was_sent(call) else "not_sent" if n_unscored else "by_others"
        reporter.call_ended(end, n_unscored, runtime.budget.known_cost_usd)

    warming = _Warming()

    async def sequence(calls: Sequence[JudgeCall]) -> None:
        """Send the first call, which fills the provider's cache, then the others in order or in idle slots."""
        first, *rest = calls
        async with warming.opened(first.metrics if prompt_format.shown is None else prompt_format.shown):
            await one(first, Place(first.number))
        places = [Place(call.number, is_ahead=i > 0) for i, call in enumerate(rest)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(c, place)) for c, place in zip(rest, places, strict=True)]
            for task, following in zip(tasks, places[1:], strict=False):
                await asyncio.wait([task])
                concurrency.comes_next(following)

    try:
        async with asyncio.TaskGroup() as group:
            for calls in sequences:
                group.create_task(sequence(calls))
    except ExceptionGroup as failed:  # the first exception cancelled the other calls; raise it
        raise first_of(failed) from None
    return verdicts


async def _answered(judge: ModelJudge, call: JudgeCall, place: Place) -> Mapping[str, Verdict]:
    """Return the judge's answers to a call. After an unexpected error, the answers of this call are unscored.

    Raises:
        OSError: If the answer cannot be stored.
        TakenError: If another worker asks one of the questions.
    """
    try:
        return await judge.ask(call, place)
    except (OSError, TakenError):
        raise
    except Exception as error:
        lost = Unscored("judge_error", redact(f"{type(error).__name__}: {error}"))
        return dict.fromkeys((metric.name for metric in call.metrics), lost)
