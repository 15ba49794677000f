"""Several workers with the same questions: one asks each, the others wait for its answer."""

import asyncio
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import polars as pl
import pytest

from agent_eval.judge.keys import cache_key
from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.client import CallError, Reply
from agent_eval.judge.llm.panel import AnswersByQuestion, Panel
from agent_eval.judge.prompts import Messages, Prompt
from agent_eval.judge.protocol import Scored
from agent_eval.tables import table
from tests.judge.fakes import DOWN, GONE, Kept, ScriptedClient, panel_of
from tests.judge.test_panel import NOTHING, SEQUENCES
from tests.judge.test_requests import questions, talk

Row = Mapping[str, object]


@dataclass
class Shared:
    """What all workers see: claims by key, and answers."""

    claims: dict[str, int] = field(default_factory=dict[str, int])
    answers: dict[str, Row] = field(default_factory=dict[str, Row])
    lock: threading.Lock = field(default_factory=threading.Lock)
    n_workers: int = 0

    def table(self) -> "Claimed":
        self.n_workers += 1
        return Claimed(self, self.n_workers)


@dataclass
class Claimed:
    shared: Shared
    worker: int

    def claim(self, keys: Collection[str]) -> bool:
        with self.shared.lock:
            if self._of_others(keys) or self.shared.answers.keys() & set(keys):
                return False
            self.shared.claims |= dict.fromkeys(keys, self.worker)
        return True

    def _of_others(self, keys: Collection[str]) -> set[str]:
        return {key for key in keys if self.shared.claims.get(key, self.worker) != self.worker}

    def arrived(self, keys: Collection[str]) -> tuple[pl.DataFrame, set[str]]:
        with self.shared.lock:
            rows = [dict(self.shared.answers[key]) for key in keys if key in self.shared.answers]
            return table("judge_cache").frame(rows), self._of_others(keys)

    def release(self, keys: Collection[str] | None = None) -> None:
        with self.shared.lock:
            mine = {key for key, worker in self.shared.claims.items() if worker == self.worker}
            for key in mine if keys is None else mine & set(keys):
                del self.shared.claims[key]

    def renew(self) -> None: ...

    def close(self) -> None:
        self.release()


@dataclass
class Publishing(Kept):
    shared: Shared = field(default_factory=Shared)

    def write(self, rows: Sequence[Row]) -> None:
        super().write(rows)
        with self.shared.lock:
            for row in rows:
                self.shared.answers[str(row["cache_key"])] = row
                self.shared.claims.pop(str(row["cache_key"]), None)


@dataclass
class WaitsForOther(ScriptedClient):
    """Answers after the first wait until the other client was asked as well, whichever thread is slow to begin."""

    other: ScriptedClient | None = None

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        reply = await super().complete(messages, form, max_tokens)
        until = time.monotonic() + 60
        while len(self.asked) > 1 and self.other and not self.other.asked and time.monotonic() < until:
            await asyncio.sleep(0.001)
        return reply


def worker(client: ScriptedClient, shared: Shared, concurrency: int = 16) -> Panel:
    panel = panel_of(client, kept=Publishing(shared=shared), concurrency=concurrency)
    assert panel.runtime is not None
    return replace(panel, runtime=replace(panel.runtime, claiming=shared.table))


def test_two_workers_with_the_same_questions_make_the_calls_of_one_and_have_the_same_answers() -> None:
    shared, clients = Shared(), [WaitsForOther(), WaitsForOther()]
    clients[0].other, clients[1].other = clients[1], clients[0]

    def answers(client: ScriptedClient) -> AnswersByQuestion:
        return worker(client, shared, concurrency=2).answers(SEQUENCES, NOTHING)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(answers, clients)
    assert sum(len(client.asked) for client in clients) == 6
    assert all(client.asked for client in clients)  # they divide the work
    assert first == second


def test_an_answer_that_arrived_after_the_lookup_is_neither_asked_again_nor_reported_as_a_call() -> None:
    shared, late, said = Shared(), ScriptedClient(), list[str]()
    given = worker(ScriptedClient(), shared).answers(SEQUENCES, NOTHING)
    again = worker(late, shared).answers(SEQUENCES, NOTHING, watch=lambda shown: said.append(shown.line()))
    assert again == given
    assert late.asked == []
    assert said[-1].startswith("scripted: 0 of 6 calls, 0.0 a second")
    assert said[-1].endswith("6 calls made by other workers")


def test_a_call_that_a_cap_prevents_after_others_answered_a_part_is_not_reported_as_made() -> None:
    shared, late, said = Shared(), ScriptedClient(), list[str]()
    sequence = QuestionSequence(questions(talk("c", 3)))
    worker(ScriptedClient(), shared).answers([sequence], NOTHING)
    panel = worker(late, shared)
    for question in sequence.questions[1:3]:  # asked at the same time, after the first turn
        del shared.answers[cache_key(question.keys["helpfulness"], "scripted", panel.spec.parameters, 0)]
    assert panel.runtime is not None
    capped = replace(panel, runtime=replace(panel.runtime, budget=Budget(max_calls=1)))
    capped.answers([sequence], NOTHING, watch=lambda shown: said.append(shown.line()))
    assert late.names_asked == [{"helpfulness"}]
    assert said[-1].startswith("scripted: 1 of 3 calls")
    assert said[-1].endswith("1 call made by other workers, 1 call not sent")


def test_only_the_open_questions_of_a_call_are_asked() -> None:
    shared, late = Shared(), ScriptedClient()
    worker(ScriptedClient(), shared).answers(SEQUENCES, NOTHING)
    lost = next(key for key, row in shared.answers.items() if row["metric"] == "helpfulness")
    del shared.answers[lost]
    worker(late, shared).answers(SEQUENCES, NOTHING)
    assert late.names_asked == [{"helpfulness"}]


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("error", [GONE, DOWN], ids=["connection", "server"])
def test_questions_that_a_worker_could_not_get_answered_are_free_for_others(error: CallError) -> None:
    shared, next_one = Shared(), ScriptedClient()
    worker(ScriptedClient(always=error), shared).answers(SEQUENCES, NOTHING)
    assert shared.claims == {}
    given = worker(next_one, shared).answers(SEQUENCES, NOTHING)
    assert len(next_one.asked) == 6
    assert all(isinstance(verdict, Scored) for own in given.values() for _, verdict in own)


def test_an_answer_given_on_other_evidence_is_asked_again() -> None:
    shared, other = Shared(), ScriptedClient()
    worker(ScriptedClient(), shared).answers(SEQUENCES, NOTHING)
    in_part = {"seen_share": 0.5, "context_tokens": 4096}
    shared.answers = {key: {**row, **in_part} for key, row in shared.answers.items()}
    worker(other, shared).answers(SEQUENCES, NOTHING)
    assert len(other.asked) == 6
