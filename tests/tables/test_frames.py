"""mypy refuses the frame of one table where that of another is expected, and ids in the wrong order."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_mypy_refuses_swapped_frames_and_ids_and_a_frame_that_lost_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{name}.py" for name in ("swapped_frames", "swapped_ids")]
    for file in files:
        shutil.copyfile(ROOT / "tests" / "tables" / f"{file.stem}.txt", file)
    monkeypatch.chdir(ROOT)
    command = [sys.executable, "-m", "mypy", *map(str, files), "--config-file", "pyproject.toml"]
    # in a process: mypy raises its limit of recursion
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout
    frames = re.findall(r"frames\.py:(\d+): error: Argument (\d) .* expected \"(\w+)\"", said, re.MULTILINE)
    swapped = [("13", "1", "RubricRatings"), ("13", "2", "Transcripts"), ("18", "1", "RubricRatings")]
    assert frames == swapped, said
    assert {*re.findall(r"ids\.py:(\d+): error", said)} == {"5", "6", "7", "9"}, said
    assert done.returncode == 1


def test_the_types_are_plain_frames_at_run_time() -> None:
    import polars as pl

    from agent_eval.tables import frames

    assert {frames.Agents, frames.Turns, frames.ErrorClusters} == {pl.DataFrame}
