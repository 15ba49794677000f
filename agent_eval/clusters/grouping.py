"""Group vectors by average linkage, and assign new vectors to their nearest group.

The distance between a vector and a group is the mean cosine distance to the group's members. To limit memory and
time, large inputs are processed in slices: vectors that fit the groups of earlier slices are assigned to them
before the next slice is grouped.
"""

import numpy as np
import numpy.typing as npt

from agent_eval.clusters.embedding import Vectors

SLICE = 1_500  # vectors that are grouped together; average linkage is quadratic
_ROWS = 4_096  # vectors that are compared together
_FLOAT_ERROR = 1e-9  # of a mean of distances
Labels = npt.NDArray[np.intp]

NONE = -1


def nearest_centroid(vectors: Vectors, means: Vectors) -> tuple[Labels, Vectors]:
    """Return the group with the smallest mean cosine distance for each vector, and that distance.

    If several groups have the same distance, the first one is returned.

    Args:
        vectors: Vectors of length at most 1, one per row.
        means: The mean of each group's vectors, without scaling.
    """
    at = np.full(len(vectors), NONE, dtype=np.intp)
    distance = np.full(len(vectors), np.inf, dtype=np.float32)
    if len(means):
        for start in range(0, len(vectors), _ROWS):
            rows = slice(start, start + _ROWS)
            apart = 1 - vectors[rows] @ means.T
            at[rows] = apart.argmin(axis=1)
            distance[rows] = apart.min(axis=1)
    return at, distance


def average_linkage_labels(vectors: Vectors, radius: float) -> Labels:
    """Return the group number of each vector; groups are numbered from 0 by their first vector.

    Groups are cut from the average-linkage tree at `radius`. If there are more vectors than fit in a slice, the
    first slice is grouped, other vectors within the radius join its groups, and the procedure is repeated for
    the remaining vectors.
    """
    labels = np.full(len(vectors), NONE, dtype=np.intp)
    n_groups = 0
    left = np.arange(len(vectors))
    while len(left):
        head, tail = left[:SLICE], left[SLICE:]
        labels[head] = _average_link(vectors[head], radius) + n_groups
        means = means_of(vectors[head], labels[head] - n_groups)
        at, distance = nearest_centroid(vectors[tail], means)
        is_near = distance <= radius
        labels[tail[is_near]] = at[is_near] + n_groups
        n_groups += len(means)
        left = tail[~is_near]
    return _in_order(labels)


def means_of(vectors: Vectors, labels: Labels) -> Vectors:
    """Return the mean vector of each group 0, 1, …, n−1."""
    n_groups = int(labels.max()) + 1 if len(labels) else 0
    sums = np.zeros((n_groups, vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, labels, vectors)
    means: Vectors = (sums / np.bincount(labels, minlength=n_groups)[:, None]).astype(np.float32)
    return means


def medoid(vectors: Vectors) -> int:
    """Return the index of the vector nearest to the mean of all, or the first index if there are several."""
    closeness = vectors @ vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    return int(np.argmax(np.round(closeness, 6)))  # rounded to ignore float errors


def _average_link(vectors: Vectors, radius: float) -> Labels:
    apart = np.clip(1 - vectors.astype(np.float64) @ vectors.T.astype(np.float64), 0, 2)
    np.fill_diagonal(apart, 0)
    is_near = apart <= radius
    first_near: Labels = is_near.argmax(axis=1)
    is_clear = not np.any(np.abs(apart - radius) < _FLOAT_ERROR)
    if is_clear and np.array_equal(is_near, first_near[:, None] == first_near):
        return _in_order(first_near)  # groups without a distance near the radius: no tree is needed
    from scipy.cluster.hierarchy import fcluster, linkage  # imported on use: it takes long
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(apart, checks=False), method="average")
    return _in_order(fcluster(tree, radius, criterion="distance").astype(np.intp))


def _in_order(labels: Labels) -> Labels:
    """Renumber groups by their first member."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), dtype=np.intp)
    ranks[np.argsort(first)] = np.arange(len(first))
    ordered: Labels = ranks[inverse]
    return ordered
