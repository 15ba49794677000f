"""Render ingested data for the Dagster UI: outcomes, tools, refused records and conversations that count."""

import polars as pl

from agent_eval.report.markdown import markdown_table
from agent_eval.report.svg import AMBER, GREEN, GREY, RED, Bar, BarPart, bars

MOST = 25  # maximum number of rows in a table
CALLS = ("agent_id", "name", "is_error")
"""The columns of table tool_calls by which calls are counted."""
_AGENT = "agent_id"
_PAIR = ["agent_id", "methodology_version"]


def agent_table(agents: pl.DataFrame) -> str:
    """Return the agent's description as a Markdown table."""
    return markdown_table(agents.select("name", "category", "template", "provider", "baseline"), limit=80)


def sessions_table(sessions: pl.DataFrame) -> str:
    """Return a table with one line per session: date, evaluator, versions, disclosures and errors of the harness."""
    listed = sessions.select(
        pl.col("session_id").alias("session"),
        pl.col("session_date").alias("date"),
        "evaluator",
        pl.col("methodology_versions").alias("versions"),
        "u3_scope",
        "repeatability_tested",
        pl.col("invalid_reason").alias("invalid"),
    )
    return _head(listed)


def outcomes(conversations: pl.DataFrame) -> pl.DataFrame:
    """Return one row per agent and session: conversations by outcome, turns, tool calls and cost.

    The cost is null if it is unknown for any conversation.
    """
    is_correct = pl.col("outcome_correct")
    return (
        conversations.group_by(_AGENT, "session_id")
        .agg(
            conversations=pl.len(),
            correct=is_correct.fill_null(value=False).sum(),
            wrong=(~is_correct).fill_null(value=False).sum(),
            no_outcome=is_correct.is_null().sum(),
            turns=pl.col("n_turns").sum(),
            tool_calls=pl.col("n_tool_calls").sum(),
            cost_usd=pl.when(pl.col("cost_usd").null_count() == 0).then(pl.col("cost_usd").sum()),
        )
        .sort(_AGENT, "session_id")
    )


def outcomes_plot(session_counts: pl.DataFrame) -> str:
    """Draw one bar per session: correct and wrong conversations, and those without a declared outcome."""
    colours = (
        ("correct", GREEN, "correct"),
        ("wrong", RED, "wrong"),
        ("no_outcome", GREY, "no outcome declared"),
    )
    rows = [
        Bar(
            row["session_id"],
            tuple(BarPart(row[column], colour, name) for column, colour, name in colours if row[column]),
            f"n = {row['conversations']}",
        )
        for row in session_counts.iter_rows(named=True)
    ]
    return bars("Conversations by declared outcome", rows)


def counts_table(counts: pl.DataFrame) -> str:
    """Return a table of the counts without the agent column, since the page belongs to one agent."""
    return _head(counts.drop(_AGENT))


def turn_counts(turns: pl.DataFrame) -> pl.DataFrame:
    """Return one row per agent: turns, turns without a reply, tool calls, median reply length and median latency."""
    return (
        turns.group_by(_AGENT)
        .agg(
            turns=pl.len(),
            without_reply=pl.col("agent_message").is_null().sum(),
            with_tool_calls=(pl.col("n_tool_calls") > 0).sum(),
            tool_calls=pl.col("n_tool_calls").sum(),
            median_reply_characters=pl.col("agent_message").str.len_chars().median(),
            median_latency_ms=pl.col("latency_ms").median(),
        )
        .sort(_AGENT)
    )


def tool_counts(tool_calls: pl.DataFrame) -> pl.DataFrame:
    """Return one row per agent and tool, most called first: calls, errors, and calls with unknown result.

    Args:
        tool_calls: Rows of table tool_calls, or `n`, the number of these, by the columns `CALLS`.
    """
    n = pl.col("n") if "n" in tool_calls.columns else pl.lit(1)
    is_error = pl.col("is_error").fill_null(value=False)
    return (
        tool_calls.with_columns(n=n.cast(pl.Int64))
        .group_by(_AGENT, "name")
        .agg(
            pl.col("n").sum(),
            n_errors=pl.col("n").filter(is_error).sum(),
            n_unknown=pl.col("n").filter(pl.col("is_error").is_null()).sum(),
        )
        .sort(_AGENT, "n", "name", descending=[False, True, False])
    )


def tools_plot(call_counts: pl.DataFrame) -> str:
    """Draw one bar per tool: calls that were answered, failed, or have an unknown result."""
    rows = [
        Bar(
            row["name"],
            tuple(
                BarPart(n, colour, name)
                for n, colour, name in (
                    (row["n"] - row["n_errors"] - row["n_unknown"], GREEN, "answered"),
                    (row["n_errors"], RED, "error"),
                    (row["n_unknown"], GREY, "unknown"),
                )
                if n
            ),
            str(row["n"]),
        )
        for row in call_counts.iter_rows(named=True)
    ]
    return bars("Tool calls", rows)


def refused_table(import_errors: pl.DataFrame) -> str:
    """Return a table of the refused records by file and line, with the reason and the fix."""
    return _head(import_errors.select("file", "line", "reason"))


def admitted(transcripts: pl.DataFrame) -> pl.DataFrame:
    """Return the number of conversations and turns per agent, version, slot and reason for not counting."""
    return (
        transcripts.group_by(*_PAIR, "slot", "is_admitted", "reason")
        .agg(conversations=pl.len(), turns=pl.col("n_turns").sum())
        .sort(*_PAIR, "slot", "is_admitted", "reason", descending=[False, False, False, True, False])
    )


def slots_plot(slot_counts: pl.DataFrame) -> str:
    """Draw one bar per slot: conversations that count, and conversations that do not."""
    parts: dict[str, list[BarPart]] = {}
    for slot, is_admitted, n in slot_counts.select("slot", "is_admitted", "conversations").iter_rows():
        part = BarPart(n, GREEN, "counts") if is_admitted else BarPart(n, AMBER, "does not count")
        parts.setdefault(slot or "no slot", []).append(part)
    rows = [
        Bar(slot, tuple(segments), f"{sum(p.size for p in segments):g}") for slot, segments in parts.items()
    ]
    return bars("Conversations by slot", rows)


def reasons_table(slot_counts: pl.DataFrame) -> str:
    """Return a table of the reasons why conversations do not count."""
    left_out = slot_counts.filter(~pl.col("is_admitted")).select("slot", "conversations", "reason")
    return "every conversation counts" if left_out.is_empty() else _head(left_out)


def _head(rows: pl.DataFrame) -> str:
    first_rows = markdown_table(rows.head(MOST), limit=160)
    return first_rows if rows.height <= MOST else f"{first_rows}\n\n{MOST} of {rows.height} rows"
