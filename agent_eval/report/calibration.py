"""Prepare table judge_calibration for the report and the Dagster UI: figures and confusion matrices."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.report.charts import IntervalMark, span
from agent_eval.report.names import Paths

CELL, LEFT, TOP = 56, 150, 44  # size of a cell, left margin and top margin of the picture, in SVG units
_OF_CHECK = ("raw agreement", "Cohen's kappa")
MOST = 12  # maximum number of answers on each side
FIGURES = {
    "raw_agreement": "raw agreement",
    "kappa": "Cohen's kappa",
    "weighted_kappa": "kappa, quadratic weights",
    "alpha": "Krippendorff's alpha",
    "base_rate": "share of positive of people or outcomes",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "step_accuracy": "same message cited",
    "speaker_accuracy": "same speaker cited",
    "mean_bias": "mean bias (judge − person)",
    "length_correlation": "judge and reply length",
    "length_correlation_human": "people and reply length",
}
"""Column → its name on pages."""


@dataclass(frozen=True)
class Cell:
    """Represent one cell of the confusion matrix; `share` is its share of the labels in its column, from 0 to 1."""

    x: int
    y: int
    n: int
    share: float
    is_equal: bool
    words: str


@dataclass(frozen=True)
class Confusion:
    """Represent a confusion matrix: answers of the judge in rows, answers of people in columns."""

    width: int
    height: int
    rows: Sequence[tuple[int, str]]  # position and answer of the judge
    columns: Sequence[tuple[int, str]]
    cells: Sequence[Cell]


@dataclass(frozen=True)
class CalibrationView:
    """Represent one row of judge_calibration for display; each figure is a name and a value with its interval."""

    name: str
    row: Mapping[str, Any]
    kappa: IntervalMark | None
    figures: Sequence[tuple[str, str]]
    confusion: Confusion | None

    @property
    def why_no_figures(self) -> str:
        """Return why there is no kappa."""
        return why_no_figures(self.row)


def calibration_page(version: str, calibration: pl.DataFrame, paths: Paths) -> dict[str, Any]:
    """Return the content of a version's calibration page: judges by metric, and raters compared with each other."""
    rows = [
        _view(row)
        for row in calibration.filter(methodology_version=version).sort("metric", "judge").to_dicts()
    ]
    judges = [view for view in rows if view.row["judge"] != "human"]
    people = [view for view in rows if view.row["judge"] == "human"]
    return {"version": version, "judges": judges, "people": people, "board": paths.board(version)}  # fmt: skip


def figures(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each known figure of a row; a value is e.g. '0.61 (0.42 to 0.78)'."""
    for column, name in FIGURES.items():
        if row[column] is not None:
            low, high = row[f"{column}_low"], row[f"{column}_high"]
            between = "no interval" if low is None else f"{low:.2f} to {high:.2f}"
            yield name, f"{row[column]:.2f} ({between})"


def outcome_checks(calibration: pl.DataFrame) -> list[str]:
    """Return a sentence for each judge that was compared with declared outcomes: agreement and kappa."""
    rows = calibration.filter(pl.col("reference").cast(pl.String) == "declared outcomes")
    return [
        f"{row['judge']} against {count_of(row['n'], 'declared outcome')} (never counted): "
        + ", ".join(f"{name} {value}" for name, value in figures(row) if name in _OF_CHECK)
        for row in rows.sort("judge").iter_rows(named=True)
    ]


def why_no_figures(row: Mapping[str, Any]) -> str:
    """Return why a row has no kappa: it has a single label, or all answers are the same."""
    return "1 label: too few" if row["n"] == 1 else "not defined"


def name_of(row: Mapping[str, Any]) -> str:
    """Return the metric and the judge of a row as text, e.g. 'helpfulness: gpt-4o'."""
    who = "people with each other" if row["judge"] == "human" else row["judge"]
    who += "" if row["reference"] in (None, "people") else f" against {row['reference']}"
    return f"{row['metric']}: {who}{' (stale)' if row['is_stale'] else ''}"


def kappa_of(row: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    """Return the kappa of a row with its interval; the kappa with quadratic weights if it is defined."""
    name = "kappa" if row["weighted_kappa"] is None else "weighted_kappa"
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


def confusion(text: str | None) -> Confusion | None:
    """Return the confusion matrix in column `confusion`; None if it is empty or has more than twelve answers a side."""
    cells = json.loads(text) if text else []
    sides = [sorted({cell[side] for cell in cells}, key=_order) for side in ("judge", "human")]
    if not cells or max(map(len, sides)) > MOST:
        return None
    judges, people = sides
    of_column = {h: sum(cell["n"] for cell in cells if cell["human"] == h) for h in people}
    return Confusion(
        width=LEFT + CELL * len(people) + 10,
        height=TOP + CELL * len(judges) + 10,
        rows=[(TOP + CELL * i + CELL // 2, _text(answer)) for i, answer in enumerate(judges)],
        columns=[(LEFT + CELL * i + CELL // 2, _text(answer)) for i, answer in enumerate(people)],
        cells=[
            Cell(
                LEFT + CELL * people.index(cell["human"]),
                TOP + CELL * judges.index(cell["judge"]),
                cell["n"],
                cell["n"] / of_column[cell["human"]],
                cell["judge"] == cell["human"],
                f"judge {_text(cell['judge'])}, person {_text(cell['human'])}: {cell['n']}",
            )
            for cell in cells
        ],
    )


def _view(row: Mapping[str, Any]) -> CalibrationView:
    value, low, high = (None if end is None else end + 1 for end in kappa_of(row))
    kappa_span = span(value, low, high, scale=2)  # kappas lie between −1 and 1
    return CalibrationView(name_of(row), row, kappa_span, tuple(figures(row)), confusion(row["confusion"]))


def _order(answer: str | float) -> tuple[bool, bool, str | float]:
    """Return a sort key: numbers by size, then 'no failure', then the other labels by name."""
    return isinstance(answer, str), answer != "no failure", answer


def _text(answer: str | float) -> str:
    return answer if isinstance(answer, str) else f"{answer:g}"
