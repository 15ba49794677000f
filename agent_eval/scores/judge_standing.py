"""Determine whether the judges of an agent are calibrated against people, stale or not calibrated.

Functions take and return frames; the figures are taken from table judge_calibration.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval.scores.calibration import HUMAN, compared_with_people
from agent_eval.tables.judging import is_imported
from agent_eval.tables.schema import DECLARED

_PAIR = ["methodology_version", "agent_id"]
_CALIBRATED, _STALE, _NOT = "calibrated", "stale", "not calibrated"
_NO_JUDGE = (HUMAN, "rule", "none")
_KAPPA = ("kappa", "kappa_low", "kappa_high")
SCHEMA = pl.Schema(
    {
        **dict.fromkeys((*_PAIR, "metric", "judge", "standing", "compared_judge"), pl.String),
        **dict.fromkeys(("n", "n_conversations"), pl.Int64),
        **dict.fromkeys(("raw_agreement", *_KAPPA), pl.Float64),
        "is_weighted": pl.Boolean,
    }
)
Row = Mapping[str, Any]


def judge_standings(judgments: pl.DataFrame, calibration: pl.DataFrame) -> pl.DataFrame:
    """Return the calibration status of each judge, with one row per version, agent, metric and judge.

    `standing` is 'calibrated' if judge_calibration has a row for the judge and rubric that is not stale and has an
    interval of kappa. It is 'stale' if only a stale row, or a row of another judge or rubric, has such an interval, and
    'not calibrated' otherwise. `kappa` has quadratic weights if the metric's answers are numbers (`is_weighted`). `n`,
    kappa and `compared_judge` are copied from the row of judge_calibration, and null without one. The result does not
    include people, rules or judges of other tools.

    Args:
        judgments: methodology_version, agent_id, metric, judge and rubric_hash of the effective answers.
        calibration: Table judge_calibration.
    """
    of_metric: dict[tuple[str, str], list[Row]] = defaultdict(list)
    of_people = calibration.filter(compared_with_people())
    for row in _with_kappa(of_people).iter_rows(named=True):
        if is_judge(row["judge"]):
            of_metric[row["methodology_version"], row["metric"]].append(row)
    judge_key = [*_PAIR, "metric", "judge", "rubric_hash"]
    rows = [
        {name: row[name] for name in judge_key[:-1]}
        | _standing(row, of_metric.get((row["methodology_version"], row["metric"]), ()))
        for row in judgments.select(judge_key).unique().sort(judge_key).iter_rows(named=True)
        if is_judge(row["judge"])
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def is_judge(name: str) -> bool:
    """Return whether the name is that of a model, an ensemble or a recorded verdict, i.e. a judge that can be wrong."""
    return name not in _NO_JUDGE and not is_imported(name)


def board_calibration(standings: pl.DataFrame) -> pl.DataFrame:
    """Return one row per version and agent with the board columns of group `calibrated` in `tables.txt`.

    An agent is calibrated if any of its metrics is, else stale if any metric is stale. The figures are those of the
    metric with that status whose interval of kappa has the lowest lower limit. For an agent that is not calibrated,
    they are those of the metric with the most labels, if any.
    """
    rows: list[dict[str, Any]] = []
    for (version, agent), of_pair in standings.group_by(_PAIR, maintain_order=True):
        rows_of_pair = of_pair.to_dicts()
        standing = next(
            s for s in (_CALIBRATED, _STALE, _NOT) if any(r["standing"] == s for r in rows_of_pair)
        )
        of_standing = [row for row in rows_of_pair if row["standing"] == standing]
        decisive_row = (
            max(of_standing, key=lambda row: row["n"] or 0)
            if standing == _NOT
            else min(of_standing, key=lambda row: row["kappa_low"])
        )
        with_labels = decisive_row["n"] is not None
        rows.append(
            {
                "methodology_version": version,
                "agent_id": agent,
                "calibration": standing,
                "calibration_metric": decisive_row["metric"] if with_labels else None,
                "calibration_judge": decisive_row["compared_judge"],
                "calibration_n": decisive_row["n"],
                "calibration_agreement": decisive_row["raw_agreement"],
                **{f"calibration_{name}": decisive_row[name] for name in _KAPPA},
                "n_metrics_calibrated": len(
                    {row["metric"] for row in of_standing if row["standing"] != _NOT}
                ),
                "n_metrics_judged": len({row["metric"] for row in rows_of_pair}),
            }
        )
    types = {name: column.dtype for name, column in DECLARED["calibrated"].columns.items()}
    return pl.DataFrame(rows, schema={**dict.fromkeys(_PAIR, pl.String), **types})


def _with_kappa(calibration: pl.DataFrame) -> pl.DataFrame:
    """Replace kappa by the weighted kappa for metrics whose answers are numbers."""
    is_weighted = pl.col("weighted_kappa").is_not_null()
    return calibration.with_columns(
        is_weighted=is_weighted,
        **{name: pl.when(is_weighted).then(f"weighted_{name}").otherwise(name) for name in _KAPPA},
    )


def _standing(judge: Row, rows: Sequence[Row]) -> dict[str, Any]:
    same = [r for r in rows if r["judge"] == judge["judge"] and r["rubric_hash"] == judge["rubric_hash"]]
    current = next((row for row in same if not row["is_stale"]), None)
    if current is not None and current["kappa_low"] is not None:
        return _figures(_CALIBRATED, current)
    earlier = [row for row in rows if row is not current and row["kappa_low"] is not None]
    if current is None and earlier:
        return _figures(_STALE, max(earlier, key=lambda row: (row["judge"] == judge["judge"], row["n"])))
    return _figures(_NOT, current)


def _figures(standing: str, row: Row | None) -> dict[str, Any]:
    names = ("n", "n_conversations", "raw_agreement", *_KAPPA, "is_weighted")
    figures = {name: None if row is None else row[name] for name in names}
    return {"standing": standing, "compared_judge": None if row is None else row["judge"], **figures}
