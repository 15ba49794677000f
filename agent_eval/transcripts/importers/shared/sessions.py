"""Assemble one conversation from the parts of a session, each of which may repeat the earlier messages.

An application often repeats only what was said, without the calls, their results and the texts between them. Such a
part also continues the conversation, and is not another branch.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from agent_eval.transcripts.importers.base import Fields
from agent_eval.transcripts.importers.rules.branches import KnownBeginnings, ended_parts
from agent_eval.transcripts.importers.shared.threads import INSTRUCTING, Thread, message_key


def session_of(parts: Sequence[Thread]) -> Thread:
    """Return the conversation of a session from its parts in their order, each of which may repeat earlier messages.

    The conversation is the branch that the session ended in: a part that a later one replaces is omitted, and its
    messages are counted. What only the omitted part knows of a common message, such as that a call failed, is kept, and
    its error too.
    """
    parts = _with_steps(parts)
    spoken = [part.spoken() for part in parts]
    branch_indices, n_withdrawn = ended_parts(spoken)
    for index in {*range(len(parts))} - {*branch_indices}:
        for later in (k for k in branch_indices if k > index):
            pairs = zip(spoken[index], spoken[later], strict=False)
            _learn(
                parts[later], parts[index], sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            )
    omitted = [part for index, part in enumerate(parts) if index not in set(branch_indices)]
    recovered = [error for part in omitted for error in (*part.recovered, *(part.failure or ())[1:])]
    beginnings, whole = KnownBeginnings(), Thread(n_withdrawn=n_withdrawn, recovered=recovered)
    for index in branch_indices:
        whole.follow(parts[index], beginnings.n_repeated(spoken[index]))
    return whole


def _learn(part: Thread, other: Thread, n_common: int) -> None:
    """Add to the first messages of a part, not counting instructions, what another part knows of them."""
    message_of_key = dict(zip(other.keys(), other.messages, strict=True))
    common = [i for i, message in enumerate(part.messages) if message["role"] not in INSTRUCTING][:n_common]
    keys = part.keys()
    for index in common:
        own = {name: value for name, value in part.messages[index].items() if value is not None}
        part.messages[index] = {**message_of_key.get(keys[index], {}), **own}


def _with_steps(parts: Sequence[Thread]) -> list[Thread]:
    """Return the parts; those that repeat an earlier part without its steps begin with the whole earlier part."""
    completed_parts: list[Thread] = []
    if not any(message["role"] == "tool" for part in parts[:-1] for message in part.messages):
        return [*parts]
    ends: dict[bytes, Thread] = {}  # state of the exchanges of a part → the part
    for part in parts:
        states = [*_exchanges(part.messages, part.keys())]
        begun = next(((n, ends[state]) for state, n in reversed(states) if state in ends), None)
        if begun and _leaves_out(part.messages[: begun[0]], begun[1].messages):
            n, earlier = begun
            own = [m for m in part.messages[:n] if m["role"] in INSTRUCTING]
            repeated = [dict(m) for m in earlier.messages if m["role"] not in INSTRUCTING]
            messages = [*own, *repeated, *part.messages[n:]]
            part = replace(part, messages=messages, _keys=[], _places={}, _instructions=set())
        if states and part.messages[-1]["role"] == "assistant":
            ends[states[-1][0]] = part
        completed_parts.append(part)
    return completed_parts


def n_said_again(messages: Sequence[Fields], earlier: Sequence[Fields]) -> int:
    """Return the number of first messages that repeat all that earlier messages say, without their steps; else 0."""
    ends = [state for state, _ in _exchanges(earlier, [*map(message_key, earlier)])][-1:]
    if not ends or earlier[-1]["role"] != "assistant":
        return 0
    keys = [*map(message_key, messages)]
    n = next((n for state, n in reversed([*_exchanges(messages, keys)]) if state == ends[0]), 0)
    return n if _leaves_out(messages[:n], earlier) else 0


def _exchanges(messages: Sequence[Fields], keys: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield a hash of what was said up to each place, and the number of messages up to it.

    Said are the messages of the user and the agent's last text before each of them. `keys` are those of the messages.
    """
    state, reply = b"", None
    for index, message in enumerate(messages):
        if message["role"] == "user":
            for key, n in [*([(reply, index)] if reply else []), (keys[index], index + 1)]:
                state = _after(state, key)
                yield state, n
            reply = None
        elif message["role"] == "assistant" and message.get("content"):
            reply = _said(message) if message.get("tool_calls") else keys[index]
    if reply:
        yield _after(state, reply), len(messages)


def _after(state: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(state + key, digest_size=16).digest()


def _said(message: Fields) -> bytes:
    return message_key({**message, "tool_calls": None})


def _leaves_out(repeated: Sequence[Fields], earlier: Sequence[Fields]) -> bool:
    """Return whether messages repeat some of the earlier ones, in their order, and no others."""
    mine, theirs = (
        [_said(m) for m in messages if m["role"] not in INSTRUCTING] for messages in (repeated, earlier)
    )
    rest = iter(theirs)
    return len(mine) < len(theirs) and all(key in rest for key in mine)
