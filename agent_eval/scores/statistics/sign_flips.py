"""Test paired differences by flipping their signs, and compute the smallest true difference that the test finds.

Shares and ratings of few answers tie in many tasks. If few tasks differ, the test is discrete, and the smallest
detectable difference of the t table is up to a quarter too high. The power is therefore computed with the number and
sizes of differences in the data; only the better agent in each task is random. Functions take and return numbers.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

SIGNIFICANCE, POWER = 0.05, 0.8
MOST_FLIPPED = 16  # up to this number of differing tasks, all 2^n sign patterns are tried
FEWEST_FLIPPED = 6  # with fewer differing tasks, no difference has p < 5 %: 2 / 2^5 = 6 %
FEWEST_PLANNED = (
    8  # differing tasks; if fewer are expected, a sample has at least six of them in less than 80 % of cases
)
_MANY = 48  # differing tasks; with this number, a sample hardly ever has 16 or fewer of them
_DISTINCT = 0.9
_RARE = 1e-4


def flipping_p(differences: Sequence[float]) -> float:
    """Return the share of all 2^n sign patterns whose sum is at least as far from 0 as the sum of the data."""
    import numpy as np

    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + abs(d), sums - abs(d)])
    observed = abs(sum(differences))
    return float(np.mean(np.abs(sums) >= observed - 1e-9 * max(1.0, observed)))


def repeats(differences: Sequence[float]) -> bool:
    """Return whether fewer than nine in ten differences have distinct sizes, as is typical of shares and ratings."""
    largest = max(map(abs, differences))
    return len({round(abs(d) / largest, 9) for d in differences}) < _DISTINCT * len(differences)


def detectable_by_signs(differences: Sequence[float], critical: float, multiple: float) -> float:
    """Return the true mean difference that is found with 80 % power if only the signs are random.

    Tasks are drawn from those in the data, and an agent wins each differing task with the same probability. If a
    sample has so many differing tasks that the t test is used, the sum of the differences is taken as normal.

    Args:
        differences: One difference per task, at least `FEWEST_PLANNED` of them not 0.
        critical: The critical value of t with n − 1 degrees of freedom, at a two-sided 5 %.
        multiple: The smallest detectable difference of n values in standard errors.
    """
    import numpy as np
    from scipy.special import ndtr

    sizes = np.sort(np.abs([d for d in differences if d]))
    n, m = len(differences), len(sizes)
    largest = float(sizes.sum()) / n  # if one agent wins every differing task
    if m > _MANY:
        moment = float((sizes**2).sum()) / n  # variance of a difference + squared mean
        return min(multiple * math.sqrt(moment / (n - 1 + multiple**2)), largest)
    likely_counts = [(k, share) for k, share in enumerate(_binomial(n, m / n)) if share > _RARE]
    flipped = [
        (share, _significant_by_wins(_spread_out(sizes, k)))
        for k, share in likely_counts
        if FEWEST_FLIPPED <= k <= MOST_FLIPPED
    ]
    tested = np.array([pair for pair in likely_counts if pair[0] > MOST_FLIPPED]).reshape(-1, 2)
    total, squares = tested[:, 0] * sizes.mean(), tested[:, 0] * (sizes**2).mean()
    least = critical * np.sqrt(
        n * squares / (n - 1 + critical**2)
    )  # for a larger sum, t exceeds the critical value

    def power(difference: float) -> float:
        wins = (1 + min(difference / largest, 1.0)) / 2
        spread = np.sqrt(np.maximum(4 * wins * (1 - wins) * squares, 1e-300))
        power_so_far = float((tested[:, 1] * ndtr(((2 * wins - 1) * total - least) / spread)).sum())
        for share, counts in flipped:
            won = np.arange(len(counts))
            power_so_far += share * float((counts * wins**won * (1 - wins) ** won[::-1]).sum())
        return power_so_far

    low, high = 0.0, largest
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def _binomial(n: int, share: float) -> "Floats":
    """Return the binomial probabilities of 0 to n successes."""
    import numpy as np
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.exp(ways + xlogy(k, share) + xlog1py(n - k, -share)))


def _spread_out(sizes: "Floats", n: int) -> "Floats":
    """Return n sizes with the distribution of the given sizes, which must be sorted."""
    import numpy as np

    places = (np.arange(n) + 0.5) / n * len(sizes) - 0.5
    return np.interp(places, np.arange(len(sizes)), sizes)


def _significant_by_wins(sizes: "Floats") -> "Floats":
    """Count the sign patterns whose sum is significantly above 0, by the number of tasks won."""
    import numpy as np

    sums, won = np.zeros(1), np.zeros(1, dtype=np.int64)
    for size in sizes:
        sums, won = np.concatenate([sums - size, sums + size]), np.concatenate([won, won + 1])
    at_most = math.ceil(SIGNIFICANCE * len(sums)) - 1  # number of patterns that may be as far from 0
    least = np.partition(np.abs(sums), len(sums) - 1 - at_most)[len(sums) - 1 - at_most]
    n_wins = won[sums > least + 1e-9 * max(1.0, least)]
    return np.bincount(n_wins, minlength=len(sizes) + 1).astype(np.float64)
