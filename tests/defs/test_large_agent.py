"""An agent that is too large for memory: judged, checked, shown and stored in parts, with the same result."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from agent_eval.commands.run import run
from agent_eval.defs.assets import judging
from agent_eval.formats import spill
from agent_eval.judge import engine
from benchmarks.compare_stores import differing
from tests.conftest import TWO_AGENTS, at_home, copy_sample

N_AT_ONCE = 16  # conversations of a run: fewer than one agent has under all versions
JUDGED = ("turn_judgments", "conversation_judgments")
pytestmark = pytest.mark.slow


def shown(root: Path) -> dict[tuple[str, str], object]:
    """Return the metadata of each partition of the tables of judgments, and the results of their checks."""
    found: dict[tuple[str, str], object] = {}
    with dg.DagsterInstance.from_config(str(root / ".dagster")) as instance:
        for name in JUDGED:
            records = instance.fetch_materializations(dg.AssetKey(name), limit=1000).records
            assert records
            for record in records:
                assert record.asset_materialization is not None
                metadata = {key: value.value for key, value in record.asset_materialization.metadata.items()}
                found[name, record.partition_key or ""] = json.dumps(
                    {k: v for k, v in metadata.items() if "storage" not in k}, default=str, sort_keys=True
                )
    return found


def test_tables_and_pages_are_the_same_in_parts(
    two_agents_today: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = two_agents_today, tmp_path / "parts"
    folders: list[Path] = []
    real = spill._temporary_folder

    def counted() -> object:
        folder = real()
        folders.append(Path(folder.name))
        return folder

    at_once: set[object] = set()
    judge = engine.judged_in_parts

    def watched(*args: Any, **options: Any) -> object:
        at_once.add(options["at_once"])
        return judge(*args, **options)

    monkeypatch.setattr(judging, "judged_in_parts", watched)
    monkeypatch.setattr(judging, "_AT_ONCE_BY_RULES", 3)  # a quarter of 16 would be 4
    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    monkeypatch.setattr(spill, "_temporary_folder", counted)
    copy_sample(parts, *TWO_AGENTS)
    (parts / "agent_eval.toml").write_text(f"max_conversations_per_run = {N_AT_ONCE}\n")
    with at_home(parts) as project:
        assert run(project).exit_code == 0
    assert differing(whole, parts) == []
    assert shown(whole) == shown(parts)
    assert at_once == {3}
    assert folders
    assert not any(folder.exists() for folder in folders)
