"""Labels that sheets drew correct means; other labels, and rules, decide their own part."""

import itertools
import math
import random
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest

from agent_eval.scores.compared_labels import with_labels
from agent_eval.scores.corrected_mean import corrected_mean
from agent_eval.scores.labelled_parts import PARTS, corrected, labelled_metrics, parts_of, success_parts
from agent_eval.scores.statistics.corrected_rate import DoubleSample
from agent_eval.scores.statistics.intervals import Sample, bounded_mean
from agent_eval.scores.statistics.power import shared, units_needed
from agent_eval.tables import table
from agent_eval.tables.judging import deciding_answers
from tests.judge.fakes import ScriptedClient
from tests.judge.material import agent, conversation, user
from tests.judge.test_engine import judged, valued

RATE, RATING = (0.0, 1.0), (1.0, 5.0)


def parts(
    values: Sequence[float],
    human: Sequence[float | None],
    weight: float | None = 1.0,
    per: int = 1,
    n_sessions: int = 1,
) -> pl.DataFrame:
    """Parts of one quantity, `per` of them in a conversation."""
    rows = [
        ("1.3.0", "a", f"c{i // per}", "q", "gpt", i, value, said, None if said is None else weight, value)
        for i, (value, said) in enumerate(zip(values, human, strict=True))
    ]
    found = pl.DataFrame(rows, schema=PARTS, orient="row")
    session = pl.concat_str(pl.lit("s"), pl.int_range(pl.len()) // per % n_sessions)
    return found.with_columns(session_id=session, cluster="conversation_id")


def rate_of(rows: pl.DataFrame, bounds: tuple[float, float] = RATE) -> Any:
    made = corrected(rows, "conversation_id", bounds)
    return None if made is None else made[0]


def test_a_rate_is_the_share_of_positives_among_the_labels_of_each_answer() -> None:
    # of 40 answers of 20 conversations the judge passes half; people pass 3 of 4 of these and 1 of 5 of the others
    passed = [1.0, 1.0, 1.0, 0.0] * 5
    human = [v for i in range(0, 20, 2) for v in (*passed[i : i + 2], *([1.0, 0.0] if i < 8 else [0.0, 0.0]))]
    found = rate_of(parts([1.0, 1.0, 0.0, 0.0] * 10, human, per=2, n_sessions=20))
    assert found.value == pytest.approx(0.5 * 15 / 20 + 0.5 * 4 / 20)
    assert (found.of_judge, found.n_drawn, found.n_own) == (pytest.approx(0.5), 40, 0)
    assert found.low < found.value < found.high


@pytest.mark.parametrize(("n_labelled", "weight"), [(4, 1.0), (0, 1.0), (20, None)])
def test_labels_in_few_conversations_or_of_no_sheet_correct_nothing(
    n_labelled: int, weight: float | None
) -> None:
    human = [0.0] * n_labelled + [None] * (30 - n_labelled)
    assert rate_of(parts([1.0] * 30, human, weight)) is None


def test_if_people_labelled_every_part_their_mean_counts_however_few_there_are() -> None:
    found = rate_of(parts([1.0, 1.0, 1.0], [0.0, 1.0, 0.0]))
    assert found.value == pytest.approx(1 / 3)
    assert rate_of(parts([4.0, 5.0, 4.0], [1.0, 2.0, 3.0]), RATING).value == pytest.approx(2.0)
    (alone,) = [rate_of(parts([1.0], [0.0]))]
    assert (alone.value, alone.low) == (0.0, None)


def test_a_label_that_no_sheet_drew_moves_the_mean_by_its_own_part_at_most() -> None:
    draws = random.Random(7)
    for bounds in (RATE, RATING):
        scale = [0.0, 1.0] if bounds == RATE else [1.0, 2.0, 3.0, 4.0, 5.0]
        for _ in range(60):
            n = draws.randint(8, 40)
            values = [draws.choice(scale) for _ in range(n)]
            human = [draws.choice(scale) if i < 6 or draws.random() < 0.3 else None for i in range(n)]
            rows = parts(values, human)
            before = rate_of(rows, bounds)
            open_parts = [i for i, said in enumerate(human) if said is None]
            if not open_parts:
                continue
            own = draws.choice(open_parts)
            is_own = pl.col("turn_index") == own
            changed = rows.with_columns(human=pl.when(is_own).then(draws.choice(scale)).otherwise("human"))
            after = rate_of(changed, bounds)
            assert after.n_own == 1
            if bounds == RATE:  # a rating's part also leaves the judge's answers that are predicted
                assert abs(after.value - before.value) <= 1 / n + 1e-9


def test_the_corrected_mean_of_ratings_is_that_of_a_weighted_regression() -> None:
    draws = np.random.default_rng(3)
    for _ in range(20):
        n = int(draws.integers(20, 60))
        judge, human = draws.integers(1, 6, n).astype(float), draws.integers(1, 6, n).astype(float)
        weights, is_drawn = draws.uniform(1, 4, n), draws.random(n) < 0.5
        sample = DoubleSample(
            judge, np.where(is_drawn, human, np.nan), np.full(n, 1 / n), weights, [str(i) for i in range(n)]
        )
        found = corrected_mean(sample, RATING, 1.0)
        design = np.stack([np.ones(n), judge], axis=1)
        root = np.sqrt(weights[is_drawn])
        fit = np.linalg.lstsq(design[is_drawn] * root[:, None], human[is_drawn] * root, rcond=None)[0]
        assert found.value == pytest.approx(float((design @ fit).mean()))
        assert None not in found[:3]
        assert 1 <= float(found.low or 0) <= float(found.value or 0) <= float(found.high or 0) <= 5


def test_the_interval_of_a_mean_allows_errors_that_no_label_shows_and_is_no_wider_than_the_labels_alone() -> (
    None
):
    draws = np.random.default_rng(8)
    truth_shares, n, missed, n_equal = [0.01, 0.01, 0.03, 0.05, 0.9], 1000, 0, 0
    true_mean = float(np.dot(truth_shares, range(1, 6)))
    for _ in range(100):
        truth = draws.choice(5, n, p=truth_shares) + 1.0
        judge = np.where(draws.random(n) < 0.05, draws.integers(1, 6, n), truth)  # wrong in 1 of 25 answers
        human = np.where(draws.permutation(n) < 30, truth, np.nan)
        names = [str(i) for i in range(n)]
        sample = DoubleSample(judge, human, np.full(n, 1 / n), np.full(n, n / 30), names)
        found = corrected_mean(sample, RATING, 1.0)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= true_mean <= found.high
        labels = human[np.isfinite(human)]
        n_equal += bool((labels == judge[np.isfinite(human)]).all())
        alone = bounded_mean(Sample(30, float(found.value or 0), labels.std(ddof=1)), bounds=RATING, step=1.0)
        assert alone is not None
        assert alone.low - 0.03 <= found.low
        assert found.high <= alone.high + 0.03
    assert n_equal > 10  # these labels show no error
    assert missed <= 10


def test_labels_of_the_same_conversations_count_as_their_conversations() -> None:
    labels, n_all, copies = np.array([2.0, 4.0, 5.0, 3.0, 4.0, 2.0]), 40, 4
    n, n_parts = len(labels), len(labels) * copies
    human = np.full(n_all, np.nan)
    human[:n] = labels
    names = [str(i) for i in np.repeat(np.arange(n_all), copies)]
    shares, weights = (np.full(n_all * copies, v) for v in (1 / n_all / copies, n_all / n))
    sample = DoubleSample(np.full(n_all * copies, 3.0), np.repeat(human, copies), shares, weights, names)
    found = corrected_mean(sample, RATING, 1.0)
    # by hand, with a judge that always says the same: the mean of six conversations, five degrees of freedom
    of_means = float(((labels - labels.mean()) ** 2).sum()) / n**2 / (1 - 1 / n_parts)
    variance = of_means / copies + of_means * (1 - 1 / copies) / (1 - 1 / n_all)
    limits = bounded_mean(Sample(n, float(labels.mean()), math.sqrt(variance * n)), bounds=RATING, step=1.0)
    assert limits is not None
    assert found[:3] == pytest.approx((labels.mean(), limits.low, limits.high))


@pytest.mark.parametrize("bounds", [RATE, RATING])
def test_limits_are_in_order_for_any_labels(bounds: tuple[float, float]) -> None:
    ends = [bounds[0], bounds[1]]
    for judge, people, one in itertools.product(ends, ends, ends):
        for n, n_labelled, n_sessions in itertools.product((6, 40), (5, 6), (1, 2, 5)):
            values = [one, *[judge] * (n - 1)]
            human = [people] * n_labelled + [None] * (n - n_labelled)
            found = rate_of(parts(values, human, 3.0, n_sessions=n_sessions), bounds)
            assert bounds[0] <= found.low <= found.value <= found.high <= bounds[1]
            assert found.low < found.high


def test_a_drawn_label_is_shown_and_the_judges_answer_enters_means() -> None:
    talk = conversation(user("Where?"), agent("Here."), user("Again?"), agent("There."))
    drawn: dict[str, Any] = {"weight": 3.0, "stratum": "s"}
    ratings = [
        valued("goal_completion", 0.0, **drawn),
        valued("agent_behavior_failure", label="repetition", turn_index=0, **drawn),
        valued("agent_behavior_failure", label="repetition", turn_index=1),  # that no sheet drew
    ]
    found = judged(talk, ratings=ratings, client=ScriptedClient(answers={"goal_completion": 1}))
    goals = found.conversation_judgments.filter(metric="goal_completion").sort("judge")
    assert goals.select("judge", "is_effective", "is_counted", "label_weight").rows() == [
        ("human", True, False, 3.0),
        ("scripted", False, True, None),
    ]
    both = (found.turn_judgments, found.conversation_judgments)
    assert labelled_metrics(*both) == ["agent_behavior_failure", "goal_completion"]
    rows = parts_of(*both, labelled_metrics(*both), ["agent_behavior_failure"], "no failure")
    answers = rows.sort("quantity", "turn_index").select("judge", "value", "human", "weight", "judged").rows()
    assert answers == [
        ("scripted", 0.0, 1.0, 3.0, 0.0),
        ("human", 1.0, 1.0, None, 0.0),
        ("scripted", 1.0, 0.0, 3.0, 1.0),
    ]


def test_the_mean_of_the_judge_alone_has_no_answer_of_people() -> None:
    labelled = parts(
        [1.0] * 10, [0.0] * 6 + [1.0] * 4
    ).with_row_index()  # the last two labels were chosen, not drawn
    labelled = labelled.with_columns(
        weight=pl.when(pl.col("index") < 8).then(1.0),
        value=pl.when(pl.col("index") < 8).then("value").otherwise(0.0),
    )
    labelled = labelled.with_columns(human=pl.when(pl.col("index") < 8).then("human").otherwise(0.0))
    assert rate_of(labelled).of_judge == 1.0
    only_people = labelled.with_columns(
        judged=pl.when(pl.col("index") < 8).then(pl.col("index") % 2).cast(pl.Float64)
    )
    assert rate_of(only_people).of_judge == 0.5


def test_without_a_judge_a_drawn_label_decides_its_own_part() -> None:
    talk = conversation(user("Where?"), agent("Here."))
    drawn = valued("goal_completion", 0.0, weight=3.0, stratum="s")
    alone = judged(talk, ratings=[drawn]).conversation_judgments.filter(metric="goal_completion")
    assert alone.filter("is_effective")["judge"].to_list() == ["human"]
    assert alone["is_counted"].null_count() == alone.height
    nothing = table("turn_judgments").empty()
    (row,) = parts_of(nothing, alone, ["goal_completion"], (), "").to_dicts()
    assert (row["judge"], row["value"], row["human"], row["weight"]) == ("human", 0.0, 0.0, None)


def test_a_label_that_somebody_chose_removes_no_label_that_a_sheet_drew() -> None:
    talk = conversation(user("Where?"), agent("Here."))
    drawn = valued("goal_completion", 0.0, weight=3.0, stratum="s", rater="anna")
    chosen = valued("goal_completion", 1.0, rater="ben")
    client = ScriptedClient(answers={"goal_completion": 1})
    rows = judged(talk, ratings=[drawn, chosen], client=client).conversation_judgments
    (part,) = parts_of(table("turn_judgments").empty(), rows, ["goal_completion"], (), "").to_dicts()
    assert [part[name] for name in ("value", "human", "weight", "judged")] == [1.0, 0.0, 3.0, 1.0]


def test_a_label_on_which_raters_differ_counts_as_their_mean_in_the_success_rate_too() -> None:
    goals = parts([1.0] * 10, [0.5, *[0.0] * 4, *[None] * 5]).with_columns(quantity=pl.lit("goal_completion"))
    outcomes = goals.select("methodology_version", "agent_id", "conversation_id").with_columns(
        is_correct=True, source=pl.lit("goal_completion")
    )
    success = success_parts(outcomes, goals).with_columns(session_id=pl.lit("s"), cluster="conversation_id")
    assert rate_of(success) == rate_of(goals)
    assert rate_of(goals).value == pytest.approx(0.1)


def test_a_comparison_of_which_one_side_has_labels_has_values_and_no_test() -> None:
    row = {
        "quantity": "q", "unit": "conversations", "n": 10, "other_n": 10, "agent_id": "a", "other_agent_id": "b", "value": 1.0, "other_value": 0.3,
        "low": 0.3, "high": 1.1, "p_value": 0.01, "probability_better": 0.99, "smallest_detectable": 0.2, "difference": 0.7,
    }  # fmt: skip
    found = with_labels(row, parts([1.0] * 10, [0.0] * 5 + [None] * 5), {})
    assert (found["value"], found["value_of_judge"], found["difference"]) == (0.0, 1.0, pytest.approx(-0.3))
    assert {found[name] for name in ("low", "high", "p_value", "probability_better")} == {None}
    assert "label parts of b" in found["verdict_limit"]


def test_corrected_values_are_compared_with_an_agent_that_needs_no_judge() -> None:
    row = {"quantity": "q", "unit": "conversations", "n": 10, "other_n": 10, "agent_id": "a", "other_agent_id": "b", "value": 1.0, "other_value": 0.9}  # fmt: skip
    declared = [1.0] * 9 + [0.0]
    other = parts(declared, declared).with_columns(agent_id=pl.lit("b"), weight=pl.lit(None, pl.Float64))
    found = with_labels(row, pl.concat([parts([1.0] * 10, [0.0] * 10), other]), {})
    assert (found["difference"], found.get("verdict_limit")) == (pytest.approx(-0.9), None)
    counts = [
        found[f"{side}n_{name}"]
        for side in ("", "other_")
        for name in ("labels_drawn", "labels_own", "unchecked")
    ]
    assert counts == [10, None, 0, None, None, 0]
    assert found["high"] < 0
    assert found["p_value"] < 0.05


def goal(conversation: int, value: float, **of: Any) -> dict[str, Any]:
    row = {
        "methodology_version": "1.3.0",
        "agent_id": "a",
        "conversation_id": f"c{conversation}",
        "metric": "goal_completion",
    }
    return {**row, "judge": "gpt", "judge_model": "gpt", "status": "scored", "value": value, "is_effective": True, **of}  # fmt: skip


@pytest.mark.parametrize("n_labelled", [0, 5, 10])
def test_people_decide_trials_only_if_they_labelled_every_answer_of_the_judge(n_labelled: int) -> None:
    rows = [
        goal(i, 1.0, **({"is_effective": False, "is_counted": True} if i < n_labelled else {}))
        for i in range(10)
    ]
    by = {"judge": "human", "judge_model": "anna", "is_counted": False, "label_weight": 2.0}
    rows += [goal(i, 0.0, **by) for i in range(n_labelled)]
    rows.append(goal(10, 0.0, judge="human", judge_model="ben"))  # that no sheet drew
    deciding = deciding_answers(table("conversation_judgments").frame(rows)).sort("conversation_id")
    assert deciding.height == 11
    assert deciding.filter(judge="human").height == (11 if n_labelled == 10 else 1)


def test_the_interval_of_a_difference_combines_both_intervals_and_p_is_its_level_at_0() -> None:
    ours = parts([1.0] * 40, [1.0] * 18 + [0.0] * 2 + [None] * 20)
    theirs = parts([1.0] * 40, [1.0] * 6 + [0.0] * 14 + [None] * 20).with_columns(agent_id=pl.lit("b"))
    row = {
        "quantity": "q",
        "unit": "conversations",
        "n": 40,
        "other_n": 40,
        "agent_id": "a",
        "other_agent_id": "b",
    }
    row |= {"n_effective": 2.0, "other_n_effective": 2.0}  # of the judge alone, over two sessions
    found = with_labels(row, pl.concat([ours, theirs]), {})
    n_effective = shared(found["n_effective"], found["other_n_effective"])
    needed = units_needed(40, found["smallest_detectable"], 0.05, "unpaired", n_effective)
    assert needed == pytest.approx(40 * (found["smallest_detectable"] / 0.05) ** 2, rel=0.08)
    a, b = rate_of(ours), rate_of(theirs)
    assert found["difference"] == pytest.approx(0.9 - 0.3)
    below = math.hypot(a.value - a.low, b.high - b.value)
    above = math.hypot(a.high - a.value, b.value - b.low)
    assert (found["low"], found["high"]) == pytest.approx((0.6 - below, 0.6 + above))
    assert found["p_value"] == pytest.approx(
        2 * NormalDist().cdf(-0.6 / (below / NormalDist().inv_cdf(0.975)))
    )
    assert found["probability_better"] == pytest.approx(1 - found["p_value"] / 2)
