"""What holds for every format: ids, refusals, idempotence, whole sessions or none."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_eval.errors import AgentEvalError, InputError, NotFoundError
from agent_eval.transcripts.importers.importing import ImportReport, default_session_id, import_file
from agent_eval.transcripts.sessions import read_sessions
from tests.transcripts.making import AGENT, USER, lines, snapshot

CHAT = [{"messages": [USER, AGENT], "task_id": "t1"}, {"messages": [USER, AGENT], "task_id": "t2"}]


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return tmp_path / "data" / "sessions"


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "Chat log.jsonl"
    path.write_bytes(lines(CHAT))
    return path


def stored(report: ImportReport) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (report.folder / "conversations.jsonl").read_text().splitlines()]


def take(path: Path, sessions: Path, format_name: str = "openai", **options: Any) -> ImportReport:
    return import_file(format_name, path, sessions_folder=sessions, **{"agent_id": "a", **options})


def test_an_import_writes_a_session_that_reads_back_without_refusals(chat: Path, sessions: Path) -> None:
    report = take(chat, sessions)
    assert (report.session_id, report.n_imported, report.n_refused) == ("chat-log", 2, 0)
    assert (report.is_changed, report.folder) == (True, sessions / "a" / "chat-log")
    assert sorted(p.name for p in report.folder.iterdir()) == ["conversations.jsonl", "session.yaml"]
    taken = read_sessions("a", sessions / "a")
    assert taken.import_errors.is_empty()
    assert taken.sessions["methodology_versions"].to_list() == [["any"]]
    assert taken.conversations["task_set"].to_list() == ["openai", "openai"]
    sources = taken.conversations["source"].to_list()
    assert sources[1].startswith("openai:Chat log.jsonl#2 sha256:")
    assert len(sources[1].rpartition(":")[2]) == 64


def test_importing_the_same_again_touches_nothing(chat: Path, sessions: Path) -> None:
    take(chat, sessions)
    before = snapshot(sessions)
    report = take(chat, sessions)
    assert (report.n_imported, report.is_changed) == (2, False)
    assert snapshot(sessions) == before
    assert [p.name for p in (sessions / "a").iterdir()] == ["chat-log"]


def test_a_changed_file_of_the_same_name_replaces_its_session(chat: Path, sessions: Path) -> None:
    chat.write_bytes(lines(CHAT) + b"broken\n")
    folder = take(chat, sessions).folder
    assert (folder / "import_errors.jsonl").is_file()
    chat.write_bytes(lines(CHAT[:1]))
    report = take(chat, sessions)
    assert (report.n_imported, report.is_changed) == (1, True)
    assert sorted(p.name for p in folder.iterdir()) == ["conversations.jsonl", "session.yaml"]


def test_conversations_that_a_changed_file_no_longer_has_are_counted(tmp_path: Path, sessions: Path) -> None:
    path = tmp_path / "f.json"
    trials = [{"task_id": 0, "trial": i, "reward": float(i < 5), "traj": [USER]} for i in range(20)]

    def counts(records: list[dict[str, Any]]) -> tuple[int, int, int]:
        path.write_text(json.dumps(records))
        report = take(path, sessions, "tau-bench")
        return report.n_imported, report.n_before, report.n_removed

    assert counts(trials) == (20, 0, 0)
    assert counts(trials) == (20, 20, 0)
    assert counts([{"broken": 1}]) == (0, 20, 0)  # the session stays as it is
    assert counts(trials[:5]) == (5, 20, 15)
    assert counts(trials[:5]) == (5, 5, 0)
    assert counts([trials[4], trials[6]]) == (2, 5, 4)
    assert counts(trials) == (20, 2, 0)


def test_what_was_added_by_hand_survives_a_second_import(chat: Path, sessions: Path) -> None:
    folder = take(chat, sessions).folder
    with (folder / "session.yaml").open("a") as stream:
        stream.write("u3_scope: multi_turn  # as disclosed\n")
    (folder / "notes.md").write_text("ours")
    assert not take(chat, sessions).is_changed
    chat.write_bytes(lines(CHAT[:1]))
    assert take(chat, sessions).is_changed
    assert "# as disclosed" in (folder / "session.yaml").read_text()
    assert take(chat, sessions, methodology_versions=("1.3.0",)).is_changed
    after = yaml.safe_load((folder / "session.yaml").read_text())
    assert (after["u3_scope"], after["methodology_versions"]) == ("multi_turn", ["1.3.0"])
    assert (folder / "notes.md").read_text() == "ours"


def test_a_session_of_another_file_or_of_no_import_is_left_alone(chat: Path, sessions: Path) -> None:
    take(chat, sessions, session_id="s")
    other = chat.with_name("other.jsonl")
    other.write_bytes(lines(CHAT[:1]))
    before = snapshot(sessions)
    contains = r"contains the import of openai:Chat log.jsonl.*another session id"
    with pytest.raises(InputError, match=contains):
        take(other, sessions, session_id="s")
    assert snapshot(sessions) == before
    own = sessions / "a" / "own"
    own.mkdir()
    with pytest.raises(InputError, match="not written by an import"):
        take(other, sessions, session_id="own")
    assert list(own.iterdir()) == []


def test_two_files_with_the_same_tasks_are_two_sessions_named_as_asked(chat: Path, sessions: Path) -> None:
    take(chat, sessions, session_id="run-1")
    take(chat, sessions, session_id="run-2", methodology_versions=("1.2.0", "1.3.0"), task_set="orders")
    taken = read_sessions("a", sessions / "a")
    assert taken.import_errors.is_empty()
    versions = {"run-1": ["any"], "run-2": ["1.2.0", "1.3.0"]}
    assert dict(taken.sessions.select("session_id", "methodology_versions").iter_rows()) == versions
    assert sorted(taken.conversations["task_set"]) == ["openai", "openai", "orders", "orders"]


def test_refused_records_are_kept_and_told_by_the_reader(chat: Path, sessions: Path) -> None:
    chat.write_bytes(lines(CHAT[:1]) + b'{"messages": 3}\n' + b"{bro\n" + lines(CHAT[1:]))
    report = take(chat, sessions)
    assert (report.n_imported, report.n_refused) == (2, 2)
    assert [(r.file, r.line) for r in report.refusals] == [("Chat log.jsonl", 2), ("Chat log.jsonl", 3)]
    errors = read_sessions("a", sessions / "a").import_errors
    assert errors.select("session_id", "file", "line", "reason").rows() == [
        ("chat-log", r.file, r.line, r.reason) for r in report.refusals
    ]


def test_a_file_of_refused_records_only_leaves_a_session_that_counts_them(chat: Path, sessions: Path) -> None:
    good = chat.read_text()
    chat.write_text("{bro\n[]\n")
    report = take(chat, sessions)
    assert (report.n_imported, report.n_refused, report.is_changed) == (0, 2, True)
    assert not take(chat, sessions).is_changed
    read = read_sessions("a", sessions / "a")
    assert read.import_errors["line"].to_list() == [1, 2]
    assert read.conversations.is_empty()
    assert read.sessions["session_id"].to_list() == ["chat-log"]

    chat.write_text(good)
    assert take(chat, sessions).n_imported > 0
    assert read_sessions("a", sessions / "a").import_errors.is_empty()
    before = snapshot(sessions)
    chat.write_text("{bro\n")  # does not disturb the earlier import
    assert not take(chat, sessions).is_changed
    assert snapshot(sessions) == before


def test_an_import_that_dies_leaves_nothing(
    chat: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("agent_eval.transcripts.importers.importing.put_in_place", dies)
        with pytest.raises(KeyboardInterrupt):
            take(chat, sessions)
    assert list((sessions / "a").iterdir()) == []
    (sessions / "a" / ".chat-log.new").mkdir()  # as a killed process leaves it
    assert take(chat, sessions).is_changed
    assert [p.name for p in (sessions / "a").iterdir()] == ["chat-log"]


@pytest.mark.parametrize("agent_id", ["a|b", "../up", "", "Å", ".hidden", "a/b", "x" * 129, "a\n"])
def test_an_id_that_is_no_slug_is_refused(chat: Path, sessions: Path, agent_id: str) -> None:
    with pytest.raises(InputError, match="Allowed: lower-case letters"):
        take(chat, sessions, agent_id=agent_id)
    with pytest.raises(InputError, match=r"Session id .* cannot be used"):
        take(chat, sessions, session_id=agent_id)
    assert not sessions.exists()


def test_an_unknown_format_names_the_known_ones(chat: Path, sessions: Path) -> None:
    known = r"'csv' is not known\. Formats: agentest, atif, .*, openai, .*, tau-bench, tau2, whowhen"
    with pytest.raises(NotFoundError, match=known):
        take(chat, sessions, "csv")


def test_a_missing_file_a_folder_and_an_empty_file_are_named(tmp_path: Path, sessions: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        take(tmp_path / "none.json", sessions)
    with pytest.raises(NotFoundError, match="is a folder"):
        take(tmp_path, sessions)
    for name, content in (("empty.jsonl", b""), ("blank.jsonl", b" \n\n"), ("e.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(NotFoundError, match="is empty"):
            take(tmp_path / name, sessions)


def test_a_link_out_of_the_sessions_folder_is_not_written_through(chat: Path, sessions: Path) -> None:
    outside = chat.with_name("outside")
    outside.mkdir()
    sessions.mkdir(parents=True)
    (sessions / "a").symlink_to(outside)
    with pytest.raises(AgentEvalError, match="outside the sessions folder"):
        take(chat, sessions)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("format_name", ["openai", "tau2", "tau-bench"])
@pytest.mark.parametrize(
    "content", [b"\x1f\x8b\x08garbage", b"\x00\x01\x02", b"{", b"[", b"3", b"null", b'"text"', b"\xff{}"]
)
def test_rubbish_gives_a_refusal_and_no_conversation(
    tmp_path: Path, sessions: Path, format_name: str, content: bytes
) -> None:
    path = tmp_path / "rubbish.json"
    path.write_bytes(content)
    report = take(path, sessions, format_name)
    assert report.n_imported == 0
    assert report.n_refused >= 1
    assert read_sessions("a", sessions / "a").conversations.is_empty()


@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("airline__gpt-4o__4trials.json.gz", "airline__gpt-4o__4trials"),
        ("My Run (2).jsonl", "my-run-2"),
        ("..", "session"),
        ("ÅÄÖ.json", "session"),
        ("-x.JSON", "x"),
        ("y" * 300 + ".json", "y" * 128),
    ],
)
def test_the_default_session_is_the_slug_of_the_files_stem(name: str, session: str) -> None:
    assert default_session_id(name) == session


def test_a_truncated_gzip_keeps_the_records_before_the_break(tmp_path: Path, sessions: Path) -> None:
    texts = enumerate(f"{i * 7919:x} " * 50 for i in range(500))
    many = [{"messages": [{"role": "user", "content": text}], "task_id": str(i)} for i, text in texts]
    whole = gzip.compress(lines(many))
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    report = take(path, sessions)
    assert 50 < report.n_imported < 500
    assert "the rest of the file cannot be read" in report.refusals[-1].reason
    assert [one["task_id"] for one in stored(report)] == [str(i) for i in range(report.n_imported)]


@pytest.mark.parametrize(
    "sign", "\x07\n\u200b\u200d\u202e\u2066\ufeff\u2028\U000e0041\u034f\ufe0f\u3164\uffff"
)
def test_an_id_with_an_invisible_character_is_refused(chat: Path, sessions: Path, sign: str) -> None:
    chat.write_bytes(lines([{**CHAT[0], "id": f"order{sign}1"}, {**CHAT[1], "id": "order é 订单"}]))
    report = take(chat, sessions)
    assert (report.n_imported, report.n_refused) == (1, 1)
    assert f"U+{ord(sign):04X}" in report.refusals[0].reason
    assert report.refusals[0].reason.isprintable()


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_trials_of_tasks_that_look_the_same_are_trials_of_one_task(chat: Path, sessions: Path) -> None:
    names = (COMPOSED, DECOMPOSED, COMPOSED)
    chat.write_bytes(lines({**CHAT[0], "id": None, "task_id": name} for name in names))
    report = take(chat, sessions)
    assert (report.n_imported, report.n_refused) == (3, 0)
    assert [(one["task_id"], one["trial"]) for one in stored(report)] == [(COMPOSED, i) for i in range(3)]


def test_ids_that_look_the_same_are_one_id(chat: Path, sessions: Path) -> None:
    chat.write_bytes(lines({**CHAT[0], "id": name} for name in (COMPOSED, DECOMPOSED)))
    report = take(chat, sessions)
    assert (report.n_imported, report.n_refused) == (1, 1)
    other = chat.with_name("other.jsonl")
    other.write_bytes(lines([{**CHAT[0], "id": DECOMPOSED}]))
    assert "already in session" in take(other, sessions).refusals[0].reason


def test_the_conversation_that_an_import_shows_is_the_first_with_a_question(
    tmp_path: Path, sessions: Path
) -> None:
    path = tmp_path / "in.jsonl"
    lost = {"task_id": "t0", "error": "RateLimitError: 429"}
    for records, shown in (([lost, *CHAT], "t1"), ([lost], "t0")):
        path.write_bytes(lines(records))
        report = take(path, sessions)
        assert report.first is not None
        assert report.first.task_id == shown
