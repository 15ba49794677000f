"""What a run prints while judge models are called: progress, and with `-v` each answer with its reason."""

import io
import re

import pytest
from rich.console import Console

from agent_eval.commands.terminal.progress import shown_progress
from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.calls import JudgeCall, QuestionSequence
from agent_eval.judge.protocol import NotApplicable, Scored, Unscored, Verdict
from agent_eval.tables import table
from tests.judge.fakes import ScriptedClient, panel_of
from tests.judge.test_requests import questions, talk

SEQUENCES = [QuestionSequence(questions(talk(f"c{i}", 2))) for i in range(2)]
NOTHING = table("judge_cache").empty()
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_the_answers_of_every_call_are_printed_with_their_reasons() -> None:
    out = io.StringIO()
    with shown_progress(Console(file=out, width=40)) as shown:
        panel_of(ScriptedClient(answers={"helpfulness": 3}), heard=shown.heard).answers(SEQUENCES, NOTHING)
    lines = out.getvalue().splitlines()
    helpful = sorted(line.split(": ")[0] for line in lines if " helpfulness " in line)
    assert helpful == [f"scripted c{i}#{turn} helpfulness 3" for i in range(2) for turn in range(2)]
    assert all(line.partition(": ")[2] for line in lines)  # the reason


@pytest.mark.parametrize("cap", [None, 0, 2])
def test_a_terminal_keeps_the_last_line_of_a_pass_whether_or_not_a_cap_stopped_it(cap: int | None) -> None:
    out = io.StringIO()
    with shown_progress(Console(file=out, width=120, force_terminal=True)) as shown:
        panel = panel_of(ScriptedClient(), budget=Budget(max_calls=cap))
        panel.answers(SEQUENCES, NOTHING, watch=shown.watch)
    n = 4 if cap is None else cap  # a line of the display, which is removed at the end, begins with a spinner
    text = CONTROL.sub("", out.getvalue()).replace("\r", "\n")
    assert re.search(rf"^scripted: {n} of 4 calls", text, re.MULTILINE)
    assert shown.judging is None


def test_an_answer_without_a_value_says_why_and_no_text_steers_the_terminal() -> None:
    out = io.StringIO()
    (question, *_) = questions(talk("c0", 1))
    name = question.metrics[0].name
    verdicts: list[Verdict] = [
        Scored("bad\x1b[31m\nline", label="unsafe action"),
        NotApplicable("no tool"),
        Unscored("parse_failure", "not JSON"),
    ]
    with shown_progress(Console(file=out, width=40)) as shown:
        for verdict in verdicts:
            shown.heard(JudgeCall((question,)), "m", {name: verdict})
    assert "\x1b" not in out.getvalue()
    assert [line.partition(f"{name} ")[2] for line in out.getvalue().splitlines()] == [
        "unsafe action: bad\ufffd[31m line",
        "not applicable: no tool",
        "unscored: parse_failure: not JSON",
    ]
