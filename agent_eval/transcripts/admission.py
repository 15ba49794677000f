"""Decide which conversations count under a methodology version, and for which slot.

A session counts if it was run for the version (declared) or for any version (undeclared). Among an agent's
declared runs (sessions that share a benchmark_id), the latest valid run counts, never the best. Undeclared
sessions always count and fill no slot. Harness failures never count against the agent.
"""

import json
from collections.abc import Mapping

import polars as pl

from agent_eval.methodology.models import Methodology
from agent_eval.tables import table
from agent_eval.tables.frames import Agents, Conversations, Sessions
from agent_eval.tables.judging import HARNESS_FAILURE
from agent_eval.transcripts.injected_errors import describes_error
from agent_eval.transcripts.outcomes import is_crash
from agent_eval.transcripts.sessions import CONVERSATIONS

ANY = "any"
INJECTION = "error_injection"
_RUN = ["agent_id", "benchmark_id"]
_SESSION = ["agent_id", "session_id"]


def is_lost_to_harness() -> pl.Expr:
    """Return an expression for whether a row of the `transcripts` table was lost to a harness failure.

    The row is lost if its session is invalid and no other run of the agent counts for the version instead.
    """
    return pl.col("reason").str.starts_with(f"{HARNESS_FAILURE}: ").fill_null(False)


def admit_all(
    conversations: Conversations,
    sessions: Sessions,
    agents: Agents,
    methodologies: Mapping[str, Methodology],
) -> pl.DataFrame:
    """Return the `transcripts` table for several versions: the concatenated results of `admit`."""
    parts = (admit(conversations, sessions, agents, m) for m in methodologies.values())
    return pl.concat([table("transcripts").empty(), *parts])


def admit(
    conversations: pl.DataFrame, sessions: pl.DataFrame, agents: pl.DataFrame, methodology: Methodology
) -> pl.DataFrame:
    """Return the `transcripts` table for one version: one row per conversation, for any number of agents.

    Args:
        conversations: The `conversations` table.
        sessions: The `sessions` table, with every session of those conversations.
        agents: The `agents` table; an agent without a row has no template.
        methodology: The version.

    Source: methodology decisions 3, 5 and 9.
    """
    session_reasons = _reasons(_superseded(_declared(sessions, methodology.version)), methodology.version)
    columns = [*_SESSION, "benchmark_id", "is_declared", "reason", "superseded_by"]
    rows = (
        conversations.join(session_reasons.select(columns), on=_SESSION, how="left")
        .join(linked(sessions), on=[*_SESSION, "scenario"], how="left")
        .join(_templates(agents, methodology), on="agent_id", how="left")
        .with_columns(
            pl.lit(methodology.version).alias("methodology_version"),
            pl.col("benchmark_id").fill_null(pl.col("session_id")),
            _reason_of_orphans(),
            pl.when("is_declared").then("scenario").alias("slot"),
            _source_file(),
            _tests([test.slug for test in methodology.required_tests]),
        )
        .with_columns(pl.col("reason").is_null().alias("is_admitted"))
        .sort("agent_id", "conversation_id")
    )
    return table("transcripts").selected(rows)


def _source_file() -> pl.Expr:
    file = pl.format(f"{{}}/{{}}/{CONVERSATIONS}", *_SESSION)
    return pl.when(pl.col("source_line").is_not_null()).then(file).alias("source_file")


def _declared(sessions: pl.DataFrame, version: str) -> pl.DataFrame:
    versions = pl.col("methodology_versions")
    is_any = versions.list.contains(ANY)
    return sessions.with_columns(
        is_any.alias("is_any"),
        (~is_any & versions.list.contains(version)).alias("is_declared"),
    )


def _superseded(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add the column `superseded_by`: the agent's latest run of valid declared sessions.

    It is null for that run itself, and for sessions that are undeclared or invalid.
    """
    counts = pl.col("is_declared") & pl.col("invalid_reason").is_null()
    runs = sessions.filter(counts).group_by(_RUN).agg(pl.col("session_date").max())
    latest = (
        runs.sort("session_date", "benchmark_id", nulls_last=False)
        .group_by("agent_id", maintain_order=True)
        .agg(pl.col("benchmark_id").last().alias("latest"))
    )
    is_older = counts & (pl.col("benchmark_id") != pl.col("latest"))
    return sessions.join(latest, on="agent_id", how="left").with_columns(
        pl.when(is_older).then("latest").alias("superseded_by")
    )


def _reasons(sessions: pl.DataFrame, version: str) -> pl.DataFrame:
    run_for = pl.col("methodology_versions").list.join(", ")
    return sessions.with_columns(
        pl.when(~pl.col("is_declared") & ~pl.col("is_any"))
        .then(pl.format("its session was run for {}, not for {}", run_for, pl.lit(version)))
        .when(
            pl.col("invalid_reason").is_not_null()
            & pl.col("is_declared")
            & (pl.col("latest") != pl.col("benchmark_id"))
        )
        .then(pl.format(f"{HARNESS_FAILURE}, run {{}} counts: {{}}", "latest", "invalid_reason"))
        .when(pl.col("invalid_reason").is_not_null())
        .then(pl.format(f"{HARNESS_FAILURE}: {{}}", "invalid_reason"))
        .when(pl.col("superseded_by").is_not_null())
        .then(pl.format("superseded by {}", "superseded_by"))
        .alias("reason")
    )


def _reason_of_orphans() -> pl.Expr:
    is_orphan = pl.col("is_declared").is_null()
    return (
        pl.when(is_orphan)
        .then(pl.lit("its session is not in table sessions"))
        .otherwise("reason")
        .alias("reason")
    )


def linked(sessions: pl.DataFrame) -> pl.DataFrame:
    """Return the explicit links: one row per session and scenario, with the required test that it covers."""
    stated = sessions.select(*_SESSION, "links").filter(pl.col("links").is_not_null())
    rows = [
        (agent, session, slot, test)
        for agent, session, links in stated.iter_rows()
        for slot, test in json.loads(links).items()
    ]
    return pl.DataFrame(
        rows, schema=dict.fromkeys((*_SESSION, "scenario", "linked"), pl.String), orient="row"
    )


def _templates(agents: pl.DataFrame, methodology: Methodology) -> pl.DataFrame:
    slugs = {t.category: t.slug for t in methodology.templates}
    category = pl.col("category")
    slug = category.replace_strict(slugs, default=None, return_dtype=pl.String)
    return agents.select("agent_id", slug.alias("template"))


def _tests(slugs: list[str]) -> pl.Expr:
    """Return an expression for the required tests that a conversation covers, in the version's order.

    A conversation covers the test of its scenario and the one that its session links to the scenario, if it shows what the
    test asks for: a user message, a reply or the agent's crash, and for the injection also an error that was injected.
    Conversations of undeclared sessions cover no tests.
    """
    is_injected = pl.col("injected_error").map_elements(
        lambda text: describes_error(json.loads(text)), return_dtype=pl.Boolean
    )
    is_run = _is_evidence() & pl.col("is_declared")
    served = [
        pl.when(
            ((pl.col("scenario") == slug) | (pl.col("linked") == slug))
            & (is_injected if slug == INJECTION else pl.lit(value=True))
        ).then(pl.lit(slug))
        for slug in slugs
    ]
    none = pl.lit([], dtype=pl.List(pl.String))
    tests = pl.concat_list(served).list.drop_nulls() if served else none
    return pl.when(is_run).then(tests).otherwise(none).alias("tests")


def _is_evidence() -> pl.Expr:
    """Return whether a conversation shows something of the agent: it was asked, it replied, or it crashed.

    A failure of the harness before the first reply shows nothing. What an earlier release stored counts by its turns.
    """
    has_replied = (pl.col("n_replies") > 0).fill_null(pl.col("n_turns") > 0)
    is_asked = pl.col("opening_hash").is_not_null() & (pl.col("outcome_class") != "harness_error").fill_null(
        value=True
    )
    return has_replied | is_asked | is_crash()
