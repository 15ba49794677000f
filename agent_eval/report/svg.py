"""Draw plots as small SVG images in Markdown, on a light background that is readable in light and dark themes.

Labels are always escaped. An image is smaller than 8 KB: rows that do not fit are counted instead of drawn.
"""

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from agent_eval.formats.plain_text import one_line
from agent_eval.report.charts import radar as geometry

GREEN, AMBER, GREY, RED, BLUE = "#2e7d32", "#b26a00", "#9e9e9e", "#b3261e", "#1565c0"
RATING_COLOURS = ("#b3261e", "#d97706", "#c9a400", "#7cb342", "#2e7d32")  # of the ratings 1 to 5
SERIES = (BLUE, AMBER, "#6a1b9a", GREEN, RED, "#00838f")

MOST = 14  # maximum number of rows in a picture
GRID = 7  # maximum number of rows and columns in a matrix
_LEFT, _LINE, _LONGEST = 190, 24, 28


@dataclass(frozen=True)
class BarPart:
    """Represent a part of a bar with its size, colour and meaning."""

    size: float
    colour: str
    name: str


@dataclass(frozen=True)
class Bar:
    """Represent a bar: a label, its parts from left to right, and a text after it."""

    label: str
    parts: tuple[BarPart, ...]
    words: str = ""


@dataclass(frozen=True)
class IntervalBar:
    """Represent a value with its interval on the scale of the plot; bounds are None without an interval."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    words: str = ""
    colour: str = BLUE


@dataclass(frozen=True)
class Curve:
    """Represent a curve: points (x, y) from left to right, with y from 0 to 1."""

    name: str
    points: tuple[tuple[int, float], ...]


def bars(title: str, rows: Sequence[Bar], *, largest: float | None = None) -> str:
    """Draw horizontal bars to scale, with a legend if the parts have more than one name.

    `largest` is the size that fills the width; by default, it is the size of the largest bar.
    """
    visible_rows = rows[:MOST]
    full = largest or max((sum(p.size for p in row.parts) for row in visible_rows), default=0) or 1
    lines: list[str] = []
    for i, row in enumerate(visible_rows):
        y, x = _LINE * i + 8, float(_LEFT)
        lines.append(_label(row.label, y))
        for part in row.parts:
            width = 360 * part.size / full
            lines.append(f'<path d="M{x:.1f} {y}h{width:.1f}v16h-{width:.1f}z" fill="{part.colour}"/>')
            x += width
        lines.append(f'<text x="{x + 6:.0f}" y="{y + 13}">{_text(row.words)}</text>')
    height = _LINE * len(visible_rows) + 12
    places: dict[tuple[str, str], int] = {}  # rightmost position of each name, which orders the legend
    for row in visible_rows:
        for i, part in enumerate(row.parts):
            places[part.name, part.colour] = max(i, places.get((part.name, part.colour), 0))
    if len(places) > 1:
        lines.append(_legend(sorted(places, key=places.__getitem__), height))
        height += _LINE
    return _picture(title, lines, 720, height, left_out=len(rows) - len(visible_rows))


def spans(title: str, rows: Sequence[IntervalBar], *, scale: float = 100) -> str:
    """Draw values as points with intervals as lines, on a scale from 0 to `scale`.

    A row without a value has only its label and text.
    """
    visible_rows, bottom = rows[:MOST], _LINE * min(len(rows), MOST) + 8
    lines = [
        f'<path d="M{_LEFT + 90 * i} 4V{bottom}" stroke="#ddd"/>'
        f'<text x="{_LEFT + 90 * i}" y="{bottom + 14}" text-anchor="middle" fill="#666">{scale * i / 4:g}</text>'
        for i in range(5)
    ]
    for i, row in enumerate(visible_rows):
        y = _LINE * i + 16
        lines.append(_label(row.label, y - 8))
        if row.low is not None and row.high is not None:
            left, right = (_LEFT + 360 * v / scale for v in (row.low, row.high))
            lines.append(f'<path d="M{left:.1f} {y}H{right:.1f}" stroke="{row.colour}" stroke-width="3"/>')
        if row.value is not None:
            x = _LEFT + 360 * row.value / scale
            lines.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{row.colour}"/>')
        lines.append(f'<text x="{_LEFT + 372}" y="{y + 5}">{_text(row.words)}</text>')
    return _picture(title, lines, 720, bottom + 22, left_out=len(rows) - len(visible_rows))


def curves(title: str, curve_list: Sequence[Curve]) -> str:
    """Draw shares from 0 to 1 over a small whole number, such as pass^k over k; at most six curves."""
    ends = [x for curve in curve_list for x, _ in curve.points]
    first, last = min(ends, default=0), max(ends, default=1)

    def at(x: int, y: float) -> tuple[float, float]:
        return 50 + 420 * (x - first) / max(last - first, 1), 170 - 150 * y

    lines = [
        f'<path d="M50 {170 - 150 * y:g}H470" stroke="#ddd"/>'
        f'<text x="42" y="{174 - 150 * y:g}" text-anchor="end" fill="#666">{y:g}</text>'
        for y in (0, 0.25, 0.5, 0.75, 1)
    ]
    step = max(1, math.ceil((last - first) / 12))
    lines += [
        f'<text x="{at(x, 0)[0]:.0f}" y="188" text-anchor="middle" fill="#666">k = {x}</text>'
        for x in range(first, last + 1, step)
    ]
    for i, (curve, colour) in enumerate(zip(curve_list, SERIES, strict=False)):
        points = [at(x, y) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        lines.append(f'<text x="490" y="{28 + 20 * i}" fill="{colour}">{_text(curve.name)}</text>')
    return _picture(title, lines, 720, 196, left_out=max(0, len(curve_list) - len(SERIES)))


def radar(title: str, axes: Sequence[tuple[str, float | None]]) -> str:
    """Draw ratings from 1 to 5 as a radar chart; a missing rating leaves a gap in the outline."""
    shape = geometry([(name, name, value) for name, value in axes])
    lines = ['<g transform="translate(190 124)" fill="none" stroke="#ddd">']
    lines += [f'<polygon points="{ring}"/>' for ring in shape.rings]
    lines += [f'<path d="M0 0L{axis.end[0]} {axis.end[1]}"/>' for axis in shape.axes]
    lines.append(f'</g><g transform="translate(190 124)" stroke="{BLUE}">')
    if shape.outline is not None:
        lines.append(f'<polygon points="{shape.outline}" fill="{BLUE}" fill-opacity=".2"/>')
    lines += [f'<path d="M{a[0]} {a[1]}L{b[0]} {b[1]}"/>' for a, b in shape.lines]
    lines += [
        f'<circle cx="{axis.point[0]}" cy="{axis.point[1]}" r="3" fill="{BLUE}"/>'
        for axis in shape.axes
        if axis.point
    ]
    lines.append('</g><g transform="translate(190 124)">')
    for i, axis in enumerate(shape.axes):
        (x, y), name = axis.label, _text(axis.name)
        value_text = "missing" if axis.value is None else f"{axis.value:.2f}"
        lines.append(f'<text x="{x}" y="{y + 4:.1f}" text-anchor="{axis.anchor}">{name}</text>')
        lines.append(f'<text x="220" y="{22 * i - 50}">{name} {value_text}</text>')
    return _picture(title, [*lines, "</g>"], 720, 248)


def matrix(
    title: str, rows: Sequence[str], columns: Sequence[str], cells: Sequence[tuple[int, int, str, str]]
) -> str:
    """Draw a grid of `cells` (row, column, colour, words), at most seven rows and columns."""
    n_rows, n_columns = min(len(rows), GRID), min(len(columns), GRID)
    lines = [_label(name, 24 * i + 26) for i, name in enumerate(rows[:n_rows])]
    lines += [
        f'<text x="{_LEFT + 70 * j + 33}" y="18" text-anchor="middle">{_text(name, 9)}</text>'
        for j, name in enumerate(columns[:n_columns])
    ]
    boxes = [
        (_LEFT + 70 * j, 24 * i + 26, colour, word)
        for i, j, colour, word in cells
        if i < n_rows and j < n_columns
    ]
    lines += [f'<path d="M{x} {y}h66v20h-66z" fill="{colour}"/>' for x, y, colour, _ in boxes]
    words = [f'<text x="{x + 33}" y="{y + 14}">{_text(word, 8)}</text>' for x, y, _, word in boxes]
    lines.append(f'<g text-anchor="middle" fill="#fff">{"".join(words)}</g>')
    return _picture(title, lines, 740, 24 * n_rows + 34, left_out=len(rows) - n_rows)


def _label(text: str, y: float) -> str:
    return f'<text x="{_LEFT - 10}" y="{y + 13:g}" text-anchor="end">{_text(text)}</text>'


def _legend(names: Sequence[tuple[str, str]], y: float) -> str:
    lines, x = "", float(_LEFT)
    for name, colour in names[:8]:
        lines += f'<path d="M{x:.0f} {y + 4}h10v10h-10z" fill="{colour}"/>'
        lines += f'<text x="{x + 14:.0f}" y="{y + 13}" fill="#555">{_text(name)}</text>'
        x += 30 + 6.6 * min(len(name), _LONGEST)
    return lines


def _text(text: str, longest: int = _LONGEST) -> str:
    line = one_line(text)
    return escape(line if len(line) <= longest else line[: longest - 1] + "…")


def _picture(title: str, lines: Iterable[str], width: int, height: float, *, left_out: int = 0) -> str:
    """Return a Markdown image; its title is the text for screen readers."""
    name = escape(one_line(title))
    more = ""
    if left_out > 0:
        more = f'<text x="{_LEFT}" y="{height + 10}" fill="#666">and {left_out} more</text>'
        height += 20
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:g}" role="img" aria-label="{name}"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="#222"><title>{name}</title>'
        f'<rect width="100%" height="100%" rx="6" fill="#fafafa"/>{"".join(lines)}{more}</svg>'
    )
    alt = "".join(c for c in one_line(title) if c not in "[]\\!<>`")
    return f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
