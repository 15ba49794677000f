"""The composite: one formula, exact, for tables and notebooks; and what each status means."""

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.errors import InputError
from agent_eval.gates.coverage import benchmark_findings
from agent_eval.methodology import load
from agent_eval.methodology.models import DIMENSIONS, SCENARIOS
from agent_eval.scores.composite.leaderboard import leaderboard
from agent_eval.scores.composite.score import composite, composite_parts, one_point
from agent_eval.scores.statistics.exact import from_text
from agent_eval.tables import table
from tests.scores.builders import (
    CRITERIA,
    METHODOLOGIES,
    TESTS,
    compose,
    composed,
    frames,
    hallucination,
    judgment,
    methodology,
    one,
    rating,
    ratings,
    session,
    spoken,
    transcripts,
    unrated,
    versioned,
)
from tests.untyped import any_table

VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")


def spread(total: int, n: int) -> list[int]:
    """n ratings 1–5 with that sum."""
    return [total // n + (i < total % n) for i in range(n)]


def given_ratings() -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Fours everywhere: universal and domain score 80."""
    return dict.fromkeys(DIMENSIONS, 4), dict.fromkeys(SCENARIOS, (4, 4, 4))


@pytest.mark.slow
def test_pairs_of_sums_are_exact_in_the_tables() -> None:
    """Every sum of U with every fourth of D: all remainders of the fifteenth occur, and both ends of both scales."""
    sums = {f"u{u}-d{d}": (u, d) for u in range(6, 31) for d in range(15, 76, 4)}
    board = composed(
        rated=[
            row
            for agent, (u, d) in sums.items()
            for row in ratings(
                spread(u, 6), [spread(d, 15)[i : i + 3] for i in range(0, 15, 3)], agent_id=agent
            )
        ],
        held=[row for agent in sums for row in transcripts(agent_id=agent)],
        declared=[session(agent_id=agent) for agent in sums],
        judged=[hallucination(agent_id=agent) for agent in sums],
    )
    assert (board.height, set(board["status"])) == (400, {"published"})
    for row in board.iter_rows(named=True):
        u, d = sums[row["agent_id"]]
        raw = Fraction(20 * u + 12 * d, 15)
        assert from_text(row["raw_composite_exact"]) == raw
        assert from_text(row["composite_exact"]) == raw - 10
        assert row["composite_score"] == float(raw - 10)


# Laws

RATING = st.integers(1, 5)
UNIVERSAL = st.fixed_dictionaries(dict.fromkeys(DIMENSIONS, RATING))
TRIPLES = st.lists(st.tuples(RATING, RATING, RATING), min_size=1, max_size=3)
DOMAIN = st.fixed_dictionaries(dict.fromkeys(SCENARIOS, TRIPLES))


@given(UNIVERSAL, DOMAIN, st.booleans(), st.sampled_from(VERSIONS))
def test_any_ratings_give_the_published_score(
    universal: Any, domain: Any, tested: bool, version: str
) -> None:
    u = Fraction(100 * sum(universal.values()), 30)
    d = sum((Fraction(sum(map(sum, of)), len(of)) for of in domain.values()), Fraction(0)) * 100 / 75
    penalty = 10 if version == "1.3.0" and not tested else 0
    result = composite(universal, domain, load(version), repeatability_tested=tested)
    assert result.exact == u * 2 / 5 + d * 3 / 5 - penalty
    assert (result.universal_0to100, result.domain_0to100) == (float(u), float(d))
    assert (result.raw_composite_score, result.repeatability_penalty) == (
        float(result.exact + penalty),
        penalty,
    )
    assert (result.composite_score, result.status, result.missing) == (float(result.exact), "published", ())


def test_the_penalty_stops_at_zero() -> None:
    harsh = methodology(penalties=[{"disclosure": "repeatability_tested", "when": False, "points": 50}])
    assert composite_parts(Fraction(20), Fraction(20), harsh, False).score == 0
    assert composite_parts(Fraction(20), Fraction(20), harsh, False).raw == 20


def test_weights_are_data() -> None:
    half = methodology(weights={"universal": "0.5", "domain": "0.5"})
    assert composite_parts(Fraction(100), Fraction(20), half, True).score == 60


# The function for notebooks


@pytest.mark.parametrize("value", [True, False, float("nan"), 0, 6, 4.5, 5.0, "5", -1, Fraction(5)])
def test_what_is_no_integer_from_one_to_five_is_refused_by_key(value: Any) -> None:
    universal, domain = given_ratings()
    rules = METHODOLOGIES["1.3.0"]
    with pytest.raises(InputError, match=r"^U3: .*integers 1–5"):
        composite(universal | {"U3": value}, domain, rules, repeatability_tested=True)
    with pytest.raises(InputError, match=r"^D4, criterion 2: "):
        composite(universal, domain | {"D4": (4, value, 4)}, rules, repeatability_tested=True)


@pytest.mark.parametrize("value", [(5, 4), (5, 4, 5, 4), 5, "555", [(5, 4, 5), (5, 4)], {"a": 1}])
def test_what_is_no_triple_is_refused_by_key(value: Any) -> None:
    universal, domain = given_ratings()
    with pytest.raises(InputError, match=r"^D1: "):
        composite(universal, domain | {"D1": value}, METHODOLOGIES["1.3.0"], repeatability_tested=True)


@pytest.mark.parametrize(("universal", "domain"), [({"U7": 5}, {}), ({}, {"d1": (5, 5, 5)}), ({"D1": 5}, {})])
def test_an_unknown_key_is_refused(universal: Any, domain: Any) -> None:
    with pytest.raises(InputError, match=r"no such key.*U1, U2"):
        composite(universal, domain, METHODOLOGIES["1.3.0"], repeatability_tested=True)


@pytest.mark.parametrize("missing", [["U4"], ["D3"], ["U1", "U6", "D5"], [*DIMENSIONS, *SCENARIOS]])
@pytest.mark.parametrize("unrated", ["absent", (4, None, 4), [], [(4, 4, 4), (None, 4, 4)]])
def test_a_missing_key_leaves_no_score_and_is_named(missing: list[str], unrated: Any) -> None:
    universal, domain = given_ratings()
    universal = {k: v for k, v in universal.items() if k not in missing}
    domain = {k: v for k, v in domain.items() if k not in missing}
    if unrated != "absent":
        domain |= {key: unrated for key in missing if key in SCENARIOS}
    result = composite(universal, domain, METHODOLOGIES["1.3.0"], repeatability_tested=True)
    assert (result.status, result.missing) == ("incomplete", tuple(missing))
    assert (result.raw_composite_score, result.composite_score, result.exact) == (None, None, None)
    assert (result.universal_0to100 is None) == any(k.startswith("U") for k in missing)
    assert (result.domain_0to100 is None) == any(k.startswith("D") for k in missing)


@pytest.mark.parametrize(
    ("version", "status", "penalty", "score"),
    [
        ("1.0.0", "published", 0.0, 80.0),
        ("1.2.0", "provisional", 0.0, 80.0),  # must be disclosed, costs nothing
        ("1.3.0", "provisional", None, None),
    ],
)
def test_repeatability_not_said(
    version: str, status: str, penalty: float | None, score: float | None
) -> None:
    result = composite(*given_ratings(), load(version), repeatability_tested=None)
    assert result.raw_composite_score == 80.0
    assert (result.status, result.repeatability_penalty, result.composite_score) == (status, penalty, score)
    assert result.missing == (() if version == "1.0.0" else ("repeatability_tested",))


# The table: statuses and their precedence


def row_of(**rows: Any) -> dict[str, Any]:
    return one(table("composite_scores").conform(composed(**rows)))


def under(version: str) -> dict[str, Any]:
    """The rows of one complete session under a version."""
    return {
        "rated": ratings(methodology_version=version),
        "held": transcripts(methodology_version=version),
        "judged": [hallucination(methodology_version=version)],
    }


@pytest.mark.parametrize(("version", "score"), [("1.0.0", 80), ("1.1.0", 80), ("1.2.0", 80), ("1.3.0", 70)])
def test_a_complete_session_is_published(version: str, score: int) -> None:
    row = row_of(**under(version))
    assert (row["status"], row["missing"], row["warnings"]) == ("published", [], [])
    assert (row["composite_score"], row["composite_exact"]) == (score, f"{score}/1")
    assert (row["raw_composite_score"], row["raw_composite_exact"]) == (80, "80/1")
    assert row["repeatability_penalty"] == 80 - score
    assert (row["benchmark_id"], row["n_sessions"], row["judge"]) == ("run", 1, "recorded")


SILENT = dict.fromkeys(
    ("repeatability_tested", "repeatability_penalty", "composite_score", "composite_exact")
)
NOT_HELD = "hallucination: no conversation of the session holds this test"


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (
            {"held": transcripts([*SCENARIOS, *TESTS[::2]])},
            {"composite_exact": "70/1", "missing": [NOT_HELD]},
        ),
        ({"declared": [session(repeatability_tested=None)]}, SILENT | {"raw_composite_exact": "80/1"}),
        ({"declared": [session(repeatability_tested=True)]}, SILENT),
    ],
    ids=["a missing test changes no number", "nothing is said of repeatability", "a claim without evidence"],
)
def test_what_is_not_shown_makes_it_provisional(rows: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert (wanted | {"status": "provisional"}).items() <= row_of(**rows).items()


def test_a_missing_rating_makes_it_incomplete() -> None:
    row = row_of(rated=ratings((4, 4, 4, None, 4, 4)))
    assert (row["status"], row["missing"]) == ("incomplete", ["U4: not rated"])
    assert (row["universal_0to100"], row["domain_0to100"]) == (None, 80)
    assert (row["raw_composite_score"], row["composite_score"], row["composite_exact"]) == (None, None, None)


def differing(target: str, **changes: Any) -> dict[str, Any]:
    """The effective row of a part that two people rated differently."""
    reason = {"status": "disputed", "reason": "anna 4, ben 2", "judge": "human", "rater": "anna, ben"}
    return rating(target, None) | reason | changes


def test_a_part_that_people_differ_on_has_no_rating_and_makes_it_provisional() -> None:
    rated = [*(r for r in ratings() if r["target"] != "U3"), differing("U3")]
    row = row_of(rated=rated)
    assert (row["status"], row["composite_exact"], row["raw_composite_score"]) == ("provisional", None, None)
    assert row["missing"] == ["U3: disputed (anna 4, ben 2)"]
    assert row["domain_0to100"] == 80.0


def test_a_disputed_part_beside_one_that_nobody_rated_is_incomplete() -> None:
    rest = [r for r in ratings() if r["target"] not in {"U3", "U6"}]
    row = row_of(rated=[*rest, differing("U3"), rating("U6", None)])
    assert row["status"] == "incomplete"
    assert row["missing"] == ["U3: disputed (anna 4, ben 2)", "U6: not rated"]
    rest = [r for r in ratings() if r["target"] not in {"U3", "D2"}]
    lacking = [rating("D2", None, criterion=c) | {"conversation_id": "a-D2"} for c in CRITERIA]
    assert row_of(rated=[*rest, differing("U3"), *lacking])["status"] == "incomplete"


def test_a_disputed_criterion_of_one_session_is_named_with_its_place() -> None:
    rated = [
        differing("D2", criterion="accuracy", conversation_id="b-D2", session_id="b")
        if (r["target"], r["criterion"], r["session_id"]) == ("D2", "accuracy", "b")
        else r
        for r in (row | {"criterion": row.get("criterion")} for s in "ab" for row in ratings(session_id=s))
    ]
    row = row_of(
        rated=rated,
        held=[*transcripts(), *transcripts(session="b")],
        declared=[session(), session("b")],
        judged=[hallucination(), hallucination(session="b")],
    )
    assert row["status"] == "provisional"
    assert row["missing"] == ["D2.accuracy (session b): disputed (anna 4, ben 2)"]


def test_a_disputed_hallucination_test_is_unknown_and_bars_publication() -> None:
    row = row_of(judged=[hallucination(None, status="disputed", unscored_reason="anna 1, ben 0")])
    assert (row["status"], row["hallucination_passed"]) == ("provisional", None)
    assert row["missing"] == ["hallucination: disputed (anna 1, ben 0)"]
    [tests] = [f for f in benchmark_findings(row) if f.gate == "required_tests"]
    assert tests.result == "unknown"


def test_everything_that_people_differ_on_is_listed_and_turns_change_no_number() -> None:
    place = {"methodology_version": "1.3.0", "agent_id": "lumen", "reason": "anna 5, ben 2"}
    disputes = pl.DataFrame(
        [
            place | {"session_id": "a", "target": "U3"},
            place | {"session_id": "a", "conversation_id": "a-D2", "target": "D2", "criterion": "accuracy"},
            place | {"conversation_id": "a-D1", "target": "goal_completion"},
            place | {"conversation_id": "a-D1", "turn_index": 1, "target": "helpfulness"},
            place | {"session_id": "a", "target": "U3", "agent_id": "other"},
        ],
        schema=dict.fromkeys((*place, "session_id", "conversation_id", "target", "criterion"), pl.String)
        | {"turn_index": pl.Int64},
    )
    row = one(compose(frames(), disputes=disputes))
    assert row["disputed"] == [
        "U3 of session a (anna 5, ben 2)",
        "D2.accuracy of a-D2 (anna 5, ben 2)",
        "goal_completion of a-D1 (anna 5, ben 2)",
        "helpfulness of turn 1 of a-D1 (anna 5, ben 2)",
    ]
    assert (row["status"], row["composite_exact"]) == ("published", "70/1")
    assert one(compose(frames()))["disputed"] == []


def test_a_tested_agent_keeps_its_raw_composite() -> None:
    names = ("a", "b", "c")
    row = row_of(
        rated=[r for s in names for r in ratings(session_id=s)],
        held=[r for s in names for r in transcripts(session=s)],
        declared=[session(s, session_run=s, repeatability_tested=True) for s in names],
        judged=[hallucination(session=s) for s in names],
        conversations=[c for s in names for c in spoken(s)],
    )
    assert (row["status"], row["composite_exact"], row["repeatability_penalty"]) == ("published", "80/1", 0)
    assert (row["n_sessions"], row["repeatability_tested"]) == (3, True)


def test_a_rating_lost_to_the_judge_or_off_the_scale_makes_it_invalid() -> None:
    rest = [r for r in ratings() if r["target"] != "U6"]
    lost = rating("U6", None, status="unscored", reason="judge_error")
    row = row_of(rated=[*rest, lost], declared=[session(u3_scope=None)])
    assert row["status"] == "invalid"
    assert row["missing"] == ["U6: judge_error", "u3_scope: not disclosed"]
    assert row_of(rated=[*rest, rating("U6", 9)])["status"] == "invalid"


def test_only_harness_failures_make_it_invalid_not_incomplete() -> None:
    row = row_of(
        rated=unrated(reason="harness failure: the proxy died"),
        held=transcripts(is_admitted=False, reason="harness failure: the proxy died"),
        declared=[session(invalid_reason="the proxy died")],
    )
    assert (row["status"], row["n_sessions"], row["benchmark_id"]) == ("invalid", 0, None)
    assert row["missing"][0] == "session a: harness failure: the proxy died"
    assert row["composite_score"] is None


def test_a_harness_failure_beside_a_valid_session_only_warns() -> None:
    failed = transcripts(session="b", is_admitted=False, reason="harness failure: no disk")
    row = row_of(held=[*transcripts(), *failed], declared=[session(), session("b", invalid_reason="no disk")])
    assert (row["status"], row["warnings"]) == ("published", ["session b: harness failure: no disk"])


def test_a_harness_failure_of_another_version_says_nothing_here() -> None:
    old = session("b", invalid_reason="no disk", methodology_versions=["1.0.0"])
    other = transcripts(session="b", slots=[None], is_admitted=False, reason="its session was run for 1.0.0")
    row = row_of(held=[*transcripts(), *other], declared=[session(), old])
    assert (row["status"], row["warnings"]) == ("published", [])


def test_without_a_template_it_is_not_applicable_whatever_else_is_wrong() -> None:
    none = [rating(d, None, status="not_applicable", reason="no template") for d in SCENARIOS]
    universal = [r for r in ratings() if r["target"] in DIMENSIONS]
    lost = [
        r | ({"status": "unscored", "rating_1to5": None} if r["target"] == "U1" else {}) for r in universal
    ]
    row = row_of(rated=[*lost, *none], held=transcripts(template=None))
    assert (row["status"], row["template"], row["composite_score"]) == ("not_applicable", None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_undeclared_agent_is_incomplete_with_everything_named_and_nothing_zero(version: str) -> None:
    row = row_of(
        rated=versioned(unrated(), version),
        held=transcripts([None], methodology_version=version, benchmark_id="a"),
        declared=[session(methodology_versions=["any"], u3_scope=None, repeatability_tested=None)],
        judged=[],
    )
    named = [text.split(":")[0] for text in row["missing"]]
    of_version = METHODOLOGIES[version]
    tests = [t.slug for t in of_version.required_tests if t.enforcement == "bars_publication"]
    assert named == [*DIMENSIONS, *SCENARIOS, *tests, *of_version.required_disclosures]
    nothing = {"status": "incomplete", "n_sessions": 0, "benchmark_id": None, "judge": "none"}
    assert nothing.items() <= row.items()
    scores = [c for c in row if c.endswith(("_0to100", "_score", "_exact", "_penalty"))]
    assert {row[c] for c in scores} == {None}


def test_a_version_that_only_warns_about_tests_publishes_without_them() -> None:
    rows = under("1.0.0") | {"held": transcripts(SCENARIOS, methodology_version="1.0.0")}
    row = row_of(**rows)
    assert (row["status"], row["missing"], row["hallucination_passed"]) == ("published", [], None)
    assert len(row["warnings"]) == 3


def test_a_failed_hallucination_test_is_shown_and_deducts_nothing() -> None:
    row = row_of(judged=[hallucination(0.0)])
    shown = {"status": "published", "hallucination_passed": False, "composite_exact": "70/1"}
    assert shown.items() <= row.items()


def test_an_older_run_is_named_and_not_averaged() -> None:
    older = transcripts(
        session="old", is_admitted=False, reason="superseded", superseded_by="run", benchmark_id="march"
    )
    row = row_of(held=[*transcripts(), *older], declared=[session(), session("old", benchmark_id="march")])
    assert (row["benchmark_id"], row["n_sessions"]) == ("run", 1)
    assert row["warnings"] == ["run march is superseded by run, which has no date either and a later name"]


def test_transcripts_without_scores_have_every_part_missing() -> None:
    row = row_of(rated=[])
    assert row["status"] == "incomplete"
    assert row["missing"] == [f"{target}: no rating" for target in (*DIMENSIONS, *SCENARIOS)]


def test_a_pair_without_transcripts_gives_no_row() -> None:
    assert composed(rated=[*ratings(), *ratings(agent_id="removed")])["agent_id"].to_list() == ["lumen"]
    assert composed(rated=[], held=[], declared=[], judged=[]).equals(table("composite_scores").empty())


# Measured columns


def conversation(slot: str, cost: float | None) -> dict[str, Any]:
    return {"agent_id": "lumen", "conversation_id": f"a-{slot}", "session_id": "a", "cost_usd": cost}


def test_goal_completion_is_the_mean_of_what_was_judged() -> None:
    goals = [
        judgment("a-D1", "goal_completion", 1.0),
        judgment("a-D2", "goal_completion", 0.0),
        judgment("a-D3", "goal_completion", 1.0),
        judgment("a-D4", "goal_completion", None),  # unscored moves no mean
        judgment("a-D1", "goal_completion", 0.0, judge="model", is_effective=False),
        judgment("a-gone", "goal_completion", 0.0),
    ]
    row = row_of(judged=[hallucination(), *goals])
    assert row["goal_completion"] == pytest.approx(2 / 3)
    assert row["n_goal_completion"] == 3
    nothing = row_of()
    assert (nothing["goal_completion"], nothing["n_goal_completion"]) == (None, 0)


@pytest.mark.parametrize(("unknown", "total"), [(None, 2.0), ("D5", None)])
def test_cost_is_unknown_when_any_part_of_it_is(unknown: str | None, total: float | None) -> None:
    slots = [r["slot"] for r in transcripts()]
    costs = [conversation(slot, None if slot == unknown else 0.25) for slot in slots]
    assert row_of(conversations=costs)["cost_usd"] == total


def test_conversations_that_do_not_count_cost_nothing_and_reach_no_goal() -> None:
    held = [r | {"is_admitted": r["slot"] == "D1"} for r in transcripts()]
    costs = [conversation("D1", 0.5), conversation("D2", None)]
    goals = [judgment("a-D1", "goal_completion", 1.0), judgment("a-D2", "goal_completion", 0.0)]
    row = row_of(held=held, conversations=costs, judged=goals)
    assert (row["cost_usd"], row["goal_completion"], row["n_goal_completion"]) == (0.5, 1.0, 1)
    nothing = row_of(held=transcripts(is_admitted=False), conversations=[conversation("D1", 0.5)])
    assert nothing["cost_usd"] is None


def test_every_judge_is_named() -> None:
    rated = [r | {"judge": {"U5": "rule", "U6": "human"}.get(r["target"], "recorded")} for r in ratings()]
    assert row_of(rated=rated)["judge"] == "human + recorded + rule"


def judged_by(**judges: tuple[str, str]) -> list[dict[str, Any]]:
    """The ratings of a session, given by a/model but for some targets: (judge, rater)."""
    who = {r["target"]: ("a/model", "a/model") for r in ratings()} | judges
    return [r | dict(zip(("judge", "rater"), who[r["target"]], strict=True)) for r in ratings()]


@pytest.mark.parametrize(
    ("other", "models"),
    [
        (("b/model", "b/model"), ["a/model", "b/model"]),
        (("recorded", "b/model"), ["a/model", "b/model"]),  # its verdict was recorded
        (("ensemble", "a/model + b/model"), ["a/model", "ensemble"]),
    ],
)
def test_two_models_without_an_ensemble_are_provisional(other: tuple[str, str], models: list[str]) -> None:
    row = row_of(rated=judged_by(D3=other))
    assert (row["status"], row["composite_exact"]) == ("provisional", "70/1")
    assert (row["missing"], row["judge_models"]) == ([f"two judges: {models[0]} and {models[1]}"], models)


@pytest.mark.parametrize("other", [("human", "Ana"), ("rule", "rule"), ("recorded", "a/model")])
def test_people_rules_and_the_same_model_are_no_second_judge(other: tuple[str, str]) -> None:
    row = row_of(rated=judged_by(D3=other))
    assert (row["status"], row["missing"], row["judge_models"]) == ("published", [], ["a/model"])
    row = row_of(rated=[r | {"judge": "ensemble", "rater": "a/model + b/model"} for r in ratings()])
    assert (row["status"], row["judge_models"]) == ("published", ["ensemble"])


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_row_order_never_matters(random: Random) -> None:
    def shuffled(rows: Sequence[Any]) -> list[Any]:
        return random.sample(rows, len(rows))

    pairs = [(v, s) for v in VERSIONS for s in ("a", "b")]
    rows: dict[str, Any] = {
        "rated": [r for v, s in pairs for r in ratings(methodology_version=v, session_id=s)],
        "held": [r for v, s in pairs for r in transcripts(methodology_version=v, session=s)],
        "declared": [session("a"), session("b", u3_scope=None)],
        "judged": [hallucination(session=s, methodology_version=v) for v, s in pairs],
        "conversations": [conversation(s, 0.1 * i) for i, s in enumerate(SCENARIOS)],
    }
    expected = composed(**rows)
    again: dict[str, Any] = {name: shuffled(of_table) for name, of_table in rows.items()}
    assert_frame_equal(composed(**again), expected, check_exact=True)


def test_columns_that_the_store_adds_do_no_harm() -> None:
    made = frames()
    stored = {k: f.with_columns(run_id=pl.lit("r"), created_at=pl.lit(0)) for k, f in made.items()}
    assert_frame_equal(compose(stored), compose(made))


# Copied sessions


def two_sessions(**changes: Any) -> dict[str, Any]:
    """Two complete sessions; b says word for word what a said."""
    return {
        "rated": [*ratings(session_id="a"), *ratings(session_id="b")],
        "held": [*transcripts(session="a"), *transcripts(session="b", **changes)],
        "declared": [session("a"), session("b", session_date="2026-04-02")],
        "judged": [hallucination(session="a"), hallucination(session="b")],
        "conversations": [*spoken("a", words="b"), *spoken("b")],
    }


def test_a_composite_with_a_copied_session_is_provisional_and_unranked() -> None:
    composites = composed(**two_sessions())
    row = one(composites)
    assert (row["status"], row["composite_exact"]) == ("provisional", "70/1")
    assert row["missing"] == ["copied session: a is a copy of b"]  # b states a date, and comes first
    board = one(leaderboard(any_table(composites), table("agents").empty(), table("reliability").empty()))
    assert (board["rank"], board["low"], board["missing"]) == (None, None, row["missing"])


@pytest.mark.parametrize(
    "made",
    [
        two_sessions() | {"conversations": [*spoken("a"), *spoken("b")]},
        two_sessions(is_admitted=False) | {"rated": ratings(session_id="a")},
    ],
    ids=["in their own words", "a copy that is not admitted"],
)
def test_other_sessions_bar_nothing(made: dict[str, Any]) -> None:
    row = row_of(**made)
    assert (row["status"], row["missing"]) == ("published", [])


@pytest.mark.parametrize(
    ("universal", "point"), [(100, Fraction(100, 30)), (50, Fraction(50, 30)), (0, Fraction(100, 75))]
)
def test_one_point_is_the_larger_of_one_in_six_dimensions_and_in_fifteen_criteria(
    universal: int, point: Fraction
) -> None:
    shares = {"universal": str(universal / 100), "domain": str(1 - universal / 100)}
    rules = METHODOLOGIES["1.3.0"]
    assert one_point(rules.model_copy(update={"weights": rules.weights.model_copy(update=shares)})) == point
