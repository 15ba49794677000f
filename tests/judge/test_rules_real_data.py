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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_name", "file", "expected"),
    [
        ("tau2", "tau2/airline__gpt-4o-2024-11-20.json.gz", {}),
        ("tau2", "tau2/airline__toolorchestra-nemotron.json.gz", {"repeated tool call": 5}),
        (
            "tau2",
            "tau2/airline__qwen2.5-7b.json.gz",
            {
                "repeated tool call": 22,
                "repetition": 35,
                "ignored tool result": 1,
                "repeated failing call": 12,
            },
        ),
        (
            "tau-bench",
            "tau1/airline__gpt-4o__4trials.json.gz",
            {"repeated tool call": 6, "repeated failing call": 4},
        ),
        ("tau2", "tau2/telecom-solo__gpt-4.1__4trials.json.gz", {}),
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


@pytest.mark.parametrize(
    ("format_name", "file", "n_turns", "n_ended"),
    [
        ("tau-bench", "tau1/airline__gpt-4o__4trials.json.gz", 1490, 190),
        ("tau2", "tau2/airline__gpt-4o-2024-11-20.json.gz", 295, 50),
        ("tau2", "tau2/airline__qwen2.5-7b.json.gz", 506, 50),  # nine broken off by an error of the agent
        ("tau2", "tau2/airline__toolorchestra-nemotron.json.gz", 234, 50),
        ("tau2", "tau2/telecom-solo__gpt-4.1__4trials.json.gz", 20, 0),
    ],
)
def test_how_a_benchmark_ends_its_conversations_is_not_silence(
    shared_data: Path, tmp_path: Path, format_name: str, file: str, n_turns: int, n_ended: int
) -> None:
    import_file(format_name, shared_data / file, sessions_folder=tmp_path, agent_id="a")
    taken = read_sessions("a", tmp_path / "a")
    turns = [turn for _, c in conversations_from(taken.conversations, taken.turns) for turn in c.turns()]
    assert Counter(turn.reply for turn in turns) == Counter(replied=n_turns - n_ended, ended=n_ended)
