"""Rubric ratings: the grid is complete, one row of each part counts, orphans are named."""

from collections.abc import Sequence

import polars as pl
import pytest

from agent_eval.judge.inputs.rater_rules import RaterRule
from agent_eval.judge.inputs.recorded_verdicts import RecordedVerdict
from agent_eval.judge.rubric import orphan_ratings, rubric_ratings
from agent_eval.methodology.registry import Registry
from agent_eval.metrics.rubrics import criterion_metrics, universal_metrics
from agent_eval.tables import table
from agent_eval.transcripts.content_hash import session_hash
from agent_eval.transcripts.models import Conversation
from tests.judge.material import (
    VERSION,
    Row,
    admitted,
    agent,
    conversation,
    finding,
    human,
    humans,
    nothing,
    recorded,
    sessions,
    tables,
    user,
)
from tests.untyped import any_table

CURRENT = Registry.read().get(VERSION)
TEMPLATE = CURRENT.template_for("customer_service")
assert TEMPLATE is not None
CRITERIA = [c.id for c in TEMPLATE.criteria]
RULES: tuple[RaterRule, ...] = ("adjudicator", "median", "latest")
PART = ("session_id", "conversation_id", "target", "criterion")


def talk(conversation_id: str, scenario: str | None, **facts: object) -> Conversation:
    facts = {"conversation_id": conversation_id, "scenario": scenario, "interventions": [], **facts}
    return conversation(user("Hi"), agent(f"This is {conversation_id}."), **facts)  # type: ignore[arg-type]


FULL = [*(talk(f"c{i}", f"D{i}") for i in range(1, 6)), talk("e", "error_injection", injected_error={"x": 1})]
TESTS = {"e": ["error_injection"]}


def rated(
    *held: Conversation,
    verdicts: Sequence[Row] = (),
    ratings: Sequence[Row] = (),
    template: str | None = "customer_service_v1",
    declared: pl.DataFrame | None = None,
    versions: Sequence[str] = (VERSION,),
    transcripts: pl.DataFrame | None = None,
    rule: RaterRule = "adjudicator",
) -> pl.DataFrame:
    rows = tables(*held)
    frame = rows.conversations.frame()
    cache = table("judge_cache").frame(RecordedVerdict.model_validate(v).row() for v in verdicts)
    return rubric_ratings(
        any_table(admitted(frame, versions, template, TESTS) if transcripts is None else transcripts),
        any_table(frame),
        any_table(rows.turns.frame()),
        any_table(sessions("s1", versions=versions) if declared is None else declared),
        humans(*ratings),
        {v: Registry.read().get(v) for v in versions},
        finding(cache),
        rater_rule=rule,
    )


def hashes(*held: Conversation) -> dict[str, str]:
    return dict(tables(*held).conversations.frame().select("conversation_id", "content_hash").iter_rows())


def u_said(target: str, rating: int, *held: Conversation, **answer: object) -> Row:
    key = session_hash(hashes(*held).values())
    return recorded(key, None, universal_metrics(CURRENT)[target], rating_1to5=rating, **answer)


def one_effective(frame: pl.DataFrame) -> bool:
    effective = frame.group_by("methodology_version", *PART).agg(pl.col("is_effective").sum())
    return bool((effective["is_effective"] == 1).all())


def reasons(frame: pl.DataFrame, target: str) -> set[tuple[str, str | None]]:
    return set(frame.filter(target=target).select("status", "reason").rows())


def test_the_grid_holds_every_dimension_and_every_criterion_once() -> None:
    frame = rated(*FULL)
    grid = {("U" + str(i), None) for i in range(1, 7)} | {(f"D{i}", c) for i in range(1, 6) for c in CRITERIA}
    assert set(frame.select("target", "criterion").rows()) == grid
    assert frame.height == 21
    assert one_effective(frame)
    assert reasons(frame, "D2") == {("missing", "no rating: needs a judge model or a human")}


def test_an_empty_slot_is_named_and_two_conversations_in_one_are_rated_each() -> None:
    frame = rated(talk("a", "D1"), talk("b", "D1"))
    assert frame.filter(target="D1")["conversation_id"].to_list() == ["a"] * 3 + ["b"] * 3
    assert reasons(frame, "D3") == {("missing", "no D3 conversation in session s1")}
    assert frame.filter(target="D3")["conversation_id"].null_count() == 3


def test_u4_needs_an_injected_error() -> None:
    rating = human("U4", 5, session_id="s1")
    frame = rated(*FULL[:5], ratings=[rating], verdicts=[u_said("U4", 5, *FULL[:5])])
    rows = frame.filter(target="U4", is_effective=True)
    assert rows.select("status", "reason", "rating_1to5").rows() == [
        ("missing", "no injected error in the session", None)
    ]
    assert one_effective(frame)
    assert rated(*FULL, ratings=[rating]).filter(target="U4")["rating_1to5"].to_list() == [5]


def test_u5_is_counted_and_says_when_it_cannot_be() -> None:
    counted = rated(*FULL).filter(target="U5").to_dicts()[0]
    assert (counted["judge"], counted["rating_1to5"]) == ("rule", 5)
    [(status, reason)] = reasons(rated(*FULL, talk("x", None, interventions=None)), "U5")
    assert status == "missing"
    assert reason is not None
    assert "x" in reason


def test_recorded_ratings_of_a_session_hold_for_exactly_its_conversations() -> None:
    verdict = u_said("U1", 4, *FULL, evidence="This is c3.")
    [row] = rated(*FULL, verdicts=[verdict]).filter(target="U1").to_dicts()
    assert (row["judge"], row["rating_1to5"], row["rater"]) == ("recorded", 4, "model-a")
    assert (row["evidence_verified"], row["is_effective"]) == (True, True)
    more = rated(*FULL, talk("x", None), verdicts=[verdict])
    assert more.filter(target="U1")["judge"].to_list() == ["none"]


def test_recorded_ratings_of_a_scenario_hold_for_its_conversation() -> None:
    metric = criterion_metrics(TEMPLATE)["D2.accuracy"]  # type: ignore[arg-type]
    verdict = recorded(hashes(*FULL)["c2"], None, metric, rating_1to5=3, evidence="This is c3.")
    frame = rated(*FULL, verdicts=[verdict])
    [row] = frame.filter(judge="recorded").to_dicts()
    assert (row["conversation_id"], row["criterion"], row["rating_1to5"]) == ("c2", "accuracy", 3)
    assert row["evidence_verified"] is False  # the quote is another conversation's


def test_people_count_before_the_rule_and_recorded_ratings() -> None:
    given = (("U1", 2), ("U1", 3), ("U5", 1))
    ratings = [human(target, n, line, session_id="s1") for line, (target, n) in enumerate(given, start=2)]
    frame = rated(*FULL, verdicts=[u_said("U1", 4, *FULL)], ratings=ratings)
    u1 = frame.filter(target="U1").sort("rating_1to5").select("judge", "rater", "rating_1to5", "is_effective")
    assert u1.rows() == [("human", "kim", 3, True), ("recorded", "model-a", 4, False)]
    u5 = frame.filter(target="U5").sort("rating_1to5").select("judge", "rating_1to5", "is_effective")
    assert u5.rows() == [("human", 1, True), ("rule", 5, False)]
    assert one_effective(frame)


DIFFERING = [
    human("U1", 2, session_id="s1", rater="ben"),
    human("U1", 4, session_id="s1", line=3, rater="anna"),
]


def test_raters_who_differ_are_both_kept_and_no_judge_takes_their_place() -> None:
    frame = rated(*FULL, verdicts=[u_said("U1", 5, *FULL)], ratings=DIFFERING)
    columns = ("judge", "rater", "status", "rating_1to5", "reason", "is_effective")
    assert sorted(frame.filter(target="U1").select(columns).rows(), key=str) == [
        ("human", "anna", "scored", 4, None, False),
        ("human", "anna, ben", "disputed", None, "anna 4, ben 2", True),
        ("human", "ben", "scored", 2, None, False),
        ("recorded", "model-a", "scored", 5, None, False),
    ]
    assert one_effective(frame)


def test_an_adjudicator_decides_and_the_row_says_so() -> None:
    last = human("U1", 3, session_id="s1", line=4, rater="dora", role="adjudicator")
    frame = rated(*FULL, ratings=[*DIFFERING, last])
    row = frame.filter("is_effective", target="U1").select("rater", "rating_1to5", "decided_by")
    assert row.rows() == [("dora", 3, "adjudicator dora: anna 4, ben 2, dora 3")]
    assert frame.filter(target="U1").height == 3


def test_the_setting_may_decide() -> None:
    frames = [
        rated(*FULL, ratings=DIFFERING, rule=rule).filter("is_effective", target="U1") for rule in RULES
    ]
    assert [frame["rating_1to5"].item() for frame in frames] == [None, 2, 4]
    assert frames[1]["decided_by"].item() == "rule median: anna 4, ben 2"


def test_a_dispute_about_what_cannot_be_rated_is_none() -> None:
    ratings = [row | {"target": "U4"} for row in DIFFERING]
    frame = rated(*FULL[:5], ratings=ratings)  # no injected error
    assert frame.filter(target="U4", is_effective=True)["status"].to_list() == ["missing"]
    assert one_effective(frame)


def test_the_last_rating_by_one_person_counts_whether_it_names_the_session_or_not() -> None:
    place: Row = {"conversation_id": "c2", "criterion": "accuracy"}
    named, unnamed = human("D2", 4, session_id="s1") | place, human("D2", 2) | place
    for first, last in ((named, unnamed), (unnamed, named)):
        frame = rated(*FULL, ratings=[first | {"line": 2}, last | {"line": 3}])
        assert frame.filter(judge="human")["rating_1to5"].to_list() == [last["rating_1to5"]]


def test_what_is_said_to_count_for_nothing_counts_for_nothing() -> None:
    astray = [
        human("D2", 1, conversation_id="c2", criterion="accuracy", session_id="s9"),
        human("D2", 1, conversation_id="c9", criterion="accuracy"),
        human("U1", 1, session_id="s9"),
        human("D2", 1, conversation_id="c3", criterion="accuracy"),
    ]
    held = tables(*FULL)
    fine = [
        human("U1", 4, session_id="s1"),
        human("D2", 4, conversation_id="c2", criterion="accuracy"),
        human("helpfulness", 4, conversation_id="e", turn_index=0, session_id="s1"),
    ]
    found = orphan_ratings(humans(*astray, *fine), held.conversations.frame(), held.turns.frame())
    assert len(found) == len(astray)
    for others in ([], fine):  # nor does a later one push out a valid one
        later = [row | {"line": 3} for row in astray]
        assert rated(*FULL, ratings=[*others, *later]).equals(rated(*FULL, ratings=others))
    row = rated(*FULL, ratings=fine).filter(target="D2", criterion="accuracy")
    assert row.select("judge", "rating_1to5").rows() == [("human", 4)]


def test_without_a_template_the_scenarios_are_not_applicable_and_the_dimensions_are_rated() -> None:
    frame = rated(*FULL, template=None, verdicts=[u_said("U1", 4, *FULL)])
    domain = frame.filter(pl.col("target").str.starts_with("D"))
    assert domain.select("target", "criterion", "status").rows() == [
        (f"D{i}", None, "not_applicable") for i in range(1, 6)
    ]
    assert frame.filter(target="U1")["rating_1to5"].to_list() == [4]


@pytest.mark.parametrize(("template", "n"), [("customer_service_v1", 21), (None, 11)])
def test_without_a_declared_session_everything_is_missing_by_name(template: str | None, n: int) -> None:
    anyone = sessions("s1", versions=["any"])
    frame = rated(*FULL, declared=anyone, template=template)
    assert frame.height == n
    assert frame["session_id"].null_count() == n
    assert reasons(frame, "U1") == {("missing", f"no session declared for {VERSION}")}
    assert one_effective(frame)


def test_a_session_that_does_not_count_says_why() -> None:
    held = tables(*FULL).conversations.frame()
    transcripts = admitted(held, template="customer_service_v1").with_columns(
        is_admitted=pl.lit(False), reason=pl.lit("harness failure: no disk")
    )
    frame = rated(*FULL, transcripts=transcripts)
    assert reasons(frame, "D1") == {("missing", "harness failure: no disk")}


def test_each_version_has_its_own_grid_and_shares_the_answers() -> None:
    frame = rated(*FULL, verdicts=[u_said("U1", 4, *FULL)], versions=["1.2.0", VERSION])
    assert frame.height == 42
    assert frame.filter(target="U1")["rating_1to5"].to_list() == [4, 4]


def test_no_transcripts_no_rows() -> None:
    names = ("transcripts", "conversations", "turns", "sessions", "human_ratings")
    frame = rubric_ratings(*any_table([*(table(n).empty() for n in names), {}, nothing]))
    assert frame.schema == table("rubric_ratings").schema
    assert frame.is_empty()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (human("U1", 4, session_id="s1", agent_id="bob"), "agent bob has no conversations"),
        (human("U1", 4, session_id="s9"), "no session s9"),
        (human("D2", 4, conversation_id="c9", criterion="accuracy"), "no conversation c9"),
        (human("D2", 4, conversation_id="c2", criterion="accuracy", session_id="s9"), "no session s9"),
        (human("D2", 4, conversation_id="c3", criterion="accuracy"), "not in slot D2"),
        (human("helpfulness", 4, conversation_id="c2", turn_index=1), "has 1 turn"),
    ],
)
def test_a_rating_that_points_to_nothing_is_named_with_file_and_line(row: Row, said: str) -> None:
    [text] = orphan_ratings(humans(row), tables(*FULL).conversations.frame(), tables(*FULL).turns.frame())
    assert text.startswith("r.csv:2: ")
    assert said in text
