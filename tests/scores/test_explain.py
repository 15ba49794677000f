"""From a number down to the sentence, the rubric and the turn."""

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from agent_eval.errors import NotFoundError
from agent_eval.methodology.models import DIMENSIONS, SCENARIOS
from agent_eval.scores.composite.domain import domain_scores
from agent_eval.scores.composite.universal import universal_scores
from agent_eval.scores.explain import (
    Node,
    _judgments,
    explain,
    explain_turn,
    to_rows,
)
from agent_eval.tables import table
from tests.scores.builders import (
    CRITERIA,
    METHODOLOGIES,
    compose,
    frames,
    judgment,
    rating,
    ratings,
    session,
    transcripts,
    unrated,
)


def turn(conversation: str) -> dict[str, Any]:
    said = {"user_message": f"Question of {conversation}", "agent_message": f"Answer of {conversation}"}
    return {"agent_id": "lumen", "conversation_id": conversation, "turn_index": 0, "n_tool_calls": 2, **said}


def explained(score: str = "composite", *, version: str = "1.3.0", agent: str = "lumen", **rows: Any) -> Node:
    held = rows.get("held", transcripts())
    rated = {
        "turn_index": 0,
        "status": "scored",
        "rating_1to5": 5,
        "rationale": "It helps.",
        "evidence": "Answer",
    }
    answers = [
        judgment("a-D1", "helpfulness", None, **rated),
        judgment("a-D1", "agent_behavior_failure", None, turn_index=0),
    ]
    judged = [
        judgment("a-hallucination", "hallucination_passed", 1.0, rationale="It declined."),
        judgment("a-D1", "goal_completion", 1.0, rationale="The goal was reached."),
    ]
    made: dict[str, Any] = frames(**({"judged": judged} | rows))
    names = ("rubric_ratings", "transcripts", "conversation_judgments")
    return explain(
        agent,
        version,
        score,
        composite_scores=compose(made),
        universal_scores=universal_scores(made["rubric_ratings"], METHODOLOGIES),
        domain_scores=domain_scores(made["rubric_ratings"], made["transcripts"], METHODOLOGIES),
        turn_judgments=table("turn_judgments").frame(answers),
        turns=table("turns").frame(turn(r["conversation_id"]) for r in held),
        methodology=METHODOLOGIES["1.3.0"],
        **{name: made[name] for name in names},
    )


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def only(node: Node, start: str) -> Node:
    found = [n for n in walk(node) if n.title.startswith(start)]
    assert len(found) == 1, [n.title for n in found]
    return found[0]


def test_the_composite_shows_its_formula_with_exact_numbers() -> None:
    root = explained()
    assert root.title == "lumen under 1.3.0: composite 70.0, published"
    assert "0.40 × 80 + 0.60 × 80 = 80" in root.detail
    assert "penalty: 80 − 10 = 70" in root.detail
    assert [child.title for child in root.children] == ["U universal: 80.0", "D domain: 80.0"]


def test_numbers_that_are_no_integers_are_shown_as_fractions_and_rounded_once() -> None:
    # ΣU = 23, ΣD = 58: 0.40 × 230/3 + 0.60 × 232/3 = 1156/15 ≈ 77.1
    rated = ratings((4, 4, 4, 4, 4, 3), [(4, 4, 4)] * 4 + [(4, 3, 3)])
    root = explained(rated=rated)
    assert "0.40 × 230/3 + 0.60 × 232/3 = 1156/15 ≈ 77.1" in root.detail
    assert "(4 + 4 + 4 + 4 + 4 + 3) / 30 × 100 = 230/3 ≈ 76.7" in only(root, "U universal").detail
    assert "(80 + 80 + 80 + 80 + 200/3) / 5 = 232/3 ≈ 77.3" in only(root, "D domain").detail
    assert "(4 + 3 + 3) / 15 × 100 = 200/3 ≈ 66.7" in only(root, "D5 ").detail


def test_the_composite_names_the_runs_that_do_not_count() -> None:
    old = transcripts(session="old", benchmark_id="old", superseded_by="run", is_admitted=False)
    declared = [session(session_date=date(2026, 4, 14)), session("old", benchmark_id="old")]
    root = explained(held=[*transcripts(), *old], declared=declared)
    said = "run old is superseded by run, because no session of the former has a date"
    assert f"note: {said}" in root.detail
    assert said in str(to_rows(root))


def test_the_composite_opens_down_to_every_dimension_and_criterion() -> None:
    titles = [n.title for n in walk(explained())]
    for dimension in DIMENSIONS:
        assert f"{dimension} Name of {dimension}: 4" in titles
    for scenario in SCENARIOS:
        assert f"{scenario} Name of {scenario}: 80.0" in titles
        assert all(f"{scenario}.{criterion}: 4" in titles for criterion in CRITERIA)


def test_a_rating_shows_words_evidence_rater_question_and_its_own_anchor() -> None:
    row = rating(
        "U1", 3, rationale="Half was done.", evidence="I did half", evidence_verified=False, judge="model",
        rater="some-model", question_key="q1", prompt_hash="p1", rated_at="2026-04-14",
    )  # fmt: skip
    rated = [r for r in ratings() if r["target"] != "U1"] + [row]
    found = only(explained("U1", rated=rated), "rating")
    assert found.title == "rating 3 by model (some-model), session a"
    assert found.detail == (
        "rationale: Half was done.",
        "evidence: “I did half” (not found in the transcript)",
        "anchor 3: words for 3",
        "rated at: 2026-04-14T00:00:00Z",
        "question key: q1",
        "prompt hash: p1",
    )


def test_a_criterion_opens_down_to_the_turns_with_the_judges_words() -> None:
    conversation = only(explained("D1").children[0], "conversation")
    assert conversation.title == "conversation a-D1, D1"
    assert conversation.detail == ("goal_completion 1 (recorded): The goal was reached.",)
    [turn] = conversation.children
    assert (turn.title, turn.children) == ("turn 0", ())
    assert turn.detail == (
        "user: Question of a-D1",
        "agent: Answer of a-D1",
        "tool calls: 2",
        "agent_behavior_failure unscored (recorded): parse_failure",
        "helpfulness 5 (recorded): It helps. “Answer”",
    )


def test_a_session_rating_opens_all_conversations_and_one_with_a_needed_test_only_those() -> None:
    def conversations(score: str) -> list[str]:
        return [n.title for n in walk(explained(score)) if n.title.startswith("conversation")]

    assert len(conversations("U1")) == 8
    assert conversations("U4") == ["conversation a-error_injection, error_injection"]


def test_missing_parts_stand_there_with_their_reason() -> None:
    rated = ratings((4, 4, 4, None, 4, 4), [(4, None, 4), *[(4, 4, 4)] * 4])
    root = explained(rated=rated)
    assert root.title == "lumen under 1.3.0: composite missing, incomplete"
    assert "0.40 × ? + 0.60 × ?: cannot be computed" in root.detail
    assert "missing: U4: not rated" in root.detail
    assert only(root, "U4 Name").title == "U4 Name of U4: missing"
    assert only(root, "U4 Name").children[0].title == "missing in session a: not rated"
    assert "(4 + ? + 4) / 15 × 100: cannot be computed" in only(root, "D1 Name").detail
    assert only(root, "D1.completeness").title == "D1.completeness: missing"


def test_undisclosed_repeatability_is_said() -> None:
    root = explained(declared=[session(repeatability_tested=None)])
    assert "penalty: unknown, since repeatability_tested is not disclosed" in root.detail
    assert "missing: repeatability_tested: not disclosed" in root.detail


def test_an_undeclared_agent_names_every_part_and_shows_its_turns_though_no_score_rests_on_them() -> None:
    declared = [session(methodology_versions=["any"])]
    root = explained(rated=unrated(), held=transcripts([None]), declared=declared, judged=[])
    reasons = [n.title for n in walk(root) if n.title == "missing: no session is declared for this version"]
    assert len(reasons) == 6 + 15
    shown = only(root, "1 without a slot")
    assert [n.title for n in walk(shown)][2] == "turn 0"
    assert not [n for n in walk(explained()) if "without a slot" in n.title]


def test_without_a_template_the_scenarios_say_so() -> None:
    none = [rating(d, None, status="not_applicable", reason="no template") for d in SCENARIOS]
    rated = [r for r in ratings() if r["target"] in DIMENSIONS] + none
    root = explained("D", rated=rated, held=transcripts(template=None))
    assert [child.title for child in root.children] == [f"{d}: missing" for d in SCENARIOS]
    assert root.children[0].children[0].title == "not_applicable in session a: no template"


def test_sessions_and_conversations_show_how_they_were_averaged() -> None:
    rated = [r for s, u1 in (("a", 5), ("b", 4)) for r in ratings((u1, 4, 4, 4, 4, 4), session_id=s)]
    second = dict(zip(CRITERIA, (5, 4, 4), strict=True))
    rated += [rating("D1", v, criterion=c, conversation_id="a-D1-second") for c, v in second.items()]
    held = [*transcripts(), *transcripts(session="b")]
    root = explained(rated=rated, held=held, declared=[session(), session("b")])
    assert only(root, "U1 Name").title == "U1 Name of U1: 9/2"
    assert "session a: 5; session b: 4; mean 9/2" in only(root, "U1 Name").detail
    # (4 + 5) / 2 = 9/2 in session a, 4 in session b: 17/4
    assert "session a: (4 + 5) / 2 = 9/2; session b: 4; mean 17/4" in only(root, "D1.accuracy").detail


def test_ratings_that_do_not_count_are_named() -> None:
    other = rating("U2", 1, judge="model", rater="model", is_effective=False)
    assert "not counted: 1 by model" in explained("U2", rated=[*ratings(), other]).detail


def test_rows_of_other_agents_and_versions_are_left_out() -> None:
    others = ratings((1,) * 6, agent_id="other") + ratings((1,) * 6, methodology_version="1.2.0")
    assert explained("U", rated=[*ratings(), *others]).title == "U universal: 80.0"


def test_an_unknown_score_names_what_is_allowed() -> None:
    with pytest.raises(NotFoundError, match=r"'U7' is not a score\. Allowed: composite, U, D, U1, .*D5"):
        explained("U7")


@pytest.mark.parametrize(("agent", "version"), [("nobody", "1.3.0"), ("lumen", "1.2.0")])
def test_an_agent_without_scores_is_an_error_that_names_it(agent: str, version: str) -> None:
    with pytest.raises(NotFoundError, match=f"{agent!r} has no scores"):
        explained(agent=agent, version=version)


def test_rows_follow_the_tree_top_down() -> None:
    rows = to_rows(Node("a", ("one", "two"), (Node("b", (), (Node("c"),)), Node("d"))))
    assert rows == [
        {"depth": 0, "path": "a", "title": "a", "detail": "one\ntwo"},
        {"depth": 1, "path": "a > b", "title": "b", "detail": ""},
        {"depth": 2, "path": "a > b > c", "title": "c", "detail": ""},
        {"depth": 1, "path": "a > d", "title": "d", "detail": ""},
    ]
    assert len(to_rows(explained())) == len(list(walk(explained())))


def test_a_part_that_people_differ_on_shows_who_said_what() -> None:
    by = {"judge": "human", "is_effective": False}
    rated = [
        *(r for r in ratings() if r["target"] != "U3"),
        rating("U3", 4, rater="anna", **by),
        rating("U3", 2, rater="ben", **by),
        rating("U3", None, judge="human", rater="anna, ben", status="disputed", reason="anna 4, ben 2"),
    ]
    node = only(explained("U3", rated=rated), "U3")
    assert node.title.endswith(": missing")
    assert {"not counted: 4 by human (anna)", "not counted: 2 by human (ben)"} <= set(node.detail)
    assert [child.title for child in node.children] == ["disputed in session a: anna 4, ben 2"]
    assert "missing: U3: disputed (anna 4, ben 2)" in explained(rated=rated).detail


def test_a_decided_part_says_who_decided() -> None:
    decided = "adjudicator dora: anna 4, ben 2, dora 3"
    rest = [r for r in ratings() if r["target"] != "U3"]
    by_dora = rating("U3", 3, judge="human", rater="dora", decided_by=decided)
    assert f"decided by: {decided}" in only(explained("U3", rated=[*rest, by_dora]), "rating 3").detail


def test_a_turn_shows_the_message_that_a_failure_cites_with_the_quote_marked() -> None:
    place = {"methodology_version": "1.3.0", "agent_id": "a", "conversation_id": "c"}
    said = [
        {"role": "user", "content": "Snow?"},
        {"role": "assistant", "name": "Planner", "content": "I ask.\nIt rains."},
    ]
    call = {"role": "assistant", "tool_calls": [{"name": "look", "arguments": {"city": "Oslo"}}]}
    turns = [
        {"turn_index": 0, "messages": json.dumps(said)},
        {"turn_index": 1, "messages": json.dumps([call])},
    ]
    failure = {
        "metric": "agent_behavior_failure",
        "judge": "m",
        "status": "scored",
        "is_effective": True,
    } | place
    failure |= {"rationale": "why", "cause": "A guess.", "should_have": "Look it up."}
    judged = [
        {"turn_index": 0, "label": "false information", "evidence": "ask. It", "message_index": 1, "speaker": "Planner"},
        {"turn_index": 1, "label": "repetition", "evidence": '{"city": "Oslo"}', "message_index": 2, "speaker": "assistant"},
        {"turn_index": 1, "metric": "helpfulness", "rating_1to5": 3, "evidence": "ask", "message_index": 1, "speaker": "Planner"},
    ]  # fmt: skip
    root = explain_turn(
        "a", "1.3.0", "c",
        transcripts=table("transcripts").frame([place | {"is_admitted": True}]),
        turn_judgments=table("turn_judgments").frame(failure | row for row in judged),
        conversation_judgments=table("conversation_judgments").empty(),
        turns=table("turns").frame(place | row | {"n_tool_calls": 0} for row in turns),
        methodology=METHODOLOGIES["1.3.0"],
    )  # fmt: skip
    cited = [[child.title for child in turn.children] for turn in root.children]
    assert cited == [
        ["message 1 by Planner: I »ask. It« rains."], ['message 2 by assistant: look(»{"city": "Oslo"}«)'],
    ]  # fmt: skip
    line = root.children[0].detail[-1]
    assert "in message 1 by Planner Cause: A guess. A good agent would have done: Look it up." in line


def test_metrics_that_no_judge_was_asked_share_a_line_which_an_answer_leaves() -> None:
    row = dict.fromkeys(table("turn_judgments").schema) | {"judge": "rule", "status": "not_applicable"}
    waits = row | {"unscored_reason": "needs a judge model"}
    answer = row | {
        "metric": "relevance",
        "judge": "ada",
        "status": "scored",
        "rating_1to5": 4,
        "rationale": "Fine.",
    }
    lines = _judgments(
        [waits | {"metric": name} for name in ("coherence", "relevance", "verbosity")] + [answer]
    )
    assert lines == ("relevance 4 (ada): Fine.", "not asked (needs a judge model): coherence, verbosity")
