"""Gates and audits as Dagster shows them: red checks say why, an audit writes the judge's drift."""

from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from agent_eval.definitions import defs
from agent_eval.defs.gate_checks import gate_result
from agent_eval.project import Project
from agent_eval.tables import table


def rows(*results: str) -> pl.DataFrame:
    pair = {"agent_id": "a", "methodology_version": "1.3.0", "gate": "threshold"}
    return table("gate_results").frame(
        pair | {"subject": f"s{i}", "result": result, "evidence": "why"} for i, result in enumerate(results)
    )


@pytest.mark.parametrize(
    ("results", "passed", "severity", "said"),
    [
        (("passed", "passed"), True, dg.AssetCheckSeverity.WARN, None),
        (("passed", "unknown"), False, dg.AssetCheckSeverity.WARN, "a 1.3.0 unknown: s1: why"),
        (
            ("unknown", "failed"),
            False,
            dg.AssetCheckSeverity.ERROR,
            "a 1.3.0 failed: s1: why; a 1.3.0 unknown: s0: why",
        ),
        ((), True, dg.AssetCheckSeverity.WARN, "not demanded here"),
    ],
)
def test_a_red_check_says_who_and_why(
    results: tuple[str, ...], passed: bool, severity: dg.AssetCheckSeverity, said: str | None
) -> None:
    found = gate_result("gate_results", "threshold", rows(*results))
    assert (found.passed, found.severity, found.description) == (passed, severity, said)


def evaluations(instance: dg.DagsterInstance, asset: str) -> dict[str, tuple[bool, str | None]]:
    """Check → passed and description, of the latest evaluation."""
    keys = [key for key in defs.resolve_asset_graph().asset_check_keys if key.asset_key == dg.AssetKey(asset)]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    told = {key.name: record.event.asset_check_evaluation for key, record in found.items() if record.event}
    return {name: (said.passed, said.description) for name, said in told.items() if said}


def test_after_a_run_each_gate_is_a_check_where_it_belongs(sample_copy: Path) -> None:
    with dg.DagsterInstance.from_config(str(sample_copy / ".dagster")) as instance:
        found = {
            name: evaluations(instance, name)
            for name in (
                "gate_results",
                "turn_judgments",
                "composite_scores",
                "error_clusters",
                "assertion_results",
            )
        }
    passed, why = found["turn_judgments"]["judge_coverage"]
    assert not passed  # relay-bot: nobody was asked, and unknown is never passed
    assert why is not None
    assert "relay-bot 1.3.0 unknown: no question was put to a model" in why
    for asset, check, agent in (
        ("composite_scores", "required_tests", "patchwork-dev"),
        ("error_clusters", "errors", "pilot-chat"),
        ("assertion_results", "assertions", "pilot-chat"),
        ("gate_results", "errors", "pilot-chat"),
    ):
        passed, why = found[asset][check]
        assert not passed
        assert why is not None
        assert f"{agent} " in why
    assert found["gate_results"]["regression"] == (True, "not demanded here")


def test_an_audit_without_a_model_says_so_and_has_no_figure(sample_copy: Path) -> None:
    with dg.DagsterInstance.from_config(str(sample_copy / ".dagster")) as instance:
        done = defs.resolve_job_def("audit").execute_in_process(instance=instance)
        (made,) = done.asset_materializations_for_node("judge_audits")
        assert set(made.metadata) == {"skipped"}
        assert evaluations(instance, "judge_audits")["audited"][0] is False
    assert Project.open().store.read(table("judge_audits")).is_empty()
