from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import agent_eval
from agent_eval.errors import NotFoundError
from agent_eval.methodology import (
    EditedVersionError,
    MethodologyFileError,
    Registry,
    freeze,
    load,
    version_names,
)
from agent_eval.methodology.models import Version, in_version_order
from agent_eval.methodology.registry import MAX_BYTES
from tests.methodology.conftest import Write

PUBLISHED = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
PENALTY = ("    points: 10", "    points: 5")
SUPERSEDES = ("superseded_by: null", 'supersedes: "1.3.0"')


def reason_for(own: Path, name: str) -> str:
    """The one problem of the folder; everything else still reads."""
    registry = Registry.read(own)
    assert registry.versions == PUBLISHED
    (problem,) = registry.problems
    assert problem.file == str(own / name)
    return f"{problem.line}: {problem.reason}"


@pytest.mark.parametrize("folder", [None, "none"])
def test_the_published_versions_read_without_a_project(folder: str | None, tmp_path: Path) -> None:
    registry = Registry.read(tmp_path / folder) if folder else Registry.read()
    assert registry.versions == PUBLISHED
    assert registry.problems == registry.frozen_problems() == ()
    assert registry.current.version == "1.3.0"
    assert freeze(tmp_path / "none") == ()
    assert not (tmp_path / "none").exists()


def test_versions_are_ordered_by_meaning_not_by_text_or_date(own: Path, write: Write) -> None:
    write("1.10.0", ('published: "2026-04-09"', 'published: "2026-04-01"'))
    assert Registry.read(own).versions == (*PUBLISHED, "1.10.0")
    assert version_names(own) == (*PUBLISHED, "1.10.0")


@given(st.lists(st.tuples(*[st.integers(0, 30)] * 3), unique=True))
def test_version_order_is_that_of_the_numbers(numbers: list[tuple[int, int, int]]) -> None:
    texts = [".".join(map(str, n)) for n in numbers]
    assert [tuple(Version.parse(t)) for t in sorted(texts, key=Version.parse)] == sorted(numbers)


def test_a_users_version_joins_and_may_be_the_current_one(own: Path, write: Write) -> None:
    write("2.0.0", PENALTY)
    registry = Registry.read(own)
    assert registry.current.version == load("2.0.0", own).version == "2.0.0"
    assert registry.get("2.0.0").penalties[0].points == 5
    assert registry.own == {"2.0.0"}
    assert registry.problems == registry.frozen_problems() == ()
    with pytest.raises(NotFoundError, match=r"'2\.0\.0' is not published"):
        load("2.0.0")  # without the folder only the packaged versions are known


def test_a_draft_is_not_current_supersedes_nothing_yet_and_is_not_frozen(own: Path, write: Write) -> None:
    write("2.0.0", SUPERSEDES, ("status: current", "status: draft"))
    assert Registry.read(own).current.version == "1.3.0"
    assert Registry.read(own).get("1.3.0").superseded_by is None
    assert freeze(own) == ()
    assert not (own / "published.yaml").exists()


def test_a_draft_may_change_until_it_is_scored_as_published(own: Path, write: Write) -> None:
    write("2.0.0", SUPERSEDES, ("status: current", "status: draft"))
    draft = Registry.read(own).get("2.0.0")
    assert draft.hash_with_scores == f"draft {draft.content_hash}"
    stored = {"2.0.0": ["draft 123"]}
    assert Registry.read(own, lambda: stored).edited() == {}
    stored["2.0.0"] = [draft.content_hash]
    assert Registry.read(own, lambda: stored).edited() == {}
    stored["2.0.0"] = ["123"]
    assert list(Registry.read(own, lambda: stored).edited()) == ["2.0.0"]


def test_an_unknown_version_names_the_published_ones_and_the_fix() -> None:
    named = r"'2\.0\.0' is not published.*1\.2\.0, 1\.3\.0.*2\.0\.0\.yaml"
    with pytest.raises(NotFoundError, match=named):
        Registry.read().get("2.0.0")


def test_a_bad_file_is_reported_with_what_is_wrong_and_stops_no_other(own: Path, write: Write) -> None:
    write("2.0.0", ("points: 10", "points: ten"))
    write("2.1.0")
    registry = Registry.read(own)
    assert registry.versions == (*PUBLISHED, "2.1.0")
    assert [Path(p.file).name for p in registry.problems] == ["2.0.0.yaml"]
    reason = r"cannot be read: .*2\.0\.0\.yaml:\d+: penalties\.0\.points"
    with pytest.raises(NotFoundError, match=reason):
        registry.get("2.0.0")


# What can be wrong with a file: a problem that names it, and the rest goes on.


def test_an_unknown_key_is_named_with_its_line(own: Path, write: Write) -> None:
    path = write("2.0.0", ("penalties:", "penalites: []\npenalties:"))
    line = path.read_text(encoding="utf-8").splitlines().index("penalites: []") + 1
    assert reason_for(own, "2.0.0.yaml") == f"{line}: penalites: unknown key; remove it or correct its name"


def test_a_repeated_key_is_named_with_both_lines(own: Path, write: Write) -> None:
    path = write("2.0.0", ("    points: 10", "    points: 10\n    points: 0"))
    first = path.read_text(encoding="utf-8").splitlines().index("    points: 10") + 1
    expected = f"{first + 1}: the key penalties.0.points is given twice (first in line {first}); remove one"
    assert reason_for(own, "2.0.0.yaml") == expected


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [
        (('  universal: "0.40"', '  universal: "0.50"'), "weights: weights sum to 1.1, expected 1"),
        (("  - id: U4", "  - id: U7"), "dimensions.3.id: Input should be 'U1'"),
        (("needs_test: error_injection", "needs_test: error-"), "dimensions.3.needs_test: Input should be"),
        (("status: current", "status: latest"), "status: Input should be 'current'"),
        (("      - *usefulness", "      - *useful"), "the alias *useful has no finished anchor before it"),
        (("status: current", "status: [current"), "not YAML: "),
        (("status: current", "<<: {a: b}\nstatus: current"), "merge keys (<<) are not supported"),
        (("status: current", "status: !!python/name:os.system x"), "the tag "),
        (("status: current", "status: current\n---\na: b"), "not YAML: |holds a second document"),
    ],
    ids=lambda value: value[1].strip()[:30] if isinstance(value, tuple) else "",
)
def test_bad_content_is_refused_with_its_key_or_line(
    own: Path, write: Write, replacement: tuple[str, str], expected: str
) -> None:
    text = write("2.0.0", replacement).read_text(encoding="utf-8")
    line = text.count("\n", 0, text.index(replacement[1])) + 1
    found, _, reason = reason_for(own, "2.0.0.yaml").partition(": ")
    assert any(reason.startswith(e) for e in expected.split("|"))
    assert line - 1 <= int(found) <= line + 2


@pytest.mark.parametrize("name", ["2.0.1.yaml", "2.0.yaml", "mine.yaml", "2.0.0.yml"])
def test_the_file_is_named_by_its_version(own: Path, write: Write, name: str) -> None:
    write("2.0.0", name=name)
    assert "rename the file to 2.0.0.yaml" in reason_for(own, name)
    (own / name).unlink()
    write("2.0", name="2.0.yaml")
    assert "version '2.0' is not MAJOR.MINOR.PATCH" in reason_for(own, "2.0.yaml")


def bomb() -> bytes:
    """Ten values, ten aliases of these, ten of those, and so on."""
    rows = (b"%c: &%c [%s]\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 10)) for c in range(97, 106))
    return b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(rows)


NO_VERSIONS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "None: is not a mapping"),
    "comment": (b"# nothing yet\n", "None: is not a mapping"),
    "list": (b"- a\n- b\n", "None: is not a mapping"),
    "latin-1": (b"title: ok\nsource: caf\xe9\n", "2: is not UTF-8 (byte 0xe9)"),
    "utf-16": ("title: ok\n".encode("utf-16"), "1: is not UTF-8"),
    "nul": (b"title: a\x00b\n", "None: not YAML: "),
    "large": (b"#" * (MAX_BYTES + 1), "None: is larger than 2,000,000 bytes"),
    "deep": (b"[" * 900_000, "1: nested deeper than 32 levels"),
    "cycle": (b"a: &a [*a]", "1: the alias *a has no finished anchor"),
    "bomb": (bomb(), "5: more than 100,000 values after its aliases are expanded"),
}


@pytest.mark.parametrize("name", NO_VERSIONS)
def test_a_file_that_is_no_version_is_refused(own: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, expected = NO_VERSIONS[name]
    (own / "2.0.0.yaml").write_bytes(data)
    assert reason_for(own, "2.0.0.yaml").startswith(expected)
    if name == "deep":  # the parser in pure Python refuses the same
        monkeypatch.setattr("agent_eval.formats.yaml.LOADER", yaml.SafeLoader)
        (own / "2.0.0.yaml").write_bytes(b"[" * 10_000)
        assert reason_for(own, "2.0.0.yaml") == expected


def test_a_folder_in_place_of_a_file_is_refused(own: Path) -> None:
    (own / "2.0.0.yaml").mkdir()
    assert reason_for(own, "2.0.0.yaml") == "None: is not a file"


def test_a_file_in_place_of_the_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "methodologies").write_text("oops")
    assert "is not a folder" in reason_for(tmp_path / "methodologies", "")


def test_many_errors_are_summed_up(own: Path) -> None:
    (own / "2.0.0.yaml").write_text("".join(f"key{i}: x\n" for i in range(20)))
    # 8 required keys are missing, 20 keys are unknown; 5 of the 28 are shown
    assert reason_for(own, "2.0.0.yaml").endswith("and 23 more")


def test_a_published_version_cannot_be_redefined(own: Path, write: Write) -> None:
    write("1.3.0", PENALTY)
    assert "version 1.3.0 is published with different content" in reason_for(own, "1.3.0.yaml")
    assert load("1.3.0", own).penalties[0].points == 10


def test_a_copy_of_a_published_version_is_fine(own: Path, write: Write) -> None:
    write("1.3.0")
    registry = Registry.read(own)
    assert (registry.versions, registry.problems, registry.own) == (PUBLISHED, (), frozenset())


def test_hidden_and_other_files_are_left_alone_and_names_are_listed_without_reading(own: Path) -> None:
    for name in ("._2.0.0.yaml", ".2.0.0.yaml.swp", "README.md"):
        (own / name).write_text("not a version")
    assert Registry.read(own).problems == ()
    assert version_names() == version_names(own) == PUBLISHED
    (own / "1.4.0.yaml").write_bytes(b"\xff not YAML")
    (own / "notes.yaml").write_text("a: b")
    assert version_names(own) == (*PUBLISHED, "1.4.0")


def test_a_byte_order_mark_and_windows_line_ends_are_read(own: Path, write: Write) -> None:
    path = write("2.0.0")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert Registry.read(own).get("2.0.0").rubric_hash == load("1.3.0").rubric_hash


def test_unquoted_dates_weights_and_anchors_are_read_as_written(own: Path, write: Write) -> None:
    date = ('published: "2026-04-09"', "published: 2026-05-01")
    path = write("2.0.0", date, ('universal: "0.40"', "universal: 0.40"))
    path.write_text(path.read_text(encoding="utf-8").replace('"5":', "5:"), encoding="utf-8")
    m = Registry.read(own).get("2.0.0")
    assert (m.published, m.weights.universal) == ("2026-05-01", "0.40")
    assert m.rubric_hash == load("1.3.0").rubric_hash


# load


def test_load_is_reached_from_the_package() -> None:
    assert agent_eval.methodology.load("1.3.0") is load("1.3.0")


# Frozen content


def test_changed_content_without_a_new_version_is_found() -> None:
    registry = Registry.read()
    m = registry.get("1.1.0")
    tampered = m.model_copy(update={"rules": {}})
    others = tuple(o for o in registry.all() if o is not m)
    (problem,) = Registry((tampered, *others), recorded=registry.recorded).frozen_problems()
    assert problem.version == "1.1.0"
    assert m.content_hash in problem.reason
    assert tampered.content_hash in problem.reason


def test_one_edited_digit_is_refused_by_version_and_others_are_not(own: Path, write: Write) -> None:
    write("2.0.0")
    freeze(own)
    write("2.0.0", PENALTY)
    registry = Registry.read(own)
    assert list(registry.edited()) == ["2.0.0"]
    registry.refuse_edited(["1.3.0"])
    edited = r"^Methodology 2\.0\.0 was published with hash .*boards are unchanged"
    with pytest.raises(EditedVersionError, match=edited):
        registry.refuse_edited(["1.3.0", "2.0.0"])


def test_a_frozen_version_that_cannot_be_read_any_more_counts_as_edited(own: Path, write: Write) -> None:
    write("2.0.0")
    freeze(own)
    write("2.0.0", ("status: current", "status: latest"))
    assert "its file cannot be read now" in Registry.read(own).edited()["2.0.0"].reason


def test_a_version_frozen_while_references_were_hashed_counts_as_unchanged(own: Path, write: Write) -> None:
    write("2.0.0")
    m = Registry.read(own).get("2.0.0")
    assert m.earlier_content_hash != m.content_hash
    (own / "published.yaml").write_text(f'"2.0.0": {m.earlier_content_hash}\n')
    assert Registry.read(own).edited() == {}


def test_a_version_may_supersede_a_packaged_one_that_exists(own: Path, write: Write) -> None:
    write("2.0.0", SUPERSEDES)
    registry = Registry.read(own)
    assert registry.current.version == "2.0.0"
    old = registry.get("1.3.0")
    assert (old.status, old.superseded_by) == ("superseded", "2.0.0")
    assert registry.place_problems == registry.frozen_problems() == ()
    write("2.0.0", ("superseded_by: null", 'supersedes: "1.9.0"'))
    reasons = [p.reason for p in Registry.read(own).place_problems]
    assert "supersedes 1.9.0, which does not exist. Versions: 1.0.0, 1.1.0, 1.2.0, 1.3.0, 2.0.0" in reasons
    write("2.0.0", ("superseded_by: null", 'supersedes: "2.0.0"'))
    assert "a version supersedes a lower one" in reason_for(own, "2.0.0.yaml")


def test_exactly_one_version_is_current_however_many_files_say_so(own: Path, write: Write) -> None:
    write("2.0.0")
    write("1.10.0")
    registry = Registry.read(own)
    successors = {v: registry.get(v).superseded_by for v in ("1.3.0", "1.10.0", "2.0.0")}
    assert successors == {"1.3.0": "2.0.0", "1.10.0": "2.0.0", "2.0.0": None}
    assert [m.version for m in registry.all() if m.status == "current"] == ["2.0.0"]
    assert [(p.version, p.reason) for p in registry.place_problems] == [
        ("1.10.0", '1.3.0 is current as well, and 2.0.0 is used; add `supersedes: "1.3.0"` to 1.10.0.yaml'),
        ("2.0.0", '1.10.0 is current as well, and 2.0.0 is used; add `supersedes: "1.10.0"` to 2.0.0.yaml'),
    ]


def test_status_date_and_successor_may_change() -> None:
    registry = Registry.read()
    changed = tuple(
        m.model_copy(update={"status": "superseded", "superseded_by": "2.0.0", "published": "2027-01-01"})
        for m in registry.all()
    )
    assert Registry(changed, recorded=registry.recorded).frozen_problems() == ()


def test_a_packaged_version_without_a_recorded_hash_is_found() -> None:
    problems = Registry(Registry.read().all()).frozen_problems()
    assert [p.version for p in problems] == list(PUBLISHED)


def test_freezing_records_new_versions_once_and_never_changes_one(own: Path, write: Write) -> None:
    write("2.0.0")
    write("1.10.0")
    assert freeze(own) == ("1.10.0", "2.0.0")
    recorded = (own / "published.yaml").read_text()
    assert freeze(own) == ()
    write("2.0.0", PENALTY)
    write("2.1.0")
    assert freeze(own) == ("2.1.0",)
    assert (own / "published.yaml").read_text().startswith(recorded)
    (problem,) = Registry.read(own).frozen_problems()
    assert problem.version == "2.0.0"
    assert problem.file == str(own / "published.yaml")


def test_a_frozen_version_whose_file_is_gone_is_found(own: Path, write: Write) -> None:
    path = write("2.0.0")
    freeze(own)
    path.unlink()
    (problem,) = Registry.read(own).frozen_problems()
    assert "its file is missing; restore 2.0.0.yaml" in problem.reason


def test_freezing_refuses_a_record_that_it_cannot_read(own: Path, write: Write) -> None:
    write("2.0.0")
    (own / "published.yaml").write_text("next: abc\n")
    unread = r"published\.yaml:1: 'next': expected a version and its hash"
    with pytest.raises(MethodologyFileError, match=unread):
        freeze(own)
    assert (own / "published.yaml").read_text() == "next: abc\n"
    assert len(Registry.read(own).problems) == 1


def test_a_link_out_of_the_data_folder_is_not_followed(own: Path, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-elsewhere.yaml"
    outside.write_text("secret")
    (own / "9.0.0.yaml").symlink_to(outside)
    (problem,) = Registry.read(own).problems
    assert "leads out of the data folder" in problem.reason


def test_rows_are_sorted_by_version_and_not_by_its_letters() -> None:
    rows = pl.DataFrame({"methodology_version": ["1.10.0", "1.2.0", "1.2.0"], "name": ["a", None, "b"]})
    assert in_version_order(rows, "name").rows() == [("1.2.0", "b"), ("1.2.0", None), ("1.10.0", "a")]
    assert in_version_order(rows.clear()).is_empty()
