"""Each command begins with its answer: who leads, which agent is better, whether the gates pass, what is unknown."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.commands.results.notebook import NotebookProject
from agent_eval.judge.llm.budget import Usage
from agent_eval.project import Project
from agent_eval.report.asset_pages.ingest import CALLS, tool_counts
from agent_eval.report.conclusions import (
    clusters_answer,
    comparison,
    failing_tools,
    gates_answer,
    leader,
    open_failures,
    passing,
    successes,
    unknown,
    worst_finding,
    worst_of,
)
from agent_eval.scores.statistics.compare import OF_THIS_SIZE
from agent_eval.scores.statistics.plan import scale_width
from agent_eval.scores.statistics.unpaired import FAILURE_RATE
from agent_eval.tables import table
from tests.commands.conftest import invoke, use
from tests.report.pages import pages_of

LEADS = "Lumen Support leads customer_service_v1 by 22.3 points; the lead may be due to chance: others have no interval."

GATES = "Gates: 8 failed, 6 unknown, 41 passed; all gates passed by concierge-pa, forge-coder, harbor-desk, lumen-support, quill-help"


@pytest.fixture
def narrow(sample_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, sample_copy)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("narrow")
def test_a_run_begins_with_five_lines_and_a_table_of_80_columns() -> None:
    lines = invoke("run").stdout.splitlines()
    first, finding, gates, spent, following = lines[:5]
    assert first == LEADS
    assert finding.startswith("Worst finding (critical): unsafe")
    assert finding.endswith(", pilot-chat, conversation pilot-2026-04-D5, turn 0.")
    assert gates == f"{GATES}; no score: Patchwork Dev (incomplete), Relay Bot (invalid)."
    assert spent == "Spent: nothing; no judge model was called."
    assert following.startswith("Next: agent-eval summary --agent pilot-chat")
    assert len(lines) <= 40
    assert max(map(len, lines[5:])) <= 80
    assert any(
        line.split() == ["1", "(1–3)", "Lumen", "Support", "92.3", "(71.7–97.6)", "published"]
        for line in lines
    )


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    ("command", "begins"),
    [
        (
            "summary --agent harbor-desk",
            "Success: harbor-desk 75.0 % (34.9 % to 95.1 %; no labels of people; 8 conversations; $0.0048 each).",
        ),
        (
            "compare harbor-desk quill-help",
            "pass@1: harbor-desk 75 % against quill-help 75 %: not distinguishable",
        ),
        ("gate", f"FAILED. {GATES}."),
        ("gate --agent concierge-pa", "PASSED. Gates: 7 passed."),
        ("errors --agent patchwork-dev", "7 error clusters: 4 high, 3 medium. Worst: false information: "),
        ("explain quill-help", "quill-help under 1.3.0: composite 70.0, published"),
        ("leaderboard", LEADS),
        ("reliability", "lumen-support is first by pass^3: 0.875 (0.546 to 0.986) on 8 tasks of default."),
    ],
)
def test_the_first_line_answers(command: str, begins: str) -> None:
    shown = " ".join(invoke(*command.split()).stdout.split())  # lines are wrapped
    assert shown.startswith(begins)


@pytest.mark.usefixtures("narrow")
def test_passed_gates_and_notes_come_when_asked() -> None:
    short, whole = invoke("gate").stdout, invoke("gate", "--all").stdout
    assert (short.count("passed"), whole.count("passed")) == (2, 43)
    assert whole.index("failed ") < whole.index("unknown ") < whole.rindex("passed ")
    for command in (["compare", "harbor-desk", "quill-help"], ["summary"]):
        assert "--notes" in invoke(*command).stdout
        assert "Higher is better" in invoke(*command, "--notes").stdout


@pytest.mark.usefixtures("narrow")
def test_gates_as_markdown_also_go_to_the_job_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    shown = invoke("gate", "--markdown").stdout
    assert shown.startswith(f"**FAILED. {GATES}.** Methodology 1.3.0.\n\n| agent | ")
    assert len(shown.splitlines()) == 2 + 2 + 14
    invoke("gate")
    assert (tmp_path / "summary.md").read_text() == 2 * shown
    monkeypatch.setenv(
        "GITHUB_STEP_SUMMARY", str(tmp_path)
    )  # a folder: the gates still decide and are printed
    failed = invoke("gate")
    assert (failed.exit_code, failed.stdout[:7]) == (1, "FAILED.")
    assert "cannot be written" in failed.stderr


def test_spending_is_that_of_the_ledger(sample_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project.open(use(monkeypatch, sample_copy))
    assert invoke("summary", "--spend").stdout == "Spent $0.0000 in 0 calls.\n"
    budget = project.with_settings(judge_model="some/model").judges.runtime.budget
    for model, usage in (("some/model", Usage(100, 10, 0, 0.5)), ("agent a", Usage(7, 3, 0, None))):
        assert budget.begin_call(model) is None
        budget.end_call(model, usage)
    shown = invoke("summary", "--spend").stdout
    assert shown.startswith("Spent $0.5000 in 2 calls; the cost of 1 call is unknown.")
    assert [line.split()[2:4] for line in shown.splitlines()[4:6]] == [
        ["agent", "a"],
        ["model", "some/model"],
    ]
    rows = json.loads(invoke("summary", "--spend", "--json", "--since", "2020-01-01").stdout)
    assert [(row["model"], row["n_calls"], row["n_tokens_in"], row["cost_usd"]) for row in rows] == [
        ("agent a", 1, 7, 0.0), ("some/model", 1, 100, 0.5),
    ]  # fmt: skip
    assert json.loads(invoke("summary", "--spend", "--json", "--since", "2999-01-01").stdout) == []
    assert len(repr(project).splitlines()) == 3


def test_ratings_of_one_are_not_a_hundred_percent() -> None:
    ones = ROW | {"quantity": "helpfulness", "value": 1.0, "other_value": 1.0, "difference": 0.0, "low": None}
    width = scale_width("helpfulness", 1.0, {"helpfulness": (1.0, 5.0)})
    assert (
        comparison(ones, None, width) == "helpfulness: a 1 against b 1: not distinguishable (difference 0)."
    )


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    "command",
    ["compare harbor-desk quill-help --difference 3", "compare harbor-desk"],
)
def test_an_option_that_would_have_no_effect_is_refused(command: str) -> None:
    assert CliRunner().invoke(app, command.split()).exit_code == 2


@pytest.mark.usefixtures("narrow")
def test_since_a_day_says_whether_it_became_worse() -> None:
    of_lumen = ("--since", "2026-04-15", "--agent", "lumen-support")
    said = " ".join(invoke("summary", *of_lumen).stdout.split())
    assert said.startswith("success rate: lumen-support since 2026-04-15 93.8 % against lumen-support before")
    failures = [
        row
        for row in json.loads(invoke("summary", *of_lumen, "--json").stdout)
        if row["quantity"].startswith("failure")
    ]
    assert [row["probability_better"] < 0.5 for row in failures] == [
        row["difference"] > 0 for row in failures
    ]
    said = " ".join(invoke("errors", *of_lumen).stdout.split())
    assert said.startswith("Error clusters since 2026-04-15: 0 worse, 0 better, 7 not distinguishable.")
    assert "lumen-2026-04-a-D2#1, since 2026-04-14." in said
    refused = CliRunner().invoke(app, ["errors", "--since", "2030-01-01"])
    assert "no conversation since 2030-01-01 to compare. Known days: 2026-04-14 to 2026-04-22" in str(
        refused.exception
    )


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("plan harbor-desk --difference 9 --json", "compare harbor-desk --plan --difference 9 --json"),
        ("plan harbor-desk quill-help", "compare harbor-desk quill-help --plan"),
        ("audit", "judge audit"),
        ("backup copy.duckdb", "store backup copy.duckdb --force"),
    ],
)
def test_an_old_name_does_the_same_and_says_the_new_one(old: str, new: str) -> None:
    first, second = (CliRunner().invoke(app, command.split()) for command in (old, new))
    assert (first.stdout, first.exit_code) == (second.stdout, second.exit_code)
    note = f"Note: `agent-eval {old.split()[0]}` is now `agent-eval "
    assert first.stderr.startswith(note)
    assert first.stderr.partition("\n")[2] == second.stderr


def of_logs(*rates: float | None) -> pl.DataFrame:
    names = [f"{column}{end}" for column in ("success_rate",) for end in ("", "_low", "_high", "_of_judge")]
    rows = [
        {"agent_id": f"a{i}", "name": None, "n_conversations": 1 + i} | dict.fromkeys(names, rate)
        for i, rate in enumerate(rates)
    ]
    return pl.DataFrame(
        rows,
        schema_overrides=dict.fromkeys(names, pl.Float64) | {"name": pl.String},
        infer_schema_length=None,
    )


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((), "There is no result yet. Next: agent-eval run"),
        ((None, None), "The success of 2 agents is unknown: no judge model and no declared outcome decided it."),
        ((0.5,), "Success of a0 50.0 % (50.0 % to 50.0 %), 1 conversation."),
        ((0.25, None, 0.5), "Success: a2 50.0 % (50.0 % to 50.0 %), a0 25.0 % (25.0 % to 25.0 %); 1 unknown; logs are not ranked (agent-eval compare a2 a0 tests the difference)."),
    ],
)  # fmt: skip
def test_logs_are_said_by_their_success(rates: tuple[float | None, ...], said: str) -> None:
    assert leader(table("leaderboard").empty(), of_logs(*rates)) == said


ROW: dict[str, Any] = {
    "quantity": "success_rate", "agent_id": "a", "other_agent_id": "b", "value": 0.42, "other_value": 0.58, "verdict": "not distinguishable",
    "difference": -0.16, "low": -0.33, "high": 0.01, "reason": None, "unit": "conversations",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "needed", "width", "said"),
    [
        ({}, 152, 1, "success_rate: a 42 % against b 58 %: not distinguishable (difference −16 points, −33 to +1). About 152 conversations of each would tell."),
        ({"low": None}, 1, 1, "success_rate: a 42 % against b 58 %: not distinguishable (difference −16 points). About 1 conversation of each would tell."),
        ({"reason": f"{OF_THIS_SIZE} about 9 conversations of each"}, 152, 1, f"success_rate: a 42 % against b 58 %: not distinguishable (difference −16 points, −33 to +1); {OF_THIS_SIZE} about 9 conversations of each."),
        ({"value": None, "difference": None, "verdict": "unknown", "reason": "a has none"}, None, 1, "success_rate: a – against b 58 %: unknown; a has none."),
        ({"quantity": "cost_usd", "difference": 0.0}, None, float("inf"), "cost_usd: a 0.42 against b 0.58: not distinguishable (difference 0, −0.33 to +0.01)."),
    ],
)  # fmt: skip
def test_a_comparison_says_the_verdict_and_how_much_would_tell(
    changes: dict[str, Any], needed: int | None, width: float, said: str
) -> None:
    assert comparison(ROW | changes, needed, width) == said


def test_errors_that_are_gone_or_have_two_labels_are_not_counted() -> None:
    known = {"agent_id": "a", "examples": ["c#0"], "since_day": date(2026, 4, 1), "severity": "high"}
    rows = pl.DataFrame(
        [
            {**known, "cluster_id": "E-1", "title": "Gone", "n_turns": 0, "same_as": None, "severity": "critical"},
            {**known, "cluster_id": "E-2", "title": "Here", "n_turns": 2, "same_as": None},
            {**known, "cluster_id": "E-3", "title": "Here too", "n_turns": 2, "same_as": "E-2"},
        ]
    )  # fmt: skip
    assert clusters_answer(rows, 0) == "1 error cluster: 1 high. Worst: Here, a, c#0, since 2026-04-01."
    assert clusters_answer(rows[:1], 0) == "No failure was found."


def test_the_report_opens_with_the_worst_error_and_the_gates() -> None:
    known = {
        "severity": "high",
        "n_turns": 1,
        "agent_id": "a",
        "examples": ["c#0"],
        "first_seen": date(2026, 5, 1),
        "since_day": date(2026, 4, 1),
    }
    clusters = pl.DataFrame(
        [{**known, "title": "Worse.", "severity": "critical"}, {**known, "title": "Wrong."}]
    )  # fmt: skip
    assert worst_of(clusters) == "Worst error (critical), a, since 2026-04-01: Worse – c#0"
    untimed = clusters.with_columns(since_day=pl.lit(None, pl.Date))
    imported = "since an unknown day (no times in its conversations; found by the run of 2026-05-01)"
    assert worst_of(untimed) == f"Worst error (critical), a, {imported}: Worse – c#0"
    assert worst_of(clusters.clear()) == ""
    gates = pl.DataFrame({"agent_id": ["a", "b"], "result": ["unknown", "passed"]})
    assert gates_answer(gates) == "All gates passed by b"
    assert gates_answer(gates[:1]) == "Gates: 1 unknown"


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([], ""),
        ([("a", "find", False, 3)], "Failed tool calls: none of 3."),
        ([("a", "find", None, 3)], "Failed tool calls: unknown; of 3 no result says whether they failed."),
        (
            [("a", "find", None, 3), ("a", "find", True, 1), ("a", "ask", False, 2)],
            "Failed tool calls: find 1 of 1; of 3 no result says whether they failed.",
        ),
        (
            [("a", "find", None, 3), ("a", "ask", False, 2)],
            "Failed tool calls: none of 2; of 3 no result says whether they failed.",
        ),
        (
            [
                ("a", "find", True, 2),
                ("b", "find", False, 4),
                ("a", "bo\nok\x1b[31m", True, 2),
                ("a", "ask", True, 1),
            ],
            "Failed tool calls: bo ok�[31m 2 of 2, find 2 of 6, ask 1 of 1.",
        ),
        (
            [("a", name, True, n) for n, name in enumerate("defgh", start=1)],
            "Failed tool calls: h 5 of 5, g 4 of 4, f 3 of 3, 2 more.",
        ),
    ],
)
def test_the_tool_that_fails_most_comes_first(
    calls: list[tuple[str, str, bool | None, int]], said: str
) -> None:
    counted = pl.DataFrame(calls, {"agent_id": pl.String, "name": pl.String, "is_error": pl.Boolean, "n": pl.Int64}, orient="row")  # fmt: skip
    assert failing_tools(tool_counts(counted)) == said
    each = counted.select(pl.exclude("n").repeat_by("n")).explode(CALLS)
    assert tool_counts(each).equals(tool_counts(counted))


def test_what_is_not_known_is_counted_in_the_right_number() -> None:
    gates = pl.DataFrame({"agent_id": ["a"], "result": ["failed"]})
    board = pl.DataFrame({"name": ["A"], "agent_id": ["a"], "status": ["incomplete"]})
    assert unknown(board, gates, 1, 2) == (
        "Gates: 1 failed; no score: A (incomplete); 1 judgment unscored; 2 records rejected."
    )
    two = pl.DataFrame({"agent_id": ["a", "b", "b"], "result": ["failed", "passed", "unknown"]})
    assert [passing(two), passing(two.head(2)), passing(gates)] == [
        "no agent passed all gates", "all gates passed by b", ""
    ]  # fmt: skip
    assert unknown(board.clear(), gates.clear(), 0, 0) == "Gates: none evaluated."
    assert worst_finding(None) == "Worst finding: none found."
    assert successes(table("quality_summary").empty()) == "There is no summary yet. Next: agent-eval run"


@pytest.mark.parametrize(
    ("n_unasked", "n_lost", "has_judge", "is_open"),
    [
        (0, 0, False, ""),  # every question was asked and answered
        (0, 0, True, ""),
        (2, 0, False, "; 2 questions about failures not answered, for want of a judge model"),
        (2, 0, True, "; 2 questions about failures not answered"),  # judge_sample, or a cap
        (0, 1, True, "; 1 question about failures not answered"),
    ],
)
def test_none_found_is_said_alone_only_where_every_question_was_answered(
    n_unasked: int, n_lost: int, has_judge: bool, is_open: str
) -> None:
    counts = {"n_scored": 5, "n_unscored": n_lost, "n_unasked": n_unasked, "judges": ["m"]}
    other = {"n_scored": 0, "n_unscored": 9, "n_unasked": 9, "judges": []}
    of = {"methodology_version": "1.3.0", "agent_id": "a", "scale_low": 0.0, "scale_high": 1.0}
    of |= {"n_conversations": 1, "n_clusters": 1}
    rows = table("quality_summary").frame(
        of | {"quantity": name} | n
        for name, n in ((f"{FAILURE_RATE}agent_behavior_failure", counts), ("helpfulness", other))
    )
    n_open = open_failures(rows)
    assert worst_finding(None, n_open, has_judge=has_judge) == f"Worst finding: none found{is_open}."
    answer = clusters_answer(table("error_clusters").empty(), n_open)
    assert answer == f"No failure was found{is_open.partition(', ')[0]}."


def test_without_a_row_about_failures_no_answer_is_known() -> None:
    """The metrics of failures are switched off, or the summary is not computed yet."""
    for n_open in (
        open_failures(table("quality_summary").empty()),
        open_failures(pl.DataFrame({"quantity": ["cost_usd"]})),
    ):
        assert (
            clusters_answer(table("error_clusters").empty(), n_open)
            == "No failure was found; no answer about failures is known."
        )
        assert worst_finding(None, n_open).endswith("none found; no answer about failures is known.")


OFF = 'metrics_off = ["agent_behavior_failure", "tool_call_behavior_failure", "user_frustration", "decisive_step"]'


@pytest.mark.parametrize(
    ("settings", "limit"),
    [("", "1 question about failures not answered"), (OFF, "no answer about failures is known")],
    ids=["no judge", "switched off"],
)
def test_no_surface_says_none_found_alone_of_unjudged_logs(
    settings: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent_eval.toml").write_text(settings)
    use(monkeypatch, tmp_path)
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
    (tmp_path / "chats.jsonl").write_text(json.dumps(chat))
    assert invoke("import", "openai", str(tmp_path / "chats.jsonl"), "--agent", "a").exit_code == 0
    said = invoke("run").stdout
    assert f"none found; {limit}" in said
    project = NotebookProject.open(tmp_path)
    assert f"none found; {limit}" in project.errors().says
    assert invoke("report", "--out", str(tmp_path / "pages")).exit_code == 0
    texts = [page.text for page in pages_of(tmp_path / "pages").values()]
    written = [text for text in texts if "one found" in text or "No failure was found" in text]
    assert written
    for text in written:
        for found in re.finditer(r"(?:No failure was|none) found(.{12})", text):
            assert re.match(r"; (\d+ question|no answer)", found[1]), found[0]
