"""Find the days of conversations, from the times of their messages or the dates of their sessions."""

import datetime
from collections.abc import Callable

import polars as pl

from agent_eval.formats.timestamps import parse_timestamp

CONVERSATION = ("agent_id", "conversation_id")
_MESSAGES = pl.List(pl.Struct({"timestamp": pl.String}))


def day_of(text: str) -> datetime.date | None:
    """Return the UTC day of an ISO 8601 text, or None."""
    try:
        return parse_timestamp(text).date()
    except ValueError:
        return None


def conversation_days(
    conversations: pl.DataFrame, sessions: pl.DataFrame, turns: pl.DataFrame
) -> pl.DataFrame:
    """Return the UTC day on which each conversation happened.

    Args:
        conversations: Columns `agent_id`, `conversation_id` and `session_id` of table conversations or transcripts.
        sessions: Columns `agent_id`, `session_id` and `session_date` of table sessions.
        turns: Columns `agent_id`, `conversation_id` and `messages` of table turns.

    Returns:
        One row per conversation with `day`: that of its earliest message with a time, else the declared date of its
        session, else null.
    """
    messages = turns.select(*CONVERSATION, message=pl.col("messages").str.json_decode(_MESSAGES)).explode(
        "message"
    )
    times = messages.with_columns(time=pl.col("message").struct.field("timestamp")).drop_nulls("time")
    timed = (
        times.with_columns(pl.Series("time", map(day_of, times["time"]), dtype=pl.Date))
        .group_by(CONVERSATION)
        .agg(pl.col("time").min())
    )
    dates = sessions.select("agent_id", "session_id", "session_date")
    return (
        conversations.join(dates, on=["agent_id", "session_id"], how="left", maintain_order="left")
        .join(timed, on=CONVERSATION, how="left", maintain_order="left")
        .select(*CONVERSATION, day=pl.coalesce("time", "session_date"))
    )


def days_of(read: Callable[..., pl.DataFrame], conversations: pl.DataFrame) -> pl.DataFrame:
    """Return the day of each of these conversations (see `conversation_days`).

    Args:
        read: A function that reads the rows of a stored table that match keys: name, keys, columns.
        conversations: Columns `agent_id`, `conversation_id` and `session_id`.
    """
    sessions = read("sessions", conversations.select("agent_id").unique())
    keys = conversations.select(CONVERSATION).unique()
    turns = read("turns", keys, columns=[*CONVERSATION, "messages"])
    return conversation_days(conversations, sessions, turns)
