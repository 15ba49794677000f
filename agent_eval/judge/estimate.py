"""Estimate the tokens and cost of planned judge calls, with and without the provider's cache."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial

import polars as pl

from agent_eval.judge.clusters.naming import first_model
from agent_eval.judge.llm.budget import Price
from agent_eval.judge.llm.calls import JudgeCall, QuestionSequence
from agent_eval.judge.llm.panel import Panel
from agent_eval.judge.llm.requests import PromptFormat
from agent_eval.judge.prompts import DEFAULT_LIMITS, PrefixCache, Prompt, ViewLimits, build_prompt, in_parts
from agent_eval.judge.prompts.attachments import TOKENS_PER_IMAGE
from agent_eval.metrics.base import Metric

CHARACTERS_PER_TOKEN = 4  # approximation for English that avoids a tokenizer per provider
TOKENS_PER_ANSWER = 35  # evidence, a reason of one or two sentences, the answer and its keys


@dataclass(frozen=True)
class CallEstimate:
    """Hold the estimate for planned calls: their exact number and the approximate number of tokens."""

    n_calls: int = 0
    n_tokens_in: int = 0
    n_tokens_out: int = 0
    n_answers: int = 0
    n_in_part: int = 0  # answers based on part of the evidence
    n_tokens_cached: int = 0  # prompt tokens read from the provider's cache
    n_tokens_written: int = 0  # prompt tokens written to the provider's cache
    n_images: int = 0  # sent with the prompts, and counted as TOKENS_PER_IMAGE prompt tokens each
    n_uncounted: int = 0  # audio and files sent with the prompts, whose tokens are not counted

    def __add__(self, other: "CallEstimate") -> "CallEstimate":
        return CallEstimate(*(a + b for a, b in zip(self._counts, other._counts, strict=True)))

    @property
    def _counts(self) -> tuple[int, ...]:
        return astuple(self)

    def cost_usd(self, price: Price | None) -> float | None:
        """Return the cost in US dollars without the provider's cache, or None if the price is unknown."""
        return None if price is None else price.of(self.n_tokens_in, self.n_tokens_out)

    def cost_cached_usd(self, price: Price | None) -> float | None:
        """Return the cost in US dollars with the provider's cache, or None if the price is unknown."""
        counts = (self.n_tokens_in, self.n_tokens_out, self.n_tokens_cached, self.n_tokens_written)
        return None if price is None else price.of(*counts)


def estimate(
    planned: Sequence[Sequence[JudgeCall]],
    rubric_metrics: Sequence[Metric] | None,
    limits: ViewLimits = DEFAULT_LIMITS,
    concurrency: int = 1,
) -> CallEstimate:
    """Return the estimate for planned calls that run `concurrency` at a time. The prompts are built but not sent.

    Calls are assumed to take equally long, and to read from the provider's cache what earlier rounds wrote.
    """
    total, cache = CallEstimate(), PrefixCache(CHARACTERS_PER_TOKEN)
    for calls in _rounds(planned, rubric_metrics, concurrency):
        for call in calls:
            for questions in in_parts(call.questions, limits):
                total += _estimate_of(replace(call, questions=questions), rubric_metrics, limits, cache)
        cache.next_round()
    return total


def estimate_of_clusters(
    sequences: Sequence[QuestionSequence],
    panel: Panel,
    cache: pl.DataFrame,
    prompt_format: type[PromptFormat],
) -> CallEstimate:
    """Return the estimate for the questions about clusters that have no stored answer; the first model is asked."""
    total, form = CallEstimate(), prompt_format(b"estimate")
    for calls in first_model(panel).planned(sequences, cache):
        for call in calls:
            n_answers = len(call.keys)
            n_tokens_in = _n_tokens(form.prompt(call, DEFAULT_LIMITS))
            total += CallEstimate(1, n_tokens_in, n_answers * TOKENS_PER_ANSWER, n_answers)
    return total


def _rounds(
    planned: Sequence[Sequence[JudgeCall]], rubric_metrics: Sequence[Metric] | None, concurrency: int
) -> Iterator[list[JudgeCall]]:
    """Yield rounds of concurrent calls in the order in which `Panel` sends them.

    The first call runs alone. After it, a round has the next call of each sequence, and idle slots take later calls
    of sequences whose first call is done.
    """
    n_done, warm = [0] * len(planned), set[tuple[Metric, ...]]()
    n_slots = 1
    while any(n < len(calls) for n, calls in zip(n_done, planned, strict=True)):
        n_in_round, opening = dict[int, int](), set[tuple[Metric, ...]]()
        for i, calls in enumerate(planned):
            begins = tuple(rubric_metrics) if rubric_metrics is not None else calls[0].metrics
            if len(n_in_round) < n_slots and n_done[i] < len(calls) and begins not in opening:
                n_in_round[i] = 1
                opening |= set() if begins in warm else {begins}
        idle = n_slots - len(n_in_round)
        for i in n_in_round:
            more = min(idle, len(planned[i]) - n_done[i] - 1) if n_done[i] else 0
            n_in_round[i] += more
            idle -= more
        yield [call for i, n in n_in_round.items() for call in planned[i][n_done[i] : n_done[i] + n]]
        for i, n in n_in_round.items():
            n_done[i] += n
        warm |= opening
        n_slots = concurrency


def _estimate_of(
    call: JudgeCall, rubric_metrics: Sequence[Metric] | None, limits: ViewLimits, cache: PrefixCache
) -> CallEstimate:
    """Return the estimate for one call, including all its windows and the call that merges them."""
    build = partial(
        build_prompt,
        call.questions,
        secret=b"estimate",
        metrics=rubric_metrics,
        names=call.names,
        findings=call.findings,
        limits=limits,
    )
    prompt = build()
    n = prompt.n_windows
    windows = [prompt, *(build(window=i) for i in range(1, n))]
    n_tokens = sum(_n_tokens(window) for window in windows)
    n_answers = len(call.metrics)
    n_images, n_uncounted = prompt.n_images * n, (len(prompt.attachments) - prompt.n_images) * n
    n_out = n_answers * TOKENS_PER_ANSWER
    n_in_part = n_answers if sum(window.seen_share for window in windows) < 1 else 0
    if n == 1:
        cached = cache.charge(prompt.messages)
        return CallEstimate(1, n_tokens, n_out, n_answers, n_in_part, *cached, n_images, n_uncounted)
    n_in = n_tokens + n * n_out + _n_tokens(prompt) // 2
    return CallEstimate(n + 1, n_in, (n + 1) * n_out, n_answers, n_in_part, 0, 0, n_images, n_uncounted)


def _n_tokens(prompt: Prompt) -> int:
    n_characters = sum(len(message["content"]) for message in prompt.messages)
    return n_characters // CHARACTERS_PER_TOKEN + prompt.n_images * TOKENS_PER_IMAGE
