"""Render conversations for the page of asset `transcripts`: sources and first turns, with escaped text."""

from typing import Any

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.report.links import row_page
from agent_eval.report.markdown import escape, link, markdown_table

MOST_CONVERSATIONS = 3
MOST_TURNS = 6
MOST_CHARACTERS = 200  # maximum number of characters of a message
_PAIR = ["agent_id", "methodology_version"]
_CONVERSATION = ["agent_id", "conversation_id"]
TURN_COLUMNS = (*_CONVERSATION, "turn_index", "user_message", "agent_message", "n_tool_calls")
"""The columns of table turns that the page shows."""


def shown_first(transcripts: pl.DataFrame) -> pl.DataFrame:
    """Return the transcripts that each agent's page shows: first those that count, then the others, by id."""
    ordered = transcripts.sort(*_PAIR, ~pl.col("is_admitted"), "conversation_id")
    return ordered.group_by(_PAIR, maintain_order=True).head(MOST_CONVERSATIONS)


def first_turns(transcripts: pl.DataFrame) -> pl.DataFrame:
    """Return the keys of the first turns of these conversations: agent_id, conversation_id, turn_index."""
    indices = pl.DataFrame({"turn_index": range(MOST_TURNS)}, schema={"turn_index": pl.Int64})
    return transcripts.select(_CONVERSATION).unique(maintain_order=True).join(indices, how="cross")


def conversations_page(transcripts: pl.DataFrame, turns: pl.DataFrame) -> str:
    """Return Markdown: the source, counts and content hash of each transcript, then a table of its first turns.

    Args:
        transcripts: The rows of table transcripts to show, for one agent and version.
        turns: The first turns of these conversations, with `TURN_COLUMNS`; turns of other conversations are ignored.
    """
    parts = []
    for row in transcripts.iter_rows(named=True):
        own = turns.filter(*(pl.col(key) == row[key] for key in _CONVERSATION)).sort("turn_index")
        turns_table = markdown_table(own.drop(_CONVERSATION), limit=MOST_CHARACTERS)
        left_out = row["n_turns"] - own.height
        more = f"\n\n{count_of(left_out, 'more turn')} in the report" if left_out > 0 else ""
        parts.append(f"{_heading(row)}\n\n{turns_table}{more}")
    return "\n\n".join(parts) or "no conversations"


def _heading(row: dict[str, Any]) -> str:
    source = "no file" if row["source_file"] is None else f"{row['source_file']}, line {row['source_line']}"
    counts = "counts" if row["is_admitted"] else f"does not count: {row['reason']}"
    facts = f"{source} · {count_of(row['n_turns'], 'turn')} · {count_of(row['n_tool_calls'], 'tool call')} · {counts}"
    return f"**{link(row['conversation_id'], row_page(row), MOST_CHARACTERS)}** · {escape(facts)} · hash {row['content_hash']}"
