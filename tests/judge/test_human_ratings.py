"""Human ratings: strict lines, the last word counts."""

import csv
import io
from pathlib import Path

import polars as pl
import pytest

from agent_eval.formats.csv_lines import LARGEST
from agent_eval.formats.hashing import digest
from agent_eval.judge.inputs.human_ratings import (
    COLUMNS,
    OPTIONAL,
    idle_ratings,
    latest_ratings,
    placed_ratings,
    ratings_hash,
    read_ratings,
    unasked_ratings,
)
from agent_eval.methodology import load
from agent_eval.metrics.base import Metric
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.project import Project
from agent_eval.project.ingest import store_recorded
from agent_eval.tables import table
from tests.judge.material import human, humans

U1 = {
    "agent_id": "ada",
    "session_id": "s1",
    "methodology_version": "any",
    "target": "U1",
    "rating_1to5": "4",
    "rater": "kim",
    "rated_at": "2026-04-20T10:00:00Z",
}
D2 = U1 | {"conversation_id": "c1", "target": "D2", "criterion": "accuracy"}
TURN = U1 | {"conversation_id": "c1", "turn_index": "0", "target": "helpfulness"}
GOAL = U1 | {"conversation_id": "c1", "target": "goal_completion", "rating_1to5": "", "value": "1"}
ANSWER = GOAL | {"turn_index": "0", "target": "answer_correctness", "value": "0.5"}
LABEL = ANSWER | {"target": "agent_behavior_failure", "value": "", "label": "false information; repetition"}


def written(folder: Path, *rows: dict[str, str], encoding: str = "utf-8") -> Path:
    """A file of the rows; it has the optional columns only where a row does."""
    stream = io.StringIO()
    used = [name for name in OPTIONAL if any(name in row for row in rows)]
    writer = csv.DictWriter(stream, (*COLUMNS, *used), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    (folder / "r.csv").write_text(stream.getvalue(), encoding=encoding)
    return folder


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_each_kind_of_target_is_read_with_its_file_and_line(tmp_path: Path, encoding: str) -> None:
    frame, refusals = read_ratings(written(tmp_path, U1, D2, TURN, encoding=encoding))
    assert refusals == []
    assert frame.schema == table("human_ratings").schema
    assert frame.select("target", "turn_index", "rating_1to5", "file", "line").rows() == [
        ("U1", None, 4, "r.csv", 2),
        ("D2", None, 4, "r.csv", 3),
        ("helpfulness", 0, 4, "r.csv", 4),
    ]


def test_a_file_may_have_semicolons(tmp_path: Path) -> None:
    text, labels = (written(tmp_path, LABEL, U1) / "r.csv").read_text(), LABEL["label"]
    (tmp_path / "r.csv").write_text(text.replace(",", ";").replace(labels, f'"{labels}"'))
    frame, refusals = read_ratings(tmp_path)
    assert refusals == []
    assert frame.select("target", "label", "further_labels").rows() == [
        ("agent_behavior_failure", "false information", ["repetition"]),
        ("U1", None, None),
    ]


def test_values_labels_and_roles_are_read_from_their_columns(tmp_path: Path) -> None:
    by_rule = LABEL | {"label": "unsafe action; no reply"}  # which models are not offered
    passed = GOAL | {"target": "hallucination_passed", "value": "0", "role": "adjudicator"}
    used = GOAL | {"turn_index": "2", "target": "tool_result_utilisation", "role": "rater"}
    fine = LABEL | {"target": "tool_call_behavior_failure", "label": "no failure"}
    frame, refusals = read_ratings(written(tmp_path, GOAL, ANSWER, LABEL, by_rule, passed, used, fine, U1))
    assert refusals == []
    assert frame.schema == table("human_ratings").schema
    answers = frame.select("target", "rating_1to5", "value", "label", "further_labels", "role").rows()
    assert answers == [
        ("goal_completion", None, 1.0, None, None, None),
        ("answer_correctness", None, 0.5, None, None, None),
        ("agent_behavior_failure", None, None, "false information", ["repetition"], None),
        ("agent_behavior_failure", None, None, "unsafe action", ["no reply"], None),
        ("hallucination_passed", None, 0.0, None, None, "adjudicator"),
        ("tool_result_utilisation", None, 1.0, None, None, None),
        ("tool_call_behavior_failure", None, None, "no failure", [], None),
        ("U1", 4, None, None, None, None),
    ]


def test_people_may_rate_a_projects_own_metrics_and_those_that_are_switched_off(tmp_path: Path) -> None:
    points = Metric("warmth", "turn", "rating", "How warm?", {"10": "a", "0": "b"}, minimum=0, maximum=10)
    tone = Metric("tone", "conversation", "label", "Which tone?", {"a; b": "both", "flat": "none"})
    metrics = DEFAULT.without(["goal_completion"]).with_custom([points, tone])
    warm = ANSWER | {"target": "warmth", "value": "7.5"}
    both = GOAL | {"target": "tone", "value": "", "label": "a; b"}
    frame, refusals = read_ratings(written(tmp_path, warm, both, GOAL, warm | {"value": "11"}), metrics)
    assert frame.select("target", "value", "label").rows() == [
        ("warmth", 7.5, None),
        ("tone", None, "a; b"),
        ("goal_completion", 1.0, None),
    ]
    assert [(r.line, "from 0 to 10" in r.reason) for r in refusals] == [(5, True)]


def test_a_file_of_the_columns_of_an_earlier_release_has_the_hash_that_it_had(tmp_path: Path) -> None:
    old, _ = read_ratings(written(tmp_path, U1, TURN))
    new, _ = read_ratings(written(tmp_path, U1 | {"value": "", "label": "", "role": "rater"}, TURN))
    assert ratings_hash(old) == ratings_hash(new)
    assert ratings_hash(old) == digest(
        "human_ratings",
        old.select(COLUMNS).with_columns(pl.col("rated_at").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).rows(),
    )
    decisive, _ = read_ratings(written(tmp_path, U1 | {"role": "adjudicator"}, TURN))
    assert ratings_hash(decisive) != ratings_hash(old)


@pytest.mark.parametrize("rating", ["0", "6", "4.5", "true", "NaN", "", "-1", "４", "5.0", "1 2"])
def test_a_rating_off_the_scale_is_refused_with_its_line(tmp_path: Path, rating: str) -> None:
    frame, [refusal] = read_ratings(written(tmp_path, U1, U1 | {"rating_1to5": rating}))
    assert frame.height == 1
    assert (refusal.file, refusal.line) == ("r.csv", 3)
    assert "an integer from 1 to 5" in refusal.reason


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (U1 | {"target": "U7"}, "target is 'U7'"),
        (U1 | {"target": "agent_behaviour_failure"}, "target is 'agent_behaviour_failure', expected one of"),
        (U1 | {"target": "agent_behavior_failure"}, "conversation_id, turn_index is empty"),
        (U1 | {"rater": "Import:gpt"}, "rater is 'Import:gpt', the name of a judge; give it the role judge"),
        (U1 | {"role": "boss"}, "role is 'boss', expected rater, adjudicator, judge or nothing"),
        (U1 | {"value": "1"}, "value is set, but a rating of U1 belongs in column rating_1to5"),
        (GOAL | {"rating_1to5": "5"}, "is set, but a rating of goal_completion belongs in column value"),
        (GOAL | {"value": "0.5"}, "value is '0.5', expected 0 or 1 for goal_completion"),
        (GOAL | {"value": ""}, "value is '', expected 0 or 1"),
        (GOAL | {"turn_index": "0"}, "turn_index is set, but a rating of goal_completion has none"),
        (ANSWER | {"value": "1.01"}, "expected a number from 0 to 1 for answer_correctness"),
        (ANSWER | {"value": "nan"}, "value is 'nan'"),
        (ANSWER | {"value": "0_1"}, "value is '0_1'"),
        (ANSWER | {"value": "\uff11"}, "expected a number"),
        (LABEL | {"label": "rude"}, "label is 'rude', expected one or several (with ; between) of no fail"),
        (LABEL | {"label": ""}, "label is ''"),
        (LABEL | {"label": "no failure; repetition"}, "give each label once, and 'no failure' alone"),
        (LABEL | {"label": "repetition; repetition"}, "give each label once"),
        (LABEL | {"value": "1"}, "value is set"),
        (U1 | {"session_id": ""}, "session_id is empty"),
        (U1 | {"conversation_id": "c1"}, "conversation_id is set"),
        (D2 | {"criterion": ""}, "criterion is empty"),
        (D2 | {"conversation_id": " "}, "conversation_id is empty"),
        (TURN | {"turn_index": "first"}, "turn_index is 'first'"),
        (TURN | {"turn_index": "-1"}, "turn_index"),
        (TURN | {"turn_index": "99999999999"}, "turn_index"),
        (TURN | {"turn_index": ""}, "turn_index is empty"),
        (U1 | {"rater": ""}, "rater is empty"),
        (U1 | {"rater": "\u200b\u2060"}, "rater is empty"),
        (U1 | {"agent_id": "Ada|1"}, "agent_id"),
        (U1 | {"methodology_version": ""}, "methodology_version is empty"),
        (U1 | {"methodology_version": "latest"}, "'latest' is not MAJOR"),
        (U1 | {"rated_at": "soon"}, "rated_at is 'soon'"),
    ],
)
def test_what_is_wrong_with_a_line_is_named_and_the_rest_goes_on(
    tmp_path: Path, row: dict[str, str], reason: str
) -> None:
    frame, [refusal] = read_ratings(written(tmp_path, row, U1))
    assert frame.height == 1
    assert refusal.line == 2
    assert reason in refusal.reason


def test_a_line_is_counted_where_it_begins(tmp_path: Path) -> None:
    long = U1 | {"rationale": "one\ntwo\u2028three\n\nfour"}
    frame, [refusal] = read_ratings(written(tmp_path, long, U1 | {"rater": ""}))
    assert frame["rationale"].to_list() == ["one\ntwo\u2028three\n\nfour"]
    assert refusal.line == 6


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("agent_id,rating", "missing columns 'session_id'"),
        (",".join((*COLUMNS, "mood")), "unknown columns 'mood'"),
        (",".join((*COLUMNS, "rater")), "repeated columns 'rater'"),
    ],
)
def test_a_wrong_header_names_the_columns(tmp_path: Path, header: str, named: str) -> None:
    (tmp_path / "r.csv").write_text(f"{header}\n")
    frame, [refusal] = read_ratings(tmp_path)
    assert frame.is_empty()
    assert refusal.line == 1
    assert named in refusal.reason


def test_bytes_that_are_no_text_and_broken_quotes_refuse_what_they_spoil(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xfa\xfb")
    (tmp_path / "b.csv").write_text(",".join(COLUMNS) + '\n"ada"x,1\n')
    (tmp_path / "c.csv").write_text(",".join(COLUMNS) + "\nada,s1\n")
    _, refusals = read_ratings(tmp_path)
    assert [(r.file, r.line) for r in refusals] == [("a.csv", 0), ("b.csv", 2), ("c.csv", 2)]


def test_a_file_that_is_too_large_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    written(tmp_path, U1)
    with (tmp_path / "r.csv").open("r+b") as stream:
        stream.truncate(LARGEST + 1)
    frame, [refusal] = read_ratings(tmp_path)
    assert frame.is_empty()
    assert (refusal.file, refusal.line) == ("r.csv", 0)
    assert "larger than 50 MB" in refusal.reason


def test_ratings_are_placed_in_the_session_of_their_conversation() -> None:
    conversations = table("conversations").frame(
        {"agent_id": "ada", "conversation_id": name, "session_id": session}
        for name, session in (("c1", "s1"), ("c2", "s2"))
    )
    turn = {"turn_index": 0}
    placed = placed_ratings(
        humans(
            human("U1", 1, session_id="s9"),  # of a session: stays as it is
            human("helpfulness", 2, conversation_id="c1", **turn),
            human("helpfulness", 3, conversation_id="c1", session_id="s1", **turn),
            human("helpfulness", 4, conversation_id="c1", session_id="s2", **turn),
            human("helpfulness", 4, conversation_id="c3", **turn),
            human("helpfulness", 4, conversation_id="c3", session_id="s1", **turn),
            human("helpfulness", 4, conversation_id="c1", agent_id="bob", **turn),
            human("D2", 5, conversation_id="c2", criterion="accuracy"),
        ),
        conversations,
    )
    assert placed.schema == table("human_ratings").schema
    assert placed.select("rating_1to5", "session_id").rows() == [(1, "s9"), (2, "s1"), (3, "s1"), (5, "s2")]


def test_the_last_rating_counts_whoever_gave_it_in_the_versions_that_it_is_for() -> None:
    early = human("U1", 2, line=9, rated_at="2026-04-02T00:00:00+02:00", session_id="s1")
    same = human("U1", 4, line=1, session_id="s1")  # at the same time the later line counts
    late = human("U1", 5, line=2, rated_at="2026-04-02T00:00:00Z", session_id="s1", rater="lee")
    undated = human("U1", 1, line=99, rated_at=None, session_id="s1")
    latest = latest_ratings(humans(late, same, early, undated), ["1.3.0"])
    assert latest.select("rating_1to5", "methodology_version").rows() == [(5, "1.3.0")]
    assert latest_ratings(humans(late, early), ["1.3.0"], by=("rater",)).height == 2
    of_one = humans(late | {"methodology_version": "1.0.0"})
    assert latest_ratings(of_one, ["1.0.0", "1.3.0"])["methodology_version"].to_list() == ["1.0.0"]


def test_the_hash_changes_with_what_is_said_and_not_with_where() -> None:
    one, other = human("U1", 3, session_id="s1"), human("U2", 3, session_id="s1", line=3)
    assert ratings_hash(humans(one, other)) == ratings_hash(humans(other, one))
    assert ratings_hash(humans(one)) == ratings_hash(humans(one | {"file": "b.csv", "line": 7}))
    assert ratings_hash(humans(one)) != ratings_hash(humans(one | {"rating_1to5": 4}))


def test_a_long_rationale_does_not_end_its_file(tmp_path: Path) -> None:
    long = U1 | {"rationale": "x" * 200_000}
    frame, refusals = read_ratings(written(tmp_path, long, U1 | {"target": "U2"}))
    assert (frame["target"].to_list(), refusals) == (["U1", "U2"], [])


def test_a_rating_that_no_methodology_asks_for_is_named_with_file_and_line(tmp_path: Path) -> None:
    of_later = U1 | {"methodology_version": "9.9.9"}
    astray, fine = D2 | {"criterion": "nosuch"}, D2 | {"methodology_version": "1.3.0"}
    ratings, _ = read_ratings(written(tmp_path, of_later, astray, fine, U1))
    first, second = unasked_ratings(ratings, {"1.3.0": load("1.3.0")}, {"ada": "customer_service"})
    assert first.startswith("r.csv:2: the rating of U1 by kim is ignored: methodology 9.9.9")
    assert second.startswith("r.csv:3: the rating of D2 by kim is ignored: criterion 'nosuch'")
    assert "accuracy" in second


def test_a_rating_of_what_is_not_asked_there_is_named_with_file_and_line() -> None:
    asked = {"agent_id": "ada", "conversation_id": "c1"}
    judged = pl.DataFrame(
        [asked | {"turn_index": 0, "metric": "helpfulness"}, asked | {"metric": "goal_completion"}],
        schema={"agent_id": pl.String, "conversation_id": pl.String, "turn_index": pl.Int64, "metric": pl.String},
    )  # fmt: skip
    rows = [
        human("helpfulness", 4, conversation_id="c1", turn_index=0),
        human("answer_correctness", 4, line=3, conversation_id="c1", turn_index=0),
        human("hallucination_passed", 4, line=4, conversation_id="c1"),
        human("goal_completion", 4, line=5, conversation_id="c1"),
        human("goal_completion", 4, line=6, conversation_id="c2"),  # not judged yet
        human("U1", 4, line=7, session_id="s1"),
        human("D1", 4, line=8, conversation_id="c1", criterion="accuracy"),
    ]
    assert [text.split(" by ")[0] for text in idle_ratings(humans(*rows), judged)] == [
        "r.csv:3: the rating of answer_correctness",
        "r.csv:4: the rating of hallucination_passed",
    ]


def test_lines_that_move_in_a_file_of_several_agents_give_no_key_twice(tmp_path: Path) -> None:
    (tmp_path / "agent_eval.toml").touch()
    folder = tmp_path / "data" / "ratings"
    folder.mkdir(parents=True)
    for order, changed in (("abc", "abc"), ("bca", "a")):  # the second time, only a's rating changed
        written(folder, *(U1 | {"agent_id": agent} for agent in order))
        store_recorded(Project.open(tmp_path), list(changed), run_id="r")
    stored = Project.open(tmp_path).table("human_ratings")
    assert stored.select("agent_id", "line").rows() == [("a", 4), ("b", 3), ("c", 4)]
    assert stored.select(table("human_ratings").key).is_unique().all()
