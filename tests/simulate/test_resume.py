"""A run that was killed continues: finished conversations are kept, none is held twice, and sessions are whole."""

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
    assert len(server.requests) - n_before == 3 * (16 - len(finished))
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
    for n_kept in (0, 2, 4):  # each has three calls
        report = ran(root, "bot", concurrency=6, max_calls=7)
        assert (report.n_kept, report.n_held) == (n_kept, 2)
    assert len(server.requests) <= 20
