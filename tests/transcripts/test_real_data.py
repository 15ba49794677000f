"""Real transcript files keep every text; tests/test_real_data.py counts them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.transcripts.content_hash import conversation_hash, turn_hashes
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.importers.importing import import_file
from agent_eval.transcripts.sessions import read_sessions

FILES = [
    ("tau-bench", "tau1/airline__gpt-4o__4trials.json.gz"),
    ("tau2", "tau2/airline__toolorchestra-nemotron.json.gz"),
    ("tau2", "tau2/airline__gpt-4o-2024-11-20.json.gz"),
    ("tau2", "tau2/airline__qwen2.5-7b.json.gz"),
    ("tau2", "tau2/telecom-solo__gpt-4.1__4trials.json.gz"),
    ("openai", "formats/openai_chat_messages__tau2_sft_test.jsonl.gz"),
]


@pytest.mark.parametrize(("format_name", "file"), FILES)
def test_every_message_text_is_kept_and_hashes_survive_the_tables(
    shared_data: Path, tmp_path: Path, format_name: str, file: str
) -> None:
    report = import_file(format_name, shared_data / file, sessions_folder=tmp_path, agent_id="a")
    taken = read_sessions("a", tmp_path / "a")
    assert (report.n_refused, taken.import_errors.is_empty()) == (0, True)
    assert taken.conversations.select("task_id", "trial").is_duplicated().any() == (format_name == "openai")
    assert taken.tool_calls["result"].null_count() == 0
    hashes = dict(taken.conversations.select("conversation_id", "content_hash").iter_rows())
    kept: list[tuple[str, str | None]] = []
    for _, conversation in conversations_from(taken.conversations, taken.turns):
        *_, last = turn_hashes(conversation, conversation.turns())
        assert conversation_hash(conversation, last) == hashes[conversation.conversation_id]
        kept += [(m.role, m.content) for m in conversation.messages]
    assert sorted(kept, key=str) == sorted(recorded(shared_data / file), key=str)


def recorded(path: Path) -> list[tuple[str, str | None]]:
    with gzip.open(path, "rt") as stream:
        values: Any = (
            [json.loads(line) for line in stream] if ".jsonl" in path.suffixes else json.load(stream)
        )
    records = values["simulations"] if isinstance(values, dict) else values
    return [(m["role"], m.get("content")) for r in records for m in r.get("traj", r.get("messages"))]
