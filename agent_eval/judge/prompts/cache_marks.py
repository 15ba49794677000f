"""Mark prompt blocks for providers that cache only marked blocks, and estimate the savings.

Anthropic's models (also on Bedrock and Vertex) read the beginning of a prompt from their cache up to a block that an
earlier call marked, if it is one of the 20 blocks before a mark. A written token costs 1.25 times as much as an
uncached one, a read token a tenth. The marks are placed after the system message, before the judged turn and after it,
so that the call of the next turn reads all of it from the cache. A call thus uses at most three of the four allowed
marks.

Source: https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from agent_eval.judge.prompts.build import Messages

MARK = {"type": "ephemeral"}
LEAST_TOKENS = 1_024  # minimum length of a cached prefix
LOOKED_BACK = 20  # number of blocks before a mark that are searched for an earlier mark
READ, WRITTEN = 0.1, 1.25  # price of a read and of a written token, relative to an uncached one
_TURN = '{"turn": '


def marked(messages: Messages) -> list[dict[str, Any]]:
    """Return the messages with their texts divided into blocks. Up to three blocks have `cache_control`."""
    sent: list[dict[str, Any]] = []
    for message in messages:
        blocks: list[dict[str, Any]] = []
        for text, is_end in _blocks(message["role"], message["content"]):
            mark = {"cache_control": MARK} if is_end else {}
            blocks.append({"type": "text", "text": text, **mark})
        sent.append({**message, "content": blocks})
    return sent


def _blocks(role: str, text: str) -> list[tuple[str, bool]]:
    """Divide the text of a message into blocks, one per line of the record, with whether each block is marked."""
    if role != "user":
        return [(text, True)]
    lines = text.splitlines(keepends=True)
    turns = [i for i, each in enumerate(lines) if each.startswith(_TURN)]
    if not turns:
        return [(text, False)]
    last = turns[-1]
    opening = "".join(lines[:2])  # opening mark of the record, and frame of the conversation
    blocks = [opening, *lines[2 : last + 1], "".join(lines[last + 1 :])]
    n = len(blocks)
    return [(block, n - 3 <= i < n - 1) for i, block in enumerate(blocks)]


class PrefixCache:
    """Simulates the cache of a provider, for estimates. A token is assumed to have `characters` characters."""

    def __init__(self, characters: int = 4) -> None:
        self._characters = characters
        self._held: set[bytes] = set()
        self._new: set[bytes] = set()

    def charge(self, messages: Messages) -> tuple[int, int]:
        """Return the number of tokens that a call reads from the cache, and the number that it writes.

        A call reads only what was written before the current round of calls.
        """
        state = hashlib.blake2b(digest_size=16)
        ends: list[tuple[bytes, int, bool]] = []
        size = 0
        for message in messages:
            for text, is_end in _blocks(message["role"], message["content"]):
                state.update(text.encode("utf-8", "surrogatepass"))
                size += len(text)
                ends.append((state.digest(), size // self._characters, is_end))
        marks = [i for i, (_, n, is_end) in enumerate(ends) if is_end and n >= LEAST_TOKENS]
        read = max((self._found(ends, i) for i in marks), default=0)
        written = ends[marks[-1]][1] - read if marks else 0
        self._new |= {ends[i][0] for i in marks}
        return read, written

    def next_round(self) -> None:
        """Start a new round, whose calls can read what earlier calls wrote."""
        self._held |= self._new
        self._new.clear()

    def _found(self, ends: Sequence[tuple[bytes, int, bool]], mark: int) -> int:
        before = ends[max(mark - LOOKED_BACK, 0) : mark + 1]
        return max((n for key, n, _ in before if key in self._held), default=0)
