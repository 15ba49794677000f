"""Which files paths name: folders, archives, patterns, standard input, and what is never followed or unpacked."""

import gzip
import io
import json
import os
import stat
import warnings
import zipfile
from pathlib import Path

import pytest

from agent_eval.errors import NotFoundError
from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers.auto import FileReport, import_files
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.detection import detect
from agent_eval.transcripts.importers.inputs import input_files, session_ids, spooled
from tests.transcripts.importers.samples import INSPECT_SAMPLE as SAMPLE
from tests.transcripts.importers.samples import SAMPLES, inspect_archive
from tests.transcripts.making import lines, snapshot, zipped

CHAT = SAMPLES["openai"].to_bytes()


def take(root: Path, *paths: str) -> list[FileReport]:
    return list(import_files("auto", input_files(paths), sessions_folder=root / "sessions", agent_id="a"))


def told(reports: list[FileReport]) -> dict[str, tuple[str | None, int]]:
    return {r.name: (r.format_name, r.report.n_imported if r.report else 0) for r in reports}


def test_a_folder_of_mixed_files_is_walked_and_each_is_read_in_its_format(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    for name, sample in SAMPLES.items():
        (folder / "deep" / name).write_bytes(sample.to_bytes())
    (folder / "log.eval").write_bytes(inspect_archive(SAMPLE))
    chats = zipped(**{"x/a.jsonl": CHAT, "b.json.gz": gzip.compress(CHAT), "notes.md": b"# x"})
    (folder / "chats.zip").write_bytes(chats)
    (folder / "README.md").write_text("no transcript")
    (folder / ".hidden").write_bytes(CHAT)
    (folder / "odd.json").write_text('{"what": 1}')
    reports = take(tmp_path, str(folder))
    wanted = {f"deep/{name}": (name, sample.n_conversations) for name, sample in SAMPLES.items()}
    wanted |= {"log.eval": ("inspect", 1)}
    wanted |= dict.fromkeys(("chats.zip/x/a.jsonl", "chats.zip/b.json.gz"), ("openai", 1))
    unread = dict.fromkeys(("README.md", "chats.zip/notes.md", "odd.json"), (None, 0))
    assert told(reports) == wanted | unread
    assert {r.name for r in reports if r.is_skipped} == {"README.md", "chats.zip/notes.md"}
    assert "its first record has the keys 'what'" in next(r.reason for r in reports if r.name == "odd.json")
    before = snapshot(tmp_path / "sessions")
    assert told(take(tmp_path, str(folder))) == told(reports)
    assert snapshot(tmp_path / "sessions") == before


def test_members_of_one_name_in_an_archive_are_all_imported(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(3):
            text = {"task_id": f"t{i}", "messages": [{"role": "user", "content": f"question {i}"}]}
            archive.writestr("chats.jsonl", json.dumps(text))
    reports = take(tmp_path, str(tmp_path / "twice.zip"))
    assert sum(r.report.n_imported for r in reports if r.report) == 3
    stored = "".join(f.read_text() for f in (tmp_path / "sessions").rglob("conversations.jsonl"))
    assert all(f"question {i}" in stored for i in range(3))


@pytest.mark.parametrize("blank", [" ", "\n", "\r\n\t"])
@pytest.mark.parametrize("n", [65_535, 65_536, 300_000])
def test_a_file_that_begins_with_blanks_is_not_empty(tmp_path: Path, blank: str, n: int) -> None:
    (tmp_path / "chat.jsonl").write_bytes(blank.encode() * n + CHAT)
    assert told(take(tmp_path, str(tmp_path / "chat.jsonl"))) == {"chat.jsonl": ("openai", 1)}
    (tmp_path / "chat.jsonl").write_text(blank * n)
    assert "empty" in take(tmp_path, str(tmp_path / "chat.jsonl"))[0].reason


def test_files_of_one_name_get_sessions_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "log.jsonl").write_bytes(CHAT)
    files = input_files([str(tmp_path / "in")])
    assert session_ids(files) == ["one-log", "two-log"]
    assert [r.report.n_imported for r in take(tmp_path, str(tmp_path / "in")) if r.report] == [1, 1]


def test_a_pattern_is_matched_and_one_without_a_match_is_an_error(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.txt"):
        (tmp_path / name).write_bytes(CHAT)
    assert [f.file for f in input_files([str(tmp_path / "*.jsonl")])] == ["a.jsonl", "b.jsonl"]
    with pytest.raises(NotFoundError, match="matches no file"):
        input_files([str(tmp_path / "*.csv")])
    with pytest.raises(NotFoundError, match="does not exist"):
        input_files([str(tmp_path / "nowhere")])


def test_a_file_that_is_named_in_two_ways_is_imported_once(tmp_path: Path) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path in (a, b):
        path.write_bytes(CHAT)
    found = input_files([str(tmp_path / "*.jsonl"), str(a), str(tmp_path)])
    assert [(file.path, file.is_named) for file in found] == [(a, True), (b, False)]


def test_standard_input_is_read_to_its_end_and_not_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    path = spooled(io.BytesIO(CHAT))
    try:
        assert path.read_bytes() == CHAT
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        path.unlink()
    monkeypatch.setattr("agent_eval.transcripts.importers.inputs.LARGEST_UNZIPPED", 10)
    with pytest.raises(NotFoundError, match="longer than"):
        spooled(io.BytesIO(CHAT))


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.jsonl").write_bytes(CHAT)
    (tmp_path / "in" / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (tmp_path / "in" / "folder").symlink_to(tmp_path)
    (tmp_path / "in" / "circle").symlink_to(tmp_path / "in" / "circle")
    os.mkfifo(tmp_path / "in" / "pipe")
    found = {f.name: f.reason for f in input_files([str(tmp_path / "in")])}
    assert found["link.jsonl"].startswith("a link to a file outside the folder")
    assert found["pipe"] == "not a regular file"
    assert all(f.path is None for f in input_files([str(tmp_path / "in")]))


@pytest.mark.parametrize(
    "name", ["../../outside.jsonl", "/etc/outside.jsonl", "x\\..\\outside.jsonl", "a/../../b.jsonl"]
)
def test_a_members_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.zip").write_bytes(zipped(**{name: CHAT}))
    (report,) = take(tmp_path, str(tmp_path / "in" / "x.zip"))
    assert report.report is not None
    assert report.report.folder.parent == tmp_path / "sessions" / "a"
    assert {p.name for p in tmp_path.iterdir()} == {"in", "sessions"}


def test_a_bomb_in_an_archive_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_eval.formats.streams.LARGEST_UNZIPPED", 1_000_000)
    path = tmp_path / "x.zip"
    path.write_bytes(zipped(**{"bomb.jsonl": b" " * 50_000_000}))
    (report,) = take(tmp_path, str(path))
    assert "unpacks to 50,000,000 bytes" in report.reason


def test_a_damaged_and_an_encrypted_archive_are_refused_in_a_line(tmp_path: Path) -> None:
    content = zipped(**{"a.jsonl": CHAT * 50})
    encrypted = bytearray(content)
    encrypted[6] |= 1  # the flag of the local header
    encrypted[content.index(b"PK\x01\x02") + 8] |= 1
    for name, data in {
        "cut.zip": content[:60],
        "damaged.zip": content.replace(content[60:70], b"\0" * 10),
        "locked.zip": bytes(encrypted),
    }.items():
        (tmp_path / name).write_bytes(data)
        (report,) = take(tmp_path, str(tmp_path / name))
        assert report.report is None or report.report.refusals, name
        assert "\n" not in report.reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PAR1\0\0", "a Parquet file"),
        (b"\0\1\2\3", "binary"),
        (b"name,text\n1,2\n", "it is not JSON"),
        (b"", "it is empty"),
        (b"[1, 2]", "its records are not objects"),
        (b'{"broken": ', "none of its records are JSON"),
    ],
)
def test_what_is_no_transcript_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "x").write_bytes(content)
    found = detect(Source(tmp_path / "x", "s"))
    assert found.format_name is None
    assert reason in found.reason


def test_a_large_document_is_recognised_by_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_eval.transcripts.importers.detection.LARGEST_SAMPLE", 1_000)
    (tmp_path / "x").write_text(json.dumps({"tasks": [{"id": "x" * 5_000}], "simulations": []}))
    assert detect(Source(tmp_path / "x", "s")).format_name == "tau2"


def test_long_lines_are_recognised_by_their_content(tmp_path: Path) -> None:
    said = [{"from": "human", "value": "x" * 100_000}]
    (tmp_path / "x").write_bytes(lines([{"conversations": said}] * 3))
    assert detect(Source(tmp_path / "x", "s")).format_name == "sharegpt"


def test_unfinished_sessions_are_held_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_eval.transcripts.importers.shared.layouts.MOST_HELD", 600)
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    (tmp_path / "x").write_bytes(lines({"session_id": f"s{i % 20}", "messages": said} for i in range(40)))
    found = list(FORMATS["openai"](Source(tmp_path / "x", "s")))
    refused = [f for f in found if isinstance(f, Refusal)]
    assert refused
    assert "split the file, or sort its records by conversation" in refused[0].reason


def test_an_archive_in_an_archive_is_named_and_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    inner = zipped(**{"a.jsonl": CHAT})
    (tmp_path / "in" / "x.zip").write_bytes(zipped(**{"inner.zip": inner, "a.png": b"\x89PNG"}))
    found = {r.name: (r.is_skipped, r.reason) for r in take(tmp_path, str(tmp_path / "in"))}
    assert found == {
        "x.zip/a.png": (True, "it is a picture"),
        "x.zip/inner.zip": (False, "it is a zip archive in an archive; unpack it first"),
    }
