"""How messages are divided into turns, and what keeps its name when adjacent user messages are one turn."""

import hashlib
from itertools import pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.formats.hashing import canonical
from agent_eval.judge.inputs.human_ratings import outdated_ratings
from agent_eval.tables import table
from agent_eval.transcripts.content_hash import text_hash, turn_hashes
from agent_eval.transcripts.frames import ConversationRows
from agent_eval.transcripts.models import Conversation, Message

ROLES = st.sampled_from(["user", "user", "assistant", "system", "tool"])
MESSAGES = st.lists(st.tuples(ROLES, st.sampled_from(["", "a", "b"])), min_size=1, max_size=12)
Said = list[tuple[str, str]]


def talk(said: Said, **facts: object) -> Conversation:
    messages = [{"role": role, "content": text} for role, text in said]
    return Conversation.model_validate({"conversation_id": "c", "messages": messages, **facts})


def hash_by_user_message(conversation: Conversation) -> list[str]:
    """Restate the hashes of the release that began a turn at every user message."""
    frame = [conversation.goal, conversation.profile, list(conversation.knowledge), None]
    expected = [entry.model_dump(mode="json") for entry in conversation.expected]
    state = hashlib.blake2b(canonical([*frame, expected]), digest_size=16)
    users = [i for i, message in enumerate(conversation.messages) if message.role == "user"]
    hashes = []
    for begin, end in pairwise([0, *users[1:], len(conversation.messages)]):
        state.update(b"\x1e")
        for m in conversation.messages[begin:end]:
            state.update(canonical([m.role, m.content, m.name, [], m.is_error]) + b"\x1f")
        hashes.append(state.copy().hexdigest())
    return hashes


@given(MESSAGES)
def test_turns_hold_every_message_once_and_begin_at_their_first_user_message(said: Said) -> None:
    conversation = talk(said)
    turns = conversation.turns()
    assert [m for turn in turns for m in turn.messages] == list(conversation.messages)
    n_users = 0
    for turn in turns:
        assert turn.turn_index == n_users
        n_users += sum(m.role == "user" for m in turn.messages)
        roles = [m.role for m in turn.messages]
        spoken = roles[roles.index("user") if "user" in roles else 0 :]
        after = spoken[spoken.index("assistant") :] if "assistant" in spoken else []
        assert "user" not in after


@given(MESSAGES)
def test_a_turn_has_the_hash_of_its_last_user_message_by_the_earlier_count(said: Said) -> None:
    conversation = talk(said)
    earlier = hash_by_user_message(conversation)
    turns = conversation.turns()
    ends = [*(turn.turn_index for turn in turns[1:]), len(earlier)]
    assert list(turn_hashes(conversation, turns)) == [earlier[end - 1] for end in ends]


@given(MESSAGES)
def test_silence_is_found_once_and_only_where_nobody_answered(said: Said) -> None:
    for turn in talk(said).turns():
        has_text = any(m.role == "assistant" and m.content for m in turn.messages)
        if turn.reply == "no reply":
            assert not has_text or turn.messages[-1].role != "assistant" or not turn.messages[-1].content


def test_indexes_have_gaps_and_later_turns_keep_theirs() -> None:
    said = [("user", "q1"), ("user", "Hello?"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")]
    turns = [(turn.turn_index, turn.user_message) for turn in talk(said).turns()]
    assert turns == [(0, "q1\n\nHello?"), (2, "q2")]


def test_ground_truth_and_interventions_of_any_user_message_belong_to_its_turn() -> None:
    said = [("assistant", "Hi"), ("user", "q1"), ("user", "q2"), ("assistant", "a")]
    said += [("user", "q3"), ("user", "q4")]
    conversation = talk(
        said,
        expected=[{"turn_index": i, "answer": str(i)} for i in (0, 1, 2, 3, 9)] + [{"answer": "whole"}],
        interventions=[{"kind": "help", "turn_index": i} for i in (1, 3, None)],
    )
    assert [(entry.turn_index, entry.answer) for entry in conversation.expected] == [
        (0, "0\n\n1"), (0, None), (2, "2\n\n3"), (2, None), (9, "9"), (None, "whole"),
    ]  # fmt: skip
    assert [entry.turn_index for entry in conversation.interventions or ()] == [0, 2, None]
    assert Conversation.model_validate(conversation.model_dump(mode="json")) == conversation


FIX = "label it again on a sheet of agent-eval labels sheet"


def rating(turn_index: int | None, text: str | None = None) -> dict[str, object]:
    return {
        "agent_id": "a", "conversation_id": "c", "turn_index": turn_index, "methodology_version": "any",
        "target": "helpfulness", "rating_1to5": 5, "rater": "anna", "text_hash": text, "file": "r.csv",
        "line": 9 if turn_index is None else turn_index + 2,
    }  # fmt: skip


def outdated(conversation: Conversation, *ratings: dict[str, object]) -> dict[int | None, str]:
    rows = ConversationRows()
    rows.add("a", "s", None, conversation)
    found = outdated_ratings(table("human_ratings").frame(ratings), rows.turns.frame())
    return dict(found.select("turn_index", "problem").iter_rows())


def test_labels_of_joined_turns_are_set_aside_and_others_keep_their_turn() -> None:
    joined = talk([("user", "q1"), ("user", "q2"), ("assistant", "a"), ("user", "q3"), ("assistant", "b")])
    problems = outdated(joined, *(rating(i) for i in (0, 1, 2)))
    assert set(problems) == {0, 1}
    assert problems[1].startswith("turn 1 is now part of turn 0; label it again")
    assert text_hash(joined.turns()[0].messages) in problems[0]
    assert not outdated(joined, rating(0, text_hash(joined.turns()[0].messages)))


def test_a_label_of_a_sheet_counts_only_for_the_text_that_it_was_given_on() -> None:
    before, after = (talk([("user", "q"), ("assistant", text)]) for text in ("a", "A"))
    seen = text_hash(before.turns()[0].messages)
    assert not outdated(before, rating(0, seen), rating(0))
    assert outdated(after, rating(0, seen))[0].startswith("the text of turn 0 has changed")


def test_a_label_of_a_conversation_counts_only_for_the_turns_that_it_was_given_on() -> None:
    said = [("user", "q"), ("assistant", "a"), ("user", "q2"), ("assistant", "b")]
    seen = text_hash(talk(said).messages)
    assert not outdated(talk(said), rating(None, seen), rating(None))
    for other in (said[:2], [*said, ("user", "q3"), ("assistant", "c")], [*said[:3], ("assistant", "B")]):
        problems = outdated(talk(other), rating(None, seen), rating(None))
        assert problems == {None: f"the text of the conversation has changed since; {FIX}"}


def test_a_frame_without_ratings_of_turns_has_nothing_outdated() -> None:
    empty = table("human_ratings").frame([])
    assert outdated_ratings(empty, table("turns").frame([])).is_empty()
    assert isinstance(empty, pl.DataFrame)


def test_the_text_of_a_turn_has_a_hash_that_depends_on_its_messages_only() -> None:
    message = Message(role="user", content="q")
    assert text_hash([message]) == text_hash([Message(role="user", content="q", timestamp="2026-01-01")])
    assert text_hash([message]) != text_hash([message, message])
