from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.methodology import Methodology, load
from agent_eval.tables import table
from agent_eval.transcripts.admission import admit, admit_all, is_lost_to_harness

NOW = load("1.3.0")
AGENTS = table("agents").frame(
    [{"agent_id": "a", "category": "research"}, {"agent_id": "b", "category": "gardening"}]
)


def session(session_id: str, *versions: str, agent: str = "a", **fields: Any) -> dict[str, Any]:
    default = {"agent_id": agent, "session_id": session_id, "benchmark_id": session_id, "links": "{}"}
    return default | {"methodology_versions": list(versions or ["1.3.0"])} | fields


def conversation(conversation_id: str, session_id: str, *, agent: str = "a", **fields: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("n_turns", "n_user_messages", "n_agent_messages", "n_tool_calls"), 1)
    keys = {"agent_id": agent, "conversation_id": conversation_id, "session_id": session_id}
    return keys | {"content_hash": "h"} | counts | fields


def admitted(
    conversations: list[dict[str, Any]], sessions: list[dict[str, Any]], methodology: Methodology = NOW
) -> dict[str, dict[str, Any]]:
    held, declared = table("conversations").frame(conversations), table("sessions").frame(sessions)
    frame = admit(held, declared, AGENTS, methodology).with_columns(is_lost=is_lost_to_harness())
    return {row["conversation_id"]: row for row in frame.iter_rows(named=True)}


def one_each(*sessions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A conversation of each session, named after it."""
    held = [conversation(s["session_id"], s["session_id"], agent=s["agent_id"]) for s in sessions]
    return admitted(held, list(sessions))


def test_a_declared_session_gives_its_conversations_their_scenario_as_slot() -> None:
    rows = admitted(
        [conversation("c", "s", scenario="D2", task_id="t", trial=3, task_set="set"), conversation("d", "s")],
        [session("s", "1.2.0", "1.3.0")],
    )
    assert (rows["c"]["slot"], rows["c"]["is_admitted"], rows["c"]["reason"]) == ("D2", True, None)
    assert (rows["c"]["template"], rows["c"]["benchmark_id"]) == ("research_v1", "s")
    assert (rows["c"]["task_id"], rows["c"]["trial"], rows["c"]["task_set"]) == ("t", 3, "set")
    assert (rows["d"]["slot"], rows["d"]["is_admitted"]) == (None, True)


def test_a_transcript_names_its_file_line_content_and_counts() -> None:
    given: dict[str, Any] = {"source_line": 7, "n_turns": 2, "n_tool_calls": 3, "content_hash": "0f"}
    rows = admitted([conversation("c", "s", **given), conversation("d", "s")], [session("s")])
    assert {name: rows["c"][name] for name in given} == given
    assert (rows["c"]["source_file"], rows["d"]["source_file"]) == ("a/s/conversations.jsonl", None)


def test_an_undeclared_session_counts_everywhere_and_takes_no_slot_and_no_test() -> None:
    rows = admitted(
        [conversation("c", "s", scenario="hallucination", injected_error='"x"')], [session("s", "any")]
    )
    assert (rows["c"]["is_admitted"], rows["c"]["slot"], rows["c"]["tests"]) == (True, None, [])
    assert rows["c"]["template"] == "research_v1"


def test_a_session_of_other_versions_does_not_count_and_the_reason_names_them() -> None:
    rows = admitted([conversation("c", "s", scenario="D1")], [session("s", "1.0.0", "1.2.0")])
    assert not rows["c"]["is_admitted"]
    assert rows["c"]["reason"] == "its session was run for 1.0.0, 1.2.0, not for 1.3.0"
    assert (rows["c"]["slot"], rows["c"]["superseded_by"]) == (None, None)


@pytest.mark.parametrize("version", ["any", "1.3.0"])
def test_a_failure_of_the_harness_never_counts(version: str) -> None:
    rows = admitted([conversation("c", "s")], [session("s", version, invalid_reason="network down")])
    assert (rows["c"]["is_admitted"], rows["c"]["reason"]) == (False, "harness failure: network down")


def test_trials_of_an_invalid_session_are_lost_unless_another_run_counts() -> None:
    rows = one_each(
        session("broken", benchmark_id="spring", session_date="2026-04-01", invalid_reason="network down"),
        session("again", benchmark_id="summer", session_date="2026-06-01"),
        session("part", benchmark_id="summer", session_date="2026-06-02", invalid_reason="no disk"),
        session("other", "any", invalid_reason="no proxy"),
    )
    assert {name: (row["reason"], row["is_lost"]) for name, row in rows.items()} == {
        "broken": ("harness failure, run summer counts: network down", False),
        "again": (None, False),
        "part": ("harness failure: no disk", True),
        "other": ("harness failure: no proxy", True),
    }


def test_the_latest_run_counts_and_the_older_ones_name_it() -> None:
    rows = one_each(
        session("s1", benchmark_id="spring", session_date="2026-04-01"),
        session("s2", benchmark_id="spring", session_date="2026-04-09"),
        session("s3", benchmark_id="april", session_date="2026-04-08"),
        session("s4", benchmark_id="undated"),
    )
    assert [rows[s]["is_admitted"] for s in ("s1", "s2", "s3", "s4")] == [True, True, False, False]
    assert rows["s3"]["reason"] == "superseded by spring"
    assert [rows[s]["superseded_by"] for s in ("s1", "s3", "s4")] == [None, "spring", "spring"]


def test_runs_of_one_date_are_told_apart_by_name() -> None:
    rows = one_each(*(session(name, session_date="2026-04-01") for name in ("s1", "s2")))
    assert (rows["s1"]["superseded_by"], rows["s2"]["is_admitted"]) == ("s2", True)


def test_an_invalid_a_foreign_and_an_undeclared_run_supersede_nothing() -> None:
    rows = one_each(
        session("s1", session_date="2026-01-01"),
        session("s2", session_date="2026-02-01", invalid_reason="crash"),
        session("s3", "1.2.0", session_date="2026-03-01"),
        session("s4", "any", session_date="2026-04-01"),
    )
    assert [rows[f"s{i}"]["is_admitted"] for i in range(1, 5)] == [True, False, False, True]
    assert {row["superseded_by"] for row in rows.values()} == {None}


def test_a_better_session_of_another_agent_changes_nothing() -> None:
    theirs = session("s2", agent="b", session_date="2026-02-01")
    rows = one_each(session("s1", session_date="2026-01-01"), theirs)
    assert all(row["is_admitted"] for row in rows.values())
    assert rows["s2"]["template"] is None  # no template for gardening


def test_a_conversation_serves_its_own_test_the_one_linked_in_its_session_and_the_injection() -> None:
    linked = session("s", benchmark_id="r", links='{"D4": "hallucination"}')
    held = [
        conversation("own", "s", scenario="standardised_task"),
        conversation("linked", "s", scenario="D4"),
        conversation("of another session", "s2", scenario="D4"),
        conversation("injected", "s", scenario="D4", injected_error='{"kind": "x"}'),
        conversation("twice", "s", scenario="error_injection", injected_error='"x"'),
        conversation("not injected", "s", scenario="D1", injected_error="false"),
    ]
    rows = admitted(held, [linked, session("s2", benchmark_id="r")])
    assert {name: row["tests"] for name, row in rows.items()} == {
        "own": ["standardised_task"],
        "linked": ["hallucination"],
        "of another session": [],
        "injected": ["hallucination"],  # its error is not the test without a link
        "twice": ["error_injection"],
        "not injected": [],
    }


def test_a_version_without_required_tests_asks_for_none() -> None:
    bare = NOW.model_copy(update={"required_tests": ()})
    rows = admitted([conversation("c", "s", scenario="hallucination")], [session("s")], bare)
    assert rows["c"]["tests"] == []


def test_a_conversation_without_a_session_row_is_named_not_dropped() -> None:
    rows = admitted([conversation("c", "lost")], [])
    assert (rows["c"]["is_admitted"], rows["c"]["reason"]) == (False, "its session is not in table sessions")


def test_several_versions_are_the_single_ones_together() -> None:
    frames = (
        table("conversations").frame([conversation("c", "s", scenario="D1")]),
        table("sessions").frame([session("s", "1.2.0")]),
        AGENTS,
    )
    versions = {v: load(v) for v in ("1.2.0", "1.3.0")}
    both = admit_all(*frames, versions)
    assert both["is_admitted"].to_list() == [True, False]
    assert_frame_equal(both, pl.concat([admit(*frames, m) for m in versions.values()]))
    assert admit_all(*frames, {}).schema == table("transcripts").schema


drawn = st.lists(
    st.tuples(
        st.sampled_from(["any", "1.2.0", "1.3.0"]),
        st.sampled_from(["r1", "r2", "r3"]),
        st.sampled_from([None, "2026-01-01", "2026-02-01"]),
        st.sampled_from([None, None, "crash"]),
    ),
    max_size=7,
)


@settings(max_examples=100, deadline=None)
@given(drawn, st.randoms())
def test_exactly_one_declared_run_counts_and_row_order_does_not_matter(drawn: list[Any], random: Any) -> None:
    sessions = [
        session(f"s{i}", version, benchmark_id=run, session_date=date, invalid_reason=invalid)
        for i, (version, run, date, invalid) in enumerate(drawn)
    ]
    conversations = [conversation(f"c{i}", f"s{i}") for i in range(len(drawn))]
    rows = admitted(conversations, sessions)
    assert len(rows) == len(drawn)
    valid = {f"c{i}" for i, (version, _, _, bad) in enumerate(drawn) if version == "1.3.0" and bad is None}
    runs = {rows[c]["benchmark_id"] for c in valid if rows[c]["is_admitted"]}
    assert len(runs) == (1 if valid else 0)
    for i, (version, _, _, bad) in enumerate(drawn):
        if version == "any":
            assert rows[f"c{i}"]["is_admitted"] == (bad is None)
    random.shuffle(sessions)
    random.shuffle(conversations)
    assert admitted(conversations, sessions) == rows
