"""Show the progress of a run: a line per finished stage, and a progress bar while judge models are called."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from agent_eval.formats.plain_text import one_line
from agent_eval.judge.llm.calls import JudgeCall
from agent_eval.judge.llm.progress import Progress as Asked
from agent_eval.judge.protocol import NotApplicable, Scored, Verdict

EVERY_S = 10.0  # seconds between two lines of an output that is not a terminal


@dataclass
class ProgressDisplay:
    """Display the progress of one run; if the output is not a terminal, print a line at intervals instead of a bar."""

    console: Console
    bars: Progress
    stage: TaskID
    doing: str
    judging: TaskID | None = None

    def say(self, line: str) -> None:
        """Show the line of a finished stage."""
        self.doing = f"Done: {line}"
        self.bars.update(self.stage, description=self.doing)

    def watch(self, calls: Asked) -> None:
        """Update the progress of the judge models' calls."""
        if not self.console.is_terminal:
            self.console.print(calls.line(), markup=False)
            return
        if self.judging is None or calls.n_left == calls.n_calls:
            self._forget()
            self.judging = self.bars.add_task("", total=calls.n_calls)
        self.bars.update(self.judging, completed=calls.n_calls - calls.n_left, description=calls.line())
        if not calls.n_left:
            self.console.print(calls.line(), markup=False)
            self._forget()

    def heard(self, call: JudgeCall, model: str, answers: Mapping[str, Verdict]) -> None:
        """Print the answers of one call, one line each, with the judge's reason."""
        for metric, verdict in answers.items():
            question = call.question_of(metric)
            first = question.conversations[0].conversation_id if question.conversations else "error clusters"
            at = first if question.turn_index is None else f"{first}#{question.turn_index}"
            self.console.print(
                one_line(f"{model} {at} {metric} {_said(verdict)}"), markup=False, soft_wrap=True
            )

    def _forget(self) -> None:
        if self.judging is not None:
            self.bars.remove_task(self.judging)
            self.judging = None


def _said(verdict: Verdict) -> str:
    """Return an answer with its reason, e.g. '4: …', 'unsafe action: …' or 'unscored: …'."""
    if isinstance(verdict, Scored):
        answers = (verdict.rating_1to5, verdict.label, verdict.value)
        value = next((answer for answer in answers if answer is not None), "no value")
        return f"{value}: {verdict.rationale}"
    if isinstance(verdict, NotApplicable):
        return f"not applicable: {verdict.reason}"
    return f"unscored: {verdict.reason}: {verdict.detail}"


@contextlib.contextmanager
def shown_progress(console: Console, doing: str = "Reading changes …") -> Iterator[ProgressDisplay]:
    """Yield a progress display on this console; it is removed when the block ends."""
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        display = ProgressDisplay(console, bars, bars.add_task(doing, total=None), doing)
        with contextlib.nullcontext() if console.is_terminal else _lines(display):
            yield display


@contextlib.contextmanager
def _lines(display: ProgressDisplay) -> Iterator[None]:
    """Print every `EVERY_S` seconds what was finished last, for outputs other than a terminal."""
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(EVERY_S):
            line = f"{time.monotonic() - began:,.0f} s: {display.doing}"
            display.console.print(one_line(line), markup=False, soft_wrap=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
