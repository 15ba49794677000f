import html
import re

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.report.markdown import escape, markdown_table


def test_a_table_has_a_head_a_rule_and_a_line_per_row() -> None:
    text = markdown_table(pl.DataFrame({"agent": ["lumen"], "score": [76.66666]}))
    assert text == "| agent | score |\n| --- | --- |\n| lumen | 76.67 |"


def test_an_unknown_is_a_dash_and_no_rows_say_so() -> None:
    assert markdown_table(pl.DataFrame({"x": [None]}, schema={"x": pl.Float64})).endswith("| – |")
    assert markdown_table(pl.DataFrame(schema={"x": pl.Float64})) == "no rows"


def test_hostile_text_stays_text() -> None:
    hostile = '<img src=x onerror="alert(1)">|[a](javascript:b)\n# head `code`'
    shown = '&lt;img src=x onerror="alert\\(1\\)"&gt;\\|\\[a\\]\\(javascript:b\\) \\# head \\`code\\`'
    assert escape(hostile) == shown


_LINKED = re.compile(
    r"https?://|www(?=\.)|[-.\w+]@[-\w]", re.IGNORECASE
)  # what the UI makes a link, after unescaping


@given(
    st.text("htps:/w.@aé\\&#;")
    | st.sampled_from(["HTTPS://evil.example/x", "WwW.evil.example", "a.b+c@evil.example"])
)
def test_an_address_in_a_text_does_not_become_a_link(text: str) -> None:
    shown = html.unescape(re.sub(r"\\([!-/:-@[-`{-~])", r"\1", escape(text)))
    assert not _LINKED.search(shown)
    assert shown.replace("\u2060", "") == text


@given(st.text())
def test_no_text_leaves_its_cell(text: str) -> None:
    line = markdown_table(pl.DataFrame({"x": [text]})).split("\n", 2)[2]
    assert "\n" not in line.strip("\n") or "\n" not in text
    assert "<" not in line
    assert line.count("|") - line.count("\\|") == 2


def test_long_text_is_cut_before_it_is_escaped() -> None:
    assert escape("a" * 200, limit=10) == "a" * 9 + "…"


def test_numbers_of_a_list_are_rounded_like_numbers() -> None:
    text = markdown_table(pl.DataFrame({"x": [[76.66666, None, 0.1 + 0.2]]}))
    assert text.endswith("| 76.67, –, 0.3 |")
