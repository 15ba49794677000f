"""Merge clusters with the same cause, and split clusters with several causes.

Ids are permanent. When clusters are merged, the largest keeps its id and the others redirect to it. When a
cluster is split, the largest part keeps the id and the others get new ids. Merges and splits that people made
are not changed. Each change is recorded as an event.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from agent_eval.clusters.cluster_registry import (
    Block,
    ClusterRegistryBuilder,
    Space,
    model_of,
    moved_by_people,
)
from agent_eval.clusters.cluster_registry import event as event
from agent_eval.clusters.cluster_registry import events_frame as events_frame
from agent_eval.clusters.embedding import Vectors
from agent_eval.clusters.grouping import SLICE, Labels, average_linkage_labels, means_of, medoid
from agent_eval.clusters.placement import CERTAIN, held_out_accuracy
from agent_eval.clusters.texts import BLOCK

MERGE_SHARE = 0.95  # share of the radius; merging requires more similarity than joining
SPLIT_SHARE = 1.1  # share of the radius; a cluster is split only if its parts are clearly separate
SMALLEST_PART = 5  # minimum number of texts in a part that is split off
BY = "consolidation"


@dataclass(frozen=True)
class Consolidated:
    """Hold the updated tables error_registry and error_members, and the new rows of error_events."""

    registry: pl.DataFrame
    members: pl.DataFrame
    events: pl.DataFrame


def consolidate(registry: pl.DataFrame, members: pl.DataFrame, space: Space, *, at: date) -> Consolidated:
    """Merge and split the clusters within each block; the result depends only on the tables.

    Two clusters are merged if the mean distance between their texts is at most 0.95 of the radius. A cluster is
    split if its texts form groups of five or more whose distance exceeds 1.1 times the radius. In a block in which
    people moved texts, the others are first placed by a model of these moves, where it is certain enough.
    """
    builder = ClusterRegistryBuilder(registry, members, at)
    merges: dict[str, str] = {}
    moved: dict[tuple[str, str | None, str], str] = {}
    placed: list[tuple[str, str | None, str]] = []
    events: list[dict[str, object]] = []
    is_open = ~pl.col("method").is_in(["human"])
    current = members.with_columns(
        pl.col("cluster_id").replace_strict(builder.redirects, return_dtype=pl.String)
    )
    is_merged = pl.col("cluster_id").is_in(
        registry.filter(pl.col("merged_by") == "human")["merged_into"].unique().to_list()
    )
    for key, of_block in current.sort(*BLOCK, "text_hash").group_by(BLOCK, maintain_order=True):
        block: Block = (str(key[0]), None if key[1] is None else str(key[1]))
        rows = of_block.filter(is_open)
        learned = _learned(rows.filter(~is_merged), of_block, space)
        moved |= {(*block, text): new for text, new in learned.items()}
        placed += [(*block, text) for text in learned]
        events += _moves(rows, learned, of_block, space, at)
        by_people = of_block.filter(~is_open)["cluster_id"].unique().to_list()
        free = rows.filter(
            ~is_merged, ~pl.col("cluster_id").is_in(by_people), ~pl.col("text_hash").is_in([*learned])
        )
        if free.is_empty():
            continue
        vectors = space.vectors(free.select("text_hash", "text"))
        radius = space.radius_of(free)
        for old, part in _splits(free, vectors, radius):
            new = _part_off(builder, block, free, vectors, part)
            moved |= {(*block, str(free["text_hash"][int(i)])): new for i in part}
            events.append(event("split", old, new, BY, f"{len(part)} texts lie apart from the others", at))
        now = [moved.get((*block, h), c) for h, c in free.select("text_hash", "cluster_id").iter_rows()]
        for away, into, distance in _merges(now, vectors, radius):
            merges[away] = into
            events.append(event("merge", away, into, BY, f"mean distance {distance:.2f}", at))
    grown, _ = builder.tables()
    return Consolidated(_merged(grown, merges), _moved(members, moved, set(placed)), events_frame(events))


def _splits(rows: pl.DataFrame, vectors: Vectors, radius: float) -> Iterator[tuple[str, Labels]]:
    """Yield the cluster and the rows of each part to split off."""
    ids = rows["cluster_id"].to_numpy()
    for name in sorted(set(ids)):
        of_cluster = np.flatnonzero(ids == name)
        if not 2 * SMALLEST_PART <= len(of_cluster) <= SLICE:
            continue
        labels = average_linkage_labels(vectors[of_cluster], radius * SPLIT_SHARE)
        sizes = np.bincount(labels)
        stays = int(sizes.argmax())
        for part in np.flatnonzero(sizes >= SMALLEST_PART):
            if part != stays:
                yield name, of_cluster[labels == part]


def _part_off(
    builder: ClusterRegistryBuilder, block: Block, rows: pl.DataFrame, vectors: Vectors, part: Labels
) -> str:
    """Create a cluster for the rows of a part, with their medoid as the seed text."""
    seed_text = rows.row(int(part[medoid(vectors[part])]), named=True)
    return builder.mint(block, seed_text)


def _merges(ids: list[str], vectors: Vectors, radius: float) -> Iterator[tuple[str, str, float]]:
    """Yield (merged cluster, target, distance), nearest first; the larger cluster, or the first by id, is the target.

    The distance between two clusters is the mean over all pairs of their texts, as in average linkage.
    """
    names, labels = np.unique(ids, return_inverse=True)
    sizes = np.bincount(labels).astype(np.float64)
    means = means_of(vectors, labels).astype(np.float64)
    alive = np.ones(len(names), dtype=bool)
    while alive.sum() > 1:
        apart = 1 - means @ means.T
        apart[~alive] = apart[:, ~alive] = np.inf
        np.fill_diagonal(apart, np.inf)
        i, j = np.unravel_index(int(np.round(apart, 6).argmin()), apart.shape)
        distance = float(apart[i, j])
        if distance > radius * MERGE_SHARE:
            return
        into, away = (i, j) if (-sizes[i], names[i]) <= (-sizes[j], names[j]) else (j, i)
        means[into] = (means[into] * sizes[into] + means[away] * sizes[away]) / (sizes[into] + sizes[away])
        sizes[into] += sizes[away]
        alive[away] = False
        yield str(names[away]), str(names[into]), distance


def _merged(registry: pl.DataFrame, merges: Mapping[str, str]) -> pl.DataFrame:
    into = pl.col("cluster_id").replace_strict(dict(merges), default=None, return_dtype=pl.String)
    return registry.with_columns(
        pl.coalesce("merged_into", into).alias("merged_into"),
        pl.when(pl.col("merged_into").is_null() & into.is_not_null())
        .then(pl.lit(BY))
        .otherwise("merged_by")
        .alias("merged_by"),
    )


def _moved(
    members: pl.DataFrame,
    moved: Mapping[tuple[str, str | None, str], str],
    placed: Collection[tuple[str, str | None, str]],
) -> pl.DataFrame:
    keys = list(members.select(*BLOCK, "text_hash").iter_rows())
    ids = [moved.get(key, old) for key, old in zip(keys, members["cluster_id"], strict=True)]
    is_learned = pl.Series([key in placed for key in keys], dtype=pl.Boolean)
    is_split = pl.Series([key in moved for key in keys], dtype=pl.Boolean)
    return members.with_columns(
        pl.Series("cluster_id", ids, dtype=pl.String),
        pl.when(is_learned)
        .then(pl.lit("learned"))
        .when(is_split)
        .then(pl.lit("consolidation"))
        .otherwise("method")
        .alias("method"),
    )


def _learned(rows: pl.DataFrame, of_block: pl.DataFrame, space: Space) -> dict[str, str]:
    """Return the cluster of each of these texts that, by what people moved, belongs to another cluster."""
    model = model_of(of_block, space)
    if model is None or rows.is_empty():
        return {}
    clusters, chances = model.place(space.vectors(rows.select("text_hash", "text")))
    old = rows.select("text_hash", "cluster_id").iter_rows()
    return {
        text: new
        for (text, now), new, chance in zip(old, clusters, chances, strict=True)
        if chance >= CERTAIN and new != now
    }


def _moves(
    rows: pl.DataFrame, learned: Mapping[str, str], of_block: pl.DataFrame, space: Space, at: date
) -> Iterator[dict[str, object]]:
    """Yield an event for each pair of clusters between which texts were moved, with the accuracy of the model."""
    if not learned:
        return
    vectors, clusters = moved_by_people(of_block, space)
    accuracy = held_out_accuracy(vectors, clusters)
    accuracy_note = (
        "" if accuracy is None else f", which it places right in {accuracy:.0%} of cases when left out"
    )
    counts = Counter(
        (now, learned[text])
        for text, now in rows.select("text_hash", "cluster_id").iter_rows()
        if text in learned
    )
    for (old, new), n in sorted(counts.items()):
        reason = f"{n} texts, by a model of the {len(clusters)} texts that people moved{accuracy_note}"
        yield event("moved", old, new, BY, reason, at)
