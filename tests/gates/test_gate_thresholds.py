"""Thresholds: exact means over scenarios and over the agent; what is not known never passes."""

from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.errors import AgentEvalError
from agent_eval.gates import exit_code, gates
from agent_eval.gates.judgment_facts import JudgmentFacts
from agent_eval.gates.names import check_names
from agent_eval.gates.thresholds import Mean, threshold_findings
from agent_eval.judge.sampling import NOT_SAMPLED
from agent_eval.metrics.base import HARNESS_ERROR, Metric
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.settings.gate_spec import GateSpec
from agent_eval.tables import table
from tests.scores.builders import judgment

PAIR: dict[str, Any] = {"methodology_version": "1.3.0", "agent_id": "lumen"}
COMPOSITE = PAIR | {"n_sessions": 1, "status": "published", "missing": [], "warnings": []}


def spec(**said: Any) -> GateSpec:
    return GateSpec.model_validate({"fail_on_error_severity": "none"} | said)


def transcript(conversation: str, slot: str | None = None, **changes: Any) -> dict[str, Any]:
    held = {"conversation_id": conversation, "session_id": "a", "slot": slot, "is_admitted": True}
    return PAIR | held | changes


def rated(
    conversation: str, *ratings: float | None, metric: str = "helpfulness", **changes: Any
) -> list[dict[str, Any]]:
    """Turns of a conversation with these ratings; None: the judge's answer was lost."""
    rows = []
    for i, value in enumerate(ratings):
        row = judgment(conversation, metric, None if value is None else float(value), turn_index=i)
        if value is not None and float(value).is_integer() and metric != "answer_correctness":
            row |= {"rating_1to5": int(value), "value": None}
        rows.append(row | changes)
    return rows


def results(
    rules: GateSpec,
    turns: list[dict[str, Any]],
    held: list[dict[str, Any]] | None = None,
    **scores: list[dict[str, Any]],
) -> dict[str, str]:
    """Subject → result, of the gates that thresholds make."""
    names = sorted({row["conversation_id"] for row in turns})
    rows = {
        "composite_scores": [COMPOSITE],
        "turn_judgments": turns,
        "transcripts": [transcript(name, name) for name in names] if held is None else held,
    } | scores
    found = gates({name: table(name).frame(given) for name, given in rows.items()}, rules)
    wanted = found.filter(pl.col("gate").is_in(["threshold", "overall", "score"]))
    return dict(wanted.select("subject", "result").iter_rows())


def of_limit(
    limit: object, *turns: dict[str, Any], metric: str = "helpfulness", **given: Any
) -> dict[str, str]:
    """Scenario → result, of one threshold."""
    found = results(spec(thresholds={metric: limit}), list(turns), **given)
    return {subject.removeprefix(f"{metric} in "): result for subject, result in found.items()}


def test_every_scenario_must_reach_the_threshold() -> None:
    # D1: 9/2, D2: 7/2
    assert of_limit(4, *rated("D1", 5, 4), *rated("D2", 3, 4)) == {"D1": "passed", "D2": "failed"}


def test_a_scenario_is_the_mean_over_the_turns_of_all_its_conversations() -> None:
    turns = [*rated("a", 5), *rated("b", 4, 4, 3)]
    held = [transcript("a", "D1"), transcript("b", "D1")]
    # (5 + 4 + 4 + 3) / 4 = 4, not the mean of 5 and 11/3
    assert of_limit(4, *turns, held=held) == {"D1": "passed"}
    assert of_limit("4001/1000", *turns, held=held) == {"D1": "failed"}


def test_the_agent_as_a_whole_is_the_mean_over_all_turns() -> None:
    turns = [*rated("D1", 5, 5, 5), *rated("D2", 1)]
    assert results(spec(overall={"helpfulness": 4}), turns) == {"helpfulness": "passed"}
    assert results(spec(overall={"helpfulness": 4.01}), turns) == {"helpfulness": "failed"}


def test_a_mean_is_exact() -> None:
    # 11/3 is no float; 0.1 + 0.2 + 0.6 = 0.9 as written, and as doubles less than 3 × 0.3
    assert of_limit("11/3", *rated("D1", 4, 4, 3)) == {"D1": "passed"}
    answers = rated("D1", 0.1, 0.2, 0.6, metric="answer_correctness")
    assert of_limit(0.3, *answers, metric="answer_correctness") == {"D1": "passed"}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=9), st.integers(1, 500))
def test_a_mean_passes_its_own_value_and_nothing_above(ratings: list[int], finer: int) -> None:
    mean = Fraction(sum(ratings), len(ratings))
    means = {"helpfulness": {"D1": Mean(Fraction(sum(ratings)), len(ratings))}}

    def result(limit: Fraction) -> list[str]:
        rules = spec(thresholds={"helpfulness": str(limit)}).rules("lumen", "1.3.0")
        return [found.result for found in threshold_findings(rules, means, {})]

    assert result(mean) == ["passed"]
    assert result(mean + Fraction(1, finer)) == ["failed"]


def test_a_metric_without_scores_is_unknown() -> None:
    assert of_limit(1) == results(spec(overall={"helpfulness": 1}), []) == {"helpfulness": "unknown"}
    assert of_limit(1, *rated("D1", None, None)) == {"D1": "unknown"}


@pytest.mark.parametrize(("n_lost", "result"), [(1, "passed"), (2, "unknown")])
def test_a_mean_of_too_few_answers_does_not_pass(n_lost: int, result: str) -> None:
    # one of twenty is 5 %, which is allowed
    assert of_limit(4, *rated("D1", *[5] * (20 - n_lost), *[None] * n_lost)) == {"D1": result}
    assert of_limit(4, *rated("D1", 2, None)) == {"D1": "failed"}  # however few


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"unscored_reason": "needs a judge model"}, "unknown"),
        ({"unscored_reason": "no reply in this turn"}, "passed"),
        ({"unscored_reason": "no reply in this turn", "conversation_id": "D2"}, "passed"),
        ({"judge": "human", "status": "disputed"}, "unknown"),
    ],
)
def test_what_needs_a_model_or_a_decision_is_open(changes: dict[str, str], result: str) -> None:
    row = judgment("D1", "helpfulness", None, turn_index=1, judge="rule", status="not_applicable")
    assert of_limit(4, *rated("D1", 5), row | changes) == {"D1": result}


def test_a_label_counts_as_the_share_without_a_failure() -> None:
    metric = "agent_behavior_failure"
    labels = ["no failure", "no failure", "repetition", "no failure"]
    turns = [
        judgment("D1", metric, 0.0, turn_index=i, label=x) | {"value": None} for i, x in enumerate(labels)
    ]
    assert of_limit(0.75, *turns, metric=metric) == {"D1": "passed"}
    assert of_limit(0.76, *turns, metric=metric) == {"D1": "failed"}


def test_only_effective_answers_of_admitted_conversations_count() -> None:
    turns = [*rated("D1", 5), *rated("D1", 1, judge="other", is_effective=False), *rated("late", 1)]
    held = [transcript("D1", "D1"), transcript("late", "D1", is_admitted=False)]
    assert of_limit(5, *turns, held=held) == {"D1": "passed"}


def test_without_a_slot_a_scenario_is_the_task_and_without_a_task_the_conversation() -> None:
    turns = [*rated("a", 5), *rated("b", 1), *rated("c", 5)]
    held = [transcript("a", task_id="t"), transcript("b", task_id="t"), transcript("c")]
    assert of_limit(4, *turns, held=held) == {"t": "failed", "c": "passed"}


def test_scores_have_thresholds_too_and_the_higher_of_two_holds() -> None:
    parts = COMPOSITE | {"judges": [], "n_unscored": 0}
    scores = {
        "composite_scores": [COMPOSITE | {"composite_exact": "232/3", "raw_composite_exact": "80/1"}],
        "universal_scores": [parts | {"universal_exact": "90/1", "u4": 3.0}],
        "domain_scores": [parts | {"domain_exact": "70/1", "criteria": []}],
    }
    overall = {"domain": 70, "universal": 80, "D5": 1}
    rules = spec(thresholds={"composite": "232/3", "universal": 91, "U4": 3}, overall=overall)
    wanted = dict.fromkeys(("composite", "U4", "domain"), "passed") | {"universal": "failed", "D5": "unknown"}
    assert results(rules, [], [], **scores) == wanted


def test_reliability_is_held_against_its_threshold_in_every_task_set() -> None:
    row = COMPOSITE | {"k": 1, "estimator": "unbiased", "task_set": "retail", "pass_hat_k": 0.2}
    others = {"task_set": "airline", "pass_at_k": 0.5}, {"estimator": "bayesian", "pass_at_k": 0.9}
    rows = [row | more for more in ({"pass_at_k": 0.1 + 0.2}, *others)]
    found = results(spec(thresholds={"pass_at_1": 0.3, "pass_hat_2": 0.1}), [], [], reliability=rows)
    passed = dict.fromkeys(("pass_at_1 on airline", "pass_at_1 on retail"), "passed")
    assert found == passed | {"pass_hat_2": "unknown"}


def test_later_layers_win_and_can_take_a_threshold_back() -> None:
    rules = spec(
        thresholds={"helpfulness": 5},
        methodologies={"1.3.0": {"thresholds": {"helpfulness": 3}}},
        agents={"other": {"thresholds": {"helpfulness": False}}},
    )
    assert results(rules, rated("D1", 4)) == {"helpfulness in D1": "passed"}
    assert rules.rules("lumen", "1.2.0").thresholds == {"helpfulness": 5}
    assert rules.rules("other", "1.3.0").thresholds == {"helpfulness": None}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "four", "1/0", "1e999999999", [4]])
def test_a_limit_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        spec(thresholds={"helpfulness": value})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"thresholds": {"helpfullness": 4}}, r"gates\.thresholds: metric or score 'helpfullness'.*'helpfulness'\?"),
        ({"overall": {"composit": 4}}, r"gates\.overall: .*Did you mean 'composite'"),
        ({"agents": {"lumin": {}}}, r"gates\.agents: agent 'lumin'.*Did you mean 'lumen'"),
        ({"methodologies": {"1.3": {}}}, r"version '1\.3' is not known. Did you mean '1\.3\.0'"),
        ({"agents": {"lumen": {"thresholds": {"x": 1}}}}, r"gates\.agents\.lumen\.thresholds: .*'x' is not known"),
        ({"baseline": {"agent": "lumem"}}, r"gates\.baseline\.agent: agent 'lumem'.*'lumen'"),
        ({"baseline": {"methodology": "9.9.9"}}, r"gates\.baseline\.methodology: version '9\.9\.9'"),
        ({"baseline": {"agent": "lumen", "quantities": ["composit"]}}, r"quantity 'composit'.*'composite'"),
        ({"thresholds": {"helpfulness": 45}}, r"helpfulness: 45 is outside its scale. Allowed: 1 to 5"),
        ({"regression": {"margin": 5}}, r"gates\.regression: a margin needs a baseline .*\[gates\.baseline\]"),
        ({"thresholds": {"pass_at_1": 95}}, r"pass_at_1: 95 is outside its scale. Allowed: 0 to 1"),
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_refused_with_the_nearest(said: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentEvalError, match=message):
        check_names(spec(**said), DEFAULT, ["lumen"], ["1.2.0", "1.3.0"])


def test_labels_that_are_no_failures_have_no_mean() -> None:
    tone = Metric("tone", "turn", "label", "Which tone?", {"warm": "w", "cool": "c"})
    with pytest.raises(AgentEvalError, match="its labels are not failures"):
        check_names(spec(thresholds={"tone": 1}), DEFAULT.with_custom([tone]), [], [])


def test_a_missed_threshold_is_red() -> None:
    rows = {"turn_judgments": rated("D1", 3), "transcripts": [transcript("D1")]}
    rows |= {"composite_scores": [COMPOSITE]}
    found = gates({n: table(n).frame(r) for n, r in rows.items()}, spec(thresholds={"helpfulness": 4}))
    assert exit_code(found) == 1
    missed = found.filter(gate="threshold").row(0, named=True)
    assert (missed["value"], missed["threshold"]) == (3.0, 4.0)
    assert missed["evidence"] == "mean 3 over 1 of 1 answers, at least 4 required"


def rate(value: float, worst: float, best: float, **changes: Any) -> dict[str, Any]:
    """A row of reliability for k = 2; pass@1 over all tasks has the same numbers."""
    counts = dict.fromkeys(["n_tasks", "n_tasks_excluded", "n_trials", "n_trials_unknown", "n_successes"], 1)
    ends = {"": value, "_worst": worst, "_best": best}
    names = ("pass_at_k", "pass_hat_k", "pass_at_1")
    rates = {f"{name}{end}": number for name in names for end, number in ends.items()}
    return PAIR | {"task_set": "set", "k": 2, "estimator": "unbiased"} | counts | rates | changes


RANGE = [*((limit, "passed") for limit in (0.3, 0.4)), *((limit, "unknown") for limit in (0.45, 0.5, 0.6))]


@pytest.mark.parametrize(("limit", "result"), [*RANGE, (0.61, "failed")])
def test_a_pass_rate_is_unknown_where_open_trials_could_turn_it(limit: float, result: str) -> None:
    found = results(spec(overall={"pass_hat_2": limit}), [], reliability=[rate(0.5, 0.4, 0.6)])
    assert found == {"pass_hat_2 on set": result}


def test_a_threshold_on_pass_at_1_is_held_against_all_tasks_as_the_board_is() -> None:
    one = rate(0.9, 0.9, 0.9, k=1, pass_at_1=0.5, pass_at_1_worst=0.5, pass_at_1_best=0.5)
    for name in ("pass_at_1", "pass_hat_1"):
        assert results(spec(overall={name: 0.6}), [], reliability=[one]) == {f"{name} on set": "failed"}


def goals(*values: float) -> list[dict[str, Any]]:
    return [judgment(str(i), "goal_completion", float(value)) for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("limit", "result"), [(0.5, "passed"), (0.6, "unknown"), (0.75, "unknown"), (0.8, "failed")]
)
def test_goal_completion_is_unknown_where_open_conversations_could_turn_it(limit: float, result: str) -> None:
    # 2 of 3 reached, the fourth was lost to the harness: from 2/4 to 3/4
    broken = judgment("3", "goal_completion", None, status="not_applicable", unscored_reason=HARNESS_ERROR)
    held = [transcript(str(i)) for i in range(4)]
    rules = spec(overall={"goal_completion": limit}, max_unscored_share=0.5)
    found = results(rules, [], held, conversation_judgments=[*goals(1, 1, 0), broken])
    assert found == {"goal_completion": result}


@pytest.mark.parametrize(("n_refused", "result"), [(0, "passed"), (1, "unknown")])
def test_records_refused_at_import_are_open_answers_on_goal_completion(n_refused: int, result: str) -> None:
    held = [transcript(str(i)) for i in range(10)]
    scores = {"composite_scores": [COMPOSITE | {"n_refused": n_refused}]}
    rules = spec(overall={"goal_completion": 0.95})
    found = results(rules, [], held, conversation_judgments=goals(*[1] * 10), **scores)
    assert found == {"goal_completion": result}


def of_goals(rules: GateSpec, given: list[dict[str, Any]], classes: list[str], *slots: str) -> dict[str, str]:
    """Subject → result, of goals of conversations with these outcome classes."""
    held = [transcript(str(i), slot) for i, slot in enumerate(slots)]
    transcripts = table("transcripts").frame(held)
    facts = JudgmentFacts.of(
        {"conversation_judgments": table("conversation_judgments").frame(given)},
        transcripts.with_columns(outcome_class=pl.Series(classes)),
        failure_metrics=(),
        mean_of=rules.threshold_names,
    )
    frames = {"composite_scores": table("composite_scores").frame([COMPOSITE]), "transcripts": transcripts}
    found = gates(frames, rules, facts=facts).filter(pl.col("gate").is_in(["threshold", "overall"]))
    return dict(found.select("subject", "result").iter_rows())


@pytest.mark.parametrize(("limit", "result"), [(0.5, "passed"), (0.6, "unknown"), (0.8, "failed")])
def test_goal_completion_is_unknown_where_unexplained_errors_could_turn_it(limit: float, result: str) -> None:
    # 2 of 4 reached; one of the two failures ended in an error of unknown cause: from 2/4 to 3/4
    classes = ["passed", "passed", "failed", "unexplained_error"]
    for rules, subject in (("overall", "goal_completion"), ("thresholds", "goal_completion in D1")):
        said = spec(**{rules: {"goal_completion": limit}})
        assert of_goals(said, goals(1, 1, 0, 0), classes, *["D1"] * 4) == {subject: result}


def test_an_error_of_unknown_cause_leaves_other_scenarios_and_goals_that_were_reached_alone() -> None:
    rules = spec(thresholds={"goal_completion": 0.6})
    found = of_goals(rules, goals(0, 1, 0.5), ["unexplained_error"] * 3, "D1", "D2", "D3")
    assert [*found.values()] == ["unknown", "passed", "unknown"]


def of_rule(conversation: str, turn: int) -> dict[str, Any]:
    by_rule = {"judge": "rule", "rating_1to5": 1, "status": "scored"}
    return judgment(conversation, "helpfulness", None, turn_index=turn, **by_rule)


def not_asked(conversation: str, turn: int) -> dict[str, Any]:
    said = {"judge": "rule", "status": "not_applicable", "unscored_reason": "needs a judge model"}
    return judgment(conversation, "helpfulness", None, turn_index=turn, **said)


def test_a_mean_that_only_rules_gave_is_unknown_while_questions_are_open() -> None:
    def overall(*turns: dict[str, Any]) -> str:
        return results(spec(overall={"helpfulness": 4}), list(turns))["helpfulness"]

    assert overall(of_rule("c", 0), *(not_asked("c", i) for i in range(1, 100))) == "unknown"
    # a judge read two turns, both below the limit: failed by these, not by the rule
    still_open = [of_rule("c", 0), *(not_asked("c", i) for i in range(1, 9))]
    assert overall(*rated("d", 2, 3), *still_open) == "failed"
    assert overall(*rated("d", 5, 5), *still_open) == "unknown"
    # nothing is open: the rule's rating counts, (5 + 5 + 1) / 3 < 4
    assert overall(*rated("d", 5, 5), of_rule("c", 0)) == "failed"


def test_rules_outside_the_judged_sample_turn_no_gate() -> None:
    left_out = {"judge": "rule", "status": "not_applicable", "unscored_reason": NOT_SAMPLED}
    silent = [of_rule(f"s{i}", 0) for i in range(9)]
    others = [judgment(f"s{i}", "coherence", None, turn_index=0, **left_out) for i in range(9)]
    rules = spec(overall={"helpfulness": 4})
    assert results(rules, [*rated("d", 5), *silent, *others]) == {"helpfulness": "passed"}
    assert results(rules, [*rated("d", 5), *silent]) == {"helpfulness": "failed"}


@pytest.mark.parametrize("share", [0.05, 0.94, 1])
def test_a_mean_that_rules_alone_gave_is_none_whatever_share_may_be_open(share: float) -> None:
    turns = [of_rule("c", 0), *(not_asked("c", i) for i in range(1, 16))]
    rules = spec(overall={"helpfulness": 1}, thresholds={"helpfulness": 1}, max_unscored_share=share)
    assert set(results(rules, turns).values()) == {"unknown"}
