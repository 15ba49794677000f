"""Plots are well-formed, hold no markup of strangers, stay small, and draw nothing where a value is missing."""

import base64
import re
from xml.etree import ElementTree

import pytest

from agent_eval.report import svg

HOSTILE = '</text><script>alert(1)</script>](x) & "'


def drawing(markdown: str) -> ElementTree.Element:
    """The picture in a markdown image."""
    found = re.fullmatch(r"!\[[^\[\]<>]*\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found, markdown[:200]
    return ElementTree.fromstring(base64.b64decode(found[1]))


def texts(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]


PICTURES = {
    "bars": svg.bars(
        HOSTILE,
        [svg.Bar(HOSTILE * 9, (svg.BarPart(2, svg.GREEN, HOSTILE), svg.BarPart(1, svg.GREEN, "b")), HOSTILE)]
        * 200,
    ),
    "spans": svg.spans(HOSTILE, [svg.IntervalBar(HOSTILE * 9, 50, 40, 60, HOSTILE)] * 200),
    "curves": svg.curves(HOSTILE, [svg.Curve(HOSTILE * 9, tuple((k, 1 / k) for k in range(1, 9)))] * 200),
    "radar": svg.radar(HOSTILE, [(HOSTILE, 3.0)] * 6),
    "matrix": svg.matrix(
        HOSTILE,
        [HOSTILE * 9] * 200,
        [HOSTILE] * 200,
        [(i, j, svg.GREEN, HOSTILE) for i in range(200) for j in range(3)],
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_titled_and_words_of_strangers_stay_words(name: str) -> None:
    picture = drawing(PICTURES[name])
    assert picture.get("aria-label") == HOSTILE
    assert picture.findtext("{http://www.w3.org/2000/svg}title") == HOSTILE
    assert not list(picture.iter("{http://www.w3.org/2000/svg}script"))
    assert len(PICTURES[name]) < 8_192, "a picture stays small however many rows there are"


def placed(picture: ElementTree.Element) -> dict[str, float]:
    """Where each text stands, from the left."""
    found = picture.iter("{http://www.w3.org/2000/svg}text")
    return {element.text or "": float(element.get("x", "nan")) for element in found}


def circles(picture: ElementTree.Element) -> list[tuple[float, float]]:
    found = picture.iter("{http://www.w3.org/2000/svg}circle")
    return [(float(element.get("cx", "nan")), float(element.get("cy", "nan"))) for element in found]


@pytest.mark.parametrize("first", [1, 3])
def test_a_curve_goes_through_the_numbers_of_both_axes(first: int) -> None:
    picture = drawing(svg.curves("t", [svg.Curve("a", ((first, 1.0), (first + 1, 0.75), (first + 4, 0.25)))]))
    at = placed(picture)
    points = circles(picture)
    assert [x for x, _ in points] == [at[f"k = {k}"] for k in (first, first + 1, first + 4)]
    assert (points[0][0], points[-1][0]) == (50, 470)
    assert [y for _, y in points] == [20, 57.5, 132.5]  # on lines of the grid: 170 - 150 y


@pytest.mark.parametrize("scale", [100, 5])
def test_a_value_and_its_interval_stand_at_the_numbers_of_the_axis(scale: float) -> None:
    row = svg.IntervalBar("a", scale / 2, scale / 4, scale)
    picture = drawing(svg.spans("t", [row], scale=scale))
    at = placed(picture)
    assert [x for x, _ in circles(picture)] == [at[f"{scale / 2:g}"]]
    paths = [path.get("d", "") for path in picture.iter("{http://www.w3.org/2000/svg}path")]
    assert [d for d in paths if re.fullmatch(rf"M{at[f'{scale / 4:g}']:.1f} \d+H{at[f'{scale:g}']:.1f}", d)]


def test_bars_are_as_long_as_their_parts_are_large() -> None:
    rows = [svg.Bar("a", (svg.BarPart(3, svg.GREEN, "x"), svg.BarPart(1, svg.BLUE, "y"))), svg.Bar("b", (svg.BarPart(2, svg.GREEN, "x"),))]  # fmt: skip
    drawn = drawing(svg.bars("t", rows)).iter("{http://www.w3.org/2000/svg}path")
    places = [re.match(r"M([\d.]+) \d+h([\d.]+)v", path.get("d", "")) for path in drawn]
    (left, three), (after, one), (below, two), *_ = [(float(at[1]), float(at[2])) for at in places if at]
    assert (three, one, two) == (270, 90, 180)
    assert (after, below) == (left + three, left)


def test_rows_that_do_not_fit_are_counted() -> None:
    rows = [svg.Bar(f"row {i}", (svg.BarPart(1, svg.GREEN, "a"),)) for i in range(svg.MOST + 3)]
    assert "and 3 more" in texts(drawing(svg.bars("t", rows)))


def test_a_bar_without_size_is_no_error() -> None:
    assert "nothing" in texts(drawing(svg.bars("t", [svg.Bar("a", (), "nothing")])))


def test_a_missing_rating_opens_the_radar_and_is_named() -> None:
    closed = drawing(svg.radar("t", [("U1", 5.0), ("U2", 4.0), ("U3", 3.0)]))
    opened = drawing(svg.radar("t", [("U1", 5.0), ("U2", None), ("U3", 3.0)]))
    rings = 5
    polygon, circle = "{http://www.w3.org/2000/svg}polygon", "{http://www.w3.org/2000/svg}circle"
    assert [len(list(drawn.iter(polygon))) for drawn in (closed, opened)] == [rings + 1, rings]
    assert len(list(opened.iter(circle))) == 2
    assert "U2 missing" in texts(opened)


def test_a_value_lies_at_its_share_of_the_scale() -> None:
    picture = drawing(svg.spans("t", [svg.IntervalBar("a", 50.0), svg.IntervalBar("b", None, words="none")]))
    (circle,) = picture.iter("{http://www.w3.org/2000/svg}circle")
    assert float(circle.get("cx", "")) == 190 + 180  # half of 360
    assert "none" in texts(picture)
