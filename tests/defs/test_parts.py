"""Small parts of the definitions: tags, observations, partitions, who started a run, where Dagster keeps its records."""

from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from agent_eval.definitions import defs
from agent_eval.defs.checks import SET_ASIDE, check_specs
from agent_eval.defs.gate_checks import gate_check_specs
from agent_eval.defs.launch import AUDITS, UnknownPartitionError, by_stage, dagster_home
from agent_eval.defs.observations import DATA_VERSION, NAMES, new_observations, observed, report
from agent_eval.defs.partitions import AGENTS, PAIRS, VERSIONS, Shape, key_frame, shape_of
from agent_eval.defs.resources import is_automatic
from agent_eval.errors import StorageError
from agent_eval.project.data_versions import Sources
from agent_eval.tables import TABLES


@pytest.mark.parametrize(
    ("partitions", "shape"),
    [(None, "whole"), (AGENTS, "agent"), (VERSIONS, "version"), (PAIRS, "agent x version")],
)
def test_each_kind_of_partitions_has_its_shape(
    partitions: dg.PartitionsDefinition[str] | None, shape: Shape
) -> None:
    assert shape_of(partitions) == shape


@pytest.mark.parametrize(("partitions", "column"), [(AGENTS, "agent_id"), (VERSIONS, "methodology_version")])
def test_keys_of_one_dimension_are_one_column(partitions: dg.PartitionsDefinition[str], column: str) -> None:
    assert key_frame(partitions, ["x", "y"]).to_dict(as_series=False) == {column: ["x", "y"]}
    assert key_frame(partitions, []).columns == [column]


@pytest.mark.parametrize(
    ("asset", "layer", "partition"),
    [
        ("agent_sessions", "source", "agent"),
        ("turns", "raw", "agent"),
        ("turn_judgments", "judged", "agent-x-version"),
        ("error_clusters", "aggregated", "agent-x-version"),
        ("composite_scores", "aggregated", "agent-x-version"),
        ("leaderboard", "published", "version"),
        ("html_report", "published", "whole"),
    ],
)
def test_an_asset_is_found_by_its_layer_and_its_partitions(asset: str, layer: str, partition: str) -> None:
    (spec,) = (spec for spec in defs.resolve_all_asset_specs() if spec.key == dg.AssetKey(asset))
    assert (spec.tags["layer"], spec.tags["partition"]) == (layer, partition)
    assert spec.tags["domain"] == spec.group_name
    page = spec.metadata["docs"]
    assert isinstance(page, dg.MarkdownMetadataValue | dg.PathMetadataValue)
    path, _, anchor = str(page.value).partition("#")
    document = Path(__file__).parents[2] / path
    assert document.is_file()
    assert not anchor or anchor in document.read_text(encoding="utf-8")


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
    said = str(UnknownPartitionError({"9.0.0"}, ["1.0.0", "1.3.0"]))
    assert "9.0.0" in said
    assert "(1.0.0, 1.3.0)" in said


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
