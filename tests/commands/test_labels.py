"""`agent-eval labels import`: labels of other tools into data/ratings, once, without becoming ratings."""

import io
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from agent_eval.commands.labels import import_labels
from agent_eval.project import Project
from agent_eval.project.project import UnknownAgentError

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
    with pytest.raises(UnknownAgentError):
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


def test_a_file_without_labels_exits_with_2(sample_copy: Path) -> None:
    path = sample_copy / "l.csv"
    path.write_text("")
    code, _, err = imported(path)
    assert (code, err.strip()) == (2, "No labels were read.")


@pytest.mark.parametrize("answer", ["great", "6", "", "-", "4.5"])
def test_a_file_whose_labels_cannot_be_read_exits_with_2_and_stores_nothing(
    sample_copy: Path, answer: str
) -> None:
    path = sample_copy / "l.csv"
    path.write_text(f"conversation,turn,metric,rater,label\n{TURN},0,helpfulness,anna,{answer}\n")
    code, _, err = imported(path)
    assert (code, err.strip().endswith("No labels were read.")) == (2, True)
    assert "l.csv:2" in err
    assert not list((sample_copy / "data" / "ratings").glob("import-*"))
