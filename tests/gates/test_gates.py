"""Gates: passed, failed or unknown, each with its evidence."""

from typing import Any

import polars as pl
import pytest

from agent_eval.gates import GateSpec, exit_code, gates
from agent_eval.gates.coverage import NOTHING_TO_READ
from agent_eval.judge.audits.drift import latest_drift
from agent_eval.metrics.base import HARNESS_ERROR
from agent_eval.scores.composite.board_facts import NOT_SAMPLED
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.judge_standing import judge_standings
from agent_eval.tables import table
from tests.scores.builders import SLUG, hallucination, judgment, transcripts


def composite(**changes: Any) -> dict[str, Any]:
    pair = {"methodology_version": "1.3.0", "agent_id": "lumen", "template": SLUG, "n_sessions": 1}
    return pair | {"status": "published", "missing": [], "warnings": []} | changes


def turn(index: int, scored: bool = True, **changes: Any) -> dict[str, Any]:
    return judgment("a-D1", "helpfulness", 5.0 if scored else None, turn_index=index, **changes)


def evaluated(
    composites: list[dict[str, Any]] | None = None,
    max_unscored_share: float = 0.05,
    **given: list[dict[str, Any]],
) -> pl.DataFrame:
    """The gates of one complete session, unless other composites, turns, whole (conversations) or held are given."""
    rows = {
        "composite_scores": [composite()] if composites is None else composites,
        "turn_judgments": given.get("turns", [turn(0)]),
        "conversation_judgments": given.get("whole", [] if "turns" in given else [hallucination()]),
        "transcripts": given.get("held", transcripts()),
    }
    frames = {name: table(name).frame(of) for name, of in rows.items()}
    return gates(frames, GateSpec(fail_on_error_severity="none"), max_unscored_share=max_unscored_share)


def results(frame: pl.DataFrame) -> dict[str, str]:
    return dict(zip(frame["gate"], frame["result"], strict=True))


def evidence(frame: pl.DataFrame, gate: str) -> str:
    found: str = frame.filter(pl.col("gate") == gate)["evidence"].item()
    return found


def coverage(frame: pl.DataFrame) -> tuple[str, str]:
    return results(frame)["coverage"], evidence(frame, "coverage")


def test_a_published_agent_passes_every_gate() -> None:
    frame = evaluated()
    assert results(frame) == dict.fromkeys(
        ("coverage", "required_tests", "disclosures", "status", "silent_turns"), "passed"
    )
    assert evidence(frame, "coverage") == "2 of 2 questions scored, 0.0 % unscored; allowed 5.0 %"
    assert exit_code(frame) == 0


@pytest.mark.parametrize(("n_unscored", "result"), [(0, "passed"), (1, "passed"), (2, "failed")])
def test_more_than_five_in_a_hundred_unscored_fail(n_unscored: int, result: str) -> None:
    frame = evaluated(turns=[turn(i, scored=i >= n_unscored) for i in range(20)])
    assert results(frame)["coverage"] == result
    assert f"{20 - n_unscored} of 20" in evidence(frame, "coverage")


def test_the_share_that_is_allowed_can_be_set_and_reaching_it_passes() -> None:
    turns = [turn(i, scored=i >= 3) for i in range(10)]
    assert results(evaluated(turns=turns, whole=[], max_unscored_share=0.3))["coverage"] == "passed"
    assert results(evaluated(turns=turns, whole=[], max_unscored_share=0.29))["coverage"] == "failed"


def test_a_judge_that_scores_nothing_is_unknown_and_never_passed() -> None:
    frame = evaluated(turns=[turn(0, scored=False)])
    assert results(frame)["coverage"] == "unknown"
    assert "parse_failure" in evidence(frame, "coverage")
    assert exit_code(frame) == 2


def test_an_answer_on_less_than_half_of_the_evidence_counts_as_unscored() -> None:
    shares = {0: 0.5, 1: 0.49, 2: None, 3: 1.0}
    frame = evaluated(turns=[turn(i, seen_share=share) for i, share in shares.items()])
    assert results(frame)["coverage"] == "failed"
    said = "3 of 4 questions scored, 25.0 % unscored (judged on less than half of the evidence)"
    assert evidence(frame, "coverage") == f"{said}; allowed 5.0 %"


@pytest.mark.parametrize("judge", ["rule", "human"])
def test_rules_and_people_are_no_model(judge: str) -> None:
    frame = evaluated(turns=[turn(0, judge=judge)])
    assert results(frame)["coverage"] == "passed"
    assert evidence(frame, "coverage").startswith("nothing to ask a model: 1 question is settled")


def test_a_question_that_does_not_apply_is_not_put_to_a_model() -> None:
    frame = evaluated(turns=[turn(0) | {"status": "not_applicable", "unscored_reason": "ended"}])
    assert evidence(frame, "coverage").startswith("no model was asked a question")
    assert results(frame)["coverage"] == "unknown"  # and nothing else was answered
    mixed = evaluated(turns=[turn(0) | {"status": "not_applicable"}, turn(1, judge="human")])
    assert evidence(mixed, "coverage") == "nothing to ask a model: 1 question is settled"


def test_answers_to_an_earlier_wording_are_named() -> None:
    frame = evaluated(turns=[turn(0) | {"earlier_profile": "1"}, turn(1)])
    assert coverage(frame) == (
        "passed",
        "2 of 2 questions scored, 0.0 % unscored; allowed 5.0 %; 1 of them in an earlier wording",
    )


def test_a_question_on_which_people_disagree_is_not_settled() -> None:
    disputed = turn(0, judge="human") | {"status": "disputed"}
    frame = evaluated(turns=[disputed, turn(1, judge="human")])
    assert coverage(frame) == ("unknown", "no model was asked a question; 1 is open")


WAITS = {"judge": "rule", "status": "not_applicable", "unscored_reason": "needs a judge model"}


def test_a_question_that_waits_for_a_model_is_unknown() -> None:
    frame = evaluated(turns=[turn(0, judge="human"), turn(1) | WAITS])
    assert results(frame)["coverage"] == "unknown"
    assert evidence(frame, "coverage").startswith("no model was asked a question; 1 is open")


def test_a_question_that_a_person_answered_waits_no_longer() -> None:
    frame = evaluated(turns=[turn(0) | WAITS, turn(0, judge="human")])
    assert results(frame)["coverage"] == "passed"


@pytest.mark.parametrize("reason", [*NOTHING_TO_READ, NOT_SAMPLED])
def test_what_nobody_can_read_settles_nothing(reason: str) -> None:
    frame = evaluated(turns=[turn(0) | WAITS | {"unscored_reason": reason}])
    assert results(frame)["coverage"] == "unknown"
    assert evidence(frame, "silent_turns") == "nothing was judged"


def test_a_question_that_one_of_several_judges_scored_is_scored() -> None:
    turns = [turn(0, judge="model-a"), turn(0, scored=False, judge="model-b"), turn(1, judge="model-a")]
    assert evidence(evaluated(turns=turns), "coverage").startswith("2 of 2 ")


def test_questions_of_other_agents_and_versions_do_not_count() -> None:
    turns = [turn(0, scored=False, agent_id="other"), turn(0, scored=False, methodology_version="1.2.0")]
    assert evidence(evaluated(turns=[*turns, turn(1)]), "coverage").startswith("1 of 1 ")


@pytest.mark.parametrize(
    ("status", "result"),
    [
        *(("published", "passed"), ("provisional", "failed"), ("incomplete", "failed")),
        *(("invalid", "unknown"), ("not_applicable", "unknown")),
    ],
)
def test_only_published_passes(status: str, result: str) -> None:
    assert results(evaluated(composites=[composite(status=status)]))["status"] == result


HALLUCINATION = "hallucination: present, not judged"


@pytest.mark.parametrize(
    ("missing", "tests", "disclosures"),
    [
        (
            ["U4: no injected error in the session", "error_injection (session a): not held"],
            "failed",
            "passed",
        ),
        ([HALLUCINATION], "unknown", "passed"),
        ([HALLUCINATION, "standardised_task: not held"], "failed", "passed"),
        (["u3_scope: not disclosed"], "passed", "failed"),
        (["repeatability_tested: not disclosed"], "passed", "failed"),
    ],
)
def test_what_is_missing_fails_or_is_unknown_by_name(
    missing: list[str], tests: str, disclosures: str
) -> None:
    frame = evaluated(composites=[composite(status="provisional", missing=missing)])
    assert (results(frame)["required_tests"], results(frame)["disclosures"]) == (tests, disclosures)
    made = "all required disclosures are made"
    assert evidence(frame, "disclosures") == (missing[0] if disclosures == "failed" else made)
    if missing[0].startswith("U4"):
        assert evidence(frame, "required_tests") == "error_injection (session a): not held"


def test_a_test_that_only_warns_passes_and_is_shown() -> None:
    warnings = ["hallucination: not held", "run x is superseded by y"]
    frame = evaluated(composites=[composite(warnings=warnings)])
    assert results(frame)["required_tests"] == "passed"
    assert evidence(frame, "required_tests") == "hallucination: not held"


@pytest.mark.parametrize(
    "given",
    [
        {"composites": [composite(status="incomplete", n_sessions=0)], "held": transcripts([None])},
        {"held": transcripts(is_admitted=False, reason="its session was run for 1.0.0, not for 1.3.0")},
    ],
    ids=["without slots", "sessions that never counted under the version"],
)
def test_an_agent_without_slotted_sessions_is_gated_on_coverage_and_silence_alone(given: Any) -> None:
    assert results(evaluated(**given)) == {"coverage": "passed", "silent_turns": "passed"}


def test_what_the_harness_lost_is_unknown_and_not_the_agents_failure() -> None:
    missing = ["hallucination: no session counts", "u3_scope: no session counts"]
    lost = composite(status="invalid", n_sessions=0, missing=missing)
    held = transcripts(is_admitted=False, reason="harness failure: no disk")
    frame = evaluated(composites=[lost], held=held)
    assert {results(frame)[g] for g in ("required_tests", "disclosures", "status")} == {"unknown"}


def test_a_failure_outweighs_what_is_unknown() -> None:
    frame = evaluated(composites=[composite(status="incomplete")], turns=[])
    assert set(frame["result"]) >= {"failed", "unknown"}
    assert exit_code(frame) == 1


def test_nothing_evaluated_is_not_passed() -> None:
    frame = evaluated(composites=[])
    assert frame.is_empty()
    assert exit_code(frame) == 2


def test_every_pair_has_its_own_gates() -> None:
    composites = [composite(agent_id="b"), composite(), composite(methodology_version="1.2.0")]
    pairs = evaluated(composites).select("methodology_version", "agent_id").unique(maintain_order=True)
    assert pairs.rows() == [("1.2.0", "lumen"), ("1.3.0", "b"), ("1.3.0", "lumen")]


def of_metrics(metrics: set[str], turns: list[dict[str, Any]], **rules: Any) -> pl.DataFrame:
    """The gates of one agent with these metrics switched on."""
    rows = {"composite_scores": [composite()], "turn_judgments": turns, "transcripts": transcripts()}
    frames = {name: table(name).frame(given) for name, given in rows.items()}
    return gates(
        frames,
        GateSpec.model_validate(rules),
        failure_metrics=metrics & {"agent_behavior_failure"},
        metrics=metrics,
        judge_drift=latest_drift(table("judge_audits").empty()),
        calibration=judge_standings(JUDGED, table("judge_calibration").empty()),
    )


THREE = ("coverage", "errors", "silent_turns")


def of_three(turns: list[dict[str, Any]], *metrics: str) -> list[str]:
    """Coverage, errors and silence of an agent with two metrics or more."""
    found = results(of_metrics({"helpfulness", "agent_behavior_failure", *metrics}, turns))
    return [found[name] for name in THREE]


JUDGED = pl.DataFrame(schema=dict.fromkeys([*PAIR, "metric", "judge", "rubric_hash"], pl.String))
SETTLED = turn(0, judge="human") | {"metric": "verbosity"}
LIMITS = {"judge_drift": {"min_kappa": 0.5}, "calibration": {"min_n": 2}}


def test_a_gate_of_metrics_that_are_off_is_named_and_evaluated_only_if_it_is_configured() -> None:
    found = of_metrics({"verbosity"}, [SETTLED])
    assert not {"errors", "silent_turns"} & {*results(found)}
    assert evidence(found, "coverage") == (
        "nothing to ask a model: 1 question is settled; not evaluated, because their metrics are switched off: "
        "errors, silent_turns"
    )
    assert exit_code(found) == 0
    for rules in ({"fail_on_error_severity": "critical"}, {"silent_turns": 0.5}):
        demanded = of_metrics({"verbosity"}, [SETTLED], **rules)
        assert exit_code(demanded) == 2
        assert {*demanded.filter(result="unknown")["evidence"]} == {
            "the metrics of this gate are switched off"
        }


@pytest.mark.parametrize(
    ("turns", "result"), [([SETTLED], "passed"), ([turn(0) | WAITS], "unknown"), ([], "unknown")]
)
def test_without_a_judge_there_is_none_to_check(turns: list[dict[str, Any]], result: str) -> None:
    found = results(of_metrics({"helpfulness", "verbosity"}, turns, **LIMITS))
    assert (found["judge_drift"], found["calibration"], found["coverage"]) == (result,) * 3


def test_an_agent_that_said_nothing_is_passed_by_no_gate() -> None:
    ended = [
        turn(i, judge="rule") | WAITS | {"metric": m, "unscored_reason": "ended"}
        for i in range(3)
        for m in ("helpfulness", "agent_behavior_failure")
    ]
    lost = [turn(i) | WAITS | {"unscored_reason": HARNESS_ERROR} for i in range(4)]
    for turns in (ended, lost, []):
        assert of_three(turns) == ["unknown"] * 3
    goal = turn(0, judge="rule") | {"metric": "goal_completion"}  # as if it were declared
    assert of_three([*ended, goal], "goal_completion") == ["passed", "unknown", "unknown"]


@pytest.mark.parametrize(
    ("turns", "errors", "silent"),
    [
        ([], "unknown", "unknown"),  # as after run --metrics goal_completion
        ([turn(0)], "unknown", "passed"),
        (
            [judgment("a-D1", "agent_behavior_failure", 0.0, label="no failure", turn_index=0)],
            "passed",
            "passed",
        ),
    ],
)
def test_what_was_never_asked_about_the_turns_there_are_is_not_passed(
    turns: list[dict[str, Any]], errors: str, silent: str
) -> None:
    frames = {
        "composite_scores": table("composite_scores").frame([composite()]),
        "turn_judgments": table("turn_judgments").frame(turns),
        "conversation_judgments": table("conversation_judgments").frame([hallucination()]),
        "transcripts": table("transcripts").frame(transcripts()),
    }
    failure_metrics = ["agent_behavior_failure"]
    found = results(gates(frames, GateSpec(), failure_metrics=failure_metrics))
    assert (found["errors"], found["silent_turns"]) == (errors, silent)
    empty = frames["transcripts"].with_columns(n_user_messages=pl.lit(0, pl.Int64))
    nothing = results(gates({**frames, "transcripts": empty}, GateSpec(), failure_metrics=failure_metrics))
    assert turns or (nothing["errors"], nothing["silent_turns"]) == ("passed", "passed")


@pytest.mark.parametrize(
    ("turns", "metrics", "result"),
    [
        ([], None, "unknown"),
        ([turn(0)], ["helpfulness"], "unknown"),  # switched off, although the scenario requires it
        ([judgment("a-D1", "agent_behavior_failure", 0.0, label="no failure", turn_index=0)], None, "passed"),
    ],
)
def test_nor_is_a_severity_of_a_scenario(
    turns: list[dict[str, Any]], metrics: list[str] | None, result: str
) -> None:
    frames = {
        "composite_scores": table("composite_scores").frame([composite()]),
        "turn_judgments": table("turn_judgments").frame(turns),
        "conversation_judgments": table("conversation_judgments").frame([hallucination()]),
        "transcripts": table("transcripts").frame(transcripts(task_id="shop/easy@0123abcd")),
    }
    spec = GateSpec.model_validate({"scenarios": {"shop/easy": {"fail_on_error_severity": "high"}}})
    found = gates(
        frames,
        spec,
        failure_metrics=["agent_behavior_failure"],
        metrics=metrics,
        failures=table("failures").empty(),
    )
    of_scenario = found.filter(pl.col("subject").str.starts_with("high in shop/easy"))
    assert of_scenario["result"].to_list() == [result]


def test_a_severe_label_of_a_metric_of_the_project_fails_the_gate() -> None:
    answers = [
        judgment("a-D1", metric, 0.0, label=label, turn_index=0)
        for metric, label in (("agent_behavior_failure", "no failure"), ("brand", "promises"))
    ]
    frames = {
        "composite_scores": table("composite_scores").frame([composite()]),
        "turn_judgments": table("turn_judgments").frame(answers),
        "transcripts": table("transcripts").frame(transcripts()),
    }
    for severity, result in (("critical", "failed"), ("high", "passed")):
        found = gates(
            frames,
            GateSpec(),
            failure_metrics=["agent_behavior_failure", "brand"],
            severities={"promises": severity},
        )
        assert results(found)["errors"] == result
