"""Test differences of pairs by flipping their signs, and compute the true difference that this test finds.

Shares and ratings of few answers tie in many tasks, and few tasks that differ make the test discrete: the table of t
is up to a quarter too high then. The power is therefore computed: as many tasks differ as in the data, and by as much;
open is which agent is the better one in each of them. Functions take and return numbers.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

SIGNIFICANCE, POWER = 0.05, 0.8
MOST_FLIPPED = 16  # up to this number of tasks that differ all 2^n sign patterns are tried
FEWEST_FLIPPED = 6  # with fewer no difference has p < 5 %: 2 / 2^5 = 6 %
FEWEST_PLANNED = (
    8  # tasks that differ; if fewer are expected, six of them are drawn in less than 80 % of cases
)
_MANY = 48  # tasks that differ; with as many hardly ever 16 or fewer of them are drawn
_DISTINCT = 0.9
_RARE = 1e-4


def flipping_p(differences: Sequence[float]) -> float:
    """Return the share of the 2^n sign patterns whose sum is at least as far from 0 as that of the data."""
    import numpy as np

    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + abs(d), sums - abs(d)])
    observed = abs(sum(differences))
    return float(np.mean(np.abs(sums) >= observed - 1e-9 * max(1.0, observed)))


def repeats(differences: Sequence[float]) -> bool:
    """Return whether more than one task in ten ties with another one: shares and ratings, not amounts."""
    largest = max(map(abs, differences))
    return len({round(abs(d) / largest, 9) for d in differences}) < _DISTINCT * len(differences)


def detectable_by_signs(differences: Sequence[float], critical: float, multiple: float) -> float:
    """Return the true mean difference that is found with 80 % power if only the signs are open.

    Tasks are drawn from those of the data, and each one that differs is won with the same probability. With so many
    tasks that t decides the sum of the differences is taken as normal.

    Args:
        differences: One per task, at least `FEWEST_PLANNED` of them not 0.
        critical: Of t with n − 1 degrees of freedom, at a two-sided 5 %.
        multiple: The smallest detectable difference of n values in standard errors.
    """
    import numpy as np
    from scipy.special import ndtr

    sizes = np.sort(np.abs([d for d in differences if d]))
    n, m = len(differences), len(sizes)
    largest = float(sizes.sum()) / n  # if one agent wins every task that differs
    if m > _MANY:
        moment = float((sizes**2).sum()) / n  # the variance of a difference is this minus the squared mean
        return min(multiple * math.sqrt(moment / (n - 1 + multiple**2)), largest)
    drawn = [(k, share) for k, share in enumerate(_binomial(n, m / n)) if share > _RARE]
    flipped = [
        (share, _significant_by_wins(_spread_out(sizes, k)))
        for k, share in drawn
        if FEWEST_FLIPPED <= k <= MOST_FLIPPED
    ]
    tested = np.array([pair for pair in drawn if pair[0] > MOST_FLIPPED]).reshape(-1, 2)
    total, squares = tested[:, 0] * sizes.mean(), tested[:, 0] * (sizes**2).mean()
    least = critical * np.sqrt(
        n * squares / (n - 1 + critical**2)
    )  # a larger sum has a t above the critical one

    def power(difference: float) -> float:
        wins = (1 + min(difference / largest, 1.0)) / 2
        spread = np.sqrt(np.maximum(4 * wins * (1 - wins) * squares, 1e-300))
        found = float((tested[:, 1] * ndtr(((2 * wins - 1) * total - least) / spread)).sum())
        for share, counts in flipped:
            won = np.arange(len(counts))
            found += share * float((counts * wins**won * (1 - wins) ** won[::-1]).sum())
        return found

    low, high = 0.0, largest
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def _binomial(n: int, share: float) -> "Floats":
    """Return the probabilities of 0 to n."""
    import numpy as np
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.exp(ways + xlogy(k, share) + xlog1py(n - k, -share)))


def _spread_out(sizes: "Floats", n: int) -> "Floats":
    """Return n sizes with the distribution of the given ones, which are sorted."""
    import numpy as np

    places = (np.arange(n) + 0.5) / n * len(sizes) - 0.5
    return np.interp(places, np.arange(len(sizes)), sizes)


def _significant_by_wins(sizes: "Floats") -> "Floats":
    """Count, by the number of tasks won, the sign patterns that are significantly above 0."""
    import numpy as np

    sums, won = np.zeros(1), np.zeros(1, dtype=np.int64)
    for size in sizes:
        sums, won = np.concatenate([sums - size, sums + size]), np.concatenate([won, won + 1])
    at_most = math.ceil(SIGNIFICANCE * len(sums)) - 1  # patterns as far from 0 as a significant one
    least = np.partition(np.abs(sums), len(sums) - 1 - at_most)[len(sums) - 1 - at_most]
    found = won[sums > least + 1e-9 * max(1.0, least)]
    return np.bincount(found, minlength=len(sizes) + 1).astype(np.float64)
