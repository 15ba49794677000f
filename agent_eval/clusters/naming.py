"""Name clusters with a language model: select clusters and examples, and apply the answers to the registry.

This module does not call a model; a `Namer` has a function from cases to names (see judge/clusters/naming.py). If
the model gives no name, the reason is stored. A merge that a model proposes is stored as an event, which a person can
accept; it is applied without a person only if the setting `clusters` says so.

A model is shown the first 1, 2, 4, … texts of a cluster in the order of their runs, and the texts of other clusters up to
the run of the last of them. So a name depends only on the runs, and a later run asks nothing until the texts double.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import polars as pl

from agent_eval.clusters.cluster_registry import Space, targets
from agent_eval.clusters.consolidation import event, events_frame
from agent_eval.clusters.overrides import with_words
from agent_eval.clusters.texts import BLOCK
from agent_eval.formats.hashing import digest
from agent_eval.tables import table

N_NEAREST, N_NEAR_MISSES = 8, 4
GROWN = 2  # a cluster is renamed when its number of texts is this many times that at its last naming


@dataclass(frozen=True)
class Said:
    """Hold a failure's text and cluster."""

    cluster_id: str
    quote: str
    reason: str


@dataclass(frozen=True)
class Case:
    """Hold a cluster to name, with its most typical failures and the nearest failures of the block's other clusters."""

    cluster_id: str
    label: str
    tool: str | None
    members: tuple[Said, ...]
    near_misses: tuple[Said, ...] = ()

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Return the clusters of the near misses, nearest first."""
        return tuple(dict.fromkeys(near_miss.cluster_id for near_miss in self.near_misses))


@dataclass(frozen=True)
class Name:
    """Hold a model's answer about a cluster; `merge_into` is a neighbour with the same root cause, or None."""

    title: str
    root_cause: str
    severity: str
    merge_into: str | None = None


@dataclass(frozen=True)
class ClusterNames:
    """Hold the names by cluster, and the reasons for missing names."""

    names: Mapping[str, Name] = field(default_factory=dict[str, Name])
    lost: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Namer:
    """Hold the name of the model and a function from cases to names."""

    model: str
    ask: Callable[[Sequence[Case]], ClusterNames]


@dataclass(frozen=True)
class Named:
    """Hold the registry with names, and the proposed merges as rows of error_events."""

    registry: pl.DataFrame
    events: pl.DataFrame


def name_clusters(
    registry: pl.DataFrame, members: pl.DataFrame, space: Space, namer: Namer, *, at: date
) -> Named:
    """Name new and changed clusters.

    A cluster is named if this model has not named it yet, or if the texts that it would be shown are others (see the top
    of this module); a cluster with texts of earlier releases, if it has at least twice as many texts as at its last
    naming. If the model gives no name, the cluster keeps its name, `naming_problem` holds the reason, and the next run
    asks again. Merges by models do not count here, because they follow from the names.

    Args:
        registry: Table `error_registry`.
        members: Table `error_members`.
        space: The embedding; used only for blocks with a cluster to name.
        namer: The naming model.
        at: The date of proposed merges.
    """
    is_by_model = (pl.col("merged_by") == "model").fill_null(value=False)
    redirects = targets(registry.with_columns(merged_into=pl.when(~is_by_model).then("merged_into")))
    current = members.with_columns(pl.col("cluster_id").replace_strict(redirects, return_dtype=pl.String))
    member_texts = shown_texts(current)
    is_known = pl.col("named_by").eq_missing(pl.lit(namer.model)) & pl.col("naming_problem").is_null()
    is_changed = (
        pl.when(pl.col("now_named_from").is_null())
        .then(pl.col("n_texts") >= GROWN * pl.col("n_texts_named").fill_null(0))
        .otherwise(pl.col("now_named_from").ne_missing(pl.col("named_from")))
    )
    changed = registry.join(member_texts, on="cluster_id").filter(~is_known | is_changed)
    if changed.is_empty():
        return Named(registry, table("error_events").empty())
    cluster_names = namer.ask(list(cases_of(current, space, set(changed["cluster_id"]))))
    proposed = [
        event("merge proposed", cluster, name.merge_into, namer.model, name.root_cause, at)
        for cluster, name in sorted(cluster_names.names.items())
        if name.merge_into is not None
    ]
    return Named(_with_names(registry, cluster_names, member_texts, namer.model), events_frame(proposed))


def _n_shown(n_texts: int) -> int:
    """Return the largest power of two that is not larger."""
    return 1 << (n_texts.bit_length() - 1)


def shown_texts(members: pl.DataFrame) -> pl.DataFrame:
    """Return, for each cluster with texts, their number and `now_named_from`, which is null with texts of earlier releases.

    It is a hash of all texts of the block up to the run of the last text that a model would be shown.
    """
    ordered = members.sort(*BLOCK, "first_run", "text_hash")
    rows: list[tuple[str, int, str | None]] = []
    for _, of_block in ordered.group_by(BLOCK, maintain_order=True):
        hashes: dict[str, str] = {}
        state = ""
        for (run,), of_run in of_block.drop_nulls("first_run").group_by("first_run", maintain_order=True):
            state = digest(state, of_run.select("text_hash", "cluster_id", "first_failure").rows())
            hashes[str(run)] = state
        grouped = of_block.group_by("cluster_id", maintain_order=True).agg("first_run")
        for cluster, runs in grouped.iter_rows():
            last = runs[_n_shown(len(runs)) - 1]
            rows.append((cluster, len(runs), None if None in runs else hashes[last]))
    schema = {"cluster_id": pl.String, "n_texts": pl.Int64, "now_named_from": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("cluster_id")


def open_proposals(events: pl.DataFrame, registry: pl.DataFrame) -> pl.DataFrame:
    """Return the latest proposed merge of each cluster that is not merged, by cluster.

    Proposals that lead from a cluster back to itself, through merges or earlier rows, are left out.

    Args:
        events: Table `error_events`.
        registry: Table `error_registry`.
    """
    proposed = events.filter(pl.col("kind") == "merge proposed").sort("at", "event_id", descending=True)
    latest = proposed.unique("cluster_id", keep="first", maintain_order=True).sort("cluster_id")
    target = targets(registry)
    is_open: list[bool] = []
    for cluster, into in latest.select("cluster_id", "other_id").iter_rows():
        leads = (
            cluster in target and into in target and target[cluster] == cluster and target[into] != cluster
        )
        is_open.append(leads)
        if leads:
            target = {start: target[into] if end == cluster else end for start, end in target.items()}
    return latest.filter(pl.Series(is_open, dtype=pl.Boolean))


def merge_proposed(
    registry: pl.DataFrame, events: pl.DataFrame, separate: Collection[str], *, at: date
) -> Named:
    """Apply the open proposals, except those of the clusters that people keep separate; each merge is an event."""
    proposals = open_proposals(events, registry).filter(~pl.col("cluster_id").is_in([*separate]))
    into = dict(proposals.select("cluster_id", "other_id").iter_rows())
    is_new = pl.col("cluster_id").is_in([*into])
    merged = registry.with_columns(
        pl.when(is_new)
        .then(pl.col("cluster_id").replace_strict(into, default=None, return_dtype=pl.String))
        .otherwise("merged_into")
        .alias("merged_into"),
        pl.when(is_new).then(pl.lit("model")).otherwise("merged_by").alias("merged_by"),
    )
    merge_events = [
        event("merge", row["cluster_id"], row["other_id"], row["by"], row["reason"], at)
        for row in proposals.iter_rows(named=True)
    ]
    return Named(table("error_registry").typed(merged), events_frame(merge_events))


def cases_of(members: pl.DataFrame, space: Space, cluster_ids: set[str]) -> Iterator[Case]:
    """Yield each wanted cluster with its most typical members and the nearest members of its block's other clusters."""
    blocks = members.filter(pl.col("cluster_id").is_in(sorted(cluster_ids))).select(BLOCK).unique()
    block_members = members.join(blocks, on=BLOCK, how="semi", nulls_equal=True).sort(*BLOCK, "text_hash")
    for (label, tool), rows in block_members.group_by(BLOCK, maintain_order=True):
        vectors = space.vectors(rows.select("text_hash", "text"))
        members_of_block = [
            Said(c, q or "", r or "")
            for c, q, r in rows.select("cluster_id", "quote", pl.coalesce("cause", "reason")).iter_rows()
        ]
        ids = rows["cluster_id"].to_numpy()
        runs = rows["first_run"].fill_null("").to_numpy()
        for name in sorted(cluster_ids & set(ids)):
            own = np.flatnonzero(ids == name)
            is_dated = bool(np.all(runs[own] != ""))
            if is_dated:
                own = own[np.argsort(runs[own], kind="stable")][: _n_shown(len(own))]
            is_near = (ids != name) & (runs <= runs[own[-1]] if is_dated else True)
            is_own = np.zeros(len(ids), dtype=bool)
            is_own[own] = True
            mean = vectors[is_own].mean(axis=0, dtype=np.float64).astype(np.float32)
            order = np.argsort(np.round(1 - vectors @ mean, 6), kind="stable")
            nearest = tuple(members_of_block[i] for i in order if is_own[i])[:N_NEAREST]
            misses = tuple(members_of_block[i] for i in order if is_near[i])[:N_NEAR_MISSES]
            yield Case(name, str(label), None if tool is None else str(tool), nearest, misses)


def _with_names(
    registry: pl.DataFrame, answers: ClusterNames, texts: pl.DataFrame, model: str
) -> pl.DataFrame:
    new = table("error_registry").frame(
        {
            "cluster_id": cluster,
            "model_title": name.title,
            "model_root_cause": name.root_cause,
            "model_severity": name.severity,
            "named_by": model,
        }
        for cluster, name in sorted(answers.names.items())
    )
    columns = ("model_title", "model_root_cause", "model_severity", "named_by")
    naming_texts = new.select("cluster_id", *columns).join(
        texts.rename({"n_texts": "n_texts_named", "now_named_from": "named_from"}), on="cluster_id"
    )
    is_asked = pl.col("cluster_id").is_in(sorted({*answers.names, *answers.lost}))
    why = pl.col("cluster_id").replace_strict(dict(answers.lost), default=None, return_dtype=pl.String)
    renamed_registry = registry.update(naming_texts, on="cluster_id").with_columns(
        pl.when(is_asked).then(why).otherwise("naming_problem").alias("naming_problem")
    )
    return with_words(renamed_registry, {})
