"""Failures: one row per failure label that counts, with its quote and the tool concerned."""

import re
from collections.abc import Iterable
from functools import lru_cache

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.metrics.base import NO_FAILURE

BEHAVIOUR, TOOL_BEHAVIOUR = "agent_behavior_failure", "tool_call_behavior_failure"
FAILURE_METRICS = (BEHAVIOUR, TOOL_BEHAVIOUR)
# What an environment that fails can force upon an agent; every other label tells what the agent did of itself.
FORCED = ("repetition", "lack of specific information", "repeated tool call", "missing tool call")
RULE = "rule"  # the judge that speaks only where it finds a failure

_CONVERSATION = ("agent_id", "conversation_id")
_TURN = (*_CONVERSATION, "turn_index")
_IDENTITY = ("agent_id", "methodology_version", "conversation_id", "turn_index", "metric", "label")


def failure_judgments(turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """The judgments that count for failures: effective, scored, of a failure metric; 'no failure' included."""
    return turn_judgments.filter(_is_scored() & pl.col("is_effective"))


def impartial_judgments(turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """The scored judgments, effective or not, of whoever could also have said 'no failure': all but the rules.

    A rule is silent where it finds nothing, so that the turns it scored are the failing ones only. Turns that people
    differ on are left out: it is not known whether they failed.
    """
    scored = turn_judgments.filter(_is_scored() & (pl.col("judge") != RULE))
    disputed = turn_judgments.filter(pl.col("status") == "disputed")
    question = ["methodology_version", *_TURN, "metric"]
    return scored.join(disputed, on=question, how="anti") if disputed.height else scored


def labels(turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """One row per failure label, main or further, of each judgment that counts; each label once."""
    every = pl.concat_list(pl.col("label"), pl.col("further_labels").fill_null([])).list.unique()
    exploded = failure_judgments(turn_judgments).with_columns(every.alias("label")).explode("label")
    return exploded.filter(pl.col("label") != NO_FAILURE)


def failures(turn_judgments: pl.DataFrame, tool_calls: pl.DataFrame) -> pl.DataFrame:
    """Every failure label of the effective scored judgments, without its cluster (see `registry.register`).

    `tool` is filled for tool failures only: the one tool that the agent called in the turn; if it called
    several there, or none, the one of them (of the conversation's) that the evidence names, else the
    rationale; null when that leaves none or several. Nothing outside the conversation matters, so that
    a failure keeps its tool when others arrive.

    `fault_author` is the agent, as judges are asked what the agent did; but for a label that a failing
    environment can force (`FORCED`) it is the environment where every call of the turn failed, and null,
    unknown, where some did.

    Returns:
        One row per version, agent, conversation, turn, metric and label: the columns of table
        `failures` up to `fault_author`, sorted. An unscored judgment is no failure.
    """
    found = labels(turn_judgments)
    rationale, evidence = (_said(name) for name in ("rationale", "evidence"))
    told = (
        found.with_columns(rationale, evidence)
        .join(_tools(tool_calls, found), on=[*_TURN, "metric"], how="left")
        .join(_failed(tool_calls), on=_TURN, how="left")
    )
    identities = told.select(_IDENTITY).iter_rows()
    tools = told.select("of_turn", "of_conversation", "evidence", "rationale").iter_rows()
    return told.select(
        pl.Series("failure_id", [digest(*identity) for identity in identities], dtype=pl.String),
        "agent_id",
        "methodology_version",
        "conversation_id",
        "turn_index",
        "label",
        pl.coalesce("evidence", "rationale").alias("quote"),
        pl.col("rationale").alias("reason"),
        pl.Series("tool", [_tool(*row) for row in tools], dtype=pl.String),
        _fault_author(),
    ).sort("methodology_version", *_TURN, "label", "failure_id")


def _is_scored() -> pl.Expr:
    is_asked = pl.col("metric").is_in(FAILURE_METRICS)
    return is_asked & (pl.col("status") == "scored") & pl.col("label").is_not_null()


def _said(name: str) -> pl.Expr:
    """A text column, null where it is blank."""
    return pl.when(pl.col(name).str.strip_chars() != "").then(pl.col(name)).alias(name)


def _failed(tool_calls: pl.DataFrame) -> pl.DataFrame:
    """The share of the turn's calls, whoever made them, that ended in an error."""
    is_error = pl.col("is_error").fill_null(value=False)
    return tool_calls.group_by(_TURN).agg(is_error.mean().alias("share_failed"))


def _fault_author() -> pl.Expr:
    may_be_forced = pl.col("label").is_in(FORCED) & (pl.col("share_failed") > 0)
    return (
        pl.when(~may_be_forced.fill_null(value=False))
        .then(pl.lit("agent"))
        .when(pl.col("share_failed") == 1)
        .then(pl.lit("environment"))
        .alias("fault_author")
    )


def _tools(tool_calls: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Names of the tools that the agent called, per turn with a tool failure."""
    calls = tool_calls.filter(pl.col("requestor") == "assistant")
    names = pl.col("name").unique().sort()
    of_turn = calls.group_by(_TURN).agg(names.alias("of_turn"))
    of_conversation = calls.group_by(_CONVERSATION).agg(names.alias("of_conversation"))
    turns = found.filter(pl.col("metric") == TOOL_BEHAVIOUR).select(*_TURN, "metric").unique()
    return turns.join(of_turn, on=_TURN, how="left").join(of_conversation, on=_CONVERSATION, how="left")


def _tool(
    of_turn: list[str] | None, of_conversation: list[str] | None, evidence: str | None, rationale: str | None
) -> str | None:
    if of_turn and len(of_turn) == 1:
        return of_turn[0]
    candidates = tuple(of_turn or of_conversation or ())
    for text in (evidence, rationale):
        named = _named(candidates, text or "")
        if len(named) == 1:
            return named[0]
    return None


def _named(candidates: Iterable[str], text: str) -> list[str]:
    return [name for name in candidates if _whole_word(name).search(text)]


@lru_cache(maxsize=4096)
def _whole_word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
