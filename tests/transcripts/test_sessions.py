import json
import os
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval.formats.validation_messages import LONGEST
from agent_eval.tables import table
from agent_eval.transcripts.importers.importing import import_file
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.sessions import IngestedSession, agent_ids, read_sessions, sessions_hash
from tests.transcripts.making import AGENT, ANY, USER, conversation, lines, write_session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "sessions" / "a"


def refusals(found: IngestedSession) -> list[tuple[str, int, str]]:
    return found.import_errors.select("file", "line", "reason").rows()


def error_of(found: IngestedSession) -> tuple[str, int, str]:
    """The only refusal."""
    (refusal,) = refusals(found)
    return refusal


def ids(found: IngestedSession) -> list[str]:
    return found.conversations["conversation_id"].to_list()


def test_a_missing_folder_has_no_sessions_and_the_right_columns(folder: Path) -> None:
    found = read_sessions("a", folder)
    for name in ("conversations", "turns", "tool_calls", "sessions", "import_errors"):
        frame = getattr(found, name)
        assert frame.is_empty()
        assert frame.schema == table(name).schema


def test_an_intervention_at_a_turn_that_is_not_there_is_refused(folder: Path, tmp_path: Path) -> None:
    def stepped_in(name: str, *indexes: int | None, **fields: object) -> dict[str, object]:
        helped = [{"kind": "help", "turn_index": i} for i in indexes]
        return conversation(name, interventions=helped, **fields)

    two_turns, failed = {"messages": [USER, AGENT] * 2}, {"messages": [], "outcome": "failed"}
    records = [
        stepped_in("good", 0, 1, None, **two_turns),
        stepped_in("beyond", 1, 2, **two_turns),
        stepped_in("one", 1),
        stepped_in("none", 0, **failed),
        stepped_in("general", None, **failed),
    ]
    reasons = [
        "interventions[1].turn_index is 2, but the conversation has 2 turns; allowed: 0 to 1, or null",
        "interventions[0].turn_index is 1, but the conversation has 1 turn; allowed: 0 to 0, or null",
        "interventions[0].turn_index is 0, but the conversation has 0 turns; allowed: null",
    ]
    write_session(folder, "s1", records)
    found = read_sessions("a", folder)
    assert ids(found) == ["good", "general"]
    assert refusals(found) == [("s1/conversations.jsonl", i + 2, r) for i, r in enumerate(reasons)]
    path = tmp_path / "f.jsonl"
    path.write_bytes(lines(records))
    report = import_file("openai", path, sessions_folder=tmp_path / "imported", agent_id="a")
    assert report.n_imported == 2
    assert [(r.line, r.reason) for r in report.refusals] == [(i + 2, r) for i, r in enumerate(reasons)]


BIG = "a" * 3_000
LARGE: dict[str, dict[str, object]] = {
    "a text": {"messages": [USER, {"role": "assistant", "content": BIG}]},
    "arguments": {"messages": [USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"x": BIG}}]}]},
    "many messages": {"messages": [USER] * 21},
    "knowledge": {"messages": [USER], "knowledge": [BIG]},
    "metadata": {"messages": [USER], "metadata": {"x": [BIG]}},
}  # fmt: skip


@pytest.mark.parametrize("fields", LARGE.values(), ids=LARGE)
def test_a_conversation_that_is_too_large_to_judge_is_refused_alone_imported_or_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    monkeypatch.setattr("agent_eval.transcripts.models.MOST_BYTES", 2_500)
    monkeypatch.setattr("agent_eval.transcripts.models.MOST_MESSAGES", 20)
    large = {"conversation_id": "large", **fields}
    records = [conversation("small"), large, conversation("last")]
    write_session(folder, "s", records)
    found = read_sessions("a", folder)
    assert ids(found) == ["small", "last"]
    path = tmp_path / "f.jsonl"
    path.write_bytes(lines(records))
    report = import_file("openai", path, sessions_folder=tmp_path / "imported", agent_id="a")
    assert report.n_imported == 2
    places = [error_of(found), *((r.file, r.line, r.reason) for r in report.refusals)]
    assert [(file, line) for file, line, _ in places] == [("s/conversations.jsonl", 2), ("f.jsonl", 2)]
    assert all("allowed: 20 messages and 0 MB" in reason for _, _, reason in places)


def test_a_conversation_without_a_task_belongs_to_no_task_set(folder: Path) -> None:
    yaml = "methodology_versions: any\ntask_set: orders\n"
    write_session(folder, "s1", [conversation("c"), conversation("d", task_id="t")], yaml=yaml)
    rows = read_sessions("a", folder).conversations
    assert dict(rows.select("conversation_id", "task_set").iter_rows()) == {"c": None, "d": "orders"}


def test_a_session_becomes_rows_of_five_tables(folder: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [call], "cost_usd": 0.25, "latency_ms": 10},
        {"role": "tool", "tool_call_id": "c1", "content": "sent", "is_error": False},
        {**AGENT, "cost_usd": 0.5, "latency_ms": 5},
        {"role": "user", "content": "Thanks", "cost_usd": 9.0},
    ]
    yaml = "methodology_versions: ['1.3.0']\nbenchmark_id: spring\ndate: 2026-04-10\nlinks: {D4: hallucination}\ntask_set: orders\n"
    talk = conversation("c", messages=messages, task_id="t", trial=2, scenario="D4")
    write_session(folder, "s1", [talk], yaml=yaml)
    found = read_sessions("a", folder)
    assert refusals(found) == []
    stated = {"benchmark_id": "spring", "session_date": date(2026, 4, 10)}
    stated |= {"methodology_versions": ["1.3.0"], "links": '{"D4": "hallucination"}'}
    assert stated.items() <= found.sessions.row(0, named=True).items()
    known = {"session_id": "s1", "task_set": "orders", "trial": 2, "scenario": "D4"}
    known |= {"n_turns": 2, "n_user_messages": 2, "n_agent_messages": 2, "n_tool_calls": 1}
    known |= {"cost_usd": 0.75}  # the agent's two messages, not the user's
    assert known.items() <= found.conversations.row(0, named=True).items()
    first, second = found.turns.rows(named=True)
    assert (first["user_message"], first["agent_message"]) == ("Where is my order?", "It has left.")
    assert (first["latency_ms"], first["n_tool_calls"]) == (15.0, 1)
    assert (second["user_message"], second["agent_message"]) == ("Thanks", None)
    assert json.loads(first["messages"])[1]["tool_calls"][0]["arguments"] == {"id": 7}
    made = {"name": "find", "arguments": '{"id": 7}', "result": "sent", "is_error": False}
    assert (made | {"requestor": "assistant"}).items() <= found.tool_calls.row(0, named=True).items()


@pytest.mark.parametrize(
    ("costs", "metadata", "expected"),
    [
        ([None, None], {}, None),
        ([None, 0.5], {}, 0.5),
        ([0.25, 0.5], {"agent_cost_usd": 2}, 2.0),
        ([None, None], {"agent_cost_usd": True}, None),
        ([None, 0.5], {"agent_cost_usd": "much"}, 0.5),
    ],
)
def test_the_cost_is_declared_or_the_sum_of_what_is_known_and_never_zero_for_unknown(
    folder: Path, costs: list[float | None], metadata: dict[str, object], expected: float | None
) -> None:
    messages = [USER, *({**AGENT, "cost_usd": cost} for cost in costs)]
    write_session(folder, "s1", [conversation("c", messages=messages, metadata=metadata)])
    assert read_sessions("a", folder).conversations["cost_usd"].to_list() == [expected]


def talk(**fields: object) -> bytes:
    """A line with a user message and these fields."""
    return json.dumps({"conversation_id": "x", "messages": [{"role": "user"}], **fields}).encode()


LINES: list[tuple[bytes, str]] = [
    (talk()[:40], "not JSON"),
    (b"[1, 2]", "the line is not a JSON object"),
    (b"null", "the line is not a JSON object"),
    (b"\xff\xfe", "not UTF-8 at byte 1"),
    (talk(messages=[{"content": "hi"}]), "messages[0].role is missing"),
    (talk(messages=[]), "messages is empty"),
    (talk(conversation_id=""), "conversation_id"),
    (b'{"messages": [{"role": "user"}]}', "conversation_id is missing"),
    (talk(messages=[{"role": "user"}, {"role": "robot"}]), "messages[1].role is 'robot'; allowed: 'system'"),
    (talk(messages=[{"role": "user", "mood": 1}]), "unknown key messages[0].mood; allowed: role, content"),
    (talk(score=1), "unknown key score; allowed: conversation_id"),
    (talk(trial=1).replace(b": 1", b": 1e3000"), "the number 1e3000 is too large"),
    (talk(trial=2**63), "trial is 9223372036854775808"),
    (talk(outcome={"reward": float("nan")}), "NaN is not valid JSON"),
    (talk(metadata=1).replace(b": 1", b': {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}"), "nested too deeply"),
    (talk(metadata=1).replace(b": 1", b': {"a": ' + b"[" * 300 + b"]" * 300 + b"}"), "metadata"),
    (talk(conversation_id="good"), "conversation_id 'good' is twice in this session"),
    (talk(**{"k" * 5000: "v" * 5000}), "unknown key kkk"),  # never dumped
    (talk(scenario="z" * 5000), "scenario is 'zzz"),
]


@pytest.mark.parametrize(("line", "reason"), LINES, ids=[reason for _, reason in LINES])
def test_a_bad_line_is_refused_alone_with_its_number_and_key(folder: Path, line: bytes, reason: str) -> None:
    write_session(folder, "s1", lines([conversation("good")]) + line + b"\n" + lines([conversation("last")]))
    found = read_sessions("a", folder)
    assert ids(found) == ["good", "last"]
    file, number, said = error_of(found)
    assert (file, number) == ("s1/conversations.jsonl", 2)
    assert reason in said
    assert len(said) <= LONGEST
    assert "\n" not in said


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept(folder: Path) -> None:
    text = b'{"conversation_id": "x", "messages": [{"role": "user", "content": "a\\ud800b \\ud83d\\ude00"}, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{\\"q\\": \\"\\\\udfff\\"}"}]}]}'
    write_session(folder, "s1", text)
    found = read_sessions("a", folder)
    assert found.turns["user_message"].to_list() == ["a\ufffdb 😀"]
    assert found.tool_calls["arguments"].to_list() == ['{"q": "\ufffd"}']


def test_a_byte_order_mark_blank_lines_and_a_missing_last_newline_do_no_harm(folder: Path) -> None:
    content = b"\xef\xbb\xbf" + lines([conversation("a")]) + b"\r\n\n" + lines([conversation("b")]).rstrip()
    write_session(folder, "s1", content)
    found = read_sessions("a", folder)
    assert (ids(found), refusals(found)) == (["a", "b"], [])


def test_of_two_sessions_with_one_conversation_id_the_first_by_name_counts(folder: Path) -> None:
    write_session(folder, "s2", [conversation("c", goal="second")])
    write_session(folder, "s1", [conversation("c", goal="first")])
    found = read_sessions("a", folder)
    assert found.conversations["goal"].to_list() == ["first"]
    assert refusals(found)[0][:2] == ("s2/conversations.jsonl", 1)
    assert "already in session 's1'" in refusals(found)[0][2]


@pytest.mark.parametrize(
    ("yaml", "line", "reason"),
    [
        ("", 1, "methodology_versions is missing"),
        ("methodology_versions: 1.3.0", 1, "methodology_versions must be 'any' or a list of texts"),
        ("methodology_versions: [1.1]", 1, "methodology_versions must be 'any' or a list of texts"),
        ("methodology_versions: []", 1, "methodology_versions is empty"),
        ("methodology_versions: ['1.3.0', '1.2.0', '1.3.0']", 1, "names 1.3.0 more than once; name each"),
        ("methodology_versions: ['1.3']", 1, "version '1.3' is not MAJOR.MINOR.PATCH, e.g. 1.3.0"),
        ("methodology_versions: [latest]", 1, "version 'latest' is not MAJOR.MINOR.PATCH, e.g. 1.3.0"),
        ("methodology_versions: [any, 1.3.0]", 1, "or write any instead of the list"),
        (ANY + "colour: red", 2, "unknown key colour; allowed: session_id, methodology_versions"),
        (ANY + "session_id: other", 2, "session_id is 'other' in the folder 'bad'"),
        (ANY + "u3_scope: some", 2, "u3_scope is 'some'; allowed: 'single_message' or 'multi_turn'"),
        (ANY + "links: {D9: hallucination}", 2, "links.D9 (the key) is 'D9'; allowed: 'D1'"),
        (ANY + "date: soon", 2, "date is 'soon'; allowed: a date such as 2026-04-09"),
        ("evaluator: Mira\ndate: 2026-04-01\nmethodology_versions: []", 3, "methodology_versions is empty"),
        (
            "date: 2026-04-01\nmethodology_versions:\n- 1.3.0\n- 1.2",
            2,
            "methodology_versions must be 'any' or",
        ),
        (ANY + "links: {D1: hallucination}", 2, "links: D1 cannot serve as the hallucination test, only D4"),
        (ANY + "date: 2026-04-01\nlinks:\n  D4: error_injection\n  D5: hallucination", 3, "links: D5 cannot"),
        (ANY + "links:\n  D1: hallucination\n  D4: x", 4, "links.D4 is 'x'; allowed"),
        (ANY + "session_id: bad\ndate: 2099-01-01", 3, "date is 2099-01-01, which is in the future"),
        (ANY + "date: [", 3, "not YAML"),
        (ANY + "notes: a\nnotes: b", 3, "the key notes is given twice"),
        ("- any", 1, "expected a mapping"),
    ],
)
def test_a_bad_session_file_leaves_out_its_session(folder: Path, yaml: str, line: int, reason: str) -> None:
    write_session(folder, "bad", [conversation("x")], yaml=yaml)
    write_session(folder, "good", [conversation("y")])
    found = read_sessions("a", folder)
    assert ids(found) == ["y"]
    assert found.sessions["session_id"].to_list() == ["good"]
    file, number, said = error_of(found)
    assert (file, number) == ("bad/session.yaml", line)
    assert reason in said


def test_things_that_are_no_session_are_refused_by_name(folder: Path) -> None:
    write_session(folder, "good", [conversation("y")])
    write_session(folder, "Bad|Name", [conversation("x")])
    write_session(folder, "empty", b"")
    (folder / "readme.txt").write_text("hello")
    (folder / ".hidden").mkdir()
    (folder / "bare").mkdir()
    (write_session(folder, "lonely", [conversation("z")]) / "conversations.jsonl").unlink()
    nested = write_session(folder, "nested", [conversation("w")])
    (nested / "conversations.jsonl").unlink()
    (nested / "conversations.jsonl").mkdir()
    wanted = {
        "Bad|Name": "cannot be an id",
        "empty/conversations.jsonl": "contains no conversations",
        "readme.txt": "",
        "bare/session.yaml": "the file is missing",
        "lonely/conversations.jsonl": "",
        "nested/conversations.jsonl": "a folder; expected a file",
    }
    said = {file: reason for file, _, reason in refusals(read_sessions("a", folder))}
    assert said.keys() == wanted.keys()
    assert all(wanted[file] in reason for file, reason in said.items()), said
    assert ids(read_sessions("a", folder)) == ["y"]


def test_only_links_within_the_data_folder_are_followed(folder: Path, tmp_path: Path) -> None:
    outside = write_session(tmp_path / "elsewhere", "s0", [conversation("secret")])
    write_session(folder, "s1", [conversation("x")])
    (folder / "s2").symlink_to(outside)
    (folder / "s3").symlink_to(folder / "s1")
    write_session(folder, "s4", b"")
    (folder / "s4" / "conversations.jsonl").unlink()
    (folder / "s4" / "conversations.jsonl").symlink_to(outside / "conversations.jsonl")
    found = read_sessions("a", folder)
    assert ids(found) == ["x"]
    said = {file: reason for file, _, reason in refusals(found)}
    assert "leads out" in said["s2"]
    assert "leads out" in said["s4/conversations.jsonl"]
    assert "already in session 's1'" in said["s3/conversations.jsonl"]
    before = sessions_hash(None, folder)
    (outside / "conversations.jsonl").write_text("changed")
    assert sessions_hash(None, folder) == before


def test_what_an_importer_refused_is_told_again(folder: Path) -> None:
    session = write_session(folder, "s1", [conversation("x")])
    earlier = [{"file": "big.json.gz", "line": 7, "reason": "no messages"}, {"line": "?"}]
    (session / "import_errors.jsonl").write_bytes(lines(earlier))
    first, second = refusals(read_sessions("a", folder))
    assert first == ("big.json.gz", 7, "no messages")
    assert second[:2] == ("s1/import_errors.jsonl", 2)


def test_agent_ids_are_the_folders_with_valid_names(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    assert agent_ids(sessions) == ([], [])
    for name in ("b", "a", "A|1", ".git"):
        (sessions / name).mkdir(parents=True)
    (sessions / "file").write_text("")
    found, refused = agent_ids(sessions)
    assert found == ["a", "b"]
    assert [r.file for r in refused] == ["A|1", "file"]


def test_the_data_version_follows_names_and_bytes_and_the_declaration_only(folder: Path) -> None:
    assert sessions_hash(None, folder) == sessions_hash(None, folder.parent)  # missing and empty are one
    session = write_session(folder, "s1", [conversation("x")])
    version = sessions_hash(None, folder)
    os.utime(session / "session.yaml", (1, 1))
    (session / "notes.txt").write_text("not read")
    assert sessions_hash(None, folder) == version
    assert sessions_hash(Agent(agent_id="a"), folder) != version
    changed = [version]
    (session / "conversations.jsonl").write_bytes(lines([conversation("y")]))
    changed.append(sessions_hash(None, folder))
    (session / "import_errors.jsonl").write_text("{}")
    changed.append(sessions_hash(None, folder))
    session.rename(folder / "s2")
    changed.append(sessions_hash(None, folder))
    assert len(set(changed)) == 4


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = "conversation_id messages trial tools expected outcome interventions metadata knowledge"
keys = st.sampled_from(f"{KEYS} role content tool_calls name arguments reward latency_ms".split())
shaped = st.dictionaries(
    keys, anything | st.lists(st.dictionaries(keys, anything, max_size=4), max_size=3), max_size=6
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bad=st.one_of(st.binary(max_size=60), shaped.map(lambda value: json.dumps(value).encode())))
def test_whatever_a_line_holds_others_are_read(tmp_path_factory: pytest.TempPathFactory, bad: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz") / "a"
    bad = bad.replace(b"\n", b" ")
    write_session(folder, "s1", lines([conversation("first")]) + bad + b"\n" + lines([conversation("last")]))
    found = read_sessions("a", folder)
    assert {"first", "last"} <= set(ids(found))
    assert found.conversations.height + found.import_errors.height in (2, 3)
    assert all(len(reason) <= LONGEST for _, _, reason in refusals(found))
