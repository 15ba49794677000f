"""Normalise failure texts for comparison by removing ids, numbers, turn references and punctuation."""

import re

import polars as pl

from agent_eval.formats.hashing import digest

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
    said = " ".join((text or "")[:LONGEST].casefold().split())
    bare = _SIGN.sub(" ", _CODE.sub(" ", _REFERENCE.sub(" ", said)))
    return " ".join(bare.split()) or said


def with_text(failures: pl.DataFrame) -> pl.DataFrame:
    """Return failures with the text to compare (`text`) and its hash (`text_hash`).

    The text is the judge's reason, or the quote if there is no reason.
    """
    said = failures.select(pl.coalesce("reason", "quote")).to_series()
    texts = {raw: normalised(raw) for raw in said.unique()}
    hashes = {text: digest(text) for text in texts.values()}
    words = [texts[raw] for raw in said]
    return failures.with_columns(
        pl.Series("text", words, dtype=pl.String),
        pl.Series("text_hash", [hashes[text] for text in words], dtype=pl.String),
    )
