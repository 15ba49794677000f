"""Quotes are looked up in what was said and called, up to the turn that is judged."""

import pytest

from agent_eval.judge.evidence import Transcript
from agent_eval.transcripts.steps import ConversationStep
from tests.judge.material import agent, call, conversation, user

TRANSCRIPT = Transcript(
    conversation(
        user("Hi"),
        call("find", {"id": "é1"}, '{"a":\n "b"}'),
        agent("Found it."),
        user("Ok"),
        agent("Bye now."),
    ).turns()
)


def test_contents_results_and_calls_can_be_quoted() -> None:
    for quote in ("Found it", '{"a": "b"}', 'find({"id": "é1"})', "Bye"):
        assert TRANSCRIPT.holds(quote)


def test_other_words_and_empty_quotes_are_not_found() -> None:
    for quote in ("found it", "Found it. Ok", "", "  "):
        assert not TRANSCRIPT.holds(quote)


def test_whitespace_is_no_part_of_a_quote() -> None:
    assert TRANSCRIPT.holds(" Found\n it.")


def test_composed_and_decomposed_accents_are_the_same() -> None:
    for said, quoted in (("cafe\u0301", "caf\u00e9"), ("caf\u00e9", "cafe\u0301")):
        assert Transcript(conversation(user("Where?"), agent(f"In the {said}.")).turns()).holds(quoted)


def test_a_turn_cannot_be_judged_by_what_came_after_it() -> None:
    assert not TRANSCRIPT.holds("Bye", last_turn=0)
    assert TRANSCRIPT.holds("Found it", last_turn=1)


SPOKEN = Transcript(
    conversation(
        user("Snow in Oslo?"),
        agent("Snow in Oslo? I ask.", name="Planner"),
        call("weather", {"city": "Oslo"}, "no data"),
        agent("It rains.", name="Writer"),
        user("Sure?"),
        agent("It rains.", name="Critic"),
        agent("It rains.", name="Writer"),
    ).turns()
)


@pytest.mark.parametrize(
    ("quote", "last_turn", "step"),
    [
        ("Snow in Oslo?", 0, ConversationStep(1, "Planner")),  # the agent's words before the user's
        ("weather({", 0, ConversationStep(2, "assistant")),
        ("no data", None, ConversationStep(3, "tool")),  # its call has no id
        ("It rains.", 0, ConversationStep(4, "Writer")),
        ("It rains.", None, ConversationStep(6, "Critic")),  # the latest turn, in it the first message
        ("It snows.", None, None),
        ("  ", None, None),
    ],
)
def test_a_quote_names_its_message_and_speaker(
    quote: str, last_turn: int | None, step: ConversationStep | None
) -> None:
    assert SPOKEN.find(quote, last_turn) == step
