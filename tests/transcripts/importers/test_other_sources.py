"""Files as people have them: exports, wrapped and spread chats, tables, encodings; and what is named with a reason."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agent_eval.transcripts.importers.auto import FileReport, import_files
from agent_eval.transcripts.importers.inputs import input_files
from agent_eval.transcripts.sessions import read_sessions
from tests.transcripts.importers.samples import CHATGPT, CLAUDE_AI, LANGSMITH
from tests.transcripts.making import lines, zipped

HI: dict[str, Any] = {"role": "user", "content": "Hi"}
HO: dict[str, Any] = {"role": "assistant", "content": "Ho"}
CHAT = [HI, HO]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
WITH_CALL = [
    HI,
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "1"},
    HO,
]
TWO = lines([{"messages": CHAT}, {"messages": [HO, *CHAT, *CHAT]}])


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def tar() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        entry = tarfile.TarInfo("chats.jsonl")
        entry.size = len(TWO)
        archive.addfile(entry, io.BytesIO(TWO))
    return content.getvalue()


READ: dict[str, tuple[bytes, tuple[int, int, int]]] = {
    # content → conversations, turns, tool calls
    "fine-tuning with weights": (lines([{"messages": [HI, {**HO, "weight": 1}]}, {"messages": WITH_CALL, "tools": []}]), (2, 2, 1)),
    "LMSYS": (lines([{"conversation_id": "x", "model": "m", "conversation": CHAT, "turn": 1}]), (1, 1, 0)),
    "turns": (lines([{"turns": CHAT}]), (1, 1, 0)),
    "history": (lines([{"id": "h", "history": CHAT}]), (1, 1, 0)),
    "conversations with roles": (lines([{"conversations": CHAT}]), (1, 1, 0)),
    "messages as JSON text": (lines([{"messages": json.dumps(CHAT)}]), (1, 1, 0)),
    "roles in capitals": (lines([{"messages": [{**HI, "role": "User"}, {**HO, "role": "Assistant"}]}]), (1, 1, 0)),
    "LangChain": (lines([{"messages": [{"type": "human", "content": "Hi"}, {"type": "ai", "content": "Ho"}]}]), (1, 1, 0)),
    "LangChain list": (text([{"type": "human", "data": {"content": "Hi"}}, {"type": "ai", "data": {"content": "Ho"}}]), (1, 1, 0)),
    "LangGraph state": (text({"values": {"messages": [{"type": "human", "content": "Hi"}, {"type": "ai", "content": "Ho"}]}}), (1, 1, 0)),
    "Open WebUI": (text([{"id": "x", "title": "t", "chat": {"messages": CHAT}}]), (1, 1, 0)),
    "Gemini": (
        text({"systemInstruction": {"parts": [{"text": "Be brief."}]},
              "contents": [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [{"text": "Ho"}]}]}),
        (1, 1, 0),
    ),
    "Bedrock": (
        lines([{"messages": [
            {"role": "user", "content": [{"text": "Hi"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"text": "1"}]}}]},
            {"role": "assistant", "content": [{"text": "Ho"}]}]}]),
        (1, 1, 1),
    ),
    "a list of chats under a key": (text({"data": [{"messages": CHAT}, {"messages": [HO, HI, HO, HI, HO]}]}), (2, 3, 0)),
    "chats without ids under conversations": (text({"conversations": [{"messages": CHAT}]}), (1, 1, 0)),
    "a message a line": (lines([*CHAT, *CHAT]), (1, 2, 0)),
    "messages of two conversations": (lines([{"thread_id": n, **m} for m in CHAT for n in ("a", "b")]), (2, 2, 0)),
    "an array of them": (text([{"session_id": n, **m} for m in CHAT for n in (1, 2)]), (2, 2, 0)),
    "CSV of messages": (b"conversation_id,role,content\n1,user,\"Hi, you\"\n2,user,Hi\n1,assistant,\"Ho\nHo\"\n2,assistant,Ho\n", (2, 2, 0)),
    "CSV of Excel": (b"\xef\xbb\xbfsession_id;Sender;Message\r\n1;human;Hi\r\n1;bot;Ho\r\n", (1, 1, 0)),
    "tabs": (b"role\tcontent\nuser\tHi\nassistant\tHo\n", (1, 1, 0)),
    "CSV with a column of messages": (b'id,messages\nx,"' + text(WITH_CALL).replace(b'"', b'""') + b'"\n', (1, 1, 1)),
    "CSV of LangSmith": (b'id,run_type,inputs,outputs\nr,llm,"{""input"": ""Hi""}","{""output"": ""Ho""}"\n', (1, 1, 0)),
    "UTF-16 of PowerShell": (TWO.decode().encode("utf-16"), (2, 3, 0)),
    "UTF-16, big end first": (b"\xfe\xff" + TWO.decode().encode("utf-16-be"), (2, 3, 0)),
    "line ends of Windows": (TWO.replace(b"\n", b"\r\n"), (2, 3, 0)),
    "blank lines": (b"\n" + TWO.replace(b"\n", b"\n\n"), (2, 3, 0)),
    "ChatGPT's export": (zipped(**{"conversations.json": text(CHATGPT), "user.json": text({"id": "u", "email": "e"}), "shared_conversations.json": b"[]"}), (1, 1, 1)),
    "claude.ai's export": (zipped(**{"conversations.json": text(CLAUDE_AI), "users.json": text([{"full_name": "n", "email_address": "e"}])}), (1, 1, 1)),
    "LangSmith with inner runs": (lines([{**LANGSMITH[0], "child_runs": LANGSMITH[1:]}]), (1, 1, 1)),
    "LangSmith's root run": (lines([{**LANGSMITH[0]}]), (1, 1, 0)),
}  # fmt: skip
REFUSED: dict[str, tuple[bytes, str]] = {
    "preference pairs": (lines([{"prompt": "Hi", "chosen": CHAT, "rejected": CHAT}]), "preference pairs: it contains two replies"),
    "preference pairs of OpenAI": (lines([{"input": {"messages": [HI]}, "preferred_output": [HO], "non_preferred_output": [HO]}]), "preference pairs: "),
    "batch output": (lines([{"custom_id": "1", "response": {"body": {"choices": []}}}]), "batch responses: it contains responses without their requests"),
    "batch input": (lines([{"custom_id": "1", "body": {"messages": [HI]}}]), "batch requests: "),
    "exchanges": (lines([{"prompt": "Hi", "completion": "Ho"}]), "single exchanges: it is unknown whether the second text"),
    "exchanges in CSV": (b"question,answer\na,b\n", "single exchanges: "),
    "AutoGen": (text([{"source": "user", "models_usage": None, "content": "Hi", "type": "TextMessage"}]), "autogen: not supported; export OpenTelemetry"),
    "CrewAI": (text([{"task_name": "t", "agent": "a", "output": "o"}]), "crewai log: "),
    "OpenHands": (text([{"id": 0, "source": "user", "action": "message", "args": {}}]), "openhands events: not supported; run the agent under Harbor"),
    "Discord": (text({"guild": {}, "channel": {}, "messages": [{"content": "Hi", "author": {"name": "n"}}]}), "discord export: it does not identify the agent"),
    "Slack": (text([{"type": "message", "user": "U", "text": "Hi", "ts": "1.1"}]), "slack export: "),
    "Phoenix": (lines([{"name": "llm", "context.trace_id": "t"}]), "phoenix table of spans: "),
    "other CSV": (b"Datum;Kunde\n1;a\n", "it is not JSON; expected an object, an array or JSON lines, or CSV with the columns role (or sender"),
    "tar": (tar(), "it is a tar archive; unpack it first"),
    "UTF-32": (TWO.decode().encode("utf-32"), "it is UTF-32; save it as UTF-8"),
    "Latin-1": ('{"messages": [{"role": "user", "content": "Grüße"}]}\n'.encode("latin-1"), "none of its records are JSON; record 1: not UTF-8 at byte 46"),
    "NaN": (lines([{"messages": CHAT}])[:-2] + b', "score": NaN}\n', "NaN is not valid JSON; write null for an unknown value"),
    "values without line ends": (text({"messages": CHAT}) * 2, "Write one JSON value per line, e.g. with `jq -c .`"),
    "pretty values": (json.dumps({"messages": CHAT}, indent=1).encode() * 2, "Write one JSON value per line, e.g. with `jq -c .`"),
    "an empty array": (b"[]", "it contains no records"),
    "unknown keys": (lines([{"a": 1}]), 'or write each conversation as {"messages": [{"role", "content"}]}, one per line'),
}  # fmt: skip


def take(root: Path, content: bytes) -> list[FileReport]:
    (root / "file").write_bytes(content)
    files = input_files([str(root / "file")])
    return list(import_files("auto", files, sessions_folder=root / "sessions", agent_id="a"))


@pytest.mark.parametrize("source", READ)
def test_a_file_of_the_source_is_read_as_counted(tmp_path: Path, source: str) -> None:
    content, counts = READ[source]
    reports = [report for report in take(tmp_path, content) if not report.is_skipped]
    assert [(report.reason, report.report and report.report.n_refused) for report in reports] == [("", 0)]
    found = read_sessions("a", tmp_path / "sessions" / "a")
    assert (found.conversations.height, found.turns.height, found.tool_calls.height) == counts
    again = [report.report for report in take(tmp_path, content) if report.report]
    assert [report.is_changed for report in again] == [False]


@pytest.mark.parametrize("source", REFUSED)
def test_a_file_that_is_not_read_is_named_with_the_reason_and_what_helps(tmp_path: Path, source: str) -> None:
    content, reason = REFUSED[source]
    (report,) = take(tmp_path, content)
    assert report.report is None
    assert reason in report.reason
    assert not (tmp_path / "sessions" / "a").exists()


def test_rows_of_a_table_that_do_not_fit_its_columns_are_refused_by_line(tmp_path: Path) -> None:
    (report,) = take(tmp_path, b"role,content\nuser,Hi\nassistant,Ho\nuser,a,b\n")
    assert report.report is not None
    assert [(r.line, r.reason) for r in report.report.refusals] == [(4, "3 cells for 2 columns")]


def test_utf16_that_ends_within_a_character_loses_that_record_alone(tmp_path: Path) -> None:
    (report,) = take(tmp_path, TWO.decode().encode("utf-16")[:-1])
    assert report.report is not None
    assert report.report.n_imported == 1
    assert [(r.line, r.reason[:8]) for r in report.report.refusals] == [(2, "not JSON")]
