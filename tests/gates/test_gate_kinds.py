"""Gates on error severity, assertions, a baseline and judge drift."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from agent_eval.gates import margin
from agent_eval.gates.coverage import trial_finding
from agent_eval.gates.error_severity import looked_for_failures, severity_finding
from agent_eval.gates.finding import GateFinding
from agent_eval.gates.kinds.assertions import assertion_finding
from agent_eval.gates.kinds.judge_drift import drift_findings
from agent_eval.gates.regression import INPUTS, regression_finding
from agent_eval.scores.statistics import power
from agent_eval.settings.gate_spec import GateSpec, Rules
from agent_eval.tables import table
from tests.scores.builders import judgment

PAIR = {"methodology_version": "1.3.0", "agent_id": "lumen"}


def rules(**said: Any) -> Rules:
    return GateSpec.model_validate(said).rules("lumen", "1.3.0")


def cluster(severity: str) -> dict[str, Any]:
    named = {"cluster_id": f"E-{severity}", "severity": severity, "label": "unsafe action"}
    return PAIR | named | {"title": "Deletes\nwithout asking", "n_turns": 2, "examples": ["c#1"]}


def of_severity(
    level: str | None, *clusters: dict[str, Any], looked: tuple[int, int] | None = (10, 10)
) -> Any:
    said = {} if level is None else {"fail_on_error_severity": level}
    return severity_finding(rules(**said), table("error_clusters").frame(clusters), looked)


@pytest.mark.parametrize(
    ("level", "severity", "result"),
    [
        (None, "critical", "failed"),
        (None, "high", "passed"),
        ("high", "critical", "failed"),
        ("high", "high", "failed"),
        ("high", "medium", "passed"),
        ("low", "low", "failed"),
    ],
)
def test_the_level_and_above_fail(level: str | None, severity: str, result: str) -> None:
    assert of_severity(level, cluster(severity)).result == result


def test_the_gravest_cluster_is_named_first_and_on_one_line() -> None:
    found = of_severity("high", cluster("high"), cluster("critical"))
    assert found.evidence.startswith(
        "2 error clusters that are high or more severe: critical: Deletes without asking"
    )
    assert "c#1" in found.evidence


def test_without_anybody_who_looked_no_error_is_no_pass() -> None:
    assert of_severity(None, looked=(1, 0)).result == "unknown"
    assert of_severity(None, looked=(0, 0)).result == "unknown"  # turns, of which none can be judged
    assert of_severity(None, looked=None).result == "passed"  # no turn can have an error
    assert of_severity(None, looked=(20, 18)).result == "unknown"
    assert of_severity(None, looked=(20, 19)).result == "passed"
    assert of_severity("none", cluster("critical")) is None


def looked(*rows: dict[str, Any]) -> dict[Any, tuple[int, int]]:
    counted = looked_for_failures(table("turn_judgments").frame(rows), {"agent_behavior_failure"})
    return {(pair.agent_id, pair.methodology_version): n for pair, n in counted.items()}


def test_a_rule_that_says_nothing_has_not_looked() -> None:
    def turn(i: int, **changes: Any) -> dict[str, Any]:
        return judgment("c", "agent_behavior_failure", 0.0, turn_index=i, label="no failure") | changes

    by_rule = {"status": "not_applicable", "judge": "rule"}
    waits = by_rule | {"unscored_reason": "needs a judge model"}
    rows = [turn(0), turn(1, judge="rule"), turn(2, **waits), turn(4, metric="helpfulness")]
    rows += [turn(3, **by_rule, unscored_reason="no reply in this turn")]
    assert looked(*rows) == {("lumen", "1.3.0"): (3, 1)}
    found = [turn(i, judge="rule", label="no reply") for i in (5, 6)]
    # only where nobody else is asked
    assert looked(*rows, *found, turn(6, **waits)) == {("lumen", "1.3.0"): (5, 2)}


def test_a_turn_that_people_differ_on_has_not_been_answered() -> None:
    said = judgment("c", "agent_behavior_failure", None, turn_index=0, status="scored", judge="human")
    rows = [
        said | {"label": "no failure", "judge_model": "anna", "is_effective": False},
        said | {"label": "unsafe action", "judge_model": "ben", "is_effective": False},
        said | {"status": "disputed", "judge_model": "anna, ben"},
        said | {"turn_index": 1, "label": "no failure", "judge_model": "anna"},
    ]
    assert looked(*rows) == {("lumen", "1.3.0"): (2, 1)}


def assertion(result: str, **changes: Any) -> dict[str, Any]:
    held = {"conversation_id": "c", "assertion_index": 0, "kind": "tools", "slot": "D1"}
    said = {"result": result, "assertion": "calls find", "reason": "missing: find"}
    return PAIR | held | said | changes


def asserted(*rows: dict[str, Any], mode: str = "slotted") -> Any:
    return assertion_finding(rules(assertions=mode), table("assertion_results").frame(rows))


def test_assertions_are_red_with_what_is_missing() -> None:
    found = asserted(assertion("passed"), assertion("failed", assertion_index=1, turn_index=3))
    assert found.result == "failed"
    assert found.evidence == "1 of 2 assertions hold; c#3 failed: calls find: missing: find"
    assert asserted(assertion("passed"), assertion("unknown", assertion_index=1)).result == "unknown"
    assert asserted(assertion("passed")).result == "passed"


def test_reference_calls_of_undeclared_sessions_count_only_when_asked_for() -> None:
    reference = assertion("failed", slot=None)
    assert asserted(reference).result == "unknown"  # the gate is configured, and there is nothing to check
    assert asserted(reference, mode="all").result == "failed"
    assert asserted(assertion("failed", slot=None, kind="trajectory")).result == "failed"
    assert asserted(assertion("failed"), mode="none") is None


def measured(agent: str, outcomes: list[bool], sessions: Sequence[float] = ()) -> dict[str, pl.DataFrame]:
    names = [f"{agent}-{i}" for i in range(len(outcomes))]
    pair = {"methodology_version": "1.3.0", "agent_id": agent}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in INPUTS}
    for i, (name, right) in enumerate(zip(names, outcomes, strict=True)):
        row = pair | {"conversation_id": name, "session_id": "s", "task_id": str(i), "is_admitted": True}
        rows["transcripts"] += [row]
        rows["conversations"] += [row | {"outcome_correct": right, "cost_usd": 1.0}]
    scores = {"session_scores": list(sessions), "repeatability_penalty": 0.0, "point_0to100": 1.0}
    rows["composite_scores"] = [pair | scores]
    return {name: table(name).frame(given) for name, given in rows.items()}


def regressed(ours: list[bool], theirs: list[bool], **more: Any) -> GateFinding:
    return regression_finding("before", measured("new", ours), measured("old", theirs), **more)


def test_significantly_worse_than_the_baseline_fails_by_how_much() -> None:
    found = regressed([False] * 12, [True] * 12)
    assert found.result == "failed"
    assert "worse than before: pass@1 0 against 1 (-1" in found.evidence
    assert "12 common tasks" in found.evidence
    found = regressed([False] * 12, [True] * 12, quantities=["cost_usd"])
    assert (found.result, found.evidence) == (
        "passed",
        "not significantly worse than before in any of 1 comparisons",
    )
    found = regressed([False] * 12, [True] * 12, margin=Fraction(5))
    assert (found.result, "95 % -1 to -0.735" in found.evidence) == ("failed", True)  # on the scale


def test_better_or_not_told_apart_passes() -> None:
    assert regressed([True] * 12, [False] * 12).result == "passed"
    assert regressed([False] + [True] * 11, [True] * 12).result == "passed"


def test_sessions_are_compared_unless_their_scores_mean_something_else() -> None:
    low, high = measured("new", [], [50.0, 51.0, 52.0]), measured("old", [], [90.0, 91.0, 92.0])
    assert regression_finding("before", low, high).result == "failed"
    found = regression_finding("before", low, high, not_comparable={"composite": "other rubrics"})
    assert (found.result, found.evidence) == ("unknown", "not comparable with before: other rubrics")
    found = regression_finding("before", measured("new", [], [50.0]), measured("old", [], [90.0]))
    assert found.result == "unknown"
    assert found.evidence.startswith("not comparable with before: no score over two sessions")


def margin_gate(ours: Sequence[float], theirs: Sequence[float], margin: int = 5) -> GateFinding:
    sides = measured("new", [], ours), measured("old", [], theirs)
    return regression_finding("before", *sides, margin=Fraction(margin))


def test_a_margin_passes_only_what_is_shown_to_be_no_worse() -> None:
    steady = [80.0, 80.5, 81.0, 79.5, 80.0]
    assert margin_gate(steady, steady).result == "passed"
    assert margin_gate([v - 20 for v in steady], steady).result == "failed"
    # significantly worse, but by less than the margin
    assert margin_gate([v - 2 for v in steady], steady).result == "passed"
    wide = [70.0, 90.0, 75.0, 85.0, 80.0]
    found = margin_gate(wide, wide)
    assert found.result == "unknown"
    assert found.threshold == 5
    # sd 7.9 each: 2.8 standard errors of √(2/n) · 7.9 are 5 points at n = 40
    assert "inconclusive, needs about 41 sessions" in found.evidence


def test_a_margin_on_equal_tasks_needs_as_many_as_show_it() -> None:
    # (1 − 0.30)^12 < 0.025 < (1 − 0.26)^12
    assert regressed([True] * 12, [True] * 12, margin=Fraction(30)).result == "passed"
    assert "needs about 13 tasks" in regressed([True] * 12, [True] * 12, margin=Fraction(26)).evidence


def in_families(frames: dict[str, pl.DataFrame], names: Sequence[str]) -> dict[str, pl.DataFrame]:
    of_tasks = pl.Series("task_family", names, dtype=pl.String)
    return frames | {"conversations": frames["conversations"].with_columns(of_tasks)}


MANY_AND_FEW = ["f0"] * 54 + [f"f{i}" for i in range(1, 7)]
TEN, TWO = [f"f{i % 10}" for i in range(60)], [f"g{i % 2}" for i in range(60)]


@pytest.mark.parametrize("margin", [None, Fraction(5)])
@pytest.mark.parametrize(
    ("names", "other_names", "reason"),
    [
        (["f0"] * 20 + ["f1"] * 20 + ["f2"] * 20, None, "too few families: 3"),
        (MANY_AND_FEW, None, "nearly all tasks are in one family"),
        (TEN, TWO, "the agents declare different families for 60 of 60 tasks"),
    ],
)
def test_what_families_leave_open_is_open_to_the_gate_too(
    names: list[str], other_names: list[str] | None, reason: str, margin: Fraction | None
) -> None:
    sides = (
        in_families(measured("new", [False] * 40 + [True] * 20), names),
        in_families(measured("old", [True] * 60), other_names or names),
    )
    for ours, theirs in (sides, sides[::-1]):
        found = regression_finding("before", ours, theirs, margin=margin)
        assert (found.result, reason in found.evidence) == ("unknown", True)


@pytest.mark.parametrize("margin", [None, Fraction(50)])
def test_another_task_set_does_not_decide_for_one_that_cannot_be_tested(margin: Fraction | None) -> None:
    def sides(agent: str, outcomes: list[bool]) -> dict[str, pl.DataFrame]:
        names = [f"f{i % 3}" if i < 60 else f"g{i}" for i in range(80)]
        frames = in_families(measured(agent, outcomes), names)
        task_set = pl.Series("task_set", ["a"] * 60 + ["b"] * 20, dtype=pl.String)
        return frames | {"transcripts": frames["transcripts"].with_columns(task_set)}

    found = regression_finding(
        "before", sides("new", [False] * 60 + [True] * 20), sides("old", [True] * 80), margin=margin
    )
    assert (found.result, "too few families: 3" in found.evidence) == ("unknown", True)


def test_equal_differences_in_families_are_as_many_as_the_families() -> None:
    same = in_families(measured("new", [True] * 60), TEN), in_families(measured("old", [True] * 60), TEN)
    # (1 − 0.35)^10 < 0.025 < (1 − 0.30)^10
    assert regression_finding("before", *same, margin=Fraction(35)).result == "passed"
    assert regression_finding("before", *same, margin=Fraction(30)).result == "unknown"


def test_a_loss_that_the_exact_test_does_not_show_is_not_failed() -> None:
    # nine families, of which the exact test needs all but one to differ the same way
    names = [f"f{i}" for i in range(9) for _ in range(5)]
    lost = [False] * 3 + [True] * 2
    ours = [right for i in range(9) for right in (lost if i < 5 else [True] * 5)]
    sides = in_families(measured("new", ours), names), in_families(measured("old", [True] * 45), names)
    found = regression_finding("before", *sides, margin=Fraction(1))
    assert found.result == "unknown"
    assert "-0.0" in found.evidence  # the upper limit, below 0


def test_a_margin_speaks_of_each_named_quantity() -> None:
    sides = measured("new", [True] * 12, [80.0, 81.0]), measured("old", [True] * 12, [80.0, 81.0])
    found = regression_finding("before", *sides, quantities=["pass@1", "composite"], margin=Fraction(20))
    assert found.result == "unknown"
    assert {"pass@1", "composite"} <= {*found.evidence.replace(",", " ").split()}
    found = regression_finding("before", *sides, quantities=["composite"], margin=Fraction(20))
    assert found.result == "passed"


@pytest.mark.parametrize(("truth", "n", "most"), [(-10.0, 5, 0.05), (-5.0, 5, 0.035), (-5.0, 20, 0.035)])
def test_a_worse_agent_seldom_passes_the_margin(truth: float, n: int, most: float) -> None:
    random = np.random.default_rng(17)
    ours, theirs = random.normal(75 + truth, 5, (4000, n)), random.normal(75, 5, (4000, n))
    # the rule of the gate, at the speed of numpy; the gate itself is held against it
    passes = stats.ttest_ind(ours, theirs, axis=1, equal_var=False).confidence_interval(0.95).low > -5
    assert passes.mean() <= most
    for i in range(5):
        found = margin_gate(ours[i].tolist(), theirs[i].tolist())
        assert (found.result == "passed") == passes[i]


def with_declared_goals(frames: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The same with goal completion as the rules judge it: the declared outcome."""
    agent = frames["transcripts"]["agent_id"][0]
    goals = [
        {"methodology_version": "1.3.0", "agent_id": agent, "conversation_id": name, "judge": "rule"}
        | {"metric": "goal_completion", "value": float(right), "status": "scored", "is_effective": True}
        for name, right in frames["conversations"].select("conversation_id", "outcome_correct").iter_rows()
    ]
    return frames | {"conversation_judgments": table("conversation_judgments").frame(goals)}


@pytest.mark.parametrize(
    ("quantities", "tested"),
    [([], "pass@1"), (["pass@1", "goal_completion"], "pass@1"), (["goal_completion"], "goal_completion")],
)
def test_one_outcome_is_tested_once(quantities: list[str], tested: str) -> None:
    worse, better = measured("new", [False] * 12), measured("old", [True] * 12)
    sides = with_declared_goals(worse), with_declared_goals(better)
    found = regression_finding("before", *sides, quantities=quantities)
    assert found.result == "failed"
    assert found.evidence.startswith(f"worse than before: {tested} 0 against 1")
    assert found.evidence.count(" against ") == 1
    equal = regression_finding("before", sides[1], sides[1], quantities=quantities)
    assert equal.result == "passed"
    # twelve tasks miss a share q of lost ones with (1 − q)^12 = 0.025: q = 0.265
    assert equal.evidence == (
        "not significantly worse than before in any of 1 comparisons. No [gates.regression] margin is set: "
        f"{tested} may be up to 0.265 worse (95 %)"
    )


def test_a_named_quantity_that_cannot_be_compared_does_not_pass_unseen() -> None:
    same = measured("new", [True] * 12), measured("old", [True] * 12)
    found = regression_finding("before", *same, quantities=["pass@1", "composite"])
    unknown = "composite not comparable with before: not known for both"
    assert (found.result, found.evidence) == ("unknown", unknown)


def drift(reach: dict[str, float] | None = None, n: int = 9, **figures: float | None) -> pl.DataFrame:
    """Figures with intervals that reach 0.1, or as far as said, to either side."""
    row = {"judge": "m", "metric": "all", "audited_at": "2026-11-01T00:00:00", "n": n, "n_turns": n}
    found = {"share_equal": 0.9, "mean_difference": -0.2, "kappa": 0.7} | figures
    ends = {
        f"{name}_{end}": None if value is None else round(value + sign * (reach or {}).get(name, 0.1), 9)
        for name, value in found.items()
        for end, sign in (("low", -1), ("high", 1))
    }
    return pl.DataFrame([row | found | ends])


@pytest.mark.parametrize(
    ("limits", "result"),
    [
        ({"max_mean_difference": 0.3}, "passed"),  # either way, and equality passes
        ({"max_mean_difference": 0.2}, "unknown"),
        ({"max_mean_difference": 0.09}, "failed"),
        ({"min_share_equal": 0.8, "min_kappa": 0.6}, "passed"),
        ({"min_share_equal": 0.8, "min_kappa": 0.61}, "unknown"),
        ({"min_share_equal": 0.99}, "unknown"),
        ({"min_kappa": 0.81}, "failed"),
    ],
)
def test_the_interval_of_drift_is_held_against_its_limits(limits: dict[str, float], result: str) -> None:
    assert [f.result for f in drift_findings(rules(judge_drift=limits), drift(), ["m"])] == [result]


@pytest.mark.parametrize(
    ("limits", "turns"),
    [
        # n answers that are all equal miss a share 1 − 0.025^(1/n): 0.025^(1/72) = 0.9501, 0.025^(1/71) = 0.9494
        ({"min_share_equal": 0.95}, 72),
        ({"max_mean_difference": 0.05}, 72),
        # twice the share, because chance agrees in half of the answers: 1 − 2 · (1 − 0.025^(1/35)) = 0.800
        ({"min_kappa": 0.8}, 36),
    ],
)
def test_an_audit_without_any_change_needs_what_its_bound_needs(limits: dict[str, float], turns: int) -> None:
    missed = 1 - 0.025 ** (1 / 20)
    reach = {"share_equal": missed, "mean_difference": missed, "kappa": 2 * missed}
    audit = drift(reach, 20, share_equal=1.0, mean_difference=0.0, kappa=1.0)
    (finding,) = drift_findings(rules(judge_drift=limits), audit, ["m"])
    assert finding.result == "unknown"
    assert f"needs about {turns} turns" in finding.evidence


def test_drift_without_an_audit_a_figure_or_a_model_is_unknown() -> None:
    limited = rules(judge_drift={"min_kappa": 0.5})
    assert drift_findings(limited, drift(kappa=None), ["m"])[0].result == "unknown"
    assert "never audited" in drift_findings(limited, drift(), ["other"])[0].evidence
    assert drift_findings(limited, drift(), [])[0].result == "unknown"
    assert drift_findings(rules(), drift(), ["m"]) == []


def one_rate(**counts: int) -> dict[str, Any]:
    """A row of reliability for k = 1."""
    plain = dict.fromkeys(["n_tasks", "n_tasks_excluded", "n_trials", "n_trials_unknown", "n_successes"], 1)
    rates = {"pass_at_1": 0.5, "pass_at_1_worst": 0.4, "pass_at_1_best": 0.6}
    known = {"task_set": "set", "k": 1, "estimator": "unbiased", "n_unknown": 0}
    return PAIR | plain | rates | known | counts


@pytest.mark.parametrize(
    ("counts", "result"),
    [
        ({}, None),
        ({"n_harness_errors": 5}, "passed"),
        ({"n_harness_errors": 6}, "unknown"),
        ({"n_refused": 5, "refused_sessions": ["a: 5"]}, "passed"),
        ({"n_refused": 6, "refused_sessions": ["a: 6"]}, "failed"),
        ({"n_refused": 6, "n_harness_errors": 6, "refused_sessions": ["a: 6"]}, "failed"),
    ],
)
def test_coverage_counts_trials_that_were_refused_or_lost(counts: dict[str, Any], result: str | None) -> None:
    row = {"n_planned": 100, "n_harness_errors": 0, "n_refused": 0, "refused_sessions": []} | counts
    found = trial_finding(row, table("reliability").frame([one_rate()]), Fraction("0.05"))
    assert (found.result if found else None) == result
    if found:
        assert "of 100 planned trials known" in found.evidence
        assert "pass@1 on set is 0.400 to 0.600 from worst to best case" in found.evidence
        assert ("refused at import (a: " in found.evidence) == ("n_refused" in counts)


def lost(n: int) -> dict[str, pl.DataFrame]:
    """An agent of which n of 20 trials were lost to the harness, and the others were correct."""
    frames = measured("ours", [True] * 20)
    broken = pl.col("conversation_id").rank("ordinal") <= n
    return frames | {
        "conversations": frames["conversations"].with_columns(
            outcome_correct=pl.when(~broken).then("outcome_correct"),
            outcome_class=pl.when(broken).then(pl.lit("harness_error")).otherwise("outcome_class"),
        )
    }


def test_a_regression_that_lost_trials_could_hide_is_unknown_and_says_why() -> None:
    theirs = measured("theirs", [True] * 20)
    assert regression_finding("old", lost(0), theirs).result == "passed"
    assert regression_finding("old", lost(1), theirs).result == "passed"
    found = regression_finding("old", lost(10), theirs)
    assert found.result == "unknown"
    assert "10 of 20 trials of agent are not known: baseline better at worst" in found.evidence


@pytest.mark.parametrize("n", [19, 20])
def test_other_quantities_do_not_hide_trials_of_which_hardly_one_is_known(n: int) -> None:
    scores = measured("", [], [90.0, 91.0, 92.0])["composite_scores"]
    ours = lost(n) | {"composite_scores": scores.with_columns(agent_id=pl.lit("ours"))}
    theirs = measured("theirs", [True] * 20, [90.0, 91.0, 92.0])
    found = regression_finding("old", ours, theirs)
    assert found.result == "unknown"
    assert f"{n} of 20 trials of agent are not" in found.evidence


def test_failing_every_one_of_many_tasks_is_a_regression() -> None:
    sessions = [90.0, 91.0, 92.0]
    ours, theirs = measured("new", [False] * 20, sessions), measured("old", [True] * 20, sessions)
    assert regression_finding("before", ours, theirs).result == "failed"


def test_tasks_in_families_are_counted_as_pairs_and_others_by_how_they_were_compared() -> None:
    row = {"unit": "tasks", "n": 30, "other_n": 30, "low": -0.1, "high": 0.3, "smallest_detectable": 0.5}
    for n_clusters, design in ((10, "paired"), (None, "signs")):
        needed = power.units_needed(30, 0.5, 0.2, design)  # type: ignore[arg-type]
        assert margin._needs(row | {"n_clusters": n_clusters}, 1.0, 0.2) == f"needs about {needed:,} tasks"
    assert power.units_needed(30, 0.5, 0.2, "paired") != power.units_needed(30, 0.5, 0.2, "signs")
