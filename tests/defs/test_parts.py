"""Small parts of the definitions: tags, observations, partitions, who started a run, where Dagster keeps its records."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import dagster as dg
import polars as pl
import pytest
from dagster import DagsterInstance

from agent_eval.definitions import defs
from agent_eval.defs.checks import SET_ASIDE, check_specs
from agent_eval.defs.gate_checks import gate_check_specs
from agent_eval.defs.instance import deferred_interrupts
from agent_eval.defs.launch import AUDITS, Launch, by_stage, dagster_home
from agent_eval.defs.observations import DATA_VERSION, NAMES, new_observations, observed, report
from agent_eval.defs.partitions import AGENTS, VERSIONS, key_frame
from agent_eval.defs.resources import RANGE_TAGS, is_automatic, scope_of_run
from agent_eval.errors import NotFoundError, StorageError
from agent_eval.project.data_versions import Sources
from agent_eval.storage import RunScope
from agent_eval.tables import TABLES


@pytest.mark.parametrize(("partitions", "column"), [(AGENTS, "agent_id"), (VERSIONS, "methodology_version")])
def test_keys_of_one_dimension_are_one_column(partitions: dg.PartitionsDefinition[str], column: str) -> None:
    assert key_frame(partitions, ["x", "y"]).to_dict(as_series=False) == {column: ["x", "y"]}
    assert key_frame(partitions, []).columns == [column]


def sources(**versions: dict[str, str]) -> Sources:
    return Sources(**{name: versions.get(name, {}) for name in NAMES})


def test_only_changed_data_versions_are_observed_and_only_of_the_partitions_asked_for() -> None:
    before = sources(agent_sessions={"a": "1", "b": "1"})
    now = sources(agent_sessions={"a": "1", "b": "2", "c": "1"}, gate_spec={"1.3.0": "x"})
    made = [(o.asset_key.path[-1], o.partition, o.tags[DATA_VERSION]) for o in new_observations(now, before)]
    assert made == [
        ("agent_sessions", "b", "2"), ("agent_sessions", "c", "1"), ("gate_spec", "1.3.0", "x"),
    ]  # fmt: skip
    only = new_observations(now, before, {"c"})
    assert [o.partition for o in only] == ["c"]
    assert new_observations(now, now) == []


def test_what_is_reported_is_what_was_observed_last() -> None:
    with DagsterInstance.ephemeral() as instance:
        first, second = (sources(agent_sessions={"a": v, "b": "1"}) for v in ("1", "2"))
        report(instance, new_observations(first, sources()))
        assert observed(instance) == first
        report(instance, new_observations(second, first))
        assert observed(instance) == second


@pytest.mark.parametrize(
    ("tag", "automatic"),
    [("dagster/sensor_name", True), ("dagster/schedule_name", True), ("dagster/backfill", False)],
)
def test_a_run_of_a_sensor_or_a_schedule_is_automatic(tag: str, automatic: bool) -> None:
    assert is_automatic(dg.DagsterRun(job_name="x", tags={tag: "y"})) == automatic


def test_every_asset_belongs_to_one_stage_except_the_audit() -> None:
    stages = by_stage(defs)
    assert list(stages) == ["agent", "agent x version", "version", "gate_results", "whole"]
    of = {key: i for i, keys in enumerate(stages.values()) for key in keys}
    graph = defs.resolve_asset_graph()
    assert all(of[parent] <= of[key] for key in of for parent in graph.get(key).parent_keys if parent in of)
    keys = [key for of in stages.values() for key in of]
    assert len(keys) == len(set(keys))
    assert {*defs.resolve_asset_graph().materializable_asset_keys} - {*keys} == {AUDITS}


def test_an_unknown_version_names_those_that_are_loaded() -> None:
    stale = pl.DataFrame({"methodology_version": ["9.0.0"]})
    with dg.DagsterInstance.ephemeral() as instance:
        launch = SimpleNamespace(instance=instance, _boards=lambda _: stale.clear())
        with pytest.raises(NotFoundError, match=r"9\.0\.0 is not a partition .* \(1\.0\.0, .*1\.3\.0\)"):
            Launch._planned(launch, stale, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [True, False])
def test_dagsters_home_is_made_with_the_projects_own_settings_if_there_are_any(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    if own:
        (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    home = dagster_home(tmp_path)
    assert home == (tmp_path / ".dagster").resolve()
    text = (home / "dagster.yaml").read_text(encoding="utf-8")
    assert (text == "telemetry:\n  enabled: false\n") == own
    (home / "dagster.yaml").write_text("# mine\ntelemetry:\n  enabled: false\n", encoding="utf-8")
    dagster_home(tmp_path)
    assert (home / "dagster.yaml").read_text(encoding="utf-8").startswith("# mine")


def test_a_home_that_is_a_file_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("", encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "f"))
    with pytest.raises(StorageError, match="cannot be made a folder"):
        dagster_home(tmp_path)


@pytest.mark.parametrize(
    ("name", "checks"),
    [
        ("agents", ["keeps_contract", "one_methodology"]),
        ("turns", ["keeps_contract", "one_methodology", "no_orphans"]),
        ("rubric_ratings", ["keeps_contract", "one_methodology", "on_scale", "no_orphans", SET_ASIDE]),
        ("leaderboard", ["keeps_contract", "one_methodology", "on_scale", "no_orphans"]),
    ],
)
def test_a_table_has_the_checks_that_its_columns_need(name: str, checks: list[str]) -> None:
    assert [spec.name for spec in check_specs(name)] == checks
    assert [spec.blocking for spec in check_specs(name)] == [check != SET_ASIDE for check in checks]


def test_gates_are_checks_of_the_asset_whose_rows_they_judge() -> None:
    names = {asset: {spec.name for spec in gate_check_specs(asset)} for asset in TABLES}
    assert names["error_clusters"] == {"errors"}
    assert names["turn_judgments"] == {"judge_coverage", "silent_turns"}
    assert {"errors", "regression", "status"} <= names["gate_results"]
    assert not names["turns"]


FIRST, LAST = RANGE_TAGS


@pytest.mark.parametrize(
    ("assets", "tags", "scope"),
    [
        (["turns", "tool_calls"], {"dagster/partition": "b"}, (["b"], None)),
        (["turn_judgments"], {"dagster/partition": "b|1.2.0"}, (["b"], ["1.2.0"])),
        (["turn_judgments"], {FIRST: "b|1.1.0", LAST: "c|1.3.0"}, (["b", "c"], ["1.1.0", "1.2.0", "1.3.0"])),
        (["turn_judgments", "turns"], {FIRST: "b|1.0.0", LAST: "c|1.3.0"}, (["b", "c"], None)),
        (["leaderboard"], {"dagster/partition": "1.3.0"}, None),
        (["turn_judgments", "leaderboard"], {FIRST: "b|1.0.0", LAST: "c|1.3.0"}, None),
        (["gate_results"], {"dagster/partition": "b|1.0.0"}, None),  # compares agents
        (["turns"], {"dagster/partition": "removed"}, None),
        (["turns"], {}, None),
        ([], {"dagster/partition": "b"}, None),
    ],
)
def test_a_run_needs_the_agents_and_versions_of_its_partitions_or_all(
    assets: list[str], tags: dict[str, str], scope: tuple[list[str], list[str] | None] | None
) -> None:
    run = SimpleNamespace(tags=tags, asset_selection={dg.AssetKey(name) for name in assets})
    instance = SimpleNamespace(get_dynamic_partitions=lambda _: ["a", "b", "c", "d"])
    context = cast("dg.InitResourceContext", SimpleNamespace(run=run, instance=instance))
    assert scope_of_run(context) == (RunScope(*scope) if scope else None)


def test_a_signal_to_a_forked_child_does_not_interrupt_the_run() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with deferred_interrupts() as is_interrupted:
            if (child := os.fork()) == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert not is_interrupted()
            os.kill(os.getpid(), signal.SIGTERM)
            assert is_interrupted()
    finally:
        signal.signal(signal.SIGTERM, before)
