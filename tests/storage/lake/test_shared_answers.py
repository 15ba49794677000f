"""What workers share in the catalog: claims and answers of questions, the ledger, the secret."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.project.beside_store import Caps, CatalogBesideStore
from agent_eval.project.judges import AnswerCache
from agent_eval.storage.lake import LakeStore, catalog
from agent_eval.storage.lake.answers import AnswersNotStoredError, ClaimedQuestions, merge, publish
from agent_eval.storage.lake.ledger import CatalogLedger, add_spent, spent
from agent_eval.storage.ledger import SPENDING, SpendingCap
from agent_eval.tables import table
from benchmarks.postgres_server import Server
from tests.judge.fakes import ScriptedClient
from tests.judge.test_panel import NOTHING, SEQUENCES

NO_CAP = SpendingCap(None, None, "", "")
CACHE = table("judge_cache")


def claimed(lake: LakeStore) -> ClaimedQuestions:
    return ClaimedQuestions(lake.catalog_session("write"), 60)


def published(lake: LakeStore, *rows: dict[str, object]) -> None:
    with contextlib.closing(lake.catalog_session("write")) as session:
        publish(session, rows)


def pass_seconds(lake: LakeStore, seconds: int) -> None:
    """Make all claims so much older."""
    with contextlib.closing(lake.catalog_session("write")) as session:
        session.rows(
            f"UPDATE {catalog.SCHEMA}.answer SET expires_at = expires_at - %s * INTERVAL '1 s' RETURNING 1",
            (seconds,),
        )


def test_two_workers_make_the_calls_of_one_and_the_lake_has_each_answer_once(lake: LakeStore) -> None:
    def answers(client: ScriptedClient) -> object:
        beside = CatalogBesideStore(lake, lake.data)
        runtime = JudgeRuntime(
            client=lambda _: client,
            writing=beside.writing,
            secret=beside.secret(),
            concurrency=2,
            claiming=beside.claiming,
        )
        return Panel(JudgeSpec(("scripted",)), runtime).answers(SEQUENCES, NOTHING)

    clients = [ScriptedClient(latency_s=0.05) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(answers, clients)
    assert sum(len(client.asked) for client in clients) == 6
    assert first == second
    keys = [key for sequence in SEQUENCES for q in sequence.questions for key in q.keys.values()]
    found = AnswerCache(CatalogBesideStore(lake, lake.data)).find(keys)
    assert sorted(found["question_key"]) == sorted(keys)


def test_claims_are_taken_all_or_none_and_expire_unless_they_are_renewed(lake: LakeStore) -> None:
    first, second = claimed(lake), claimed(lake)
    assert first.claim(["a", "b"])
    assert first.claim(["a"])  # its own
    assert not second.claim(["b", "c"])
    assert first.arrived(["b", "c"])[1] == set()
    assert second.arrived(["b", "c"])[1] == {"b"}
    assert claimed(lake).claim(["c"])  # the refused claim left nothing
    pass_seconds(lake, 40)
    first.renew()
    pass_seconds(lake, 40)
    assert not second.claim(["b"])
    pass_seconds(lake, 40)  # a killed worker renews nothing
    assert second.claim(["b"])
    second.close()
    assert claimed(lake).claim(["b"])


CHANGES: dict[str, Callable[[ClaimedQuestions, LakeStore], None]] = {
    "release": lambda table, _: table.release(),
    "release of keys": lambda table, _: table.release(["a", "b"]),
    "renew": lambda table, _: table.renew(),
    "merge": lambda _, lake: merge(lake),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rows_are_locked_in_the_order_of_claims_so_that_there_is_no_deadlock(
    lake: LakeStore, name: str
) -> None:
    table = claimed(lake)
    for key in ("b", "a"):  # stored in this order
        assert table.claim([key])
        if name == "merge":
            publish(table.session, [answered(key)])
    lock = f"SELECT 1 FROM {catalog.SCHEMA}.answer WHERE cache_key = %s FOR UPDATE"
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        contextlib.closing(lake.catalog_session("write")) as other,
        contextlib.closing(lake.catalog_session("read")) as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        other.rows("BEGIN")
        other.rows(lock, ["a"])  # as a claim of both keys does
        done = pool.submit(CHANGES[name], table, lake)
        while not watcher.rows(waiting):
            assert not done.done()
            time.sleep(0.01)
        other.rows(lock, ["b"])
        other.rows("COMMIT")
        done.result(30)


def test_the_claims_of_a_worker_whose_session_has_ended_are_free_at_once(lake: LakeStore) -> None:
    gone, other = claimed(lake), claimed(lake)
    assert gone.claim(["a"])
    assert other.arrived(["a"])[1] == {"a"}
    gone.session.close()  # as the end of its process does
    while other.arrived(["a"])[1]:
        time.sleep(0.01)  # until the server has ended the session
    assert other.claim(["a"])


def answered(key: str) -> dict[str, object]:
    """A row of judge_cache that answers the question `key`."""
    return dict.fromkeys(CACHE.schema) | {
        "cache_key": key, "question_key": key, "content_hash": "c", "metric": "m", "rubric_hash": "r", "model": "x",
        "parameters": "{}", "verdict": '{"status": "scored"}', "judged_at": "2026-04-20T00:00:00Z", "profile_version": "1",
        "repeat": 0,
    }  # fmt: skip


def test_a_merge_ends_although_other_workers_publish_answers(
    lake: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert, n_upserts = LakeStore.upsert, 0

    def published_meanwhile(*args: Any, **options: Any) -> None:
        nonlocal n_upserts
        n_upserts += 1
        published(lake, answered(f"after {n_upserts}"))
        upsert(*args, **options)

    published(lake, answered("before"))
    monkeypatch.setattr(LakeStore, "upsert", published_meanwhile)
    merge(lake)
    assert n_upserts == 1
    assert lake.read(CACHE)["cache_key"].to_list() == ["before"]
    monkeypatch.undo()
    merge(lake)
    assert lake.read(CACHE)["cache_key"].to_list() == ["after 1", "before"]


def test_a_worker_that_merges_waits_for_the_answers_that_another_is_merging(
    lake: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert, is_merging, may_go_on = LakeStore.upsert, threading.Event(), threading.Event()

    def slow(*args: Any, **options: Any) -> None:
        is_merging.set()
        assert may_go_on.wait(30)
        upsert(*args, **options)

    monkeypatch.setattr(LakeStore, "upsert", slow)
    published(lake, answered("q"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(merge, lake)
        assert is_merging.wait(30)
        found = pool.submit(AnswerCache(CatalogBesideStore(lake, lake.data)).find, ["q"])
        with pytest.raises(TimeoutError):
            found.result(1)
        may_go_on.set()
        first.result(30)
        assert found.result(30).height == 1


def test_an_answer_is_merged_once_also_if_its_worker_is_gone(lake: LakeStore) -> None:
    row = answered("k") | {"question_key": "q"}
    latest = '{"status": "scored", "rationale": "it\'s 5 %"}'
    published(lake, row, row | {"verdict": latest})
    beside = CatalogBesideStore(lake, lake.data)
    assert not claimed(lake).claim(["k"])
    for _ in range(2):
        assert AnswerCache(beside).find(["q"])["verdict"].to_list() == [latest]
    lake.delete(CACHE, pl.DataFrame({"cache_key": ["k"]}))
    assert AnswerCache(beside).find(["q"]).is_empty()  # merged before: not merged again


def test_an_answer_that_cannot_be_stored_ends_the_pass(lake: LakeStore, server: Server) -> None:
    with contextlib.closing(lake.catalog_session("write")) as session:
        server.restart()
        with pytest.raises(AnswersNotStoredError, match="no judge is called"):
            publish(session, [{"cache_key": "k"}])


@pytest.mark.parametrize("scope", ["of_run", "in_all", "per_day", "of_automation"])
def test_workers_send_exactly_as_many_calls_as_a_cap_allows(lake: LakeStore, scope: str) -> None:
    names = ("in_all", "per_day", "of_automation", "of_run")
    caps = Caps(**{name: SpendingCap(10, None, "m", "x") if name == scope else NO_CAP for name in names})

    def send(number: int) -> int:
        run = "one run" if scope == "of_run" else f"run {number}"
        ledger = CatalogBesideStore(lake, lake.data).ledger(run, is_automatic=True, caps=caps)
        n_sent = 0
        while ledger.reserve("m") is None:
            ledger.settle("m", n_in=1, n_out=1, cost_usd=0.5)
            n_sent += 1
        return n_sent

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(send, range(3))) == 10
    assert spent(lake)["n_calls"].sum() == 10
    assert spent(lake)["cost_usd"].sum() == 5.0
    other = CatalogBesideStore(lake, lake.data).ledger("another run", is_automatic=False, caps=caps)
    assert (other.reserve("m") is None) == (scope in ("of_run", "of_automation"))


def test_a_cap_in_dollars_counts_what_other_workers_and_a_copied_store_spent(lake: LakeStore) -> None:
    cap = SpendingCap(None, 2.0, "max_{}_in_all", "raise it")
    ledger = CatalogLedger(lake, "r", False, cap, NO_CAP, NO_CAP, NO_CAP)
    assert ledger.reserve("m") is None
    ledger.settle("m", n_in=None, n_out=None, cost_usd=1.0)
    row = dict.fromkeys(SPENDING.schema, 0) | {
        "day": "2026-01-01", "run": "before", "model": "m", "started_by": "person", "n_calls": 3, "cost_usd": 1.0,
    }  # fmt: skip
    for _ in range(2):
        add_spent(lake, SPENDING.frame([row]))
    assert "cap of $2 (max_cost_usd_in_all) is reached ($2.0000 spent)" in str(ledger.reserve("m"))


def test_a_call_of_a_worker_that_is_gone_has_an_unknown_cost(lake: LakeStore, server: Server) -> None:
    ledger = CatalogLedger(lake, "r", False, NO_CAP, NO_CAP, NO_CAP, NO_CAP)
    assert ledger.reserve("m") is None
    assert spent(lake).select("n_calls", "n_reserved", "n_unknown_cost").rows() == [(1, 1, 0)]
    server.restart()
    assert spent(lake).select("n_calls", "n_reserved", "n_unknown_cost").rows() == [(1, 0, 1)]


def test_all_workers_have_the_same_secret(lake: LakeStore) -> None:
    secret = lake.prompt_secret()
    assert len(secret) == 32
    assert replace(lake).prompt_secret() == secret
