"""Files are read a record at a time: twenty times the records, about the same memory."""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from agent_eval.formats.streams import json_lines
from agent_eval.transcripts.importers import import_file

pytestmark = pytest.mark.slow

WORDS = "where is my order " * 900  # 16.2 kB a record


def tau1(n: int) -> Iterator[str]:
    yield "["
    for i in range(n):
        record = {
            "task_id": i,
            "trial": 0,
            "reward": 1.0,
            "info": {},
            "traj": [{"role": "user", "content": f"{i} {WORDS}"}],
        }
        yield json.dumps(record) + (",\n" if i < n - 1 else "]")


def tau2(n: int) -> Iterator[str]:
    yield '{"tasks": [{"id": "t"}], "simulations": ['
    for i in range(n):
        record = {"id": f"u{i}", "task_id": str(i), "messages": [{"role": "user", "content": f"{i} {WORDS}"}]}
        yield json.dumps(record) + (",\n" if i < n - 1 else "]}")


def chat(n: int) -> Iterator[str]:
    for i in range(n):
        yield json.dumps({"messages": [{"role": "user", "content": f"{i} {WORDS}"}]}) + "\n"


def sessions(n: int) -> Iterator[str]:
    for i in range(n):
        record = {"session_id": f"s{i // 2}", "messages": [{"role": "user", "content": f"{i} {WORDS}"}]}
        yield json.dumps(record) + "\n"


def traces(n: int) -> Iterator[str]:
    for i in range(n):
        said = [{"role": "user", "parts": [{"type": "text", "content": f"{i} {WORDS}"}]}]
        yield (
            json.dumps({"traceId": f"t{i}", "attributes": {"gen_ai.input.messages": json.dumps(said)}}) + "\n"
        )


def claude(n: int) -> Iterator[str]:
    for i in range(n):
        message = {"role": "user", "content": f"{i} {WORDS}"}
        yield json.dumps({"type": "user", "sessionId": f"s{i}", "uuid": f"u{i}", "message": message}) + "\n"


def samples(n: int) -> Iterator[str]:
    yield '{"version": 2, "eval": {"task": "t"}, "samples": ['
    for i in range(n):
        record = {"id": i, "epoch": 1, "messages": [{"role": "user", "content": f"{i} {WORDS}"}]}
        yield json.dumps(record) + (",\n" if i < n - 1 else "]}")


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


STREAMED = [
    ("tau-bench", tau1), ("tau2", tau2), ("openai", chat), ("openai", sessions), ("otel-genai", traces),
    ("claude-code", claude), ("inspect", samples),
]  # fmt: skip


@pytest.mark.parametrize(("format_name", "records"), STREAMED)
def test_an_import_takes_no_more_memory_for_a_longer_file(
    tmp_path: Path, format_name: str, records: Callable[[int], Iterator[str]]
) -> None:
    peaks = []
    for n in (100, 2_000):
        path = tmp_path / f"r{n}.json"
        with path.open("w") as stream:
            stream.writelines(records(n))
        work = partial(import_file, format_name, path, sessions_folder=tmp_path / "s", agent_id="a")
        peaks.append(peak(work))
    grown = peaks[1] - peaks[0]
    assert grown < 0.1 * 1_900 * len(WORDS)  # names and hashes of records stay, their texts do not


def test_lines_take_no_more_memory_for_a_longer_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with path.open("w") as stream:
        stream.writelines(chat(2_000))
    assert peak(lambda: sum(1 for _ in json_lines(path, "c"))) < 2_000_000


def test_a_line_beyond_the_limit_is_refused_without_being_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
