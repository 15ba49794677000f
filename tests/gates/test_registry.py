"""Every gate, by walking the registry: what an addition has to bring, and that it says only what it declares."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from agent_eval.definitions import defs
from agent_eval.gates import GateFinding, GateSpec, evaluate, gates, kinds
from agent_eval.gates.evaluate import GATES, KINDS
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.judge.audits.drift import latest_drift
from agent_eval.scores.judge_standing import judge_standings
from agent_eval.settings.gate_spec import Layer, Rules
from agent_eval.tables import TABLES, table
from agent_eval.tables.agent_version import AgentVersion
from tests.gates.test_gates import JUDGED, composite, turn
from tests.scores.builders import hallucination, transcripts

every_gate = pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.kinds[0].name)


def test_each_module_is_a_gate_with_a_place_and_names_of_its_own() -> None:
    assert len(GATES) == len([*Path(kinds.__path__[0]).glob("[!_]*.py")])
    assert len({gate.order for gate in GATES}) == len(GATES)
    names = [kind.name for gate in GATES for kind in gate.kinds]
    assert sorted(names) == sorted(KINDS)


CHANGES: dict[str, list[Any]] = {
    "thresholds": [{"helpfulness": 3}, {"helpfulness": "3.5"}, {"helpfulness": False}, {"other": 3}],
    "overall": [{"composite": 70}, {"composite": 71}],
    "confidence": ["point", "lower"],
    "fail_on_error_severity": ["critical", "none"],
    "silent_turns": ["0.1", "0.2", False],
    "issues": [True, False],
    "assertions": ["slotted", "all"],
    "max_unscored_share": ["0.05", "0.1"],
    "judge_drift": [{"min_kappa": "0.6"}, {"min_kappa": "0.7"}, {"min_share_equal": "0.7"}, False],
    "calibration": [
        {"min_n": 20},
        {"min_n": 30},
        {"min_kappa": "0.5"},
        {"min_n": 20, "metrics": ["a"]},
        False,
    ],
    "baseline": [{"agent": "a"}, {"agent": "b"}, {"methodology": "1.2.0"}, False],
    "regression": [{"margin": 2}, {"margin": "2.5"}, False],
}


@pytest.mark.parametrize("condition", Layer.model_fields)
def test_a_changed_condition_is_another_version_of_the_gates(condition: str) -> None:
    specs = [GateSpec(), *(GateSpec.model_validate({condition: value}) for value in CHANGES[condition])]
    assert len({json.dumps(spec.model_dump(mode="json"), sort_keys=True) for spec in specs}) == len(specs)


@every_gate
def test_a_gate_says_what_it_means_when_it_exists_and_when_it_passes(gate: Gate) -> None:
    assert gate.kinds
    for kind in gate.kinds:
        assert kind.meaning.endswith("."), "a sentence for the asset check"
        assert [text for text in (kind.exists, kind.passes) if not text.strip() or "|" in text] == []


@every_gate
def test_a_gate_is_a_check_of_an_asset_that_exists(gate: Gate) -> None:
    keys = {(key.asset_key.to_user_string(), key.name) for key in defs.resolve_asset_graph().asset_check_keys}
    for kind in gate.kinds:
        assert {("gate_results", kind.name), *filter(None, (kind.check,))} <= keys
        assert kind.check is None or kind.check[0] in TABLES


@every_gate
def test_a_gate_with_a_default_names_its_key(gate: Gate) -> None:
    assert (gate.metrics is None) == (gate.key == "")
    assert gate.key in ("", *Layer.model_fields)


def test_every_limit_has_a_default_in_the_rules() -> None:
    assert set(Layer.model_fields) <= set(Rules.__dataclass_fields__)
    for name in Layer.model_fields:
        layered = Rules().with_layer(Layer())
        assert getattr(layered, name) == getattr(Rules(), name)


EVERY_LIMIT = {
    "thresholds": {"helpfulness": 4, "composite": 70},
    "overall": {"helpfulness": 4},
    "assertions": "all",
    "judge_drift": {"min_kappa": 0.6},
    "calibration": {"min_kappa": 0.6},
}
ISSUE = {
    **{"methodology_version": "1.3.0", "agent_id": "lumen", "cluster_id": "c1", "label": "repetition", "status": "fixed"},
    **{"first_run": "r1", "last_run": "r1", "fixed_in": "r2", "rank": 1, "n_runs_clean": 1, "n_clean": 9},
    **{"severity": "low", "n_conversations": 1, "n_conversations_looked": 9},
}  # fmt: skip


def evaluated(regression: GateFinding) -> list[str]:
    """The kinds of the findings about an agent for which every limit is set."""
    rows = {
        "composite_scores": [composite()],
        "turn_judgments": [turn(0)],
        "conversation_judgments": [hallucination()],
        "transcripts": transcripts(),
        "error_issues": [ISSUE],
    }
    found = gates(
        {name: table(name).frame(of) for name, of in rows.items()},
        GateSpec.model_validate(EVERY_LIMIT),
        failure_metrics={"agent_behavior_failure"},
        regressions={AgentVersion.of(agent_id="lumen", methodology_version="1.3.0"): regression},
        judge_drift=latest_drift(table("judge_audits").empty()),
        calibration=judge_standings(JUDGED, table("judge_calibration").empty()),
    )
    return list(dict.fromkeys(found["gate"]))


def test_every_kind_is_found_in_the_order_of_the_registry_if_its_limit_is_set() -> None:
    assert evaluated(GateFinding("regression", "passed", "not worse")) == [*KINDS]


def test_a_finding_of_an_undeclared_kind_is_refused() -> None:
    with pytest.raises(KeyError, match="novel"):
        evaluated(GateFinding("novel", "passed", "why"))


@every_gate
@pytest.mark.parametrize("is_scored", [True, False])
def test_a_gate_passes_nothing_and_raises_nothing_where_there_is_nothing_to_decide(
    gate: Gate, is_scored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No questions, no costs, no scores: an empty denominator is unknown or is no gate."""
    frames: dict[str, pl.DataFrame] = {"transcripts": table("transcripts").frame(transcripts([None]))}
    if is_scored:
        row = composite(**dict.fromkeys(("status", "template", "n_sessions"))) | {"n_conversations": 0}
        unscored = {**row, "status": "not_applicable", "n_sessions": 0}
        frames["composite_scores"] = table("composite_scores").frame([unscored])
    cases: list[GateCase] = []

    def noted(case: GateCase) -> list[GateFinding]:
        cases.append(case)
        return [GateFinding("status", "unknown", "only a note")]

    monkeypatch.setattr(evaluate, "GATES", (Gate(0, (Kind("status", "", "", ""),), noted),))
    gates(frames, GateSpec.model_validate(EVERY_LIMIT))
    results = [finding.result for case in cases for finding in gate.findings(case) if finding is not None]
    assert len(cases) == 1
    assert "passed" not in results
