"""An importer that fails by an exception of its own: other records and other files are still read, and it is said."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_eval.errors import InputError
from agent_eval.transcripts.importers import catalog, detection, inputs
from agent_eval.transcripts.importers.auto import FileReport, import_files
from agent_eval.transcripts.importers.base import Found, Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.chats import openai
from agent_eval.transcripts.importers.inputs import input_files
from tests.transcripts.importers.samples import CHAT, SAMPLES
from tests.transcripts.making import lines, zipped

GOOD = SAMPLES["openai"].to_bytes()
FAULTS = [
    *(KeyError("content"), IndexError("list index out of range"), AttributeError("'int' has no 'get'")),
    *(TypeError("unhashable"), ZeroDivisionError(), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogate")),
    *(ValueError("x" * 5000), StopIteration(), RuntimeError("\x1b[31m"), RecursionError(), AssertionError()),
]


def take(root: Path, **contents: bytes) -> dict[str, FileReport]:
    """Import the folder `in` with these files added."""
    (root / "in").mkdir(exist_ok=True)
    for name, content in contents.items():
        (root / "in" / name).write_bytes(content)
    files = input_files([str(root / "in")])
    reports = import_files("auto", files, sessions_folder=root / "sessions", agent_id="a")
    return {report.name: report for report in reports}


def raising(fault: BaseException) -> Callable[..., Any]:
    def fails(*_: object) -> Any:
        raise fault

    return fails


def n_read(report: FileReport) -> int:
    return report.report.n_imported if report.report else 0


def failing(on: str, fault: BaseException) -> Callable[..., Any]:
    """The conversion of chats, which raises at each record that mentions a text."""
    convert = openai._conversation

    def converted(record: Mapping[str, Any], *more: Any) -> Any:
        if on in json.dumps(record):
            raise fault
        return convert(record, *more)

    return converted


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("bad", [0, 1, 3])
def test_a_record_on_which_an_importer_fails_is_refused_alone(
    bad: int, fault: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = [{"id": f"chat-{n}", "messages": CHAT} for n in range(4)]
    monkeypatch.setattr(openai, "_conversation", failing(f'"chat-{bad}"', fault))
    reports = take(tmp_path, **{"a.jsonl": lines(chats), "b.jsonl": GOOD})
    assert {name: n_read(one) for name, one in reports.items()} == {"a.jsonl": 3, "b.jsonl": 1}
    report = reports["a.jsonl"].report
    assert report
    (refusal,) = report.refusals
    assert (refusal.file, refusal.line, report.n_refused) == ("a.jsonl", bad + 1, 1)
    if not isinstance(fault, RecursionError):
        assert type(fault).__name__ in refusal.reason
        assert "importer of openai" in refusal.reason
        assert "please report it" in refusal.reason
    assert len(refusal.reason) <= 300


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("n_before", [0, 1])
def test_each_format_that_breaks_off_is_named_and_other_files_are_read(
    n_before: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = FORMATS[name]

    def broken_off(source: Source) -> Iterator[Found]:
        for number, item in enumerate(read(source)):
            if number >= n_before:
                raise KeyError("parts")
            yield item
        raise KeyError("parts")

    monkeypatch.setitem(dict_of(FORMATS), name, broken_off)
    other = "sharegpt" if name == "openai" else "openai"
    reports = take(tmp_path, a=SAMPLES[name].to_bytes(), b=SAMPLES[other].to_bytes())
    assert n_read(reports["b"]) == SAMPLES[other].n_conversations
    report = reports["a"].report
    assert report
    assert report.n_imported == n_before
    assert "KeyError" in report.refusals[-1].reason
    assert report.refusals[-1].line > 0, "the rest of the file counts as missing"


def test_an_importer_fails_on_a_member_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {"a.jsonl": GOOD, "b.json": SAMPLES["sharegpt"].to_bytes(), "c.jsonl": GOOD[:-1] + b" \n"}
    monkeypatch.setitem(dict_of(FORMATS), "sharegpt", raising(TypeError("unhashable type")))
    reports = take(tmp_path, **{"in.zip": zipped(**members)})
    assert [n_read(one) for one in reports.values()] == [1, 0, 1]
    assert "TypeError: unhashable type" in reports["in.zip/b.json"].report.refusals[0].reason  # type: ignore[union-attr]


def test_a_failing_test_of_a_format_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = raising(IndexError("list index out of range"))
    wrong = [e if e.name == "openai" else replace(e, looks_like=fails) for e in catalog.RECOGNISED]
    monkeypatch.setattr(detection, "RECOGNISED", tuple(wrong))
    reports = take(tmp_path, a=SAMPLES["chatgpt"].to_bytes(), b=GOOD)
    assert [n_read(one) for one in reports.values()] == [0, 1]
    assert "IndexError: list index out of range" in reports["a"].reason


def test_an_archive_with_a_member_without_a_name_and_one_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zipfile raises IndexError when it is asked whether a member without a name is a folder."""
    archive = zipped(**{"@notes.md": b"# notes", "a.jsonl": GOOD}).replace(b"@notes", b"\0notes")
    reports = take(tmp_path, **{"a.zip": archive, "b.jsonl": GOOD[:-1] + b" \n"})
    assert sorted(n_read(one) for one in reports.values()) == [0, 1, 1]

    monkeypatch.setattr(inputs, "members", raising(OverflowError("timestamp out of range")))
    reports = take(tmp_path)
    assert [n_read(one) for one in reports.values()] == [0, 1]
    assert "OverflowError: timestamp out of range" in reports["a.zip"].reason


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), MemoryError(), SystemExit(1)], ids=repr)
def test_what_is_no_fault_of_an_importer_ends_the_import(
    fault: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "_conversation", failing("role", fault))
    with pytest.raises(type(fault)):
        take(tmp_path, **{"a.jsonl": GOOD})
    assert not list((tmp_path / "sessions").rglob("*.jsonl")), "half an import was stored"


def test_a_full_disk_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = raising(OSError(28, "No space left on device"))
    monkeypatch.setattr("agent_eval.transcripts.importers.importing.write", full)
    with pytest.raises(OSError, match="No space left"):
        take(tmp_path, **{"a.jsonl": GOOD})


def dict_of(formats: Mapping[str, Any]) -> dict[str, Any]:
    assert isinstance(formats, dict)
    return formats


@pytest.mark.parametrize("depth", [100, 250, 253, 254, 255, 400, 5000])
def test_a_value_that_is_nested_too_deeply_to_be_written_is_refused_alone(depth: int, tmp_path: Path) -> None:
    deep = f'{{"messages": {json.dumps(CHAT)}, "metadata": {{"x": {"[" * depth}{"]" * depth}}}}}\n'.encode()
    content = GOOD + deep + lines([{"id": "chat-9", "messages": CHAT}])
    report = take(tmp_path, **{"a.jsonl": content})["a.jsonl"].report
    assert report
    n_stored = len((report.folder / "conversations.jsonl").read_bytes().splitlines())
    assert report.n_imported == n_stored == (3 if depth < 200 else 2 if depth > 300 else n_stored)
    assert [one.line for one in report.refusals] == ([2] if n_stored == 2 else [])


SAID = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
SIMULATION = {"task_id": "1", "messages": SAID}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"reward": 1', b'"reward": NaN'),
        (b'"task_id": "1"', b'"task_id": "1", "task_id": "1"'),
        (b'"reward": 1', b'"x": ' + b"[" * 100_000 + b"]" * 100_000),
        (b'"content": "q"', b'"content": "\xff"'),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_document_with_a_record_that_cannot_be_read_keeps_its_format_and_the_others(
    indent: int | None, old: bytes, new: bytes, tmp_path: Path
) -> None:
    simulations = [SIMULATION | {"id": f"s{n}", "trial": n, "reward_info": {"reward": 1}} for n in range(3)]
    document = json.dumps({"info": {}, "tasks": [], "simulations": simulations}, indent=indent).encode()
    report = take(tmp_path, **{"a.json": document.replace(old, new, 1)})["a.json"]
    assert (report.format_name, n_read(report)) == ("tau2", 2)
    assert report.report
    assert [one.line for one in report.report.refusals] == [1]


def test_lines_with_a_null_byte_are_read_and_not_skipped_as_binary(tmp_path: Path) -> None:
    content = GOOD + b"\0\0\0\n" + lines([{"id": "chat-9", "messages": CHAT}])
    report = take(tmp_path, **{"a.jsonl": content})["a.jsonl"]
    assert n_read(report) == 2
    assert report.report
    assert [one.line for one in report.report.refusals] == [2]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, permissions do not count, so the system calls are made to fail."""
    for name in ("closed", "open"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "a.jsonl").write_bytes(GOOD if name == "open" else GOOD[:-1] + b" \n")

    def denied(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def asked(path: Any) -> Any:
            if "closed" in Path(path).parts:
                raise PermissionError(13, "Permission denied", str(path))
            return call(path)

        return asked

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", denied(os.scandir))
        reports = take(tmp_path)
    assert {name: n_read(one) for name, one in reports.items()} == {"closed": 0, "open/a.jsonl": 1}
    assert reports["closed"].reason == "the folder cannot be read (Permission denied)"
    assert not reports["closed"].is_skipped

    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_file", denied(Path.is_file))
        reports = take(tmp_path)
    assert {name: n_read(one) for name, one in reports.items()} == {"closed/a.jsonl": 0, "open/a.jsonl": 1}
    assert "Permission denied" in reports["closed/a.jsonl"].reason


def test_an_invalid_agent_is_said_once_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(GOOD)
    files = input_files([str(tmp_path / "in")])
    with pytest.raises(InputError, match=r"Agent id .* cannot be used"):
        list(import_files("auto", files, sessions_folder=tmp_path / "s", agent_id="../x"))
