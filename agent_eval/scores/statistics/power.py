"""Compute how much data is needed to show a difference.

A difference counts as shown if the test finds it with a probability of 80 % at a two-sided level of 5 %.
`intervals.smallest_detectable` computes the difference that given data can show. Functions take and return
numbers.
"""

import math
from typing import Literal

from agent_eval.scores.statistics.intervals import (
    detectable_multiple,
    out_of_range,
    t_reach,
    welch_multiple,
)
from agent_eval.scores.statistics.sign_flips import FEWEST_PLANNED

MOST_UNITS = 1_000_000
Design = Literal["paired", "signs", "unpaired"]
"""The design of a comparison, and the quantity that is assumed not to depend on the true difference.

paired: one difference per common unit; the standard deviation of the differences is fixed. signs: one difference per
common unit; only the signs vary, so that the mean square of the differences is fixed. unpaired: n units of each agent;
the standard deviations of both are fixed.
"""


def units_needed(
    n: float, smallest: float, difference: float, design: Design, n_clusters: float | None = None
) -> int | None:
    """Return the number of units (per agent, if unpaired) that show a true difference of `difference` at equal spread.

    Args:
        n: The number of units in the data.
        smallest: The smallest difference that the data can show.
        difference: The difference to show.
        design: How the units are compared.
        n_clusters: The effective number of clusters of the units (2 or more), if units of a cluster depend on
            each other. Additional units are then assumed to come in additional clusters of the same sizes.

    Returns:
        The number of units; None if more than a million units or clusters are needed. The minimum is 2 units (or
        the units of 2 clusters) for unpaired, 8 pairs for paired, and n pairs for signs, because too few of fewer
        pairs may differ.

    Raises:
        InvalidValueError: If the wanted difference is not positive, or there are fewer than two units.
    """
    if not difference > 0:
        raise out_of_range("wanted difference", difference, "above 0")
    if n_clusters is not None:
        clusters = units_needed(n_clusters, smallest, difference, design)
        return None if clusters is None else math.ceil(clusters * n / n_clusters)
    if n < 2:
        raise out_of_range("number of units", n, "2 or more")
    least = {"unpaired": 2, "paired": FEWEST_PLANNED, "signs": math.ceil(n)}[design]
    if smallest <= 0:
        return least
    spread = smallest / _in_spreads(n, design)

    def shows(units: int) -> bool:
        return spread * _in_spreads(units, design) <= difference

    low, high = least - 1, least
    while not shows(high):
        low, high = high, 2 * high
        if high > MOST_UNITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high


def shared(n: float, other_n: float) -> float:
    """Return the number of units per agent that is equivalent to n units of one and `other_n` of the other."""
    return 2 / (1 / n + 1 / other_n)


def paired_design(n: int, low: float | None, high: float | None, smallest: float | None) -> Design:
    """Return the design ('paired' or 'signs') that `smallest` was computed with, given n and the t interval."""
    if low is None or high is None or smallest is None:
        return "paired"
    error = (high - low) / 2 / t_reach(n - 1)
    return "paired" if math.isclose(smallest, error * detectable_multiple(n - 1), rel_tol=1e-6) else "signs"


def _in_spreads(n: float, design: Design) -> float:
    """Return the smallest detectable difference of n units (per agent, if unpaired) with a spread of 1."""
    if design == "unpaired":
        return welch_multiple(n - 1, n - 1, 0.5) / math.sqrt(n)
    multiple = detectable_multiple(n - 1)
    return multiple / math.sqrt(n if design == "paired" else n - 1 + multiple**2)
