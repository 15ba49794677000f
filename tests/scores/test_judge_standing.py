"""Whether the judges of a row are calibrated, stale or not, and the gate that demands it."""

from typing import Any

import polars as pl
import pytest

from agent_eval.gates.kinds.calibration import calibration_findings
from agent_eval.project import calibration
from agent_eval.report.board import calibration as badge
from agent_eval.scores.calibration import judge_calibration, with_earlier
from agent_eval.scores.judge_standing import board_calibration, judge_standings
from agent_eval.settings.gate_spec import GateSpec
from agent_eval.tables import table
from agent_eval.tables.schema import DECLARED
from tests.scores.test_calibration import frame_of, sides


def compared(judge: list[float], human: list[float]) -> pl.DataFrame:
    return judge_calibration(frame_of(sides("value", judge, human)))


HUMAN = [1.0, 0.0] * 10
GOOD = compared([0.0, *HUMAN[1:]], HUMAN)
"""20 labels, one of them wrong: observed agreement 19/20, chance 1/2, kappa 0.9."""


def judged(*rows: tuple[str, str, str | None]) -> pl.DataFrame:
    names = ("metric", "judge", "rubric_hash")
    schema = dict.fromkeys(("methodology_version", "agent_id", *names), pl.String)
    return pl.DataFrame([("1.3.0", "b", *row) for row in rows], schema=schema, orient="row")


def standing(compared: pl.DataFrame, *rows: tuple[str, str, str | None]) -> list[str]:
    return judge_standings(judged(*rows), compared)["standing"].to_list()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("m", "gpt", "r"), "calibrated"),
        (("m", "gpt", "r2"), "stale"),  # another rubric
        (("m", "other", "r"), "stale"),  # another model
        (("other", "gpt", "r"), "not calibrated"),
    ],
)
def test_a_judge_is_calibrated_for_what_people_labelled(row: tuple[str, str, str], expected: str) -> None:
    assert standing(GOOD, row) == [expected]


def test_people_rules_other_tools_and_few_labels_are_not_held_and_are_not_stale() -> None:
    assert standing(GOOD, ("m", "human", "r"), ("m", "rule", "r"), ("m", "import:gpt", "r")) == []
    few = compared([1.0, 0.0], [1.0, 1.0])
    assert standing(few, ("m", "gpt", "r"), ("m", "gpt", "r2")) == ["not calibrated", "not calibrated"]


def test_a_comparison_that_cannot_be_made_again_is_kept_as_stale_until_a_judge_can_be_compared() -> None:
    nothing = table("judge_calibration").empty()
    labels = frame_of(sides("value", [], [1.0]))
    kept = with_earlier(nothing, GOOD, labels)
    assert kept["is_stale"].to_list() == [True]
    assert standing(kept, ("m", "gpt", "r")) == ["stale"]
    assert with_earlier(GOOD, kept, labels)["is_stale"].to_list() == [False]
    of_others = frame_of([{**row, "judge": "import:gpt"} if row["judge"] == "gpt" else row for row in sides("value", [1.0], [1.0])])  # fmt: skip
    assert with_earlier(nothing, judge_calibration(of_others), labels).is_empty()
    assert with_earlier(nothing, GOOD, labels.clear()).is_empty()  # the labels were taken back


def test_the_badge_shows_the_metric_whose_interval_reaches_lowest() -> None:
    figures: dict[str, Any] = {
        "kappa": 0.61,
        "kappa_low": 0.42,
        "kappa_high": 0.78,
        "n": pl.lit(60, pl.Int64),
    }
    both = pl.concat([GOOD, GOOD.with_columns(metric=pl.lit("n"), **figures)])

    def board(compared: pl.DataFrame, *rows: tuple[str, str, str]) -> dict[str, Any]:
        (row,) = board_calibration(judge_standings(judged(*rows), compared)).to_dicts()
        return row | {"badge": badge(row)}

    row = board(both, ("m", "gpt", "r"), ("n", "gpt", "r"), ("x", "gpt", "r"))
    assert row["badge"] == (
        "judge checked against people: 60 labels, agreement 0.95, kappa 0.61 (0.42 to 0.78), n, lowest of 2 metrics"
    )
    assert row["n_metrics_judged"] == 3
    stale = board(GOOD, ("m", "other", "r"))["badge"]
    assert str(stale).startswith(
        "judge has changed since people checked it: 20 labels, agreement 0.95, kappa 0.90 ("
    )
    assert board(GOOD, ("x", "gpt", "r"))["badge"] == "judge not checked against people"
    few = GOOD.with_columns(kappa_low=pl.lit(None, pl.Float64), n=pl.lit(1, pl.Int64))
    few_labels = "1 label of people, too few: judge not checked against people"
    assert board(few, ("m", "gpt", "r"))["badge"] == few_labels


def findings(
    limits: dict[str, Any], *rows: tuple[str, str, str | None], known: pl.DataFrame = GOOD
) -> list[tuple[str, str]]:
    rules = GateSpec.model_validate({"calibration": limits}).rules("b", "1.3.0")
    return [
        (f.result, f.evidence) for f in calibration_findings(rules, judge_standings(judged(*rows), known))
    ]


def test_the_gate_holds_the_lower_end_and_says_how_many_labels_it_needs() -> None:
    kappa, low = GOOD["kappa"][0], GOOD["kappa_low"][0]
    assert kappa == pytest.approx(0.9)
    # one difference in 20: at most 24.9 % (Clopper and Pearson), of the 50 % by chance
    assert low == pytest.approx(1 - 0.24873 / 0.5, abs=1e-4)
    [(result, evidence)] = findings({"min_kappa": 0.6}, ("m", "gpt", "r"))
    assert result == "failed"
    # 20 · (0.397 / 0.3)²
    assert "kappa 0.90, lower end at least 0.6, 95 % 0.50 to 1.00" in evidence
    assert "at this kappa it needs about 36 labels" in evidence
    assert findings({"min_kappa": 0.5, "min_n": 20}, ("m", "gpt", "r"))[0][0] == "passed"
    assert "more labels alone do not help" in findings({"min_kappa": 0.95}, ("m", "gpt", "r"))[0][1]
    [(result, evidence)] = findings({"min_kappa": 0.6, "min_n": 50}, ("m", "gpt", "r"))
    assert (result, "needs 30 more labels" in evidence) == ("failed", True)


def test_as_many_labels_as_the_gate_asks_for_pass_it() -> None:
    human = [1.0, 0.0] * 18
    more = compared([0.0, 0.0, *human[2:18], 0.0, 0.0, *human[20:]], human)  # 2 of 36 differ: kappa 0.889
    assert more["kappa_low"][0] > 0.6


def test_the_gate_is_unknown_without_labels_or_with_stale_ones() -> None:
    limits = {"min_kappa": 0.5}
    assert findings(limits)[0][0] == "unknown"
    assert findings(limits, ("x", "gpt", "r"))[0][0] == "unknown"
    assert findings(limits, ("m", "other", "r"))[0][0] == "unknown"
    assert findings(limits | {"metrics": ["x"]}, ("m", "gpt", "r"))[0][0] == "unknown"
    [(result, evidence)] = findings(limits, ("m", "gpt", "r"), ("x", "gpt", "r"))
    assert (result, evidence.endswith("; no labels of x")) == ("passed", True)


def test_answers_that_never_vary_have_no_kappa_to_hold() -> None:
    [(result, evidence)] = findings(
        {"min_kappa": 0.6}, ("m", "gpt", "r"), known=compared([1.0] * 6, [1.0] * 6)
    )
    assert (result, "kappa is not defined" in evidence) == ("unknown", True)


def test_ratings_of_sessions_are_compared_by_criterion() -> None:
    rows = sides("rating_1to5", [4, 2], [4, 3])
    other = [{**row, "criterion": "accuracy"} for row in rows if row["judge"] == "gpt"]
    both = judge_calibration(frame_of([*rows, *other]))  # people rated no criterion
    assert both["n"].to_list() == [2]


def test_reliability_shows_the_judge_that_decides_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    goal = GOOD.with_columns(metric=pl.lit("goal_completion"))
    held = judge_standings(judged(("goal_completion", "gpt", "r"), ("helpfulness", "gpt", "r")), goal)
    monkeypatch.setattr(calibration, "standings", lambda *_: held)
    sources = ("outcome", "goal_completion", "interactions", "goal_completion + outcome", None)
    pair = {"methodology_version": "1.3.0", "agent_id": "b"}
    board = pl.DataFrame(pair | {"correctness_source": source} for source in sources)
    board = board.with_columns(pl.lit(None).alias(name) for name in DECLARED["calibrated"].columns)
    found = calibration.with_calibration(None, board)  # type: ignore[arg-type]
    shown = [(None, None), ("calibrated", 20)]
    assert found.select("calibration", "calibration_n").rows() == [*shown, *shown, shown[0]]
