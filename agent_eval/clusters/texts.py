"""Normalise failure texts for comparison by removing ids, numbers, turn references and punctuation."""

import re

import polars as pl

from agent_eval.formats.hashing import digest

BLOCK = ("label", "tool")
"""Only failures with the same label and tool can share a cluster."""
LONGEST = 2_000  # only this many characters are used, because judges state the failure first
_REFERENCE = re.compile(
    r"\b(?:in |at |on |see )?(?:turn|step|message|line)s?\s*#?\d+(?:\s*(?:,|and|-|to|–)\s*\d+)*"
)
_CODE = re.compile(r"\S*(?:://|@)\S*|\b[\w-]*\d[\w.:-]*")
_SIGN = re.compile(r"[^\w\s'’-]|_")


def normalised(text: str | None) -> str:
    """Return the words of a text in lower case; '' if the text is empty.

    A text that consists only of numbers and signs is kept, so that equal texts remain equal.
    """
    words = " ".join((text or "")[:LONGEST].casefold().split())
    bare = _SIGN.sub(" ", _CODE.sub(" ", _REFERENCE.sub(" ", words)))
    return " ".join(bare.split()) or words


def with_text(failures: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return failures with the text to compare (`text`) and its hash (`text_hash`).

    The text is the cause, which says in general words what went wrong; without one it is the judge's reason, or else
    the quote. If the cause is new and the reason is a text of `members`, the text is the reason, so that a failure that
    was assigned before its cause was known keeps its cluster; `cause` is null in such a row.

    Args:
        failures: As returned by `failures.failures`.
        members: Table `error_members`, at least its key.
    """
    failures = failures.with_columns(
        pl.when(pl.col("cause").str.contains(r"\w")).then("cause").alias("cause")  # a blank says nothing
    )
    by_reason = _hashed(failures.with_columns(pl.coalesce("reason", "quote").alias("said")))
    by_cause = _hashed(failures.with_columns(pl.coalesce("cause", "reason", "quote").alias("said")))
    key = [*BLOCK, "text_hash"]
    known_texts = members.select(key).with_columns(is_known=pl.lit(value=True))
    is_known = [
        frame.join(known_texts, on=key, how="left", nulls_equal=True, maintain_order="left")[
            "is_known"
        ].is_not_null()
        for frame in (by_cause, by_reason)
    ]
    keeps = ~is_known[0] & is_known[1] & by_reason["cause"].is_not_null()
    both = by_cause.with_columns(
        pl.when(keeps).then(by_reason[name]).otherwise(pl.col(name)).alias(name)
        for name in ("text", "text_hash")
    )
    return both.with_columns(pl.when(~keeps).then("cause").alias("cause"))


def _hashed(failures: pl.DataFrame) -> pl.DataFrame:
    texts = {raw: normalised(raw) for raw in failures["said"].unique()}
    hashes = {text: digest(text) for text in texts.values()}
    words = [texts[raw] for raw in failures["said"]]
    return failures.drop("said").with_columns(
        pl.Series("text", words, dtype=pl.String),
        pl.Series("text_hash", [hashes[text] for text in words], dtype=pl.String),
    )
