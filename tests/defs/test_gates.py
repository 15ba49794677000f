"""Gates and audits as Dagster shows them: red checks say why, an audit writes the judge's drift."""

import shutil
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from agent_eval.commands.run import run
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
        ("passed passed", True, "WARN", None),
        ("passed unknown", False, "WARN", "a 1.3.0 unknown: s1: why"),
        ("unknown failed", False, "ERROR", "a 1.3.0 failed: s1: why; a 1.3.0 unknown: s0: why"),
        ("", True, "WARN", "not demanded here"),
    ],
)
def test_a_red_check_says_who_and_why(results: str, passed: bool, severity: str, said: str | None) -> None:
    found = gate_result("gate_results", "threshold", rows(*results.split()))
    assert (found.passed, found.severity.name, found.description) == (passed, severity, said)


GATED = ("gate_results", "turn_judgments", "composite_scores", "error_clusters", "assertion_results")


def evaluations(instance: dg.DagsterInstance, asset: str) -> dict[str, tuple[bool, str | None]]:
    """Check → passed and description, of the latest evaluation."""
    keys = [key for key in defs.resolve_asset_graph().asset_check_keys if key.asset_key == dg.AssetKey(asset)]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    told = {key.name: record.event.asset_check_evaluation for key, record in found.items() if record.event}
    return {name: (said.passed, said.description) for name, said in told.items() if said}


def test_after_a_run_each_gate_is_a_check_where_it_belongs(sample_root: Path) -> None:
    with dg.DagsterInstance.from_config(str(sample_root / ".dagster")) as instance:
        found = {name: evaluations(instance, name) for name in GATED}
    passed, why = found["turn_judgments"]["judge_coverage"]
    assert not passed  # relay-bot: nobody was asked, and unknown is never passed
    assert why is not None
    assert "relay-bot 1.3.0 unknown: no model was asked a question" in why
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


def outcomes(root: Path) -> dict[str, bool]:
    """Gate check → whether it passed, by its latest evaluation."""
    with dg.DagsterInstance.from_config(str(root / ".dagster")) as instance:
        return {
            f"{asset}.{name}": passed
            for asset in GATED
            for name, (passed, _) in evaluations(instance, asset).items()
        }


@pytest.mark.slow
def test_a_red_check_stays_red_until_its_own_cause_is_gone(sample_copy: Path) -> None:
    before = outcomes(sample_copy)
    assert not all(before.values())
    sessions = sample_copy / "data" / "sessions"
    shutil.copytree(sessions / "quill-help", sessions / "quill-new")  # an agent more turns no check
    allowed = ""
    for agent, others in (("pilot-chat", "relay-bot"), ("relay-bot", "")):  # the two whose errors are red
        assert agent in why_errors_are_red(sample_copy)
        allowed += f'[gates.agents.{agent}]\nfail_on_error_severity = "none"\n'
        (sample_copy / "agent_eval.toml").write_text(allowed)
        run(Project.open())
        assert agent not in why_errors_are_red(sample_copy)
        assert others in why_errors_are_red(sample_copy)
        if others:
            assert outcomes(sample_copy) == before
    after = outcomes(sample_copy)
    moved = {name for name in before if after[name] != before[name]}
    assert moved == {"gate_results.errors", "error_clusters.errors"}


def why_errors_are_red(root: Path) -> str:
    with dg.DagsterInstance.from_config(str(root / ".dagster")) as instance:
        (one,) = {evaluations(instance, asset)["errors"][1] for asset in ("gate_results", "error_clusters")}
    return one or ""


def test_an_audit_without_a_model_says_so_and_has_no_figure(sample_copy: Path) -> None:
    with dg.DagsterInstance.from_config(str(sample_copy / ".dagster")) as instance:
        done = defs.resolve_job_def("audit").execute_in_process(instance=instance)
        (made,) = done.asset_materializations_for_node("judge_audits")
        assert set(made.metadata) == {"skipped"}
        assert evaluations(instance, "judge_audits")["audited"][0] is False
    assert Project.open().table("judge_audits").is_empty()
