"""Learn from the texts that people moved where other texts of the same block belong.

The model is a multinomial logistic regression with an L2 penalty over the vectors of the texts. It is fitted again
whenever it is used; nothing but the moves of people is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_eval.clusters.embedding import Vectors

FEWEST_CLUSTERS, FEWEST_TEXTS = 2, 10
"""People must have moved this many texts of a block, to this many clusters, before others are placed by them."""
CERTAIN = 0.5  # probability from which a text is placed
_PENALTY = 0.01
_FOLDS = 5

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Placement:
    """Hold the fitted model of a block.

    Attributes:
        clusters: The clusters that people moved texts to.
        weights: One row per dimension of the vectors and one for the constant; one column per cluster.
    """

    clusters: tuple[str, ...]
    weights: Floats

    def place(self, vectors: Vectors) -> tuple[list[str], Floats]:
        """Return the most probable cluster of each vector, and its probability."""
        chances = _chances(_with_constant(vectors), self.weights)
        return [self.clusters[i] for i in chances.argmax(axis=1)], chances.max(axis=1)


def fitted(vectors: Vectors, clusters: Sequence[str]) -> Placement | None:
    """Return the model of the texts that people moved to these clusters; None if there are too few.

    Args:
        vectors: One row per text that a person moved.
        clusters: The cluster of each text.
    """
    names = sorted(set(clusters))
    if len(names) < FEWEST_CLUSTERS or len(clusters) < FEWEST_TEXTS:
        return None
    at = np.array([names.index(name) for name in clusters])
    return Placement(tuple(names), _weights(_with_constant(vectors), np.eye(len(names))[at]))


def held_out_accuracy(vectors: Vectors, clusters: Sequence[str]) -> float | None:
    """Return the share of moved texts that a model of the others places as people did; None if there are too few.

    Every fifth text is left out in turn, so the share does not depend on chance.
    """
    n = len(clusters)
    hits: list[bool] = []
    for fold in range(_FOLDS):
        is_out = np.arange(n) % _FOLDS == fold
        model = fitted(
            vectors[~is_out], [name for name, out in zip(clusters, is_out, strict=True) if not out]
        )
        if model is None:
            return None
        placed, _ = model.place(vectors[is_out])
        hits += [a == b for a, b in zip(placed, np.array(clusters)[is_out].tolist(), strict=True)]
    return sum(hits) / len(hits)


def _weights(inputs: Floats, targets: Floats) -> Floats:
    from scipy.optimize import minimize

    shape = inputs.shape[1], targets.shape[1]

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        chances = _chances(inputs, weights)
        penalised = weights.copy()
        penalised[-1] = 0  # the constant is free
        value = -(targets * np.log(chances + 1e-300)).sum() + _PENALTY / 2 * (penalised**2).sum()
        return float(value), (inputs.T @ (chances - targets) + _PENALTY * penalised).ravel()

    best = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B")
    weights: Floats = best.x.reshape(shape)
    return weights


def _chances(inputs: Floats, weights: Floats) -> Floats:
    scores = inputs @ weights
    powers: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: Floats = powers / powers.sum(axis=1, keepdims=True)
    return chances


def _with_constant(vectors: Vectors) -> Floats:
    return np.hstack([vectors.astype(np.float64), np.ones((len(vectors), 1))])
