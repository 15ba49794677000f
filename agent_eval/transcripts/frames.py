"""Convert conversations to table rows and back, without losing any information that judges need."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from pydantic import ConfigDict, JsonValue, TypeAdapter

from agent_eval.formats.json_text import dumps
from agent_eval.tables import table
from agent_eval.transcripts.content_hash import (
    conversation_hash,
    messages_hash,
    opening_hash,
    own_words_hash,
    turn_hashes,
)
from agent_eval.transcripts.models import Conversation, Message, Turn
from agent_eval.transcripts.text_sketch import text_sketch

Row = dict[str, object]

_MESSAGES = TypeAdapter(tuple[Message, ...], config=ConfigDict(defer_build=True))
_CHUNK = 20_000
_KEYS = ("agent_id", "conversation_id")


@dataclass
class Rows:
    """Collect rows of one table into a frame.

    Rows are converted to frames in batches, so that only one batch is in memory as Python objects.
    """

    name: str
    pending: list[Row] = field(default_factory=list[Row])
    chunks: list[pl.DataFrame] = field(default_factory=list[pl.DataFrame])

    def add(self, row: Row) -> None:
        """Add one row; a missing column is null."""
        self.pending.append(row)
        if len(self.pending) >= _CHUNK:
            self._flush()

    def frame(self, *, is_distinct: bool = False) -> pl.DataFrame:
        """Return all rows, checked against the table's contract.

        If `is_distinct` is true, only the first row of each key is returned.
        """
        self._flush()
        rows = pl.concat([table(self.name).empty(), *self.chunks])
        if is_distinct:
            rows = rows.unique(table(self.name).key, keep="first", maintain_order=True)
        return table(self.name).conform(rows)

    def _flush(self) -> None:
        if self.pending:
            self.chunks.append(table(self.name).frame(self.pending))
            self.pending.clear()


@dataclass(frozen=True)
class ConversationRows:
    """Collect the rows of the `conversations`, `turns` and `tool_calls` tables."""

    conversations: Rows = field(default_factory=lambda: Rows("conversations"))
    turns: Rows = field(default_factory=lambda: Rows("turns"))
    tool_calls: Rows = field(default_factory=lambda: Rows("tool_calls"))

    def add(
        self,
        agent_id: str,
        session_id: str,
        task_set: str | None,
        conversation: Conversation,
        line: int | None = None,
    ) -> None:
        """Add one conversation with its turns and tool calls.

        `line` is the line number in the session's file, starting at 1.
        """
        turns = conversation.turns()
        hashes = list(turn_hashes(conversation, turns))
        keys: Row = {"agent_id": agent_id, "conversation_id": conversation.conversation_id}
        for turn, content_hash in zip(turns, hashes, strict=True):
            self.turns.add(keys | _turn_row(turn) | {"content_hash": content_hash})
            for index, call in enumerate(turn.tool_calls):
                row = call.model_dump(mode="json") | {"arguments": dumps(call.arguments)}
                self.tool_calls.add(keys | {"turn_index": turn.turn_index, "call_index": index} | row)
        row = _conversation_row(conversation, turns) | {
            "session_id": session_id,
            "task_set": None if conversation.task_id is None else task_set,
            "source_line": line,
        }
        self.conversations.add(
            keys | row | {"content_hash": conversation_hash(conversation, hashes[-1] if hashes else None)}
        )


def has_ground_truth() -> pl.Expr:
    """Return whether the column `expected` has any entry; `EXPECTED` reads what the entries are."""
    return (pl.col("expected") != "[]").fill_null(False)


def conversations_from(
    conversations: pl.DataFrame, turns: pl.DataFrame
) -> Iterator[tuple[str, Conversation]]:
    """Yield (agent_id, conversation) from the `conversations` and `turns` tables, sorted by agent and conversation.

    Content hashes are preserved. A conversation without turns in `turns` has no messages.
    """
    keys = list(_KEYS)
    spoken = turns.sort([*keys, "turn_index"]).group_by(keys, maintain_order=True).agg("messages")
    joined = conversations.join(spoken, on=keys, how="left").sort(keys)
    for row in joined.iter_rows(named=True):
        yield row["agent_id"], _conversation(row)


def _conversation(row: dict[str, Any]) -> Conversation:
    read = {name: _loads(row[name]) for name in ("tools", "interventions", "injected_error")}
    filled = {name: _loads(row[name]) for name in ("knowledge", "expected", "metadata") if row[name]}
    plain = ("conversation_id", "task_id", "task_family", "trial", "scenario", "goal", "profile", "source")
    outcome = {name: row[f"outcome_{name}"] for name in ("correct", "reward", "source", "error", "basis")}
    outcome["outcome_class"] = row["outcome_class"]
    messages: list[JsonValue] = [message for text in row["messages"] or () for message in json.loads(text)]
    return Conversation.model_validate(
        {name: row[name] for name in plain} | read | filled | {"outcome": outcome, "messages": messages}
    )


def _loads(text: str | None) -> JsonValue:
    value: JsonValue = None if text is None else json.loads(text)
    return value


def _turn_row(turn: Turn) -> Row:
    return {
        "turn_index": turn.turn_index,
        "user_message": turn.user_message,
        "agent_message": turn.agent_message,
        "messages": _MESSAGES.dump_json(turn.messages, exclude_none=True).decode(),
        "n_tool_calls": len(turn.tool_calls),
        "latency_ms": turn.latency_ms,
    }


def _conversation_row(c: Conversation, turns: tuple[Turn, ...]) -> Row:
    roles = [message.role for message in c.messages]
    return {
        **{
            name: getattr(c, name)
            for name in ("task_id", "task_family", "trial", "scenario", "goal", "profile", "source")
        },
        "n_turns": len(turns),
        "n_user_messages": roles.count("user"),
        "n_agent_messages": roles.count("assistant"),
        "n_requests": c.n_requests,
        "n_replies": c.n_replies,
        "n_tool_calls": sum(len(turn.tool_calls) for turn in turns),
        "knowledge": dumps(c.knowledge),
        "tools": None if c.tools is None else dumps(c.tools),
        "expected": dumps([e.model_dump(mode="json") for e in c.expected]),
        "interventions": None
        if c.interventions is None
        else dumps([i.model_dump() for i in c.interventions]),
        "injected_error": None if c.injected_error is None else dumps(c.injected_error),
        "outcome_correct": c.outcome.correct,
        "outcome_reward": c.outcome.reward,
        "outcome_source": c.outcome.source,
        "outcome_class": c.outcome.classified,
        "outcome_basis": c.outcome.basis,
        "outcome_error": c.outcome.error,
        "cost_usd": _cost(c),
        "metadata": dumps(c.metadata),
        "messages_hash": messages_hash(c) if c.scenario or c.injected_error else None,
        "own_words_hash": own_words_hash(c) if c.scenario or c.injected_error else None,
        "opening_hash": opening_hash(c),
        "text_sketch": text_sketch(c) if c.scenario or c.injected_error else None,
    }


def _cost(conversation: Conversation) -> float | None:
    """Return the agent's cost in US dollars: `metadata.agent_cost_usd`, else the sum over its messages.

    A message without a cost counts as 0, because greetings are fixed text. If none of the agent's messages has
    a cost, the cost is unknown (None). Messages of the user simulator are not counted.
    """
    declared = conversation.metadata.get("agent_cost_usd")
    if isinstance(declared, int | float) and not isinstance(declared, bool) and 0 <= declared < 10**15:
        return float(declared)
    costs = [m.cost_usd for m in conversation.messages if m.role == "assistant" and m.cost_usd is not None]
    return sum(costs) if costs else None
