"""Gates that a benchmark scenario sets for itself: they replace the project's there and nowhere else."""

from fractions import Fraction
from typing import Any

import polars as pl
import pytest

from agent_eval.gates.error_severity import looked_in_scenarios
from agent_eval.gates.names import GateRulesError, check_names
from agent_eval.gates.scenarios import (
    clusters_without_scenarios,
    scenarios_of,
    severity_findings_of_scenarios,
    threshold_findings_of_scenarios,
)
from agent_eval.gates.thresholds import Mean, threshold_findings
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.settings.gate_spec import GateSpec
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from tests.scores.builders import PAIR, judgment

OWN = {"shop/easy": {"thresholds": {"helpfulness": 2}}, "shop/off": {"thresholds": {"helpfulness": False}}}
PLACES = pl.DataFrame(
    {"conversation_id": ["c1", "c2", "c3"], "scenario": ["shop/easy", "shop/off", "shop/plain"]}
)


def spec(**more: Any) -> GateSpec:
    return GateSpec.model_validate({"thresholds": {"helpfulness": 4}, "scenarios": OWN} | more)


def mean(value: int, n_open: int = 0) -> Mean:
    return Mean(Fraction(value), 1, n_open)


def test_a_threshold_of_a_scenario_replaces_the_project_s_there_only() -> None:
    rules = spec().rules("a", "1.3.0")
    means = {"helpfulness": {"shop/easy": mean(3), "shop/off": mean(1), "shop/plain@0123abcd": mean(3)}}
    found = [*threshold_findings(rules, means, {}), *threshold_findings_of_scenarios(rules, means, PLACES)]
    assert {f.subject: f.result for f in found} == {
        "helpfulness in shop/plain@0123abcd": "failed",
        "helpfulness in shop/easy": "passed",
    }


def test_a_metric_without_a_score_in_a_scenario_that_was_run_is_unknown() -> None:
    rules = spec(scenarios={"shop/easy": {"thresholds": {"goal_completion": 1}}}).rules("a", "1.3.0")
    found = list(threshold_findings_of_scenarios(rules, {}, PLACES))
    assert [(f.subject, f.result) for f in found] == [("goal_completion in shop/easy", "unknown")]
    assert list(threshold_findings_of_scenarios(rules, {}, PLACES.clear())) == []


def test_metrics_select_whose_thresholds_apply() -> None:
    own = {"shop/easy": {"metrics": ["coherence"]}}
    rules = spec(thresholds={"helpfulness": 4, "coherence": 4}, scenarios=own).rules("a", "1.3.0")
    means = {"helpfulness": {"shop/easy": mean(1)}, "coherence": {"shop/easy": mean(5)}}
    found = [*threshold_findings(rules, means, {}), *threshold_findings_of_scenarios(rules, means, PLACES)]
    assert [(f.subject, f.result) for f in found] == [("coherence in shop/easy", "passed")]


@pytest.mark.parametrize(
    ("level", "result", "left"),
    [("high", "failed", ["E-1"]), ("critical", "passed", ["E-1"]), ("none", None, ["E-1"])],
)
def test_a_severity_of_a_scenario_counts_its_own_errors_only(
    level: str, result: str | None, left: list[str]
) -> None:
    rules = spec(scenarios={"shop/easy": {"fail_on_error_severity": level}}).rules("a", "1.3.0")
    pair = {"agent_id": "a", "methodology_version": "1.3.0"}
    clusters = table("error_clusters").frame(
        pair | {"cluster_id": name, "label": "repetition", "severity": "high", "severity_rank": 2, "n_failures": 1,
                "n_turns": 1, "n_conversations": 1, "examples": ["c1#0"]}
        for name in ("E-1", "E-2")
    )  # fmt: skip
    failures = pl.DataFrame({"conversation_id": ["c1", "c3"], "cluster_id": ["E-2", "E-1"]})
    looked = {"shop/easy": (10, 10)}
    found = list(severity_findings_of_scenarios(rules, clusters, failures, PLACES, looked))
    assert [f.result for f in found] == ([result] if result else [])
    if (
        result == "passed"
    ):  # without answers to the questions about failures, nothing is known of their absence
        [open_] = severity_findings_of_scenarios(rules, clusters, failures, PLACES, {"shop/easy": (10, 0)})
        assert (open_.result, open_.subject) == ("unknown", f"{level} in shop/easy")
    assert clusters_without_scenarios(rules, clusters, failures, PLACES)["cluster_id"].to_list() == left


def test_a_scenario_is_named_by_the_task_without_its_hash() -> None:
    rows = {
        "conversation_id": ["c1", "c2", "c3"],
        "task_id": ["shop/a@0123abcd", None, "x@y"],
        "is_admitted": [True] * 3,
    }
    assert scenarios_of(pl.DataFrame(rows))["scenario"].to_list() == ["shop/a", "x@y"]


@pytest.mark.parametrize(
    ("own", "error"),
    [({"thresholds": {"composite": 50}}, GateRulesError), ({"thresholds": {"helpfullness": 3}}, GateRulesError),
     ({"thresholds": {"helpfulness": 9}}, GateRulesError), ({"metrics": ["nope"]}, GateRulesError)],
)  # fmt: skip
def test_a_wrong_name_or_limit_names_the_scenario(own: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="Scenario shop/x"):
        check_names(spec(scenarios={"shop/x": own}), DEFAULT, [], [])


@pytest.mark.parametrize(
    ("own", "reason"),
    [({"coherence": 3}, "or it is switched off"), ({"helpfullness": 3}, "Did you mean 'helpfulness'?"),
     ({"composite": 50}, "a score of the whole agent"), ({"helpfulness": 9}, "Allowed: 1 to 5"),
     (None, "shop/easy.scenario.yaml:2: no")],
)  # fmt: skip
def test_a_threshold_of_a_file_that_cannot_be_evaluated_is_unknown_and_the_others_are_evaluated(
    own: dict[str, Any] | None, reason: str
) -> None:
    gates = {"invalid_reason": "shop/easy.scenario.yaml:2: no"} if own is None else {"thresholds": own}
    rules = spec(scenarios={"shop/easy": gates, "shop/plain": {"thresholds": {"helpfulness": 2}}}).rules(
        "a", "1"
    )
    means = {"helpfulness": {"shop/easy": mean(5), "shop/plain": mean(3)}}
    scales = {"helpfulness": (1.0, 5.0)}
    found = list(
        threshold_findings_of_scenarios(rules, means, PLACES, metrics={"helpfulness"}, scales=scales)
    )
    assert {f.subject: f.result for f in found if "easy" in str(f.subject)}.pop(
        f"{next(iter(own))} in shop/easy" if own else "thresholds in shop/easy"
    ) == "unknown"
    assert any(reason in f.evidence for f in found)
    assert [f.result for f in found if f.subject == "helpfulness in shop/plain"] == ["passed"]


def test_questions_about_failures_are_counted_by_scenario() -> None:
    transcripts = pl.DataFrame(
        [
            PAIR | {"conversation_id": c, "task_id": f"{scenario}@0123abcd", "is_admitted": True}
            for c, scenario in (("c1", "shop/a"), ("c2", "shop/b"))
        ]
    )
    turns = table("turn_judgments").frame(
        judgment(
            c,
            "loops",
            None,
            turn_index=i,
            **({"status": "scored", "label": "no failure", "unscored_reason": None} if i else {}),
        )
        for c in ("c1", "c2")
        for i in (0, 1)
    )
    assert looked_in_scenarios(turns, transcripts, {"loops"}, {"shop/a"}) == {
        AgentVersion(PAIR["agent_id"], PAIR["methodology_version"]): {"shop/a": (2, 1)}
    }
    assert looked_in_scenarios(turns, transcripts, {"loops"}, ()) == {}
