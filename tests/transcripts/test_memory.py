"""Files are read a record at a time: four times the records, about the same memory."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_eval.formats.streams import json_lines
from agent_eval.transcripts.importers.importing import import_file

pytestmark = pytest.mark.slow

WORDS = "where is my order " * 900  # 16.2 kB a record


def said(i: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{i} {WORDS}"}]


def spans(i: int) -> str:
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"{i} {WORDS}"}]}])


Record = Callable[[int], dict[str, Any]]
LINES = ("", "\n", "")
STREAMED: list[tuple[str, tuple[str, str, str], Record]] = [
    # format, what is before, between and after the records, and a record
    (
        "tau-bench",
        ("[", ",\n", "]"),
        lambda i: {"task_id": i, "trial": 0, "reward": 1.0, "info": {}, "traj": said(i)},
    ),
    (
        "tau2",
        ('{"tasks": [{"id": "t"}], "simulations": [', ",\n", "]}"),
        lambda i: {"id": f"u{i}", "task_id": str(i), "messages": said(i)},
    ),
    ("openai", LINES, lambda i: {"messages": said(i)}),
    ("openai", LINES, lambda i: {"session_id": f"s{i // 2}", "messages": said(i)}),
    ("otel-genai", LINES, lambda i: {"traceId": f"t{i}", "attributes": {"gen_ai.input.messages": spans(i)}}),
    (
        "claude-code",
        LINES,
        lambda i: {"type": "user", "sessionId": f"s{i}", "uuid": f"u{i}", "message": said(i)[0]},
    ),
    (
        "inspect",
        ('{"version": 2, "eval": {"task": "t"}, "samples": [', ",\n", "]}"),
        lambda i: {"id": i, "epoch": 1, "messages": said(i)},
    ),
]


def write(path: Path, n: int, around: tuple[str, str, str], record: Record) -> Path:
    begin, between, end = around
    with path.open("w") as stream:
        stream.write(begin)
        stream.writelines(f"{between if i else ''}{json.dumps(record(i))}" for i in range(n))
        stream.write(end)
    return path


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("format_name", "around", "record"), STREAMED)
def test_an_import_takes_no_more_memory_for_a_longer_file(
    tmp_path: Path, format_name: str, around: tuple[str, str, str], record: Record
) -> None:
    peaks = []
    for n in (100, 400):
        path = write(tmp_path / f"r{n}.json", n, around, record)
        work = partial(import_file, format_name, path, sessions_folder=tmp_path / "s", agent_id="a")
        peaks.append(peak(work))
    # names and hashes of records stay, their texts do not
    assert peaks[1] - peaks[0] < 0.1 * 300 * len(WORDS)


def test_lines_take_no_more_memory_for_a_longer_file(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", 500, *STREAMED[2][1:])
    assert peak(lambda: sum(1 for _ in json_lines(path, "c"))) < 2_000_000


def test_a_line_beyond_the_limit_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_eval.formats.streams.LONGEST_LINE", 1_000_000)
    path = tmp_path / "c.jsonl"
    with path.open("w") as stream:
        stream.write("1\n")
        for _ in range(300):
            stream.write("x" * 100_000)
        stream.write("\n2\n")
    found: list[object] = []
    assert peak(lambda: found.extend(json_lines(path, "c"))) < 5_000_000
    first, refused, last = found
    assert (getattr(first, "value", None), getattr(last, "value", None)) == (1, 2)
    assert "longer than" in getattr(refused, "reason", "")


def test_a_gzipped_bomb_is_not_unpacked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_eval.formats.streams.LARGEST_UNZIPPED", 2_000_000)
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(b"1\n" + b" " * 50_000_000 + b"\n2\n"))
    first, refused = json_lines(path, "c")
    assert getattr(first, "value", None) == 1
    assert "more than 200 times the size of the file" in getattr(refused, "reason", "")
