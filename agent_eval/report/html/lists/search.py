"""Prepare the list of all conversations, which is searched by agent, first request and finding."""

from typing import Any

import polars as pl

from agent_eval.clusters.failures import FAILURE_METRICS, RULE
from agent_eval.report.html.conversation import title_of
from agent_eval.report.html.lists.errors import HasPage
from agent_eval.report.html.outcomes import GOALS, decided
from agent_eval.report.html.tables import Counter, Reader, by_key, only
from agent_eval.report.names import Paths
from agent_eval.scores.reliability.trials import GOAL_METRIC

LISTED = 10_000  # maximum number of conversations in the list, those with the most findings first
_KEY = ("agent_id", "conversation_id")


def search_page(
    version: str,
    conversations: pl.DataFrame,
    has_page: HasPage,
    names: dict[str, str],
    read: Reader,
    count: Counter,
    paths: Paths,
) -> dict[str, Any]:
    """Return the content of the list.

    Args:
        version: The version whose findings are shown.
        conversations: All conversations: agent_id, conversation_id and outcome_correct.
        has_page: A function that returns whether a conversation has a page.
        names: The display names of agents by id.
        read: A function that reads stored tables.
        count: A function that counts rows of stored tables.
        paths: The paths of the report's pages.
    """
    of_version = pl.DataFrame({"methodology_version": [version]})
    n_findings = count("failures", of_version, columns=_KEY).rename({"n": "n_findings"})
    failure_metrics = of_version.join(pl.DataFrame({"metric": FAILURE_METRICS}), how="cross")
    of_judged = failure_metrics.with_columns(status=pl.lit("scored"))
    judged = count("turn_judgments", of_judged, columns=(*_KEY, "judge")).filter(pl.col("judge") != RULE)
    conversations_with_page = (
        conversations.join(n_findings, on=_KEY, how="left")
        .join(judged.select(*_KEY, is_judged=pl.lit(value=True)).unique(), on=_KEY, how="left")
        .with_columns(n_findings=pl.coalesce("n_findings", pl.when("is_judged").then(0)))
        .sort("n_findings", *_KEY, descending=[True, False, False], nulls_last=True)
        .head(LISTED)
    )
    keys = conversations_with_page.select(_KEY)
    of_goals = keys.join(of_version, how="cross").with_columns(
        metric=pl.lit(GOAL_METRIC), status=pl.lit("scored")
    )
    listed = decided(conversations_with_page, read("conversation_judgments", of_goals, columns=GOALS))
    columns = (*_KEY, "label", "quote")
    findings = read("failures", keys.join(of_version, how="cross"), columns=columns).unique(
        maintain_order=True
    )
    first_turns = read("turns", keys.with_columns(turn_index=pl.lit(0)), columns=(*_KEY, "messages"))
    turns_by_key, findings_by_key = by_key(first_turns, *_KEY), by_key(findings, *_KEY)
    return {
        "version": version,
        "n_conversations": conversations.height,
        "conversations": [
            row
            | {
                "name": names.get(row["agent_id"], row["agent_id"]),
                "title": title_of(row, only(turns_by_key, row["agent_id"], row["conversation_id"])),
                "findings": only(findings_by_key, row["agent_id"], row["conversation_id"]),
                "href": paths.conversation(row["agent_id"], row["conversation_id"])
                if has_page(row["agent_id"], row["conversation_id"])
                else None,
            }
            for row in listed.to_dicts()
        ],
    }
