"""Human ratings: strict lines, the last word counts."""

import csv
import io
from pathlib import Path

import pytest

from agent_eval.judge.inputs.human_ratings import (
    COLUMNS,
    LARGEST,
    latest_ratings,
    placed_ratings,
    ratings_hash,
    read_ratings,
    unasked_ratings,
)
from agent_eval.methodology import load
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


def written(folder: Path, *rows: dict[str, str], encoding: str = "utf-8") -> Path:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    (folder / "r.csv").write_text(stream.getvalue(), encoding=encoding)
    return folder


def test_no_folder_has_no_ratings(tmp_path: Path) -> None:
    frame, refusals = read_ratings(tmp_path / "absent")
    assert (frame.height, refusals) == (0, [])


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
        (U1 | {"target": "agent_behavior_failure"}, "target"),
        (U1 | {"session_id": ""}, "session_id is empty"),
        (U1 | {"conversation_id": "c1"}, "conversation_id is given"),
        (D2 | {"criterion": ""}, "criterion is empty"),
        (D2 | {"conversation_id": " "}, "conversation_id is empty"),
        (TURN | {"turn_index": "first"}, "turn_index is 'first'"),
        (TURN | {"turn_index": "-1"}, "turn_index"),
        (TURN | {"turn_index": "99999999999"}, "turn_index"),
        (TURN | {"turn_index": ""}, "turn_index is empty"),
        (U1 | {"rater": ""}, "rater is empty"),
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
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe")
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


def test_the_last_rating_counts_whoever_gave_it() -> None:
    early = human("U1", 2, line=9, rated_at="2026-04-02T00:00:00+02:00", session_id="s1")
    late = human("U1", 5, line=2, rated_at="2026-04-02T00:00:00Z", session_id="s1", rater="lee")
    undated = human("U1", 1, line=99, rated_at=None, session_id="s1")
    latest = latest_ratings(humans(late, early, undated), ["1.3.0"])
    assert latest.select("rating_1to5", "methodology_version").rows() == [(5, "1.3.0")]
    assert latest_ratings(humans(late, early), ["1.3.0"], by=("rater",)).height == 2


def test_at_the_same_time_the_later_line_counts() -> None:
    rows = humans(human("U1", 3, line=3, session_id="s1"), human("U1", 2, line=2, session_id="s1"))
    assert latest_ratings(rows, ["1.3.0"])["rating_1to5"].to_list() == [3]


def test_a_rating_for_one_version_counts_there_only() -> None:
    rows = humans(human("U1", 3, session_id="s1", methodology_version="1.0.0"))
    assert latest_ratings(rows, ["1.0.0", "1.3.0"])["methodology_version"].to_list() == ["1.0.0"]


def test_the_hash_changes_with_what_is_said_and_not_with_where() -> None:
    one, other = human("U1", 3, session_id="s1"), human("U2", 3, session_id="s1", line=3)
    assert ratings_hash(humans(one, other)) == ratings_hash(humans(other, one))
    assert ratings_hash(humans(one)) == ratings_hash(humans(one | {"file": "b.csv", "line": 7}))
    assert ratings_hash(humans(one)) != ratings_hash(humans(one | {"rating_1to5": 4}))
    assert ratings_hash(humans()) == ratings_hash(humans())


def test_a_long_rationale_does_not_end_its_file(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(
        f"{','.join(COLUMNS)}\nada,s1,,,any,U1,,4,{'x' * 200_000},,kim,\nada,s1,,,any,U2,,4,,,kim,\n"
    )
    frame, refusals = read_ratings(tmp_path)
    assert (frame["target"].to_list(), refusals) == (["U1", "U2"], [])


def test_a_rating_that_no_methodology_asks_for_is_named_with_file_and_line(tmp_path: Path) -> None:
    rows = [
        "ada,s1,,,9.9.9,U1,,4,,,kim,",
        "ada,,c,,any,D1,nosuch,4,,,kim,",
        "ada,,c,,1.3.0,D1,accuracy,4,,,kim,",
        "ada,s1,,,any,U1,,4,,,kim,",
    ]
    (tmp_path / "r.csv").write_text("\n".join([",".join(COLUMNS), *rows]))
    ratings, _ = read_ratings(tmp_path)
    versions = {"1.3.0": load("1.3.0")}
    first, second = unasked_ratings(ratings, versions, {"ada": "customer_service"})
    assert first.startswith("r.csv:2: the rating of U1 by kim counts for nothing: methodology 9.9.9")
    assert second.startswith("r.csv:3: the rating of D1 by kim counts for nothing: criterion 'nosuch'")
    assert "accuracy" in second
