"""Assign failures to clusters with permanent ids.

A block is a failure label with or without a tool. Within a block, a text that was seen before keeps its cluster,
and a new text joins the nearest cluster within the radius. The remaining texts are grouped, and each group gets
a new cluster. An id is a hash of the block and the text that the cluster was created for, and is never reused.
The same registry and the same new failures give the same rows, independent of the row order.

Failures that name their run are grouped run by run, in the order of the runs and not in that in which they were
registered: if a run is registered after a later one, the texts of the later one are grouped again. So the clusters
depend only on the runs. An id without texts redirects to the cluster of the text that it was created for.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

import numpy as np
import numpy.typing as npt
import polars as pl

from agent_eval.clusters.embedding import Vectors
from agent_eval.clusters.grouping import Labels, average_linkage_labels, means_of, medoid, nearest_centroid
from agent_eval.clusters.placement import CERTAIN, Placement, fitted
from agent_eval.clusters.severity import severity_of
from agent_eval.clusters.texts import BLOCK, with_text
from agent_eval.errors import ConfigurationError
from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import shortened
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.tables import table

LONGEST_TITLE = 140  # characters
SHORTEST_EXAMPLE = 24  # characters of a quote after the cause
_SENTENCE = re.compile(r"(?<=[^\W\d_]{2}[.!?])\s+(?=[^\W\d_a-z])")
CAUSE_SHARE = 0.89  # share of the radius within which causes, which are short and general, share a cluster
Block = tuple[str, str | None]
Vectors64 = npt.NDArray[np.float64]

REGROUPING = "regrouping"
"""What merged a cluster whose texts went to other clusters when an earlier run was registered."""
_MOVABLE = ("minted", "prototype", "learned")
"""Methods of assignment that are repeated if an earlier run is registered; people and consolidation decide for good."""
_TEXT = (*BLOCK, "text_hash")
_KEPT = ("text_hash", "text", "cause", "quote", "reason", "first_run", "first_failure")

_REGISTRY, _MEMBERS, _EVENTS = (table(f"error_{name}") for name in ("registry", "members", "events"))


def _invalid_redirect(cluster_id: str, chain: Sequence[str], problem: str) -> ConfigurationError:
    return ConfigurationError(
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
    """Hold the updated error_registry and error_members, the failures with their clusters, and the new rows of error_events."""

    registry: pl.DataFrame
    members: pl.DataFrame
    failures: pl.DataFrame
    events: pl.DataFrame = field(default_factory=_EVENTS.empty)


def cluster_id(label: str, tool: str | None) -> str:
    """Return the permanent id for a block's failures without text, which is 'E-' and ten hex digits."""
    return f"E-{digest(label, tool)[:10]}"


def register(
    registry: pl.DataFrame, members: pl.DataFrame, failures: pl.DataFrame, space: Space, *, seen_at: date
) -> Grown:
    """Assign each failure to its cluster, and create clusters for failures that are not near any cluster.

    Existing rows keep all their values except last_seen, which never changes to an earlier date. A merged
    cluster redirects to the cluster that it was merged into. If a text occurs in an earlier run than known texts of its
    block, these are assigned again, run by run, unless people moved texts of the block or consolidation split them off.

    Args:
        registry: Table `error_registry`; initially empty.
        members: Table `error_members`; initially empty.
        failures: As returned by `failures.failures`, with or without `run_key` (`failures.with_run_key`). Failures
            without it are grouped after all others, and what arrives later moves none of them.
        space: The embedding and radius; used only for blocks with new texts.
        seen_at: The UTC date on which these failures were seen.

    Raises:
        ConfigurationError: If merged ids form a cycle or lead to an id that is not in the registry.
    """
    with_texts = with_text(_with_run(failures), members)
    arrived = _arrived(with_texts, members)
    loose = _loose(arrived, members)
    builder = ClusterRegistryBuilder(
        registry,
        _described(members.join(loose, on=_TEXT, how="anti", nulls_equal=True), arrived),
        seen_at,
        loose,
    )
    for block, _ in _blocks(with_texts.filter(pl.col("text") == "")):
        builder.mint_block(block)
    unplaced = pl.concat(
        [
            arrived.join(builder.members, on=_TEXT, how="anti", nulls_equal=True),
            loose.join(arrived, on=_TEXT, how="anti", nulls_equal=True),
        ],
        how="diagonal",
    )
    compared = _compared(unplaced, members, space)
    for block, new in _blocks(unplaced):
        _grow(builder, block, new, compared)
        builder.compact()
    del compared  # the vectors of all new texts
    grown, all_members = builder.tables()
    regrouped = _redirected(grown, all_members, loose) if not loose.is_empty() else grown
    assigned = _assigned(with_texts, all_members, targets(regrouped))
    events = events_frame([*_moves(loose, all_members, seen_at)])
    return Grown(_seen(regrouped, assigned["cluster_id"], seen_at), all_members, assigned, events)


def new_texts(failures: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return the failures that `register` needs to extend the registry.

    These are the first failure (by run and id) for each text that is new in its block or that occurs earlier than known,
    and one failure without text per block. The failures of several agents can be reduced separately.
    """
    with_texts = with_text(_with_run(failures), members)
    is_blank = pl.col("text") == ""
    failures_with_new_text = pl.concat(
        [with_texts.filter(is_blank).unique(BLOCK), _arrived(with_texts, members)], how="diagonal"
    )
    return failures.join(failures_with_new_text, on="failure_id", how="semi")


def targets(registry: pl.DataFrame) -> dict[str, str]:
    """Return the final cluster that each id redirects to.

    Raises:
        ConfigurationError: If merged ids form a cycle or lead to an id that is not in the registry.
    """
    merged: dict[str, str | None] = dict(registry.select("cluster_id", "merged_into").iter_rows())
    return {start: _follow(start, merged) for start in sorted(merged)}


class ClusterRegistryBuilder:
    """Add clusters with new ids, and members, to a registry."""

    def __init__(
        self, registry: pl.DataFrame, members: pl.DataFrame, seen_at: date, loose: pl.DataFrame | None = None
    ) -> None:
        """Take the tables; texts of members in `loose` are assigned again, and their clusters can be created again."""
        self.registry, self.members = _REGISTRY.conform(registry), _MEMBERS.conform(members)
        self.seen_at = seen_at
        self.redirects = targets(self.registry)
        self.seed_texts: dict[str, str | None] = dict(registry.select("cluster_id", "founder").iter_rows())
        left = registry.filter(pl.col("merged_by") == REGROUPING)["cluster_id"].to_list()
        if loose is not None:
            seeds = loose.select(*BLOCK, founder="text_hash")
            left += registry.join(seeds, on=seeds.columns, how="semi", nulls_equal=True)[
                "cluster_id"
            ].to_list()
        self._with_members = {
            *members["cluster_id"],
            *registry.filter(pl.col("merged_into").is_not_null())["cluster_id"],
        } - {*left}
        self._described: dict[str, tuple[str, object]] = {}
        self.new_clusters: list[dict[str, object]] = []
        self._new_members: list[dict[str, object]] = []
        self._member_frames: list[pl.DataFrame] = []

    def has_members(self, cluster: str) -> bool:
        """Return whether a cluster has texts or was merged into another cluster."""
        return cluster in self._with_members

    def mint(
        self, block: Block, seed_text: Mapping[str, object], *, title: str | None = None, cause: object = None
    ) -> str:
        """Create a cluster for a row of `members` (at least text_hash, quote and reason) and return its id.

        `cause` names it if the row has no cause.
        """
        minted = self._unused(block, str(seed_text["text_hash"]))
        own_cause = seed_text["cause"] or cause
        quote = str(seed_text["quote"] or seed_text["reason"] or "")
        heading = title or rule_title(*block, quote, str(own_cause or ""), str(seed_text["reason"] or ""))
        cause = own_cause or seed_text["reason"]
        self._add(minted, block, heading, seed_text["text_hash"], cause)
        self._described[minted] = heading, cause
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
        self._new_members.append(
            {
                **row,
                "label": label,
                "tool": tool,
                "cluster_id": cluster,
                "distance": distance,
                "method": method,
            }
        )

    def compact(self) -> None:
        """Hold the members added so far as a frame, which takes a fraction of the memory."""
        self._member_frames.append(_MEMBERS.frame(self._new_members))
        self._new_members = []

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return error_registry and error_members with the additions, sorted by key."""
        self.compact()
        registry = pl.concat([_renamed(self.registry, self._described), _REGISTRY.frame(self.new_clusters)])
        members = pl.concat([self.members, *self._member_frames])
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


def rule_title(label: str, tool: str | None, quote: str, cause: str = "", reason: str = "") -> str:
    """Return the title 'label · tool: cause, e.g. example' on one line and truncated, without what is unknown.

    A cause that is only the description of the label is left out, because it does not distinguish clusters. Without a
    cause, the first sentence of the judge's reason says what went wrong, else the quote. The example is the quote, in
    quotation marks; it is left out if the title would be too long. A quote that begins with the cause takes its place.
    """
    name = label if tool is None else f"{label} · {tool}"
    cause, quote, reason = (" ".join(text.split()) for text in (cause, quote, reason))
    room = max(LONGEST_TITLE - len(name), 20)
    is_general = cause == DEFAULT.descriptions.get(label)
    what = cause if cause and not is_general else _SENTENCE.split(reason, maxsplit=1)[0]
    if not what or what == quote != cause:
        what = "" if quote else cause
    if not what:
        return f"{name}: “{shortened(quote, room)}”" if quote else name
    if quote.startswith(what):
        what = quote
    begun = f"{shortened(what, room).removesuffix('.')}, e.g. "
    left = room - len(begun)
    is_example = not what.startswith(quote) and left >= SHORTEST_EXAMPLE
    return f"{name}: {begun}“{shortened(quote, left)}”" if is_example else f"{name}: {shortened(what, room)}"


def _blocks(with_texts: pl.DataFrame) -> Iterator[tuple[Block, pl.DataFrame]]:
    for key, rows in with_texts.sort(*BLOCK, "text_hash").group_by(BLOCK, maintain_order=True):
        yield (str(key[0]), None if key[1] is None else str(key[1])), rows


def _with_run(failures: pl.DataFrame) -> pl.DataFrame:
    has_run_key = "run_key" in failures.columns
    return failures if has_run_key else failures.with_columns(run_key=pl.lit(None, dtype=pl.String))


def _arrived(with_texts: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return each text that is new in its block or occurs earlier than known, with its first failure by run and id."""
    firsts = [
        pl.col(name) if name in members.columns else pl.lit(None, dtype=pl.String).alias(name)
        for name in ("first_run", "first_failure")
    ]
    stored_texts = members.select(
        *_TEXT, *(first.name.prefix("known_") for first in firsts), is_known=pl.lit(value=True)
    )
    run, failure = pl.col("run_key"), pl.col("failure_id")
    is_earlier = (run < pl.col("known_first_run")) | (
        (run == pl.col("known_first_run")) & (failure < pl.col("known_first_failure"))
    )
    return (
        with_texts.filter(pl.col("text") != "")
        .sort("run_key", "failure_id")
        .unique(_TEXT, keep="first", maintain_order=True)
        .join(stored_texts, on=_TEXT, how="left", nulls_equal=True, maintain_order="left")
        .filter(pl.col("is_known").is_null() | is_earlier.fill_null(value=False))
        .with_columns(first_run=run, first_failure=pl.when(run.is_not_null()).then(failure))
        .select("failure_id", *BLOCK, *_KEPT)
    )


def _loose(arrived: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `members` that are assigned again, because texts of their block arrived in no later run.

    Where people moved texts, the others stay: they saw them and left them there.
    """
    by_people = members.filter(pl.col("method") == "human").select(BLOCK).unique()
    movable = members.filter(pl.col("method").is_in(_MOVABLE), pl.col("first_run").is_not_null()).join(
        by_people, on=list(BLOCK), how="anti", nulls_equal=True
    )
    fixed = members.join(movable, on=_TEXT, how="anti", nulls_equal=True)
    since = (
        arrived.drop_nulls("first_run")
        .join(fixed, on=_TEXT, how="anti", nulls_equal=True)
        .group_by(BLOCK)
        .agg(since=pl.col("first_run").min())
    )
    late = movable.join(since, on=list(BLOCK), nulls_equal=True)
    return late.filter(pl.col("first_run") >= pl.col("since")).drop("since")


def _described(members: pl.DataFrame, arrived: pl.DataFrame) -> pl.DataFrame:
    """Return members with the quote and reason of the first failure, for known texts that occur earlier than known."""
    earlier = arrived.select(*BLOCK, *_KEPT)
    columns = [name for name in _KEPT if name not in _TEXT]
    member_quotes = members.join(
        earlier, on=_TEXT, how="left", nulls_equal=True, suffix="_now", maintain_order="left"
    )
    is_now = pl.col("first_failure_now").is_not_null()
    return member_quotes.select(
        pl.when(is_now).then(f"{name}_now").otherwise(name).alias(name) if name in columns else name
        for name in members.columns
    )


def _redirected(registry: pl.DataFrame, members: pl.DataFrame, loose: pl.DataFrame) -> pl.DataFrame:
    """Return the registry where each cluster that lost all its texts redirects to that of its seed text.

    If consolidation had moved that text away, it redirects to the cluster that most of the others went to.
    """
    with_texts = {*members["cluster_id"]}
    into = dict(registry.select("cluster_id", "merged_into").iter_rows())
    by = dict(registry.select("cluster_id", "merged_by").iter_rows())
    for name in with_texts:
        if by[name] == REGROUPING:
            into[name] = by[name] = None
    seeds = dict(registry.select("cluster_id", "founder").iter_rows())
    left = loose.join(members.select(*_TEXT, now="cluster_id"), on=_TEXT, nulls_equal=True)
    went: dict[str, Counter[str]] = {}
    for name, text, now in left.select("cluster_id", "text_hash", "now").sort("now").iter_rows():
        if name not in with_texts:
            went.setdefault(name, Counter())[now] += left.height if text == seeds[name] else 1
    for name, homes in went.items():
        into[name], by[name] = homes.most_common(1)[0][0], REGROUPING
    for name in [name for name, why in by.items() if why == REGROUPING]:
        at = into[name]
        while at is not None and into[at] != name:
            at = into[at]
        if (
            at is not None
        ):  # a merge into a cluster whose texts went the other way: there is nothing left to merge
            into[at] = by[at] = None
    names = registry["cluster_id"]
    return _REGISTRY.typed(
        registry.with_columns(
            pl.Series("merged_into", [into[name] for name in names], dtype=pl.String),
            pl.Series("merged_by", [by[name] for name in names], dtype=pl.String),
        )
    )


def _renamed(registry: pl.DataFrame, described: Mapping[str, tuple[str, object]]) -> pl.DataFrame:
    """Return the registry with the title and cause by rule of clusters that were created again."""
    words = {
        f"{prefix}{name}": {cluster: pair[i] for cluster, pair in described.items()}
        for prefix in ("", "rule_")
        for i, name in enumerate(("title", "root_cause"))
    }
    is_by_rule = {name: pl.col(name).eq_missing(pl.col(f"rule_{name}")) for name in ("title", "root_cause")}
    return registry.with_columns(
        pl.when(pl.col("cluster_id").is_in([*described]) & is_by_rule.get(name, pl.lit(value=True)))
        .then(pl.col("cluster_id").replace_strict(texts, default=None, return_dtype=pl.String))
        .otherwise(name)
        .alias(name)
        for name, texts in words.items()
    )


def _moves(loose: pl.DataFrame, members: pl.DataFrame, at: date) -> Iterator[dict[str, object]]:
    """Yield an event for each pair of clusters between which texts went because an earlier run was registered."""
    both = loose.join(members.select(*_TEXT, now="cluster_id"), on=_TEXT, nulls_equal=True)
    counts = Counter((old, new) for old, new in both.select("cluster_id", "now").iter_rows() if old != new)
    for (old, new), n in sorted(counts.items()):
        yield event("moved", old, new, REGROUPING, f"{n} texts, because an earlier run was added", at)


def event(kind: str, cluster: str, other: str, by: str, reason: str, at: date) -> dict[str, object]:
    """Return a row of error_events."""
    row = {"kind": kind, "cluster_id": cluster, "other_id": other, "by": by, "reason": reason}
    return {"event_id": digest(*row.values())[:16], **row, "at": at}


def events_frame(rows: Iterable[Mapping[str, object]]) -> pl.DataFrame:
    """Return table error_events from these rows, without duplicates."""
    return _EVENTS.conform(_EVENTS.frame(rows).unique("event_id", keep="first", maintain_order=True)).sort(
        "event_id"
    )


def _compared(unseen: pl.DataFrame, members: pl.DataFrame, space: Space) -> Space:
    """Return a space that holds the vectors of all texts to compare, computed in a single call."""
    texts = ("text_hash", "text")
    members_here = members.join(unseen.select(BLOCK).unique(), on=BLOCK, how="semi", nulls_equal=True)
    block_texts = (
        pl.concat([unseen.select(texts), members_here.select(texts)]).unique("text_hash").sort("text_hash")
    )
    if block_texts.is_empty():
        return space
    hashes, vectors = block_texts["text_hash"], space.vectors(block_texts)
    return replace(space, vectors=lambda some: vectors[hashes.search_sorted(some["text_hash"]).to_numpy()])


def _grow(builder: ClusterRegistryBuilder, block: Block, new: pl.DataFrame, space: Space) -> None:
    """Assign a block's texts to its clusters, run by run, and create clusters for the remaining texts of each run."""
    mine = _members_of(builder, block)
    means = _Means.of(mine, space)
    model = model_of(mine, space)
    for _, batch in new.sort("first_run", "text_hash", nulls_last=True).group_by(
        "first_run", maintain_order=True
    ):
        _grow_by(builder, block, batch, means, model, space)


def _grow_by(
    builder: ClusterRegistryBuilder,
    block: Block,
    new: pl.DataFrame,
    means: "_Means",
    model: Placement | None,
    space: Space,
) -> None:
    """Assign the texts of one run (sorted by hash), and add them to the means."""
    vectors = space.vectors(new.select("text_hash", "text"))
    mean_names = means.names
    at, distance = nearest_centroid(vectors, means.vectors())
    rows = new.select(_KEPT).to_dicts()
    radius = space.radius_of(new)
    homes: list[str | None] = [None] * len(rows)
    if model is not None:
        placed, chances = model.place(vectors)
        for i in np.flatnonzero(chances >= CERTAIN):
            apart = 1 - float(vectors[i] @ means.vectors()[mean_names.index(placed[i])])
            builder.join(block, rows[i], placed[i], round(max(apart, 0.0), 6), "learned")
            homes[i] = placed[i]
    for i in np.flatnonzero(distance <= radius):
        if homes[i] is None:
            builder.join(block, rows[i], mean_names[at[i]], round(float(distance[i]), 6), "prototype")
            homes[i] = mean_names[at[i]]
    rest = np.array([i for i, home in enumerate(homes) if home is None], dtype=np.intp)
    if len(rest):
        labels = average_linkage_labels(vectors[rest], radius)
        minted = _mint(builder, block, [rows[i] for i in rest], vectors[rest], labels)
        for i, home in zip(rest, minted, strict=True):
            homes[i] = home
    means.add(vectors, homes)


class _Means:
    """Hold the mean vector of the texts of each cluster of a block, and add texts to them."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Vectors64, int]] = {}
        self._vectors: Vectors | None = None

    @classmethod
    def of(cls, members: pl.DataFrame, space: Space) -> "_Means":
        """Return the means of clusters with the texts of `members`."""
        means = cls()
        if not members.is_empty():
            means.add(space.vectors(members.select("text_hash", "text")), members["cluster_id"].to_list())
        return means

    @property
    def names(self) -> list[str]:
        """Return the clusters in the order of `vectors`."""
        return sorted(self._sums)

    def vectors(self) -> Vectors:
        """Return one row per cluster."""
        if self._vectors is None:
            rows = [total / n for _, (total, n) in sorted(self._sums.items())]
            self._vectors = np.array(rows, dtype=np.float32).reshape(len(rows), -1 if rows else 0)
        return self._vectors

    def add(self, vectors: Vectors, clusters: Sequence[str | None]) -> None:
        """Add the vectors of texts to the means of their clusters."""
        names, labels = np.unique(np.array(clusters, dtype=str), return_inverse=True)
        sums = np.zeros((len(names), vectors.shape[1]), dtype=np.float64)
        np.add.at(sums, labels, vectors)
        counts = np.bincount(labels)
        for i, name in enumerate(names.tolist()):
            total, n = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + sums[i], n + int(counts[i])
        self._vectors = None


def _members_of(builder: ClusterRegistryBuilder, block: Block) -> pl.DataFrame:
    """Return the block's rows of `members`, with their clusters before merges: a merge may come late or be undone."""
    label, tool = block
    return builder.members.filter((pl.col("label") == label) & pl.col("tool").eq_missing(tool))


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
) -> list[str]:
    """Create a cluster per group, and return the cluster of each row."""
    means = means_of(vectors, labels)
    order = np.argsort(labels, kind="stable")
    clusters = [""] * len(rows)
    for group in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        apart = 1 - vectors[group] @ means[labels[group[0]]]
        nearest = group[np.argsort(np.round(apart, 6), kind="stable")]
        cause = next((rows[i]["cause"] for i in nearest if rows[i]["cause"]), None)
        minted = builder.mint(block, rows[group[medoid(vectors[group])]], cause=cause)
        for i, distance in zip(group, apart, strict=True):
            builder.join(block, rows[i], minted, round(max(float(distance), 0.0), 6), "minted")
            clusters[i] = minted
    return clusters


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
    sorted_rows = (
        rows.with_columns(finding_id=pl.col("failure_id"))
        .select(list(table("failures").schema))
        .sort("methodology_version", "agent_id", "conversation_id", "turn_index", "label", "failure_id")
    )
    return table("failures").conform(sorted_rows)


def _follow(start: str, merged: Mapping[str, str | None]) -> str:
    at, chain = start, list[str]()
    while (target := merged[at]) is not None:
        chain.append(target)
        if target not in merged:
            raise _invalid_redirect(start, chain, "is not in the registry")
        if target == start or target in chain[:-1]:
            raise _invalid_redirect(start, chain, "leads back to itself")
        at = target
    return at


def _seen(registry: pl.DataFrame, ids: Collection[str] | pl.Series, seen_at: date) -> pl.DataFrame:
    last_seen = (
        pl.when(pl.col("cluster_id").is_in(sorted(set(ids))))
        .then(pl.max_horizontal("last_seen", pl.lit(seen_at)))
        .otherwise(pl.col("last_seen"))
    )
    return registry.with_columns(last_seen.alias("last_seen")).sort("cluster_id")
