"""The family of a task: taken over where a source declares one, set by a file of slots, never made up."""

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from agent_eval.errors import InputError
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.catalog import FORMATS
from agent_eval.transcripts.importers.slots import read_slots
from agent_eval.transcripts.models import Conversation
from tests.transcripts.making import conversation

SAID: JsonValue = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]
TAU2: dict[str, JsonValue] = {
    "tasks": [{"id": "t", "task_family": "refunds"}, {"id": "u"}],
    "simulations": [{"task_id": task, "messages": SAID, "reward_info": {"reward": 1.0}} for task in ("t", "u")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("openai", {"task_id": "t", "task_family": "refunds", "messages": SAID}, ["refunds"]),
        # one id, written in two ways
        ("openai", {"task_id": "t", "task_family": "cafe\u0301", "messages": SAID}, ["caf\u00e9"]),
        ("openai", {"task_id": "t", "messages": SAID}, [None]),
        ("tau-bench", [{"task_id": 1, "trial": 0, "reward": 1.0, "traj": SAID, "task_family": "refunds"}], ["refunds"]),
        ("tau-bench", [{"task_id": 1, "trial": 0, "reward": 1.0, "traj": SAID}], [None]),
        ("tau2", TAU2, ["refunds", None]),
    ],
)  # fmt: skip
def test_a_family_is_taken_over_where_the_source_has_one(
    name: str, content: JsonValue, expected: list[str | None], tmp_path: Path
) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(content))
    found = [c for c in FORMATS[name](Source(path, "s")) if isinstance(c, Conversation)]
    assert [c.task_family for c in found] == expected


def slots(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "slots.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_a_file_of_slots_names_families(tmp_path: Path) -> None:
    found = read_slots(slots(tmp_path, "task_id,slot,disclosures,task_family", "t,,, refunds ", "u,D1,,"))
    for given, family in (({"task_id": "t"}, "refunds"), ({"task_id": "u", "task_family": "own"}, "own")):
        placed = found.placed(Conversation.model_validate(conversation("c", **given)), "s")
        assert placed.task_family == family


def test_columns_are_checked_with_and_without_families(tmp_path: Path) -> None:
    assert read_slots(slots(tmp_path, "task_id,slot,disclosures", "t,,")).by_task["t"].fields == {}
    columns = "Columns: task_id, slot, disclosures, and task_family optionally"
    for more in ("task_family", "disclosures,family", "disclosures,slot"):
        with pytest.raises(InputError, match=columns):
            read_slots(slots(tmp_path, f"task_id,slot,{more}", "t,,"))
