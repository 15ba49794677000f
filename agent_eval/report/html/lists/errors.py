"""Prepare the list of the error clusters of all agents under one version, which is filtered in the browser."""

from collections.abc import Callable
from typing import Any

import polars as pl

from agent_eval.clusters.worst import CLUSTER
from agent_eval.report.asset_pages.clusters import change, most_severe_first
from agent_eval.report.clusters import with_own_words
from agent_eval.report.conclusions import clusters_answer, first_days, open_failures
from agent_eval.report.html.tables import Reader, Row, by_key, only
from agent_eval.report.names import Paths

LISTED = 5_000  # maximum number of clusters in the list, the most severe first
EXAMPLES = 3  # maximum number of failures that are quoted per cluster
_FAILURE = (
    "agent_id", "cluster_id", "conversation_id", "turn_index", "message_index", "speaker", "quote", "fault_author",
)  # fmt: skip

HasPage = Callable[[str, str], bool]
"""Return whether the conversation of an agent, both given by their ids, has a page."""


def errors_page(
    version: str, names: dict[str, str], read: Reader, trends: pl.DataFrame, has_page: HasPage, paths: Paths
) -> dict[str, Any]:
    """Return the content of the list of a version's error clusters, one row per cluster and agent.

    Args:
        version: The version whose failures are clustered.
        names: The display names of agents by id.
        read: A function that reads stored tables.
        trends: Table error_trends.
        has_page: A function that returns whether a conversation has a page.
        paths: The paths of the report's pages.
    """
    of_version = pl.DataFrame({"methodology_version": [version]})
    clusters = read("error_clusters", of_version)
    own = clusters.filter(pl.col("same_as").is_null())
    first_clusters = with_own_words(read, most_severe_first(own, "n_turns").head(LISTED))
    as_shown = first_clusters.select("methodology_version", "agent_id", same_as="cluster_id")
    labelled = clusters.join(as_shown, on=as_shown.columns, how="semi")
    listed = pl.concat([first_clusters, labelled], how="diagonal")
    keys = listed.select("methodology_version", "agent_id", "cluster_id")
    failures = read("failures", keys, columns=_FAILURE)
    since = by_key(first_days(read, listed, by=CLUSTER), "agent_id", "cluster_id")
    issues = read("error_issues", keys)
    trends = trends.filter(methodology_version=version)
    rows = cluster_rows(listed, failures, trends, issues, has_page, paths)
    for row in rows:
        agent_id = row["row"]["agent_id"]
        row["since"] = only(since, agent_id, row["row"]["cluster_id"])[0]["since_day"]
        row |= {"name": names.get(agent_id, agent_id), "href": f"{paths.agent(agent_id, version)}#errors"}
    return {
        "version": version,
        "clusters": rows,
        "n_clusters": own.height,
        "none_found": clusters_answer(own[:0], open_failures(read("quality_summary", of_version))),
        "severities": listed["severity"].unique(maintain_order=True).to_list(),
        "agents": dict(sorted({row["row"]["agent_id"]: row["name"] for row in rows}.items())),
        "labels": sorted(set(listed["label"])),
    }


def cluster_rows(
    clusters: pl.DataFrame,
    failures: pl.DataFrame,
    trends: pl.DataFrame,
    issues: pl.DataFrame,
    has_page: HasPage,
    paths: Paths,
) -> list[dict[str, Any]]:
    """Return error clusters, most severe first, each with its change since the baseline and its examples.

    Each also has its row of `error_issues` if it was ever fixed, else None, and the labels of clusters that have all their
    findings in common with it, which have no row of their own.

    All frames contain rows of one version.
    """
    key = ("agent_id", "cluster_id")
    changes = {(agent, cluster): trend for agent, cluster, trend in trends.select(*key, change()).iter_rows()}
    failures_of = by_key(failures, *key)
    issue_of = by_key(issues.filter(pl.col("fixed_in").is_not_null()), *key)
    also = by_key(clusters.filter(pl.col("same_as").is_not_null()), "agent_id", "same_as")
    rows = []
    for row in most_severe_first(clusters.filter(pl.col("same_as").is_null()), "n_turns").to_dicts():
        cluster = (row["agent_id"], row["cluster_id"])
        of_cluster = only(failures_of, *cluster)
        rows.append(
            {
                "row": row,
                "also": [other["label"] for other in only(also, *cluster)],
                "since": None,
                "change": changes.get(cluster) or row["trend"],
                "issue": next(iter(only(issue_of, *cluster)), None),
                "examples": [_example(failure, has_page, paths) for failure in of_cluster[:EXAMPLES]],
                "n_more": max(0, len(of_cluster) - EXAMPLES),
            }
        )
    return rows


def _example(failure: Row, has_page: HasPage, paths: Paths) -> dict[str, Any]:
    """Return a failure with the address of its message or turn, which is None if the conversation has no page."""
    place = (failure[c] for c in ("agent_id", "conversation_id", "turn_index", "message_index"))
    has_address = has_page(failure["agent_id"], failure["conversation_id"])
    return {"row": failure, "href": paths.conversation(*place) if has_address else None}
