"""Agreement of a judge with people: known answers, the figures of scikit-learn, and what intervals show."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from agent_eval.errors import InvalidValueError
from agent_eval.scores.statistics.agreement import (
    Answer,
    IntervalEstimate,
    Level,
    Pairs,
    base_rate,
    cohen_kappa,
    confusion,
    krippendorff_alpha,
    mean_bias,
    quadratic_kappa,
    raw_agreement,
    sensitivity,
    share_interval,
    specificity,
)

# Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011, section C: four observers, twelve units
OBSERVERS = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3),
    (None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None),
)
UNITS = [
    {f"observer {i}": float(given) for i, given in enumerate(unit) if given is not None}
    for unit in zip(*OBSERVERS, strict=True)
]
# of 60 parts people pass 40, and the judge passes 30 of these and 5 of the others
CELLS = {("pass", "pass"): 30, ("fail", "pass"): 10, ("pass", "fail"): 5, ("fail", "fail"): 15}
JUDGE = [judge for (judge, _), n in CELLS.items() for _ in range(n)]
HUMAN = [human for (_, human), n in CELLS.items() for _ in range(n)]
EACH = list(range(len(JUDGE)))
ratings = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.floats(0.1, 9)), min_size=2, max_size=25
)


@given(ratings)
def test_kappas_with_weights_are_those_of_scikit_learn(rows: list[tuple[int, int, float]]) -> None:
    judge, human, weights = map(list, zip(*rows, strict=True))
    pairs = Pairs(judge, human, ["one"] * len(rows), weights)
    for ours, kind in ((cohen_kappa(pairs), None), (quadratic_kappa(pairs), "quadratic")):
        if len({*judge, *human}) == 1:
            assert ours == IntervalEstimate(None)
        else:
            scale = [1, 2, 3, 4, 5]
            theirs = cohen_kappa_score(judge, human, labels=scale, weights=kind, sample_weight=weights)
            assert ours.value == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(
    ("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_with_missing_answers_is_that_of_krippendorffs_example(level: Level, published: float) -> None:
    found = krippendorff_alpha(UNITS, level, range(len(UNITS)))
    assert found.value == pytest.approx(published, abs=0.0005)
    assert 0 < width(found) < 1


def test_a_part_of_weight_two_counts_for_alpha_as_two_parts() -> None:
    units = [{"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 1.0}, {"a": 2.0, "b": 2.0}]
    for level in ("nominal", "ordinal", "interval"):
        twice = krippendorff_alpha([*units, *units], level, ["one"] * 6).value
        weighted = krippendorff_alpha(units, level, ["one"] * 3, [2, 2, 2]).value
        once = krippendorff_alpha(units, level, ["one"] * 3).value
        assert weighted == pytest.approx(once)  # only ratios of weights count
        assert twice != pytest.approx(once)  # n − 1 in the agreement by chance


def test_figures_of_a_confusion_by_hand() -> None:
    pairs = Pairs(JUDGE, HUMAN, EACH)
    assert {cell: n for cell, (n, _) in confusion(pairs).items()} == CELLS
    assert raw_agreement(pairs).value == pytest.approx(45 / 60)
    assert sensitivity(pairs, "pass").value == pytest.approx(30 / 40)
    assert specificity(pairs, "pass").value == pytest.approx(15 / 20)
    assert base_rate(pairs, "pass").value == pytest.approx(40 / 60)
    # by chance: 35/60 × 40/60 + 25/60 × 20/60 = 1900/3600; (0.75 − 0.5278) / (1 − 0.5278)
    assert cohen_kappa(pairs).value == pytest.approx((0.75 - 19 / 36) / (17 / 36))
    # one point too low for five, one too high for one
    assert mean_bias(Pairs([3] * 5 + [5], [4] * 6, range(6))).value == pytest.approx(-4 / 6)


def test_sampling_weights_undo_the_sampling() -> None:
    # half of the parts that the judge passed are labelled, and a quarter of those that it failed
    shares = {"pass": 2, "fail": 4}
    labelled = [(j, h) for (j, h), n in CELLS.items() for _ in range(n * 4 // shares[j])]
    judge, human = map(list, zip(*labelled, strict=True))
    weights = [shares[j] for j in judge]
    pairs = Pairs(judge, human, range(len(judge)), weights, judge)
    for figure in (cohen_kappa, raw_agreement, lambda p: sensitivity(p, "pass")):
        assert figure(pairs).value == pytest.approx(figure(Pairs(JUDGE, HUMAN, EACH)).value)
    assert sensitivity(Pairs(judge, human, range(len(judge))), "pass").value != pytest.approx(0.75)


def test_a_stratum_that_was_drawn_with_a_fixed_number_makes_the_interval_narrower() -> None:
    free, fixed = (base_rate(Pairs(JUDGE, HUMAN, EACH, None, strata), "pass") for strata in (None, JUDGE))
    assert free.value == fixed.value
    assert width(fixed) < 0.95 * width(free)


@pytest.mark.parametrize("figure", [cohen_kappa, raw_agreement])
def test_ten_parts_of_one_conversation_are_not_ten(figure: Callable[[Pairs], IntervalEstimate]) -> None:
    alone = figure(Pairs(JUDGE[::5], HUMAN[::5], EACH[::5]))
    copied = figure(Pairs(JUDGE[::5] * 10, HUMAN[::5] * 10, EACH[::5] * 10))
    assert copied == pytest.approx(alone)
    assert width(figure(Pairs(JUDGE[::5] * 10, HUMAN[::5] * 10, range(120)))) < width(alone) / 2


def test_the_interval_of_kappa_is_that_of_a_plain_bootstrap() -> None:
    random = np.random.default_rng(5)
    judge, human = np.array(JUDGE), np.array(HUMAN)
    drawn = random.integers(len(judge), size=(2_000, len(judge)))
    equal, by_chance = (judge == human)[drawn].mean(axis=1), 0.0
    for word in ("pass", "fail"):
        by_chance = by_chance + (judge == word)[drawn].mean(axis=1) * (human == word)[drawn].mean(axis=1)
    low, high = np.quantile((equal - by_chance) / (1 - by_chance), (0.025, 0.975))
    assert cohen_kappa(Pairs(JUDGE, HUMAN, EACH))[1:] == pytest.approx((low, high), abs=0.03)


def test_twenty_equal_answers_do_not_prove_a_perfect_judge() -> None:
    labels = ["pass", "fail"] * 10
    perfect = cohen_kappa(Pairs(labels, labels, range(20)))
    # 0.025^(1/20) = 0.832: answers that differ with 16.8 % are missed by 20 conversations in 2.5 % of cases
    assert perfect == pytest.approx((1.0, 1 - (1 - 0.025 ** (1 / 20)) / 0.5, 1.0))
    assert raw_agreement(Pairs(labels, labels, range(20))).low == pytest.approx(0.883, abs=0.001)  # Jeffreys


def test_four_conversations_have_no_interval() -> None:
    pairs = Pairs(JUDGE, HUMAN, [i % 4 for i in EACH])
    assert cohen_kappa(pairs)[1:] == raw_agreement(pairs)[1:] == (None, None)


@settings(max_examples=30)
@given(st.floats(0.01, 0.99), st.integers(2, 300))
def test_the_interval_of_a_share_contains_it(share: float, n: int) -> None:
    low, high = share_interval(share, share * (1 - share) / n, n, n - 1)
    assert 0 <= low <= share <= high <= 1


@pytest.mark.parametrize(
    ("answers", "more", "message"),
    [
        ([1, 2], {"weights": [1.0, 0.0]}, "sampling weight"),
        ([1, 2], {"weights": [1.0]}, "number of weights"),
        ([1, math.nan], {}, "answer is nan"),
        ([1], {}, "number of human"),
    ],
)
def test_bad_pairs_are_refused(answers: list[Answer], more: dict[str, list[float]], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Pairs([1, 2], answers, ["a", "b"], **more)


def width(estimate: IntervalEstimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


@pytest.mark.parametrize(("judge", "human"), [(1.0, 0.0), (1.0, 1.0)])
def test_one_label_gives_no_figure(judge: float, human: float) -> None:
    pairs = Pairs([judge], [human], ["c"])
    figures = (raw_agreement(pairs), cohen_kappa(pairs), quadratic_kappa(pairs), mean_bias(pairs))
    assert {figure.value for figure in figures} == {None}
    assert sensitivity(pairs, 1.0).value is base_rate(pairs, 1.0).value is None
    assert krippendorff_alpha([{"a": judge, "b": human}], "nominal", ["c"]).value is None
    two = Pairs([judge, 0.0], [human, 0.0], ["c", "d"])
    assert raw_agreement(two).value == (1 + (judge == human)) / 2


def test_what_is_not_defined_has_no_figure_and_distances_of_labels_are_refused() -> None:
    none = IntervalEstimate(None)
    assert krippendorff_alpha([{"a": 3.0, "b": 3.0}] * 6, "interval", range(6)) == none  # equal answers
    assert krippendorff_alpha([{"a": 3.0}, {"b": 2.0}], "nominal", range(2)) == none  # single raters
    assert sensitivity(Pairs(["pass"] * 6, ["fail"] * 6, range(6)), "pass") == none
    assert cohen_kappa(Pairs([], [], [])) == raw_agreement(Pairs([], [], [])) == none
    with pytest.raises(InvalidValueError, match="figure of distances"):
        quadratic_kappa(Pairs(JUDGE, HUMAN, EACH))
    with pytest.raises(InvalidValueError, match="ordinal level"):
        krippendorff_alpha([{"a": "pass", "b": "fail"}], "ordinal", ["one"])
