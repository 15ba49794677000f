"""Compute content hashes over exactly the content that a judge may see.

A turn's hash covers everything up to and including that turn, so an edit changes the hashes of the edited turn
and all later turns, but not the earlier ones. Agent names, ids, outcomes and costs are not part of the content.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence

from agent_eval.formats.hashing import canonical, digest
from agent_eval.formats.plain_text import LONGEST_WORD, folded_words, looks_like_id, shown_words
from agent_eval.transcripts.models import REASONING_TAGS, Conversation, Message, Turn, is_blank
from agent_eval.transcripts.text_sketch import ENOUGH_WORDS


def turn_hashes(conversation: Conversation, turns: Iterable[Turn]) -> Iterator[str]:
    """Yield the content hash up to and including each turn, in order.

    The run time is linear in the conversation's length. User messages are separated from what precedes them, in a
    turn too, so that the hash does not depend on how messages are divided into turns.
    """
    state = hashlib.blake2b(canonical(_frame(conversation)), digest_size=16)
    for turn in turns:
        state.update(b"\x1e")
        has_user = False
        for message in turn.messages:
            state.update(b"\x1e" if has_user and message.role == "user" else b"")
            has_user = has_user or message.role == "user"
            state.update(canonical(_content(message)) + b"\x1f")
        yield state.copy().hexdigest()


def text_hash(messages: Iterable[Message]) -> str:
    """Return the hash of a turn's own messages; a label by a person refers to the text that it was given on."""
    return digest("text", [_content(message) for message in messages])


def conversation_hash(conversation: Conversation, last_turn_hash: str | None) -> str:
    """Return the hash of the conversation as a judge sees it; if there are no turns, only the context is hashed."""
    last = digest("no turns", _frame(conversation)) if last_turn_hash is None else last_turn_hash
    return digest("conversation", last, conversation.injected_error)


def session_hash(conversation_hashes: Iterable[str]) -> str:
    """Return the hash of a session's conversations, independent of their order; ratings of U1–U6 refer to it."""
    return digest("session", sorted(conversation_hashes))


NOTHING_OWN = digest("messages", "nothing of its own")
"""`messages_hash` of all conversations in which the agent says nothing but numbers and words that it was given, and
`own_words_hash` of those in which it says at most one word."""
_FEWEST_REPEATED = 3  # words of a message that counts as repeated


def messages_hash(conversation: Conversation) -> str:
    """Return a hash of the agent's calls and of the letters and digits in its messages, or `NOTHING_OWN`.

    Copies that differ only in case, spacing, punctuation, look-alike letters or ids have the same hash.
    """
    messages = [m for m in conversation.messages if m.role == "assistant"]
    user_words = {
        word for m in conversation.messages if m.role != "assistant" for word in folded_words(m.content or "")
    }
    own = {
        word for m in messages for word in folded_words(m.content or "") if not word.isnumeric()
    } - user_words
    if messages and not own and not any(m.tool_calls or m.attachments for m in messages):
        return NOTHING_OWN
    return digest(
        "messages",
        [
            [_letters(m.content or ""), [[c.name, [*_leaves(c.arguments)]] for c in m.tool_calls]]
            for m in messages
        ],
    )


def own_words_hash(conversation: Conversation) -> str | None:
    """Return a hash of the agent's calls and of its words without the user's messages that it repeats as a whole.

    It is the same for "You said: Where is it?" and "You said: Send it back." after these messages. It is `NOTHING_OWN` if
    there are no calls and at most one word, or most letters that the agent was not given form no words (single letters,
    ids and ASCII words of more than `LONGEST_WORD` letters). Of calls without words, numbers do not count. It is None if neither applies, so that `messages_hash` counts.
    """
    messages = [m for m in conversation.messages if m.role == "assistant"]
    words = [w for m in messages for w in shown_words(REASONING_TAGS.sub(" ", m.content or ""))]
    calls = [[c.name, [*_leaves(c.arguments)]] for m in messages for c in m.tool_calls]
    if not words:
        unnumbered = [[name, [v for v in values if not v.isnumeric()]] for name, values in calls]
        return digest("own words", ["", unnumbered]) if unnumbered != calls else None
    others = [shown_words(m.content) for m in conversation.messages if m.role != "assistant" and m.content]
    if not any(m.tool_calls or m.attachments for m in messages):
        spoken = {word for word in words if not word.isnumeric()}
        own = spoken.difference(*others)
        n_unreadable = sum(len(word) for word in own if not _is_word(word))
        is_word = len(spoken) == 1 and max(map(len, spoken)) <= LONGEST_WORD
        if is_word or 2 * n_unreadable > sum(map(len, own)):
            return NOTHING_OWN
    rest = _without(words, {tuple(t) for t in others if _FEWEST_REPEATED <= len(t) < ENOUGH_WORDS})
    return None if len(rest) == len(words) else digest("own words", [" ".join(rest), calls])


def _without(words: Sequence[str], texts: Collection[tuple[str, ...]]) -> list[str]:
    """Return the words without these texts, the longest first, in time linear in the number of words."""
    lengths: dict[tuple[str, ...], list[int]] = {}
    for n, begun in sorted({(len(text), text[:_FEWEST_REPEATED]) for text in texts}, reverse=True):
        lengths.setdefault(begun, []).append(n)
    rest: list[str] = []
    at = 0
    while at < len(words):
        of_place = lengths.get(tuple(words[at : at + _FEWEST_REPEATED]), ())
        n_repeated = next((n for n in of_place if tuple(words[at : at + n]) in texts), 0)
        if not n_repeated:
            rest.append(words[at])
        at += n_repeated or 1
    return rest


def _is_word(word: str) -> bool:
    """Return whether letters form a word; scripts that are written without spaces have long ones."""
    return not looks_like_id(word) and (not word.isascii() or 1 < len(word) <= LONGEST_WORD)


def _leaves(value: object) -> Iterator[str]:
    """Yield the values of a call's arguments as letters, without those that are ids."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    if parts is not None:
        for part in parts:
            yield from _leaves(part)
    elif letters := _letters(str(value)):
        yield letters


def _letters(text: str) -> str:
    return "".join(word for word in folded_words(text) if not looks_like_id(word))


def opening_hash(conversation: Conversation) -> str | None:
    """Return the hash of the first user message, ignoring case and spacing; None if no user message has a text."""
    texts = (m.content for m in conversation.messages if m.role == "user")
    opening = next((text for text in texts if text and not is_blank(text)), None)
    return None if opening is None else digest("opening", " ".join(opening.split()).casefold())


def _frame(conversation: Conversation) -> object:
    tools = None if conversation.tools is None else list(conversation.tools)
    expected = [e.model_dump(mode="json") for e in conversation.expected]
    frame = [conversation.goal, conversation.profile, list(conversation.knowledge), tools, expected]
    policy = conversation.metadata.get("policy")  # system messages are in the first turn's hash
    return [*frame, policy] if isinstance(policy, str) and policy else frame


def _content(message: Message) -> object:
    calls = [[c.name, c.arguments] for c in message.tool_calls]
    content: list[object] = [message.role, message.content, message.name, calls, message.is_error]
    return (
        [*content, [[a.kind, a.reference] for a in message.attachments]] if message.attachments else content
    )
