"""Compute the geometry of plots.

`html/templates/_charts.html` draws the plots for the report, and `svg.py` for the Dagster UI.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

RADIUS = 100.0
RATINGS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Axis:
    """Represent one axis of a radar chart; `point` is the position of its value, None if the value is missing."""

    name: str
    title: str
    value: float | None  # 1–5
    end: tuple[float, float]
    label: tuple[float, float]
    anchor: str  # SVG text-anchor of the label
    point: tuple[float, float] | None


@dataclass(frozen=True)
class Radar:
    """Represent a radar chart of ratings from 1 to 5. The outline is closed only if all values are known."""

    axes: tuple[Axis, ...]
    rings: tuple[str, ...]  # polygons of the ratings 1–5, as SVG points
    outline: str | None
    lines: tuple[tuple[tuple[float, float], tuple[float, float]], ...]  # between neighbouring known values

    @property
    def summary(self) -> str:
        """Return the values in words."""
        return ", ".join(
            f"{axis.name} {'missing' if axis.value is None else f'{axis.value:.2f}'}" for axis in self.axes
        )


def radar(values: Sequence[tuple[str, str, float | None]]) -> Radar:
    """Return the radar chart of axes given as (name, title, rating from 1 to 5 or None)."""
    axes = tuple(_axis(i, len(values), *value) for i, value in enumerate(values))
    points = [axis.point for axis in axes]
    rated_points = [point for point in points if point is not None]
    pairs = zip(points, [*points[1:], *points[:1]], strict=True)
    return Radar(
        axes=axes,
        rings=tuple(
            _polygon([_at(i, len(values), RADIUS * r / 5) for i in range(len(values))]) for r in RATINGS
        ),
        outline=_polygon(rated_points) if len(rated_points) == len(points) else None,
        lines=tuple((a, b) for a, b in pairs if a is not None and b is not None),
    )


def _axis(i: int, n: int, name: str, title: str, value: float | None) -> Axis:
    label = _at(i, n, RADIUS + 16)
    anchor = "middle" if abs(label[0]) < 1 else "start" if label[0] > 0 else "end"
    point = None if value is None else _at(i, n, RADIUS * value / 5)
    return Axis(name, title, value, _at(i, n, RADIUS), label, anchor, point)


def _at(i: int, n: int, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * i / n - math.pi / 2
    return round(radius * math.cos(angle), 1), round(radius * math.sin(angle), 1)


def _polygon(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


@dataclass(frozen=True)
class StackPart:
    """Represent one part of a stacked bar, in percent of its width."""

    name: str
    n: int
    start: float
    width: float


def stacked(counts: Mapping[int, int]) -> tuple[StackPart, ...]:
    """Return a bar divided by the shares of the ratings 1–5; ratings without a count are omitted."""
    total, start, parts = sum(counts.values()), 0.0, list[StackPart]()
    for rating in RATINGS:
        if n := counts.get(rating, 0):
            width = 100 * n / total
            parts.append(StackPart(str(rating), n, round(start, 2), round(width, 2)))
            start += width
    return tuple(parts)


@dataclass(frozen=True)
class IntervalMark:
    """Represent a value with its interval, as percentages of the scale; bounds are None without an interval."""

    at: float
    low: float | None
    high: float | None

    @property
    def width(self) -> float:
        """Return the width of the interval; 0 without one."""
        return 0.0 if self.low is None or self.high is None else round(self.high - self.low, 2)


def span(
    value: float | None, low: float | None, high: float | None, scale: float = 100
) -> IntervalMark | None:
    """Return the positions of a value and its bounds on a scale from 0 to `scale`; None without a value."""
    if value is None:
        return None
    at, left, right = (None if v is None else round(100 * v / scale, 2) for v in (value, low, high))
    return IntervalMark(at or 0.0, left, right)


@dataclass(frozen=True)
class LinePoint:
    """Represent one session, run or version on a line, in SVG units; `low` and `high` are the ends of its interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    words: str  # the values as text, for screen readers and tooltips


@dataclass(frozen=True)
class ShareLine:
    """Represent shares from 0 to 1 in their order; unknown shares interrupt the line."""

    points: tuple[LinePoint, ...]
    parts: tuple[str, ...]  # neighbouring known points, as SVG points
    marks: tuple[tuple[float, str], ...]  # positions and labels on the axis of shares
    ends: tuple[str, str]  # names of the first and the last value

    width = 640
    height = 196
    left, top, right, bottom = 46, 12, 630, 170


def line(
    values: Sequence[tuple[str, float | None, float | None, float | None]], unit: str = " %"
) -> ShareLine | None:
    """Return the line of (name, share, low, high) with labels in hundredths; None if fewer than two shares are known."""
    step = (ShareLine.right - ShareLine.left - 20) / max(len(values) - 1, 1)

    def y(share: float) -> float:
        return round(ShareLine.bottom - (ShareLine.bottom - ShareLine.top) * share, 1)

    points: list[LinePoint | None] = []
    for i, (name, share, low, high) in enumerate(values):
        interval = "no interval" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}"
        point = None if share is None else LinePoint(
            x=round(ShareLine.left + 10 + i * step, 1),
            y=y(share),
            low=None if low is None else y(low),
            high=None if high is None else y(high),
            words=f"{name}: {100 * share:.1f}{unit} ({interval})",
        )  # fmt: skip
        points.append(point)
    parts: list[list[LinePoint]] = [[]]
    for point in points:
        if point is None:
            parts.append([])
        else:
            parts[-1].append(point)
    points_with_share = tuple(point for point in points if point is not None)
    return None if len(points_with_share) < 2 else ShareLine(
        points=points_with_share,
        parts=tuple(_polygon([(p.x, p.y) for p in part]) for part in parts if len(part) > 1),
        marks=tuple((y(share / 100), f"{share}{unit}") for share in (0, 50, 100)),
        ends=(values[0][0], values[-1][0]),
    )  # fmt: skip


@dataclass(frozen=True)
class ScatterPoint:
    """Represent one agent in a scatter plot, in SVG units; `low` and `high` are the ends of its interval."""

    name: str
    group: int  # number of its template among those of the plot, from 0
    x: float
    y: float
    low: float | None
    high: float | None
    is_front: bool
    anchor: str  # SVG text-anchor of the label
    words: str  # the values as text, for screen readers and tooltips
    label: tuple[str, float, float] | None = (
        None  # the name, cut, and its place; None where others leave no room
    )


@dataclass(frozen=True)
class Scatter:
    """Represent a scatter plot of scores (0–100) over costs, for the agents of one or several templates."""

    points: tuple[ScatterPoint, ...]
    groups: tuple[str, ...]  # the templates
    fronts: tuple[tuple[int, str], ...]  # number of a template, and its Pareto front as SVG points
    ticks: tuple[tuple[float, str], ...]  # positions and labels on the axis of costs
    marks: tuple[tuple[float, str], ...]  # positions and labels on the axis of scores
    unknown: float | None  # position of the agents without a known cost; None if there are none

    width = 380
    height = 400
    left, top, right, bottom = 40, 12, 362, 346


@dataclass(frozen=True)
class RankedAgent:
    """Represent an agent for a scatter plot: its score (0–100) with its interval, and its cost in US dollars."""

    name: str
    template: str
    score: float
    low: float | None = None
    high: float | None = None
    cost_usd: float | None = None
    is_front: bool = False


def scatter(agents: Sequence[RankedAgent]) -> Scatter:
    """Return the scatter plot of these agents; those without a known cost stand left of the axis of costs."""
    templates = tuple(dict.fromkeys(agent.template for agent in agents))
    most = _round_up(max((agent.cost_usd or 0.0 for agent in agents), default=0.0))
    has_unknown = any(agent.cost_usd is None for agent in agents)
    start = Scatter.left + (_UNKNOWN_COST if has_unknown else 0)
    unknown = Scatter.left + _UNKNOWN_COST / 3 if has_unknown else None

    def x(cost: float | None) -> float:
        at = unknown if cost is None else start + (Scatter.right - start) * cost / most
        return round(at or 0.0, 1)

    def y(score: float) -> float:
        return round(Scatter.bottom - (Scatter.bottom - Scatter.top) * score / 100, 1)

    points = []
    for agent in agents:
        low, high, cost = agent.low, agent.high, agent.cost_usd
        interval = "no interval" if low is None or high is None else f"{low:.1f} to {high:.1f}"
        price = "cost unknown" if cost is None else f"${cost:.4f} per conversation"
        points.append(
            ScatterPoint(
                name=agent.name,
                group=templates.index(agent.template),
                x=x(cost),
                y=y(agent.score),
                low=None if low is None else y(low),
                high=None if high is None else y(high),
                is_front=agent.is_front,
                anchor="end" if cost is not None and cost > 0.7 * most else "start",
                words=f"{agent.name} ({agent.template}): {agent.score:.1f} ({interval}), {price}",
            )
        )
    fronts = (
        (i, sorted((p.x, p.y) for p in points if p.is_front and p.group == i)) for i in range(len(templates))
    )
    return Scatter(
        points=_labelled(points),
        groups=templates,
        fronts=tuple((i, _polygon(front)) for i, front in fronts if len(front) > 1),
        ticks=tuple((x(most * i / 2), f"${most * i / 2:.3g}") for i in range(3)),
        marks=tuple((y(score), str(score)) for score in (0, 25, 50, 75, 100)),
        unknown=unknown,
    )


def _labelled(points: Sequence[ScatterPoint]) -> tuple[ScatterPoint, ...]:
    """Return the points with their labels, none of which covers another one or, where there is room, another point.

    A label moves up or down by at most three lines.
    """
    label_places: list[tuple[float, float, float]] = []  # left, right, y
    labelled = []
    for point in points:
        name = point.name if len(point.name) <= _LONGEST_NAME else f"{point.name[: _LONGEST_NAME - 1]}…"
        at = point.x + (-9 if point.anchor == "end" else 9)
        left = at - _LETTER * len(name) if point.anchor == "end" else at
        right = left + _LETTER * len(name)
        ys = [round(point.y + 4 + step * _LINE, 1) for step in (0, 1, -1, 2, -2, 3, -3)]
        free = [
            y
            for y in ys
            if 10 <= y <= Scatter.bottom
            and not any(a < right and left < b and abs(y - other) < _LINE for a, b, other in label_places)
        ]
        clear = [
            y for y in free if not any(left - 5 < p.x < right + 5 and abs(y - 5 - p.y) < 10 for p in points)
        ]
        if y := next(iter((*clear, *free)), None):
            label_places.append((left, right, y))
            labelled.append(replace(point, label=(name, at, y)))
        else:
            labelled.append(point)
    return tuple(labelled)


_LONGEST_NAME, _LETTER, _LINE = 20, 8.5, 16
"""Of a label: the maximum number of characters, the width of one and the height of a line in SVG units."""
_UNKNOWN_COST = 110  # width of the part for agents without a known cost


def _round_up(value: float) -> float:
    """Round up to the next number that is 1, 2 or 5 times a power of ten; return 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * (1 + 1e-9))
