"""Asset benchmark_sessions: it calls an agent only if it is selected alone, and only with a cap."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from agent_eval.defs.assets.benchmarks import NAME, NOT_REQUESTED, benchmark_sessions_of
from agent_eval.defs.resources import ProjectResource
from agent_eval.project import Project
from agent_eval.project.benchmarks.sessions import runnable_agents
from tests.commands.conftest import invoke, use
from tests.simulate.agent_server import Server, serving
from tests.simulate.suites import EIGHT, openai, write_agents, write_suite

AUTOMATIC = {"dagster/schedule_name": "weekly_benchmark"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serving() as server:
        (tmp_path / "data" / "sessions").mkdir(parents=True)
        (tmp_path / "agent_eval.toml").write_text("max_calls = 1000\n")
        write_suite(tmp_path, {"d1": EIGHT["d1"]}, version=1, public=False)
        write_agents(tmp_path, {"bot": openai(server.url)})
        yield use(monkeypatch, tmp_path), server


def materialised(
    root: Path, *others: dg.AssetsDefinition, tags: dict[str, str] | None = None, raises: bool = True
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [benchmark_sessions_of(["bot"]), *others],
        partition_key="bot",
        resources={"project": ProjectResource(root=str(root))},
        run_config={"ops": {NAME: {"config": {"sessions": 2}}}},
        tags=tags or {},
        raise_on_error=raises,
    )


def page(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node(NAME)
    return {name: entry.value for name, entry in event.metadata.items()}


def test_a_materialisation_shows_sessions_errors_cost_and_links_and_is_not_repeated(
    project: tuple[Path, Server],
) -> None:
    root, server = project
    shown = page(materialised(root))
    assert (shown["n_sessions"], shown["n_conversations_held"], shown["n_errors"]) == (2, 2, 0)
    assert shown["cost_usd"] == 0
    assert all(
        f"[{folder.name}-d1](/report/conversations/bot" in shown["transcripts"]
        for folder in (root / "data/sessions/bot").glob("[!.]*")
    )
    assert "shop/d1@" in shown["scenarios"]
    n_requests = len(server.requests)
    again = page(materialised(root))
    assert (again["n_conversations_held"], again["n_conversations_kept"]) == (0, 2)
    assert len(server.requests) == n_requests


@pytest.mark.parametrize("how", ["with others", "backfill of all", "run", "no cap", "schedule without a cap"])
def test_nothing_else_calls_an_agent(
    project: tuple[Path, Server], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    root, server = project

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["bot"]))
    def other() -> None: ...

    if how == "with others":
        assert page(materialised(root, other))["why"] == NOT_REQUESTED
    elif how == "backfill of all":
        everything = SimpleNamespace(asset_selection=[dg.AssetKey(NAME), dg.AssetKey("other")])
        monkeypatch.setattr(dg.DagsterInstance, "get_backfill", lambda *_: everything)
        assert page(materialised(root, tags={"dagster/backfill": "b"}))["why"] == NOT_REQUESTED
    elif how == "run":
        assert invoke("run").exit_code == 0  # redo_stale and nightly run this command
    else:
        is_scheduled = how.startswith("schedule")
        (root / "agent_eval.toml").write_text("max_calls = 9\n" if is_scheduled else "")
        failed = materialised(root, tags=AUTOMATIC if is_scheduled else {}, raises=False)
        assert not failed.success
        assert "no cap is set" in str(failed.all_events)
    assert server.requests == []
    assert list((root / "data" / "sessions").iterdir()) == []


def test_only_agents_with_an_endpoint_have_a_partition(project: tuple[Path, Server]) -> None:
    root, _ = project
    file = root / "data" / "agents.yaml"
    file.write_text(file.read_text() + "- agent_id: logs-only\n")
    assert runnable_agents(Project.open(root)) == ["bot"]
