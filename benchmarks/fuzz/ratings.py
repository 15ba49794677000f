"""The door of people's ratings."""

import codecs
import csv
import io
from pathlib import Path

import polars as pl
from hypothesis import strategies as st

from agent_eval.judge.inputs.human_ratings import (
    COLUMNS,
    OPTIONAL,
    latest_ratings,
    ratings_hash,
    read_ratings,
)
from agent_eval.judge.inputs.rater_rules import decided_ratings
from benchmarks.fuzz.holding import check_refusals, check_store, check_text
from benchmarks.fuzz.hostile import changed_bytes, texts

ROWS = (
    ("a", "s", "", "", "any", "U1", "", "4", "good", "quote", "kim", "2026-04-20T10:00:00Z", "", "", ""),
    ("a", "", "c", "", "1.3.0", "D1", "accuracy", "5", "good, quite", 'a "quote"', "kim", "", "", "", ""),
    ("a", "", "c", "0", "any", "helpfulness", "", "1", "two\nlines", "", "lee", "2026-04-20", "", "", ""),
    ("a", "", "c", "", "any", "goal_completion", "", "", "", "", "kim", "", "1", "", "adjudicator"),
    (
        "a",
        "",
        "c",
        "0",
        "any",
        "agent_behavior_failure",
        "",
        "",
        "",
        "",
        "kim",
        "",
        "",
        "repetition",
        "rater",
    ),
)
SHEETS = (("", "", "", ""), ("2.5", "s", "r", "t"))
HEADER = (*COLUMNS, *OPTIONAL)


def _csv(rows: list[tuple[str, ...]]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(rows)
    return stream.getvalue().encode("utf-8", "replace")


@st.composite
def _row(draw: st.DrawFn) -> tuple[str, ...]:
    cells = [*draw(st.sampled_from(ROWS)), *draw(st.sampled_from(SHEETS))]
    for at in draw(st.sets(st.integers(0, len(HEADER) - 1), max_size=2)):
        cells[at] = draw(texts)
    return tuple(cells)


whole = st.lists(_row(), max_size=5).map(_csv)
inputs = whole | whole.flatmap(changed_bytes)


def check(content: bytes, root: Path, *, store: bool = False) -> None:
    """Each line of the file is a rating or a refusal; what was read is valid for all that comes after."""
    folder = root / "data" / "ratings"
    folder.mkdir(parents=True)
    (folder / "r.csv").write_bytes(content)
    frame, refusals = read_ratings(folder)
    check_refusals(refusals, longest=1_000)  # a header is shown whole
    check_text(frame)
    if not any(r.line <= 1 or "invalid CSV" in r.reason for r in refusals):
        is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""))
        there = [cells for cells in reader if any(cell.strip() for cell in cells)]
        blank_first = not text.strip(" \t\r\n\v\f")
        assert frame.height + len(refusals) == (0 if blank_first else max(len(there) - 1, 0))
    assert ratings_hash(frame) == ratings_hash(read_ratings(folder)[0])
    assert latest_ratings(frame, ["1.2.0", "1.3.0"]).height <= 2 * frame.height
    for rule in ("adjudicator", "median", "latest"):
        decided = decided_ratings(frame, ["1.2.0", "1.3.0"], rule)
        assert not decided.filter(pl.col("dispute").is_not_null() & pl.col("is_effective")).height
    if store and not frame.is_empty():
        check_store(root, {"human_ratings": frame})
