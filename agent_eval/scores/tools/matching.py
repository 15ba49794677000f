"""Match expected to used calls optimally, and keep as much of their order as possible.

Functions work on indices; callers define the worth of a pair. Matchings are optimal rather than greedy.
"""

import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

Worth = Sequence[Sequence[int]]  # one row per expected call, one column per used call; ≥ 0
Pair = tuple[int, int]
_SMALL = 400  # cells of a matrix; scipy is faster for a larger one, and is loaded for it
_FAR = 1 << 62
_STEPS = 20_000  # limit of the search for order; beyond it, the best order found so far is used


def best_total(worth: Worth) -> int:
    """Return the largest total worth of any matching of rows to columns."""
    return sum(worth[i][j] for i, j in best_matching(worth))


def best_matching(worth: Worth) -> list[Pair]:
    """Return a matching with the largest total worth, as one pair (row, column) per entry of the smaller side."""
    if not worth or not worth[0]:
        return []
    if len(worth) == 1:
        return [(0, max(range(len(worth[0])), key=worth[0].__getitem__))]
    if len(worth) * len(worth[0]) <= _SMALL:
        return assigned(worth)
    from scipy.optimize import (
        linear_sum_assignment,  # imported only if needed: it takes as long as a small run
    )

    rows, columns = linear_sum_assignment(worth, maximize=True)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def assigned(worth: Worth) -> list[Pair]:
    """Return the matching that `scipy.optimize.linear_sum_assignment` returns, without loading scipy.

    Same algorithm, with the same choice among equal matchings: shortest augmenting paths (Crouse 2016, "On implementing
    2D rectangular assignment algorithms"). `worth` has at least one row and one column.
    """
    if len(worth) > len(worth[0]):
        return sorted((i, j) for j, i in assigned(list(zip(*worth, strict=True))))
    n_rows, n_columns = len(worth), len(worth[0])
    of_row, of_column = [0] * n_rows, [0] * n_columns  # dual variables
    row_at, column_at, came_from = [-1] * n_columns, [-1] * n_rows, [-1] * n_columns
    for start in range(n_rows):
        lengths, left = [_FAR] * n_columns, list(range(n_columns - 1, -1, -1))
        rows, columns, row, length = set[int](), set[int](), start, 0
        while True:
            rows.add(row)
            nearest, at = _FAR, -1
            for place, j in enumerate(left):
                reduced = length - worth[row][j] - of_row[row] - of_column[j]
                if reduced < lengths[j]:
                    lengths[j], came_from[j] = reduced, row
                if lengths[j] < nearest or (lengths[j] == nearest and row_at[j] == -1):
                    nearest, at = lengths[j], place
            length, end = nearest, left[at]
            columns.add(end)
            left[at] = left[-1]
            left.pop()
            if row_at[end] == -1:
                break
            row = row_at[end]
        of_row[start] += length
        for i in rows - {start}:
            of_row[i] += length - lengths[column_at[i]]
        for j in columns:
            of_column[j] -= length - lengths[j]
        while True:
            row = came_from[end]
            row_at[end], column_at[row], end = row, end, column_at[row]
            if row == start:
                break
    return list(enumerate(column_at))


def best_pairs(worth: Worth) -> set[Pair]:
    """Return every pair that is part of some matching with the largest total worth."""
    if not worth or not worth[0]:
        return set()
    columns = list(zip(*worth, strict=True))
    # equal columns are interchangeable; a matching uses at most as many of them as there are rows
    kinds = Counter(columns)
    useful_kinds = [kind for kind, n in kinds.items() for _ in range(min(n, len(worth)))]
    few = list(zip(*useful_kinds, strict=True))
    total = best_total(few)
    good = {
        (i, kind)
        for i, row in enumerate(few)
        for kind in kinds
        if row[at := useful_kinds.index(kind)] + best_total(_without(few, {i}, {at})) == total
    }
    return {(i, j) for i in range(len(worth)) for j, kind in enumerate(columns) if (i, kind) in good}


def best_choices(worth: Worth) -> list[tuple[int, ...]]:
    """Return each set of columns that some matching with the largest total worth uses, one column per row.

    The columns must not be fewer than the rows.
    """
    sets = list(combinations(range(len(worth[0])), len(worth)))
    totals = [best_total([[row[j] for j in columns] for row in worth]) for columns in sets]
    return [columns for columns, total in zip(sets, totals, strict=True) if total == max(totals)]


def longest_chain(pairs: Iterable[Pair]) -> int:
    """Return the largest number of pairs that ascend on both sides."""
    ends: list[int] = []  # for each length, the lowest last column of a chain
    for _, column in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
        ends[(at := bisect_left(ends, column)) : at + 1] = [column]
    return len(ends)


def in_order(groups: Sequence[tuple[Sequence[int], Sequence[int], Worth]], *, least: int = 0) -> set[Pair]:
    """Return the longest chain of pairs that ascends on both sides and fits a best matching of every group.

    Args:
        groups: For each tool, the positions of its expected calls and of its used calls, and the worth of each
            pair.
        least: The minimum worth of a pair in the chain.

    Returns:
        The pairs of the chain, as (expected position, used position).
    """
    every = set[Pair]()
    group_of: dict[int, int] = {}
    for g, (rows, columns, worth) in enumerate(groups):
        group_of |= dict.fromkeys(rows, g)
        every |= {(rows[i], columns[j]) for i, j in best_pairs(worth) if worth[i][j] >= least}
    return _Chains(groups, group_of, every).longest()


class _Chains:
    """Search depth-first for the longest chain, pruned by bounds that ignore whether pairs are compatible."""

    def __init__(
        self,
        groups: Sequence[tuple[Sequence[int], Sequence[int], Worth]],
        group_of: dict[int, int],
        pairs: set[Pair],
    ) -> None:
        self._groups, self._group_of = groups, group_of
        self._totals = [best_total(worth) for _, _, worth in groups]
        self._rows = sorted({i for i, _ in pairs})
        self._columns = {i: sorted(j for r, j in pairs if r == i) for i in self._rows}
        self._bounds = self._allowed(max((j for _, j in pairs), default=-1) + 1)
        self._best: tuple[Pair, ...] = ()
        self._steps = _STEPS

    def longest(self) -> set[Pair]:
        with contextlib.suppress(RecursionError):  # with a thousand expected calls, keep the best chain found
            self._search(0, 0, ())
        return set(self._best)

    def _allowed(self, width: int) -> list[list[int]]:
        """Return the longest chain from each row number and first column, ignoring whether pairs are compatible."""
        bounds = [[0] * (width + 1) for _ in range(len(self._rows) + 1)]
        for at in reversed(range(len(self._rows))):
            columns = set(self._columns[self._rows[at]])
            for j in reversed(range(width)):
                length_with_pair = 1 + bounds[at + 1][j + 1] if j in columns else 0
                bounds[at][j] = max(bounds[at][j + 1], bounds[at + 1][j], length_with_pair)
        return bounds

    def _search(self, at: int, first: int, chain: tuple[Pair, ...]) -> None:
        if len(chain) > len(self._best):
            self._best = chain
        if self._steps <= 0 or len(chain) + self._bounds[at][first] <= len(self._best):
            return
        self._steps -= 1
        row = self._rows[at]
        for j in self._columns[row]:
            if j >= first and len(chain) + 1 + self._bounds[at + 1][j + 1] > len(self._best):
                longer = (*chain, (row, j))
                if self._go_together(longer):
                    self._search(at + 1, j + 1, longer)
        self._search(at + 1, first, chain)

    def _go_together(self, chain: tuple[Pair, ...]) -> bool:
        """Return whether a best matching of the last pair's group contains all of the chain's pairs in the group."""
        g = self._group_of[chain[-1][0]]
        rows, columns, worth = self._groups[g]
        forced = [(rows.index(i), columns.index(j)) for i, j in chain if self._group_of[i] == g]
        rest = _without(worth, {i for i, _ in forced}, {j for _, j in forced})
        return sum(worth[i][j] for i, j in forced) + best_total(rest) == self._totals[g]


def _without(worth: Worth, rows: set[int], columns: set[int]) -> Worth:
    return [
        [value for j, value in enumerate(row) if j not in columns]
        for i, row in enumerate(worth)
        if i not in rows
    ]
