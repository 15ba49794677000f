"""What people move teaches where other texts belong; without enough moves nothing is placed."""

import numpy as np
import polars as pl
import pytest

from agent_eval.clusters.consolidation import consolidate
from agent_eval.clusters.overrides import apply_overrides, read_overrides
from agent_eval.clusters.placement import FEWEST_TEXTS, fitted, held_out_accuracy
from tests.clusters.rows import SPACE, TODAY, clusters_of, grown, told

ASIDES = ("so", "now", "then", "here", "there", "always")
FIRST = grown(told(*(f"{word} {aside}" for word in ("refund", "baggage", "flight") for aside in ASIDES)))
IDS = clusters_of(FIRST)
REFUND, BAGGAGE = IDS["refund so"], IDS["baggage so"]


def moved(n: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables after a person declared refunds and flights as one cause, by n texts of each, and baggage as another."""
    texts = {
        REFUND: [f"{word} {a}" for word in ("refund", "flight") for a in ASIDES[:n]],
        BAGGAGE: [f"baggage {a}" for a in ASIDES[:n]],
    }
    entries, _ = read_overrides(
        "p.yaml", "".join(f"- {{cluster: {c}, texts: {t}}}\n" for c, t in texts.items())
    )
    result = apply_overrides(FIRST.registry, FIRST.members, entries, at=TODAY)
    return result.registry, result.members


@pytest.mark.parametrize("n", [1, 4])
def test_new_texts_and_on_consolidation_known_ones_follow_what_people_moved(n: int) -> None:
    registry, members = moved(n)
    is_taught = 3 * n >= FEWEST_TEXTS
    made = consolidate(registry, members, SPACE, at=TODAY)
    assert ("moved" in made.events["kind"].to_list()) == is_taught
    after = type(FIRST)(made.registry, made.members, FIRST.failures)
    placed = clusters_of(grown(told("flight suddenly", "flight always", "baggage suddenly"), after))
    assert placed["baggage suddenly"] == BAGGAGE
    assert {placed["flight suddenly"], placed["flight always"]} == {REFUND if is_taught else IDS["flight so"]}
    again = consolidate(made.registry, made.members, SPACE, at=TODAY)
    assert again.events.is_empty()


def test_accuracy_is_that_of_texts_that_the_model_has_not_seen() -> None:
    random = np.random.default_rng(1)
    labels = ["a", "b"] * 20
    noise = random.normal(size=(40, 8)).astype(np.float32)
    signal = noise + 4 * np.array([[label == "a"] for label in labels], dtype=np.float32)
    assert held_out_accuracy(signal, labels) == 1
    chance = held_out_accuracy(noise, labels)
    assert chance is not None
    assert chance < 0.8
    assert held_out_accuracy(signal[:9], labels[:9]) is None
    assert fitted(signal, ["a"] * 40) is None


def test_a_fitted_model_agrees_with_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(2)
    vectors = random.normal(size=(60, 5)).astype(np.float32)
    labels = ["abc"[int(i)] for i in (vectors[:, 0] + random.normal(size=60)) > 0]
    labels = ["c" if v[1] > 1 else label for v, label in zip(vectors, labels, strict=True)]
    model = fitted(vectors, labels)
    assert model is not None
    clusters, chances = model.place(vectors)
    peer = LogisticRegression(C=100, max_iter=5_000, tol=1e-8).fit(vectors, labels)
    assert clusters == peer.predict(vectors).tolist()
    assert np.allclose(chances, peer.predict_proba(vectors).max(axis=1), atol=5e-3)
