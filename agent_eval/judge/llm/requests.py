"""The judge with a model: one call made until it is answered, or until it is clear that it will not be.

Unreadable replies are asked for once more, with what was wrong; truncated ones with a larger limit; refused and failed
calls are tried again after a pause that doubles, or as long as the provider asks for. A call holds its place only
while it is under way, and until its answer is stored: so no more answers than places can be lost.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar

from agent_eval.judge.llm.budget import Budget, Usage
from agent_eval.judge.llm.calls import Call
from agent_eval.judge.llm.circuit_breaker import Outage, Trouble
from agent_eval.judge.llm.client import CallError, Client, Failure, Reply
from agent_eval.judge.llm.concurrency import Pace
from agent_eval.judge.llm.redaction import redact
from agent_eval.judge.prompts import Messages, Prompt, ReplyError, build_prompt, read_reply, repair_messages
from agent_eval.judge.protocol import Scored, Unscored, UnscoredReason, Verdict
from agent_eval.metrics.base import Metric

MOST_TRIES = 6  # of one request, against 429, 5xx, time-outs and lost connections
MOST_TIMEOUTS = 2  # of one request: each costs the whole time-out
FIRST_PAUSE_S = 0.25  # doubles: 0.25, 0.5, 1, 2, 4 seconds, and up to a fifth more or less
LONGEST_WAIT_S = 120.0  # a provider that asks for more is not waited for
MOST_ENLARGED = 2  # times that the limit of a truncated reply is doubled

Keep = Callable[[Call, Mapping[str, Scored]], Awaitable[None]]
"""Stores the answers of a call, by metric name; returns when they are safe."""

_AT_ONCE: Mapping[Failure, Trouble] = {
    "connection": "connection",
    "timeout": "timeout",
    "authentication": "authentication",
    "refused": "refused",
}


@dataclass(frozen=True)
class Form:
    """What all prompts of a pass share: how they are built and their replies read."""

    secret: bytes
    shown: tuple[Metric, ...] | None = None  # rubrics in the system message; None: those of the call only
    max_tokens: int = 4096
    asks_again: ClassVar[bool] = True  # once, for a reply that cannot be read

    def prompt(self, call: Call) -> Prompt:
        """The prompt of one call."""
        return build_prompt(
            call.questions, secret=self.secret, metrics=self.shown, names=call.names, findings=call.findings
        )

    def read(self, call: Call, prompt: Prompt, text: str) -> Mapping[str, Verdict]:
        """The verdict of every metric of the call.

        Raises:
            ReplyError: If the reply cannot be read, or not all of it.
        """
        return read_reply(prompt, text)


@dataclass
class _Effort:
    """One call on its way: what is sent next, what it took so far, what was read."""

    call: Call
    prompt: Prompt
    messages: Messages
    max_tokens: int
    usage: Usage = field(default_factory=Usage)
    read: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    n_failed: int = 0
    n_timeouts: int = 0
    n_enlarged: int = 0
    is_repaired: bool = False
    is_ended: bool = False
    reason: UnscoredReason = "judge_error"
    detail: str = ""


class ModelJudge:
    """One model, for one pass."""

    def __init__(
        self,
        client: Client,
        form: Form,
        pace: Pace,
        budget: Budget,
        keep: Keep,
        rng: random.Random | None = None,
    ) -> None:
        self.name = client.model
        self.outage = Outage(client.model)
        self._client, self._form, self._pace = client, form, pace
        self._budget, self._keep = budget, keep
        self._rng = rng or random.Random()

    async def ask(self, call: Call) -> Mapping[str, Verdict]:
        """A verdict for every metric of the call, by name; Unscored with its reason where there is none."""
        effort: _Effort | None = None
        while True:
            async with self._pace.place(call.number):
                lost = self._why_not_asked()
                if lost is not None and effort is None:
                    return dict.fromkeys((metric.name for metric in call.metrics), lost)
                effort = effort or self._begin(call)  # built late: prompts of waiting calls take no memory
                pause = self._end(effort, lost.reason, lost.detail) if lost else await self._try(effort)
                if effort.is_ended:
                    return await self._stored(effort)
            if pause:
                await asyncio.sleep(pause)

    def _begin(self, call: Call) -> _Effort:
        prompt = self._form.prompt(call)
        return _Effort(call, prompt, prompt.messages, self._form.max_tokens)

    def _why_not_asked(self) -> Unscored | None:
        if self.outage.why_ended is not None:
            return Unscored(self.outage.reason, self.outage.why_ended)
        if (why := self._budget.why_exhausted()) is not None:
            return Unscored("budget_exhausted", why)
        return None

    async def _try(self, effort: _Effort) -> float:
        """Send once; seconds to wait before the next try."""
        self._budget.begin_call()
        started = asyncio.get_running_loop().time()
        try:
            reply = await self._client.complete(effort.messages, effort.prompt, effort.max_tokens)
        except CallError as error:
            self._pace.finished(is_refused=error.failure == "rate")
            return self._after_failure(effort, error, started)
        self._pace.finished(is_refused=False)
        self._budget.pay(reply.usage.cost_usd)
        effort.usage += reply.usage
        return self._after_reply(effort, reply, started)

    def _after_failure(self, effort: _Effort, error: CallError, started: float) -> float:
        effort.n_failed += 1
        effort.n_timeouts += error.failure == "timeout"
        if (trouble := _AT_ONCE.get(error.failure)) is not None:
            self._count(trouble, error.detail, started)
        is_hopeless = error.failure in ("authentication", "refused", "unfit")
        is_too_long = (error.retry_after_s or 0.0) > LONGEST_WAIT_S
        is_worn_out = effort.n_failed >= MOST_TRIES or effort.n_timeouts >= MOST_TIMEOUTS
        if is_hopeless or is_too_long or is_worn_out:
            if error.failure in ("rate", "server"):
                self._count("given_up", error.detail, started)
            asked = f"; it asked to wait {error.retry_after_s:g} s" if is_too_long else ""
            tries = f" (after {effort.n_failed} tries)" if effort.n_failed > 1 else ""
            return self._end(effort, "judge_error", f"{error.detail}{asked}{tries}")
        pause = FIRST_PAUSE_S * 2.0 ** (effort.n_failed - 1) * self._rng.uniform(0.8, 1.2)
        return max(pause, error.retry_after_s or 0.0)

    def _after_reply(self, effort: _Effort, reply: Reply, started: float) -> float:
        if reply.is_filtered:
            return self._end(effort, "judge_error", "the provider's content filter held the reply back")
        if reply.is_truncated:
            if effort.n_enlarged == MOST_ENLARGED:
                detail = f"the reply was cut off at {effort.max_tokens} tokens; raise judge_max_tokens"
                return self._end(effort, "truncated", detail)
            effort.n_enlarged += 1
            effort.max_tokens *= 2
            return 0.0
        try:
            effort.read |= self._form.read(effort.call, effort.prompt, reply.text)
        except ReplyError as error:
            effort.read |= error.read
            if effort.is_repaired or not self._form.asks_again:
                if not effort.read:
                    self._count("unreadable", error.problem, started)
                return self._end(effort, "parse_failure", redact(str(error)))
            effort.is_repaired = True
            effort.messages = repair_messages(effort.prompt, error)
            return 0.0
        self.outage.answered()
        return self._end(effort)

    def _end(self, effort: _Effort, reason: UnscoredReason = "judge_error", detail: str = "") -> float:
        """No further try: what was not read is lost for that reason."""
        effort.is_ended, effort.reason, effort.detail = True, reason, detail
        return 0.0

    async def _stored(self, effort: _Effort) -> Mapping[str, Verdict]:
        verdicts = _verdicts(effort, self.name)
        answers = {name: v for name, v in verdicts.items() if isinstance(v, Scored)}
        if answers:
            await self._keep(effort.call, answers)
        return verdicts

    def _count(self, trouble: Trouble, detail: str, started: float) -> None:
        now = asyncio.get_running_loop().time()
        if pause := self.outage.count(trouble, started=started, now=now, detail=detail):
            self._pace.hold(pause)


def _verdicts(effort: _Effort, model: str) -> dict[str, Verdict]:
    """A verdict for every metric, each with its share of what the call took, all its tries together."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    verdicts: dict[str, Verdict] = {}
    shares = effort.usage.shares(len(effort.call.metrics))
    for metric, share in zip(effort.call.metrics, shares, strict=True):
        read = effort.read.get(metric.name)
        verdict = (
            replace(read, answered_by=model, answered_at=now)
            if isinstance(read, Scored)
            else Unscored(effort.reason, effort.detail)
        )
        verdicts[metric.name] = replace(
            verdict,
            prompt_hash=effort.prompt.prompt_hash,
            cost_usd=share.cost_usd,
            n_tokens_in=share.n_in,
            n_tokens_out=share.n_out,
            n_tokens_cached=share.n_cached,
        )
    return verdicts
