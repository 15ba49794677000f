"""What of a failure's words is compared: without ids, numbers, turn references and typography."""

import re

import polars as pl

from agent_eval.formats.hashing import digest

LONGEST = 2_000  # characters that are read; what a judge says first says what went wrong
_REFERENCE = re.compile(
    r"\b(?:in |at |on |see )?(?:turn|step|message|line)s?\s*#?\d+(?:\s*(?:,|and|-|to|–)\s*\d+)*"
)
_CODE = re.compile(r"\S*(?:://|@)\S*|\b[\w-]*\d[\w.:-]*")
_SIGN = re.compile(r"[^\w\s'’-]|_")


def normalised(text: str | None) -> str:
    """The words of a text in lower case; '' when it says nothing.

    A text of numbers and signs only stays as it is, so that it still equals itself.
    """
    said = " ".join((text or "")[:LONGEST].casefold().split())
    bare = _SIGN.sub(" ", _CODE.sub(" ", _REFERENCE.sub(" ", said)))
    return " ".join(bare.split()) or said


def with_text(failures: pl.DataFrame) -> pl.DataFrame:
    """Failures with `text`, what is compared, and `text_hash`, which names it.

    The judge's reason tells what went wrong; where there is none, the quote has to do.
    """
    said = failures.select(pl.coalesce("reason", "quote")).to_series()
    texts = {raw: normalised(raw) for raw in said.unique()}
    hashes = {text: digest(text) for text in texts.values()}
    words = [texts[raw] for raw in said]
    return failures.with_columns(
        pl.Series("text", words, dtype=pl.String),
        pl.Series("text_hash", [hashes[text] for text in words], dtype=pl.String),
    )
