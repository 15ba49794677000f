"""The judge with a model: tried again, repaired, enlarged, ended; nothing invented, nothing answered lost."""

import asyncio
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.calls import JudgeCall, QuestionSequence, plan
from agent_eval.judge.llm.client import CallError, Reply
from agent_eval.judge.llm.concurrency import AdaptiveConcurrency
from agent_eval.judge.llm.requests import MOST_TRIES, ModelJudge, PromptFormat
from agent_eval.judge.prompts import Messages, Prompt
from agent_eval.judge.protocol import Question, Scored, Unscored, Verdict
from agent_eval.judge.run_sync import run_sync
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE as FAILURE
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.transcripts.models import Conversation
from tests.judge.fakes import BUSY, CUT_OFF, DOWN, GARBAGE, GONE, USAGE, Kept, ScriptedClient
from tests.judge.material import agent, conversation, user

METRICS = (HELPFULNESS, FAILURE)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are written down, not waited for."""
    written: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            written.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr("agent_eval.judge.llm.concurrency.START_GAP_S", 0.0)
    return written


def talk(name: str = "c1", n_turns: int = 1) -> Conversation:
    parts = [part for i in range(n_turns) for part in (user(f"{name} asks {i}"), agent(f"Answer {i}"))]
    return conversation(*parts, conversation_id=name)


def questions(of: Conversation, metrics: Sequence[Metric] = METRICS) -> list[Question]:
    turns = of.turns()
    return [
        Question(
            (of,), (turns[: i + 1],), i, f"{of.conversation_id}.{i}", tuple(metrics),
            {m.name: f"{of.conversation_id}.{i}.{m.name}" for m in metrics},
        )
        for i in range(len(turns))
    ]  # fmt: skip


def calls(n: int) -> list[JudgeCall]:
    planned = plan([QuestionSequence(questions(talk(f"c{i}"))) for i in range(n)], ())
    return [call for of_thread in planned for call in of_thread]


def all_scored(*found: Mapping[str, Verdict]) -> bool:
    return all(isinstance(v, Scored) for verdicts in found for v in verdicts.values())


def reasons(*found: Mapping[str, Verdict]) -> list[str]:
    return [v.reason for verdicts in found for v in verdicts.values() if isinstance(v, Unscored)]


Found = list[Mapping[str, Verdict]]


def ask(
    client: ScriptedClient,
    *asked: JudgeCall,
    budget: Budget | None = None,
    kept: Kept | None = None,
    most: int = 4,
) -> Found:
    kept = kept or Kept()

    async def keep(call: JudgeCall, answers: Mapping[str, Scored | Unscored]) -> None:
        kept.write([{"key": call.keys[name]} for name in answers])

    async def go() -> Found:
        form, places = PromptFormat(b"s", METRICS, 500), AdaptiveConcurrency(most)
        judge = ModelJudge(client, form, places, budget or Budget(), keep, random.Random(1))
        return list(await asyncio.gather(*(judge.ask(call) for call in asked or calls(1))))

    return run_sync(go())


def test_an_answer_is_scored_with_what_it_cost_shared_over_its_metrics() -> None:
    kept = Kept()
    [verdicts] = ask(ScriptedClient(answers={"helpfulness": 2}), kept=kept)
    helpful, failure = verdicts["helpfulness"], verdicts[FAILURE.name]
    assert isinstance(helpful, Scored)
    assert isinstance(failure, Scored)
    assert (helpful.rating_1to5, failure.label) == (2, "no failure")
    assert (helpful.cost_usd, helpful.n_tokens_in, helpful.n_tokens_cached) == (0.005, 50, 30)
    assert helpful.answered_by == "scripted"
    assert helpful.prompt_hash == failure.prompt_hash is not None
    assert len(kept.rows) == 2


@pytest.mark.parametrize("trouble", [BUSY, DOWN, CallError("timeout", "slow"), GONE])
def test_a_call_that_failed_is_tried_again(trouble: CallError) -> None:
    client = ScriptedClient(first=[trouble])
    assert all_scored(*ask(client))
    assert len(client.asked) == 2


def test_pauses_double_with_jitter_and_their_sum_is_bounded(pauses: list[float]) -> None:
    assert reasons(*ask(ScriptedClient(always=DOWN))) == ["judge_error"] * 2
    assert len(pauses) == MOST_TRIES - 1
    for pause, middle in zip(pauses, (0.25, 0.5, 1, 2, 4), strict=True):
        assert 0.8 * middle <= pause <= 1.2 * middle
    assert sum(pauses) <= 10


def test_retry_after_is_honoured_and_one_without_end_is_not(pauses: list[float]) -> None:
    assert all_scored(*ask(ScriptedClient(first=[CallError("rate", "429", retry_after_s=30.0)])))
    assert pauses == [30.0]
    [verdicts] = ask(ScriptedClient(first=[CallError("rate", "429", retry_after_s=3600.0)]))
    details = {v.detail for v in verdicts.values() if isinstance(v, Unscored)}
    assert details == {"429; it asked to wait 3600 s"}


def test_the_place_is_free_while_a_call_waits_to_be_tried_again() -> None:
    client = ScriptedClient(first=[BUSY])
    ask(client, *calls(2), most=1)
    said = [prompt.turns[0].user_message for prompt in client.asked]
    assert said == ["c0 asks 0", "c1 asks 0", "c0 asks 0"]
    assert client.most_open == 1


def test_an_unreadable_reply_is_asked_for_once_more_and_told_what_was_wrong() -> None:
    client = ScriptedClient(first=[GARBAGE])
    [verdicts] = ask(client)
    assert all_scored(verdicts)
    (first, _), (second, _) = client.sent
    assert second[0] == first[0]  # the cached prefix stands
    request, _, code = first[-1]["content"].rpartition("\n")
    assert second[-1]["content"].startswith(request)
    assert second[-1]["content"].endswith(code)
    assert "weather" not in second[-1]["content"]
    # both calls are paid: 2 × 0.01 over two metrics
    assert [v.cost_usd for v in verdicts.values() if isinstance(v, Scored)] == [0.01, 0.01]


def test_garbage_twice_is_unscored_and_costs_what_it_cost() -> None:
    kept = Kept()
    [verdicts] = ask(ScriptedClient(always=GARBAGE), kept=kept)
    assert [(v.reason, v.n_tokens_in) for v in verdicts.values() if isinstance(v, Unscored)] == [
        ("parse_failure", 100)
    ] * 2
    assert kept.rows == []


def test_what_could_be_read_of_a_bad_reply_is_kept_even_when_the_repair_fails() -> None:
    half = Reply('{"helpfulness": {"evidence": null, "reason": "fine", "score": 4}}', USAGE)
    kept = Kept()
    [verdicts] = ask(ScriptedClient(first=[half], always=DOWN), kept=kept)
    assert isinstance(verdicts["helpfulness"], Scored)
    assert isinstance(verdicts[FAILURE.name], Unscored)
    assert len(kept.rows) == 1


def test_a_truncated_reply_is_asked_for_with_twice_the_limit_and_twice_that_at_most() -> None:
    client = ScriptedClient(first=[CUT_OFF])
    assert all_scored(*ask(client))
    assert [limit for _, limit in client.sent] == [500, 1000]
    client = ScriptedClient(always=CUT_OFF)
    assert reasons(*ask(client)) == ["truncated"] * 2
    assert [limit for _, limit in client.sent] == [500, 1000, 2000]


def test_a_refused_key_ends_the_pass_after_five_calls() -> None:
    client = ScriptedClient(always=CallError("authentication", "401"))
    found = ask(client, *calls(40), most=1)
    assert len(client.asked) == 5
    assert reasons(*found) == ["judge_error"] * 2 * 40


@pytest.mark.parametrize(
    ("trouble", "most_calls"),
    [
        (BUSY, 40 * MOST_TRIES),
        (DOWN, 40 * MOST_TRIES),
        (CallError("timeout", "no answer"), 5 + 4),
        (CallError("refused", "no such model"), 20 + 4),
        (GARBAGE, 2 * (20 + 4)),
        (CUT_OFF, 3 * 40),  # each call is answered, though not to its end
        (Reply("", USAGE), 2 * (20 + 4)),
        (Reply("[]", USAGE), 2 * (20 + 4)),
    ],
)
def test_a_judge_that_is_out_ends_the_pass_with_a_reason_for_every_answer(
    trouble: CallError | Reply, most_calls: int
) -> None:
    client = ScriptedClient(always=trouble)
    found = ask(client, *calls(40))
    assert len(client.asked) <= most_calls
    assert all(isinstance(v, Unscored) and v.detail for verdicts in found for v in verdicts.values())


def test_conversations_that_cannot_be_judged_do_not_end_the_pass() -> None:
    client = ScriptedClient(first=[CallError("unfit", "too long")] * 30)
    found = ask(client, *calls(40))
    assert sum(isinstance(v, Scored) for verdicts in found for v in verdicts.values()) == 2 * 10


def test_a_cap_on_calls_is_never_passed_and_the_rest_says_so() -> None:
    client, budget = ScriptedClient(), Budget(max_calls=7)
    found = ask(client, *calls(20), budget=budget)
    assert len(client.asked) == 7
    assert reasons(*found) == ["budget_exhausted"] * 2 * 13


def test_a_cap_in_dollars_is_passed_by_the_calls_under_way_at_most() -> None:
    client, budget = ScriptedClient(), Budget(max_cost_usd=0.05)  # five calls of a cent
    ask(client, *calls(30), budget=budget, most=4)
    assert 5 <= len(client.asked) <= 5 + 4


def test_what_cannot_be_stored_stops_the_work() -> None:
    def full(rows: Sequence[Mapping[str, object]]) -> None:
        raise OSError("no space left")

    kept = Kept()
    kept.write = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        ask(ScriptedClient(), kept=kept)


def test_the_longest_conversations_go_first_and_known_answers_are_left_out() -> None:
    sequences = [QuestionSequence(questions(talk("short"))), QuestionSequence(questions(talk("long", 3)))]
    known = {"long.0.helpfulness", f"long.0.{FAILURE.name}", "long.1.helpfulness"}
    planned = plan(sequences, known)
    hashes = [[c.questions[0].content_hash for c in of_thread] for of_thread in planned]
    assert hashes == [["long.1", "long.2"], ["short.0"]]
    assert [m.name for m in planned[0][0].metrics] == [FAILURE.name]


class MixedClient(ScriptedClient):
    """Gives right replies to the wrong calls: swapped in pairs, one call late, or the first reply again and again."""

    mix = "swapped"

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        asked = re.findall(r"(c\d+) asks", messages[-1]["content"])[-1]
        right = await super().complete(messages, form, max_tokens)
        parts = json.loads(right.text)
        own = replace(
            right,
            text=json.dumps(
                parts | {n: p | {"reason": asked} for n, p in parts.items() if isinstance(p, dict)}
            ),
        )
        given: list[Reply] = self.__dict__.setdefault("given", [])
        given.append(own)
        at = len(given) - 1
        if self.mix == "duplicated":
            return given[0]
        if self.mix == "delayed":
            return given[max(at - 1, 0)]
        while at == len(given) - 1 and at % 2 == 0 and self.n_rounds(given):
            await asyncio.sleep(0)
        return given[at + 1 if at % 2 == 0 and at + 1 < len(given) else max(at - 1, 0)]

    def n_rounds(self, given: list[Reply]) -> bool:
        """Wait for the other reply of the pair at most a thousand times."""
        self.__dict__["waited"] = self.__dict__.get("waited", 0) + 1
        return bool(self.__dict__["waited"] % 1000)


@pytest.mark.parametrize("mix", ["swapped", "delayed", "duplicated"])
def test_no_reply_is_scored_for_another_question(mix: str) -> None:
    client, kept = MixedClient(), Kept()
    client.mix = mix
    asked = calls(12)
    found = ask(client, *asked, kept=kept, most=2)
    wrong = [
        (call.questions[0].conversations[0].conversation_id, verdict)
        for call, verdicts in zip(asked, found, strict=True)
        for verdict in verdicts.values()
    ]
    assert all(v.rationale == name for name, v in wrong if isinstance(v, Scored))
    lost = [v for _, v in wrong if isinstance(v, Unscored)]
    assert lost
    named = [v for v in lost if v.reason == "parse_failure"]
    assert named
    assert all("another question" in v.detail for v in named)
    assert {v.reason for v in lost} <= {"parse_failure", "judge_error"}  # from then on the pass has ended
