"""What a session must show before its ratings are believed: tests and slots that were run, replies that were given."""

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eval.errors import InputError
from agent_eval.formats.timestamps import check_date
from agent_eval.judge.inputs.human_ratings import COLUMNS, read_ratings
from agent_eval.report.board import outcomes
from agent_eval.tables import table
from agent_eval.transcripts.importers.slots import read_slots
from agent_eval.transcripts.sessions import read_sessions
from tests.scores.sessions import asked, complete, only, rated, scored, write

HARNESS = {"outcome_class": "harness_error"}
NO_MESSAGE = "but has no message and no crash of the agent"
NO_ERROR = f"{NO_MESSAGE}, or no injected_error that describes the error"


def one_session(root: Path, ratings: dict[str, Any] | None = None, /, **changed: Any) -> dict[str, Any]:
    """The row of an agent with one session, rated 4 throughout unless `ratings` says otherwise."""
    write(root, "ada", "s", complete(**changed))
    return only(scored(root, rated("ada", "s", **(ratings or {}))))


NOTHING: tuple[Any, ...] = (None, {}, True, " \u200b", "No error was injected.", {"injected": True})


@pytest.mark.parametrize("value", NOTHING, ids=repr)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_injection_that_describes_no_error_is_not_the_test(
    tmp_path: Path, value: Any, elsewhere: bool
) -> None:
    changed = {"D1": asked("D1", injected_error={"kind": "x"})} if elsewhere else {}
    row = one_session(tmp_path, error_injection=asked("error_injection", injected_error=value), **changed)
    assert row["status"] == "incomplete"
    assert row["missing"] == [
        "U4: no injected error in the session",
        f"error_injection: conversation s-error_injection is declared for it, {NO_ERROR}",
    ]


@pytest.mark.parametrize("value", ["a broken date", {"status": 503}])
def test_a_described_error_is_the_test_where_the_session_links_it(tmp_path: Path, value: Any) -> None:
    slots = complete(error_injection=None, D4=asked("D4", injected_error=value))
    for session, links in (("linked", {"D4": "error_injection"}), ("not-linked", {})):
        write(tmp_path / session, "ada", session, slots, links=links)
    linked, other = (only(scored(tmp_path / s, rated("ada", s))) for s in ("linked", "not-linked"))
    assert (linked["status"], other["status"]) == ("published", "incomplete")


@pytest.mark.parametrize(
    "empty",
    [
        {"messages": [], "outcome": {"correct": True}},
        {"messages": [], "outcome": {"correct": False}},
        {"messages": [], "outcome": {"reward": 1.0}},
        {"messages": [], "outcome": HARNESS},
        {"messages": [{"role": "user", "content": " \u200b"}, {"role": "assistant", "content": ""}]},
        {"messages": [{"role": "system", "content": "Be kind."}]},
        {"messages": [{"role": "user", "content": "Do it."}], "outcome": HARNESS},
    ],
    ids=["passed", "failed", "rewarded", "harness", "blank", "only a system message", "harness, no reply"],
)
def test_a_test_without_a_message_is_not_present(tmp_path: Path, empty: dict[str, Any]) -> None:
    row = one_session(tmp_path, standardised_task=asked("standardised_task") | empty)
    assert row["status"] == "provisional"
    why = f"standardised_task: conversation s-standardised_task is declared for it, {NO_MESSAGE}"
    assert row["missing"] == [why]


CRASHES: tuple[dict[str, Any], ...] = (
    {"outcome_class": "agent_error"},
    {"correct": False, "error": "Segmentation fault"},
    {"error": "KeyError: 'plan' in the agent", "outcome_class": "agent_error"},
)


@pytest.mark.parametrize("outcome", CRASHES, ids=str)
@pytest.mark.parametrize("by_a_person", [True, False])
def test_a_crash_at_the_injected_error_is_a_u4_of_1(
    tmp_path: Path, outcome: dict[str, Any], by_a_person: bool
) -> None:
    crashed = asked("error_injection", messages=[], outcome=outcome)
    row = one_session(tmp_path, {"U4": 1 if by_a_person else None}, error_injection=crashed)
    assert (row["status"], row["missing"], row["u4"]) == ("published", [], 1.0)
    # U = (5·4 + 1) / 30 = 70: 0.4 × 70 + 0.6 × 80 − 10
    assert row["composite_score"] == pytest.approx(66)


def test_a_crash_fills_its_slot_and_a_failure_of_the_harness_does_not(tmp_path: Path) -> None:
    for session, outcome in (("crash", CRASHES[0]), ("harness", HARNESS)):
        d2 = asked("D2", messages=[], outcome=outcome)
        write(tmp_path / session, "ada", session, complete(D2=d2))
    ones = rated("ada", "crash", D2=(1, 1, 1))
    row = only(scored(tmp_path / "crash", ones))
    assert (row["status"], row["d2"]) == ("published", 20.0)
    unrated = [r for r in ones if r["target"] != "D2"]
    missing = only(scored(tmp_path / "crash", unrated))["missing"]
    assert missing == ["D2: no rating: the agent crashed before its first message; needs a human"]
    row = only(scored(tmp_path / "harness", rated("ada", "harness", D2=(1, 1, 1))))
    assert (row["status"], row["d2"]) == ("incomplete", None)


def test_an_agent_that_crashes_at_every_first_message_is_rated_1_throughout(tmp_path: Path) -> None:
    slots = [c | {"messages": [], "outcome": CRASHES[0]} for c in complete()]
    write(tmp_path, "ada", "s", slots, u3_scope="single_message")
    row = only(scored(tmp_path, rated("ada", "s", 1)))
    # all ones: 20, less 10
    assert (row["status"], row["composite_score"]) == ("published", 10.0)


SILENT: tuple[list[dict[str, str]], ...] = (
    [{"role": "user", "content": "Hello?"}],
    *(
        [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": text}]
        for text in (
            *(" \n", "null", "[object Object]", "<think>What does she want?</think>"),
            'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1',
        )
    ),
    [{"role": "user", "content": "Hello?"}, {"role": "user", "content": "Are you there?"}],
)


@pytest.mark.parametrize("messages", SILENT)
def test_a_scenario_without_any_reply_rated_above_1_is_named(
    tmp_path: Path, messages: list[dict[str, str]]
) -> None:
    write(tmp_path, "ada", "s", complete(D2=asked("D2", messages=messages)))
    row = only(scored(tmp_path, rated("ada", "s", D2=(5, 5, 4))))
    assert (row["status"], row["raw_composite_score"]) == ("provisional", pytest.approx(81.6))
    assert row["missing"] == ["D2: rated above 1, but the agent never replied in conversation s-D2"]
    row = only(scored(tmp_path, rated("ada", "s", D2=(1, 1, 1))))
    assert (row["status"], row["missing"]) == ("published", [])


@pytest.mark.parametrize(("target", "slot"), [("U1", "standardised_task"), ("U4", "error_injection")])
def test_a_test_without_any_reply_bounds_its_dimension(tmp_path: Path, target: str, slot: str) -> None:
    write(tmp_path, "ada", "s", complete(**{slot: asked(slot, messages=SILENT[0])}))
    row = only(scored(tmp_path, rated("ada", "s")))
    why = f"{target}: rated above 1, but the agent never replied in conversation s-{slot}"
    assert (row["status"], row["missing"]) == ("provisional", [why])
    assert only(scored(tmp_path, rated("ada", "s", **{target: 1})))["status"] == "published"


@pytest.mark.parametrize("messages", [SILENT[0], SILENT[-1]])
def test_a_hallucination_test_without_any_reply_is_not_passed(
    tmp_path: Path, messages: list[dict[str, str]]
) -> None:
    said = "hallucination: passed, but the agent never replied in conversation s-hallucination"
    for correct, found in ((True, ("provisional", None, [said])), (False, ("published", False, []))):
        chat = asked("hallucination", messages=messages, outcome={"correct": correct})
        write(tmp_path / str(correct), "ada", "s", complete(hallucination=chat))
        row = only(scored(tmp_path / str(correct), rated("ada", "s")))
        assert (row["status"], row["hallucination_passed"], row["missing"]) == found


# Which run counts


def test_dropped_runs_and_later_sessions_are_named_with_their_reasons(tmp_path: Path) -> None:
    write(tmp_path, "ada", "april", complete())
    write(tmp_path, "ada", "bad", complete(), date="2026-06-01", invalid_reason="the proxy was slow")
    write(tmp_path, "ada", "aa", complete(), date="2026-04-01")
    write(tmp_path, "ada", "later", complete(), date="2026-07-01", methodology_versions=["1.0.0"])
    row = only(scored(tmp_path, [*rated("ada", "april", 5), *rated("ada", "aa", 1)]))
    assert (row["benchmark_id"], row["composite_score"]) == ("april", 90.0)
    assert row["dropped_runs"] == [
        "session bad: harness failure: the proxy was slow",
        "run aa is superseded by april, which has the same date and a later name",
        "session later of 2026-07-01 is later, but was run for 1.0.0",
    ]
    said = "ada: does not count: " + "; ".join(row["dropped_runs"])
    assert outcomes(table("leaderboard").frame([row | {"name": "ada"}])) == [said]


@pytest.mark.parametrize("date", ["2026-04-01", None])
def test_of_runs_with_the_same_date_or_without_one_none_is_ranked_by_its_name(
    tmp_path: Path, date: str | None
) -> None:
    write(tmp_path, "ada", "a", complete(), date=date)
    write(tmp_path, "ada", "z", complete(), date=date)
    row = only(scored(tmp_path, [*rated("ada", "a", 2), *rated("ada", "z", 5)]))
    other = "the same date and" if date else "no date either and"
    why = f"run: run a is superseded by z, which has {other} a later name; give them different dates, or one benchmark_id"
    assert (row["status"], row["missing"][-1]) == ("provisional", why)


def test_a_bad_run_or_conversation_that_is_rejected_at_import_is_named(tmp_path: Path) -> None:
    write(tmp_path, "ada", "good", complete(), date="2026-04-01")
    write(tmp_path, "ada", "bad", complete(), date="2026-06-01", invalid_reason=False)
    broken = [asked("D2", "A bad reply.", scenario="d2"), asked("D3", "Another.", trial="x")]
    write(
        tmp_path, "bob", "s", [*complete(), *(c | {"conversation_id": f"b{i}"} for i, c in enumerate(broken))]
    )
    write(tmp_path, "ada", "bad2", complete(), date="2026-06-01")
    (tmp_path / "ada/bad2/session.yaml").unlink()
    (tmp_path / "ada/empty").mkdir()  # a folder without conversations is not a run
    found = scored(tmp_path, [*rated("ada", "good", 5), *rated("bob", "s", 5)], n_rejected=5)
    assert only(found)["dropped_runs"] == [
        "session bad: 1 record rejected at import",
        "session bad2: 1 record rejected at import",
    ]
    assert only(found, "bob")["dropped_runs"] == ["session s: 2 records rejected at import"]


@pytest.mark.parametrize(
    ("date", "reason"),
    [
        ("2099-01-01", "which is in the future; today is "),
        ("0001-01-01", "which programs write for an unknown date; write the date, or omit date"),
        ("1970-01-01", "which programs write for an unknown date; write the date, or omit date"),
    ],
)
def test_a_date_to_come_or_of_no_run_is_refused_by_file_and_line(
    tmp_path: Path, date: str, reason: str
) -> None:
    write(tmp_path, "ada", "april", complete())
    write(tmp_path, "ada", "other", complete(), date=date)
    read = read_sessions("ada", tmp_path / "ada")
    assert read.sessions["session_id"].to_list() == ["april"]
    ((file, line, why),) = read.import_errors.select("file", "line", "reason").rows()
    at = (tmp_path / "ada" / "other" / "session.yaml").read_text().splitlines().index(f"date: '{date}'") + 1
    assert (file, line) == ("other/session.yaml", at)
    assert why.startswith(f"date is {date}, {reason}")


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "BEHIND+12", "AHEAD-23:59"], indirect=True)
def test_today_is_accepted_and_tomorrow_only_where_it_has_begun(zone: str) -> None:
    today = datetime.datetime.now(datetime.UTC)
    check_date(today, "date")
    for n, name in ((1, "date"), (2, "rated_at")):
        when = today + datetime.timedelta(days=n)
        if n == 1 and zone.startswith("AHEAD"):
            check_date(when.date(), name)
        else:
            with pytest.raises(ValueError, match=f"{name} is .* in the future"):
                check_date(when, name)


def test_a_rating_or_verdict_of_the_future_never_replaces_one_of_today(tmp_path: Path) -> None:
    header = ",".join(COLUMNS)
    cells = {
        "agent_id": "ada",
        "session_id": "s",
        "methodology_version": "any",
        "target": "U3",
        "rater": "anna",
    }
    rows = [
        cells | {"rating_1to5": r, "rated_at": at} for r, at in (("2", "2026-04-20"), ("5", "2099-01-01"))
    ]
    lines = (",".join(str(row.get(name, "")) for name in COLUMNS) for row in rows)
    (tmp_path / "anna.csv").write_text("\n".join([header, *lines]) + "\n")
    ratings, refused = read_ratings(tmp_path)
    assert ratings["rating_1to5"].to_list() == [2]
    assert [(r.file, r.line) for r in refused] == [("anna.csv", 3)]
    assert "rated_at is 2099-01-01, which is in the future" in refused[0].reason
    task_set = tmp_path / "slots.csv"
    task_set.write_text("task_id,slot,disclosures\na,D1,\nb,D2,date=2099-01-01\n")
    with pytest.raises(
        InputError, match=r"slots\.csv:3: disclosures: date is 2099-01-01, which is in the future"
    ):
        read_slots(task_set)


@pytest.mark.parametrize(
    "messages",
    [
        [
            {"role": "assistant", "content": "Hello, how can I help?"},
            {"role": "user", "content": "A refund."},
        ],
        [{"role": "user", "content": "A refund."}, {"role": "assistant", "content": "500", "is_error": True}],
        [{"role": "user", "content": "A refund."}, {"role": "assistant", "content": "…"}],
        [{"role": "assistant", "content": "Your refund of 5 EUR is on its way."}],
        [{"role": "user", "content": " \u200b"}, {"role": "assistant", "content": "It is on its way."}],
    ],
    ids=["a greeting", "an error", "only punctuation", "nobody asked", "a blank question"],
)
def test_a_greeting_an_error_and_dots_are_no_reply(tmp_path: Path, messages: list[dict[str, Any]]) -> None:
    row = one_session(tmp_path, D2=asked("D2", messages=messages))
    assert row["missing"] == ["D2: rated above 1, but the agent never replied in conversation s-D2"]


def test_an_agent_that_has_a_task_needs_no_user_message(tmp_path: Path) -> None:
    d2 = {"messages": [{"role": "assistant", "content": "Report 7 is sent."}]}
    row = one_session(tmp_path, D2=asked("D2", **d2, goal="Send report 7."))
    assert (row["status"], row["missing"]) == ("published", [])


def test_a_run_without_a_date_is_dropped_with_this_reason(tmp_path: Path) -> None:
    write(tmp_path, "ada", "april", complete(), date="2026-04-01")
    write(tmp_path, "ada", "zz-bad", complete(), date=None)
    row = only(scored(tmp_path, [*rated("ada", "april", 5), *rated("ada", "zz-bad", 1)]))
    assert row["benchmark_id"] == "april"
    assert row["dropped_runs"] == [
        "run zz-bad is superseded by april, because no session of the former has a date"
    ]


def test_a_blank_reason_makes_no_session_invalid_and_a_later_session_for_any_version_is_named(
    tmp_path: Path,
) -> None:
    write(tmp_path, "ada", "april", complete(), date="2026-04-01")
    write(tmp_path, "ada", "bad", complete(), date="2026-05-01", invalid_reason=" \u200b")
    write(tmp_path, "ada", "later", complete(), date="2026-06-01", methodology_versions="any")
    row = only(scored(tmp_path, rated("ada", "bad", 1)))
    assert (row["benchmark_id"], row["composite_score"]) == ("bad", 10.0)
    assert row["dropped_runs"] == [
        "run april is superseded by bad",
        "session later of 2026-06-01 is later, but was run for any version, so without slots",
    ]
