"""Read labels by people and by judges of other tools, and convert them to rows of data/ratings.

Three formats are supported: CSV with commas or semicolons (columns conversation, turn, metric, rater or judge, label
or rating, reason and time, or the columns of data/ratings), files of tau2-bench's judge viewer, and results of
UniEval. Judges are stored under their name in the source with the prefix `import:`. A verdict that is neither pass nor
fail (unparsed, a tie or an unknown word) is not a label: it is rejected with file and line, and counted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from pydantic import JsonValue

from agent_eval.formats.csv_lines import csv_lines
from agent_eval.formats.hashing import digest
from agent_eval.formats.json_text import clean
from agent_eval.formats.plain_text import count_of
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import broken, opened
from agent_eval.formats.validation_messages import shorten
from agent_eval.judge.inputs.foreign_judgments import json_of, passed_by_word, read_foreign
from agent_eval.judge.inputs.human_ratings import (
    ANY,
    COLUMNS,
    JUDGE,
    OPTIONAL,
    PART,
    Target,
    checked_rating,
)
from agent_eval.judge.inputs.sheet_sampling import SEALED, opened_sampling
from agent_eval.tables.judging import IMPORTED, is_imported

OUTCOME = "outcome"
"""Role of outcomes that the harness found and that a file has in addition to verdicts."""
_NAMES = {
    "conversation_id": ("conversation", "conversation_id", "simulation_id"),
    "turn_index": ("turn", "turn_index"),
    "target": ("metric", "target"),
    "rater": ("rater",),
    "judge": ("judge",),
    "answer": ("label", "rating", "rating_1to5", "value", "verdict", "answer"),
    "rationale": ("reason", "rationale"),
    "rated_at": ("time", "rated_at"),
    "agent_id": ("agent", "agent_id"),
    "session_id": ("session", "session_id"),
    "rubric_hash": ("rubric", "rubric_hash"),
    "text_hash": ("text", "text_hash"),
    **{
        name: (name,)
        for name in ("methodology_version", "criterion", "evidence", "role", "weight", "stratum")
    },
}
SHOWN = "shown_"
"""Prefix of the columns of a rating sheet that are shown to raters and ignored when the sheet is read."""
_COLUMN = {name: column for column, names in _NAMES.items() for name in names}
_MEAN = "people (mean)"
_TRUTH = {"true": True, "false": False}
_LARGEST = 1e9  # largest absolute value of a valid score


@dataclass(frozen=True)
class Label:
    """Represent a label: its cells for data/ratings as texts, and its origin."""

    file: str
    line: int  # 1-based line, entry or record
    cells: Mapping[str, str | None]  # keys are COLUMNS and OPTIONAL; `rater` and `role` identify the labeller
    answer: str | None  # answer in the source; None if it cannot be read
    cluster: str = ""  # cluster for intervals; if empty, the conversation

    @property
    def part(self) -> tuple[str | None, ...]:
        """Return the ids of the labelled part."""
        return tuple(self.cells.get(name) for name in PART)

    @property
    def target(self) -> str:
        """Return the metric, dimension or test that the label answers."""
        return self.cells.get("target") or ""

    @property
    def who(self) -> str:
        """Return the name of the rater or judge."""
        return self.cells.get("rater") or ""


def read_labels(
    path: Path, targets: Mapping[str, Target], metric: str | None
) -> tuple[list[Label], list[Refusal]]:
    """Return the labels in a file and the rejected lines. The answer of a label is None if it cannot be read.

    Args:
        path: A CSV or JSON file, or a compressed JSON file (.gz).
        targets: Targets by name, from `targets_of`. Words such as 'pass' become 0 or 1 if the target has two values.
        metric: Metric of the labels in files that do not name it: those of tau2-bench's judge viewer, and CSV files
            without a column for it.
    """
    try:
        with opened(path) as stream:
            start = stream.read(1_000).lstrip()[:1]
    except (OSError, EOFError, ValueError) as error:
        return [], [Refusal(clean(path.name), 0, broken(error))]
    if start == b"{":
        return _of_tau2(path, metric or "goal_completion")
    if start == b"[":
        return _of_unieval(path)
    labels: list[Label] = []
    refusals: list[Refusal] = []
    for line, parsed_line in _of_csv(path, targets, metric):
        if isinstance(parsed_line, Label):
            labels.append(parsed_line)
        if problem := parsed_line if isinstance(parsed_line, str) else _unread(parsed_line, targets):
            refusals.append(Refusal(clean(path.name), line, problem))
    return labels, refusals


def rating_rows(
    labels: Iterable[Label],
    targets: Mapping[str, Target],
    agent_of: Callable[[Label], str],
) -> tuple[pl.DataFrame, list[Refusal]]:
    """Return the labels as rows of data/ratings (texts, null if empty), and the labels that cannot be stored.

    Outcomes and unreadable answers are omitted. Labels of an unknown metric are rejected with one message per file and
    metric, as are labels of a UniEval file that are outside the scale of the metric.

    Args:
        labels: Labels from one or more files.
        targets: Targets by name, from `targets_of`.
        agent_of: Function that returns the agent of a label, or raises ValueError with the reason.
    """
    rows: list[dict[str, str | None]] = []
    refusals: list[Refusal] = []
    together: dict[tuple[str, str, str], int] = {}
    for label in labels:
        if label.answer is None or label.cells.get("role") == OUTCOME:
            continue
        try:
            rows.append(_row(label, targets, agent_of))
        except _NotStoredError as error:
            kind = (label.file, label.target, str(error))
            together[kind] = together.get(kind, 0) + 1
        except ValueError as error:
            refusals.append(Refusal(label.file, label.line, shorten(str(error))))
    for (file, name, problem), n in together.items():
        refusals.append(
            Refusal(
                file,
                0,
                f"{count_of(n, 'label')} of {name!r:.40} {'is' if n == 1 else 'are'} not stored: {problem}",
            )
        )
    return pl.DataFrame(rows, schema=dict.fromkeys((*COLUMNS, *OPTIONAL), pl.String)), refusals


class _NotStoredError(ValueError):
    """Raised when no label of a metric in a file can be stored, for the same reason."""


def _row(
    label: Label, targets: Mapping[str, Target], agent_of: Callable[[Label], str]
) -> dict[str, str | None]:
    target = targets.get(label.target)
    if target is None:
        raise _NotStoredError(
            "no metric has this name; declare it in data/metrics, or name one with --metric"
        )
    row: dict[str, str | None] = dict.fromkeys((*COLUMNS, *OPTIONAL))
    row |= {**label.cells, target.answer: label.answer}
    row["methodology_version"] = row["methodology_version"] or ANY
    try:
        row["agent_id"] = agent_of(label)
    except ValueError:
        if label.cluster:
            raise _NotStoredError("their conversations have no ids; name the agent with --agent") from None
        raise
    try:
        checked_rating(row, targets)
    except ValueError:
        if label.cluster and target.answer == "rating_1to5":
            raise _NotStoredError("the metric takes integers from 1 to 5") from None
        raise
    return row


def _of_tau2(path: Path, metric: str) -> tuple[list[Label], list[Refusal]]:
    rows, refusals = read_foreign([path])
    labels = []
    for row in rows.iter_rows(named=True):
        cells = {"conversation_id": row["conversation_id"], "target": metric}
        by_judge = {"rater": IMPORTED + row["judge"], "role": JUDGE, "rationale": row["rationale"] or None}
        labels.append(Label(row["file"], row["entry"], cells | by_judge, _number(row["is_passed"])))
        if row["is_success"] is not None:
            by_harness = {"rater": "tau2_success", "role": OUTCOME}
            labels.append(Label(row["file"], row["entry"], cells | by_harness, _number(row["is_success"])))
    return labels, refusals


def _number(is_passed: bool | None) -> str | None:
    return None if is_passed is None else str(int(is_passed))


def _of_unieval(path: Path) -> tuple[list[Label], list[Refusal]]:
    """Return the labels in UniEval records, and the rejected records.

    A record has `source`, `system_id`, `scores` (means over people) and `predict_scores` (scores of the judge).
    """
    file, (value, problem) = clean(path.name), json_of(path)
    if not isinstance(value, list):
        return [], [Refusal(file, 0, problem or "expected a JSON array of records")]
    judge = IMPORTED + clean(path.name.split(".")[0])
    labels: list[Label] = []
    refusals: list[Refusal] = []
    for number, record in enumerate(value, start=1):
        record_scores = _scores(record)
        if record_scores is None:
            reason = "expected an object with source, system_id, and numbers in scores and predict_scores"
            refusals.append(Refusal(file, number, reason))
            continue
        source, system, of_people, of_judge = record_scores
        cluster = digest("source", source)[:12]
        cells = {"conversation_id": f"{cluster}-{clean(system)}", "turn_index": "0"}
        for rater, role, scores in ((_MEAN, None, of_people), (judge, JUDGE, of_judge)):
            for target, score in scores.items():
                score_cells = {"target": clean(target), "rater": rater, "role": role}
                labels.append(Label(file, number, cells | score_cells, repr(score), cluster))
    return labels, refusals


def _scores(record: JsonValue) -> tuple[str, str, dict[str, float], dict[str, float]] | None:
    if not isinstance(record, dict):
        return None
    source, system = record.get("source"), record.get("system_id")
    tables = [record.get("scores"), record.get("predict_scores")]
    if not isinstance(source, str) or not isinstance(system, str):
        return None
    numbers: list[dict[str, float]] = []
    for scores in tables:
        if not isinstance(scores, dict) or any(
            isinstance(v, bool) or not isinstance(v, int | float) or abs(v) > _LARGEST
            for v in scores.values()
        ):
            return None
        numbers.append({name: float(v) for name, v in scores.items() if isinstance(v, int | float)})
    return source, system, numbers[0], numbers[1]


def _of_csv(
    path: Path, targets: Mapping[str, Target], metric: str | None
) -> Iterator[tuple[int, Label | str]]:
    header: list[str] | None = None
    is_sheet = False
    for line, cells in csv_lines(path):
        if isinstance(cells, str):
            yield line, cells
        elif header is None:
            header = [cell.casefold() for cell in cells]
            is_sheet = "stratum" in header
            if problem := _header_problem(header, metric):
                yield 1, problem
                return
        elif len(cells) != len(header):
            yield line, f"{len(cells)} cells, expected {len(header)}; quote cells that contain separators"
        elif not (is_sheet and _is_empty(header, cells)):
            yield line, _label(clean(path.name), line, header, list(map(_unguarded, cells)), targets, metric)


def _is_empty(header: Sequence[str], cells: Sequence[str]) -> bool:
    """Return whether a line of a rating sheet has no label yet."""
    return not any(cell for name, cell in zip(header, cells, strict=True) if _COLUMN.get(name) == "answer")


def _unguarded(cell: str) -> str:
    """Return a cell without the leading apostrophe that prevents a spreadsheet from reading it as a formula."""
    return cell[1:] if re.match(r"'\s*[=+\-@]", cell) else cell


def _header_problem(header: Sequence[str], metric: str | None) -> str | None:
    header = [name for name in header if not name.startswith(SHOWN)]
    columns = [_COLUMN.get(name) for name in header]
    problems = [f"unknown column {name!r:.40}" for name in header if name not in _COLUMN][:5]
    for needed in ("conversation_id", "target", "answer"):
        if needed not in columns and not (needed == "target" and metric):
            problems.append(f"no column {' or '.join(_NAMES[needed])}")
    if "rater" not in columns and "judge" not in columns:
        problems.append("no column rater or judge")
    repeated = {c for c in columns if c and c != "answer" and columns.count(c) > 1}
    problems += [f"several columns for {name}" for name in sorted(repeated)]
    column_names = ", ".join(dict.fromkeys(names[0] for names in _NAMES.values()))
    return f"{'; '.join(problems)}. Columns: {column_names}" if problems else None


def _label(
    file: str,
    line: int,
    header: Sequence[str],
    row: Sequence[str],
    targets: Mapping[str, Target],
    metric: str | None,
) -> Label | str:
    cells: dict[str, str | None] = {}
    answers = []
    for name, cell in zip(header, row, strict=True):
        if _COLUMN.get(name) == "answer":
            answers += [cell] if cell else []
        elif not name.startswith(SHOWN):
            cells[_COLUMN[name]] = cell or None
    judge = cells.pop("judge", None)
    if bool(judge) == bool(cells.get("rater")):
        return "give either a rater or a judge"
    judge = judge or (cells.get("rater") if cells.get("role") == JUDGE else None)
    if judge:
        cells |= {"rater": judge if is_imported(judge) else IMPORTED + judge, "role": JUDGE}
    if len(answers) > 1:
        return f"{len(answers)} answers, expected one of {', '.join(_NAMES['answer'])}"
    cells["target"] = cells.get("target") or metric
    if (cells.get("stratum") or "").startswith(SEALED):
        try:
            cells |= _opened(cells)
        except ValueError as error:
            return str(error)
    target = targets.get(cells["target"] or "")
    return Label(file, line, cells, _read(answers[0] if answers else None, target))


def _opened(cells: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the cells `weight` and `stratum` of a line whose sampling is sealed."""
    turn = cells.get("turn_index")
    index = int(turn) if turn and turn.isascii() and turn.isdigit() and len(turn) <= 10 else None
    agent, conversation, metric = (
        cells.get(name) or "" for name in ("agent_id", "conversation_id", "target")
    )
    weight, stratum = opened_sampling(cells["stratum"] or "", (agent, conversation, index, metric))
    return {"weight": f"{weight:f}", "stratum": stratum}


def _read(answer_text: str | None, target: Target | None) -> str | None:
    """Return an answer in the format of data/ratings, or None if it is empty or not a readable verdict."""
    if answer_text is None or target is None or target.answer == "label":
        return answer_text
    if re.fullmatch(r"-?\d+,\d+", answer_text):  # a number with a decimal comma
        answer_text = answer_text.replace(",", ".")
    if re.fullmatch(r"[1-5]\.0+", answer_text) and target.answer == "rating_1to5":
        answer_text = answer_text[0]
    if target.is_binary and not re.fullmatch(r"-?[\d.]+", answer_text):
        return _number(_TRUTH.get(answer_text.casefold(), passed_by_word(answer_text)[0]))
    return answer_text


def _unread(label: Label, targets: Mapping[str, Target]) -> str | None:
    """Return why a label has no answer, or None if it has one."""
    if label.answer is not None:
        return None
    target = targets.get(label.target)
    expected = "pass, fail, 0 or 1" if target and target.is_binary else "an answer"
    return f"the verdict is a tie or empty, or neither pass nor fail; expected {expected} for {label.target!r:.40}"
