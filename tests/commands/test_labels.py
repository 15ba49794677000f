"""`agent-eval labels import`: labels of other tools into data/ratings, once, without becoming ratings."""

import io
import re
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from agent_eval.commands.labels import import_labels
from agent_eval.errors import NotFoundError
from agent_eval.judge.inputs.sheet_sampling import Drawn, sealed_sampling
from agent_eval.project import Project
from agent_eval.project.calibration import calibrations

TURN = "lumen-2026-04-a-D2"
LINES = (
    "conversation;turn;metric;rater;judge;label;reason;time",
    f"{TURN};0;helpfulness;anna;;5;clear;2026-05-01T10:00:00Z",
    f"{TURN};0;helpfulness;;gpt;4;;",
    "elsewhere;0;helpfulness;anna;;5;;",
)


def imported(path: Path, agent: str | None = None) -> tuple[int, str, str]:
    out, err = (Console(width=200, file=io.StringIO(), record=True) for _ in range(2))
    code = import_labels(Project.open(), out, err, [path], agent_id=agent, metric=None, as_json=False)
    return code, out.export_text(), err.export_text()


def test_labels_are_stored_once_for_the_agent_of_their_conversation(sample_copy: Path) -> None:
    path = sample_copy / "My Labels.csv"
    path.write_text("\n".join(LINES))
    code, out, err = imported(path)
    assert code == 1
    assert "My Labels.csv:4: conversation 'elsewhere' is unknown" in err
    assert "2 labels of My Labels.csv were written to import-0001-my-labels.csv" in err
    assert "import:gpt" in out
    stored = Project.open().human_ratings[0].filter(file="import-0001-my-labels.csv")
    assert stored.select("agent_id", "rater", "role", "rating_1to5").rows() == [
        ("lumen-support", "anna", None, 5),
        ("lumen-support", "import:gpt", "judge", 4),
    ]
    assert "2 labels of My Labels.csv are already in import-0001-my-labels.csv" in imported(path)[2]
    path.write_text("\n".join(LINES[:2]).replace(";5;", ";3;"))
    assert "import-0002-my-labels.csv" in imported(path)[2]  # later files come after earlier ones
    assert len(list((sample_copy / "data" / "ratings").glob("import-*"))) == 2


def test_a_named_agent_has_all_conversations_and_has_to_be_known(sample_copy: Path) -> None:
    path = sample_copy / "l.csv"
    path.write_text("\n".join((LINES[0], LINES[3])))
    assert imported(path, "harbor-desk")[0] == 0
    stored = Project.open().human_ratings[0].filter(pl.col("file").str.starts_with("import"))
    assert stored.select("agent_id", "conversation_id").rows() == [("harbor-desk", "elsewhere")]
    with pytest.raises(NotFoundError, match="Agent 'nosuch' is not known"):
        imported(path, "nosuch")


def test_a_run_compares_each_judge_with_the_people_of_the_sample(sample: Project) -> None:
    found = sample.table("judge_calibration").filter(methodology_version="1.3.0")
    columns = ("metric", "judge", "n", "n_raters", "mean_bias", "kappa_low")
    # m.ortega rated one turn 2, the recorded judge 3
    # and U6 of one session a point lower than the recorded judge
    assert found.select(columns).rows() == [
        ("U6", "recorded", 1, 1, None, None),
        ("helpfulness", "recorded", 1, 1, None, None),
    ]


# Files as people make them: wrong ids, hostile names, many labels

HEADER = "conversation,turn,metric,rater,label"
SEALED = sealed_sampling(Drawn(("elsewhere", "c", 0, "helpfulness"), 2.0, "0123456789ab"))
NONE = r"No labels were read\.$"
UNKNOWN = "labels.csv:3: conversation 'nosuch' is unknown.*1 label of 'nosuch' is not stored: no metric has this name"


def of_file(folder: Path, *lines: str, header: str = HEADER) -> tuple[int, str, str]:
    """Import a file with these lines, where T is a conversation that is known."""
    text = "".join(re.sub(r"\bT,", f"{TURN},", f"{line}\n") for line in (header, *lines) if line)
    (folder / "labels.csv").write_text(text)
    return imported(folder / "labels.csv")


def stored() -> pl.DataFrame:
    return Project.open().human_ratings[0].filter(file="import-0001-labels.csv")


@pytest.mark.parametrize(
    ("lines", "wanted", "said", "held"),
    [
        ("", 2, NONE, {}),
        ("T,0,helpfulness,anna,great", 2, f"labels.csv:2.*{NONE}", {}),
        ("T,0,helpfulness,anna,", 2, f"labels.csv:2.*{NONE}", {}),
        ("T,0,helpfulness,ana,4 nosuch,0,helpfulness,ana,4 T,0,nosuch,ana,4", 1, UNKNOWN, {"rater": ["ana"]}),
        ("T,0,helpfulness,anna,5 T,0,helpfulness,<br>,1", 0, "", {"rater": ["anna", "<br>"]}),
        ("T,0,helpfulness,anna,4 T,0,helpfulness,anna,5", 0, "", {"rating_1to5": [4, 5]}),
        ("T,0,helpfulness,anna,4 T,0,helpfulness,anna,five", 1, "", {"rating_1to5": [4]}),
        ("T,,goal_completion,anna,true", 0, "", {"value": [1.0]}),
        ("T,,goal_completion,anna,FALSE", 0, "", {"value": [0.0]}),
        ("T,,goal_completion,anna,pass", 0, "", {"value": [1.0]}),
    ],
)
def test_labels_that_can_be_read_are_stored_and_the_others_named(
    sample_copy: Path, lines: str, wanted: int, said: str, held: dict[str, list[object]]
) -> None:
    code, out, err = of_file(sample_copy, *lines.split())
    assert (code, out) == (wanted, "")
    assert re.search(said, err.strip(), re.DOTALL), err
    assert stored().select(*held).to_dict(as_series=False) == held
    assert held or not list((sample_copy / "data" / "ratings").glob("import-*"))


def test_an_empty_file_exits_with_2(sample_copy: Path) -> None:
    assert of_file(sample_copy, header="")[::2] == (2, "No labels were read.\n")


def test_labels_of_a_removed_agent_are_named_and_the_others_stored(sample_copy: Path) -> None:
    lines = (f"{agent},T,0,helpfulness,anna,4" for agent in ("ghost", "lumen-support"))
    code, _, err = of_file(sample_copy, *lines, header=f"agent,{HEADER}")
    assert (code, stored()["agent_id"].to_list()) == (1, ["lumen-support"])
    assert re.search("labels.csv:2.*ghost", err, re.DOTALL)


def test_a_sealed_cell_on_another_line_is_rejected_by_line(sample_copy: Path) -> None:
    code, _, err = of_file(sample_copy, f"T,0,helpfulness,anna,4,{SEALED}", header=f"{HEADER},stratum")
    assert (code, "does not belong to this part" in err) == (2, True)


def test_ten_thousand_labels_are_read_and_the_first_faults_named(sample_copy: Path) -> None:
    lines = [f"T,{i % 3},helpfulness,rater {i},{i % 5 + 1}" for i in range(9_950)]
    code, _, err = of_file(sample_copy, *lines, *["nosuch,0,helpfulness,anna,4"] * 50)
    assert (code, stored().height) == (1, 9_950)
    assert err.count("is unknown") == 20
    assert "… and 30 more." in err


def test_a_label_under_another_rubric_is_stale(sample_copy: Path) -> None:
    line, header = "T,0,helpfulness,anna,4,1.0,s,0000", f"{HEADER},weight,stratum,rubric"
    assert of_file(sample_copy, line, header=header)[0] == 0
    assert stored()["rubric_hash"].to_list() == ["0000"]
    # what people labelled before is still compared
    assert calibrations(Project.open(), ["1.3.0"]).height == 2
