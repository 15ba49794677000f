"""docs/sessions.md: the whole session in it is read, and fills every slot."""

import re
from pathlib import Path
from typing import get_args

from agent_eval.transcripts.models import Scenario
from agent_eval.transcripts.sessions import read_sessions
from tests.conftest import REPOSITORY


def test_the_whole_session_on_the_page_fills_every_slot(tmp_path: Path) -> None:
    page = (
        (REPOSITORY / "docs" / "sessions.md").read_text(encoding="utf-8").partition("## A whole session")[2]
    )
    folder = tmp_path / "bike-desk" / "spring-1"
    folder.mkdir(parents=True)
    for name, kind in (("session.yaml", "yaml"), ("conversations.jsonl", "json")):
        block = re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)
        assert block
        (folder / name).write_text(block[1])
    read = read_sessions("bike-desk", tmp_path / "bike-desk")
    assert read.import_errors.is_empty()
    assert sorted(read.conversations["scenario"]) == sorted(get_args(Scenario))
