"""What holds at every door: no hang, nothing written elsewhere, and text stays text."""

import io
import shutil
import signal
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import polars as pl
from polars.testing import assert_frame_equal
from rich.table import Table
from rich.text import Text

from agent_eval.commands.terminal.output import SafeConsole
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.validation_messages import LONGEST
from agent_eval.report.markdown import markdown_table
from agent_eval.storage import Store
from agent_eval.tables import table

CPU_SECONDS, SECONDS = 10, 60
_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
CANARY = "nothing may be written here"


class HungError(Exception):
    """One input took longer than any may."""


@contextmanager
def project() -> Iterator[Path]:
    """The root of a project in a folder of its own, beside a canary; afterwards all outside data/ is as it was."""
    around = Path(tempfile.mkdtemp(prefix="fuzz"))
    try:
        root = around / "project"
        (root / "data").mkdir(parents=True)
        (around / "canary").write_text(CANARY)
        yield root
        assert (around / "canary").read_text() == CANARY
        assert sorted(p.name for p in around.iterdir()) == ["canary", "project"]
        assert {p.name for p in root.iterdir()} <= {"data", "agent_eval.toml"}
    finally:
        shutil.rmtree(around)


@contextmanager
def watched() -> Iterator[None]:
    """Interrupt what takes more than ten seconds of the processor or sixty on the clock."""

    def bite(number: int, frame: FrameType | None) -> None:
        raise HungError(f"more than {CPU_SECONDS} CPU seconds or {SECONDS} seconds")

    before = {s: signal.signal(s, bite) for s in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def files(folder: Path) -> Mapping[str, bytes]:
    """Every file below a folder and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def is_printable(text: str) -> bool:
    """Whether nothing in it steers a terminal or turns the direction of reading; line ends and tabs may be there."""
    return not any(
        unicodedata.category(c) in ("Cc", "Cs") or unicodedata.bidirectional(c) in _TURNS
        for c in text
        if c not in "\n\t"
    )


def check_refusals(refusals: list[Refusal], longest: int = LONGEST) -> None:
    """Each refusal says why in a line of bearable length that a table can hold."""
    for refusal in refusals:
        assert refusal.reason
        assert len(refusal.reason) <= longest
        assert "\n" not in refusal.reason
        refusal.file.encode()
        refusal.reason.encode()


def check_text(frame: pl.DataFrame) -> None:
    """What the frame holds shows inert: in a markdown table and on a terminal."""
    lines = markdown_table(frame.head(5), limit=200).split("\n")
    assert len(lines) == (2 + min(5, frame.height) if frame.height else 1)
    assert all("<" not in line and is_printable(line) for line in lines)
    assert is_printable(on_terminal(frame.head(5)))


def on_terminal(frame: pl.DataFrame) -> str:
    """The frame as our consoles print it, without rich's own colours."""
    grid = Table(*frame.columns)
    for row in frame.iter_rows():
        grid.add_row(*(Text(str(cell)) for cell in row))
    console = SafeConsole(file=io.StringIO(), width=400, color_system=None)
    console.print(grid)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def check_store(root: Path, frames: Mapping[str, pl.DataFrame]) -> None:
    """The store gives back what it was given, byte for byte."""
    store = Store.at(root / "data" / "fuzz.duckdb")
    for name, frame in frames.items():
        contract = table(name)
        if contract.partition:
            store.replace(contract, frame, frame.select(contract.partition).unique(), run_id="fuzz")
        else:
            store.upsert(contract, frame, run_id="fuzz")
        assert_frame_equal(store.read(contract), frame.sort(contract.key), check_row_order=False)
