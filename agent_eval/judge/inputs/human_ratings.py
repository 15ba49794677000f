"""Read human ratings from the append-only files data/ratings/*.csv.

Human ratings take precedence over all judges and are kept when judgments are repeated. An invalid line is rejected
with file and line; the rest of the file is read. `rater_rules` decides which rating counts if raters differ. Rows
with the role `judge` are labels by judges of other tools: they are compared with people's ratings and never count.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter

from agent_eval.formats.csv_lines import csv_lines
from agent_eval.formats.files import files_in, is_slug
from agent_eval.formats.hashing import digest
from agent_eval.formats.json_text import clean
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.timestamps import as_text, check_date, parse_timestamp
from agent_eval.formats.validation_messages import shorten
from agent_eval.methodology.models import DIMENSIONS, Methodology, Version
from agent_eval.metrics.base import NO_FAILURE, Answer, Metric
from agent_eval.metrics.metric_set import BUILT_IN, DEFAULT, MetricSet
from agent_eval.tables import table
from agent_eval.tables.judging import is_imported
from agent_eval.transcripts.content_hash import text_hash
from agent_eval.transcripts.models import SLOTS, Message, is_blank

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
SAMPLED = ("weight", "stratum", "rubric_hash", "text_hash")
"""Columns of a rating sheet: the sampling weight, the stratum, and the hashes of the rubric and text that the rater saw."""
OPTIONAL = ("value", "label", "role", *SAMPLED)
"""Columns that a file may omit: answers other than ratings from 1 to 5, the role of the rater, and the sampling."""
ANY = "any"
RATER, ADJUDICATOR = "rater", "adjudicator"
JUDGE = "judge"
"""Role of labels by a judge of another tool, which are not ratings by a person."""
HALLUCINATION_PASSED = "hallucination_passed"
PART = ("agent_id", "session_id", "conversation_id", "turn_index", "target", "criterion")

_TABLE = table("human_ratings")
_MAX_TURN = 2**31
_SHOWN = 40


@dataclass(frozen=True)
class Target:
    """Describe what can be rated: the required and allowed cells, and the kind and range of the answer."""

    name: str
    needed: tuple[str, ...]
    allowed: tuple[str, ...]
    answer: Answer = "rating_1to5"
    scale: tuple[float, float] = (1.0, 5.0)  # lowest and highest answer
    is_binary: bool = False
    labels: tuple[str, ...] = ()


def targets_of(metrics: MetricSet = DEFAULT) -> dict[str, Target]:
    """Return the targets that people can rate, by name: U1–U6, D1–D5, all metrics and the hallucination test."""
    passed = Target(HALLUCINATION_PASSED, *_PLACES["conversation"], "value", (0.0, 1.0), is_binary=True)
    by_name = {m.name: m for m in (*BUILT_IN.metrics, *metrics.metrics)}  # disabled metrics can be rated too
    targets = [
        *(_target(metric) for metric in by_name.values() if metric.grain in _PLACES),
        *(Target(name, ("session_id",), ("session_id",)) for name in DIMENSIONS),
        *(Target(name, *_PLACES["slot"]) for name in SLOTS),
        passed,
    ]
    return {target.name: target for target in targets}


_PLACES = {
    "slot": (("conversation_id", "criterion"), ("session_id", "conversation_id", "criterion")),
    "turn": (("conversation_id", "turn_index"), ("session_id", "conversation_id", "turn_index")),
    "conversation": (("conversation_id",), ("session_id", "conversation_id")),
}


def _target(metric: Metric) -> Target:
    scale = metric.scale or (0.0, 0.0)
    return Target(
        metric.name, *_PLACES[metric.grain], metric.answer, scale, metric.is_binary, metric.all_labels
    )


def read_ratings(folder: Path, metrics: MetricSet = DEFAULT) -> tuple[pl.DataFrame, list[Refusal]]:
    """Read the *.csv files in a folder. Return the table `human_ratings` and the rejected lines.

    A file that cannot be read, is larger than 50 MB or is not UTF-8 is rejected as a whole, with line 0. If the folder
    does not exist, the table is empty.

    Args:
        folder: The folder data/ratings.
        metrics: Metrics that people can rate in addition to the built-in ones.
    """
    targets = targets_of(metrics)
    rows: list[dict[str, object]] = []
    refusals: list[Refusal] = []
    for path, reason in files_in(folder, ".csv"):
        file = clean(path.name)
        for line, parsed_line in [(0, reason)] if reason else _read_file(path, targets):
            if isinstance(parsed_line, str):
                refusals.append(Refusal(file, line, parsed_line))
            else:
                rows.append({**parsed_line, "file": file, "line": line})
    return _TABLE.conform(_TABLE.frame(rows)), refusals


def placed_ratings(human_ratings: pl.DataFrame, conversations: pl.DataFrame) -> pl.DataFrame:
    """Return the ratings by people whose conversation exists and belongs to the session that they name.

    If a rating of a conversation or turn names no session, the session of the conversation is filled in, because
    conversation ids are unique per agent. Ratings of sessions are returned unchanged.

    Args:
        human_ratings: Table human_ratings.
        conversations: Table conversations of the same agents.
    """
    own = conversations.select("agent_id", "conversation_id", own_session="session_id")
    session, own_session = pl.col("session_id"), pl.col("own_session")
    is_there = own_session.is_not_null() & (session.is_null() | (session == own_session))
    return (
        by_people(human_ratings)
        .join(own, on=["agent_id", "conversation_id"], how="left", maintain_order="left")
        .filter(pl.col("conversation_id").is_null() | is_there)
        .with_columns(session_id=pl.coalesce(session, own_session))
        .drop("own_session")
    )


def outdated_ratings(human_ratings: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """Return the ratings of turns and conversations whose text is not the one that was rated. They do not count.

    A rating names the text with `text_hash`. Without it, a rating of a conversation counts for its current text, and a
    rating of a turn with several user messages is outdated, because an earlier release divided these messages into
    several turns.

    Args:
        human_ratings: Table human_ratings; ratings of other conversations than those of `turns` are not returned.
        turns: Table turns of the rated conversations.

    Returns:
        The rows of these ratings, with the `problem`.
    """
    place = ["agent_id", "conversation_id"]
    dated = human_ratings.filter(pl.any_horizontal(pl.col("turn_index", "text_hash").is_not_null()))
    texts: dict[tuple[str, str], dict[int, str]] = {}
    rated = turns.join(dated, on=place, how="semi").select(*place, "turn_index", "messages")
    for agent, conversation, index, messages in rated.sort("turn_index").iter_rows():
        texts.setdefault((agent, conversation), {})[index] = messages
    problems = [
        _why_outdated(
            row["turn_index"], row["text_hash"], texts.get((row["agent_id"], row["conversation_id"]), {})
        )
        for row in dated.iter_rows(named=True)
    ]
    return dated.with_columns(problem=pl.Series(problems, dtype=pl.String)).drop_nulls("problem")


def _why_outdated(turn_index: int | None, rated: str | None, texts: Mapping[int, str]) -> str | None:
    fix = "label it again on a sheet of agent-eval labels sheet"
    if turn_index is None:
        current = text_hash(message for text in texts.values() for message in _messages(text))
        is_same = not texts or rated == current
        return None if is_same else f"the text of the conversation has changed since; {fix}"
    first = max((index for index in texts if index <= turn_index), default=None)
    if first is None:
        return None
    messages = _messages(texts[first])
    n_users = sum(message.role == "user" for message in messages)
    if turn_index != first:
        is_joined = turn_index < first + n_users
        return f"turn {turn_index} is now part of turn {first}; {fix}" if is_joined else None
    current = text_hash(messages)
    if rated is None and n_users > 1:
        return f"turn {first} now has {n_users} user messages; {fix}, or write {current} to column text_hash"
    return None if rated in (None, current) else f"the text of turn {first} has changed since; {fix}"


def _messages(text: str) -> tuple[Message, ...]:
    return TypeAdapter(tuple[Message, ...]).validate_json(text)


def by_people(human_ratings: pl.DataFrame) -> pl.DataFrame:
    """Return the ratings by people, without the labels by judges of other tools."""
    return human_ratings.filter((pl.col("role").cast(pl.String) != JUDGE).fill_null(value=True))


def latest_ratings(
    human_ratings: pl.DataFrame, versions: Collection[str], by: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the latest rating of each part under each version.

    The latest rating is the last one by `rated_at`, then by file and line. A rating for 'any' version has the same
    rank as one for a specific version. The result has one row per methodology_version and part, or per
    methodology_version, part and rater with `by=("rater",)`. Ratings with an invalid target must be removed before
    the call (see `placed_ratings`).
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
    """Return a warning with file and line for each rating that no methodology asks for.

    Such a rating names a version that is not published, or a criterion that the agent's template does not have under
    any version that the rating applies to. For an agent without a category, the criteria of all templates are valid.

    Args:
        human_ratings: Table human_ratings.
        methodologies: All methodologies by version.
        categories: Categories by agent.
    """
    problem_rows = (
        (row, _unasked(row, methodologies, categories.get(row["agent_id"])))
        for row in by_people(human_ratings).iter_rows(named=True)
    )
    return tuple(
        f"{row['file']}:{row['line']}: the rating of {row['target']} by {row['rater']} is ignored: {problem}."
        for row, problem in problem_rows
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
    criterion_ids = sorted({c.id for t in templates for c in t.criteria})
    if criterion in criterion_ids or not templates:
        return None
    return f"criterion {str(criterion)[:_SHOWN]!r} is not in the agent's template; expected one of {', '.join(criterion_ids)}"


def idle_ratings(human_ratings: pl.DataFrame, judgments: pl.DataFrame) -> tuple[str, ...]:
    """Return a warning with file and line for each rating of a metric that does not apply to the rated part.

    Args:
        human_ratings: Table human_ratings.
        judgments: Columns agent_id, conversation_id, turn_index and metric of the judgments of the rated conversations.
            Ratings of conversations without judgments cause no warning.
    """
    conversation = ["agent_id", "conversation_id"]
    rated = by_people(human_ratings).filter(~pl.col("target").is_in([*DIMENSIONS, *SLOTS]))
    idle = rated.join(judgments.select(conversation).unique(), on=conversation, how="semi").join(
        judgments.rename({"metric": "target"}),
        on=[*conversation, "turn_index", "target"],
        how="anti",
        nulls_equal=True,
    )
    return tuple(
        f"{file}:{line}: the rating of {target} by {rater} is ignored: the metric does not apply to the rated part."
        for file, line, target, rater in idle.sort("file", "line")
        .select("file", "line", "target", "rater")
        .iter_rows()
    )


def ratings_hash(rows: pl.DataFrame) -> str:
    """Return the content hash of human ratings, used as a data version. Rows are hashed in order of precedence."""
    ordered = _in_order(rows)
    more = [name for name in ("value", "label", "further_labels", "role", *SAMPLED) if ordered[name].count()]
    further = [ordered.select(more).rows()] if more else []
    texts = ordered.select(COLUMNS).with_columns(
        rated_at=pl.Series(map(as_text, ordered["rated_at"]), dtype=pl.String)
    )
    return digest("human_ratings", texts.rows(), *further)


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ratings sorted by time, then by file and line. Ratings without a time come first."""
    return rows.sort("rated_at", "file", "line", nulls_last=False)


def _read_file(path: Path, targets: Mapping[str, Target]) -> Iterator[tuple[int, dict[str, object] | str]]:
    """Yield the number of each line with its row, or with the reason why it is invalid."""
    header: list[str] | None = None
    for line, cells in csv_lines(path):
        if isinstance(cells, str):
            yield line, cells
        elif header is None:
            header = cells
            if problem := _header_problem(header):
                yield 1, problem
                return
        else:
            yield line, _row(header, cells, targets)


def _header_problem(header: Sequence[str]) -> str | None:
    problems = [
        f"{text} {', '.join(map(repr, names))}"
        for text, names in (
            ("missing columns", [c for c in COLUMNS if c not in header]),
            ("unknown columns", [c[:_SHOWN] for c in header if c not in (*COLUMNS, *OPTIONAL)][:5]),
            ("repeated columns", sorted({c for c in header if header.count(c) > 1})),
        )
        if names
    ]
    expected_header = f"{','.join(COLUMNS)}; optional: {','.join(OPTIONAL)}"
    return f"{'; '.join(problems)}. The header is: {expected_header}" if problems else None


def _row(
    header: Sequence[str], cells: Sequence[str], targets: Mapping[str, Target]
) -> dict[str, object] | str:
    if len(cells) != len(header):
        return f"{len(cells)} cells, expected {len(header)}; quote cells that contain commas"
    row: dict[str, str | None] = dict.fromkeys((*COLUMNS, *OPTIONAL))
    row |= {name: cell or None for name, cell in zip(header, cells, strict=True)}
    try:
        return checked_rating(row, targets)
    except ValueError as error:
        return shorten(str(error))


def checked_rating(row: Mapping[str, str | None], targets: Mapping[str, Target]) -> dict[str, object]:
    """Convert the cells of a row to their types.

    Args:
        row: A cell for each of COLUMNS and OPTIONAL; None if it is empty.
        targets: Targets by name, from `targets_of`.

    Raises:
        ValueError: If a cell is invalid; the message states the problem, the allowed values and the fix.
    """
    if not is_slug(row["agent_id"] or ""):
        raise ValueError(f"agent_id is {row['agent_id'] or ''!r}, expected an id of agents.yaml")
    target = targets.get(row["target"] or "")
    if target is None:
        raise ValueError(f"target is {row['target'] or ''!r}, expected one of {', '.join(targets)}")
    _check_place(row, target)
    return {
        **row,
        "turn_index": _turn_index(row["turn_index"]),
        "methodology_version": _version(row["methodology_version"]),
        **_answer(row, target),
        "rater": _rater(row),
        "role": _role(row["role"]),
        "weight": _weight(row["weight"]),
        "rated_at": _time(row["rated_at"]),
    }


def _check_place(row: Mapping[str, str | None], target: Target) -> None:
    places = ("session_id", "conversation_id", "turn_index", "criterion")
    if absent := [name for name in target.needed if row[name] is None]:
        needs = " and ".join(target.needed)
        raise ValueError(f"{', '.join(absent)} is empty; a rating of {target.name} needs {needs}")
    if extra := [name for name in places if row[name] is not None and name not in target.allowed]:
        raise ValueError(f"{', '.join(extra)} is set, but a rating of {target.name} has none; leave it empty")


def _answer(row: Mapping[str, str | None], target: Target) -> dict[str, object]:
    """Return the answer columns: the answer is in the column of the target, and the other two must be empty."""
    others = [n for n in ("rating_1to5", "value", "label") if n != target.answer and row[n] is not None]
    if others:
        raise ValueError(
            f"{', '.join(others)} is set, but a rating of {target.name} belongs in column {target.answer}; leave it empty"
        )
    cell = row[target.answer]
    if target.answer == "rating_1to5":
        return {"rating_1to5": _rating(cell)}
    if target.answer == "value":
        return {"value": _value(cell, target)}
    label, *further = _labels(cell, target)
    return {"label": label, "further_labels": further}


def _rating(cell: str | None) -> int:
    if cell not in {"1", "2", "3", "4", "5"}:
        raise ValueError(f"rating_1to5 is {cell or ''!r}, expected an integer from 1 to 5")
    return int(cell)


def _value(cell: str | None, target: Target) -> float:
    low, high = target.scale
    expected = "0 or 1" if target.is_binary else f"a number from {low:g} to {high:g}"
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    is_allowed = value in (0.0, 1.0) if target.is_binary else low <= value <= high
    if not is_allowed or not (cell or "").isascii() or "_" in (cell or ""):
        raise ValueError(f"value is {cell or ''!r}, expected {expected} for {target.name}")
    return value


def _labels(cell: str | None, target: Target) -> list[str]:
    """Return the labels in a cell such as 'false information; repetition', the main label first."""
    cell_labels = [cell] if cell in target.labels else [part.strip() for part in (cell or "").split(";")]
    if unknown := [label for label in cell_labels if label not in target.labels]:
        allowed_labels = ", ".join(target.labels)
        raise ValueError(
            f"label is {unknown[0][:_SHOWN]!r}, expected one or several (with ; between) of {allowed_labels}"
        )
    if len(cell_labels) > 1 and (NO_FAILURE in cell_labels or len(set(cell_labels)) < len(cell_labels)):
        raise ValueError(
            f"label is {(cell or '')[:_SHOWN]!r}; give each label once, and {NO_FAILURE!r} alone"
        )
    return cell_labels


def _rater(row: Mapping[str, str | None]) -> str:
    """Return the rater. The name of another tool's judge is only valid with the role `judge`."""
    rater = _given(row["rater"], "rater", "who rated, e.g. a name or initials")
    if is_imported(rater.lower()) and row["role"] != JUDGE:
        raise ValueError(f"rater is {rater[:_SHOWN]!r}, the name of a judge; give it the role {JUDGE}")
    return rater


def _role(cell: str | None) -> str | None:
    if cell not in {None, RATER, ADJUDICATOR, JUDGE}:
        raise ValueError(f"role is {cell!r}, expected {RATER}, {ADJUDICATOR}, {JUDGE} or nothing")
    return None if cell == RATER else cell


def _weight(cell: str | None) -> float | None:
    if cell is None:
        return None
    if not re.fullmatch(r"\d{1,12}(\.\d{1,12})?", cell, re.ASCII) or float(cell) <= 0:
        raise ValueError(f"weight is {cell[:_SHOWN]!r}, expected a number above 0, as a rating sheet has it")
    return float(cell)


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
    if cell is None:
        return None
    try:
        when = parse_timestamp(cell)
    except ValueError:
        raise ValueError(f"rated_at is {cell!r}, expected ISO 8601 such as 2026-04-20T10:00:00Z") from None
    check_date(when, "rated_at")
    return cell


def _given(cell: str | None, name: str, expected: str) -> str:
    if cell is None or is_blank(cell):
        raise ValueError(f"{name} is empty, expected {expected}")
    return cell
