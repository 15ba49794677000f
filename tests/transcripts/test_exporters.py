"""Export, then import: nothing is lost that the format can hold."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval.errors import NotFoundError
from agent_eval.transcripts.exporters import EXPORTS, export_lines, exported
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.importing import import_file
from agent_eval.transcripts.models import Conversation
from tests.transcripts.making import conversation, lines, write_session

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.sampled_from("abcdé中"), min_size=1, max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
calls = st.fixed_dictionaries(
    {"id": st.none() | names, "name": names, "arguments": st.dictionaries(names, json_values, max_size=2) | st.just("no JSON")}
)  # fmt: skip
costs = st.none() | st.floats(0.001, 1e6)
spoken = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
        "content": st.none() | texts,
    },
    optional={
        "name": names,
        "is_error": st.booleans(),
        "timestamp": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01 00:00+00:00"]),
        "latency_ms": st.floats(0, 1e6),
        "usage": st.dictionaries(st.sampled_from(["input_tokens", "other"]), st.integers(0, 9), max_size=2),
        "cost_usd": costs,
        "finish_reason": names,
    },
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    message = draw(spoken)
    if message["role"] == "assistant":
        message["tool_calls"] = draw(st.lists(calls, max_size=2))
    if message["role"] == "tool":
        message["tool_call_id"] = draw(st.none() | names)
    else:
        message.pop("is_error", None)
    return message


wholes = st.fixed_dictionaries(
    {"conversation_id": names, "messages": st.lists(messages(), min_size=1, max_size=6)},
    optional={
        "goal": texts.filter(bool),
        "knowledge": st.lists(texts, max_size=2),
        "tools": st.none() | st.lists(st.dictionaries(names, json_values, max_size=2), max_size=2),
        "outcome": st.sampled_from([{"correct": True}, {"reward": 0.5}, {"error": "RateLimitError"}, {}]),
        "expected": st.lists(st.fixed_dictionaries({"turn_index": st.none() | st.just(0), "answer": texts}), max_size=1),
        "metadata": st.dictionaries(names | st.just("base_success") | st.just("session_id"), json_values, max_size=2),
        "scenario": st.sampled_from(["D1", "hallucination"]),
    },
)  # fmt: skip


def with_own_calls(whole: dict[str, Any]) -> dict[str, Any]:
    """Give each call an id of its own, and let results follow their calls: an import changes or refuses others."""
    known: list[str] = []
    for message in whole["messages"]:
        if "tool_call_id" in message:
            message["tool_call_id"] = known[-1] if message["tool_call_id"] and known else None
        for call in message.get("tool_calls", ()):
            if call["id"] is not None:
                call["id"] = f"{call['id']}{len(known)}"
                known.append(call["id"])
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("format_name", sorted(EXPORTS))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    found=st.lists(
        wholes.map(with_own_calls), min_size=1, max_size=3, unique_by=lambda c: c["conversation_id"]
    )
)
def test_export_then_import_gives_the_same(format_name: str, found: list[dict[str, Any]]) -> None:
    before = [Conversation.model_validate(value) for value in found]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        path.write_bytes(lines([exported(format_name, c) for c in before]))
        after = list(FORMATS[format_name](Source(path, "s")))
    assert all(isinstance(c, Conversation) for c in after), after
    assert [_plain(c) for c in after] == [_plain(c) for c in before]


def _plain(found: object) -> dict[str, Any]:
    assert isinstance(found, Conversation)
    fields = found.model_dump()
    fields["source"] = None
    return fields


@pytest.mark.parametrize("format_name", sorted(EXPORTS))
def test_what_import_wrote_is_exported_and_imported_as_it_was(format_name: str, tmp_path: Path) -> None:
    records = [conversation(f"c{i}", task_id="t", trial=i, outcome={"correct": i == 0}) for i in range(3)]
    write_session(tmp_path / "sessions" / "a", "s1", records)
    path = tmp_path / "out.jsonl"
    path.write_text("".join(f"{line}\n" for line in export_lines(format_name, tmp_path / "sessions" / "a")))
    report = import_file(format_name, path, sessions_folder=tmp_path / "again", agent_id="a")
    assert (report.n_imported, report.refusals) == (3, ())
    stored = [json.loads(x) for x in (report.folder / "conversations.jsonl").read_text().splitlines()]
    assert [c.pop("outcome") for c in stored] == [{"correct": i == 0, "basis": "declared"} for i in range(3)]
    for name in ("conversation_id", "task_id", "trial"):
        assert [c[name] for c in stored] == [r[name] for r in records]


def test_atif_steps_are_numbered_from_one_and_answers_stand_with_their_calls() -> None:
    call = {"id": "c1", "name": "f", "arguments": {}}
    said = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [call], "cost_usd": 0.5},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    steps: Any = exported("atif", Conversation.model_validate(conversation("c", messages=said)))["steps"]
    assert [(s["step_id"], s["source"]) for s in steps] == [(1, "user"), (2, "agent")]
    assert steps[1]["observation"] == {"results": [{"content": "done", "source_call_id": "c1"}]}
    assert steps[1]["metrics"] == {"cost_usd": 0.5}


def test_an_unknown_format_and_a_missing_session_are_named(tmp_path: Path) -> None:
    write_session(tmp_path / "a", "s1", [conversation("c")])
    with pytest.raises(NotFoundError, match=r"'csv' cannot be exported\. Formats: atif, openai"):
        list(export_lines("csv", tmp_path / "a"))
    with pytest.raises(NotFoundError, match="Agent 'a' has no session s2"):
        list(export_lines("openai", tmp_path / "a", ("s2",)))
    with pytest.raises(NotFoundError, match=r"Agent 'b' has no session\.$"):
        list(export_lines("openai", tmp_path / "b"))
