"""Human ratings: read from data/ratings/*.csv, appended to and never edited; the last word on a part counts.

They win over every judge and survive every re-judging. A bad line is refused with file and line, the rest goes on.
"""

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from agent_eval.formats.files import files_in, is_slug, unreadable
from agent_eval.formats.hashing import digest
from agent_eval.formats.json_text import clean
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import MEGABYTE
from agent_eval.formats.timestamps import parse_timestamp, seconds
from agent_eval.formats.validation_messages import shorten
from agent_eval.methodology.models import DIMENSIONS, Methodology, Version
from agent_eval.metrics.metric_set import TURN_RATINGS
from agent_eval.tables import table
from agent_eval.transcripts.models import SLOTS

COLUMNS = (
    "agent_id",
    "session_id",
    "conversation_id",
    "turn_index",
    "methodology_version",
    "target",
    "criterion",
    "rating_1to5",
    "rationale",
    "evidence",
    "rater",
    "rated_at",
)
ANY = "any"
TURN_TARGETS = tuple(metric.name for metric in TURN_RATINGS)
PART = ("agent_id", "session_id", "conversation_id", "turn_index", "target", "criterion")

_TABLE = table("human_ratings")
_MAX_TURN = 2**31
_SHOWN = 40
LARGEST = 50 * MEGABYTE  # some hundred thousand ratings by people


def read_ratings(folder: Path) -> tuple[pl.DataFrame, list[Refusal]]:
    """Every *.csv of the folder: table `human_ratings` and what was refused; no folder, no ratings.

    A file that cannot be read, is larger than 50 MB or is not UTF-8 is refused as a whole, with line 0.
    """
    rows: list[dict[str, object]] = []
    refusals: list[Refusal] = []
    for path, reason in files_in(folder, ".csv"):
        file = clean(path.name)
        for line, found in [(0, reason)] if reason else _read_file(path):
            if isinstance(found, str):
                refusals.append(Refusal(file, line, found))
            else:
                rows.append({**found, "file": file, "line": line})
    return _TABLE.conform(_TABLE.frame(rows)), refusals


def placed_ratings(human_ratings: pl.DataFrame, conversations: pl.DataFrame) -> pl.DataFrame:
    """The ratings without those of conversations that are unknown or belong to another session than they say.

    A rating of a conversation or turn that leaves the session out gets the conversation's own: ids of
    conversations are unique within their agent. Ratings of sessions stay as they are.

    Args:
        human_ratings: Table human_ratings.
        conversations: Table conversations of its agents.
    """
    own = conversations.select("agent_id", "conversation_id", own_session="session_id")
    session, own_session = pl.col("session_id"), pl.col("own_session")
    is_there = own_session.is_not_null() & (session.is_null() | (session == own_session))
    return (
        human_ratings.join(own, on=["agent_id", "conversation_id"], how="left", maintain_order="left")
        .filter(pl.col("conversation_id").is_null() | is_there)
        .with_columns(session_id=pl.coalesce(session, own_session))
        .drop("own_session")
    )


def latest_ratings(
    human_ratings: pl.DataFrame, versions: Collection[str], by: Sequence[str] = ()
) -> pl.DataFrame:
    """The rating that counts for each part under each of the versions: the last by `rated_at`, then file and line.

    One row per methodology_version and part, whoever rated; with `by=("rater",)` one per rater too. A rating
    for 'any' version and one for a single version are equals: the later one counts. Ratings that point elsewhere
    must be gone before (`placed_ratings`).
    """
    every = pl.DataFrame({"version": sorted(versions)}, schema={"version": pl.String})
    is_meant = pl.col("methodology_version").is_in([ANY]) | (
        pl.col("methodology_version") == pl.col("version")
    )
    return (
        _in_order(human_ratings)
        .join(every, how="cross")
        .filter(is_meant)
        .with_columns(methodology_version="version")
        .drop("version")
        .unique(["methodology_version", *PART, *by], keep="last", maintain_order=True)
    )


def unasked_ratings(
    human_ratings: pl.DataFrame,
    methodologies: Mapping[str, Methodology],
    categories: Mapping[str, str | None],
) -> tuple[str, ...]:
    """A sentence for each rating that no methodology asks for, with file and line; only a warning.

    Asked by none: a version that is not published, or a criterion that the agent's template lacks under every
    version that the rating is meant for. An agent without a category is held to the criteria of all templates.

    Args:
        human_ratings: Table human_ratings.
        methodologies: Every version, by its name.
        categories: Category by agent.
    """
    found = (
        (row, _unasked(row, methodologies, categories.get(row["agent_id"])))
        for row in human_ratings.iter_rows(named=True)
    )
    return tuple(
        f"{row['file']}:{row['line']}: the rating of {row['target']} by {row['rater']} counts for nothing: {problem}."
        for row, problem in found
        if problem
    )


def _unasked(
    row: Mapping[str, object], methodologies: Mapping[str, Methodology], category: str | None
) -> str | None:
    version, criterion = str(row["methodology_version"]), row["criterion"]
    if version != ANY and version not in methodologies:
        return f"methodology {version} is not published; published: {', '.join(methodologies)}"
    if criterion is None:
        return None
    meant = methodologies.values() if version == ANY else [methodologies[version]]
    templates = [t for m in meant for t in m.templates if category in (None, t.category)]
    known = sorted({c.id for t in templates for c in t.criteria})
    if criterion in known or not templates:
        return None
    return f"criterion {str(criterion)[:_SHOWN]!r} is none of its template's: {', '.join(known)}"


def ratings_hash(rows: pl.DataFrame) -> str:
    """Content hash of human ratings, as a data version: the order in which they count, not where they stand."""
    return digest("human_ratings", _in_order(rows).select(COLUMNS).rows())


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """By time, then file and line: the last one counts. Without a time a rating is older than all others."""
    when = pl.Series("when", [seconds(text) for text in rows["rated_at"]], dtype=pl.Float64)
    return rows.with_columns(when).sort("when", "file", "line").drop("when")


def _read_file(path: Path) -> Iterator[tuple[int, dict[str, object] | str]]:
    """Line and row, or line and what is wrong with it."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST + 1)
        if len(raw) > LARGEST:
            yield 0, f"the file is larger than {LARGEST // MEGABYTE} MB; split it into several files"
            return
        text = raw.decode("utf-8-sig")
    except OSError as error:
        yield 0, unreadable(error)
        return
    except UnicodeDecodeError as error:
        yield 0, f"the file is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
        return
    csv.field_size_limit(LARGEST)  # of the process: its default ends a file at a rationale of 131,072 letters
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            if header is None:
                header = [cell.strip() for cell in cells]
                if problem := _header_problem(header):
                    yield 1, problem
                    return
            elif any(cell.strip() for cell in cells):
                yield line, _row(header, cells)
            line = reader.line_num + 1
    except csv.Error as error:
        yield line, f"no CSV from here on ({error}); quote cells that hold commas, quotes or line breaks"


def _header_problem(header: Sequence[str]) -> str | None:
    problems = [
        f"{text} {', '.join(map(repr, names))}"
        for text, names in (
            ("missing columns", [c for c in COLUMNS if c not in header]),
            ("unknown columns", [c[:_SHOWN] for c in header if c not in COLUMNS][:5]),
            ("repeated columns", sorted({c for c in header if header.count(c) > 1})),
        )
        if names
    ]
    return f"{'; '.join(problems)}. The header is: {','.join(COLUMNS)}" if problems else None


def _row(header: Sequence[str], cells: Sequence[str]) -> dict[str, object] | str:
    if len(cells) != len(header):
        return f"{len(cells)} cells, expected {len(header)}; quote cells that hold commas"
    row: dict[str, str | None] = {
        name: cell.strip() or None for name, cell in zip(header, cells, strict=True)
    }
    try:
        return _checked(row)
    except ValueError as error:
        return shorten(str(error))


def _checked(row: Mapping[str, str | None]) -> dict[str, object]:
    """The row with its types; ValueError says what is wrong, what is allowed and the fix."""
    if not is_slug(row["agent_id"] or ""):
        raise ValueError(f"agent_id is {row['agent_id'] or ''!r}, expected an id of agents.yaml")
    _check_place(row)
    return {
        **row,
        "turn_index": _turn_index(row["turn_index"]),
        "methodology_version": _version(row["methodology_version"]),
        "rating_1to5": _rating(row["rating_1to5"]),
        "rater": _given(row["rater"], "rater", "who rated, e.g. a name or initials"),
        "rated_at": _time(row["rated_at"]),
    }


def _check_place(row: Mapping[str, str | None]) -> None:
    target = row["target"]
    if target in DIMENSIONS:
        needed, allowed = ["session_id"], ["session_id"]
    elif target in SLOTS:
        needed = ["conversation_id", "criterion"]
        allowed = ["session_id", *needed]
    elif target in TURN_TARGETS:
        needed = ["conversation_id", "turn_index"]
        allowed = ["session_id", *needed]
    else:
        known = ", ".join((*DIMENSIONS, *SLOTS, *TURN_TARGETS))
        raise ValueError(f"target is {target or ''!r}, expected one of {known}")
    places = ("session_id", "conversation_id", "turn_index", "criterion")
    if absent := [name for name in needed if row[name] is None]:
        raise ValueError(f"{', '.join(absent)} is empty; a rating of {target} needs {' and '.join(needed)}")
    if extra := [name for name in places if row[name] is not None and name not in allowed]:
        raise ValueError(f"{', '.join(extra)} is given; a rating of {target} has none, leave it empty")


def _rating(cell: str | None) -> int:
    if cell not in {"1", "2", "3", "4", "5"}:
        raise ValueError(f"rating_1to5 is {cell or ''!r}, expected an integer from 1 to 5")
    return int(cell)


def _turn_index(cell: str | None) -> int | None:
    if cell is None:
        return None
    if not (cell.isascii() and cell.isdigit()) or len(cell) > 10 or int(cell) > _MAX_TURN:
        raise ValueError(f"turn_index is {cell!r}, expected an integer from 0")
    return int(cell)


def _version(cell: str | None) -> str:
    if cell is None:
        raise ValueError("methodology_version is empty, expected 'any' or a version such as 1.3.0")
    if cell != ANY:
        Version.parse(cell)
    return cell


def _time(cell: str | None) -> str | None:
    try:
        if cell is not None:
            parse_timestamp(cell)
        return cell
    except ValueError:
        raise ValueError(f"rated_at is {cell!r}, expected ISO 8601 such as 2026-04-20T10:00:00Z") from None


def _given(cell: str | None, name: str, expected: str) -> str:
    if cell is None:
        raise ValueError(f"{name} is empty, expected {expected}")
    return cell
