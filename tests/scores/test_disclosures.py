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
    transcripts,
    versioned,
)


def checked(version: str = "1.3.0", **rows: Any) -> Disclosed:
    """The disclosures of one agent under one version."""
    rows["held"] = versioned(rows.get("held", transcripts()), version)
    rows["judged"] = versioned(rows.get("judged", [hallucination()]), version)
    made = frames(**rows)
    found = disclosed(made["transcripts"], made["sessions"], made["conversation_judgments"], METHODOLOGIES)
    return found[AgentVersion.of(agent_id="lumen", methodology_version=version)]


def runs(n: int, **changes: Any) -> dict[str, Any]:
    """Rows of n complete sessions s1..sn."""
    names = [f"s{i}" for i in range(1, n + 1)]
    return {
        "held": [row for name in names for row in transcripts(session=name)],
        "declared": [session(name, **changes) for name in names],
        "judged": [hallucination(session=name) for name in names],
    }


def test_a_complete_session_lacks_nothing() -> None:
    assert checked() == Disclosed("multi_turn", False, True, (), ())


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
    assert checked(**made).missing == (
        "error_injection (session s2): no conversation of the session holds this test",
    )


def test_a_scenario_may_serve_as_a_test_by_link() -> None:
    held = [
        r | ({"tests": ["hallucination"]} if r["slot"] == "D4" else {})
        for r in transcripts((*SCENARIOS, "standardised_task", "error_injection"))
    ]
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


def test_an_undisclosed_scope_is_missing_only_where_it_is_required() -> None:
    silent = [session(u3_scope=None)]
    assert checked(declared=silent).missing == ("u3_scope: not disclosed",)
    assert checked("1.0.0", declared=silent).missing == ()
    assert checked("1.0.0", declared=silent).warnings == ()


def test_single_message_is_contradicted_by_a_longer_d3() -> None:
    found = checked(declared=[session(u3_scope="single_message")])
    assert found.u3_scope is None
    assert found.missing == (
        "u3_scope: single_message is claimed, but a D3 conversation of session a has 2 user messages",
    )


def test_single_message_holds_with_one_user_message() -> None:
    held = transcripts(n_user_messages=1)
    assert checked(held=held, declared=[session(u3_scope="single_message")]).u3_scope == "single_message"


def test_multi_turn_is_contradicted_without_a_second_user_message_in_d3() -> None:
    found = checked(held=[r | {"n_user_messages": 1 if r["slot"] == "D3" else 5} for r in transcripts()])
    assert found.u3_scope is None
    assert found.missing == (
        "u3_scope: multi_turn is claimed, but no D3 conversation of session a has two user messages",
    )


def test_one_long_conversation_among_several_in_d3_upholds_multi_turn() -> None:
    short = transcripts(["D3"], n_user_messages=1)[0] | {"conversation_id": "a-D3-short"}
    assert checked(held=[*transcripts(), short]).u3_scope == "multi_turn"


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


def test_undisclosed_is_never_read_as_false() -> None:
    found = checked(declared=[session(repeatability_tested=None)])
    assert found.repeatability_tested is None
    assert found.missing == ("repeatability_tested: not disclosed",)


def test_false_needs_no_evidence() -> None:
    assert checked(**runs(1)).repeatability_tested is False


@pytest.mark.parametrize(("n", "expected"), [(1, None), (2, None), (3, True), (4, True)])
def test_true_needs_three_complete_sessions(n: int, expected: bool | None) -> None:
    found = checked(**runs(n, repeatability_tested=True))
    assert found.repeatability_tested is expected
    assert bool(found.missing) is (expected is None)


@pytest.mark.parametrize("gap", ["D2", "hallucination"])
def test_a_session_with_a_gap_is_no_evidence(gap: str) -> None:
    made = runs(3, repeatability_tested=True)
    made["held"] = [r for r in made["held"] if r["conversation_id"] != f"s3-{gap}"]
    found = checked(**made)
    assert found.repeatability_tested is None
    assert found.missing[-1] == (
        "repeatability_tested: true is claimed, but 2 of 3 sessions cover all required tests and D1–D5, "
        f"at least 3 must; session s3 lacks {gap}"
    )


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


def test_a_test_that_nobody_judged_is_named_and_never_passed() -> None:
    found = checked(judged=[])
    assert found.hallucination_passed is None
    assert found.missing == ("hallucination: present, not judged",)


def test_a_judgment_that_is_not_effective_decides_nothing() -> None:
    again = hallucination(0.0, judge="model", is_effective=False)
    assert checked(judged=[hallucination(1.0), again]).hallucination_passed is True


def test_a_failed_test_bars_nothing() -> None:
    found = checked(judged=[hallucination(0.0)])
    assert (found.hallucination_passed, found.missing) == (False, ())
