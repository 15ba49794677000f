"""What `agent-eval methodology` prints."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from agent_eval.commands.methodology import show, show_diff, show_list, validate
from agent_eval.errors import NotFoundError
from agent_eval.methodology import Registry, freeze
from tests.commands.conftest import invoke
from tests.methodology.conftest import Write

SUPERSEDES = ("superseded_by: null", 'supersedes: "1.3.0"')


@pytest.fixture
def screen() -> Console:
    return Console(file=io.StringIO(), width=160)


def printed(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def words_of(version: str, screen: Console) -> str:
    show(Registry.read(), version, screen, as_json=False)
    return " ".join(printed(screen).split())


@pytest.fixture
def failures(
    screen: Console, capsys: pytest.CaptureFixture[str]
) -> Callable[[Registry], list[dict[str, str]]]:
    """The failed rows of `validate --json`; none exactly where its exit code is 0."""

    def of(registry: Registry) -> list[dict[str, str]]:
        code = validate(registry, screen, as_json=True)
        rows = [row for row in json.loads(capsys.readouterr().out) if row["result"] == "failed"]
        assert code == bool(rows)
        return rows

    return of


Failures = Callable[[Registry], list[dict[str, str]]]


def test_the_list_has_one_row_per_version(screen: Console, capsys: pytest.CaptureFixture[str]) -> None:
    show_list(Registry.read(), screen, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["version"] for row in rows] == ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]
    assert [row["n_templates"] for row in rows] == [4, 4, 10, 10]
    tests = "standardised_task, hallucination, error_injection"
    assert [row["required_tests"] for row in rows][:2] == ["", tests]
    assert [row["penalties"] for row in rows][2:] == ["", "-10 when repeatability_tested is false"]


def test_the_list_names_skipped_files(own: Path, screen: Console, caplog: pytest.LogCaptureFixture) -> None:
    (own / "2.0.0.yaml").write_text("")
    show_list(Registry.read(own), screen, as_json=False)
    assert "Skipped: " in printed(screen)
    show_list(Registry.read(own), screen, as_json=True)
    assert "2.0.0.yaml: is not a mapping" in caplog.text


def test_show_prints_every_word_that_a_rater_is_asked(screen: Console) -> None:
    m, shown = Registry.read().get("1.3.0"), words_of("1.3.0", screen)
    words = [a for d in m.dimensions for a in (d.question, *d.anchors.by_rating().values())]
    for t in m.templates:
        words += [a for c in t.criteria for a in c.anchors.by_rating().values()]
        words += [w for s in t.scenarios for w in (s.name, s.description, *s.readings.values())]
    assert [w for w in words if w not in shown] == []


def test_show_as_json_is_an_array_of_one_object(screen: Console, capsys: pytest.CaptureFixture[str]) -> None:
    show(Registry.read(), "1.1.0", screen, as_json=True)
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["version"] == "1.1.0"
    assert shown["content_hash"] == Registry.read().get("1.1.0").content_hash
    assert set(shown["dimensions"][0]["anchors"]) == {"1", "2", "3", "4", "5"}
    with pytest.raises(NotFoundError, match=r"'9\.0\.0' is not published"):
        show(Registry.read(), "9.0.0", screen, as_json=False)


def test_the_diff_shows_both_sides(screen: Console, capsys: pytest.CaptureFixture[str]) -> None:
    show_diff(Registry.read(), "1.0.0", "1.1.0", screen, as_json=False)
    assert "required_tests.hallucination.enforcement\n  - warn\n  + bars_publication\n" in printed(screen)
    show_diff(Registry.read(), "1.2.0", "1.3.0", screen, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    added = "penalties.repeatability_tested=false", None, "10 points off the composite"
    assert rows[0] == dict(zip(("path", "before", "after"), added, strict=True))
    assert rows[-1]["path"] == "superseded_by"


def test_equal_versions_are_said_to_be_equal(screen: Console) -> None:
    show_diff(Registry.read(), "1.3.0", "1.3.0", screen, as_json=False)
    assert printed(screen) == "1.3.0 and 1.3.0 have the same content.\n"


def test_the_published_versions_are_valid(screen: Console, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(Registry.read(), screen, as_json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    checks = [(check, "passed") for check in ("frozen", "worked_example", "rule_numbers")]
    assert [(row["check"], row["result"]) for row in rows] == checks * 4


def test_a_version_that_is_not_frozen_is_valid_and_says_so(own: Path, write: Write, screen: Console) -> None:
    write("2.0.0", SUPERSEDES)
    assert validate(Registry.read(own), screen, as_json=False) == 0
    assert "not frozen yet" in printed(screen)


def test_a_bad_file_and_a_changed_frozen_version_are_invalid(
    own: Path, write: Write, failures: Failures
) -> None:
    write("2.0.0", SUPERSEDES)
    freeze(own)
    write("2.0.0", SUPERSEDES, ("asks each question once.", "asks each question twice."))
    assert [(row["check"], row["subject"]) for row in failures(Registry.read(own))] == [("frozen", "2.0.0")]
    (own / "2.1.0.yaml").write_text("")
    assert failures(Registry.read(own))[0]["check"] == "file"


WEIGHTS = 'universal: "0.40"\n  domain: "0.60"'


@pytest.mark.parametrize(
    ("edit", "check", "words"),
    [
        (
            ("points: 10", "points: 5"),
            "rule_numbers",
            "rule repeatability_penalty says 'ten points', the penalty is 5",
        ),
        (
            (WEIGHTS, WEIGHTS.replace("0.40", "0.50").replace("0.60", "0.50")),
            "rule_numbers",
            "rule composite_score says '0.40 for universal', weights.universal is 0.50",
        ),
        (
            ("the mean of the five scenario scores", "the mean of the six scenario scores"),
            "rule_numbers",
            "rule domain_score says 'six scenario', the version has 5",
        ),
        (None, "current", 'add `supersedes: "1.3.0"` to 2.0.0.yaml'),
    ],
)
def test_a_number_that_the_data_contradict_and_a_second_current_version_are_named(
    own: Path, write: Write, failures: Failures, edit: tuple[str, str] | None, check: str, words: str
) -> None:
    write("2.0.0", *((SUPERSEDES, edit) if edit else ()))
    (row,) = failures(Registry.read(own))
    assert (row["check"], row["subject"]) == (check, "2.0.0")
    assert words in row["detail"]


def test_show_prints_each_reference_as_published_with_our_check_beside_it(screen: Console) -> None:
    shown = words_of("1.1.0", screen)
    assert "not named" not in shown
    assert (
        "A Survey on the Evaluation of LLM-based Agents, Liu, X., Zhu, Y., et al., arXiv, 2025, unverified"
        in shown
    )
    assert "Topics: multi-step reasoning, autonomy, error handling, safety and policy. Our check: " in shown
    assert "Repeatability guidance (published, unverified)" in shown


def test_show_prints_one_template(screen: Console, capsys: pytest.CaptureFixture[str]) -> None:
    show(Registry.read(), "1.3.0", screen, as_json=False, template="research_v1")
    assert printed(screen).count("# Template") + printed(screen).count("Template ") == 1
    assert len(printed(screen).splitlines()) < 80
    show(Registry.read(), "1.3.0", screen, as_json=True, template="research_v1")
    assert [t["slug"] for t in json.loads(capsys.readouterr().out)] == ["research_v1"]
    with pytest.raises(NotFoundError, match="'research' is not in this methodology version"):
        show(Registry.read(), "1.3.0", screen, as_json=False, template="research")


@pytest.mark.parametrize(
    ("version", "template"), [("1.0.0", "coding_development_v1"), ("1.2.0", "personal_assistant_v1")]
)
def test_the_command_prints_one_template_of_any_version(version: str, template: str) -> None:
    command = ["methodology", "show", version, "--template"]
    text, as_json = (invoke(*command, template, *json_).stdout for json_ in ((), ("--json",)))
    [shown] = json.loads(as_json)
    others = {t.slug for t in Registry.read().get(version).templates} - {template}
    assert shown["slug"] == template
    assert all(word in " ".join(text.split()) for s in shown["scenarios"] for word in (s["id"], s["name"]))
    assert [slug for slug in others if slug in text] == []
    assert len(text.splitlines()) < 100
    if version == "1.0.0":  # a template of later versions is refused, with those that there are
        with pytest.raises(NotFoundError, match="'personal_assistant_v1' is not in") as refused:
            invoke(*command, "personal_assistant_v1")
        assert all(slug in str(refused.value) for slug in others)


def test_without_a_version_the_current_one_is_shown() -> None:
    command, template = ["methodology", "show"], ["--template", "research_v1"]
    current = Registry.read().current.version
    assert invoke(*command, *template).stdout == invoke(*command, current, *template).stdout
    assert f"methodology {current}" in invoke(*command).stdout


def test_weights_that_do_not_give_the_worked_example_are_invalid(failures: Failures) -> None:
    m = Registry.read().get("1.3.0")
    broken = m.model_copy(update={"weights": m.weights.model_copy(update={"domain": "0.50"})})
    rows = failures(Registry((broken,), own=frozenset({"1.3.0"})))
    # 0.4 × 100 + 0.5 × 100 = 90
    (detail,) = [row["detail"] for row in rows if row["check"] == "worked_example"]
    assert "ΣU = 30, ΣD = 75 gives 90, expected 100" in detail
