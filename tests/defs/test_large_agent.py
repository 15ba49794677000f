"""An agent that is too large for memory: judged, checked, shown and stored in parts, with the same result."""

import json
from pathlib import Path

import dagster as dg
import pytest

from agent_eval.commands.run import run
from agent_eval.formats import spill
from benchmarks.compare_stores import differing
from tests.conftest import at_home, copy_sample

AGENTS = ("quill-help", "relay-bot")  # eight conversations, more than a run takes for both versions, and two
VERSIONS = ("1.2.0", "1.3.0")
JUDGED = ("turn_judgments", "conversation_judgments")
pytestmark = pytest.mark.slow


def ran(root: Path, settings: str) -> None:
    copy_sample(root, *AGENTS)
    (root / "agent_eval.toml").write_text(settings)
    with at_home(root) as project:
        assert run(project, versions=VERSIONS).exit_code == 0


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


def test_tables_and_pages_are_the_same_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ran(whole, "")
    folders: list[Path] = []
    real = spill._temporary_folder

    def counted() -> object:
        folder = real()
        folders.append(Path(folder.name))
        return folder

    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    monkeypatch.setattr(spill, "_temporary_folder", counted)
    ran(parts, "max_conversations_per_run = 8\n")
    assert differing(whole, parts) == []
    assert shown(whole) == shown(parts)
    assert folders
    assert not any(folder.exists() for folder in folders)
