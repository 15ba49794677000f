"""A run that was killed continues: finished conversations are kept, none is held twice, and sessions are whole."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from agent_eval.errors import RunError
from agent_eval.project import Project
from agent_eval.simulate.call_record import CallRecord, read_records
from agent_eval.simulate.preparation import prepared
from agent_eval.transcripts.sessions import read_session_file
from tests.simulate.agent_server import Server
from tests.simulate.suites import EIGHT, held, openai, ran, scenario, write_agents, write_suite

COMMAND = [sys.executable, "-m", "agent_eval", "simulate", "bot", "--sessions", "2", "--concurrency", "3"]


def part_files(root: Path) -> list[Path]:
    return sorted((root / "data" / "sessions").glob("bot/.*.part/conversations.jsonl"))


@pytest.mark.slow
def test_a_killed_run_keeps_what_is_finished_and_repeats_only_what_was_in_flight(
    root: Path, server: Server
) -> None:
    write_suite(root, EIGHT)
    write_agents(root, {"bot": openai(server.url)})
    server.latency_s = 0.1
    process = subprocess.Popen(COMMAND, start_new_session=True)
    deadline = time.monotonic() + 60
    while (
        sum(file.read_bytes().count(b"\n") for file in part_files(root)) < 5 and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished = [line for file in part_files(root) for line in file.read_bytes().splitlines()]
    assert len(finished) >= 5
    assert held(root, "bot") == []  # no session is in place yet
    with part_files(root)[-1].open("ab") as stream:
        stream.write(b'{"conversation_id": "torn')  # as a kill within a write leaves it
    n_before, server.latency_s = len(server.requests), 0.0
    report = ran(root, "bot", concurrency=3, n_sessions=2)
    ids = Counter(c.conversation_id for c in held(root, "bot"))
    assert len(ids) == 16
    assert {*ids.values()} == {1}
    assert report.n_kept == len(finished)
    assert len(server.requests) <= 3 * 16 + 3  # at most the calls in flight are repeated
    assert len(server.requests) - n_before <= 3 * (16 - len(finished))
    kept = {
        line
        for file in (root / "data/sessions/bot").glob("[!.]*/conv*")
        for line in file.read_bytes().splitlines()
    }
    assert {*finished} <= kept
    assert not list((root / "data" / "sessions" / "bot").glob(".*"))


def test_further_sessions_trials_and_changes_are_added_and_nothing_is_held_twice(
    root: Path, server: Server
) -> None:
    write_suite(root, {"one": scenario("D1"), "two": scenario("D2")})
    write_agents(root, {"bot": openai(server.url)})
    assert ran(root, "bot").n_held == 2
    assert ran(root, "bot").n_held == 0
    third = ran(root, "bot", n_sessions=3)
    assert (third.n_held, third.n_kept) == (4, 2)
    sessions = {p.name: read_session_file(p) for p in sorted((root / "data/sessions/bot").iterdir())}
    assert [s.session_run for s in sessions.values()] == ["1", "2", "3"]
    assert {s.repeatability_tested for s in sessions.values()} == {True}
    assert len({s.benchmark_id for s in sessions.values()}) == 1
    write_agents(root, {"bot": openai(server.url, "fixed")})
    assert ran(root, "bot").n_held == 2  # another model: another benchmark
    write_suite(root, {"two": scenario("D3")})
    assert ran(root, "bot").n_held == 2  # another text: another benchmark
    tasks = {c.task_id for c in held(root, "bot")}
    assert len(tasks) == 3
    hashes = [c.metadata["benchmark"] for c in held(root, "bot")]
    for key, n in (("suite_hash", 2), ("agent_hash", 2), ("scenario_hash", 3)):
        assert len({str(one[key]) for one in hashes if isinstance(one, dict)}) == n


def test_what_the_harness_lost_is_held_again(root: Path, server: Server) -> None:
    write_suite(root, {"one": scenario("D1"), "two": scenario("D2")})
    write_agents(root, {"bot": openai(server.url, "400")})
    lost = ran(root, "bot")
    assert (lost.outcomes, lost.n_left) == ({"unexplained_error": 2}, 0)
    again = ran(root, "bot")
    assert (again.n_held, again.n_kept) == (2, 0)
    assert len(held(root, "bot")) == 2  # replaced, not added


def test_two_processes_do_not_run_one_suite_at_once(root: Path, server: Server) -> None:
    folder = write_suite(root, {"one": scenario("D1")})
    write_agents(root, {"bot": openai(server.url)})
    locked = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), 2); print(1, flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", locked, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout
    assert other.stdout.readline() == b"1\n"
    with pytest.raises(RunError, match="another process"):
        ran(root, "bot")
    other.communicate(b"")


def test_a_part_of_a_suite_fills_no_slots_and_seeds_are_the_same_for_all_agents(
    root: Path, server: Server
) -> None:
    write_suite(root, {"one": scenario("D1"), "two": scenario("D2")})
    write_agents(root, {"a": openai(server.url), "b": openai(server.url, "fixed")})
    ran(root, "a", "b", n_sessions=2)
    seeds = Counter((body["messages"][0]["content"], body["seed"]) for _, body in server.requests)
    assert {*seeds.values()} == {6}  # both agents, three messages
    assert len(seeds) == 4
    prepared(Project.open(root).simulation_setup(), ["a"], scenarios=["one"]).run()
    versions = {str(read_session_file(p).methodology_versions) for p in (root / "data/sessions/a").iterdir()}
    assert "any" in versions


def test_a_cap_below_the_calls_of_all_concurrent_conversations_still_finishes_some(
    root: Path, server: Server
) -> None:
    write_suite(root, {"one": scenario("D1") | {"slot": None, "trials": 6}})
    write_agents(root, {"bot": openai(server.url)})
    server.latency_s = 0.05
    for _ in range(3):  # each has three calls
        report = ran(root, "bot", concurrency=6, max_calls=7)
        assert report.n_held >= 2
    assert (report.n_kept + report.n_held, len(server.requests)) == (6, 18)


@pytest.mark.parametrize("max_calls", [1, 2, 5])
def test_a_conversation_that_was_stopped_goes_on_where_it_was_and_pays_no_call_again(
    root: Path, server: Server, max_calls: int
) -> None:
    write_suite(root, {"one": scenario("D1") | {"trials": 2}})
    write_agents(root, {"bot": openai(server.url), "whole": openai(server.url)})
    n_runs = 0
    while not held(root, "bot"):
        ran(root, "bot", concurrency=2, max_calls=max_calls)
        n_runs += 1
    assert (n_runs, len(server.requests)) == (-(-6 // max_calls), 6)
    ran(root, "whole")
    texts = [
        [[(m.role, m.content, m.tool_calls) for m in c.messages] for c in held(root, agent)]
        for agent in ("bot", "whole")
    ]
    assert texts[0] == texts[1]
    assert not list((root / "data/sessions/bot").glob("**/replies.jsonl"))


def test_an_agent_that_keeps_a_state_begins_again(root: Path, server: Server) -> None:
    write_suite(root, {"one": scenario("D1")})
    write_agents(root, {"bot": openai(server.url, memory="session")})
    ran(root, "bot", max_calls=2)
    assert ran(root, "bot").n_held == 1
    assert len(server.requests) == 2 + 3
    ids = [body["session_id"] for _, body in server.requests]
    assert len({*ids[:2]}) == len({*ids[2:]}) == 1
    assert ids[0] != ids[2]


def test_only_replies_to_equal_requests_in_order_are_replayed() -> None:
    lines: list[bytes] = []

    def resumed(requests: str) -> list[object]:
        record = CallRecord("c", read_records(map(json.loads, lines)).get("c", ()), lines.append)
        replies: list[object] = []
        for request in requests:
            request_hash = record.request_hash(request)
            reply = record.replay(request_hash)
            replies.append(reply)
            if reply is None:
                record.add(request_hash, f"new {request}")
        return replies

    assert resumed("abc") == [None] * 3
    assert resumed("abcd") == ["new a", "new b", "new c", None]
    assert resumed("axcd") == [
        "new a",
        None,
        None,
        None,
    ]  # another request: what followed it is another story
    assert resumed("abcd") == ["new a", None, None, None]
    assert resumed("abcd") == ["new a", "new b", "new c", "new d"]
    del lines[-2]  # a line that was lost: nothing after it is used
    assert resumed("abcd") == ["new a", "new b", None, None]
    CallRecord("c", append=lines.append).forget()
    assert resumed("a") == [None]


def test_damaged_replies_are_asked_for_again(root: Path, server: Server) -> None:
    write_suite(root, {"one": scenario("D1")})
    write_agents(root, {"bot": openai(server.url)})
    ran(root, "bot", max_calls=2)
    [file] = (root / "data/sessions/bot").glob(".*.part/replies.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines() if line]
    lines[1]["reply"] |= {"text": 5, "usage": {"n_in": "many"}}
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert ran(root, "bot").n_held == 1
    assert len(server.requests) == 2 + 2  # of three replies, the first is kept
    assert held(root, "bot")[0].outcome.error is None


def test_a_file_that_cannot_be_written_ends_the_run_with_its_error(root: Path, server: Server) -> None:
    write_suite(root, {"one": scenario("D1")})
    write_agents(root, {"bot": openai(server.url)})
    ran(root, "bot", max_calls=1)
    [file] = (root / "data/sessions/bot").glob(".*.part/replies.jsonl")
    file.unlink()
    file.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        ran(root, "bot")
