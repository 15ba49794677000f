"""Classify how a trial ended, based on the correctness, reward and error in the file.

Every trial has one outcome class. A trial that ends in the agent's own error counts as failed. An error of the
harness (provider, environment, simulator, infrastructure) is not evidence about the agent, so the outcome is
unknown. docs/formats.md documents the mapping for each format.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import polars as pl

from agent_eval.formats.refusals import Refusal

OutcomeClass = Literal["passed", "failed", "agent_error", "harness_error", "unknown"]
CLASSES: tuple[OutcomeClass, ...] = get_args(OutcomeClass)
HARNESS_FAILED = "the harness failed: it says nothing of the agent"
ROUNDING = 1e-6  # tolerance within which a reward counts as 0 or 1

_PROVIDER = r"(api|request|read|connect(ion)?|gateway|http|https|server|provider|upstream|litellm|openai|anthropic|azure|bedrock|model)"
HARNESS_ERRORS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "rate limit": r"rate[ _-]?limit|too many requests|insufficient_quota|exceeded your current quota"
        r"|overloaded|throttl(ed|ing)|resource_?exhausted|quota exceeded|(status|error|http)( code)?\W{0,3}(429|529)\b",
        "connection": r"connection[ _-]?error|connection (was )?(refused|reset|aborted|closed|lost|broken)"
        r"|server disconnected|remote end closed|remoteprotocolerror|ECONN(REFUSED|RESET|ABORTED)"
        r"|name or service not known|temporary failure in name resolution|network is unreachable"
        r"|broken ?pipe|could not connect|ssl\.?SSLError|certificate verify failed|the server had an error"
        r"|service ?unavailable|bad ?gateway|internal ?server ?error|(status|error|http)( code)?\W{0,3}50[0-4]\b",
        "authentication": r"authentication ?error|permissiondenied ?error|invalid (api|x-api)[ _-]?key"
        r"|incorrect api key|api[ _-]?key (is )?(missing|not set|not found|required|expired)|401 unauthorized"
        r"|(status|error|http)( code)?\W{0,3}(401|403)\b",
        "time-out of the provider": rf"\b{_PROVIDER}[ ._-]?time[ -]?d?[ -]?out|\brequest timed out"
        rf"|litellm\.Timeout|deadline[ _]exceeded|waiting for (the )?provider|\b{_PROVIDER}\b[^.\n]{{0,40}}\btimed out|gateway time-?out",
        "environment reset": r"(environment|env|sandbox|container|docker|simulator)\b[^.\n]{0,40}"
        r"\b(reset|restart|start ?up|crash|died|unavailable|not available)|\breset of the (environment|env|sandbox)"
        r"|(environment|env|sandbox|container|docker|simulator)\b[^.\n]{0,40}\b(failed to start|exited|timed out)"
        r"|\benv\.reset\(\) failed|could not (reset|start) (the )?(environment|env|sandbox|container)"
        r"|fail(ed|ure)? (to|while|during) (reset|start)\w* (the )?(environment|env|sandbox|container)",
    }.items()
}
"""Patterns of harness errors, by their documented names."""
_OF_THE_AGENT = re.compile(
    r"\b(agent|tool|assistant)\b|^\W*(Key|Value|Type|Index|Attribute|Name|Assertion|Lookup|ZeroDivision|FileNotFound"
    r"|JSONDecode|Validation|Tool)\w*Error\b",
    re.IGNORECASE,
)
"""Errors that name the agent or a tool, or begin with an exception from the agent's code; quoted text is ignored."""

_FRAME = re.compile(r'(?P<indent>[ \t|]*)File "[^"]*", line \d+')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_EXCEPTION = re.compile(r"(?P<module>(?:\w+\.)*)(?P<name>\w+)(?=:|\n|$)")

CONTRADICTING = "base_success: contradicting values"
"""Suffix of an outcome's source if the outcome is unknown because the record's success components differ."""
_FORMATS = "(openai|tau-bench|tau2|inspect|agentest|swe-agent|mini-swe-agent)"
"""Formats that record the end of a trial as a reward, an error or an exit state."""
_CONTRADICTING = rf"^{_FORMATS} {CONTRADICTING}$"

_BY_READING = rf"^{_FORMATS} (reward|error|info\.error|termination_reason|exit_status)$"
"""Sources of failures that were derived from a reward of 0 or an error rather than declared."""


def harness_cause(error: str) -> str | None:
    """Return the documented kind of harness error that the text describes, or None for an error of the agent."""
    final = final_exception(error)
    if final is None:
        return _cause_in(error)
    raised = _EXCEPTION.match(final)
    if raised is None:
        return _cause_in(final)
    if _OF_THE_AGENT.search(raised[0]) or _OF_THE_AGENT.search(raised["name"]):
        return None
    return _cause_in(raised[0]) or _cause_in(final)  # the exception type decides, not quoted text


def _cause_in(text: str) -> str | None:
    text = text[:20_000]
    if _OF_THE_AGENT.search(text):
        return None
    return next((name for name, pattern in HARNESS_ERRORS.items() if pattern.search(text)), None)


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
    """Return the outcome class of a trial that ended in this error and was not successful."""
    return "agent_error" if harness_cause(error) is None else "harness_error"


def completed(fields: Mapping[str, object]) -> dict[str, object]:
    """Add the outcome class to the fields if the error determines it, and `correct` if the class determines it.

    The error determines the class if the trial is known to be incorrect (for any reward), or if correctness is
    unknown and the reward is not above 0. It has no effect if the trial was correct. A class that can be derived
    from `correct` is omitted, so that each outcome has only one representation.
    """
    implied = _by_error(fields)
    named = fields.get("outcome_class") or implied
    correct = fields.get("correct")
    if correct is None and named in ("passed", "failed", "agent_error"):
        correct = named == "passed"
    elif correct is False and named == "harness_error":  # the harness failed, not the agent
        correct = None
    plain = {True: "passed", False: "failed", None: "unknown"}
    if isinstance(correct, bool | None) and implied is None and named == plain[correct]:
        named = None
    return {**fields, "outcome_class": named, "correct": correct}


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
    wanted = {"passed": True, "failed": False, "agent_error": False}
    if outcome_class is None or wanted.get(outcome_class) == correct:
        return None
    return f"outcome_class is {outcome_class!r}, but correct is {str(correct).lower()}; leave one of them out"


def is_between(reward: float | None) -> bool:
    """Return whether a reward is above 0 but not 1; such a reward alone does not determine the outcome."""
    return reward is not None and reward > ROUNDING and abs(reward - 1) > ROUNDING


def has_contradicting_components(source: str | None) -> bool:
    """Return whether an importer found success components that contradict each other."""
    return re.search(_CONTRADICTING, source or "") is not None


def is_failure_by_reading(correct: bool, source: str | None) -> bool:
    """Return whether an importer derived a failure from a reward of 0 or an error.

    The result is false for a failure that the source declares.
    """
    return not correct and re.search(_BY_READING, source or "") is not None


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
    is_contradicting = pl.col("outcome_source").str.contains(_CONTRADICTING).fill_null(False)
    refusals = _contradicting(conversations.filter(is_contradicting))
    if success_reward is not None:
        is_open = (pl.col("outcome_class") == "unknown") & reward.is_not_null() & ~is_contradicting
        is_success = reward >= success_reward - ROUNDING
        word = pl.when(is_success).then(pl.lit("passed")).otherwise(pl.lit("failed"))
        said = pl.concat_str(
            pl.coalesce("outcome_source", pl.lit("reward")), pl.lit(f", success_reward {success_reward:g}")
        )
        return conversations.with_columns(
            outcome_correct=pl.when(is_open).then(is_success).otherwise(correct),
            outcome_class=pl.when(is_open).then(word).otherwise("outcome_class"),
            outcome_source=pl.when(is_open).then(said).otherwise("outcome_source"),
        ), refusals
    tells_nothing = (reward > ROUNDING) & ((reward - 1).abs() > ROUNDING)
    is_lost = (pl.col("outcome_class") == "harness_error").fill_null(False)
    is_between = correct.is_null() & ~is_lost & ~is_contradicting & tells_nothing.fill_null(False)
    is_read = (correct == False).fill_null(False) & pl.col("outcome_source").str.contains(  # noqa: E712
        _BY_READING
    ).fill_null(False)
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
