"""Ask a judge model: repeat a call until it is answered or cannot be answered.

After an unreadable reply, the call is repeated once with a description of the problem; after a truncated reply, it is
repeated with a larger limit. Calls that fail or exceed a rate limit are retried after a pause that doubles each time,
or after the wait that the provider requests. If a server rejects a request, or fails on it twice, the request may ask
for a form of reply that the server does not support; it is then sent again with the next simpler form. Every repeated
call is counted.

A call holds its slot until its answer is stored, so that a crash loses at most as many answers as there are slots.
"""

import asyncio
import contextlib
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

from agent_eval.errors import StorageError
from agent_eval.formats.timestamps import as_text
from agent_eval.judge.llm.budget import Budget, Usage
from agent_eval.judge.llm.calls import JudgeCall
from agent_eval.judge.llm.circuit_breaker import CircuitBreaker, FailureKind
from agent_eval.judge.llm.client import CallError, Client, Reply
from agent_eval.judge.llm.concurrency import AdaptiveConcurrency, Place
from agent_eval.judge.llm.redaction import hide_keys, hide_secrets, keys_of_environment, redact
from agent_eval.judge.llm.transport import ADMIT, Failure
from agent_eval.judge.prompts import (
    DEFAULT_LIMITS,
    Messages,
    Prompt,
    ReplyError,
    ViewLimits,
    build_prompt,
    in_parts,
    merge_prompt,
    read_reply,
    repair_messages,
)
from agent_eval.judge.prompts.attachments import needed
from agent_eval.judge.prompts.merging import merge_windows, said_of
from agent_eval.judge.protocol import Scored, Unscored, UnscoredReason, Verdict, is_lost
from agent_eval.metrics.base import Metric

MOST_TRIES = 6  # maximum tries of a request after 429, 5xx, time-outs and lost connections
MOST_TIMEOUTS = 2  # maximum time-outs of a request, each of which takes the full time limit
FIRST_PAUSE_S = 0.25  # doubles with each try (0.25, 0.5, 1, 2, 4 seconds), ± 20 % at random
LONGEST_WAIT_S = 120.0  # if a provider asks for a longer wait, the request fails
MOST_ENLARGED = 2  # maximum number of times that the limit of a truncated reply is doubled
LEAST_CONTEXT = 2_048  # tokens; the context is not reduced below this size
_CONTEXT = re.compile(r"(?:maximum|context|limit)[^\d]{0,60}(\d[\d,]{3,8})(?=\s*tokens|\D|$)", re.IGNORECASE)

Admit = Callable[[JudgeCall], Awaitable[None]]
"""Callback that claims the questions of a call before it is first sent; raises TakenError if one is taken."""

Keep = Callable[[JudgeCall, Mapping[str, Scored | Unscored]], Awaitable[None]]
"""Callback that stores the answers of a call by metric name, and returns when they are durable."""

_AT_ONCE: Mapping[Failure, FailureKind] = {
    "connection": "connection",
    "timeout": "timeout",
    "authentication": "authentication",
    "refused": "refused",
}


@dataclass(frozen=True)
class PromptFormat:
    """Define how the prompts of a pass are built and how replies are read."""

    secret: bytes
    shown: tuple[Metric, ...] | None = None  # rubrics in the system message; None: only those of the call
    max_tokens: int = 4096
    asks_again: ClassVar[bool] = True  # whether to re-ask once if a reply cannot be read

    def prompt(self, call: JudgeCall, limits: ViewLimits, window: int = 0) -> Prompt:
        """Return the prompt of a call, or of one of its windows."""
        return build_prompt(
            call.questions,
            secret=self.secret,
            metrics=self.shown,
            names=call.names,
            findings=call.findings,
            limits=limits,
            window=window,
        )

    def parts(self, call: JudgeCall, limits: ViewLimits) -> list[JudgeCall]:
        """Return the call, or several calls with parts of its questions if the context is too small for all."""
        parts = in_parts(call.questions, limits)
        return [replace(call, questions=part) for part in parts] if len(parts) > 1 else [call]

    def read(self, call: JudgeCall, prompt: Prompt, text: str) -> Mapping[str, Verdict]:
        """Return the verdict of every metric of the call.

        Raises:
            ReplyError: If the reply, or a part of it, cannot be read.
        """
        return read_reply(prompt, text)


@dataclass
class _CallAttempt:
    """Track a call: the next request, the usage so far, and the verdicts that were read."""

    call: JudgeCall
    prompt: Prompt
    messages: Messages
    max_tokens: int
    usage: Usage = field(default_factory=Usage)
    read: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    n_failed: int = 0
    n_timeouts: int = 0
    n_of_form: int = 0  # errors that the current form of the reply may have caused
    n_enlarged: int = 0
    reply: Reply | None = None  # the last reply
    is_repaired: bool = False
    is_ended: bool = False
    is_too_long: bool = False  # the prompt exceeds the model's context, and a smaller context can be tried
    is_rejected: bool = False  # the server rejected the request as invalid or because of its content
    reason_is_length: bool = False
    reason: UnscoredReason = "judge_error"
    detail: str = ""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])  # set when they are stored


class ModelJudge:
    """Asks a model during a pass."""

    def __init__(
        self,
        client: Client,
        prompt_format: PromptFormat,
        concurrency: AdaptiveConcurrency,
        budget: Budget,
        keep: Keep,
        rng: random.Random | None = None,
        limits: ViewLimits = DEFAULT_LIMITS,
        admit: Admit | None = None,
    ) -> None:
        self.name = client.model
        self._admit = admit
        self._limits = replace(limits, reply_tokens=prompt_format.max_tokens)
        self._context_tokens = limits.context_tokens
        self._withheld = limits.withheld
        self.circuit_breaker = CircuitBreaker(client.model)
        self._client, self._format, self._concurrency = client, prompt_format, concurrency
        self._budget, self._keep = budget, keep
        self._sent: set[tuple[int, str]] = set()  # (repeat, question key) of the calls that are not finished
        self._rng = rng or random.Random()

    async def ask(self, call: JudgeCall, place: Place | None = None) -> Mapping[str, Verdict]:
        """Return a verdict for every metric of the call, by name. Metrics without an answer are Unscored.

        If a prompt is too long for the model, it is rebuilt for a smaller context, which also applies to later
        calls. If the context is too small for all questions of the call, they are asked in several calls. If a call
        with attachments is rejected, its questions are asked one by one without the attachments that they do not
        depend on. If this succeeds, later calls omit these attachments too.

        Raises:
            TakenError: If another worker asks one of the questions. If the call is asked in parts, earlier parts may
                have been answered.
        """
        usage, place, withheld = Usage(), place or Place(call.number), frozenset[str]()
        own = frozenset(file.reference for question in call.questions for file in needed(question))
        while True:
            if len(parts := self._format.parts(call, self._limits)) > 1:
                return await self._one_by_one(parts, place)
            limits = replace(self._limits, withheld=(self._withheld | withheld) - own)
            attempt = await self._attempt(
                call, place, limits, partial(self._format.prompt, call, limits), usage
            )
            if isinstance(attempt, Unscored):
                return dict.fromkeys((metric.name for metric in call.metrics), attempt)
            sent = frozenset(file.reference for file in attempt.prompt.attachments)
            if attempt.is_rejected and sent and len(call.questions) > 1:
                parts = [replace(call, questions=(question,)) for question in call.questions]
                return await self._one_by_one(parts, place)
            if attempt.is_rejected and sent - own:
                withheld |= sent - own
                continue
            if attempt.prompt.n_windows > 1 and not (attempt.is_too_long or attempt.verdicts):
                attempt = await self._merged(call, place, attempt, limits)
            if not attempt.is_too_long:
                self._withheld |= withheld if attempt.read else sent if attempt.is_rejected else frozenset()
                return attempt.verdicts
            self._limits = _smaller(self._limits, limits, attempt.detail)
            usage = attempt.usage

    def was_sent(self, call: JudgeCall) -> bool:
        """Return whether a request with a question of this finished call was sent."""
        call_questions = _questions(call)
        was_sent = not self._sent.isdisjoint(call_questions)
        self._sent -= call_questions
        return was_sent

    async def _one_by_one(self, parts: Sequence[JudgeCall], place: Place) -> Mapping[str, Verdict]:
        """Ask the questions of a call in several calls, and return all verdicts."""
        answered: dict[str, Verdict] = {}
        for part in parts:
            answered |= await self.ask(part, place)
        return answered

    async def _attempt(
        self,
        call: JudgeCall,
        place: Place,
        limits: ViewLimits,
        prompt: Callable[[], Prompt],
        usage: Usage,
        read: Mapping[str, Verdict] | None = None,
    ) -> "_CallAttempt | Unscored":
        """Send a prompt until it is answered. A complete answer is stored before the slot is released."""
        attempt: _CallAttempt | None = None
        while True:
            async with self._concurrency.slot(place):
                lost = self._why_not_asked()
                if lost is not None and attempt is None and not read:
                    return lost
                if attempt is None and self._admit is not None:
                    await self._admit(call)
                # build the prompt only now, so that waiting calls take no memory
                attempt = attempt or self._begin(call, prompt(), usage, read)
                pause = self._end(attempt, lost.reason, lost.detail) if lost else await self._try(attempt)
                if attempt.is_ended:
                    # if no smaller context can be tried, the answers of the call are lost
                    attempt.is_too_long &= limits.context_tokens > LEAST_CONTEXT
                    is_lost = attempt.reason_is_length and not attempt.is_too_long
                    if not attempt.is_too_long and (attempt.prompt.n_windows == 1 or is_lost):
                        attempt.verdicts = await self._stored(attempt)
                    return attempt
            if pause:
                await asyncio.sleep(pause)

    async def _merged(
        self, call: JudgeCall, place: Place, first: _CallAttempt, limits: ViewLimits
    ) -> _CallAttempt:
        """Ask about the other windows and merge the answers.

        Labels are united. For ratings and values, the model is asked again, given its answers on all windows.
        """
        parts = [first]
        for window in range(1, first.prompt.n_windows):
            make = partial(self._format.prompt, call, limits, window)
            part = await self._attempt(call, place, limits, make, Usage())
            if isinstance(part, Unscored):
                return self._without_merging(call, parts, part)
            parts.append(part)
            if part.verdicts:  # the prompt was too long even for the smallest context
                return part
            if part.is_too_long:
                part.usage = sum((p.usage for p in parts[:-1]), part.usage)
                return part
        usage = sum((part.usage for part in parts), Usage())
        united, rated = merge_windows(call.metrics, [part.read for part in parts])
        window_answers = [said_of(part.read) for part in parts]
        prompts = [part.prompt for part in parts]
        if not rated:
            attempt = self._begin(
                call, merge_prompt(prompts, window_answers, (), self._format.secret, limits), usage, united
            )
            self._end(attempt, first.reason, first.detail)
            attempt.verdicts = await self._stored(attempt)
            return attempt
        merged = await self._attempt(
            call,
            place,
            limits,
            lambda: merge_prompt(prompts, window_answers, rated, self._format.secret, limits),
            usage,
            united,
        )
        return self._without_merging(call, parts, merged) if isinstance(merged, Unscored) else merged

    def _without_merging(
        self, call: JudgeCall, parts: Sequence[_CallAttempt], lost: Unscored
    ) -> _CallAttempt:
        """Return lost verdicts for a call whose windows could not all be asked, including the usage so far."""
        attempt = self._begin(call, parts[0].prompt, sum((part.usage for part in parts), Usage()), None)
        self._end(attempt, lost.reason, lost.detail)
        attempt.verdicts = _verdicts(attempt, self.name, self._context_tokens)
        return attempt

    def _begin(
        self, call: JudgeCall, prompt: Prompt, usage: Usage, read: Mapping[str, Verdict] | None
    ) -> _CallAttempt:
        return _CallAttempt(call, prompt, prompt.messages, self._limits.reply, usage, dict(read or {}))

    def _why_not_asked(self) -> Unscored | None:
        if self.circuit_breaker.why_ended is not None:
            return Unscored(self.circuit_breaker.reason, self.circuit_breaker.why_ended)
        if (why := self._budget.why_exhausted()) is not None:
            return Unscored("budget_exhausted", why)
        return None

    async def _try(self, attempt: _CallAttempt) -> float:
        """Send the request once. Return the seconds to wait before the next try."""
        if (why := self._budget.begin_call(self.name)) is not None:
            return self._end(attempt, "budget_exhausted", why)
        self._sent |= _questions(attempt.call)
        started = asyncio.get_running_loop().time()
        token = ADMIT.set(self._count_further)
        try:
            reply = await self._client.complete(attempt.messages, attempt.prompt, attempt.max_tokens)
        except CallError as error:
            self._count_further(error.n_not_counted)
            self._budget.end_call(self.name, None)
            self._concurrency.finished(is_refused=error.failure == "rate")
            return self._after_failure(attempt, error, started)
        finally:
            ADMIT.reset(token)
        self._concurrency.finished(is_refused=False)
        self._budget.end_call(self.name, reply.usage)
        with contextlib.suppress(StorageError):  # they were sent already, and the reply must not be lost
            self._count_further(reply.n_not_counted)
        attempt.usage += reply.usage
        attempt.reply = reply
        return self._after_reply(attempt, reply, started)

    def _count_further(self, n: int = 1) -> str | None:
        """Count requests that litellm makes in a call beyond the first, and return the cap that one would exceed."""
        for _ in range(n):
            if (why := self._budget.begin_call(self.name)) is not None:
                return why
            self._budget.end_call(self.name, None)
        return None

    def _after_failure(self, attempt: _CallAttempt, error: CallError, started: float) -> float:
        if error.is_adjusted:  # at most once for each parameter, since it is then no longer sent
            return 0.0
        attempt.n_failed += 1
        attempt.n_of_form += error.next_form is not None
        if error.next_form is not None and (error.failure == "refused" or attempt.n_of_form > 1):
            attempt.prompt, attempt.n_of_form = replace(attempt.prompt, rung=error.next_form), 0
            return 0.0
        attempt.n_timeouts += error.failure == "timeout"
        if (kind := _AT_ONCE.get(error.failure)) is not None:
            self._count(kind, error.detail, started)
        attempt.is_too_long = attempt.reason_is_length = error.failure == "too_long"
        attempt.is_rejected = error.failure in ("refused", "unfit")
        is_hopeless = error.failure in ("authentication", "refused", "unfit", "too_long")
        is_too_long = (error.retry_after_s or 0.0) > LONGEST_WAIT_S
        is_worn_out = attempt.n_failed >= MOST_TRIES or attempt.n_timeouts >= MOST_TIMEOUTS
        if is_hopeless or is_too_long or is_worn_out:
            if error.failure in ("rate", "server"):
                self._count("given_up", error.detail, started)
            wait_note = f"; it asked to wait {error.retry_after_s:g} s" if is_too_long else ""
            tries = f" (after {attempt.n_failed} tries)" if attempt.n_failed > 1 else ""
            return self._end(attempt, "judge_error", f"{error.detail}{wait_note}{tries}")
        pause = FIRST_PAUSE_S * 2.0 ** (attempt.n_failed - 1) * self._rng.uniform(0.8, 1.2)
        return max(pause, error.retry_after_s or 0.0)

    def _after_reply(self, attempt: _CallAttempt, reply: Reply, started: float) -> float:
        if reply.is_filtered:
            return self._end(attempt, "judge_error", "the provider's content filter blocked the reply")
        if reply.is_truncated:
            if attempt.n_enlarged == MOST_ENLARGED:
                detail = f"the reply was cut off at {attempt.max_tokens} tokens; raise judge_max_tokens"
                return self._end(attempt, "truncated", detail)
            attempt.n_enlarged += 1
            attempt.max_tokens *= 2
            return 0.0
        if reply.refusal is not None and not reply.text:
            self.circuit_breaker.answered()
            return self._end(attempt, "refused", redact(f"the model declined to answer: {reply.refusal}"))
        try:
            attempt.read |= self._format.read(attempt.call, attempt.prompt, reply.text)
        except ReplyError as error:
            attempt.read |= error.read
            if attempt.is_repaired or not self._format.asks_again:
                if not attempt.read:
                    self._count("unreadable", error.problem, started)
                return self._end(attempt, "parse_failure", redact(str(error)))
            attempt.is_repaired = True
            attempt.messages = repair_messages(attempt.prompt, error)
            return 0.0
        self.circuit_breaker.answered()
        return self._end(attempt)

    def _end(self, attempt: _CallAttempt, reason: UnscoredReason = "judge_error", detail: str = "") -> float:
        """End the attempts. Metrics without an answer are lost for the given reason."""
        attempt.is_ended, attempt.reason, attempt.detail = True, reason, detail
        return 0.0

    async def _stored(self, attempt: _CallAttempt) -> Mapping[str, Verdict]:
        verdicts = _verdicts(attempt, self.name, self._context_tokens)
        answers = {
            name: v for name, v in verdicts.items() if isinstance(v, Scored | Unscored) and not is_lost(v)
        }
        if answers:
            await self._keep(attempt.call, answers)
        return verdicts

    def _count(self, kind: FailureKind, detail: str, started: float) -> None:
        now = asyncio.get_running_loop().time()
        if pause := self.circuit_breaker.count(kind, started=started, now=now, detail=detail):
            self._concurrency.pause(pause)


def _questions(call: JudgeCall) -> set[tuple[int, str]]:
    return {(call.repeat, key) for key in call.keys.values()}


def _smaller(now: ViewLimits, used: ViewLimits, detail: str) -> ViewLimits:
    """Return smaller limits after a prompt was too long.

    The new context size is the one that the server's error message states, or half of the current size.
    """
    stated_sizes = [int(n.replace(",", "")) for n in _CONTEXT.findall(detail)]
    fits = [n for n in stated_sizes if LEAST_CONTEXT <= n < used.context_tokens * 9 // 10]
    tokens = min(fits) if fits else max(used.context_tokens // 2, LEAST_CONTEXT)
    return now if now.context_tokens <= tokens else replace(now, context_tokens=tokens)


def _verdicts(attempt: _CallAttempt, model: str, context_tokens: int) -> dict[str, Verdict]:
    """Return a verdict for every metric of a call, each with its share of the usage of all tries."""
    now = as_text(datetime.now(UTC).replace(microsecond=0))
    reply, keys = attempt.reply or Reply("", Usage()), keys_of_environment()
    verdicts: dict[str, Verdict] = {}
    shares = attempt.usage.shares(len(attempt.call.metrics))
    for metric, share in zip(attempt.call.metrics, shares, strict=True):
        read = attempt.read.get(metric.name)
        verdict = (
            replace(
                _without_keys(read, keys), answered_by=model, answered_at=now, context_tokens=context_tokens
            )
            if isinstance(read, Scored | Unscored)
            else Unscored(attempt.reason, attempt.detail)
        )
        verdicts[metric.name] = replace(
            verdict,
            prompt_hash=attempt.prompt.prompt_hash,
            cost_usd=share.cost_usd,
            n_tokens_in=share.n_in,
            n_tokens_out=share.n_out,
            n_tokens_cached=share.n_cached,
            response_model=reply.model and hide_secrets(reply.model, keys),
            system_fingerprint=reply.fingerprint and hide_secrets(reply.fingerprint, keys),
            dropped_parameters=reply.dropped,
            seen_share=attempt.prompt.seen_share,
            n_left_out=attempt.prompt.n_left_out,
        )
    return verdicts


def _without_keys(verdict: Scored | Unscored, keys: frozenset[str]) -> Scored | Unscored:
    """Return a judge's answer without API keys, because a provider can repeat the key that it was sent.

    Values in a quote that only look like keys are kept, because the quote must occur verbatim in the transcript.
    """
    if isinstance(verdict, Unscored):
        evidence = verdict.evidence and hide_keys(verdict.evidence, keys)
        return replace(verdict, detail=hide_secrets(verdict.detail, keys), evidence=evidence)
    return replace(
        verdict,
        rationale=hide_secrets(verdict.rationale, keys),
        evidence=verdict.evidence and hide_keys(verdict.evidence, keys),
        label=verdict.label and hide_secrets(verdict.label, keys),
    )
