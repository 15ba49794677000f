"""Assign failures to clusters with permanent ids.

A block is a failure label with or without a tool. Within a block, a text that was seen before keeps its cluster,
and a new text joins the nearest cluster within the radius. The remaining texts are grouped, and each group gets
a new cluster. An id is a hash of the block and the text that the cluster was created for, and is never reused.
The same registry and the same new failures give the same rows, independent of the row order.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import polars as pl

from agent_eval.clusters.embedding import Vectors
from agent_eval.clusters.grouping import Labels, average_linkage_labels, means_of, medoid, nearest_centroid
from agent_eval.clusters.placement import CERTAIN, Placement, fitted
from agent_eval.clusters.severity import severity_of
from agent_eval.clusters.texts import BLOCK, with_text
from agent_eval.errors import ConfigurationError
from agent_eval.formats.hashing import digest
from agent_eval.tables import table

LONGEST_TITLE = 110  # characters
CAUSE_SHARE = 0.89  # share of the radius within which causes, which are short and general, share a cluster
Block = tuple[str, str | None]

_REGISTRY, _MEMBERS = table("error_registry"), table("error_members")


class MergeRedirectError(ConfigurationError):
    """Raised when the redirects of merged clusters form a cycle or lead to an id that does not exist."""

    def __init__(self, cluster_id: str, chain: Sequence[str], problem: str) -> None:
        super().__init__(
            f"error_registry: {cluster_id} is merged into {' → '.join(chain)}, which {problem}. "
            "Set merged_into to the id of a cluster that is not merged itself, or to null."
        )


@dataclass(frozen=True)
class Space:
    """Hold the embedding of texts and the radius within which failures share a cluster.

    `vectors` takes one row per text, with text_hash and text, and returns one vector of length at most 1 per row.
    """

    vectors: Callable[[pl.DataFrame], Vectors]
    radius: float

    def radius_of(self, texts: pl.DataFrame) -> float:
        """Return the radius for rows of `members` of one block, which is smaller if one of them is a cause."""
        return self.radius * (CAUSE_SHARE if texts["cause"].is_not_null().any() else 1)


@dataclass(frozen=True)
class Grown:
    """Hold the updated error_registry and error_members, and the failures with their clusters."""

    registry: pl.DataFrame
    members: pl.DataFrame
    failures: pl.DataFrame


def cluster_id(label: str, tool: str | None) -> str:
    """Return the permanent id for a block's failures without text, which is 'E-' and ten hex digits."""
    return f"E-{digest(label, tool)[:10]}"


def register(
    registry: pl.DataFrame, members: pl.DataFrame, failures: pl.DataFrame, space: Space, *, seen_at: date
) -> Grown:
    """Assign each failure to its cluster, and create clusters for failures that are not near any cluster.

    Existing rows keep all their values except last_seen, which never changes to an earlier date. A merged
    cluster redirects to the cluster that it was merged into.

    Args:
        registry: Table `error_registry`; initially empty.
        members: Table `error_members`; initially empty.
        failures: As returned by `failures.failures`.
        space: The embedding and radius; used only for blocks with new texts.
        seen_at: The UTC date on which these failures were seen.

    Raises:
        MergeRedirectError: If merged ids form a cycle or lead to an id that is not in the registry.
    """
    with_texts = with_text(failures, members)
    builder = ClusterRegistryBuilder(registry, members, seen_at)
    for block, _ in _blocks(with_texts.filter(pl.col("text") == "")):
        builder.mint_block(block)
    unseen = _unseen(with_texts, members)
    compared = _compared(unseen, members, space)
    for block, new in _blocks(unseen):
        _grow(builder, block, new, compared)
    grown, all_members = builder.tables()
    assigned = _assigned(with_texts, all_members, targets(grown))
    return Grown(_seen(grown, assigned["cluster_id"], seen_at), all_members, assigned)


def new_texts(failures: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return the failures that `register` needs to extend the registry.

    These are the first failure by id for each text that is new in its block, and one failure without text per
    block. The failures of several agents can be reduced separately.
    """
    with_texts = with_text(failures, members)
    is_blank = pl.col("text") == ""
    kept = pl.concat(
        [with_texts.filter(is_blank).unique(BLOCK), _unseen(with_texts, members)], how="diagonal"
    )
    return failures.join(kept, on="failure_id", how="semi")


def targets(registry: pl.DataFrame) -> dict[str, str]:
    """Return the final cluster that each id redirects to.

    Raises:
        MergeRedirectError: If merged ids form a cycle or lead to an id that is not in the registry.
    """
    merged: dict[str, str | None] = dict(registry.select("cluster_id", "merged_into").iter_rows())
    return {start: _follow(start, merged) for start in sorted(merged)}


class ClusterRegistryBuilder:
    """Add clusters with new ids, and members, to a registry."""

    def __init__(self, registry: pl.DataFrame, members: pl.DataFrame, seen_at: date) -> None:
        self.registry, self.members = _REGISTRY.conform(registry), _MEMBERS.conform(members)
        self.seen_at = seen_at
        self.redirects = targets(self.registry)
        self.seed_texts: dict[str, str | None] = dict(registry.select("cluster_id", "founder").iter_rows())
        self._with_members = {
            *members["cluster_id"],
            *registry.filter(pl.col("merged_into").is_not_null())["cluster_id"],
        }
        self.new_clusters: list[dict[str, object]] = []
        self.new_members: list[dict[str, object]] = []

    def has_members(self, cluster: str) -> bool:
        """Return whether a cluster has texts or was merged into another cluster."""
        return cluster in self._with_members

    def mint(self, block: Block, seed_text: Mapping[str, object], *, title: str | None = None) -> str:
        """Create a cluster for a row of `members` (at least text_hash, quote and reason) and return its id."""
        minted = self._unused(block, str(seed_text["text_hash"]))
        cause = seed_text["cause"] or seed_text["reason"]
        named = title or rule_title(
            *block, str(seed_text["quote"] or seed_text["reason"] or ""), str(seed_text["cause"] or "")
        )
        self._add(minted, block, named, seed_text["text_hash"], cause)
        self._with_members.add(minted)
        return minted

    def mint_block(self, block: Block) -> None:
        """Create the cluster for a block's failures without text, unless it exists."""
        minted = cluster_id(*block)
        if minted not in self.seed_texts:
            self._add(minted, block, rule_title(*block, ""), None, None)

    def join(
        self, block: Block, row: Mapping[str, object], cluster: str, distance: float, method: str
    ) -> None:
        """Add a text to the members of a cluster."""
        label, tool = block
        self.new_members.append(
            {
                **row,
                "label": label,
                "tool": tool,
                "cluster_id": cluster,
                "distance": distance,
                "method": method,
            }
        )

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return error_registry and error_members with the additions, sorted by key."""
        registry = pl.concat([self.registry, _REGISTRY.frame(self.new_clusters)])
        members = pl.concat([self.members, _MEMBERS.frame(self.new_members)])
        return registry.sort("cluster_id"), members.sort(_MEMBERS.key)

    def _unused(self, block: Block, seed_text: str) -> str:
        """Return the first id from the hashes of block, seed text and a counter that no other cluster uses.

        An id with this seed text but without members was created by an interrupted run and is reused.
        """
        n = 0
        while True:
            minted = f"E-{digest('minted', *block, seed_text, n)[:10]}"
            if minted not in self.seed_texts or (
                not self.has_members(minted) and self.seed_texts[minted] == seed_text
            ):
                return minted
            n += 1

    def _add(self, minted: str, block: Block, title: str, seed_text: object, cause: object) -> None:
        if minted in self.seed_texts:
            return
        self.seed_texts[minted] = None if seed_text is None else str(seed_text)
        severity = severity_of(block[0])
        self.new_clusters.append(
            {
                "cluster_id": minted,
                "label": block[0],
                "tool": block[1],
                "severity": severity,
                "rule_severity": severity,
                "title": title,
                "rule_title": title,
                "root_cause": cause,
                "rule_root_cause": cause,
                "founder": seed_text,
                "first_seen": self.seen_at,
                "last_seen": self.seen_at,
            }
        )


def rule_title(label: str, tool: str | None, quote: str, cause: str = "") -> str:
    """Return the title 'label · tool: cause', or 'label · tool: “quote”' without a cause, on one line and truncated."""
    name = label if tool is None else f"{label} · {tool}"
    words = " ".join((cause or quote).split())
    room = max(LONGEST_TITLE - len(name), 20)
    cut = words if len(words) <= room else words[: room - 1] + "…"
    return f"{name}: {cut if cause else f'“{cut}”'}" if words else name


def _blocks(with_texts: pl.DataFrame) -> Iterator[tuple[Block, pl.DataFrame]]:
    for key, rows in with_texts.sort(*BLOCK, "text_hash").group_by(BLOCK, maintain_order=True):
        yield (str(key[0]), None if key[1] is None else str(key[1])), rows


def _unseen(with_texts: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return each text that is new in its block once, with the first failure (by id) that has it."""
    return (
        with_texts.filter(pl.col("text") != "")
        .join(members, on=[*BLOCK, "text_hash"], how="anti", nulls_equal=True)
        .sort("failure_id")
        .unique([*BLOCK, "text_hash"], keep="first", maintain_order=True)
        .select("failure_id", *BLOCK, "text_hash", "text", "cause", "quote", "reason")
    )


def _compared(unseen: pl.DataFrame, members: pl.DataFrame, space: Space) -> Space:
    """Return a space that holds the vectors of all texts to compare, computed in a single call."""
    texts = ("text_hash", "text")
    known = members.join(unseen.select(BLOCK).unique(), on=BLOCK, how="semi", nulls_equal=True)
    wanted = pl.concat([unseen.select(texts), known.select(texts)]).unique("text_hash").sort("text_hash")
    if wanted.is_empty():
        return space
    rows = dict(zip(wanted["text_hash"], range(wanted.height), strict=True))
    vectors = space.vectors(wanted)
    return replace(space, vectors=lambda some: vectors[[rows[name] for name in some["text_hash"]]])


def _grow(builder: ClusterRegistryBuilder, block: Block, new: pl.DataFrame, space: Space) -> None:
    """Assign a block's new texts (sorted by hash) to its clusters, and create clusters for the remaining texts."""
    vectors = space.vectors(new.select("text_hash", "text"))
    mine = _members_of(builder, block)
    known, means = _prototypes(mine, space)
    at, distance = nearest_centroid(vectors, means)
    rows = new.select("text_hash", "text", "cause", "quote", "reason").to_dicts()
    radius = space.radius_of(new)
    is_learned = np.zeros(len(rows), dtype=bool)
    if (model := model_of(mine, space)) is not None:
        placed, chances = model.place(vectors)
        is_learned = chances >= CERTAIN
        for i in np.flatnonzero(is_learned):
            apart = 1 - float(vectors[i] @ means[known.index(placed[i])])
            builder.join(block, rows[i], placed[i], round(max(apart, 0.0), 6), "learned")
    is_near = (distance <= radius) & ~is_learned
    for i in np.flatnonzero(is_near):
        builder.join(block, rows[i], known[at[i]], round(float(distance[i]), 6), "prototype")
    rest = np.flatnonzero(~is_near & ~is_learned)
    if len(rest):
        labels = average_linkage_labels(vectors[rest], radius)
        _mint(builder, block, [rows[i] for i in rest], vectors[rest], labels)


def _members_of(builder: ClusterRegistryBuilder, block: Block) -> pl.DataFrame:
    """Return the block's rows of `members` with their clusters after redirects."""
    label, tool = block
    mine = builder.members.filter((pl.col("label") == label) & pl.col("tool").eq_missing(tool))
    return mine.with_columns(pl.col("cluster_id").replace_strict(builder.redirects, return_dtype=pl.String))


def _prototypes(members: pl.DataFrame, space: Space) -> tuple[list[str], Vectors]:
    """Return the clusters of these rows of `members`, and the mean vector of each cluster's texts."""
    if members.is_empty():
        return [], np.empty((0, 0), dtype=np.float32)
    known, labels = np.unique(members["cluster_id"].to_list(), return_inverse=True)
    return known.tolist(), means_of(space.vectors(members.select("text_hash", "text")), labels)


def moved_by_people(members: pl.DataFrame, space: Space) -> tuple[Vectors, list[str]]:
    """Return the vectors and clusters of the texts of a block that people moved, in order of their hash."""
    moved = members.filter(pl.col("method") == "human").sort("text_hash")
    if moved.is_empty():
        return np.empty((0, 0), dtype=np.float32), []
    return space.vectors(moved.select("text_hash", "text")), moved["cluster_id"].to_list()


def model_of(members: pl.DataFrame, space: Space) -> Placement | None:
    """Return what the texts that people moved teach about a block; None if they are too few."""
    return fitted(*moved_by_people(members, space))


def _mint(
    builder: ClusterRegistryBuilder,
    block: Block,
    rows: Sequence[Mapping[str, object]],
    vectors: Vectors,
    labels: Labels,
) -> None:
    means = means_of(vectors, labels)
    order = np.argsort(labels, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        minted = builder.mint(block, rows[group[medoid(vectors[group])]])
        apart = 1 - vectors[group] @ means[labels[group[0]]]
        for i, distance in zip(group, apart, strict=True):
            builder.join(block, rows[i], minted, round(max(float(distance), 0.0), 6), "minted")


def _assigned(with_texts: pl.DataFrame, members: pl.DataFrame, redirects: Mapping[str, str]) -> pl.DataFrame:
    by_text = members.select(*BLOCK, "text_hash", "cluster_id", "distance", "method")
    is_blank = pl.col("text") == ""
    joined = with_texts.join(by_text, on=[*BLOCK, "text_hash"], how="left", nulls_equal=True)
    blocks = [cluster_id(*row) for row in joined.select(BLOCK).iter_rows()]
    rows = joined.with_columns(
        pl.when(is_blank)
        .then(pl.Series(blocks, dtype=pl.String))
        .otherwise("cluster_id")
        .alias("cluster_id"),
        pl.when(is_blank).then(0.0).otherwise("distance").alias("distance"),
        pl.when(is_blank).then(pl.lit("block")).otherwise("method").alias("method"),
        pl.when(~is_blank).then("text_hash").alias("text_hash"),
    ).with_columns(pl.col("cluster_id").replace_strict(dict(redirects), return_dtype=pl.String))
    sorted_rows = rows.select(list(table("failures").schema)).sort(
        "methodology_version", "agent_id", "conversation_id", "turn_index", "label", "failure_id"
    )
    return table("failures").conform(sorted_rows)


def _follow(start: str, merged: Mapping[str, str | None]) -> str:
    at, chain = start, list[str]()
    while (target := merged[at]) is not None:
        chain.append(target)
        if target not in merged:
            raise MergeRedirectError(start, chain, "is not in the registry")
        if target == start or target in chain[:-1]:
            raise MergeRedirectError(start, chain, "leads back to itself")
        at = target
    return at


def _seen(registry: pl.DataFrame, ids: Collection[str] | pl.Series, seen_at: date) -> pl.DataFrame:
    last_seen = (
        pl.when(pl.col("cluster_id").is_in(sorted(set(ids))))
        .then(pl.max_horizontal("last_seen", pl.lit(seen_at)))
        .otherwise(pl.col("last_seen"))
    )
    return registry.with_columns(last_seen.alias("last_seen")).sort("cluster_id")
