"""mypy refuses the frame of one table where that of another is expected."""

import re
import shutil
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_mypy_refuses_swapped_frames_and_a_frame_that_lost_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "swapped_frames.py"
    shutil.copyfile(ROOT / "tests" / "tables" / "swapped_frames.txt", file)
    monkeypatch.chdir(ROOT)
    said, _, code = api.run([str(file), "--config-file", "pyproject.toml"])
    found = re.findall(r"^\S+:(\d+): error: Argument (\d) .* expected \"(\w+)\"", said, re.MULTILINE)
    assert found == [("13", "1", "RubricRatings"), ("13", "2", "Transcripts"), ("18", "1", "RubricRatings")]
    assert code == 1


def test_the_types_are_plain_frames_at_run_time() -> None:
    import polars as pl

    from agent_eval.tables import frames

    assert {frames.Agents, frames.Turns, frames.ErrorClusters} == {pl.DataFrame}
