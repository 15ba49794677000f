"""The panel: asked once, kept as it comes, given again; concurrency, circuit breaker, budget, ensemble, secrets."""

import asyncio
import contextlib
import errno
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_eval.judge.audits.sampling import disagreements
from agent_eval.judge.llm.budget import Budget, Price, Usage
from agent_eval.judge.llm.cache import AnswerWriter
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.circuit_breaker import CircuitBreaker
from agent_eval.judge.llm.concurrency import START_GAP_S, AdaptiveConcurrency, Place
from agent_eval.judge.llm.ensemble import combined, repeated
from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.judge.llm.progress import Progress
from agent_eval.judge.llm.redaction import HIDDEN, kept_secret, redact
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.protocol import Scored, Unscored, Verdict
from agent_eval.judge.run_sync import run_sync
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE as FAILURE
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION as GOAL
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.storage.ledger import Ledger, LedgerError, SpendingCap, spent
from agent_eval.tables import table
from tests.judge.fakes import GONE, USAGE, Kept, ScriptedClient, panel_of
from tests.judge.test_requests import questions, talk

NOTHING = table("judge_cache").empty()
SEQUENCES = [QuestionSequence(questions(talk(f"c{i}", 2))) for i in range(3)]


def test_the_first_call_goes_alone_and_the_others_at_once() -> None:
    client = ScriptedClient(latency_s=0.01)
    sequences = [QuestionSequence(questions(talk(f"c{i}"))) for i in range(9)]
    panel_of(client, concurrency=4).answers(sequences, NOTHING)
    assert client.most_open == 4
    assert client.is_closed


def test_a_second_panel_gives_what_the_first_was_told_without_asking() -> None:
    kept, client = Kept(), ScriptedClient()
    first = panel_of(ScriptedClient(), kept=kept).answers(SEQUENCES, NOTHING)
    assert panel_of(client).answers(SEQUENCES, kept.frame()) == first
    assert client.asked == []
    assert Panel(JudgeSpec(("scripted",))).answers(SEQUENCES, kept.frame()) == first  # nobody to be asked


def test_another_model_temperature_or_mode_is_asked_anew() -> None:
    kept = Kept()
    panel_of(ScriptedClient(), kept=kept).answers(SEQUENCES, NOTHING)
    same = JudgeSpec(("scripted",))
    for spec in (JudgeSpec(("other",)), replace(same, temperature=1.0), replace(same, mode="per_metric")):
        client = ScriptedClient(model=spec.models[0])
        panel_of(client, spec=spec).answers(SEQUENCES, kept.frame())
        assert len(client.asked) == (12 if spec.mode == "per_metric" else 6)


def test_a_recorded_verdict_is_no_answer_of_the_model_that_it_names() -> None:
    kept, client = Kept(), ScriptedClient()
    panel_of(ScriptedClient(), kept=kept).answers(SEQUENCES, NOTHING)
    panel_of(client).answers(SEQUENCES, kept.frame().with_columns(is_recorded=pl.lit(True)))
    assert len(client.asked) == 6


def test_an_ensemble_gives_one_answer_with_the_disagreement_and_each_judges_own() -> None:
    kept = Kept()
    clients = [ScriptedClient(m, {"helpfulness": r}) for m, r in zip("abc", (5, 2, 4), strict=True)]
    given = panel_of(*clients, kept=kept).answers(SEQUENCES, NOTHING)
    [(name, verdict), *own] = given["c0.0.helpfulness"]
    assert isinstance(verdict, Scored)
    assert (name, verdict.rating_1to5, verdict.disagreement) == ("ensemble", 4, 3.0)
    assert "a: 5; b: 2; c: 4" in verdict.rationale
    assert verdict.cost_usd is None  # the judges' own rows have it
    assert [judge for judge, _ in own] == ["a", "b", "c"]
    assert panel_of(*clients).answers(SEQUENCES, kept.frame()) == given


def rated(*ratings: int) -> dict[str, Verdict]:
    return {f"m{i}": Scored("x", rating_1to5=rating) for i, rating in enumerate(ratings)}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=7))
@example([5, 4])
@example([1, 5, 5])
@example([3, 4, 4, 5])
def test_an_ensembles_rating_is_the_lower_median_or_the_rounded_mean(ratings: list[int]) -> None:
    rounded = (2 * sum(ratings) + len(ratings) - 1) // (2 * len(ratings))  # a half goes down
    for combine, rating in (("median", statistics.median_low(ratings)), ("mean", rounded)):
        verdict = combined(HELPFULNESS, rated(*ratings), combine)  # type: ignore[arg-type]
        assert isinstance(verdict, Scored)
        assert (verdict.rating_1to5, verdict.disagreement) == (rating, max(ratings) - min(ratings))


def test_labels_go_by_majority_and_a_tie_to_the_first_judge() -> None:
    def labelled(*labels: str) -> tuple[object, object]:
        answers: dict[str, Verdict] = {f"m{i}": Scored("x", label=label) for i, label in enumerate(labels)}
        verdict = combined(FAILURE, answers)
        assert isinstance(verdict, Scored)
        return verdict.label, verdict.disagreement

    good, bad = "no failure", "repetition"
    assert labelled(good, bad, bad) == (bad, pytest.approx(1 / 3))
    assert [labelled(*pair)[0] for pair in ((bad, good), (good, bad))] == [bad, good]


def test_a_judge_that_gave_nothing_has_no_voice_and_nobody_is_unscored() -> None:
    lost = Unscored("judge_error", "down")
    verdict = combined(GOAL, {"a": lost, "b": Scored("x", value=1.0)})
    assert isinstance(verdict, Scored)
    assert (verdict.value, verdict.disagreement) == (1.0, 0.0)
    assert "1 gave none" in verdict.rationale
    assert combined(GOAL, {"a": lost, "b": lost}) == lost


@given(st.integers(0, 10**6), st.integers(1, 12), st.none() | st.floats(0, 100))
def test_shares_add_up(tokens: int, n: int, cost: float | None) -> None:
    shares = Usage(tokens, tokens, None, cost).shares(n)
    assert sum(s.n_in or 0 for s in shares) == tokens
    assert {s.n_cached for s in shares} == {None}
    assert cost is None or sum(s.cost_usd or 0 for s in shares) == pytest.approx(cost)


def test_prices_are_per_million_and_cached_tokens_may_be_cheaper() -> None:
    assert Price(2.0, 8.0).of(1_000_000, 500_000) == pytest.approx(6.0)
    assert Price(2.0, 8.0, cached=0.5).of(1_000_000, 0, n_cached=400_000) == pytest.approx(1.2 + 0.2)


def test_an_unknown_price_is_unknown_and_never_zero() -> None:
    budget = Budget(max_cost_usd=1.0)
    budget.end_call("m", Usage(1, 1, 1, None))
    budget.end_call("m", Usage(1, 1, 1, 0.2))
    assert budget.known_cost_usd is None
    assert (Usage(1, 1, 1, None) + Usage(1, 1, 1, 0.1)).cost_usd is None


def test_a_round_of_refusals_halves_the_concurrency_single_ones_do_not() -> None:
    concurrency = AdaptiveConcurrency(most=40)
    concurrency.limit = 20.0
    for refused, limit in (([True, False] * 10, 10.0), ([i == 3 for i in range(10)], 11.0)):
        for is_refused in refused:
            concurrency.finished(is_refused=is_refused)
        assert concurrency.limit == limit


def test_no_call_starts_during_a_pause() -> None:
    async def go() -> float:
        concurrency, loop = AdaptiveConcurrency(2), asyncio.get_running_loop()
        concurrency.pause(0.05)
        began = loop.time()
        async with concurrency.slot(Place(0)):
            return loop.time() - began

    assert run_sync(go()) >= 0.045


def test_after_an_answer_that_cannot_be_stored_no_call_starts() -> None:
    async def go() -> list[int]:
        concurrency, began = AdaptiveConcurrency(4), list[int]()

        async def call(number: int) -> None:
            async with concurrency.slot(Place(number)):
                began.append(number)
                await asyncio.sleep(0.01 if number == 2 else 0.05)
                if number == 2:
                    raise OSError(errno.ENOSPC, "full")

        async def sequence(number: int) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(call(number))

        async with concurrency.slot(Place(0)):
            pass  # the first goes alone
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(12):
                    group.create_task(sequence(number))
        return began

    assert run_sync(go()) == [0, 1, 2, 3]


@pytest.mark.parametrize("n_stored", [0, 1, 5])
def test_calls_that_wait_for_one_that_cannot_be_stored_are_not_sent(n_stored: int) -> None:
    """`asyncio.wait_for` of Python 3.11 loses a cancellation at the moment at which the first call ends."""
    kept, client = Kept(), ScriptedClient(latency_s=0.002)
    store = kept.write

    def full(rows: Sequence[Mapping[str, object]]) -> None:
        if len(client.asked) > n_stored:
            raise OSError(errno.ENOSPC, "full")
        store(rows)

    kept.write = full  # type: ignore[method-assign]
    runtime = JudgeRuntime(lambda _: client, kept.writing, b"s", concurrency=4)
    sequences = [QuestionSequence([*questions(talk(f"c{i}"))] * 2) for i in range(12)]
    panel = Panel(JudgeSpec(("scripted",)), runtime)
    with pytest.raises(OSError, match="full"):
        run_sync(
            asyncio.wait_for(asyncio.to_thread(panel.answers, sequences, table("judge_cache").empty()), 20)
        )
    assert len(client.asked) <= n_stored + 4
    assert n_stored or len(client.asked) == 1


def test_calls_start_one_after_the_other_also_in_slots_that_become_free_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_eval.judge.llm.concurrency.START_GAP_S", START_GAP_S)

    async def go() -> list[float]:
        concurrency, ends, loop = AdaptiveConcurrency(4), asyncio.Event(), asyncio.get_running_loop()
        began: list[float] = []

        async def call(number: int) -> None:
            async with concurrency.slot(Place(number)):
                began.append(loop.time())
                await ends.wait()

        async with concurrency.slot(Place(0)):
            pass  # the first goes alone
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(call(number))
            await asyncio.sleep(20 * START_GAP_S)
            assert len(began) == 4
            ends.set()
        return began

    began = run_sync(go())
    assert len(began) == 8
    assert all(after - before >= 0.9 * START_GAP_S for before, after in itertools.pairwise(began))


def test_a_burst_of_lost_connections_counts_once_and_five_bursts_end_the_pass() -> None:
    breaker, now, waited = CircuitBreaker("m"), 0.0, 0.0
    for _ in range(4):
        pause = breaker.count("connection", started=now, now=now + 0.1, detail="x")
        assert breaker.count("connection", started=now, now=now + 0.1, detail="x") == 0.0  # the same burst
        assert breaker.why_ended is None
        waited += pause
        now += 0.1 + pause
    breaker.count("connection", started=now, now=now, detail="x")
    assert breaker.why_ended is not None
    assert waited == 0.5 + 1 + 2 + 4


def test_an_answer_ends_the_row_of_failures() -> None:
    breaker = CircuitBreaker("m")
    for _ in range(3):
        for _ in range(4):
            breaker.count("authentication", started=0, now=0, detail="x")
        breaker.answered()
    assert breaker.why_ended is None


def test_what_arrives_while_a_batch_is_written_makes_up_the_next() -> None:
    kept = Kept()

    async def go() -> None:
        writer = AnswerWriter(kept.write)
        await asyncio.gather(*(writer.write([{"i": i}]) for i in range(10)))
        await writer.close()

    run_sync(go())
    assert [row["i"] for row in kept.rows] == list(range(10))
    assert len(kept.batches) < 10


def test_progress_tells_rate_cost_and_time_left() -> None:
    progress = Progress("m", n_calls=200, n_done=50, cost_usd=0.5, seconds=10.0)
    assert progress.line() == "m: 50 of 200 calls, 5.0 a second, $0.5000 so far, 30 s left"
    progress.cost_usd = None
    assert "cost unknown" in progress.line()
    progress.n_by_others = 100  # 150 of 200 are answered after 10 s
    assert progress.line().endswith("100 calls made by other workers, 3 s left")


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    ("client", "budget", "n_made"),
    [
        (ScriptedClient(), Budget(max_calls=2), 2),
        (ScriptedClient(), Budget(max_calls=0), 0),
        (ScriptedClient(always=GONE), Budget(), 1),  # the pass ends while the first call is repeated
    ],
    ids=["cap", "cap of none", "outage"],
)
def test_calls_that_are_not_sent_are_not_reported_as_made(
    client: ScriptedClient, budget: Budget, n_made: int
) -> None:
    said: list[str] = []
    sequences = [QuestionSequence(questions(talk(f"c{i}", 2))) for i in range(10)]
    panel = panel_of(client, budget=budget, concurrency=1)
    panel.answers(sequences, NOTHING, watch=lambda progress: said.append(progress.line()))
    assert said[-1].startswith(f"scripted: {n_made} of 20 calls")
    assert said[-1].endswith(f"{20 - n_made} calls not sent")


def test_keys_are_taken_out_of_what_providers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "planted-0123456789")
    said = redact(
        "401\n bad key planted-0123456789, sk-abcdef123456, https://user:pw123456@host/ Bearer abc.def"
    )
    assert said == f"401 bad key {HIDDEN}, {HIDDEN}, https://{HIDDEN}host/ {HIDDEN}"


def test_the_secret_of_a_project_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "a" / "key"
    assert kept_secret(file) == kept_secret(file)
    assert len(kept_secret(file)) == 32
    assert file.stat().st_mode & 0o077 == 0
    assert list(file.parent.iterdir()) == [file]


def test_answers_stay_in_the_cache_as_the_model_gave_them() -> None:
    client, kept = ScriptedClient(answers={FAILURE.name: ["repetition", "false information"]}), Kept()
    panel_of(client, kept=kept).answers(SEQUENCES[:1], NOTHING)
    rows = kept.frame().filter(pl.col("metric") == FAILURE.name)
    assert '"further_labels":["false information"]' in rows["verdict"][0]
    assert table("judge_cache").conform(kept.frame()).height == 4


def test_an_audit_tells_where_the_modes_disagree() -> None:
    kept, spec = Kept(), JudgeSpec(("scripted",))
    for asked, rating in ((spec, 4), (replace(spec, mode="per_metric"), 3)):
        client = ScriptedClient(answers={"helpfulness": rating})
        panel_of(client, kept=kept, spec=asked).answers(SEQUENCES, NOTHING)
    assert disagreements(kept.frame(), spec).rows() == [
        ("scripted", FAILURE.name, 6, 6, None),
        ("scripted", "helpfulness", 6, 0, -1.0),
    ]


def test_the_turns_of_one_conversation_run_at_once_where_slots_are_idle() -> None:
    sequence = QuestionSequence(questions(talk("c", 64)))

    def most_open(concurrency: int) -> int:
        client = ScriptedClient(n_together=concurrency)
        panel_of(client, concurrency=concurrency).answers([sequence], NOTHING)
        return client.most_open

    assert (most_open(1), most_open(16)) == (1, 16)


def test_where_no_slot_is_idle_each_conversation_goes_on_in_order() -> None:
    client = ScriptedClient(latency_s=0.002)
    sequences = [QuestionSequence(questions(talk(f"c{i}", 5))) for i in range(8)]
    panel_of(client, concurrency=4).answers(sequences, NOTHING)
    asked: dict[str, list[int]] = {}
    for prompt in client.asked:
        name = str(prompt.turns[0].user_message).split()[0]
        asked.setdefault(name, []).append(prompt.turns[-1].turn_index)
    assert asked == {f"c{i}": [0, 1, 2, 3, 4] for i in range(8)}


@pytest.mark.parametrize("metric", [HELPFULNESS, FAILURE])
@pytest.mark.parametrize("combine", [lambda m, a: combined(m, dict(zip("ab", a, strict=True))), repeated])
def test_what_marks_one_of_the_combined_answers_marks_the_combination(
    metric: Metric, combine: Callable[[Metric, Sequence[Scored]], Verdict]
) -> None:
    label = None if metric is HELPFULNESS else "repetition"
    whole = Scored("why", rating_1to5=None if label else 4, label=label)
    marked = replace(whole, earlier_profile="1", seen_share=0.3)
    for answers in ((whole, marked), (marked, whole)):
        made = combine(metric, answers)
        assert isinstance(made, Scored)
        assert (made.earlier_profile, made.seen_share) == ("1", 0.3)


def test_a_paid_reply_is_kept_if_its_cost_cannot_be_recorded(tmp_path: Path) -> None:
    """The disk with the ledger is full for a while: no reply is lost, no call is sent uncounted."""
    no_cap = SpendingCap(None, None, "", "")
    ledger = Ledger(tmp_path / "spending", "run", False, no_cap, no_cap, no_cap)
    n_failing = 0

    class Failing:
        def reserve(self, model: str) -> str | None:
            return ledger.reserve(model)

        def settle(self, model: str, *, n_in: int | None, n_out: int | None, cost_usd: float | None) -> None:
            nonlocal n_failing
            n_failing += 1
            if n_failing % 3:
                raise LedgerError(tmp_path / "spending", "database or disk is full")
            ledger.settle(model, n_in=n_in, n_out=n_out, cost_usd=cost_usd)

    kept, client, budget = Kept(), ScriptedClient(), Budget(ledger=Failing())
    runtime = JudgeRuntime(lambda _: client, kept.writing, b"s", budget=budget, concurrency=4)
    sequences = [QuestionSequence(questions(talk(f"c{i}"))) for i in range(12)]
    answers = Panel(JudgeSpec(("scripted",)), runtime).answers(sequences, table("judge_cache").empty())
    verdicts = [verdict for [(_, verdict)] in answers.values()]
    n_scored = sum(isinstance(v, Scored) for v in verdicts)
    assert 0 < len(client.asked) <= 12
    assert n_scored == len(kept.rows) == len(client.asked) * len(verdicts) // 12
    assert all("disk is full" in v.detail for v in verdicts if isinstance(v, Unscored))
    n_failing = 2
    assert budget.begin_call("scripted") is None
    budget.end_call("scripted", USAGE)
    n_failing = 2
    assert budget.begin_call("scripted") is None
    [row] = spent(tmp_path / "spending").to_dicts()
    assert row["n_calls"] == len(client.asked) + 2
    assert row["n_tokens_in"] == USAGE.n_in * (len(client.asked) + 1)  # type: ignore[operator]
    assert row["n_reserved"] == 1
