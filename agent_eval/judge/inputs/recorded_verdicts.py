"""Read recorded verdicts: stored answers of judges, which need no API key and no network.

A verdict is looked up by its question key, a hash of content, turn, metric, rubric and profile version. If any of
these is edited, the verdict no longer matches.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import polars as pl
from pydantic import (
    Field,
    JsonValue,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from agent_eval.formats.files import files_in
from agent_eval.formats.hashing import canonical, digest
from agent_eval.formats.json_text import clean
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import Record, json_lines
from agent_eval.formats.timestamps import as_text, check_date, parse_timestamp
from agent_eval.formats.validation_messages import shorten
from agent_eval.judge.keys import cache_key, question_key
from agent_eval.judge.protocol import Cause, NotApplicable, Question, Scored, Verdict
from agent_eval.methodology.models import DIMENSIONS
from agent_eval.metrics.base import NO_FAILURE
from agent_eval.metrics.earlier import is_earlier
from agent_eval.metrics.metric_set import CONVERSATION_METRICS, TURN_METRICS
from agent_eval.tables import table
from agent_eval.transcripts.models import SLOTS, Frozen

Text = Annotated[StrictStr, StringConstraints(min_length=1)]
Count = Annotated[StrictInt, Field(ge=0, lt=2**31)]

_CACHE = table("judge_cache")
_TURN = {metric.name: metric for metric in TURN_METRICS}
_CONVERSATION = {metric.name: metric for metric in CONVERSATION_METRICS}


class RecordedCause(Frozen):
    """Represent the cause of a failure label in general words."""

    label: Text
    cause: StrictStr | None = None
    should_have: StrictStr | None = None


class Answer(Frozen):
    """Represent an answer in the format of judge_cache.verdict. Exactly one of rating, value and label is set."""

    status: Literal["scored"]
    rating_1to5: Annotated[StrictInt, Field(ge=1, le=5)] | None = None
    value: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)] | None = None
    label: StrictStr | None = None
    further_labels: tuple[StrictStr, ...] = ()
    causes: tuple[RecordedCause, ...] = Field(default=(), exclude_if=lambda value: not value)
    rationale: Text
    evidence: StrictStr | None = None

    @property
    def kind(self) -> str:
        """Return the kind of answer: 'rating', 'value' or 'label'."""
        answers = {"rating": self.rating_1to5, "value": self.value, "label": self.label}
        return " and ".join(name for name, answer in answers.items() if answer is not None) or "nothing"


class RecordedVerdict(Frozen):
    """Represent a line of data/verdicts/*.jsonl: a row of judge_cache whose keys must match the hashed fields."""

    cache_key: Text
    question_key: Text
    content_hash: Text
    turn_index: Count | None = None
    metric: Text
    rubric_hash: Text
    profile_version: Text
    model: Text
    parameters: dict[str, JsonValue]
    repeat: Count = 0
    verdict: Answer
    prompt_hash: StrictStr | None = None
    n_tokens_in: Count | None = None
    n_tokens_out: Count | None = None
    n_tokens_cached: Count | None = None
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    judged_at: Text

    @model_validator(mode="after")
    def _keys_and_answer(self) -> Self:
        try:
            when = parse_timestamp(self.judged_at)
        except ValueError:
            raise ValueError(f"judged_at is {self.judged_at!r}, expected ISO 8601") from None
        check_date(when, "judged_at")
        _check_answer(self)
        question = question_key(
            self.content_hash, self.turn_index, self.metric, self.rubric_hash, self.profile_version
        )
        if self.question_key != question:
            raise ValueError(f"question_key is not the hash of its parts, expected {question}")
        key = cache_key(question, self.model, self.parameters, self.repeat)
        if self.cache_key != key:
            raise ValueError(f"cache_key is not the hash of its parts, expected {key}")
        return self

    def row(self) -> dict[str, object]:
        """Return the verdict as a row of the table judge_cache."""
        return {
            **self.model_dump(),
            "is_recorded": True,
            "parameters": canonical(self.parameters).decode(),
            "verdict": canonical(self.verdict.model_dump(mode="json", exclude_none=True)).decode(),
        }


def read_verdicts(folder: Path) -> tuple[pl.DataFrame, list[Refusal]]:
    """Read the *.jsonl files in a folder. Return the verdicts as the table `judge_cache`, and the rejected lines.

    If several lines have the same cache_key, the first one is kept; later lines are skipped if equal, else rejected. A
    file that cannot be opened is rejected as a whole, with line 0. If reading fails midway, the lines read so far are
    kept. If the folder does not exist, the table is empty.
    """
    rows: dict[str, dict[str, object]] = {}
    refusals: list[Refusal] = []
    for path, reason in files_in(folder, ".jsonl"):
        file = clean(path.name)
        for line, record in [(0, reason)] if reason else _read_file(path, file):
            if isinstance(record, str):
                refusals.append(Refusal(file, line, record))
                continue
            row = record.row()
            if rows.setdefault(record.cache_key, row) != row:
                again = (
                    f"cache_key {record.cache_key} has a different answer in an earlier line, which is kept. "
                    "Remove one of the lines, or give this one another `repeat`"
                )
                refusals.append(Refusal(file, line, again))
    return _CACHE.conform(_CACHE.frame(rows.values())), refusals


def verdicts_hash(frame: pl.DataFrame) -> str:
    """Return the content hash of verdicts (table judge_cache), used as a data version. Row order is ignored."""
    rows = frame.select("cache_key", "verdict", "judged_at").iter_rows()
    return digest("verdicts", sorted((key, verdict, as_text(at)) for key, verdict, at in rows))


class RecordedJudge:
    """Answers each question with its latest recorded verdict, and abstains if there is none.

    Only rows with `is_recorded` are used; the other rows of judge_cache are answers of judge models.
    """

    name = "recorded"

    def __init__(self, rows: pl.DataFrame) -> None:
        self._rows: dict[str, dict[str, object]] = {}
        rows = rows.filter("is_recorded")
        for row in rows.sort("judged_at", "cache_key").iter_rows(named=True):
            self._rows[row["question_key"]] = row

    async def judge(self, question: Question) -> Mapping[str, Verdict]:
        """Return the recorded verdict for each metric, or an abstention if there is none."""
        return {metric.name: self._verdict(question.keys.get(metric.name, "")) for metric in question.metrics}

    def _verdict(self, key: str) -> Verdict:
        row = self._rows.get(key)
        answer = _stored_answer(str(row["verdict"])) if row else None
        if row is None or answer is None:
            return NotApplicable("no recorded verdict on this content", is_abstention=True)
        return Scored(
            rationale=answer.rationale,
            evidence=answer.evidence,
            rating_1to5=answer.rating_1to5,
            value=answer.value,
            label=answer.label,
            further_labels=answer.further_labels,
            causes=tuple(Cause(c.label, c.cause, c.should_have) for c in answer.causes),
            answered_by=_text(row["model"]),
            answered_at=as_text(row["judged_at"]),
            prompt_hash=_text(row["prompt_hash"]),
            earlier_profile=_earlier_profile(row),
        )


def _earlier_profile(row: Mapping[str, object]) -> str | None:
    metric, version, rubric_hash = (str(row[name]) for name in ("metric", "profile_version", "rubric_hash"))
    return version if is_earlier(metric, version, rubric_hash) else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _stored_answer(verdict: str) -> Answer | None:
    """Return the answer in a stored verdict, or None if the verdict is not a score."""
    try:
        return Answer.model_validate_json(verdict)
    except ValidationError:
        return None


def _check_answer(row: RecordedVerdict) -> None:
    """Raise ValueError if the metric is unknown, or the turn or kind of answer does not match the metric."""
    name, answer = row.metric, row.verdict
    metric = _TURN.get(name) or _CONVERSATION.get(name)
    if metric is None and not _is_rubric(name):
        metric_names = ", ".join((*_TURN, *_CONVERSATION, *DIMENSIONS))
        raise ValueError(
            f"metric {name!r} is not known; known are {metric_names} and 'D1.<criterion>'..'D5.<criterion>'"
        )
    if (name in _TURN) != (row.turn_index is not None):
        raise ValueError(f"turn_index is {row.turn_index}; turn metrics have one, other metrics have none")
    kind = metric.kind if metric else "rating"
    if answer.kind != kind:
        raise ValueError(f"{name} is a {kind}, but the verdict holds {answer.kind}")
    labels = metric.labels if metric else ()
    own_labels = [label for label in (answer.label, *answer.further_labels) if label is not None]
    if unknown := [label for label in own_labels if label not in labels]:
        raise ValueError(f"{name}: label {unknown[0]!r} is not one of {', '.join(labels) or 'none'}")
    if answer.further_labels and (NO_FAILURE in own_labels or len(set(own_labels)) < len(own_labels)):
        raise ValueError(f"{name}: further_labels go with another failure label and do not repeat one")


def _is_rubric(name: str) -> bool:
    slot, _, criterion = name.partition(".")
    return name in DIMENSIONS or (slot in SLOTS and criterion.isidentifier())


def _read_file(path: Path, file: str) -> Iterator[tuple[int, RecordedVerdict | str]]:
    """Yield the number of each line with its verdict, or with the reason why it is invalid. Blank lines are skipped."""
    for record in json_lines(path, file):
        if isinstance(record, Record):
            yield record.number, _verdict_of(record.value)
        else:
            yield record.line, record.reason


def _verdict_of(value: JsonValue) -> RecordedVerdict | str:
    try:
        return RecordedVerdict.model_validate(value)
    except ValidationError as error:
        return shorten("; ".join(_problem(e["loc"], e["msg"]) for e in error.errors(include_input=False)))
    except RecursionError:
        return "it is nested too deeply; write one row of judge_cache per line"


def _problem(location: tuple[int | str, ...], message: str) -> str:
    at = ".".join(str(part)[:40] for part in location)
    return f"{at}: {message}" if at else message.removeprefix("Value error, ")
