"""Compute how much data a difference needs; `intervals.smallest_detectable` computes what the data can show.

A difference counts as shown if the test finds it with a probability of 80 % at a two-sided level of 5 %.
Functions take and return numbers.
"""

import math
from typing import Literal

from agent_eval.scores.statistics.intervals import (
    OutOfRangeError,
    detectable_multiple,
    t_reach,
    welch_multiple,
)
from agent_eval.scores.statistics.sign_flips import FEWEST_PLANNED

MOST_UNITS = 1_000_000
Design = Literal["paired", "signs", "unpaired"]
"""How two agents are compared, and what stays the same with another difference.

paired: one difference per unit that both have; its standard deviation. signs: likewise, its mean square, because only
the signs are open. unpaired: n units of each of the two agents; their standard deviations.
"""


def units_needed(
    n: float, smallest: float, wanted: float, design: Design, n_clusters: float | None = None
) -> int | None:
    """Return how many units (of each agent, if unpaired) show a true difference of `wanted`, at equal spread.

    Args:
        n: Units that the data have.
        smallest: What they can show.
        wanted: The difference that is to be shown.
        design: How the units are compared.
        n_clusters: The clusters that these units are in, effective by their sizes (2 or more), if units of one
            cluster depend on each other: more units then come in more clusters of these sizes.

    Returns:
        At least 2 units, or the units of 2 clusters, 8 pairs, or the n pairs whose signs are open: of fewer too
        few may differ; None where it is more than a million (clusters).

    Raises:
        OutOfRangeError: If the wanted difference is not positive, or there are fewer than two units.
    """
    if not wanted > 0:
        raise OutOfRangeError("wanted difference", wanted, "above 0")
    if n_clusters is not None:
        clusters = units_needed(n_clusters, smallest, wanted, design)
        return None if clusters is None else math.ceil(clusters * n / n_clusters)
    if n < 2:
        raise OutOfRangeError("number of units", n, "2 or more")
    least = {"unpaired": 2, "paired": FEWEST_PLANNED, "signs": math.ceil(n)}[design]
    if smallest <= 0:
        return least
    spread = smallest / _in_spreads(n, design)

    def shows(units: int) -> bool:
        return spread * _in_spreads(units, design) <= wanted

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
    """Return the number of units of each agent that shows as much as n of one and `other_n` of the other."""
    return 2 / (1 / n + 1 / other_n)


def paired_design(n: int, low: float | None, high: float | None, smallest: float | None) -> Design:
    """Return whether n differences with this t interval were planned by their deviation or by their signs."""
    if low is None or high is None or smallest is None:
        return "paired"
    error = (high - low) / 2 / t_reach(n - 1)
    return "paired" if math.isclose(smallest, error * detectable_multiple(n - 1), rel_tol=1e-6) else "signs"


def _in_spreads(n: float, design: Design) -> float:
    """Return the smallest detectable difference of n units (of each agent), with a spread of 1."""
    if design == "unpaired":
        return welch_multiple(n - 1, n - 1, 0.5) / math.sqrt(n)
    multiple = detectable_multiple(n - 1)
    return multiple / math.sqrt(n if design == "paired" else n - 1 + multiple**2)
