"""Gates for CI systems: what strangers wrote can neither give orders to a runner nor break a file."""

from typing import Any
from xml.etree import ElementTree

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.report.ci import annotations, inert_in_actions, junit
from agent_eval.tables import table

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)  # halves of surrogate pairs too


def rows(*evidence: str, **changes: Any) -> pl.DataFrame:
    row = {"agent_id": "a", "gate": "threshold", "subject": "helpfulness in D1", "result": "failed"}
    return table("gate_results").frame(row | {"evidence": text} | changes for text in evidence)


def test_failed_is_an_error_and_unknown_a_warning() -> None:
    found = pl.concat([rows("too low"), rows("no score", result="unknown"), rows("fine", result="passed")])
    assert list(annotations(found, "1.3.0")) == [
        "::error title=a 1.3.0%3A threshold%3A helpfulness in D1 failed::too low",
        "::warning title=a 1.3.0%3A threshold%3A helpfulness in D1 unknown::no score",
        "::notice title=Gates 1.3.0::1 failed, 1 passed, 1 unknown",
    ]


def test_an_annotation_is_escaped_as_github_asks() -> None:
    text, titled = "100 %, x: y\n::set-output name=a::b", "50 %, a:b"
    line = (
        "::error title=a 1.3.0%3A threshold%3A 50 %25%2C a%3Ab failed::100 %25, x: y ::set-output name=a::b"
    )
    assert next(annotations(rows(text, subject=titled), "1.3.0")) == line


def test_commands_of_the_old_form_are_broken_wherever_they_stand() -> None:
    text = "it said ##[add-path]/tmp and ::warning::no"
    assert "##[" not in next(annotations(rows(text), "1.3.0"))
    assert "##[" not in inert_in_actions(text)
    assert "::" not in inert_in_actions(text)


@given(ANY_TEXT, ANY_TEXT)
def test_no_text_makes_a_second_line_or_a_control_character(evidence: str, subject: str) -> None:
    made = list(annotations(rows(_storable(evidence), subject=_storable(subject)), "1.3.0"))
    assert len(made) == 2
    assert all(len(line.splitlines()) == 1 for line in made)
    assert not any(ord(character) < 32 for line in made for character in line)


@given(ANY_TEXT)
def test_any_text_makes_sound_xml_with_the_right_counts(text: str) -> None:
    found = pl.concat(rows(_storable(text), result=result) for result in ("failed", "unknown", "passed"))
    root = ElementTree.fromstring(junit(found, "1.3.0"))
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["3", "1", "1"]
    assert [len(root.findall(f".//{tag}")) for tag in ("testcase", "failure", "error")] == [3, 1, 1]


def _storable(text: str) -> str:
    """As a frame holds it: no halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def test_markup_and_control_characters_stay_text() -> None:
    root = ElementTree.fromstring(junit(rows("</failure><x/>&\x00\x1b[2J\ufffe ]]>"), "1.3.0"))
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "</failure><x/>&\ufffd\ufffd[2J\ufffd ]]>"


def test_each_agent_is_a_suite() -> None:
    found = pl.concat([rows("x"), rows("y", agent_id="b")])
    root = ElementTree.fromstring(junit(found, "1.3.0"))
    assert [suite.get("name") for suite in root] == ["a", "b"]
    name = "threshold: helpfulness in D1"
    assert root[0][0].attrib == {"classname": "a.1.3.0", "name": name, "time": "0"}


def test_nothing_evaluated_is_never_green() -> None:
    nothing = table("gate_results").empty()
    assert ElementTree.fromstring(junit(nothing, "1.3.0")).find(".//error") is not None
    assert next(annotations(nothing, "1.3.0")).startswith("::warning ")
