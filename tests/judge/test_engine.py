"""The judging pass: asked once, given to every version, one answer effective, nothing invented."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.judge.engine import Judged, judge_transcripts
from agent_eval.judge.inputs.rater_rules import RaterRule
from agent_eval.judge.inputs.recorded_verdicts import RecordedVerdict
from agent_eval.judge.judging_pass import effective_answer
from agent_eval.judge.llm.client import Reply
from agent_eval.judge.protocol import Scored, Unscored
from agent_eval.metrics.base import Metric
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE as FAILURE
from agent_eval.metrics.builtin.goal_completion import GOAL_COMPLETION as GOAL
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.builtin.tool_call_behavior_failure import TOOL_CALL_BEHAVIOR_FAILURE as TOOL_FAILURE
from agent_eval.metrics.metric_set import DEFAULT, MetricSet
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation, Message
from tests.judge.fakes import GARBAGE, USAGE, Kept, ScriptedClient, panel_of
from tests.judge.material import (
    Row,
    admitted,
    agent,
    call,
    conversation,
    finding,
    human,
    humans,
    nothing,
    recorded,
    tables,
    user,
)
from tests.untyped import any_table

TALK = conversation(user("Where is A-1?"), agent("It was sent on Monday."), user("Thanks"), agent("Gladly."))
FIRST = sum(metric.applies_when == "always" for metric in DEFAULT.turn)
LATER = FIRST + sum(metric.applies_when == "has_earlier_turns" for metric in DEFAULT.turn)
"""Metrics that are asked on the first turn, and on a later one, of a conversation without tools, policy and truth."""
CALLS = conversation(user("Where?"), call("find", {"id": 1}), call("find", {"id": 1}), agent("Here."))


def judged(
    *conversations: Conversation,
    verdicts: Sequence[Row] = (),
    ratings: Sequence[Row] = (),
    versions: Sequence[str] = ("1.3.0",),
    tests: Mapping[str, list[str]] | None = None,
    client: ScriptedClient | None = None,
    kept: Kept | None = None,
    rule: RaterRule = "adjudicator",
    metrics: MetricSet = DEFAULT,
    at_once: int | None = None,
) -> Judged:
    rows = tables(*conversations)
    held = rows.conversations.frame()
    cache = table("judge_cache").frame(RecordedVerdict.model_validate(v).row() for v in verdicts)
    kept = kept or Kept()
    cache = pl.concat([cache, kept.frame()])
    return judge_transcripts(
        any_table(admitted(held, versions, tests=tests)),
        any_table(held),
        any_table(rows.turns.frame()),
        humans(*ratings),
        finding(cache),
        metrics=metrics,
        panel=panel_of(client, kept=kept) if client else None,
        rater_rule=rule,
        at_once=at_once,
    )


def hash_of(of: Conversation, turn_index: int | None) -> str:
    rows = tables(of)
    if turn_index is None:
        return str(rows.conversations.frame()["content_hash"][0])
    return str(rows.turns.frame()["content_hash"][turn_index])


def said(of: Conversation, turn_index: int | None, metric: Metric, **verdict: object) -> Row:
    return recorded(hash_of(of, turn_index), turn_index, metric, **verdict)


def effective_is_one_of_each(frame: pl.DataFrame, *key: str) -> bool:
    key = ("methodology_version", "agent_id", "conversation_id", "metric", *key)
    return bool((frame.group_by(key).agg(pl.col("is_effective").sum())["is_effective"] == 1).all())


def with_outcome(of: Conversation, correct: bool) -> Conversation:
    return of.model_copy(update={"outcome": of.outcome.model_copy(update={"correct": correct})})


def test_what_nobody_answered_has_one_row_that_says_so() -> None:
    turns = judged(TALK).turn_judgments
    assert turns.height == FIRST + LATER  # the second turn is asked for knowledge_retention too
    assert set(turns.select("judge", "status", "unscored_reason", "is_effective").rows()) == {
        ("rule", "not_applicable", "needs a judge model", True)
    }
    assert turns["rating_1to5"].null_count() == turns.height


def test_a_recorded_verdict_is_found_by_content_and_lost_by_an_edit() -> None:
    verdict = said(TALK, 1, HELPFULNESS, rating_1to5=2, evidence="Gladly")
    [row] = judged(TALK, verdicts=[verdict]).turn_judgments.filter(judge="recorded").to_dicts()
    assert (row["turn_index"], row["rating_1to5"], row["judge_model"]) == (1, 2, "model-a")
    assert (row["evidence_verified"], row["is_effective"]) == (True, True)
    edited = conversation(user("Where is A-2?"), agent("It was sent."), user("Thanks"), agent("Gladly."))
    assert judged(edited, verdicts=[verdict]).turn_judgments.filter(judge="recorded").is_empty()


EDITED = conversation(user("Where is A-1?"), agent("It was sent on Monday."), user("Thanks"), agent("Bye."))


def test_an_edit_of_a_later_turn_keeps_the_verdicts_before_it() -> None:
    verdicts = [said(TALK, i, HELPFULNESS, rating_1to5=3) for i in (0, 1)]
    found = judged(EDITED, verdicts=verdicts).turn_judgments.filter(judge="recorded")
    assert found["turn_index"].to_list() == [0]


def test_a_quote_that_is_not_in_the_transcript_is_flagged_and_still_counts() -> None:
    verdict = said(TALK, 0, HELPFULNESS, rating_1to5=2, evidence="Gladly")  # said only later
    [row] = judged(TALK, verdicts=[verdict]).turn_judgments.filter(judge="recorded").to_dicts()
    assert (row["evidence_verified"], row["status"], row["is_effective"]) == (False, "scored", True)


def test_every_version_gets_the_rows_of_one_judgment() -> None:
    scripted = ScriptedClient()
    found = judged(TALK, versions=["1.0.0", "1.3.0"], client=scripted)
    assert len(scripted.asked) == 2  # two turns, the whole with the second
    parts = found.turn_judgments.partition_by("methodology_version", include_key=False)
    assert len(parts) == 2
    assert parts[0].equals(parts[1])


def test_conversations_that_are_judged_part_by_part_get_the_same_rows() -> None:
    held = enumerate([TALK, CALLS, CALLS])
    several = [of.model_copy(update={"conversation_id": f"c{i}"}) for i, of in held]
    ratings = [human("helpfulness", 2, conversation_id="c2", turn_index=0)]
    options = {"versions": ["1.0.0", "1.3.0"], "ratings": ratings, "tests": {"c2": ["hallucination"]}}
    whole, parted = (judged(*several, at_once=n, **options) for n in (None, 1))  # type: ignore[arg-type]
    for name, frame in vars(whole).items():
        key = list(table(name).key)
        assert_frame_equal(getattr(parted, name).sort(key), frame.sort(key))


def test_conversations_that_are_not_admitted_are_not_judged() -> None:
    rows = tables(TALK)
    held = rows.conversations.frame()
    transcripts = admitted(held).with_columns(is_admitted=pl.lit(False))
    found = judge_transcripts(*any_table([transcripts, held, rows.turns.frame(), humans(), nothing]))
    assert found.turn_judgments.is_empty()
    assert found.conversation_judgments.is_empty()


def test_empty_frames_give_empty_tables() -> None:
    empty = [table(n).empty() for n in ("transcripts", "conversations", "turns", "human_ratings")]
    found = judge_transcripts(*any_table([*empty, nothing]))
    assert found.turn_judgments.schema == table("turn_judgments").schema
    assert found.conversation_judgments.is_empty()


def test_people_count_before_rules_and_rules_before_recorded_verdicts() -> None:
    of = with_outcome(CALLS, correct=True)
    verdicts = [said(of, None, GOAL, value=0), said(of, 0, HELPFULNESS, rating_1to5=2)]
    rating = human("helpfulness", 5, conversation_id="c1", turn_index=0, evidence="Here.", rationale="good")
    found = judged(of, verdicts=verdicts, ratings=[rating])
    whole = found.conversation_judgments.filter(metric="goal_completion")
    goal = whole.select("judge", "value", "is_effective").rows()
    assert sorted(goal) == [("recorded", 0.0, False), ("rule", 1.0, True)]
    helpful = found.turn_judgments.filter(metric="helpfulness").sort("judge").to_dicts()
    answers = [(r["judge"], r["rating_1to5"], r["is_effective"]) for r in helpful]
    assert answers == [("human", 5, True), ("recorded", 2, False)]
    assert (helpful[0]["judge_model"], helpful[0]["evidence_verified"]) == ("kim", True)
    assert helpful[0]["question_key"] == helpful[1]["question_key"]
    assert effective_is_one_of_each(found.turn_judgments, "turn_index")


def test_a_human_rating_takes_the_place_of_nobodys() -> None:
    rating = human("helpfulness", 1, conversation_id="c1", turn_index=1)
    turns = judged(TALK, ratings=[rating]).turn_judgments
    row = turns.filter(metric="helpfulness", turn_index=1)
    assert row.select("judge", "rating_1to5").rows() == [("human", 1)]
    assert effective_is_one_of_each(turns, "turn_index")


def test_a_label_by_a_judge_of_another_tool_is_beside_ours_and_changes_nothing() -> None:
    label = human("helpfulness", 1, conversation_id="c1", turn_index=1, rater="import:gpt", role="judge")
    alone, beside = (judged(TALK, ratings=ratings).turn_judgments for ratings in ((), [label]))
    is_foreign = pl.col("judge") == "import:gpt"
    assert_frame_equal(beside.filter(~is_foreign), alone)
    found = beside.filter(is_foreign).select("metric", "turn_index", "rating_1to5", "is_effective")
    assert found.rows() == [("helpfulness", 1, 1, False)]


def valued(target: str, value: float | None = None, label: str | None = None, **row: object) -> Row:
    """A rating by a person that is no number from 1 to 5."""
    further = None if label is None else list[str]()
    given = {"rating_1to5": None, "value": value, "label": label, "further_labels": further}
    return human(target, 0, conversation_id="c1") | given | row


def test_people_may_rate_everything_that_is_judged() -> None:
    of = conversation(
        user("Where?"), call("find", {"id": 7}), agent("Here."),
        expected=[{"turn_index": 0, "answer": "There."}], outcome={"correct": True},
    )  # fmt: skip
    ratings = [
        valued("goal_completion", 0.0, evidence="Here."),
        valued("answer_correctness", 0.25, turn_index=0),
        valued("tool_result_utilisation", 0.0, turn_index=0),
        valued("agent_behavior_failure", label="repetition", turn_index=0),
        valued("tool_call_behavior_failure", label="wrong tool", turn_index=0)
        | {"further_labels": ["wrong arguments"]},
    ]
    found = judged(of, ratings=ratings)
    goal = found.conversation_judgments.filter(metric="goal_completion").sort("judge")
    assert goal.select("judge", "value", "is_effective", "evidence_verified").rows() == [
        ("human", 0.0, True, True),
        ("rule", 1.0, False, None),
    ]
    people = found.turn_judgments.filter(judge="human").sort("metric")
    assert people.select("metric", "value", "label", "further_labels", "is_effective").rows() == [
        ("agent_behavior_failure", None, "repetition", [], True),
        ("answer_correctness", 0.25, None, None, True),
        ("tool_call_behavior_failure", None, "wrong tool", ["wrong arguments"], True),
        ("tool_result_utilisation", 0.0, None, None, True),
    ]
    assert people["question_key"].null_count() == 0
    assert effective_is_one_of_each(found.turn_judgments, "turn_index")
    assert effective_is_one_of_each(found.conversation_judgments)


def test_raters_who_differ_on_a_turn_are_both_kept_and_nothing_is_scored() -> None:
    ratings = [
        human("helpfulness", 5, conversation_id="c1", turn_index=0, rater="ben"),
        human("helpfulness", 2, conversation_id="c1", turn_index=0, rater="anna", line=3),
    ]
    verdict = said(TALK, 0, HELPFULNESS, rating_1to5=3)
    turns = judged(TALK, verdicts=[verdict], ratings=ratings).turn_judgments
    rows = turns.filter(metric="helpfulness", turn_index=0)
    columns = ("judge", "judge_model", "status", "rating_1to5", "unscored_reason", "is_effective")
    assert sorted(rows.select(columns).rows(), key=str) == [
        ("human", "anna", "scored", 2, None, False),
        ("human", "anna, ben", "disputed", None, "anna 2, ben 5", True),
        ("human", "ben", "scored", 5, None, False),
        ("recorded", "model-a", "scored", 3, None, False),
    ]
    assert effective_is_one_of_each(turns, "turn_index")
    decided = judged(TALK, ratings=ratings, rule="latest").turn_judgments
    decided = decided.filter("is_effective", judge="human")
    assert decided.select("rating_1to5", "decided_by").rows() == [(2, "rule latest: anna 2, ben 5")]


HALLUCINATION = {"c1": ["hallucination"]}
FALSE = "false information"


def hallucination_row(of: Conversation, *ratings: Row, verdicts: Sequence[Row] = ()) -> Row:
    """The row of the hallucination test that counts."""
    found = judged(of, ratings=ratings, verdicts=verdicts, tests=HALLUCINATION).conversation_judgments
    [row] = found.filter("is_effective", metric="hallucination_passed").to_dicts()
    return row


def test_a_person_decides_the_hallucination_test_before_a_declared_outcome() -> None:
    for correct, value in ((False, 0.0), (True, 1.0)):
        of = with_outcome(TALK, correct)
        row = hallucination_row(of)
        assert (row["judge"], row["status"], row["value"]) == ("rule", "scored", value)
    row = hallucination_row(of, valued("hallucination_passed", 0.0))
    assert (row["judge"], row["value"], row["judge_model"]) == ("human", 0.0, "kim")
    by_both = valued("hallucination_passed", 0.0), valued("hallucination_passed", 1.0, rater="lee")
    row = hallucination_row(of, *by_both)
    assert (row["status"], row["unscored_reason"]) == ("disputed", "kim 0, lee 1")


def test_peoples_labels_decide_the_hallucination_test_where_judges_said_otherwise() -> None:
    invented = [said(TALK, 0, FAILURE, label=FALSE), said(TALK, 1, FAILURE, label="no failure")]
    assert hallucination_row(TALK, verdicts=invented)["value"] == 0.0
    fine = valued("agent_behavior_failure", label="no failure", turn_index=0)
    assert hallucination_row(TALK, fine, verdicts=invented)["value"] == 1.0
    worse = valued("agent_behavior_failure", label=FALSE, turn_index=1)
    row = hallucination_row(TALK, fine, worse | {"line": 3}, verdicts=invented)
    assert row["value"] == 0.0
    assert "turn 1 (human)" in str(row["rationale"])
    differing = [fine, fine | {"label": FALSE, "rater": "lee"}]
    row = hallucination_row(TALK, *differing, verdicts=invented)
    assert row["status"] == "not_applicable"
    assert row["unscored_reason"] == "people differ on the failures of a turn"


PLACE: Row = {"conversation_id": "c1", "turn_index": 0}


@pytest.mark.parametrize(
    "place",
    [
        {"conversation_id": "c9"},
        {"turn_index": 9},
        {"methodology_version": "1.0.0"},
        {"agent_id": "bob"},
        {"session_id": "s9"},
    ],
)
def test_a_human_rating_that_points_elsewhere_changes_nothing(place: Row) -> None:
    """Neither where nobody rated, nor beside an earlier rating of the turn."""
    valid, astray = human("helpfulness", 4) | PLACE, human("helpfulness", 1, line=3) | PLACE | place
    for before in ([], [valid]):
        with_it, without = (judged(TALK, ratings=ratings) for ratings in ([*before, astray], before))
        assert with_it.turn_judgments.equals(without.turn_judgments)


def test_a_rules_label_takes_the_other_failures_of_the_next_judge_with_it() -> None:
    verdict = said(CALLS, 0, TOOL_FAILURE, label="wrong arguments", further_labels=["repeated tool call"])
    rows = judged(CALLS, verdicts=[verdict]).turn_judgments.filter(metric=TOOL_FAILURE.name).sort("judge")
    assert rows.select("judge", "label", "further_labels", "is_effective").rows() == [
        ("recorded", "wrong arguments", ["repeated tool call"], False),
        ("rule", "wrong arguments", ["repeated tool call"], True),  # the most severe one is the main label
    ]


def test_a_model_is_asked_for_what_rules_leave_open_and_it_has_not_answered_before() -> None:
    of = with_outcome(CALLS, correct=True)
    first, second, kept = ScriptedClient(), ScriptedClient(), Kept()
    once = judged(of, client=first, kept=kept)
    names, *_ = first.names_asked  # the goal is declared
    assert "goal_completion" not in names
    assert TOOL_FAILURE.name in names  # the rule saw one failure and not the others
    again = judged(of, client=second, kept=kept)
    assert second.asked == []
    assert again.turn_judgments.equals(once.turn_judgments)


@pytest.mark.parametrize(
    ("always", "rating", "effective"),
    [(None, 4, "scripted"), (GARBAGE, None, "recorded")],
    ids=["given", "lost"],
)
def test_what_another_judge_answered_before_yields_to_the_model_unless_its_answer_is_lost(
    always: Reply | None, rating: int | None, effective: str
) -> None:
    verdict = said(TALK, 0, HELPFULNESS, rating_1to5=2)
    rows = judged(TALK, verdicts=[verdict], client=ScriptedClient(always=always)).turn_judgments
    both = rows.filter(metric="helpfulness", turn_index=0).sort("judge")
    assert both.select("judge", "rating_1to5").rows() == [("recorded", 2), ("scripted", rating)]
    assert both.filter("is_effective")["judge"].to_list() == [effective]


def test_a_lost_answer_is_unscored_and_never_a_number() -> None:
    broken = ScriptedClient(always=GARBAGE)
    [row] = judged(TALK, client=broken).turn_judgments.filter(metric="helpfulness", turn_index=0).to_dicts()
    assert (row["judge"], row["status"], row["unscored_reason"]) == ("scripted", "unscored", "parse_failure")
    assert (row["rating_1to5"], row["is_effective"]) == (None, True)
    assert row["n_tokens_in"] > 0  # it was paid all the same
    lost, given = Unscored("judge_error", "down"), Scored("fine", rating_1to5=4)
    assert effective_answer([("a", lost), ("b", given)]) == 1


def test_the_hallucination_test_is_judged_only_where_it_was_held() -> None:
    names = ["goal_completion", "plan_adherence", "step_efficiency"]
    assert judged(TALK).conversation_judgments["metric"].to_list() == names


@pytest.mark.parametrize(
    ("labels", "value"),
    [
        ([], None),
        (["no failure"], None),
        (["no failure", "repetition"], 1.0),
        ([f"repetition; {FALSE}"], 0.0),
    ],
)
def test_the_hallucination_test_is_judged_when_every_turn_is_or_one_has_false_information(
    labels: list[str], value: float | None
) -> None:
    several = [text.split("; ") for text in labels]
    verdicts = [
        said(TALK, i, FAILURE, label=one, further_labels=more) for i, (one, *more) in enumerate(several)
    ]
    row = hallucination_row(TALK, verdicts=verdicts)
    status = "not_applicable" if value is None else "scored"
    assert (row["judge"], row["status"], row["value"]) == ("rule", status, value)


def test_what_a_rule_found_says_nothing_of_false_information() -> None:
    of = conversation(user("Tidy up"), call("delete_files", {"path": "/x"}), agent("Done."))
    assert judged(of).turn_judgments.filter(metric=FAILURE.name)["label"].to_list() == ["unsafe action"]
    assert hallucination_row(of)["value"] is None


def test_turns_are_judged_in_order_without_what_comes_after_and_the_goal_with_the_last() -> None:
    scripted = ScriptedClient()
    judged(TALK, client=scripted)
    assert [len(prompt.turns) for prompt in scripted.asked] == [1, 2]
    assert ["goal_completion" in names for names in scripted.names_asked] == [False, True]


def test_the_pass_runs_where_a_loop_is_running_already() -> None:
    async def notebook() -> Judged:
        return judged(TALK)

    assert asyncio.run(notebook()).turn_judgments.height == FIRST + LATER


def test_row_order_of_the_input_does_not_matter() -> None:
    rows = tables(TALK, TALK.model_copy(update={"conversation_id": "c2"}))
    held = rows.conversations.frame()
    frames = (admitted(held), held, rows.turns.frame())
    one, other = (
        judge_transcripts(*any_table([*given, humans(), nothing])).turn_judgments
        for given in (frames, tuple(frame.reverse() for frame in frames))
    )
    key = ["methodology_version", "conversation_id", "turn_index", "metric", "judge"]
    assert one.sort(key).equals(other.sort(key))


def test_two_thousand_turns_under_four_versions_take_seconds_at_most() -> None:
    parts = [part for i in range(10) for part in (user(f"Question {i}"), agent(f"Answer {i}, as you asked."))]
    many = [conversation(*parts, conversation_id=f"c{i}") for i in range(200)]
    begun = time.process_time()
    found = judged(*many, versions=["1.0.0", "1.1.0", "1.2.0", "1.3.0"])
    assert found.turn_judgments.height == 200 * (10 * LATER - 1) * 4
    assert time.process_time() - begun < 5


def test_a_not_applicable_of_a_rule_is_an_answer() -> None:
    expected = [{"turn_index": 0, "results_should_be_used": False}]
    of = CALLS.model_copy(update={"expected": conversation(user("x"), expected=expected).expected})
    scripted = ScriptedClient()
    row = judged(of, client=scripted).turn_judgments.filter(metric="tool_result_utilisation")
    assert row["unscored_reason"].to_list() == ["declared: the results need not reach the answer"]
    assert "tool_result_utilisation" not in scripted.names_asked[0]


def test_equal_questions_of_several_conversations_are_asked_once() -> None:
    twin = TALK.model_copy(update={"conversation_id": "c2"})
    longer = EDITED.model_copy(update={"conversation_id": "c3"})
    scripted = ScriptedClient()
    found = judged(TALK, twin, longer, client=scripted)
    assert len(scripted.asked) == 3  # two turns, and the one that only the third has
    assert found.turn_judgments.filter(judge="scripted").height == 3 * (FIRST + LATER)


def test_what_calls_cost_adds_up_over_their_rows() -> None:
    scripted = ScriptedClient()
    found = judged(TALK, client=scripted)
    rows = pl.concat([found.turn_judgments.drop("turn_index"), found.conversation_judgments])
    sums = rows.select("cost_usd", "n_tokens_in", "n_tokens_out", "n_tokens_cached").sum().row(0)
    assert sums == (pytest.approx(0.02), 200, 40, 120)  # two calls of 0.01, 100, 20 and 60


def test_an_edited_last_turn_asks_that_turn_and_the_whole_again() -> None:
    kept, scripted = Kept(), ScriptedClient()
    judged(TALK, client=ScriptedClient(), kept=kept)
    judged(EDITED, client=scripted, kept=kept)
    assert [len(prompt.turns) for prompt in scripted.asked] == [2]
    assert scripted.names_asked[0] >= {"helpfulness", "goal_completion"}


def test_an_edited_metric_asks_that_metric_again_and_no_other() -> None:
    kept = Kept()
    own = Metric("tone", "turn", "rating", "Is it polite?", {"5": "yes", "1": "no"})
    rows = tables(TALK)
    held = rows.conversations.frame()

    def ask(metric: Metric) -> ScriptedClient:
        client = ScriptedClient()
        judge_transcripts(
            *any_table((admitted(held), held, rows.turns.frame(), humans(), finding(kept.frame()))),
            metrics=DEFAULT.with_custom([metric]),
            panel=panel_of(client, kept=kept),
        )
        return client

    assert len(ask(own).asked) == 2
    assert ask(own).asked == []
    assert ask(replace(own, question="Is it rude?")).names_asked == [{"tone"}, {"tone"}]


WITH_POLICY = conversation(
    [Message(role="system", content="Ask before you cancel.")], user("Cancel it."), agent("Cancelled.")
)


def test_a_broken_rule_of_the_policy_is_a_label_of_the_turns_behaviour() -> None:
    client = ScriptedClient(answers={"policy_adherence": ["broken", "kept"]})
    rows = judged(WITH_POLICY, client=client).turn_judgments.filter("is_effective")
    [adherence] = rows.filter(metric="policy_adherence").to_dicts()
    assert (adherence["status"], adherence["value"]) == ("scored", 0.5)
    [behaviour] = rows.filter(metric="agent_behavior_failure").to_dicts()
    assert (behaviour["label"], behaviour["further_labels"]) == ("policy violation", [])
    assert "broken (low): x" in behaviour["rationale"]
    kept = judged(WITH_POLICY, client=ScriptedClient()).turn_judgments
    assert kept.filter(metric="agent_behavior_failure")["label"].to_list() == ["no failure"]


def test_an_unsupported_claim_is_a_label_beside_a_broken_rule() -> None:
    answers = {"policy_adherence": ["broken"], "faithfulness": ["supported", "unsupported"]}
    kept = Kept()
    for client in (ScriptedClient(answers=answers), None):  # asked, and then from the store
        asked = judged(WITH_POLICY, client=client or ScriptedClient(), kept=kept)
        rows = asked.turn_judgments.filter("is_effective")
        assert rows.filter(metric="faithfulness")["rating_1to5"].to_list() == [4]
        [behaviour] = rows.filter(metric="agent_behavior_failure").to_dicts()
        assert behaviour["label"] == "policy violation"
        assert behaviour["further_labels"] == ["unsupported claim"]
    contradicted = ScriptedClient(answers={"faithfulness": ["contradicted"]})
    rows = judged(WITH_POLICY, client=contradicted).turn_judgments.filter("is_effective")
    assert rows.filter(metric="agent_behavior_failure")["label"].to_list() == ["no failure"]
    unknown = judged(TALK, client=ScriptedClient()).turn_judgments
    assert unknown.filter(metric="policy_adherence").is_empty()


def test_that_a_judge_cannot_tell_is_an_answer_that_is_kept_and_no_number() -> None:
    reply = json.dumps({"verbosity": {"evidence": None, "reason": "The log is cut.", "score": None}})
    metrics = DEFAULT.only(["verbosity"])
    kept = Kept()
    client = ScriptedClient(always=Reply(reply, USAGE))
    first = judged(TALK, metrics=metrics, client=client, kept=kept).turn_judgments
    assert set(first.select("status", "unscored_reason", "rationale", "rating_1to5").rows()) == {
        ("unscored", "cannot_tell", "The log is cut.", None)
    }
    again = ScriptedClient()
    second = judged(TALK, metrics=metrics, client=again, kept=kept).turn_judgments
    assert again.asked == []
    assert second.equals(first)
