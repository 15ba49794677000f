"""Labels under the ids of their source: what is read, what is not, and how far judges agree with people."""

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from agent_eval.judge.inputs.human_ratings import (
    COLUMNS,
    OPTIONAL,
    idle_ratings,
    placed_ratings,
    ratings_hash,
    read_ratings,
    targets_of,
    unasked_ratings,
)
from agent_eval.judge.inputs.label_agreement import label_agreement
from agent_eval.judge.inputs.labels import Label, rating_rows, read_labels
from agent_eval.methodology import load
from agent_eval.metrics.base import Metric
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables import table
from tests.judge.material import human, humans

TARGETS = targets_of()
HEADER = "conversation,turn,metric,rater,judge,label,reason,time"


def ada(_: Label) -> str:
    return "ada"


def written(folder: Path, *lines: str, name: str = "labels.csv") -> Path:
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


@pytest.mark.parametrize("separator", [",", ";"])
def test_labels_of_people_and_judges_become_ratings(tmp_path: Path, separator: str) -> None:
    lines = [
        HEADER,
        "c1,,goal_completion,anna,,pass,all done,2026-04-20T10:00:00Z",
        "c1,,goal_completion,,gpt,fail,,",
        "c1,0,helpfulness,anna,,4.0,,",
        "c1,0,agent_behavior_failure,anna,,'false information; repetition',,",
    ]
    path = written(tmp_path, *(line.replace(",", separator).replace("'", '"') for line in lines))
    labels, refusals = read_labels(path, TARGETS, None)
    rows, unplaced = rating_rows(labels, TARGETS, ada)
    assert (refusals, unplaced) == ([], [])
    assert set(rows.select("agent_id", "conversation_id").rows()) == {("ada", "c1")}
    assert rows.select("turn_index", "target", "rater", "role").rows() == [
        (None, "goal_completion", "anna", None),
        (None, "goal_completion", "import:gpt", "judge"),
        ("0", "helpfulness", "anna", None),
        ("0", "agent_behavior_failure", "anna", None),
    ]
    assert rows["value"].to_list() == ["1", "0", None, None]
    answers = rows.select("rating_1to5", "label", "rationale").rows()[2:]
    assert answers == [("4", None, None), (None, "false information; repetition", None)]
    # what was written is what data/ratings reads
    rows.write_csv(tmp_path / "out.csv")
    written(tmp_path, "", name="labels.csv")
    assert read_ratings(tmp_path)[0].height == 4


def test_the_columns_of_data_ratings_are_read_too(tmp_path: Path) -> None:
    line = "ada,s1,,,1.3.0,U1,,4,good,quote,kim,2026-04-20T10:00:00Z,,,adjudicator,2.5,s,r,t"
    labels, refusals = read_labels(written(tmp_path, ",".join((*COLUMNS, *OPTIONAL)), line), TARGETS, None)
    rows, unplaced = rating_rows(labels, TARGETS, ada)
    assert (refusals, unplaced) == ([], [])
    assert ",".join(cell or "" for cell in rows.row(0)) == line


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("c1,,goal_completion,anna,,tie,,", "a tie or empty"),
        ("c1,,goal_completion,anna,,perhaps,,", "neither pass nor fail"),
        ("c1,,goal_completion,anna,,,,", "a tie or empty"),
        ("c1,,goal_completion,anna,gpt,pass,,", "either a rater or a judge"),
        ("c1,,goal_completion,,,pass,,", "either a rater or a judge"),
        ("c1,,goal_completion,anna", "4 cells, expected 8"),
        ("c1,,goal_completion,anna,,2,,", "expected 0 or 1"),
        ("c1,0,helpfulness,anna,,4.5,,", "expected an integer from 1 to 5"),
        ("c1,0,agent_behavior_failure,anna,,rude,,", "label is 'rude'"),
        ("c1,,helpfulness,anna,,4,,", "turn_index is empty"),
        ("c1,,goal_completion,anna,,pass,,yesterday", "rated_at is 'yesterday'"),
        ("c1,0,warmth,anna,,4,,", "no metric has this name"),
        ("c1,0,answer_correctness,anna,,nan,,", "value is 'nan'"),
    ],
)
def test_what_is_no_label_is_refused_with_its_line_and_the_rest_is_kept(
    tmp_path: Path, line: str, reason: str
) -> None:
    path = written(tmp_path, HEADER, line, "c2,,goal_completion,anna,,yes,,")
    labels, refusals = read_labels(path, TARGETS, None)
    rows, unplaced = rating_rows(labels, TARGETS, ada)
    [refusal] = [*refusals, *unplaced]
    assert reason in refusal.reason
    assert refusal.line == (0 if "no metric" in reason else 2)
    assert rows.select("conversation_id", "value").rows() == [("c2", "1")]
    assert label_agreement(labels, TARGETS).is_empty()  # no judge


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("turn,metric,rater,label", "no column conversation"),
        ("conversation,rater,label", "no column metric or target"),
        ("conversation,metric,label", "no column rater or judge"),
        ("conversation,metric,rater,label,mood", "unknown column 'mood'"),
        ("conversation,conversation_id,metric,rater,label", "several columns for conversation_id"),
    ],
)
def test_a_header_that_lacks_a_column_is_refused(tmp_path: Path, header: str, reason: str) -> None:
    labels, [refusal] = read_labels(written(tmp_path, header, "a,b,c,d,e"), TARGETS, None)
    assert labels == []
    assert reason in refusal.reason
    assert "Columns: conversation, turn, metric" in refusal.reason


def test_a_metric_for_all_labels_can_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, "conversation,judge,verdict", "c1,gpt,fail")
    labels, refusals = read_labels(path, TARGETS, "hallucination_passed")
    rows, _ = rating_rows(labels, TARGETS, ada)
    assert (rows.select("target", "value").rows(), refusals) == ([("hallucination_passed", "0")], [])


def test_labels_of_judges_are_no_ratings(tmp_path: Path) -> None:
    by_person = human("goal_completion", 0, conversation_id="c1", value=1.0) | {"rating_1to5": None}
    by_judge = by_person | {"rater": "import:gpt", "role": "judge", "value": 0.0, "line": 9}
    ratings = humans(by_person, by_judge)
    place = {"agent_id": by_person["agent_id"], "conversation_id": "c1"}
    conversations = table("conversations").frame([place | {"session_id": "s1", "n_turns": 1}])
    assert placed_ratings(ratings, conversations)["rater"].to_list() == [by_person["rater"]]
    judged = pl.DataFrame([place | {"turn_index": None, "metric": "other"}]).cast({"turn_index": pl.Int64})
    assert len(idle_ratings(ratings, judged)) == 1
    late = ratings.with_columns(methodology_version=pl.lit("9.9.9"))
    assert len(unasked_ratings(late, {"1.3.0": load("1.3.0")}, {})) == 1
    assert ratings_hash(ratings) != ratings_hash(humans(by_person))  # it makes a calibration stale


def test_agreement_with_people_by_hand(tmp_path: Path) -> None:
    by_gpt = {"c1": "pass", "c2": "pass", "c3": "fail", "c4": "pass", "c5": "tie", "c6": "pass"}
    by_anna = {"c1": "pass", "c2": "fail", "c3": "fail", "c4": "pass", "c5": "pass"}  # nobody rated c6
    lines = [f"{name},,goal_completion,,gpt,{said},," for name, said in by_gpt.items()]
    lines += [f"{name},,goal_completion,anna,,{said},," for name, said in by_anna.items()]
    lines.append("c4,,goal_completion,anna,,fail,,")  # she changes her mind
    labels, _ = read_labels(written(tmp_path, HEADER, *lines), TARGETS, None)
    [row] = label_agreement(labels, TARGETS).to_dicts()
    assert (row["n_labels"], row["n_unread"], row["n"], row["n_equal"]) == (6, 1, 4, 2)
    # the judge passes 3 of 4, anna 1 of 4: by chance 3/16 + 3/16
    assert row["kappa"] == pytest.approx((0.5 - 6 / 16) / (10 / 16))
    assert (row["against"], row["judge"], row["pearson"]) == ("people", "import:gpt", None)


def test_ratings_have_a_quadratic_kappa_and_correlations(tmp_path: Path) -> None:
    given = [(1, 1), (2, 3), (4, 4), (5, 4)]
    lines = [
        f"c{i},0,helpfulness,{who},{rating},,"
        for i, pair in enumerate(given)
        for who, rating in zip(("anna,", ",gpt"), pair, strict=True)
    ]
    labels, _ = read_labels(written(tmp_path, HEADER, *lines), TARGETS, None)
    [row] = label_agreement(labels, TARGETS).to_dicts()
    # mean squared distance 2 / 4; by chance 2.5 + 1.5 + 0 from the variances and the means 3 and 3
    assert row["kappa"] == pytest.approx(1 - 0.5 / 4)
    assert row["kendall"] == pytest.approx(5 / (6 * 5) ** 0.5)  # 5 pairs in order, one of six tied


def test_the_verdicts_of_tau2s_judges_agree_with_the_outcomes_as_published(shared_data: Path) -> None:
    entries = json.loads((shared_data / "expected.json").read_text())["entries"]
    expected = {Path(e["file"]).name: e for e in entries if e["id"].startswith("tau2-judge")}
    files = sorted((shared_data / "tau2_judges").glob("*.json.gz"))
    assert len(files) == len(expected) == 4
    for file in files:
        labels, refusals = read_labels(file, TARGETS, None)
        [row] = label_agreement(labels, TARGETS).to_dicts()
        published, computed = expected[file.name]["published"], expected[file.name]["computed"]
        assert (row["n_labels"], row["n_equal"]) == (published["total_judged"], published["agree_count"])
        assert row["n_unread"] == len(refusals) == computed["unparsed_verdicts"]
        assert row["share_equal"] == pytest.approx(computed["accuracy_on_parsed"])
        assert row["kappa"] == pytest.approx(computed["cohen_kappa_on_parsed"], abs=1e-9)
        rows, unplaced = rating_rows(labels, TARGETS, ada)
        assert (rows.height, unplaced) == (row["n"], [])  # the verdicts, without the outcomes


def test_unievals_scores_correlate_with_people_as_published(shared_data: Path) -> None:
    entries = json.loads((shared_data / "expected.json").read_text())["entries"]
    expected = next(entry for entry in entries if entry["id"] == "unieval-topicalchat")
    labels, refusals = read_labels(shared_data / expected["file"], TARGETS, None)
    assert (refusals, len(labels)) == ([], 360 * 6 * 2)
    found = label_agreement(labels, TARGETS)
    assert {
        metric: pytest.approx(figures, abs=5e-7)
        for metric, *figures in found.select("metric", "pearson", "spearman", "kendall").iter_rows()
    } == expected["published"]
    assert found["kappa"].null_count() == found.height  # means of people and the judge's numbers: two scales
    points = [Metric(n, "turn", "rating", "?", {"5": "a", "0": "b"}, minimum=0, maximum=5) for n in expected["published"] if n not in TARGETS]  # fmt: skip
    rows, [refusal] = rating_rows(labels, targets_of(DEFAULT.with_custom(points)), ada)
    assert rows.height == 360 * 5 * 2
    assert "720 labels of 'coherence' are not stored: the metric takes integers from 1 to 5" in refusal.reason


@pytest.mark.parametrize(
    "text", ["[3]", '[{"source": "a"}]', '[{"source": "a", "system_id": "b", "scores": {"x": "1"}}]']
)
def test_a_record_of_unieval_without_numbers_is_refused(tmp_path: Path, text: str) -> None:
    labels, [refusal] = read_labels(written(tmp_path, text, name="u.json"), TARGETS, None)
    assert (labels, refusal.line) == ([], 1)


@pytest.mark.parametrize("text", ["", "[", "{", "\x00"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    labels, refusals = read_labels(path, TARGETS, None)
    assert (labels, len(refusals)) == ([], bool(text))
    assert read_labels(tmp_path / "gone", TARGETS, None)[1][0].line == 0


def foreign(folder: Path, *entries: Mapping[str, object]) -> tuple[list[str | None], int]:
    """The verdicts of a judge viewer's file, and how many were refused."""
    path = folder / "viewer.json"
    path.write_text(json.dumps({"entries": [{"simulation_id": f"s{i}", **e} for i, e in enumerate(entries)]}))
    labels, refusals = read_labels(path, TARGETS, None)
    return [label.answer for label in labels if label.cells["role"] == "judge"], len(refusals)


def test_verdicts_of_a_judge_viewer_are_read_in_any_spelling(tmp_path: Path) -> None:
    spelled = ("PASS", " Fail. ", "**pass**", True, False, 1, 0, "`fail`")
    found = foreign(tmp_path, *({"judge_verdict": said} for said in spelled))
    assert found == (["1", "0", "1", "1", "0", "1", "0", "0"], 0)
    unread = foreign(tmp_path, *({"judge_verdict": said} for said in (None, 2, "", "?", ["pass"], "tie")))
    assert unread == ([None] * 6, 6)
    counted = foreign(tmp_path, {"judge_verdict": "odd", "agreement": 0, "tau2_success": 1})
    assert counted == (["0"], 0)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_files_of_spreadsheet_programs_are_read(tmp_path: Path, encoding: str, separator: str) -> None:
    lines = (HEADER, "c1,0,helpfulness,Zoë,,4,größer,")
    (tmp_path / "l.csv").write_text("\r\n".join(lines).replace(",", separator), encoding, newline="")
    (label,), refusals = read_labels(tmp_path / "l.csv", TARGETS, None)
    assert (label.who, label.answer, label.cells["rationale"], refusals) == ("Zoë", "4", "größer", [])
