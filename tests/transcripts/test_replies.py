"""How a turn came out: replied, no reply, ended, or no reply was due."""

from typing import Any

import pytest

from agent_eval.transcripts.models import Conversation, Message

Raw = dict[str, Any]
U: Raw = {"role": "user", "content": "Where is A-1?"}
A: Raw = {"role": "assistant", "content": "On its way."}
EMPTY: Raw = {"role": "assistant", "content": ""}
CALL: Raw = {"role": "assistant", "tool_calls": [{"id": "1", "name": "find"}]}
TOLD_CALL = CALL | {"content": "Let me look."}
RESULT: Raw = {"role": "tool", "tool_call_id": "1", "content": "shipped"}
NOTE: Raw = {"role": "system", "content": "The user is a member."}
USERS_CALL: Raw = {"role": "user", "tool_calls": [{"id": "2", "name": "restart_phone"}]}
USERS_RESULT: Raw = {"role": "tool", "tool_call_id": "2", "content": "restarted"}


def replies(*messages: Raw) -> list[str]:
    return [
        turn.reply
        for turn in Conversation.model_validate({"conversation_id": "c", "messages": messages}).turns()
    ]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([U, A, U, A], ["replied", "replied"], id="each user message is answered"),
        pytest.param([U, EMPTY, U, A], ["no reply", "replied"], id="an empty message"),
        pytest.param([U, A, U, EMPTY], ["replied", "no reply"], id="an empty message at the end"),
        pytest.param([U, A | {"content": " \n"}, U, A], ["no reply", "replied"], id="only spaces"),
        pytest.param([U, A | {"content": None}, U, A], ["no reply", "replied"], id="null"),
        pytest.param([U, U, A], ["replied"], id="two messages are answered together"),
        pytest.param([U, U, U, A, U, A], ["replied", "replied"], id="three messages"),
        pytest.param([U, U], ["no reply"], id="the user asks again and nobody answers"),
        pytest.param([U, A, U, U, U], ["replied", "no reply"], id="asked three times at the end"),
        pytest.param([U, U, EMPTY], ["no reply"], id="two messages and an empty reply"),
        pytest.param([U, EMPTY, U], ["no reply", "ended"], id="an empty reply, and a last message"),
        pytest.param([U, NOTE, U, A], ["replied"], id="a note of the operator between two messages"),
        pytest.param([U, NOTE], ["ended"], id="one message and a note of the operator"),
        pytest.param([U, U, CALL, RESULT], ["ended"], id="two messages, and it ends in a call"),
        pytest.param(
            [U, USERS_CALL, USERS_RESULT, U, A], ["none due", "replied"], id="a message, and the user acts"
        ),
        pytest.param([U, U | {"content": " "}], ["ended"], id="an empty message is no second question"),
        pytest.param([U, A, U], ["replied", "ended"], id="the last message is the user's"),
        pytest.param([U, CALL, RESULT], ["ended"], id="it ends in a call and says nothing"),
        pytest.param([U, TOLD_CALL, RESULT], ["replied"], id="it ends in a call after some words"),
        pytest.param([U, CALL, RESULT, U, A], ["replied", "replied"], id="calls only, and it goes on"),
        pytest.param([U, CALL, RESULT, EMPTY], ["no reply"], id="silent after the result"),
        pytest.param(
            [U, TOLD_CALL, RESULT, EMPTY, U, A], ["no reply", "replied"], id="words only before the call"
        ),
        pytest.param([U, A, EMPTY, U, A], ["replied", "replied"], id="an empty message beside a reply"),
        pytest.param([U, EMPTY, A], ["replied"], id="an empty message before a reply"),
        pytest.param([USERS_CALL, USERS_RESULT, U, A], ["none due", "replied"], id="the user acts first"),
        pytest.param(
            [U | {"content": ""}, NOTE, RESULT, U, A], ["none due", "replied"], id="the user says nothing"
        ),
        pytest.param([U | {"content": ""}, U, A], ["replied"], id="an empty message before one with text"),
        pytest.param([{"role": "system", "content": "Be kind."}], ["ended"], id="nobody speaks"),
        pytest.param([EMPTY], ["no reply"], id="no user message"),
    ],
)
def test_a_turn_says_whether_the_agent_replied(messages: list[Raw], expected: list[str]) -> None:
    assert replies(*messages) == expected


def test_an_empty_message_that_is_marked_as_an_error_ends_the_conversation() -> None:
    crash = EMPTY | {"is_error": True}
    assert replies(U, A, U, crash) == ["replied", "ended"]
    assert replies(U, crash, U, A) == ["no reply", "replied"]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("length", True), ("max_tokens", True), ("MAX_TOKENS", True), ("stop", False), (None, False)],
)
def test_a_message_is_cut_off_when_the_token_limit_ended_it(reason: str | None, expected: bool) -> None:
    assert Message(role="assistant", content="The order", finish_reason=reason).is_cut_off == expected


@pytest.mark.parametrize(
    ("second", "n_requests"),
    [
        ({"content": "And B-2?"}, 2),
        ({"content": "👍"}, 2),
        ({"content": None, "tool_calls": [{"id": "2", "name": "restart_phone"}]}, 2),
        ({"content": ""}, 1),
        ({"content": " \n"}, 1),
        ({"content": "\u200b\u2063"}, 1),
        ({"content": "<!-- and B-2? -->"}, 1),
        ({"content": "…"}, 1),
        ({"content": "&#8203;"}, 1),
        ({"content": "###STOP###"}, 1),
        ({"content": "<p>And B-2?</p>"}, 2),
    ],
)
def test_only_user_messages_that_say_something_are_requests(second: Raw, n_requests: int) -> None:
    conversation = Conversation.model_validate(
        {"conversation_id": "c", "messages": [U, A, {"role": "user"} | second, A]}
    )
    assert conversation.n_requests == n_requests


@pytest.mark.parametrize(
    ("messages", "n_requests"), [([U, U, A], 1), ([U, U, A, U, A], 2), ([U, A, U, A], 2)]
)
def test_a_message_that_the_user_sends_again_before_any_reply_is_one_request(
    messages: list[Raw], n_requests: int
) -> None:
    conversation = Conversation.model_validate({"conversation_id": "c", "messages": messages})
    assert conversation.n_requests == n_requests
