"""What the rules find in real transcripts. Every one of these findings was read before its number was written here."""

from collections import Counter
from pathlib import Path

import pytest

from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.judge import CHECKS
from agent_eval.transcripts.frames import conversations_from
from agent_eval.transcripts.importers.importing import import_file
from agent_eval.transcripts.models import Conversation
from agent_eval.transcripts.sessions import read_sessions


def found_in(conversation: Conversation) -> list[str]:
    turns = conversation.turns()
    questions = [Question((conversation,), (turns[: t.turn_index + 1],), t.turn_index, "", ()) for t in turns]
    checks = [check for of_metric in CHECKS.values() for check in of_metric]
    return [
        found.label for question in questions for check in checks if (found := check(question)) is not None
    ]


LABELS = ("repeated tool call", "repeated failing call", "repetition", "ignored tool result", "stuck loop")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_name", "file", "n_of_labels", "n_turns", "n_ended"),
    [
        ("tau2", "tau2/airline__gpt-4o-2024-11-20.json.gz", (0, 0, 0, 0, 0), 295, 50),
        ("tau2", "tau2/airline__toolorchestra-nemotron.json.gz", (5, 0, 0, 0, 0), 234, 50),
        # nine conversations are broken off by an error of the agent
        ("tau2", "tau2/airline__qwen2.5-7b.json.gz", (22, 12, 35, 1, 0), 506, 50),
        ("tau-bench", "tau1/airline__gpt-4o__4trials.json.gz", (6, 4, 0, 0, 1), 1490, 190),
        ("tau2", "tau2/telecom-solo__gpt-4.1__4trials.json.gz", (0, 0, 0, 0, 0), 20, 0),
        ("openai", "formats/openai_chat_messages__tau2_sft_test.jsonl.gz", (6, 0, 0, 0, 0), None, None),
    ],
)
def test_the_findings_are_those_that_were_read_and_an_end_is_not_silence(
    shared_data: Path, tmp_path: Path, format_name: str, file: str,
    n_of_labels: tuple[int, ...], n_turns: int | None, n_ended: int | None,
) -> None:  # fmt: skip
    import_file(format_name, shared_data / file, sessions_folder=tmp_path, agent_id="a")
    taken = read_sessions("a", tmp_path / "a")
    conversations = [c for _, c in conversations_from(taken.conversations, taken.turns)]
    found = Counter(label for c in conversations for label in found_in(c))
    assert found == Counter(dict(zip(LABELS, n_of_labels, strict=True)))
    if n_turns is not None and n_ended is not None:
        replies = Counter(turn.reply for c in conversations for turn in c.turns())
        assert replies == Counter(replied=n_turns - n_ended, ended=n_ended)
