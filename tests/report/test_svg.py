"""Plots are well-formed, hold no markup of strangers, stay small, and draw nothing where a value is missing."""

import base64
import re
from xml.etree import ElementTree

import pytest

from agent_eval.report.svg import (
    GREEN,
    MOST,
    Bar,
    BarPart,
    Curve,
    IntervalBar,
    bars,
    curves,
    matrix,
    radar,
    spans,
)

HOSTILE = '</text><script>alert(1)</script>](x) & "'


def drawing(markdown: str) -> ElementTree.Element:
    """The picture in a markdown image."""
    found = re.fullmatch(r"!\[[^\[\]<>]*\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found, markdown[:200]
    return ElementTree.fromstring(base64.b64decode(found[1]))


def texts(picture: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]


PICTURES = {
    "bars": bars(
        HOSTILE, [Bar(HOSTILE * 9, (BarPart(2, GREEN, HOSTILE), BarPart(1, GREEN, "b")), HOSTILE)] * 200
    ),
    "spans": spans(HOSTILE, [IntervalBar(HOSTILE * 9, 50, 40, 60, HOSTILE)] * 200),
    "curves": curves(HOSTILE, [Curve(HOSTILE * 9, tuple((k, 1 / k) for k in range(1, 9)))] * 200),
    "radar": radar(HOSTILE, [(HOSTILE, 3.0)] * 6),
    "matrix": matrix(
        HOSTILE,
        [HOSTILE * 9] * 200,
        [HOSTILE] * 200,
        [(i, j, GREEN, HOSTILE) for i in range(200) for j in range(3)],
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_titled_and_words_of_strangers_stay_words(name: str) -> None:
    picture = drawing(PICTURES[name])
    assert picture.get("aria-label") == HOSTILE
    assert picture.findtext("{http://www.w3.org/2000/svg}title") == HOSTILE
    assert not list(picture.iter("{http://www.w3.org/2000/svg}script"))
    assert len(PICTURES[name]) < 8_192, "a picture stays small however many rows there are"


def test_rows_that_do_not_fit_are_counted() -> None:
    rows = [Bar(f"row {i}", (BarPart(1, GREEN, "a"),)) for i in range(MOST + 3)]
    assert "and 3 more" in texts(drawing(bars("t", rows)))


def test_a_bar_without_size_is_no_error() -> None:
    assert "nothing" in texts(drawing(bars("t", [Bar("a", (), "nothing")])))


def test_a_missing_rating_opens_the_radar_and_is_named() -> None:
    closed = drawing(radar("t", [("U1", 5.0), ("U2", 4.0), ("U3", 3.0)]))
    opened = drawing(radar("t", [("U1", 5.0), ("U2", None), ("U3", 3.0)]))
    rings = 5
    polygon, circle = "{http://www.w3.org/2000/svg}polygon", "{http://www.w3.org/2000/svg}circle"
    assert [len(list(drawn.iter(polygon))) for drawn in (closed, opened)] == [rings + 1, rings]
    assert len(list(opened.iter(circle))) == 2
    assert "U2 missing" in texts(opened)


def test_a_value_lies_at_its_share_of_the_scale() -> None:
    picture = drawing(spans("t", [IntervalBar("a", 50.0), IntervalBar("b", None, words="none")]))
    (circle,) = picture.iter("{http://www.w3.org/2000/svg}circle")
    assert float(circle.get("cx", "")) == 190 + 180  # half of 360
    assert "none" in texts(picture)
