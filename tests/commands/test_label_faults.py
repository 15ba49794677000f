"""`agent-eval labels import` with files as people make them: wrong ids, other encodings, hostile names, many labels."""

from pathlib import Path

import polars as pl
import pytest

from agent_eval.judge.inputs.sheet_sampling import Drawn, sealed_sampling
from agent_eval.project import Project
from agent_eval.project.calibration import calibrations
from tests.commands.test_labels import TURN, imported

HEADER = "conversation,turn,metric,rater,label"
HOSTILE = "<img src=x onerror=alert(1)>"


def written(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join((header, *lines)) + "\n")
    return path


def stored(name: str = "import-0001-labels.csv") -> pl.DataFrame:
    return Project.open().human_ratings[0].filter(file=name)


def test_a_header_without_labels_exits_with_2_and_says_so(sample_copy: Path) -> None:
    code, out, err = imported(written(sample_copy))
    assert (code, out, err.strip()) == (2, "", "No labels were read.")


def test_a_known_and_an_unknown_conversation_are_told_apart(sample_copy: Path) -> None:
    lines = (f"{TURN},0,helpfulness,anna,4", "nosuch,0,helpfulness,anna,4", f"{TURN},0,nosuch,anna,4")
    code, _, err = imported(written(sample_copy, *lines))
    assert (code, stored().height) == (1, 1)
    assert "labels.csv:3: conversation 'nosuch' is unknown" in err
    assert "1 labels of 'nosuch' are not stored: no metric has this name" in err


def test_raters_who_differ_are_both_kept_and_neither_decides(sample_copy: Path) -> None:
    lines = (f"{TURN},0,helpfulness,anna,5", f"{TURN},0,helpfulness,{HOSTILE},1")
    code, out, _ = imported(written(sample_copy, *lines))
    assert (code, out) == (0, "")
    assert stored()["rater"].to_list() == ["anna", HOSTILE]


def test_labels_of_a_removed_agent_are_named_and_the_others_stored(sample_copy: Path) -> None:
    lines = (f"ghost,{TURN},0,helpfulness,anna,4", f"lumen-support,{TURN},0,helpfulness,anna,4")
    code, _, err = imported(written(sample_copy, *lines, header=f"agent,{HEADER}"))
    assert (code, stored()["agent_id"].to_list()) == (1, ["lumen-support"])
    assert "labels.csv:2" in err
    assert "ghost" in err


@pytest.mark.parametrize("answer", ["5", "five", "5 stars"])
def test_a_label_that_is_given_twice_in_a_file_counts_once(sample_copy: Path, answer: str) -> None:
    code, _, _ = imported(
        written(sample_copy, f"{TURN},0,helpfulness,anna,4", f"{TURN},0,helpfulness,anna,{answer}")
    )
    assert code == (0 if answer == "5" else 1)
    assert stored()["rating_1to5"].to_list()[-1] == (5 if answer == "5" else 4)


def test_ten_thousand_labels_are_read_and_the_first_faults_named(sample_copy: Path) -> None:
    lines = [f"{TURN},{i % 3},helpfulness,rater {i},{i % 5 + 1}" for i in range(9_950)]
    code, _, err = imported(written(sample_copy, *lines, *["nosuch,0,helpfulness,anna,4"] * 50))
    assert (code, stored().height) == (1, 9_950)
    assert err.count("is unknown") == 20
    assert "… and 30 more." in err


def test_a_label_under_another_rubric_is_stale(sample_copy: Path) -> None:
    line = f"{TURN},0,helpfulness,anna,4,1.0,s,0000"
    assert imported(written(sample_copy, line, header=f"{HEADER},weight,stratum,rubric"))[0] == 0
    assert stored()["rubric_hash"].to_list() == ["0000"]
    assert (
        calibrations(Project.open(), ["1.3.0"]).height == 2
    )  # what people labelled before is still compared


def test_a_sealed_cell_on_another_line_is_rejected_by_line(sample_copy: Path) -> None:
    cell = sealed_sampling(Drawn(("elsewhere", "c", 0, "helpfulness"), 2.0, "0123456789ab"))
    line = f"{TURN},0,helpfulness,anna,4,{cell}"
    code, _, err = imported(written(sample_copy, line, header=f"{HEADER},stratum"))
    assert (code, "does not belong to this part" in err) == (2, True)


@pytest.mark.parametrize(("said", "value"), [("true", 1.0), ("FALSE", 0.0), ("pass", 1.0)])
def test_a_verdict_may_be_a_truth_value(sample_copy: Path, said: str, value: float) -> None:
    line = f"{TURN},,goal_completion,anna,{said}"
    assert imported(written(sample_copy, line))[0] == 0
    assert stored()["value"].to_list() == [value]
