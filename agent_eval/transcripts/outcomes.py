"""Classify how a trial ended, based on the correctness, reward and error in the file.

Every trial has one outcome class. A trial that ends in an error known to be the agent's counts as failed. An error
known to be the harness's (provider, environment, simulator, infrastructure) is not evidence about the agent, so the
outcome is unknown. Every other error has an unknown cause: the trial counts as its source declares (a reward of 0 is
a failure), else it is unknown, and the worst to best case covers both causes. docs/formats.md documents the mapping
for each format.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import polars as pl

from agent_eval.formats.refusals import Refusal
from agent_eval.formats.yaml import read_document, read_text

OutcomeClass = Literal["passed", "failed", "agent_error", "harness_error", "unexplained_error", "unknown"]
OutcomeBasis = Literal["declared", "reward", "error", "exit", "contradicting"]
"""What an outcome was derived from: the source's own verdict, a reward, an error, an exit state, or success components
that contradict each other."""
CLASSES: tuple[OutcomeClass, ...] = get_args(OutcomeClass)
HARNESS_FAILED = "the harness failed: it says nothing of the agent"
UNEXPLAINED = "an error of unknown cause ended it: the agent or the harness may have failed"
ROUNDING = 1e-6  # tolerance within which a reward counts as 0 or 1
_CAUSES = "error_causes.yaml"
_LONGEST = 20_000  # characters of an error in which patterns are searched


class ErrorCause(NamedTuple):
    """Hold one line of error_causes.yaml: errors of one kind, with the source of the pattern."""

    name: str
    is_harness: bool
    pattern: re.Pattern[str]
    source: str


@cache
def error_causes() -> tuple[ErrorCause, ...]:
    """Return the packaged list of errors whose cause is known."""
    lines = cast(
        "list[dict[str, str]]", read_document(read_text(Path(__file__).parent / _CAUSES), "text").value
    )
    return tuple(
        ErrorCause(
            line["name"], line["class"] == "harness", re.compile(line["pattern"], re.I), line["source"]
        )
        for line in lines
    )


_OF_THE_AGENT = re.compile(
    r"\b(agent|tool|assistant|function|solution|submission|submitted|candidate)\b"
    r"|\bgenerated (code|function|module|patch|program|script|test)s?\b|\b(curl|wget|npm|pip|git|apt(-get)?)\b"
    r"|^\W*(Key|Value|Type|Index|Attribute|Name|Assertion|Lookup|ZeroDivision|FileNotFound|JSONDecode|Validation"
    r"|Tool)\w*Error\b",
    re.IGNORECASE,
)
"""Errors that name the agent, a tool, a command or what the agent made, or begin with an exception from its code."""

_OF_OTHERS = re.compile(
    r"\b(user[ _-]?simulator|simulator|simulated user|judge|grader|checker|evaluator|verifier)\b|UserSimulator",
    re.IGNORECASE,
)
"""Errors that name another program with a model, whose limits and arguments are not the agent's."""

_FRAME = re.compile(r'(?P<indent>[ \t|]*)File "[^"]*", line \d+')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_QUALIFIED = re.compile(r"(?:[a-z]\w*\.)+[A-Z]\w*(?=:|$)")
_EXCEPTION = re.compile(r"(?P<module>(?:\w+\.)*)(?P<name>\w+)(?=:|\n|$)")

CONTRADICTING = "base_success: contradicting values"
_READ: tuple[OutcomeBasis, ...] = ("reward", "error", "exit")
"""Bases of failures that were derived from a reward of 0, an error or an exit state rather than declared."""
_EARLIER: Mapping[str, OutcomeBasis] = {
    **dict.fromkeys(("base_success", "correct", "passed"), "declared"),
    "reward": "reward",
    **dict.fromkeys(("error", "info.error"), "error"),
    **dict.fromkeys(("termination_reason", "exit_status"), "exit"),
}
"""Last word of `source`, as importers wrote it before the field `basis` → the basis. Only such files are read by it."""


def harness_cause(error: str) -> str | None:
    """Return the listed kind of harness error that the text describes, or None."""
    return _kind(error, is_harness=True)


def agent_cause(error: str) -> str | None:
    """Return the listed kind of the agent's own error that the text describes, or None."""
    return _kind(error, is_harness=False)


def _kind(error: str, *, is_harness: bool) -> str | None:
    """Return the first listed kind of the class.

    The exception type decides, not what its message mentions, if the text is a traceback or begins with a type and its
    module (`litellm.RateLimitError: …`).
    """
    final = final_exception(error)
    final = error if final is None and _QUALIFIED.match(error) else final
    raised = None if final is None else _EXCEPTION.match(final)
    if final is None or raised is None:
        return _searched(error if final is None else final, is_harness=is_harness)
    if is_harness and (_OF_THE_AGENT.search(raised[0]) or _OF_THE_AGENT.search(raised["name"])):
        return None
    return _searched(raised[0], is_harness=is_harness) or _searched(final, is_harness=is_harness)


def _searched(text: str, *, is_harness: bool) -> str | None:
    text = text[:_LONGEST]
    if (_OF_THE_AGENT if is_harness else _OF_OTHERS).search(text):
        return None
    causes = (cause for cause in error_causes() if cause.is_harness == is_harness)
    return next((cause.name for cause in causes if cause.pattern.search(text)), None)


def final_exception(error: str) -> str | None:
    """Return the exception at the end of a Python traceback, with its message; None if the text has no frames.

    A frame is a `File "...", line n` line with its lines of code. If the text is truncated within the frames,
    the lines before the first frame are returned.
    """
    rows = error.splitlines()
    frames = [(i, frame) for i, row in enumerate(rows) if (frame := _FRAME.match(row))]
    if not frames:
        return None
    at, frame = frames[-1]
    rest = _after_code(rows[at + 1 :], len(frame["indent"]))
    chained = [i for i, row in enumerate(rest) if row.lstrip(" \t|").startswith(_CHAINED)]
    rest = rest[chained[-1] + 1 :] if chained else rest
    final = "\n".join(rest).strip(" \t|\n")
    before = [
        row for row in rows[: frames[0][0]] if not row.lstrip(" \t|+-").startswith("Traceback (most recent")
    ]
    return final or "\n".join(before).strip()


def _after_code(rows: Sequence[str], indent: int) -> Sequence[str]:
    """Return the lines after a frame's code; if the text has no indentation, one line of code is assumed."""
    if indent == 0:
        return rows[1:] if any(row.strip() for row in rows[1:]) else rows
    is_code = (len(row) - len(row.lstrip(" \t|")) >= indent or not row.strip() for row in rows)
    return rows[next((i for i, code in enumerate(is_code) if not code), len(rows)) :]


def class_of_error(error: str) -> OutcomeClass:
    """Return the outcome class of a trial that ended in this error and was not successful.

    An error that no line of the list describes, or lines of both classes, has an unknown cause.
    """
    is_harness, is_agent = harness_cause(error) is not None, agent_cause(error) is not None
    if is_harness == is_agent:
        return "unexplained_error"
    return "harness_error" if is_harness else "agent_error"


def completed(fields: Mapping[str, object]) -> dict[str, object]:
    """Add the outcome class to the fields if the error determines it, `correct` if the class determines it, and the basis.

    The error determines the class if the trial is known to be incorrect (for any reward), or if correctness is
    unknown and the reward is not above 0. It has no effect if the trial was correct. With an error of unknown cause,
    `correct` is what the source declares: false for a reward of 0. A class that can be derived from `correct` is
    omitted, so that each outcome has only one representation.
    """
    fields = _of_earlier_release(fields)
    implied = _by_error(fields)
    class_name = fields.get("outcome_class") or implied
    correct, reward = fields.get("correct"), fields.get("reward")
    is_declared = correct is not None or fields.get("outcome_class") not in (None, "unknown")
    if correct is None and class_name in ("passed", "failed", "agent_error"):
        correct = class_name == "passed"
    elif correct is False and class_name == "harness_error":  # the harness failed, not the agent
        correct = None
    elif implied == "unexplained_error" and fields.get("outcome_class") is None and _is_zero(reward):
        correct = False
    plain = {True: "passed", False: "failed", None: "unknown"}
    if isinstance(correct, bool | None) and implied is None and class_name == plain[correct]:
        class_name = None
    basis = fields.get("basis") or ("declared" if is_declared else "error" if implied else None)
    return {**fields, "outcome_class": class_name, "correct": correct, "basis": basis}


def _is_zero(reward: object) -> bool:
    return isinstance(reward, int | float) and not isinstance(reward, bool) and abs(reward) <= ROUNDING


def _of_earlier_release(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Add the basis to an outcome that an importer wrote before the field existed, and class its error again.

    Earlier releases classed every error that was not known to be the harness's as the agent's.
    """
    source = fields.get("source")
    if fields.get("basis") is not None or not isinstance(source, str):
        return fields
    _, _, what = source.partition(" ")
    basis = "contradicting" if what == CONTRADICTING else _EARLIER.get(what)
    if basis is None:
        return fields
    if fields.get("outcome_class") != "agent_error" or not isinstance(fields.get("error"), str):
        return {**fields, "basis": basis}
    is_declared = basis == "declared" or _is_zero(fields.get("reward"))
    return {**fields, "basis": basis, "outcome_class": None, "correct": False if is_declared else None}


def _by_error(fields: Mapping[str, object]) -> OutcomeClass | None:
    """Return the class that the error of an unsuccessful outcome determines, or None if there is no error."""
    reward, error = fields.get("reward"), fields.get("error")
    is_rewarded = isinstance(reward, int | float) and not isinstance(reward, bool) and reward > ROUNDING
    correct = fields.get("correct")
    if (
        not isinstance(error, str)
        or not error.strip()
        or correct is True
        or (is_rewarded and correct is None)
    ):
        return None
    return class_of_error(error)


def contradiction(outcome_class: OutcomeClass | None, correct: bool | None) -> str | None:
    """Return a description of the contradiction between the class and `correct`, or None if they agree."""
    expected_of_class = {"passed": True, "failed": False, "agent_error": False}
    if outcome_class is None or expected_of_class.get(outcome_class) == correct:
        return None
    if outcome_class == "unexplained_error" and correct is False:
        return None
    return f"outcome_class is {outcome_class!r}, but correct is {str(correct).lower()}; leave one of them out"


def is_unexplained_error() -> pl.Expr:
    """Return whether a conversation ended in an error of unknown cause, of the agent or of the harness."""
    return (pl.col("outcome_class") == "unexplained_error").fill_null(False)


def is_crash() -> pl.Expr:
    """Return whether an error ended a conversation that counts against the agent; as `Outcome.is_crash`."""
    outcome_class = pl.col("outcome_class")
    is_declared = ~pl.col("outcome_correct") & (pl.col("outcome_error").fill_null("") != "")
    return ((outcome_class == "agent_error") | (is_declared & (outcome_class != "harness_error"))).fill_null(
        value=False
    )


def is_between(reward: float | None) -> bool:
    """Return whether a reward is above 0 but not 1; such a reward alone does not determine the outcome."""
    return reward is not None and reward > ROUNDING and abs(reward - 1) > ROUNDING


def with_causes_read(conversations: pl.DataFrame, causes: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Determine the causes of errors that the packaged list does not explain by the project's own patterns.

    The patterns are searched by the Rust crate `regex`, in time linear in the length of the text. If patterns of both
    classes match, the cause remains unknown.

    Args:
        conversations: The `conversations` table of one agent.
        causes: The setting `error_causes`: regexes by class, `harness` or `agent`.
    """
    text = pl.col("outcome_error").str.slice(0, _LONGEST).fill_null("")

    def matches(name: str) -> pl.Expr:
        pattern_matches = (text.str.contains(f"(?i)(?:{pattern})") for pattern in causes.get(name, ()))
        return pl.any_horizontal(pl.lit(value=False), *pattern_matches)

    is_open = is_unexplained_error()
    is_harness = is_open & matches("harness") & ~matches("agent")
    is_agent = is_open & matches("agent") & ~matches("harness")
    return conversations.with_columns(
        outcome_correct=pl.when(is_harness)
        .then(None)
        .when(is_agent)
        .then(pl.lit(value=False))
        .otherwise("outcome_correct"),
        outcome_class=pl.when(is_harness)
        .then(pl.lit("harness_error"))
        .when(is_agent)
        .then(pl.lit("agent_error"))
        .otherwise("outcome_class"),
    )


def with_rewards_read(
    conversations: pl.DataFrame, success_reward: float | None
) -> tuple[pl.DataFrame, list[tuple[str, Refusal]]]:
    """Determine outcomes from rewards.

    If `success_reward` is set, it decides every outcome that nothing else decides. Otherwise, if a session has
    rewards above 0 that are not 1 and no trial that is known to have passed, failures derived from a reward of
    0 or an error become unknown too, because "0 passed" would be an artefact of the format rather than a result.
    Declared failures do not change.

    Args:
        conversations: The `conversations` table of one agent.
        success_reward: The setting, or None if it is not set.

    Returns:
        The table, and a pair (session id, `Refusal`) for each session whose outcomes cannot be determined or whose
        success components contradict each other.
    """
    correct, reward = pl.col("outcome_correct"), pl.col("outcome_reward")
    is_contradicting = (pl.col("outcome_basis") == "contradicting").fill_null(False)
    refusals = _contradicting(conversations.filter(is_contradicting))
    if success_reward is not None:
        is_open = (pl.col("outcome_class") == "unknown") & reward.is_not_null() & ~is_contradicting
        is_success = reward >= success_reward - ROUNDING
        word = pl.when(is_success).then(pl.lit("passed")).otherwise(pl.lit("failed"))
        source_text = pl.concat_str(
            pl.coalesce("outcome_source", pl.lit("reward")), pl.lit(f", success_reward {success_reward:g}")
        )
        return conversations.with_columns(
            outcome_correct=pl.when(is_open).then(is_success).otherwise(correct),
            outcome_class=pl.when(is_open).then(word).otherwise("outcome_class"),
            outcome_source=pl.when(is_open).then(source_text).otherwise("outcome_source"),
            outcome_basis=pl.when(is_open).then(pl.lit("reward")).otherwise("outcome_basis"),
        ), refusals
    tells_nothing = (reward > ROUNDING) & ((reward - 1).abs() > ROUNDING)
    is_lost = (pl.col("outcome_class") == "harness_error").fill_null(False)
    is_between = correct.is_null() & ~is_lost & ~is_contradicting & tells_nothing.fill_null(False)
    is_read = (~correct).fill_null(False) & pl.col("outcome_basis").is_in(_READ).fill_null(False)
    counts = conversations.group_by("session_id").agg(
        n_between=is_between.sum(), n_passed=correct.fill_null(False).sum()
    )
    unreadable = counts.filter(pl.col("n_between") > 0, pl.col("n_passed") == 0).sort("session_id")
    doubted = is_read & pl.col("session_id").is_in(unreadable["session_id"].to_list())
    refusals += [
        (session_id, Refusal(f"{session_id}/conversations.jsonl", 0, unreadable_rewards(between)))
        for session_id, between in unreadable.select("session_id", "n_between").iter_rows()
    ]
    return conversations.with_columns(
        outcome_correct=pl.when(doubted).then(None).otherwise(correct),
        outcome_class=pl.when(doubted).then(pl.lit("unknown")).otherwise("outcome_class"),
    ), refusals


def _contradicting(conversations: pl.DataFrame) -> list[tuple[str, Refusal]]:
    """Return a pair (session id, `Refusal`) for each session of conversations with contradicting components."""
    counts = conversations.group_by("session_id").len().sort("session_id")
    return [
        (session_id, Refusal(f"{session_id}/conversations.jsonl", 0, contradicting_components(n)))
        for session_id, n in counts.iter_rows()
    ]


def contradicting_components(n: int) -> str:
    """Return the message for records whose success components contradict each other."""
    return (
        f"reading error: {n} records contain base_success more than once with different values; their outcome is "
        "unknown. Keep one value in each record and import the file again"
    )


def unreadable_rewards(n_between: int, n_passed: int = 0) -> str:
    """Return the message for a source in which no success, or not every success, can be determined."""
    if n_passed:
        what = (
            f"their trials count as unknown (trials that passed: {n_passed}); rewards of 0 count as failures"
        )
    else:
        what = "no success can be recognised, so rewards of 0 and errors count as unknown too"
    return (
        f"reading error: {n_between} rewards are neither 0 nor 1; {what}. "
        "Add base_success to the records, or set success_reward in agent_eval.toml"
    )
