"""The smallest difference that data can show, held against simulation and against scipy's noncentral t."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from agent_eval.errors import AgentEvalError
from agent_eval.scores.statistics.clustered import paired_by_cluster
from agent_eval.scores.statistics.intervals import Sample, paired, smallest_detectable, welch, welch_multiple
from agent_eval.scores.statistics.power import paired_design, units_needed
from agent_eval.scores.statistics.sign_flips import FEWEST_FLIPPED, repeats


@pytest.mark.parametrize("freedom", [1, 2, 4, 8, 49, 1000])
def test_the_smallest_detectable_difference_is_found_in_80_of_100_cases(freedom: int) -> None:
    found = smallest_detectable(2.0, freedom)
    critical = stats.t.ppf(0.975, freedom)
    power = stats.nct.sf(critical, freedom, found / 2)
    assert power == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(
    ("n", "other_n", "sd", "other_sd"),
    [(2, 2, 1, 1), (3, 3, 1, 1), (5, 5, 1, 1), (3, 8, 1, 3), (4, 12, 5, 1)],
)
def test_welchs_t_finds_it_in_80_of_100_simulations(n: int, other_n: int, sd: float, other_sd: float) -> None:
    random = np.random.default_rng(4)
    parts = sd**2 / n, other_sd**2 / other_n
    shows = math.sqrt(sum(parts)) * welch_multiple(n - 1, other_n - 1, parts[0] / sum(parts))
    a, b = random.normal(shows, sd, (20_000, n)), random.normal(0, other_sd, (20_000, other_n))
    found = stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue < 0.05
    assert np.mean(found) == pytest.approx(0.8, abs=0.012)


def test_many_values_have_the_multiple_of_the_t_table() -> None:
    assert welch_multiple(19, 19, 0.5) == pytest.approx(smallest_detectable(1, 38), rel=2e-3)
    assert welch_multiple(60, 30, 1.0) == pytest.approx(smallest_detectable(1, 60))


def test_comparisons_carry_what_they_can_show() -> None:
    a, b = Sample.of([80.0, 85.0, 90.0]), Sample.of([70.0, 75.0, 80.0])
    assert welch(a, b).smallest_detectable == pytest.approx(5 * math.sqrt(2 / 3) * welch_multiple(2, 2, 0.5))
    differences = [0.3, -0.1, 1.2, 0.4, -0.5, 0.7, 0.9, 0.2, -0.6, 0.8]
    error = float(stats.sem(differences))
    assert paired(differences).smallest_detectable == pytest.approx(smallest_detectable(error, 9))
    assert paired([0.0] * 9).smallest_detectable is None


@pytest.mark.parametrize("n", range(8, 17))
def test_if_all_tasks_differ_by_one_the_detectable_difference_is_that_of_the_sign_test(n: int) -> None:
    shows = paired([1.0] * (n // 2) + [-1.0] * (n - n // 2)).smallest_detectable
    least = min(w for w in range(n + 1) if stats.binomtest(w, n).pvalue < 0.05 and w > n / 2)
    assert shows is not None
    assert stats.binom.sf(least - 1, n, (1 + shows) / 2) == pytest.approx(0.8, abs=1e-4)


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (50, [1.0] * 10),
        (20, [0.25, 0.25, 0.5, 1.0, 0.25, 0.75, 0.25, 0.5]),
        (12, [0.05, 0.1, 0.1, 0.2, 0.3, 0.3, 0.5, 0.9, 1.4]),
        (40, [1.0, 0.5] * 7),
        (60, [1.0, 0.5] * 26),
    ],
)
def test_with_tasks_that_tie_it_is_found_in_80_of_100_simulations(n: int, sizes: list[float]) -> None:
    shows = paired([*sizes[::2], *(-s for s in sizes[1::2]), *[0.0] * (n - len(sizes))]).smallest_detectable
    assert shows is not None
    random, all_sizes = np.random.default_rng(7), np.array([*sizes, *[0.0] * (n - len(sizes))])
    found = []
    for _ in range(250):
        drawn = random.choice(all_sizes, n)
        wins = random.random(n) < (1 + shows / all_sizes.mean()) / 2
        found.append(paired(np.where(wins, drawn, -drawn).tolist(), plans=False).p_value)
    assert np.mean([p is not None and p < 0.05 for p in found]) == pytest.approx(0.8, abs=0.07)


def test_amounts_tie_in_few_tasks_and_shares_in_many() -> None:
    assert not repeats([0.01 * i**1.5 for i in range(1, 20)] + [0.0])
    assert repeats([0.01 * i**1.5 for i in range(1, 10)] + [0.0] * 10)
    assert repeats([0.1 + 0.2, -0.3, 0.5, 1.0])


def test_fewer_than_eight_families_plan_nothing() -> None:
    random = np.random.default_rng(3)
    differences, names = random.normal(0, 1, 40).tolist(), [f"f{i % 8}" for i in range(40)]
    assert paired_by_cluster(differences, names).smallest_detectable is not None
    seven = paired_by_cluster(differences[:35], [f"f{i % 7}" for i in range(35)])
    assert (seven.smallest_detectable, seven.p_value is None) == (None, False)


def test_families_of_one_task_each_are_compared_like_tasks() -> None:
    for differences in ([0.3, -0.1, 1.2, 0.4, -0.5, 0.7, 0.9, 0.2, -0.6, 0.8], [1.0, -1.0] * 4 + [0.0] * 8):
        families = [f"f{i}" for i in range(len(differences))]
        assert paired_by_cluster(differences, families) == pytest.approx(paired(differences))


def test_of_two_tasks_of_equal_differences_and_of_a_thousand_ties() -> None:
    assert paired([1.0, -0.5]).smallest_detectable is None
    assert paired([1.0] * 10)[1:] == (None, None, 2 / 2**10, None, None)
    found = paired([1.0, -1.0] * 4 + [0.0] * 992).smallest_detectable
    assert found is not None
    assert 0.0075 < found <= 0.008  # almost all that differ have to be won
    for unknown in (math.nan, math.inf, None):
        with pytest.raises(AgentEvalError, match="Omit unknown values"):
            paired([1.0, unknown] * 6)  # type: ignore[list-item]


def test_units_needed_keep_what_the_smallest_difference_was_planned_with() -> None:
    signs = paired([1.0, -1.0] * 6 + [0.0] * 28)
    assert signs.smallest_detectable is not None
    assert paired_design(40, signs.low, signs.high, signs.smallest_detectable) == "signs"
    assert units_needed(40, signs.smallest_detectable, signs.smallest_detectable, "signs") == 40
    amounts = paired([0.1 * i**1.5 - 2 for i in range(12)])
    assert paired_design(12, amounts.low, amounts.high, amounts.smallest_detectable) == "paired"
    assert paired_design(12, None, None, None) == "paired"


@pytest.mark.parametrize("n", [14, 20, 50])
def test_with_seven_tasks_that_differ_no_difference_is_found_with_80_percent_power(n: int) -> None:
    # even if all that differ are won: fewer than six of them differ in more than a fifth of the draws
    power = {m: float(stats.binom.sf(FEWEST_FLIPPED - 1, n, m / n)) for m in (7, 8)}
    assert power[7] < 0.8 < power[8]
    seven, eight = ([1.0, -1.0] * 4 + [0.0] * (n - 8) for _ in range(2))
    seven[0] = 0.0
    assert paired(seven).smallest_detectable is None
    assert paired(eight).smallest_detectable is not None


@given(
    st.integers(2, 200),
    st.floats(0.01, 50),
    st.floats(0.5, 30),
    st.sampled_from(["paired", "unpaired", "signs"]),
)
def test_so_many_units_show_the_wanted_difference_and_one_less_does_not(
    n: int, smallest: float, wanted: float, design: str
) -> None:
    def multiple(units: int) -> float:
        if design == "unpaired":
            return welch_multiple(units - 1, units - 1, 0.5)
        t = smallest_detectable(1.0, units - 1)
        return t if design == "paired" else t / math.sqrt((units - 1 + t**2) / units)

    needed = units_needed(n, smallest, wanted, design)  # type: ignore[arg-type]
    spread = smallest * math.sqrt(n) / multiple(n)
    assert needed is None or spread * multiple(needed) / math.sqrt(needed) <= wanted + 1e-9
    least = {"unpaired": 2, "paired": 8, "signs": n}[design]
    assert needed is None or needed >= least
    if needed is not None and needed > least:
        assert spread * multiple(needed - 1) / math.sqrt(needed - 1) > wanted - 1e-9


def test_numbers_that_make_no_plan_are_refused_by_name() -> None:
    with pytest.raises(AgentEvalError, match="wanted difference is 0"):
        units_needed(5, 1.0, 0, "paired")
    with pytest.raises(AgentEvalError, match="number of units is 1"):
        units_needed(1, 1.0, 1.0, "paired")
    with pytest.raises(AgentEvalError, match="degrees of freedom is 0"):
        smallest_detectable(1.0, 0)
