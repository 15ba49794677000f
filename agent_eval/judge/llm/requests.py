"""The judge with a model: one call made until it is answered, or until it is clear that it will not be.

Unreadable replies are asked for once more, with what was wrong; truncated ones with a larger limit; refused and failed
calls are tried again after a pause that doubles, or as long as the provider asks for. A call holds its slot only
while it is under way, and until its answer is stored: so no more answers than slots can be lost.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar

from agent_eval.judge.llm.budget import Budget, Usage
from agent_eval.judge.llm.calls import JudgeCall
from agent_eval.judge.llm.circuit_breaker import CircuitBreaker, FailureKind
from agent_eval.judge.llm.client import CallError, Client, Reply
from agent_eval.judge.llm.concurrency import AdaptiveConcurrency
from agent_eval.judge.llm.redaction import hide_keys, hide_secrets, keys_of_environment, redact
from agent_eval.judge.llm.transport import Failure
from agent_eval.judge.prompts import Messages, Prompt, ReplyError, build_prompt, read_reply, repair_messages
from agent_eval.judge.protocol import Scored, Unscored, UnscoredReason, Verdict
from agent_eval.metrics.base import Metric

MOST_TRIES = 6  # of one request, against 429, 5xx, time-outs and lost connections
MOST_TIMEOUTS = 2  # of one request: each costs the whole time-out
FIRST_PAUSE_S = 0.25  # doubles: 0.25, 0.5, 1, 2, 4 seconds, and up to a fifth more or less
LONGEST_WAIT_S = 120.0  # a provider that asks for more is not waited for
MOST_ENLARGED = 2  # times that the limit of a truncated reply is doubled

Keep = Callable[[JudgeCall, Mapping[str, Scored]], Awaitable[None]]
"""Stores the answers of a call, by metric name; returns when they are safe."""

_AT_ONCE: Mapping[Failure, FailureKind] = {
    "connection": "connection",
    "timeout": "timeout",
    "authentication": "authentication",
    "refused": "refused",
}


@dataclass(frozen=True)
class PromptFormat:
    """What all prompts of a pass share: how they are built and their replies read."""

    secret: bytes
    shown: tuple[Metric, ...] | None = None  # rubrics in the system message; None: those of the call only
    max_tokens: int = 4096
    asks_again: ClassVar[bool] = True  # once, for a reply that cannot be read

    def prompt(self, call: JudgeCall) -> Prompt:
        """The prompt of one call."""
        return build_prompt(
            call.questions, secret=self.secret, metrics=self.shown, names=call.names, findings=call.findings
        )

    def read(self, call: JudgeCall, prompt: Prompt, text: str) -> Mapping[str, Verdict]:
        """The verdict of every metric of the call.

        Raises:
            ReplyError: If the reply cannot be read, or not all of it.
        """
        return read_reply(prompt, text)


@dataclass
class _CallAttempt:
    """Tracks one call on its way: what is sent next, what it took so far, what was read."""

    call: JudgeCall
    prompt: Prompt
    messages: Messages
    max_tokens: int
    usage: Usage = field(default_factory=Usage)
    read: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    n_failed: int = 0
    n_timeouts: int = 0
    n_enlarged: int = 0
    reply: Reply | None = None  # the last one
    is_repaired: bool = False
    is_ended: bool = False
    reason: UnscoredReason = "judge_error"
    detail: str = ""


class ModelJudge:
    """One model, for one pass."""

    def __init__(
        self,
        client: Client,
        prompt_format: PromptFormat,
        concurrency: AdaptiveConcurrency,
        budget: Budget,
        keep: Keep,
        rng: random.Random | None = None,
    ) -> None:
        self.name = client.model
        self.circuit_breaker = CircuitBreaker(client.model)
        self._client, self._format, self._concurrency = client, prompt_format, concurrency
        self._budget, self._keep = budget, keep
        self._rng = rng or random.Random()

    async def ask(self, call: JudgeCall) -> Mapping[str, Verdict]:
        """A verdict for every metric of the call, by name; Unscored with its reason where there is none."""
        attempt: _CallAttempt | None = None
        while True:
            async with self._concurrency.slot(call.number):
                lost = self._why_not_asked()
                if lost is not None and attempt is None:
                    return dict.fromkeys((metric.name for metric in call.metrics), lost)
                attempt = attempt or self._begin(call)  # built late: prompts of waiting calls take no memory
                pause = self._end(attempt, lost.reason, lost.detail) if lost else await self._try(attempt)
                if attempt.is_ended:
                    return await self._stored(attempt)
            if pause:
                await asyncio.sleep(pause)

    def _begin(self, call: JudgeCall) -> _CallAttempt:
        prompt = self._format.prompt(call)
        return _CallAttempt(call, prompt, prompt.messages, self._format.max_tokens)

    def _why_not_asked(self) -> Unscored | None:
        if self.circuit_breaker.why_ended is not None:
            return Unscored(self.circuit_breaker.reason, self.circuit_breaker.why_ended)
        if (why := self._budget.why_exhausted()) is not None:
            return Unscored("budget_exhausted", why)
        return None

    async def _try(self, attempt: _CallAttempt) -> float:
        """Send once; seconds to wait before the next try."""
        if (why := self._budget.begin_call(self.name)) is not None:
            return self._end(attempt, "budget_exhausted", why)
        started = asyncio.get_running_loop().time()
        try:
            reply = await self._client.complete(attempt.messages, attempt.prompt, attempt.max_tokens)
        except CallError as error:
            self._budget.end_call(self.name, None)
            self._concurrency.finished(is_refused=error.failure == "rate")
            return self._after_failure(attempt, error, started)
        self._concurrency.finished(is_refused=False)
        self._budget.end_call(self.name, reply.usage)
        attempt.usage += reply.usage
        attempt.reply = reply
        return self._after_reply(attempt, reply, started)

    def _after_failure(self, attempt: _CallAttempt, error: CallError, started: float) -> float:
        attempt.n_failed += 1
        attempt.n_timeouts += error.failure == "timeout"
        if (kind := _AT_ONCE.get(error.failure)) is not None:
            self._count(kind, error.detail, started)
        is_hopeless = error.failure in ("authentication", "refused", "unfit")
        is_too_long = (error.retry_after_s or 0.0) > LONGEST_WAIT_S
        is_worn_out = attempt.n_failed >= MOST_TRIES or attempt.n_timeouts >= MOST_TIMEOUTS
        if is_hopeless or is_too_long or is_worn_out:
            if error.failure in ("rate", "server"):
                self._count("given_up", error.detail, started)
            asked = f"; it asked to wait {error.retry_after_s:g} s" if is_too_long else ""
            tries = f" (after {attempt.n_failed} tries)" if attempt.n_failed > 1 else ""
            return self._end(attempt, "judge_error", f"{error.detail}{asked}{tries}")
        pause = FIRST_PAUSE_S * 2.0 ** (attempt.n_failed - 1) * self._rng.uniform(0.8, 1.2)
        return max(pause, error.retry_after_s or 0.0)

    def _after_reply(self, attempt: _CallAttempt, reply: Reply, started: float) -> float:
        if reply.is_filtered:
            return self._end(attempt, "judge_error", "the provider's content filter held the reply back")
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
        """No further try: what was not read is lost for that reason."""
        attempt.is_ended, attempt.reason, attempt.detail = True, reason, detail
        return 0.0

    async def _stored(self, attempt: _CallAttempt) -> Mapping[str, Verdict]:
        verdicts = _verdicts(attempt, self.name)
        answers = {name: v for name, v in verdicts.items() if isinstance(v, Scored)}
        if answers:
            await self._keep(attempt.call, answers)
        return verdicts

    def _count(self, kind: FailureKind, detail: str, started: float) -> None:
        now = asyncio.get_running_loop().time()
        if pause := self.circuit_breaker.count(kind, started=started, now=now, detail=detail):
            self._concurrency.pause(pause)


def _verdicts(attempt: _CallAttempt, model: str) -> dict[str, Verdict]:
    """A verdict for every metric, each with its share of what the call took, all its tries together."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    reply, keys = attempt.reply or Reply("", Usage()), keys_of_environment()
    verdicts: dict[str, Verdict] = {}
    shares = attempt.usage.shares(len(attempt.call.metrics))
    for metric, share in zip(attempt.call.metrics, shares, strict=True):
        read = attempt.read.get(metric.name)
        verdict = (
            replace(_without_keys(read, keys), answered_by=model, answered_at=now)
            if isinstance(read, Scored)
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
        )
    return verdicts


def _without_keys(said: Scored, keys: frozenset[str]) -> Scored:
    """What a judge said, without API keys: a provider can repeat the one that it was sent.

    A quote keeps what only looks like a key: it has to be found in the transcript word for word.
    """
    return replace(
        said,
        rationale=hide_secrets(said.rationale, keys),
        evidence=said.evidence and hide_keys(said.evidence, keys),
        label=said.label and hide_secrets(said.label, keys),
    )
