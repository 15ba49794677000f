"""Read what an agent's own failures say of its error clusters, which can have failures of several agents."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from agent_eval.clusters.worst import CLUSTER

_TEXTS = ("text_hash", "distance", "conversation_id", "turn_index", "quote", "reason", "cause")
_REGISTERED = ("title", "rule_title", "root_cause", "rule_root_cause", "model_root_cause", "founder")


def with_own_words(read: Callable[..., pl.DataFrame], clusters: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with title and cause from the agent's own failures, if other agents have the cluster too.

    The registry holds one title and cause for all agents. Those by rule are of one failure, and the cause by a model is
    of some: the agent's most typical failure takes their place. A title by a model, and words by a person, stay.

    Args:
        read: A function that reads the rows of a stored table that match keys: name, keys, columns.
        clusters: Rows of table error_clusters, which may lack failures (of clusters that are gone).

    Returns:
        The rows in the same order, with two more columns: `should_have`, what the judge said most often of the agent's
        failures, and `words_of`, the agents of the title if it is not of this agent's failures alone, else null.
    """
    cluster_ids = clusters.select("cluster_id").unique()
    agents = read("error_clusters", cluster_ids, columns=["cluster_id", "agent_id"])
    agents_of = agents.group_by("cluster_id").agg(agents=pl.col("agent_id").unique().sort())
    known = read("error_registry", cluster_ids, columns=["cluster_id", *_REGISTERED])
    shared = clusters.select(CLUSTER).join(
        agents_of.filter(pl.col("agents").list.len() > 1), on="cluster_id", how="semi"
    )
    failures = read("failures", shared, columns=[*CLUSTER, *_TEXTS])
    rows = (
        clusters.select(*CLUSTER, "label", "tool")
        .with_row_index("place")
        .join(agents_of, on="cluster_id", how="left")
        .join(known, on="cluster_id", how="left")
        .join(_typical(failures, known), on=CLUSTER, how="left")
        .join(
            _remedies(read("failures", clusters.select(CLUSTER), columns=[*CLUSTER, "should_have"])),
            on=CLUSTER,
            how="left",
        )
        .sort("place")
    )
    words = pl.DataFrame(
        [_words(row) for row in rows.iter_rows(named=True)],
        schema={"title": pl.String, "root_cause": pl.String, "words_of": pl.List(pl.String)},
        orient="row",
    )
    return clusters.with_columns(
        pl.coalesce(words["title"], "title").alias("title"),
        pl.coalesce(words["root_cause"], "root_cause").alias("root_cause"),
        words["words_of"],
        rows["should_have"],
    )


def _words(row: Mapping[str, Any]) -> tuple[str | None, str | None, list[str] | None]:
    """Return the title and cause that take the place of the stored ones, and the agents of a title of others too."""
    others = [agent for agent in row["agents"] or () if agent != row["agent_id"]]
    if not others:
        return None, None, None
    if not row["n_failures"]:
        return None, None, others
    from agent_eval.clusters.cluster_registry import rule_title  # imported on use: it loads numpy

    cause, reason = row["cause"] or "", row["reason"] or ""
    title = rule_title(row["label"], row["tool"], row["quote"] or reason, cause, reason)
    is_by_rule = row["title"] == row["rule_title"]
    is_by_person = row["root_cause"] not in (row["rule_root_cause"], row["model_root_cause"])
    return (
        title if is_by_rule else None,
        None if is_by_person else cause or reason or None,
        None if is_by_rule else row["agents"],
    )


def _typical(failures: pl.DataFrame, registry: pl.DataFrame) -> pl.DataFrame:
    """Return the most typical failure of each agent in a cluster, with the text that the cluster was created for first."""
    founder = registry.select("cluster_id", "founder")
    ordered = failures.join(founder, on="cluster_id", how="left").sort(
        pl.col("text_hash").ne_missing("founder"), "distance", "conversation_id", "turn_index"
    )
    return ordered.group_by(CLUSTER, maintain_order=True).agg(
        pl.first("quote", "reason", "cause"), n_failures=pl.len()
    )


def _remedies(failures: pl.DataFrame) -> pl.DataFrame:
    said = failures.drop_nulls("should_have").group_by(*CLUSTER, "should_have").len()
    ordered = said.sort("len", "should_have", descending=[True, False])
    return ordered.unique(CLUSTER, keep="first", maintain_order=True).drop("len")
