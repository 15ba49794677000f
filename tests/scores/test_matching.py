"""Optimal matchings, against trying all."""

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from agent_eval.scores.tools.matching import assigned, best_matching, best_pairs, best_total, in_order

Matching = list[tuple[int, int]]
WORTHS = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1, max_size=4
    )
)


def all_matchings(n_rows: int, n_columns: int) -> Iterator[Matching]:
    """Every matching with as many pairs as the smaller side has."""
    size = min(n_rows, n_columns)
    for rows in itertools.combinations(range(n_rows), size):
        for columns in itertools.permutations(range(n_columns), size):
            yield list(zip(rows, columns, strict=True))


def best_of_all(worth: list[list[int]]) -> list[Matching]:
    every = list(all_matchings(len(worth), len(worth[0])))
    totals = [sum(worth[i][j] for i, j in matching) for matching in every]
    return [m for m, total in zip(every, totals, strict=True) if total == max(totals)]


def longest_chain(matching: Matching) -> int:
    """Longest subset that ascends on both sides."""
    ordered = [j for _, j in sorted(matching)]
    return max(
        (size for size in range(len(ordered) + 1) for part in itertools.combinations(ordered, size) if sorted(part) == list(part)),
        default=0,
    )  # fmt: skip


@given(WORTHS)
def test_best_matchings_are_those_that_trying_all_finds(worth: list[list[int]]) -> None:
    best = best_of_all(worth)
    assert best_total(worth) == sum(worth[i][j] for i, j in best[0])
    assert sorted(best_matching(worth)) in [sorted(m) for m in best]
    assert best_pairs(worth) == {pair for matching in best for pair in matching}


@given(WORTHS)
def test_the_order_kept_is_the_most_that_one_best_matching_keeps(worth: list[list[int]]) -> None:
    chain = in_order([(range(len(worth)), range(len(worth[0])), worth)])
    best = best_of_all(worth)
    assert any(chain <= set(matching) for matching in best)
    assert longest_chain(list(chain)) == len(chain) == max(longest_chain(m) for m in best)


def test_pairs_of_two_best_matchings_do_not_make_one_chain() -> None:
    # expected f(y), f(), f() against f(y), f(x, y): one of the two free ones takes the place that is left;
    # (0, 0) and (2, 1) stand in one best matching, three in a row stand in none
    assert len(in_order([([0, 2, 3], [1, 2], [[1, 1], [0, 0], [0, 0]])])) == 2


@pytest.mark.parametrize("worth", [[], [[]], [[], []]])
def test_nothing_to_match_has_no_pairs(worth: list[list[int]]) -> None:
    assert (best_total(worth), best_matching(worth), best_pairs(worth)) == (0, [], set())


def test_a_thousand_calls_of_one_tool_are_matched_without_delay() -> None:
    # the identity is the only best matching, and it is in order
    n = 20
    worth = [[int(i == j) for j in range(1000)] for i in range(n)]
    assert in_order([(range(n), range(1000), worth)]) == {(i, i) for i in range(n)}


def test_a_small_matching_is_that_of_scipy_also_among_equal_ones() -> None:
    draw = random.Random(46)
    for _ in range(1000):
        n_rows, n_columns, most = draw.randint(1, 7), draw.randint(1, 7), draw.choice((0, 1, 3, 100))
        worth = [[draw.randint(0, most) for _ in range(n_columns)] for _ in range(n_rows)]
        rows, columns = linear_sum_assignment(worth, maximize=True)
        assert assigned(worth) == list(zip(rows.tolist(), columns.tolist(), strict=True)), worth
