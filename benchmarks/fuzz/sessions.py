"""The door of session folders and agents.yaml."""

import json
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from agent_eval.errors import AgentEvalError
from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.agents import add_agent, read_agents
from agent_eval.transcripts.content_hash import conversation_hash, turn_hashes
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.sessions import IngestedSession, read_sessions, sessions_hash
from benchmarks.fuzz.holding import check_refusals, check_store, check_text
from benchmarks.fuzz.hostile import changed_bytes, changed_json, json_bytes, lines_of

SESSION = """methodology_versions: [1.2.0, 1.3.0]
benchmark_id: spring
date: 2026-04-14
evaluator: kim
u3_scope: multi_turn
repeatability_tested: false
links: {D4: hallucination}
task_set: support
"""
AGENTS = "- agent_id: a\n  name: Ada\n  category: customer_service\n  endpoint: {url: x}\n- {agent_id: b}\n"
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}
CONVERSATION = {
    "conversation_id": "c", "task_id": "t", "trial": 1, "scenario": "D1", "goal": "g", "profile": "p", "knowledge": ["k"], "tools": [{"name": "find"}],
    "messages": [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Here."}], "tool_calls": [CALL], "cost_usd": 0.25, "latency_ms": 10},
        {"role": "tool", "tool_call_id": "c1", "content": "sent", "is_error": False},
        {"role": "assistant", "content": "Sent."},
    ],
    "expected": [{"turn_index": 0, "tools": [{"name": "find", "arguments": {"id": 7}}], "answer": "x", "assertions": ["y"]}],
    "outcome": {"correct": True, "reward": 1.0, "source": "s"}, "interventions": [{"turn_index": 0, "kind": "help"}], "injected_error": {"a": 1},
    "metadata": {"x": 1},
}  # fmt: skip
ERRORS = json_bytes({"file": "big.json", "line": 7, "reason": "no messages"}) + b"\n"


class Input(NamedTuple):
    """The files of one session, and agents.yaml."""

    session: bytes
    conversations: bytes
    errors: bytes | None
    agents: bytes


def _lines(records: list[object]) -> bytes:
    return b"".join(json_bytes(record) + b"\n" for record in records)


conversations = st.lists(changed_json(CONVERSATION) | st.just(CONVERSATION), min_size=1, max_size=4).map(
    _lines
)
inputs = st.builds(
    Input,
    session=st.just(SESSION.encode()) | changed_bytes(SESSION.encode()) | changed_json({"methodology_versions": "any", "notes": "x"}).map(json_bytes),
    conversations=conversations | conversations.flatmap(changed_bytes),
    errors=st.none() | changed_bytes(ERRORS),
    agents=changed_bytes(AGENTS.encode()) | changed_json([{"agent_id": "a", "name": "x"}]).map(json_bytes),
)  # fmt: skip


def check(found: Input, root: Path, *, store: bool = False) -> None:
    """Nothing is lost, the rest goes on, and what was read is the same again."""
    folder = root / "data" / "sessions" / "a"
    (folder / "s").mkdir(parents=True)
    (folder / "s" / "session.yaml").write_bytes(found.session)
    (folder / "s" / "conversations.jsonl").write_bytes(found.conversations)
    if found.errors is not None:
        (folder / "s" / "import_errors.jsonl").write_bytes(found.errors)
    _check_agents(root / "data" / "agents.yaml", found.agents)
    assert sessions_hash(None, folder) == sessions_hash(None, folder)
    ingested = read_sessions("a", folder)
    check_refusals([Refusal(*row) for row in ingested.import_errors.select("file", "line", "reason").iter_rows()
                    if row[0].startswith("s/")])  # fmt: skip
    _check_whole(ingested, found)
    _check_again(ingested)
    frames = {
        name: getattr(ingested, name)
        for name in ("sessions", "conversations", "turns", "tool_calls", "import_errors")
    }
    for frame in frames.values():
        check_text(frame)
    if store:
        check_store(root, {name: frame for name, frame in frames.items() if not frame.is_empty()})


def _check_whole(ingested: IngestedSession, found: Input) -> None:
    """A session is left out with one line, or each of its lines is ingested or refused."""
    refused = ingested.import_errors.filter(ingested.import_errors["file"] == "s/conversations.jsonl")
    if ingested.sessions.is_empty():
        assert ingested.conversations.is_empty()
        assert ingested.import_errors["file"].to_list() == ["s/session.yaml"]
    elif not found.conversations.startswith(b"\x1f\x8b"):
        there = lines_of(found.conversations)
        n = ingested.conversations.height + refused.height
        assert n == len(there) or (n == 1 and not there)  # an empty file may have its refusals beside it


def _check_again(ingested: IngestedSession) -> None:
    """The rows give the conversations back, with the hashes that they had."""
    hashes = dict(ingested.conversations.select("conversation_id", "content_hash").iter_rows())
    for _, conversation in conversations_from(ingested.conversations, ingested.turns):
        last = list(turn_hashes(conversation, conversation.turns()))[-1]
        assert conversation_hash(conversation, last) == hashes[conversation.conversation_id]


def _check_agents(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    agents, refusals = read_agents(path)
    check_refusals(refusals)
    try:
        is_added = add_agent(path, Agent(agent_id="new"))
    except AgentEvalError:
        assert path.read_bytes() == content
        return
    assert is_added or path.read_bytes() == content
    after = read_agents(path)[0]
    assert {key: value.model_dump_json() for key, value in agents.items()}.items() <= {
        key: value.model_dump_json() for key, value in after.items()
    }.items()
    assert "new" in after
    assert json.dumps(sorted(after))
