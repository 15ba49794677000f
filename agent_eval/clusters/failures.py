"""Extract failures: one row per effective failure label, with its quote and the tool concerned."""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby

import polars as pl

from agent_eval.formats.hashing import digest
from agent_eval.metrics.base import DEFAULT_SEVERITY, NO_FAILURE, SEVERITIES
from agent_eval.metrics.metric_set import DEFAULT

BEHAVIOUR, TOOL_BEHAVIOUR = "agent_behavior_failure", "tool_call_behavior_failure"
FAILURE_METRICS = tuple(metric.name for metric in DEFAULT.turn if metric.is_failure)
# Labels that a failing environment can cause; all others describe the agent's own behaviour.
FORCED = ("repetition", "lack of specific information", "repeated tool call", "missing tool call")
RULE = "rule"  # a judge that reports only failures

FACETS = (
    *("rationale", "evidence", "message_index", "speaker"),
    *("cause", "should_have", "further_causes", "further_should_have"),
)
"""Columns of the judgments that describe a failure."""
TOOL_COLUMNS = ("agent_id", "conversation_id", "turn_index", "requestor", "name", "is_error")
"""The columns of tool_calls that `failures` reads."""
RUN_COLUMNS = ("methodology_version", "agent_id", "conversation_id", "session_id", "benchmark_id")
"""The columns of transcripts that `with_run_key` reads."""
_CONVERSATION = ("agent_id", "conversation_id")
_TURN = (*_CONVERSATION, "turn_index")
_IDENTITY = ("agent_id", "methodology_version", "conversation_id", "turn_index", "metric", "label")


def failure_judgments(turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the effective, scored judgments of failure metrics, including 'no failure'."""
    return turn_judgments.filter(_is_scored() & pl.col("is_effective"))


def impartial_judgments(turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return the scored judgments of failure metrics by judges other than rules, whether or not they are effective.

    Judgments by rules are excluded because a rule scores only failing turns. Turns on which people disagree are
    excluded because it is unknown whether they failed.
    """
    scored = turn_judgments.filter(_is_scored() & (pl.col("judge") != RULE))
    disputed = turn_judgments.filter(pl.col("status") == "disputed")
    question = ["methodology_version", *_TURN, "metric"]
    return scored.join(disputed, on=question, how="anti") if disputed.height else scored


def labels(turn_judgments: pl.DataFrame) -> pl.DataFrame:
    """Return one row per distinct failure label, main or further, of each effective judgment."""
    rows = failure_judgments(turn_judgments).with_row_index("judgment")
    every = pl.concat_list(pl.col("label"), pl.col("further_labels").fill_null([]))
    exploded = rows.with_columns(every.alias("label"), pl.int_ranges(every.list.len()).alias("at")).explode(
        "label", "at"
    )
    first = exploded.unique(["judgment", "label"], keep="first", maintain_order=True)
    return first.filter(pl.col("label") != NO_FAILURE)


def failures(turn_judgments: pl.DataFrame, tool_calls: pl.DataFrame) -> pl.DataFrame:
    """Return every failure label of the effective, scored judgments, without its cluster (see `register`).

    `tool` is set only for tool failures. If the agent called exactly one tool in the turn, it is that tool.
    Otherwise, it is the single tool that the evidence names, or else the rationale, among the tools called in the
    turn (or in the conversation, if the turn has no calls). It is null if this is not unique. Only the
    conversation itself is used, so that a failure keeps its tool when other failures are added.

    `fault_author` is usually the agent, because judges are asked about the agent's behaviour. For a label that a
    failing environment can cause (`FORCED`), it is the environment if every call of the turn failed, and null
    (unknown) if only some calls failed.

    Returns:
        One row per version, agent, conversation, turn, metric and label, sorted, with the columns of table
        `failures` up to `fault_author`. An unscored judgment is not a failure.
    """
    label_rows = labels(turn_judgments)
    rationale, evidence = (_said(name) for name in ("rationale", "evidence"))
    with_tools = (
        label_rows.with_columns(rationale, evidence)
        .join(_tools(tool_calls, label_rows), on=[*_TURN, "metric"], how="left")
        .join(_failed(tool_calls), on=_TURN, how="left")
    )
    identities = with_tools.select(_IDENTITY).iter_rows()
    tools = with_tools.select("of_turn", "of_conversation", "evidence", "rationale").iter_rows()
    return with_tools.select(
        pl.Series("failure_id", [digest(*identity) for identity in identities], dtype=pl.String),
        "agent_id",
        "methodology_version",
        "conversation_id",
        "turn_index",
        "label",
        pl.coalesce("evidence", "rationale").alias("quote"),
        pl.col("rationale").alias("reason"),
        *(
            _of_label(*names)
            for names in (("cause", "further_causes"), ("should_have", "further_should_have"))
        ),
        "message_index",
        "speaker",
        pl.Series("tool", [_tool(*row) for row in tools], dtype=pl.String),
        _fault_author(),
    ).sort("methodology_version", *_TURN, "label", "failure_id")


def with_run_key(failures: pl.DataFrame, transcripts: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Return failures with `run_key`, which orders their runs as trends do: by date and then by benchmark_id.

    The key is the date of the session; without one it is 0000-00-00 and the benchmark_id, whose numbers are padded so that
    run 10 follows run 9. It is null for a conversation without a row in `transcripts`.

    Args:
        failures: As returned by `failures`.
        transcripts: Table `transcripts`; at least `RUN_COLUMNS`.
        sessions: Table `sessions`; at least its key and session_date.
    """
    conversation = ["methodology_version", *_CONVERSATION]
    session = ["agent_id", "session_id"]
    keyed = (
        transcripts.select(RUN_COLUMNS)
        .join(sessions.select(*session, "session_date"), on=session, how="left")
        .select(
            *conversation,
            run_key=pl.coalesce(
                pl.col("session_date").cast(pl.String),
                pl.format("0000-00-00 {}", _padded(pl.col("benchmark_id"))),
            ),
        )
    )
    return failures.join(keyed, on=conversation, how="left", maintain_order="left")


LEAST_OVERLAP = 12
"""Characters that two different quotes have to share to be about one event, unless one contains the other."""


def with_findings(failures: pl.DataFrame) -> pl.DataFrame:
    """Return failures with `finding_id`, which failures of one event have in common.

    They are of one turn and, if both are known, one message, and their quotes overlap: one contains the other, or they share
    at least half of the shorter one. Failures without a quote are findings of their own.

    Args:
        failures: Table `failures`; any finding_id is replaced.
    """
    own_findings = failures.with_columns(finding_id=pl.col("failure_id"))
    place = ["methodology_version", *_TURN]
    several = own_findings.filter(pl.col("quote").is_not_null() & (pl.len().over(place) > 1))
    firsts: dict[str, str] = {}
    rows_of = several.sort(place).select(*place, "failure_id", "label", "quote", "message_index").iter_rows()
    for _, of_turn in groupby(rows_of, key=lambda row: row[: len(place)]):
        rows = sorted(
            (row[len(place) :] for row in of_turn), key=lambda row: (-_severity(row[1]), row[1], row[0])
        )
        events: list[list[tuple[str, str, str, int | None]]] = []
        for row in rows:
            same = [e for e in events if any(_is_one_event(row, other) for other in e)]
            events = [e for e in events if e not in same] + [[*(r for e in same for r in e), row]]
        for event in events:
            first = min(event, key=rows.index)
            firsts |= {row[0]: first[0] for row in event}
    joined = pl.col("failure_id").replace_strict(firsts, default=pl.col("failure_id"), return_dtype=pl.String)
    return own_findings.with_columns(finding_id=joined)


def _severity(label: str) -> int:
    return SEVERITIES.index(DEFAULT.severities.get(label, DEFAULT_SEVERITY))


def n_findings() -> pl.Expr:
    """Return the number of distinct findings among failures: one event with several labels counts once."""
    return pl.coalesce("finding_id", "failure_id").n_unique()


def _is_one_event(a: tuple[str, str, str, int | None], b: tuple[str, str, str, int | None]) -> bool:
    if a[3] is not None and b[3] is not None and a[3] != b[3]:
        return False
    short, long = sorted((" ".join(row[2].lower().split()) for row in (a, b)), key=len)
    if short == long or (len(short) >= LEAST_OVERLAP and short in long):
        return True
    return any(
        long.endswith(short[:n]) or long.startswith(short[-n:])
        for n in range(max(LEAST_OVERLAP, -(-len(short) // 2)), len(short))
    )


def _padded(text: pl.Expr) -> pl.Expr:
    """Return a text with zeros before its numbers, so that texts sort as their numbers do."""
    return text.str.replace_all(r"(\d+)", "000000000000$1").str.replace_all(r"0+(\d{12})", "$1")


def _of_label(main: str, further: str) -> pl.Expr:
    """Return the text on the label of a row: that of the main label, or of the further label at its position."""
    of_further = pl.col(further).list.get(pl.col("at") - 1, null_on_oob=True)
    return pl.when(pl.col("at") == 0).then(pl.col(main)).otherwise(of_further).alias(main)


def _is_scored() -> pl.Expr:
    is_asked = pl.col("metric").is_in(FAILURE_METRICS)
    return is_asked & (pl.col("status") == "scored") & pl.col("label").is_not_null()


def _said(name: str) -> pl.Expr:
    """Return the expression of a text column with blank texts replaced by null."""
    return pl.when(pl.col(name).str.strip_chars() != "").then(pl.col(name)).alias(name)


def _failed(tool_calls: pl.DataFrame) -> pl.DataFrame:
    """Return the share of each turn's calls, by the agent or the user, that ended in an error."""
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


def _tools(tool_calls: pl.DataFrame, label_rows: pl.DataFrame) -> pl.DataFrame:
    """Return the names of the tools that the agent called, for each turn with a tool failure."""
    calls = tool_calls.filter(pl.col("requestor") == "assistant")
    names = pl.col("name").unique().sort()
    of_turn = calls.group_by(_TURN).agg(names.alias("of_turn"))
    of_conversation = calls.group_by(_CONVERSATION).agg(names.alias("of_conversation"))
    turns = label_rows.filter(pl.col("metric") == TOOL_BEHAVIOUR).select(*_TURN, "metric").unique()
    return turns.join(of_turn, on=_TURN, how="left").join(of_conversation, on=_CONVERSATION, how="left")


def _tool(
    of_turn: list[str] | None, of_conversation: list[str] | None, evidence: str | None, rationale: str | None
) -> str | None:
    if of_turn and len(of_turn) == 1:
        return of_turn[0]
    candidates = tuple(of_turn or of_conversation or ())
    for text in (evidence, rationale):
        named_tools = _named(candidates, text or "")
        if len(named_tools) == 1:
            return named_tools[0]
    return None


def _named(candidates: Iterable[str], text: str) -> list[str]:
    return [name for name in candidates if _whole_word(name).search(text)]


@lru_cache(maxsize=4096)
def _whole_word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
