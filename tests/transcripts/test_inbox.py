"""Files that arrive by themselves: each complete one is imported once, and what is refused is named."""

import os
from pathlib import Path

from agent_eval.transcripts.inbox import QUIET_S, Inbox, arrivals, take_in
from tests.transcripts.making import AGENT, USER, lines

NOW = 2_000_000_000.0


def put(path: Path, content: bytes, age_s: float = QUIET_S) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (NOW - age_s, NOW - age_s))


def test_complete_files_are_imported_once_and_again_when_they_change(tmp_path: Path) -> None:
    inbox, data = Inbox(str(tmp_path / "in" / "*.jsonl"), "a"), tmp_path / "data"
    (data / "sessions").mkdir(parents=True)
    chat = {"messages": [USER, AGENT]}
    put(tmp_path / "in/done.jsonl", lines([chat]))
    put(tmp_path / "in/growing.jsonl", lines([chat]), age_s=1)
    put(tmp_path / "in/bad.jsonl", b"no JSON\n")
    first = take_in([inbox], data, now=NOW)
    assert [(Path(one.file).name, one.session_id, one.n_imported) for one in first] == [
        ("bad.jsonl", None, 0),
        ("done.jsonl", "done", 1),
    ]
    assert "it is not JSON" in first[0].problems[0]
    assert take_in([inbox], data, now=NOW) == []
    put(tmp_path / "in/done.jsonl", lines([chat, {"id": "2", **chat}]), age_s=QUIET_S + 1)
    (again,) = take_in([inbox], data, now=NOW)
    assert (again.session_id, again.n_imported) == ("done", 2)
    assert len(arrivals(data)) == 2
