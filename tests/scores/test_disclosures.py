"""Required tests and disclosures: checked against what the sessions hold."""

from typing import Any

import pytest

from agent_eval.methodology.models import SCENARIOS
from agent_eval.scores.composite.disclosures import Disclosed, disclosed
from agent_eval.tables.agent_version import AgentVersion
from tests.scores.builders import (
    METHODOLOGIES,
    TESTS,
    frames,
    hallucination,
    session,
    spoken,
    transcripts,
    versioned,
)


def checked(version: str = "1.3.0", **rows: Any) -> Disclosed:
    """The disclosures of one agent under one version."""
    rows["held"] = versioned(rows.get("held", transcripts()), version)
    rows["judged"] = versioned(rows.get("judged", [hallucination()]), version)
    made: dict[str, Any] = frames(**rows)
    names = ("transcripts", "sessions", "conversations", "conversation_judgments")
    held, declared, conversations, judged = (made[name] for name in names)
    found = disclosed(held, declared, conversations, judged, METHODOLOGIES)
    return found[AgentVersion.of(agent_id="lumen", methodology_version=version)]


def runs(n: int, **changes: Any) -> dict[str, Any]:
    """Rows of n complete sessions s1..sn: the same questions, on n dates, answered in other words."""
    names = [f"s{i}" for i in range(1, n + 1)]
    return {
        "held": [row | {"task_id": row["slot"]} for name in names for row in transcripts(session=name)],
        "declared": [session(name, session_date=f"2026-04-0{name[1:]}", **changes) for name in names],
        "judged": [hallucination(session=name) for name in names],
        "conversations": [row for name in names for row in spoken(name)],
    }


def why_untested(made: dict[str, Any]) -> str:
    """The reason why a claim of tested repeatability does not hold."""
    found = checked(**made)
    assert found.repeatability_tested is None
    [text] = [text for text in found.missing if text.startswith("repeatability_tested: ")]
    return text


@pytest.mark.parametrize("passed", [True, False])
def test_a_complete_session_lacks_nothing_and_a_failed_test_bars_nothing(passed: bool) -> None:
    found = checked(judged=[hallucination(float(passed))])
    assert found == Disclosed("multi_turn", False, passed, (), ())


@pytest.mark.parametrize("test", TESTS)
def test_an_absent_test_is_named(test: str) -> None:
    held = transcripts([s for s in (*SCENARIOS, *TESTS) if s != test])
    assert checked(held=held).missing == (f"{test}: no conversation of the session holds this test",)


def test_an_absent_test_only_warns_where_the_version_says_so() -> None:
    found = checked("1.0.0", held=transcripts(SCENARIOS))
    assert found.missing == ()
    assert found.warnings == tuple(f"{t}: no conversation of the session holds this test" for t in TESTS)


def test_a_test_must_be_held_in_every_session() -> None:
    made = runs(2)
    made["held"] = [r for r in made["held"] if r["conversation_id"] != "s2-error_injection"]
    not_held = "error_injection (session s2): no conversation of the session holds this test"
    assert checked(**made).missing == (not_held,)


def test_a_scenario_may_serve_as_a_test_by_link() -> None:
    held = transcripts((*SCENARIOS, "standardised_task", "error_injection"))
    held[3]["tests"] = ["hallucination"]
    found = checked(held=held, judged=[hallucination(1.0) | {"conversation_id": "a-D4"}])
    assert (found.missing, found.hallucination_passed) == ((), True)


def test_what_is_not_admitted_holds_no_test() -> None:
    held = [r | {"is_admitted": r["slot"] != "hallucination"} for r in transcripts()]
    found = checked(held=held)
    assert found.missing == ("hallucination: no conversation of the session holds this test",)
    assert found.hallucination_passed is None


def test_an_undeclared_session_names_tests_and_disclosures_as_missing() -> None:
    found = checked(held=transcripts([None]), declared=[session(methodology_versions=["any"])], judged=[])
    names = [text.split(":")[0] for text in found.missing]
    assert names == [*TESTS, "u3_scope", "repeatability_tested"]
    assert (found.u3_scope, found.repeatability_tested, found.hallucination_passed) == (None, None, None)


# u3_scope


def test_what_is_not_disclosed_is_missing_only_where_it_is_required_and_never_read_as_false() -> None:
    silent = [session(u3_scope=None, repeatability_tested=None)]
    found, earlier = checked(declared=silent), checked("1.0.0", declared=silent)
    assert found.missing == ("u3_scope: not disclosed", "repeatability_tested: not disclosed")
    assert found.repeatability_tested is None
    assert (earlier.missing, earlier.warnings) == ((), ())


@pytest.mark.parametrize("claim", ["single_message", "multi_turn"])
@pytest.mark.parametrize("slot", [None, "standardised_task", "D2", "D3", "error_injection"])
def test_one_longer_conversation_makes_the_session_multi_turn(slot: str | None, claim: str) -> None:
    held = [r | {"n_user_messages": 2 if r["slot"] == slot else 1} for r in transcripts()]
    found = checked(held=held, declared=[session(u3_scope=claim)])
    if (claim == "multi_turn") == (slot is not None):
        assert (found.u3_scope, found.missing) == (claim, ())
    else:
        has = "a conversation of session a has 2" if slot else "no conversation of session a has two"
        assert found.missing == (f"u3_scope: {claim} is claimed, but {has} user messages",)
        assert found.u3_scope is None


@pytest.mark.parametrize(
    ("n_requests", "scope"), [(1, "single_message"), (2, "multi_turn"), (None, "multi_turn")]
)
def test_a_user_message_that_says_nothing_makes_no_session_multi_turn(
    n_requests: int | None, scope: str
) -> None:
    """None: an earlier release stored the row; all its user messages count."""
    conversations = [row | {"n_requests": n_requests} for row in spoken("a")]
    held = [r | {"n_user_messages": 2} for r in transcripts()]
    for claim in ("single_message", "multi_turn"):
        found = checked(held=held, declared=[session(u3_scope=claim)], conversations=conversations)
        assert found.u3_scope == (claim if claim == scope else None)


def test_each_session_is_checked_for_itself() -> None:
    made = runs(2)
    made["held"] = [r | {"n_user_messages": 1 if r["session_id"] == "s2" else 2} for r in made["held"]]
    assert checked(**made).missing == (
        "u3_scope: multi_turn is claimed, but no conversation of session s2 has two user messages",
    )


def test_a_contradicted_scope_warns_where_none_is_required() -> None:
    found = checked("1.0.0", declared=[session(u3_scope="single_message")])
    assert (found.u3_scope, found.missing) == (None, ())
    assert found.warnings[0].startswith("u3_scope: single_message is claimed")


def test_sessions_that_disagree_disclose_nothing() -> None:
    made = runs(2)
    made["declared"] = [session("s1"), session("s2", u3_scope="single_message", repeatability_tested=True)]
    found = checked(**made)
    assert (found.u3_scope, found.repeatability_tested) == (None, None)
    assert found.missing == (
        "u3_scope: the sessions disagree (s1: multi_turn, s2: single_message)",
        "repeatability_tested: the sessions disagree (s1: false, s2: true)",
    )


def test_a_session_that_is_silent_beside_others_is_named() -> None:
    made = runs(2)
    made["declared"] = [session("s1"), session("s2", repeatability_tested=None)]
    assert checked(**made).missing == ("repeatability_tested: not disclosed in session s2",)


# repeatability_tested


@pytest.mark.parametrize(("n", "expected"), [(1, None), (2, None), (3, True), (4, True)])
def test_true_needs_three_complete_sessions(n: int, expected: bool | None) -> None:
    found = checked(**runs(n, repeatability_tested=True))
    assert found.repeatability_tested is expected
    assert bool(found.missing) is (expected is None)


@pytest.mark.parametrize("gap", ["D2", "hallucination"])
def test_a_session_with_a_gap_is_no_evidence(gap: str) -> None:
    made = runs(3, repeatability_tested=True)
    made["held"] = [r for r in made["held"] if r["conversation_id"] != f"s3-{gap}"]
    assert why_untested(made) == (
        "repeatability_tested: true is claimed, but 2 of 3 sessions are independent and cover all required tests "
        f"and D1–D5 with the same questions, at least 3 must; session s3 lacks {gap}"
    )


def test_copies_of_a_session_are_one_session() -> None:
    made = runs(4, repeatability_tested=True)
    made["conversations"] = [row for i in range(1, 5) for row in spoken(f"s{i}", words="s1")]
    text = why_untested(made)
    assert "but 1 of 4 sessions are independent" in text
    assert text.endswith("; ".join(f"session s{i} is a copy of session s1" for i in (2, 3, 4)))


def test_a_copy_with_a_further_conversation_outside_the_slots_is_still_a_copy() -> None:
    made = runs(3, repeatability_tested=True)
    extra = spoken("s3")[0] | {"conversation_id": "s3-extra", "messages_hash": "chat", "opening_hash": "hi"}
    made["held"] += [r | {"conversation_id": "s3-extra"} for r in transcripts([None], session="s3")]
    made["conversations"] = [*spoken("s1"), *spoken("s2"), *spoken("s3", words="s1"), extra]
    assert why_untested(made).endswith("session s3 is a copy of session s1")


def test_three_honest_sessions_count_beside_a_copy() -> None:
    made = runs(4, repeatability_tested=True)
    made["conversations"] = [*(r for i in (1, 2, 3) for r in spoken(f"s{i}")), *spoken("s4", words="s2")]
    assert checked(**made).repeatability_tested is True


def test_sessions_of_other_questions_are_no_repetition() -> None:
    made = runs(3, repeatability_tested=True)
    made["conversations"] = [row for i in (1, 2, 3) for row in spoken(f"s{i}", asks=f" of {i}")]
    everywhere = ", ".join((*TESTS, *SCENARIOS))
    others = (f"session s{i} asks other questions than session s1 in {everywhere}" for i in (2, 3))
    assert why_untested(made).endswith("; ".join(others))


def test_another_question_in_one_slot_is_named_by_its_slot() -> None:
    made = runs(3, repeatability_tested=True)
    for row in made["conversations"]:
        row["opening_hash"] = "new" if row["conversation_id"] == "s2-D4" else row["opening_hash"]
    assert why_untested(made).endswith("session s2 asks other questions than session s1 in D4")


def test_another_task_under_the_same_first_words_is_another_question() -> None:
    made = runs(3, repeatability_tested=True)
    made["held"] = [r | {"task_id": "x"} if r["conversation_id"] == "s1-D4" else r for r in made["held"]]
    assert why_untested(made).endswith("session s1 asks other questions than session s2 in D4")


def test_a_question_that_nothing_identifies_is_no_evidence() -> None:
    made = runs(3, repeatability_tested=True)
    made["held"] = [r | {"task_id": None} for r in made["held"]]
    for row in made["conversations"]:
        row["opening_hash"] = None if row["conversation_id"] == "s3-D1" else row["opening_hash"]
    assert why_untested(made).endswith("session s3 has neither a task_id nor a user message in D1")


@pytest.mark.parametrize(
    ("times", "expected", "why"),
    [
        ([("d1", None), ("d2", None), ("d3", None)], True, ""),
        ([("d1", "1"), ("d1", "2"), ("d1", "3")], True, ""),
        ([(None, "1"), (None, "2"), (None, "3")], True, ""),
        ([("d1", "1"), ("d2", "1"), ("d3", "1")], True, ""),
        ([("d1", None), ("d2", None), ("d2", None)], None, "s3 has neither a date nor a session_run other than session s2"),
        ([("d1", "1"), ("d1", "2"), ("d1", None)], None, "s3 has neither"),
        ([("d1", None), ("d2", None), (None, None)], None, "s3 has neither a date nor a session_run"),
        ([("d1", None), ("d2", None), (None, "3")], None, "s3 has neither"),
    ],
)  # fmt: skip
def test_sessions_are_told_apart_by_date_or_run(
    times: list[tuple[str | None, str | None]], expected: bool | None, why: str
) -> None:
    made = runs(3, repeatability_tested=True)
    made["declared"] = [
        row | {"session_date": day and f"2026-04-0{day[1:]}", "session_run": run}
        for row, (day, run) in zip(made["declared"], times, strict=True)
    ]
    found = checked(**made)
    assert found.repeatability_tested is expected
    assert (why in "; ".join(found.missing)) if why else found.missing == ()


def test_what_a_store_of_an_earlier_release_does_not_know_is_taken_from_the_content_hash() -> None:
    made = runs(3, repeatability_tested=True)
    for row in made["conversations"]:
        row |= {"content_hash": row["messages_hash"], "messages_hash": None, "opening_hash": None}
    assert checked(**made).repeatability_tested is True


def test_a_session_that_is_not_admitted_is_no_evidence() -> None:
    made = runs(3, repeatability_tested=True)
    made["held"] = [r | {"is_admitted": r["session_id"] != "s3"} for r in made["held"]]
    assert checked(**made).repeatability_tested is None


# hallucination_passed


@pytest.mark.parametrize(
    ("values", "passed"),
    [
        ((1.0, 1.0), True),
        ((1.0, 0.0), False),
        ((0.0, None), False),
        ((1.0, None), None),
        ((None, None), None),
    ],
)
def test_all_hallucination_tests_must_pass(values: tuple[float | None, ...], passed: bool | None) -> None:
    made = runs(2)
    made["judged"] = [hallucination(v, f"s{i}") for i, v in enumerate(values, start=1)]
    found = checked(**made)
    assert found.hallucination_passed is passed
    assert found.missing == (("hallucination: present, not judged",) if None in values else ())


def test_a_test_that_nobody_judged_is_named_and_an_answer_that_is_not_effective_decides_nothing() -> None:
    found = checked(judged=[])
    assert (found.hallucination_passed, found.missing) == (None, ("hallucination: present, not judged",))
    again = hallucination(0.0, judge="model", is_effective=False)
    assert checked(judged=[hallucination(1.0), again]).hallucination_passed is True
