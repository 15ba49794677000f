"""The door of foreign transcript files."""

import io
import json
import zipfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from agent_eval.errors import AgentEvalError
from agent_eval.formats.refusals import NOT_READ
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.detection import detect
from agent_eval.transcripts.importers.importing import ImportReport, import_file
from agent_eval.transcripts.sessions import read_sessions
from benchmarks.fuzz.holding import check_refusals, check_text, files
from benchmarks.fuzz.hostile import changed_bytes, changed_json, json_bytes, nasty_texts
from benchmarks.fuzz.sessions import CALL
from tests.transcripts.importers.samples import INSPECT_SAMPLE, SAMPLES, Sample

MESSAGES = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "cost": 0.1},
    {"role": "tool", "tool_call_id": "c1", "content": "sent"},
    {"role": "assistant", "content": "Here.", "timestamp": "2026-01-01"},
]
CHAT = {"id": "c", "messages": MESSAGES, "task_id": "t", "trial": 0, "reward": 1.0, "knowledge": ["k"]}
TAU1 = {
    "task_id": 1,
    "trial": 0,
    "reward": 1.0,
    "info": {"task": {"instruction": "i", "actions": [{"name": "f", "kwargs": {}}]}},
    "traj": MESSAGES,
}
TASK = {
    "id": "1",
    "user_scenario": {"instructions": {"task_instructions": "x"}},
    "evaluation_criteria": {"actions": [{"name": "f", "arguments": {}}]},
}
RUN = {
    "id": "u",
    "task_id": "1",
    "trial": 0,
    "messages": MESSAGES,
    "reward_info": {"reward": 1.0},
    "agent_cost": 0.1,
}
TAU2 = {"tasks": [TASK], "simulations": [RUN, {**RUN, "id": "v", "trial": 1}]}


class Input(NamedTuple):
    """A file as it is imported."""

    format_name: str
    name: str
    content: bytes


def _lines(records: list[object]) -> bytes:
    return b"\n".join(map(json_bytes, records))


def mutated(sample: Sample) -> st.SearchStrategy[bytes]:
    """The file with parts changed, as lines where it is lines."""
    if not sample.is_lines:
        return changed_json(sample.content).map(json_bytes)
    return changed_json(sample.content).map(lambda v: _lines(v) if isinstance(v, list) else json_bytes(v))


def archived(sample: object) -> bytes:
    """An Inspect archive with this sample in it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json_bytes({"eval": {"task": "t"}}))
        archive.writestr("samples/1_epoch_1.json", json_bytes(sample))
        archive.writestr("../../canary", json_bytes(sample))
    return content.getvalue()


def archived_bytes() -> st.SearchStrategy[bytes]:
    """A damaged archive."""
    return st.just(archived(INSPECT_SAMPLE)).flatmap(changed_bytes)


chats = st.lists(changed_json(CHAT) | st.just(CHAT), min_size=1, max_size=4)
arrays = st.lists(changed_json(TAU1) | st.just(TAU1), min_size=1, max_size=4).map(json_bytes)
contents = {
    "openai": chats.map(_lines)
    | chats.map(json_bytes)
    | changed_json(CHAT).map(lambda v: json.dumps(v, indent=1).encode()),
    "tau-bench": arrays,
    "tau2": changed_json(TAU2).map(json_bytes),
    **{name: mutated(sample) for name, sample in SAMPLES.items() if name != "openai"},
}
contents["inspect"] |= changed_json(INSPECT_SAMPLE).map(archived) | archived_bytes()
FORMAT_NAMES = sorted(contents)
inputs = st.sampled_from([*FORMAT_NAMES, *FORMAT_NAMES]).flatmap(
    lambda name: st.builds(
        Input,
        format_name=st.just(name),
        name=st.sampled_from(["source.jsonl", "source.json", "source.json.gz", "Ä\x1b[31m\n.json", ".json"]),
        content=contents[name] | contents[name].flatmap(changed_bytes) | nasty_texts.map(lambda t: t.encode("utf-8", "replace")),
    )
)  # fmt: skip


def check(found: Input, root: Path, *, store: bool = False) -> None:
    """What an import wrote reads back whole, with what it refused; importing again changes nothing."""
    assert found.format_name in FORMATS
    sessions = root / "data" / "sessions"
    path = root / "data" / found.name
    path.write_bytes(found.content)
    detected = detect(Source(path, "s"))  # whatever it is, it is named in a line
    assert detected.format_name in FORMATS if detected.format_name else detected.reason
    try:
        report = _import(found, path, sessions)
    except AgentEvalError:
        assert not list(sessions.rglob("*"))
        return
    check_refusals(list(report.refusals))
    assert report.n_refused == sum(not r.reason.startswith(NOT_READ) for r in report.refusals)
    if not report.n_imported:
        assert report.refusals
    if not report.is_changed:
        assert not files(sessions)
        return
    if report.n_imported:
        _check_count(found, report)
    taken = read_sessions("a", sessions / "a")
    assert taken.conversations.height == report.n_imported
    told = {(r.file, r.line, r.reason) for r in report.refusals}
    errors = set(taken.import_errors.select("file", "line", "reason").iter_rows())
    assert {error for error in errors if not error[2].startswith("reading error: ")} == told
    check_text(taken.turns)
    before = files(sessions)
    assert not _import(found, path, sessions).is_changed
    assert files(sessions) == before


def _import(found: Input, path: Path, sessions: Path) -> ImportReport:
    return import_file(found.format_name, path, sessions_folder=sessions, agent_id="a")


def _check_count(found: Input, report: ImportReport) -> None:
    """Where even a careless reader finds a list, each of its elements was imported or refused."""
    if found.format_name != "tau-bench" and not found.content.startswith(b'[{"id"'):
        return
    try:
        there = json.loads(found.content)
    except (ValueError, RecursionError):
        return
    if isinstance(there, list) and not any(isinstance(x, dict) and "role" in x for x in there[:1]):
        assert report.n_imported + report.n_refused == len(there)
