"""What `agent-eval methodology` prints."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from agent_eval.commands.methodology import show, show_diff, show_list, validate
from agent_eval.methodology import Registry, UnknownMethodologyError, freeze
from tests.methodology.conftest import Write

SUPERSEDES = ("superseded_by: null", 'supersedes: "1.3.0"')


def failed(printed: str) -> list[tuple[str, str]]:
    return [(row["check"], row["subject"]) for row in json.loads(printed) if row["result"] == "failed"]


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=160), out


def test_the_list_has_one_row_per_version(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(Registry.read(), console()[0], as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["version"] for row in rows] == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]
    assert [row["n_templates"] for row in rows] == [4, 4, 10, 10]
    assert [row["required_tests"] for row in rows][:2] == [
        "",
        "standardised_task, hallucination, error_injection",
    ]
    assert [row["penalties"] for row in rows][2:] == ["", "-10 when repeatability_tested is false"]


def test_the_list_names_files_that_were_skipped(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    (own / "2.0.0.yaml").write_text("")
    screen, out = console()
    show_list(Registry.read(own), screen, as_json=False)
    assert "Skipped: " in out.getvalue()
    show_list(Registry.read(own), screen, as_json=True)
    assert "2.0.0.yaml: is not a mapping" in caplog.text


def test_show_prints_every_word_that_a_rater_is_asked() -> None:
    screen, out = console()
    m = Registry.read().get("1.3.0")
    show(Registry.read(), "1.3.0", screen, as_json=False)
    printed = " ".join(out.getvalue().split())
    words = [a for d in m.dimensions for a in (d.question, *d.anchors.by_rating().values())]
    for t in m.templates:
        words += [a for c in t.criteria for a in c.anchors.by_rating().values()]
        words += [w for s in t.scenarios for w in (s.name, s.description, *s.readings.values())]
    assert [w for w in words if w not in printed] == []


def test_show_as_json_is_an_array_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    show(Registry.read(), "1.1.0", console()[0], as_json=True)
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["version"] == "1.1.0"
    assert shown["content_hash"] == Registry.read().get("1.1.0").content_hash
    assert set(shown["dimensions"][0]["anchors"]) == {"1", "2", "3", "4", "5"}


def test_show_of_an_unknown_version_is_an_error() -> None:
    with pytest.raises(UnknownMethodologyError):
        show(Registry.read(), "9.0.0", console()[0], as_json=False)


def test_the_diff_shows_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    screen, out = console()
    show_diff(Registry.read(), "1.0.0", "1.1.0", screen, as_json=False)
    printed = out.getvalue()
    assert "required_tests.hallucination.enforcement\n  - warn\n  + bars_publication\n" in printed
    show_diff(Registry.read(), "1.2.0", "1.3.0", screen, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert rows[0] == {
        "path": "penalties.repeatability_tested=false",
        "before": None,
        "after": "10 points off the composite",
    }
    assert rows[-1]["path"] == "superseded_by"


def test_equal_versions_are_said_to_be_equal() -> None:
    screen, out = console()
    show_diff(Registry.read(), "1.3.0", "1.3.0", screen, as_json=False)
    assert out.getvalue() == "1.3.0 and 1.3.0 have the same content.\n"


def test_the_published_versions_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(Registry.read(), console()[0], as_json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["check"], row["result"]) for row in rows] == [
        ("frozen", "passed"),
        ("worked_example", "passed"),
        ("rule_numbers", "passed"),
    ] * 4


def test_a_version_that_is_not_frozen_yet_is_valid_and_says_so(own: Path, write: Write) -> None:
    write("2.0.0", SUPERSEDES)
    screen, out = console()
    assert validate(Registry.read(own), screen, as_json=False) == 0
    assert "not frozen yet" in out.getvalue()


def test_a_bad_file_is_invalid(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "2.0.0.yaml").write_text("")
    assert validate(Registry.read(own), console()[0], as_json=True) == 1
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["check"], first["result"]) == ("file", "failed")


def test_a_frozen_version_that_changed_is_invalid(
    own: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("2.0.0", SUPERSEDES)
    freeze(own)
    write(
        "2.0.0", SUPERSEDES, ("One session asks each question once.", "One session asks each question twice.")
    )
    assert validate(Registry.read(own), console()[0], as_json=True) == 1
    assert failed(capsys.readouterr().out) == [("frozen", "2.0.0")]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("points: 10", "points: 5"), "rule repeatability_penalty says 'ten points', the penalty is 5"),
        (
            ('universal: "0.40"\n  domain: "0.60"', 'universal: "0.50"\n  domain: "0.50"'),
            "rule composite_score says '0.40 for universal', weights.universal is 0.50",
        ),
        (
            ("the mean of the five scenario scores", "the mean of the six scenario scores"),
            "rule domain_score says 'six scenario', the version has 5",
        ),
    ],
)
def test_a_number_in_a_rule_that_the_data_contradict_is_named(
    own: Path, write: Write, capsys: pytest.CaptureFixture[str], edit: tuple[str, str], words: str
) -> None:
    write("2.0.0", SUPERSEDES, edit)
    assert validate(Registry.read(own), console()[0], as_json=True) == 1
    (row,) = [r for r in json.loads(capsys.readouterr().out) if r["result"] == "failed"]
    assert (row["check"], row["subject"]) == ("rule_numbers", "2.0.0")
    assert words in row["detail"]


def test_two_versions_that_say_current_are_named_with_the_line_to_add(
    own: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("2.0.0")
    assert validate(Registry.read(own), console()[0], as_json=True) == 1
    (row,) = [r for r in json.loads(capsys.readouterr().out) if r["result"] == "failed"]
    assert (row["check"], row["subject"]) == ("current", "2.0.0")
    assert 'add `supersedes: "1.3.0"` to 2.0.0.yaml' in row["detail"]


def test_show_prints_each_reference_with_what_is_not_known_of_it() -> None:
    screen, out = console()
    show(Registry.read(), "1.1.0", screen, as_json=False)
    printed = " ".join(out.getvalue().split())
    assert "GAIA, Grégoire Mialon, Clémentine Fourrier" in printed
    assert (
        "A survey of agent evaluation, authors not named, venue not named, year not named, unverified"
        in printed
    )
    assert "Repeatability guidance (published, unverified)" in printed


def test_weights_that_do_not_give_the_worked_example_are_invalid(capsys: pytest.CaptureFixture[str]) -> None:
    registry = Registry.read()
    m = registry.get("1.3.0")
    broken = m.model_copy(update={"weights": m.weights.model_copy(update={"domain": "0.50"})})
    assert validate(Registry((broken,), own=frozenset({"1.3.0"})), console()[0], as_json=True) == 1
    row = next(r for r in json.loads(capsys.readouterr().out) if r["check"] == "worked_example")
    # 0.4 × 100 + 0.5 × 100 = 90
    assert "ΣU = 30, ΣD = 75 gives 90, expected 100" in row["detail"]
