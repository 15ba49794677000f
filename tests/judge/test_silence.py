"""Silence is a failure by rule; a conversation that ended is not silence, and nobody is asked about it."""

from typing import Any

import polars as pl
import pytest

from agent_eval.clusters.failures import failures
from agent_eval.clusters.severity import severity_of
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE
from agent_eval.metrics.metric_set import TURN_METRICS
from agent_eval.tables import table
from agent_eval.transcripts.models import Conversation, Message
from tests.judge.fakes import ScriptedClient
from tests.judge.material import agent, call, conversation, human, user
from tests.judge.test_engine import judged

EMPTY = agent("")
CALL = call("delete_account", {"id": 7}, "deleted")
OF_WHOLE = {"goal_completion", "plan_adherence"}
TURN_METRICS_OF_A_REPLY = {m.name for m in TURN_METRICS if m.applies_when == "always"}
SILENCED = TURN_METRICS_OF_A_REPLY - {"agent_behavior_failure", "helpfulness", "relevance"}


def answers(of: Conversation, turn_index: int, **given: Any) -> dict[str, object]:
    """Metric → its effective answer on the turn, or why there is none."""
    rows = judged(of, **given).turn_judgments.filter("is_effective", turn_index=turn_index)
    value, label = pl.col("value").cast(pl.String), pl.col("label")
    shown = pl.coalesce(pl.col("rating_1to5").cast(pl.String), value, label, "unscored_reason")
    return dict(rows.select("metric", shown).iter_rows())


@pytest.mark.parametrize(
    "silent",
    [conversation(user("Hi"), EMPTY, user("Hello?"), agent("Yes?")), conversation(user("Hi"), user("Hello?"))],
    ids=["empty", "asked again"],
)  # fmt: skip
def test_no_reply_is_a_failure_and_the_lowest_rating_by_rule(silent: Conversation) -> None:
    decided = {"agent_behavior_failure": "no reply", "helpfulness": "1", "relevance": "1"}
    assert answers(silent, 0) == decided | dict.fromkeys(SILENCED, "no reply in this turn")
    rows = judged(silent).turn_judgments.filter(turn_index=0, status="scored")
    assert set(rows["judge"]) == {"rule"}
    assert all(reason.startswith("No reply: ") for reason in rows["rationale"])


def test_an_answer_that_was_expected_and_not_given_is_wrong() -> None:
    expected = [{"turn_index": 0, "answer": "On Monday"}]
    assert answers(conversation(user("When?"), EMPTY, expected=expected), 0)["answer_correctness"] == "0.0"
    ended = conversation(user("When?"), expected=expected)
    assert "answer_correctness" not in answers(ended, 0)


def test_a_model_is_not_asked_about_a_turn_without_words_or_calls() -> None:
    scripted = ScriptedClient()
    judged(conversation(user("Hi"), EMPTY, user("Hello?"), agent("Yes?")), client=scripted)
    assert scripted.names_asked == [TURN_METRICS_OF_A_REPLY | OF_WHOLE | {"knowledge_retention"}]


def test_the_calls_of_a_silent_turn_are_put_to_a_model() -> None:
    scripted = ScriptedClient()
    silent = conversation(user("Hi"), call("find", {}), EMPTY, tools=[{"name": "find"}])
    judged(silent, client=scripted)
    of_calls = {"tool_call_behavior_failure", "tool_result_utilisation", "argument_correctness"}
    assert set().union(*scripted.names_asked) == {"agent_behavior_failure", *of_calls, *OF_WHOLE}


@pytest.mark.parametrize("end", [[], call("transfer", {})], ids=["user", "call"])
def test_of_a_turn_that_ended_nothing_is_asked_and_nothing_counted(end: list[Message]) -> None:
    talk = conversation(user("Hi"), agent("Yes?"), user("Bye"), end)
    scripted = ScriptedClient()
    rows = judged(talk, client=scripted).turn_judgments.filter(turn_index=1)
    assert scripted.names_asked == [TURN_METRICS_OF_A_REPLY, OF_WHOLE]
    assert set(rows.select("status", "unscored_reason").rows()) == {("not_applicable", "ended")}
    assert set(rows["metric"]) >= TURN_METRICS_OF_A_REPLY


def test_a_destructive_call_at_the_very_end_is_still_found() -> None:
    ended = conversation(user("Hi"), agent("Hello."), user("What about my account?"), CALL)
    assert answers(ended, 1)["agent_behavior_failure"] == "unsafe action"


def test_a_person_overrules_the_rating_of_a_silent_turn_and_rates_no_ended_one() -> None:
    talk = conversation(user("Hi"), EMPTY, user("Hello?"), agent("Yes?"), user("Bye"))
    rated = [
        human("helpfulness", rating, conversation_id="c1", turn_index=i) for i, rating in ((0, 3), (2, 5))
    ]
    assert answers(talk, 0, ratings=rated)["helpfulness"] == "3"
    assert answers(talk, 2, ratings=rated)["helpfulness"] == "ended"


def test_a_reply_cut_off_by_the_token_limit_is_labelled_and_still_judged() -> None:
    cut = [Message(role="assistant", content="Your order was", finish_reason="length")]
    goes_on = conversation(user("Where is it?"), cut, agent("sent on Monday."))
    assert answers(goes_on, 0)["agent_behavior_failure"] == "needs a judge model"
    talk = conversation(user("Where is it?"), cut, user("And?"), agent("Sent."))
    assert answers(talk, 0)["agent_behavior_failure"] == "truncated reply"
    assert answers(talk, 1)["agent_behavior_failure"] == "needs a judge model"
    [row] = judged(talk).turn_judgments.filter(label="truncated reply").to_dicts()
    assert (row["evidence"], row["evidence_verified"]) == ("Your order was", True)
    scripted = ScriptedClient()
    judged(talk, client=scripted)
    assert "agent_behavior_failure" in scripted.names_asked[0]


def test_an_empty_message_at_the_token_limit_is_both() -> None:
    cut = [Message(role="assistant", content="", finish_reason="length")]
    rows = judged(conversation(user("Hi"), cut)).turn_judgments
    [row] = rows.filter(metric="agent_behavior_failure").to_dicts()
    assert (row["label"], row["further_labels"]) == ("no reply", ["truncated reply"])


def test_silence_is_a_failure_like_every_other_with_its_severity() -> None:
    of = conversation(user("Hi"), EMPTY, user("Hello?"), agent("Yes?"))
    rows = failures(judged(of).turn_judgments, table("tool_calls").empty())
    [failure] = rows.to_dicts()
    assert (failure["label"], failure["turn_index"], failure["fault_author"]) == ("no reply", 0, "agent")
    assert (severity_of("no reply"), severity_of("truncated reply")) == ("high", "medium")


def test_a_model_is_not_offered_the_labels_that_only_a_rule_gives() -> None:
    assert set(AGENT_BEHAVIOR_FAILURE.by_rule) == {
        "no reply", "policy violation", "truncated reply", "unsupported claim",
    }  # fmt: skip
    assert not set(AGENT_BEHAVIOR_FAILURE.by_rule) & set(AGENT_BEHAVIOR_FAILURE.labels)


def test_a_silent_turn_leaves_the_hallucination_test_to_those_that_speak() -> None:
    talk = conversation(user("Is it free?"), EMPTY, user("Well?"), agent("I cannot say."))
    tests = {"c1": ["hallucination"]}

    def passed(of: Conversation, client: ScriptedClient | None = None) -> float | str | None:
        rows = judged(of, client=client, tests=tests).conversation_judgments
        [row] = rows.filter("is_effective", metric="hallucination_passed").to_dicts()
        value: float | str | None = row["unscored_reason"] if row["value"] is None else row["value"]
        return value

    assert passed(talk) == "needs a judge model"
    assert passed(talk, ScriptedClient()) == 1
    assert passed(conversation(user("Is it free?"), EMPTY), ScriptedClient()) == "no reply in this turn"
