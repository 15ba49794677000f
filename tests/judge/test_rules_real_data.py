"""What the rules find in real transcripts. Every one of these findings was read before its number was written here."""

from collections import Counter
from pathlib import Path

import pytest

from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.judge import CHECKS
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.importers import import_file
from agent_eval.transcripts.models import Conversation
from agent_eval.transcripts.sessions import read_sessions


def found_in(conversation: Conversation) -> list[str]:
    turns = conversation.turns()
    questions = [Question((conversation,), (turns[: t.turn_index + 1],), t.turn_index, "", ()) for t in turns]
    checks = [check for of_metric in CHECKS.values() for check in of_metric]
    return [
        found.label for question in questions for check in checks if (found := check(question)) is not None
    ]


@pytest.mark.parametrize(
    ("format_name", "file", "expected"),
    [
        ("tau2", "tau2/airline__gpt-4o-2024-11-20.json.gz", {}),
        ("tau2", "tau2/airline__toolorchestra-nemotron.json.gz", {"repeated tool call": 5}),
        (
            "tau2",
            "tau2/airline__qwen2.5-7b.json.gz",
            {"repeated tool call": 22, "repetition": 8, "ignored tool result": 1},
        ),
        ("openai", "formats/openai_chat_messages__tau2_sft_test.jsonl.gz", {"repeated tool call": 6}),
    ],
)
def test_the_findings_are_those_that_were_read(
    shared_data: Path, tmp_path: Path, format_name: str, file: str, expected: dict[str, int]
) -> None:
    import_file(format_name, shared_data / file, sessions_folder=tmp_path, agent_id="a")
    taken = read_sessions("a", tmp_path / "a")
    conversations = [c for _, c in conversations_from(taken.conversations, taken.turns)]
    assert Counter(label for c in conversations for label in found_in(c)) == expected
