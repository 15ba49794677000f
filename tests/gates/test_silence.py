"""The gate on silence: the share of turns that owed a reply and got none."""

from fractions import Fraction
from typing import Any

import pytest

from agent_eval.gates.finding import GateFinding
from agent_eval.gates.silence import Silence, silence_finding, silences
from agent_eval.judge.engine import judge_transcripts
from agent_eval.settings.gate_spec import GateSpec, Rules
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.transcripts.models import Message
from tests.judge.material import admitted, call, conversation, humans, nothing, tables, user
from tests.scores.builders import judgment
from tests.untyped import any_table

LUMEN = AgentVersion.of(agent_id="lumen", methodology_version="1.3.0")


def rules(**said: Any) -> Rules:
    return GateSpec.model_validate(said).rules("lumen", "1.3.0")


def replied(i: int) -> list[dict[str, Any]]:
    return [
        judgment("c", "agent_behavior_failure", None, turn_index=i, judge="rule", status="not_applicable")
        | {"unscored_reason": "needs a judge model"}
    ]


def silent(i: int, **changes: Any) -> list[dict[str, Any]]:
    by_rule = {"turn_index": i, "judge": "rule"}
    return [
        judgment("c", "agent_behavior_failure", 0.0, **by_rule) | {"label": "no reply"} | changes,
        judgment("c", "verbosity", None, **by_rule)
        | {"status": "not_applicable", "unscored_reason": "no reply in this turn"},
    ]


def without(i: int, reason: str) -> list[dict[str, Any]]:
    row = judgment("c", "agent_behavior_failure", None, turn_index=i, judge="rule")
    return [row | {"status": "not_applicable", "unscored_reason": reason}]


def counted(*turns: list[dict[str, Any]]) -> Silence:
    rows = [row for turn in turns for row in turn]
    return silences(table("turn_judgments").frame(rows), table("transcripts").empty())[LUMEN]


def found(silence: Silence, **said: Any) -> GateFinding:
    finding = silence_finding(rules(**said), silence)
    assert finding is not None
    return finding


def test_turns_are_counted_that_owed_a_reply_those_without_one_and_those_that_ended() -> None:
    none_due = without(3, "no reply in this turn")
    turns = counted(replied(0), silent(1), silent(2), none_due, without(4, "ended"))
    assert turns == Silence(3, ("c#1", "c#2"), 1, True)


def test_a_turn_is_silent_also_where_it_has_graver_failures() -> None:
    unsafe = {"label": "unsafe action", "further_labels": ["no reply"]}
    assert counted(silent(0, **unsafe)).silent == ("c#0",)


def test_without_the_label_the_lowest_rating_by_rule_tells_it() -> None:
    rated = judgment("c", "relevance", 1.0, turn_index=0, judge="rule", rating_1to5=1)
    by_model = judgment("c", "relevance", 1.0, turn_index=1, judge="model-a", rating_1to5=1)
    assert counted([rated], [by_model]).silent == ("c#0",)


def test_a_person_who_overrules_the_label_does_not_make_it_speech() -> None:
    overruled = silent(0, is_effective=False)
    said = judgment("c", "agent_behavior_failure", 1.0, turn_index=0, judge="human") | {"label": "no failure"}
    assert counted([*overruled, said]).silent == ("c#0",)


@pytest.mark.parametrize(
    ("allowed", "n_silent", "result"),
    [(None, 0, "passed"), (None, 1, "failed"), (0.5, 2, "passed"), (0.49, 2, "failed"), ("1/4", 1, "passed")],
)
def test_a_larger_share_than_allowed_fails(allowed: float | str | None, n_silent: int, result: str) -> None:
    turns = [silent(i) if i < n_silent else replied(i) for i in range(4)]
    gate = found(counted(*turns), **({} if allowed is None else {"silent_turns": allowed}))
    assert (gate.result, gate.value) == (result, Fraction(n_silent, 4))


def test_the_evidence_names_the_turns_and_shows_how_many_ended() -> None:
    gate = found(counted(replied(0), silent(1), without(2, "ended")))
    assert gate.evidence == (
        "1 of 2 turns without a reply, 50.0 %: c#1; allowed 0.0 %; 1 turn ended the conversation"
    )


ENDED = "no turn required a reply; 2 turns ended the conversation"
UNSEEN = [[judgment("c", "verbosity", 4.0, turn_index=0)]]


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([without(0, "ended"), without(1, "ended")], ENDED),
        (UNSEEN, "agent_behavior_failure, answer_correctness,"),
    ],
)
def test_silence_that_nobody_could_have_seen_is_unknown(turns: list[list[dict[str, Any]]], said: str) -> None:
    gate = found(counted(*turns))
    assert (gate.result, said in gate.evidence) == ("unknown", True)


def test_an_agent_without_turns_owes_no_reply() -> None:
    assert silences(table("turn_judgments").empty(), table("transcripts").empty()) == {}
    gate = found(Silence())
    assert gate.result == "passed"


def test_the_gate_can_be_switched_off_and_on_again_for_one_agent() -> None:
    assert silence_finding(rules(silent_turns=False), counted(silent(0))) is None
    layered = GateSpec.model_validate({"silent_turns": False, "agents": {"lumen": {"silent_turns": 0.1}}})
    assert layered.rules("lumen", "1.3.0").silent_turns == Fraction(1, 10)
    assert layered.rules("other", "1.3.0").silent_turns is None


def test_other_agents_and_versions_are_counted_apart() -> None:
    rows = [row for turn in (replied(0), silent(1)) for row in turn]
    other = [row | {"agent_id": "other"} for row in silent(0)]
    both = silences(table("turn_judgments").frame([*rows, *other]), table("transcripts").empty())
    counts = {pair.agent_id: (s.n_due, len(s.silent)) for pair, s in both.items()}
    assert counts == {"lumen": (2, 1), "other": (1, 1)}


# Conversations in which the agent says nothing at all


def of(conversation_id: str, turn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"conversation_id": conversation_id} for row in turn]


def test_a_conversation_without_any_reply_is_unknown_and_named() -> None:
    gate = found(counted(replied(0), of("d", without(0, "ended"))))
    assert (gate.result, gate.evidence) == (
        "unknown",
        "0 of 1 turns without a reply, 0.0 %; allowed 0.0 %; 1 turn ended the conversation; "
        "1 conversation without any reply of the agent: d",
    )


def test_an_agent_that_never_replied_is_unknown_with_the_number_of_conversations() -> None:
    gate = found(counted(*(of(name, without(0, "ended")) for name in "de")))
    assert gate.result == "unknown"
    assert gate.evidence.endswith("2 conversations without any reply of the agent: d; e")


def test_silent_turns_beyond_the_share_fail_beside_a_conversation_without_a_reply() -> None:
    gate = found(counted(replied(0), silent(1), of("d", without(0, "ended"))))
    assert gate.result == "failed"


def test_an_allowed_share_of_silent_turns_does_not_let_a_whole_conversation_pass() -> None:
    gate = found(counted(replied(0), of("d", silent(0))), silent_turns=0.5)
    assert (gate.result, "reply of the agent: d" in gate.evidence) == ("unknown", True)


def test_an_ending_after_a_reply_and_a_conversation_without_a_user_message_are_not_counted() -> None:
    rows = [*replied(0), *without(1, "ended"), *of("d", without(0, "ended"))]
    held = {"methodology_version": "1.3.0", "agent_id": "lumen", "conversation_id": "d", "n_user_messages": 0}
    counted = silences(table("turn_judgments").frame(rows), table("transcripts").frame([held]))[LUMEN]
    assert counted.unanswered == ()
    assert found(counted).result == "passed"


@pytest.mark.parametrize("said", [[], call("look_up", {"id": 7}, "found")], ids=["nothing", "a bare call"])
def test_the_judged_rows_of_a_single_turn_without_words_are_unknown(said: list[Message]) -> None:
    rows = tables(conversation(user("Where is my order?"), said))
    held = rows.conversations.frame()
    shown = admitted(held)
    judged = judge_transcripts(
        any_table(shown), any_table(held), any_table(rows.turns.frame()), humans(), nothing
    )
    [counted] = silences(judged.turn_judgments, shown).values()
    assert len(counted.unanswered) == 1
