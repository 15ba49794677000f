"""Downloads: CSV that a spreadsheet does not run, JSON whose unknown values are null."""

import csv
import io
import json

import polars as pl
import pytest

from agent_eval.report.downloads import csv_text, json_text


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "  =1", "＝1", "a;=1", "a\t=1", "a\n=1", "a\n +1"]
)
def test_no_text_becomes_a_formula(text: str) -> None:
    (head, row) = list(csv.reader(io.StringIO(csv_text(pl.DataFrame({"x": [text]})))))[:2]
    assert head == ["x"]
    first = row[0].lstrip()
    assert first[0] not in "=+-@＝"
    for end in ";\t\n":
        assert all(not part.lstrip().startswith(("=", "+", "-", "@")) for part in row[0].split(end)[1:])


@pytest.mark.parametrize("text", ["-3", "+4.5", "-1/3", "plain = text", "a-b"])
def test_numbers_and_plain_texts_stay_as_they_are(text: str) -> None:
    assert list(csv.reader(io.StringIO(csv_text(pl.DataFrame({"x": [text]})))))[1] == [text]


def test_a_list_is_one_cell_and_an_unknown_value_an_empty_one() -> None:
    rows = pl.DataFrame({"names": [["a", "b"], []], "n": [None, 2]})
    assert csv_text(rows).splitlines() in (["names,n", "a; b,", ",2"], ["names,n", "a; b,", '"",2'])


def test_json_has_null_for_unknown_values_and_for_what_is_no_number() -> None:
    frame = pl.DataFrame({"x": [float("nan"), None, 0.5], "t": ["</script>", None, "ä"]})
    rows = json.loads(json_text(frame))
    assert rows == [{"x": None, "t": "</script>"}, {"x": None, "t": None}, {"x": 0.5, "t": "ä"}]
