"""Convert answers of models to rows of judge_cache and back, and write them. Stored answers are reused for equal questions."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

import polars as pl

from agent_eval.formats.hashing import canonical
from agent_eval.formats.timestamps import as_text
from agent_eval.judge.keys import cache_key
from agent_eval.judge.llm.calls import JudgeCall
from agent_eval.judge.protocol import GIVEN, Cause, Scored, Unscored
from agent_eval.metrics.base import Metric
from agent_eval.metrics.earlier import is_earlier
from agent_eval.metrics.profile import asked_since

Row = dict[str, Any]
_PAID = ("prompt_hash", "cost_usd", "n_tokens_in", "n_tokens_out", "n_tokens_cached")
_SEEN = ("seen_share", "n_left_out", "context_tokens")
_ANSWERED = ("response_model", "system_fingerprint", "dropped_parameters")


def rows_of(
    call: JudgeCall, answers: Mapping[str, Scored | Unscored], model: str, parameters: Mapping[str, object]
) -> Iterator[Row]:
    """Yield a row of judge_cache for each answer of a call."""
    written = canonical(dict(parameters)).decode()
    for name, answer in answers.items():
        question = call.question_of(name)
        metric = next(m for m in question.metrics if m.name == name)
        yield {
            "cache_key": cache_key(question.keys[name], model, parameters, call.repeat),
            "question_key": question.keys[name],
            "content_hash": question.content_hash,
            "turn_index": question.turn_index,
            "metric": name,
            "rubric_hash": _rubric_hash(metric),
            "profile_version": asked_since(metric.name),
            "model": model,
            "parameters": written,
            "repeat": call.repeat,
            "verdict": canonical(_written(answer)).decode(),
            **{name: getattr(answer, name) for name in (*_PAID, *_SEEN, *_ANSWERED)},
            "judged_at": answer.answered_at,
        }


def answers_of(
    cache: pl.DataFrame,
    model: str,
    parameters: Mapping[str, object],
    context_tokens: Callable[[], int] | None = None,
    repeat: int = 0,
) -> dict[str, Scored | Unscored]:
    """Return the stored answers of a model with the given parameters, by question key. Recorded verdicts are excluded.

    An answer based on part of the evidence is ignored if its context size differs from the current one.

    Args:
        cache: Rows of the table judge_cache, for any models.
        model: Name of the model in litellm.
        parameters: Parameters from JudgeSpec.
        context_tokens: Function that returns the current context size. It is called only if an answer is based on part
            of the evidence. By default, all answers are returned.
        repeat: Number of the repeat, from 0.
    """
    written = canonical(dict(parameters)).decode()
    is_own = pl.col("is_recorded").is_null() & (pl.col("model") == model) & (pl.col("parameters") == written)
    mine = cache.filter(is_own, pl.col("repeat") == repeat)
    in_part = pl.col("seen_share").fill_null(1.0) < 1
    if context_tokens is not None and mine.select(in_part.any()).item():
        mine = mine.filter(~in_part | (pl.col("context_tokens") == context_tokens()))
    answer_of_key = {str(row["question_key"]): _scored(row) for row in _latest_last(mine)}
    return {key: answer for key, answer in answer_of_key.items() if answer is not None}


def _latest_last(rows: pl.DataFrame) -> Iterator[Row]:
    return rows.sort("judged_at", "cache_key").iter_rows(named=True)


def _written(answer: Scored | Unscored) -> dict[str, object]:
    if isinstance(answer, Unscored):
        facts: dict[str, object] = {"status": "unscored", "reason": answer.reason, "rationale": answer.detail}
        return facts if answer.evidence is None else {**facts, "evidence": answer.evidence}
    values = {
        "status": "scored",
        "rating_1to5": answer.rating_1to5,
        "value": answer.value,
        "label": answer.label,
        "further_labels": list(answer.further_labels) or None,
        "item_verdicts": list(answer.item_verdicts) or None,
        "causes": [asdict(cause) for cause in answer.causes] or None,
        "rationale": answer.rationale,
        "evidence": answer.evidence,
    }
    return {name: value for name, value in values.items() if value is not None}


def _scored(row: Row) -> Scored | Unscored | None:
    verdict = json.loads(str(row["verdict"]))
    status = verdict.pop("status", None)
    if status == "unscored" and verdict.get("reason") in GIVEN:
        kept_verdict = Unscored(verdict["reason"], verdict.get("rationale") or "", verdict.get("evidence"))
        return replace(kept_verdict, **_facts(row))
    if status != "scored":
        return None
    for name in ("further_labels", "item_verdicts"):
        verdict[name] = tuple(verdict.get(name) or ())
    verdict["causes"] = tuple(Cause(**cause) for cause in verdict.get("causes") or ())
    return Scored(**verdict, **_facts(row))


def _facts(row: Row) -> dict[str, Any]:
    """Return the provenance of an answer: the model, the time, the cost and the share of the evidence shown."""
    dropped = row["dropped_parameters"]
    is_kept = is_earlier(row["metric"], row["profile_version"], row["rubric_hash"])
    return {
        "earlier_profile": row["profile_version"] if is_kept else None,
        "answered_by": str(row["model"]),
        "answered_at": as_text(row["judged_at"]),
        **{n: row[n] for n in (*_PAID, *_SEEN, "response_model", "system_fingerprint")},
        "dropped_parameters": None if dropped is None else tuple(dropped),
    }


@lru_cache(maxsize=256)
def _rubric_hash(metric: Metric) -> str:
    return metric.rubric_hash


class AnswerWriter:
    """Writes rows as they arrive, in a separate thread, one batch at a time. An instance belongs to one event loop.

    Rows that arrive while a batch is being written form the next batch. The event loop therefore never waits for the
    disk, and a slow disk only makes the batches larger.
    """

    def __init__(self, write: Callable[[Sequence[Mapping[str, object]]], None]) -> None:
        self._write = write
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge-answers")
        self._pending: list[tuple[Sequence[Mapping[str, object]], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write rows, and return when they are stored.

        Raises:
            OSError: If the rows cannot be written, e.g. because the disk is full.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._pending.append((rows, done))
        if self._writing is None:
            self._writing = loop.create_task(self._write_all())
        await done

    async def close(self) -> None:
        """Wait until all pending rows are written."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                await loop.run_in_executor(
                    self._thread, self._write, [row for rows, _ in batch for row in rows]
                )
            except Exception as error:  # the waiting callers raise the error
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
            else:
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)
        self._writing = None
