"""Group judgments for a page: values with the same rationale, and metrics without a value by reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eval.report.html.tables import Row

_GOOD_LABEL = "no failure"


@dataclass(frozen=True)
class Value:
    """Represent a judgment of one metric for display; `tone` is r1 to r5, good, bad, plain or unknown."""

    metric: str
    text: str
    tone: str


@dataclass(frozen=True)
class Opinion:
    """Represent values that one judge gave with the same rationale."""

    values: tuple[Value, ...]
    rows: tuple[Row, ...]  # one per value; each row has its own hashes
    where: str  # '' if it holds for every version
    mark: int | None  # number of its quote, if the page marks it

    @property
    def row(self) -> Row:
        """Return the row of the first value; all values have the same text and judge."""
        return self.rows[0]

    @property
    def is_finding(self) -> bool:
        """Return whether a value is neither good nor without a tone."""
        return any(value.tone in ("r1", "r2", "r3", "bad") for value in self.values)


@dataclass(frozen=True)
class Gap:
    """Represent metrics without a value, with the reason."""

    metrics: tuple[str, ...]
    status: str
    reason: str
    judge: str


def value_of(row: Row) -> Value:
    """Return the value of a scored judgment as text and tone."""
    if row["rating_1to5"] is not None:
        return Value(row["metric"], f"{row['rating_1to5']} / 5", f"r{row['rating_1to5']}")
    if row["label"] is not None:
        labels = " + ".join([row["label"], *(row["further_labels"] or ())])
        return Value(row["metric"], labels, "good" if row["label"] == _GOOD_LABEL else "bad")
    if row["value"] is not None:
        tone = "good" if row["value"] == 1 else "bad" if row["value"] == 0 else "plain"
        return Value(row["metric"], _yes_no(row["value"]), tone)
    return Value(row["metric"], "no value", "unknown")


def opinions(rows: Iterable[Row], n_versions: int, marks: dict[str, int]) -> list[Opinion]:
    """Group scored judgments by judge, rationale and quote; effective judgments come first."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["status"] == "scored":
            words = (row["judge"], row["judge_model"], row["rationale"], row["evidence"])
            key = (*words, row["is_effective"], row["decided_by"], tuple(sorted(row["versions"])))
            groups.setdefault(key, []).append(row)
    all_opinions = [
        Opinion(
            values=tuple(value_of(row) for row in group),
            rows=tuple(group),
            where=in_versions(group[0]["versions"], n_versions),
            mark=marks.get(group[0]["evidence"] or ""),
        )
        for group in groups.values()
    ]
    return sorted(all_opinions, key=lambda opinion: not opinion.row["is_effective"])


def gaps(rows: Iterable[Row]) -> list[Gap]:
    """Return the judgments without a value, grouped by reason, each with its metrics."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row["status"] != "scored":
            reason = ": ".join(str(text) for text in (row["unscored_reason"], row["rationale"]) if text)
            key = (row["status"], reason or "no reason given", row["judge"])
            metrics = groups.setdefault(key, [])
            if row["metric"] not in metrics:
                metrics.append(row["metric"])
    return [Gap(tuple(metrics), *key) for key, metrics in groups.items()]


def in_versions(versions: Sequence[str], n_versions: int) -> str:
    """Return text such as 'under 1.2.0, 1.3.0', or '' if these are all versions."""
    return "" if len(versions) >= n_versions else f"under {', '.join(sorted(versions, key=_order))}"


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _yes_no(value: float) -> str:
    return {0.0: "no", 1.0: "yes"}.get(value, f"{value:.3g}")
