"""Words for roles are known whatever their spaces, hyphens and case."""

import pytest

from agent_eval.transcripts.importers.rules.speakers import known_role


@pytest.mark.parametrize(
    ("word", "role"),
    [("End User", "user"), ("end-user", "user"), ("Requester", "user"), ("AI Agent", "assistant"),
     ("Virtual-Assistant", "assistant"), ("support agent", "assistant"), ("narrator", None), (7, None),
     ("Kunde", None), ("cliente", None), ("客户", None)],
)  # fmt: skip
def test_a_word_is_a_role_however_it_is_written(word: str | int, role: str | None) -> None:
    assert known_role(word) == role
