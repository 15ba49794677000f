"""Rows in memory and in temporary files: the same rows, no file left behind, and an error that names the fix."""

import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from agent_eval.errors import StorageError
from agent_eval.formats import spill
from agent_eval.formats.spill import Spilled, frames_of, in_memory, spilled


def parts(n: int, size: int = 3) -> Iterator[dict[str, pl.DataFrame]]:
    for part in range(n):
        numbers = range(part * size, (part + 1) * size)
        yield {
            "one": pl.DataFrame({"n": numbers, "text": [["a", str(i)] for i in numbers]}),
            "other": pl.DataFrame({"m": [-part]}),
        }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def _in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "IN_MEMORY", 0)


@pytest.mark.parametrize("limit", [0, 4, 9, 1000])
def test_rows_are_the_same_in_memory_and_in_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(spill, "IN_MEMORY", limit)
    whole = pl.concat(part["one"] for part in parts(4))
    with spilled(parts(4)) as rows:
        assert isinstance(rows["one"], Spilled) == (limit < 16)
        assert any(folder.iterdir()) == (limit < 16)
        assert pl.concat(frames_of(rows["one"])).equals(whole)
        assert pl.concat(frames_of(rows["other"]))["m"].to_list() == [0, -1, -2, -3]
        fives = in_memory(lambda part: part.filter(pl.col("n") % 5 == 0), rows["one"])
        assert fives["n"].to_list() == [0, 5, 10]
    assert not any(folder.iterdir())


@pytest.mark.usefixtures("_in_files")
def test_each_part_has_a_file_that_can_be_rewritten(folder: Path) -> None:
    with spilled(parts(2)) as rows:
        of = rows["one"]
        assert isinstance(of, Spilled)
        assert [part.height for part in frames_of(of)] == [3] * 2
        assert len(list(folder.rglob("*.arrow"))) == 4
        for number, part in enumerate(frames_of(of)):
            of.rewrite(number, part.with_columns(n=pl.col("n") * 10))
        assert in_memory(lambda part: part, of)["n"].to_list() == [0, 10, 20, 30, 40, 50]


@pytest.mark.usefixtures("_in_files")
def test_files_are_removed_after_an_error(folder: Path) -> None:

    def broken() -> Iterator[dict[str, pl.DataFrame]]:
        yield from parts(2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), spilled(broken()):
        pass
    assert not any(folder.iterdir())


@pytest.mark.usefixtures("_in_files")
def test_a_folder_that_cannot_be_written_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(StorageError, match=r"absent: No such file.*TMPDIR"), spilled(parts(1)):
        pass


@pytest.mark.usefixtures("_in_files")
def test_a_full_disk_is_named_with_the_fix(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: pl.DataFrame, file: Path, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_ipc", full)
    with pytest.raises(StorageError, match=r"No space left on device. Free space"), spilled(parts(1)):
        pass
    assert not any(folder.iterdir())


@pytest.mark.usefixtures("_in_files", "folder")
def test_a_written_part_is_not_in_memory_while_the_next_is_computed() -> None:
    written: list[weakref.ref[pl.DataFrame]] = []

    def watched() -> Iterator[dict[str, pl.DataFrame]]:
        for _ in range(3):
            assert all(frame() is None for frame in written)
            frame = pl.DataFrame({"n": [1]})
            written.append(weakref.ref(frame))
            part = {"one": frame}
            del frame
            yield part
            del part

    with spilled(watched()) as rows:
        assert len(written) == in_memory(lambda part: part, rows["one"]).height == 3
