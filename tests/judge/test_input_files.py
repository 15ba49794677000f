"""Files of data/ratings and data/verdicts: what cannot be read is a refusal, and the rest is read."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from agent_eval.formats.files import files_in
from agent_eval.formats.refusals import Refusal
from agent_eval.judge.inputs.human_ratings import COLUMNS, read_ratings
from agent_eval.judge.inputs.recorded_verdicts import read_verdicts
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from tests.judge.material import recorded

Read = Callable[[Path], tuple[pl.DataFrame, list[Refusal]]]

RATING = "ada,s1,,,any,U1,,4,,,kim,"
FILES = {
    ".csv": f"{','.join(COLUMNS)}\n{RATING}\n",
    ".jsonl": json.dumps(recorded("hash", 0, HELPFULNESS, rating_1to5=4)) + "\n",
}
both = pytest.mark.parametrize(("read", "ending"), [(read_ratings, ".csv"), (read_verdicts, ".jsonl")])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "some"
    folder.mkdir(parents=True)
    return folder


def good(folder: Path, ending: str, name: str = "z") -> Path:
    path = folder / f"{name}{ending}"
    path.write_text(FILES[ending])
    return path


@both
def test_links_out_of_the_data_folder_are_refused_and_links_within_are_followed(
    folder: Path, tmp_path: Path, read: Read, ending: str
) -> None:
    (folder / f"a{ending}").symlink_to(good(tmp_path, ending))
    (folder / f"b{ending}").symlink_to(good(folder.parent, ending))
    frame, [refusal] = read(folder)
    assert frame.height == 1
    assert (refusal.file, refusal.line) == (f"a{ending}", 0)
    assert "leads out of the data folder" in refusal.reason


@both
def test_links_that_lead_nowhere_pipes_and_folders_are_refused(folder: Path, read: Read, ending: str) -> None:
    (folder / f"a{ending}").symlink_to(folder / f"a{ending}")
    (folder / f"b{ending}").symlink_to(folder / "absent")
    os.mkfifo(folder / f"c{ending}")
    (folder / f"d{ending}").mkdir()
    good(folder, ending)
    frame, refusals = read(folder)
    assert frame.height == 1
    assert [(r.file, r.line) for r in refusals] == [(f"{name}{ending}", 0) for name in "abcd"]
    said = ("back to itself", "missing", "not a regular file", "a folder; expected a file")
    assert [text in refusal.reason for text, refusal in zip(said, refusals, strict=True)] == [True] * 4


@both
def test_a_file_that_may_not_be_read_is_refused_and_the_rest_is_read(
    folder: Path, read: Read, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = good(folder, ending, "a")
    good(folder, ending)
    real = Path.open

    def guarded(path: Path, mode: str) -> object:
        if path == locked:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, mode)

    monkeypatch.setattr(Path, "open", guarded)
    frame, [refusal] = read(folder)
    assert frame.height == 1
    assert refusal.file == f"a{ending}"
    assert "Permission denied" in refusal.reason


@both
def test_a_folder_that_cannot_be_listed_and_a_file_in_its_place_are_refused(
    folder: Path, read: Read, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, [in_place] = read(good(folder, ending))
    assert "not a folder" in in_place.reason

    def denied(path: Path) -> object:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    frame, [refusal] = read(folder)
    assert frame.is_empty()
    assert (refusal.file, refusal.line) == ("some", 0)
    assert "Permission denied" in refusal.reason


@both
def test_a_folder_that_is_not_there_has_nothing_to_refuse_and_a_link_to_nothing_is_named(
    folder: Path, read: Read, ending: str
) -> None:
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "lost").symlink_to(folder / "nowhere")
    frame, refused = read(folder / "absent")
    assert (frame.height, refused) == (0, [])
    for name in ("circle", "lost"):
        [refusal] = read(folder / name)[1]
        assert (refusal.file, refusal.reason[:26]) == (name, "a broken link; fix or remo")


@both
def test_a_name_that_is_no_text_is_read_all_the_same(folder: Path, read: Read, ending: str) -> None:
    good(folder, ending).rename(os.fsdecode(os.fsencode(folder) + b"/\xff" + ending.encode()))
    frame, refusals = read(folder)
    assert (frame.height, refusals) == (1, [])


def test_hidden_files_and_other_endings_are_not_ours(folder: Path) -> None:
    for name in (".~lock.a.csv", "a.csv.bak", "b.CSV", "b.csv", "a.csv"):
        (folder / name).touch()
    found = [(path.name, reason) for path, reason in files_in(folder, ".csv")]
    assert found == [("a.csv", None), ("b.csv", None)]
