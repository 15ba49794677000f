"""A conversation happened on the day of its first message with a time, else on the date of its session, else it is unknown."""

import datetime

import polars as pl

from agent_eval.transcripts.days import conversation_days


def test_the_day_is_that_of_the_first_time_in_utc() -> None:
    given = {
        "a": ('[{"timestamp": "2026-05-02T01:00:00+02:00"}]', None, datetime.date(2026, 5, 1)),
        "b": (
            '[{"timestamp": "2026-05-03T09:00:00.1"}]',
            datetime.date(2026, 1, 1),
            datetime.date(2026, 5, 3),
        ),
        "c": ('[{"timestamp": "yesterday"}]', datetime.date(2026, 1, 1), datetime.date(2026, 1, 1)),
        "d": ("[]", None, None),
        "e": (
            '[{"tool_calls": [{"arguments": {"timestamp": "2020-01-01"}}], "timestamp": "2026-05-04T00:00:00Z"}, {}]',
            None,
            datetime.date(2026, 5, 4),  # not that of the argument
        ),
    }
    ids = pl.DataFrame({"conversation_id": [*given]}).select(
        pl.lit("x").alias("agent_id"), "conversation_id", session_id="conversation_id"
    )
    sessions = ids.select(
        "agent_id", "session_id", session_date=pl.Series([s for _, s, _ in given.values()], dtype=pl.Date)
    )
    turns = ids.select("agent_id", "conversation_id", messages=pl.Series([m for m, _, _ in given.values()]))
    found = conversation_days(ids, sessions, pl.concat([turns, turns]))
    assert dict(found.select("conversation_id", "day").rows()) == {
        name: day for name, (_, _, day) in given.items()
    }
