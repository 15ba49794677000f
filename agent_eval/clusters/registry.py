"""The registry: cluster ids that last.

In this form a block, a failure label with its tool or none, is one cluster, and its id is a hash of the
block: minted in any order, on any machine, it is the same. What a person wrote into a row stays.
"""

from collections.abc import Mapping

import polars as pl

from agent_eval.errors import AgentEvalError
from agent_eval.tables import table
from agent_eval.transcripts.hashing import digest

SEVERITY_BY_LABEL: Mapping[str, str] = {
    "repetition": "medium",
    "failure to ask for clarification": "medium",
    # right but incomplete: more than wording, as the user has to ask again; less than a contradiction
    "lack of specific information": "medium",
    "disobey user request": "high",
    "false information": "high",
    "unsafe action": "critical",
    "unsafe state": "critical",
    "unnecessary tool call": "medium",
    "repeated tool call": "medium",
    "wrong tool": "high",
    "wrong arguments": "high",
    "ignored tool result": "high",
    # the agent guessed what a tool would have told: nothing holds the answer up
    "missing tool call": "high",
}
DEFAULT_SEVERITY = "medium"  # of a label that we do not know


class MergeRedirectError(AgentEvalError):
    """A merged cluster leads nowhere."""

    def __init__(self, cluster_id: str, chain: list[str], problem: str) -> None:
        super().__init__(
            f"error_registry: {cluster_id} is merged into {' → '.join(chain)}, which {problem}. "
            "Set merged_into to the id of a cluster that is not merged itself, or to null."
        )


def cluster_id(label: str, tool: str | None) -> str:
    """The lasting id of a block: 'E-' and ten hex digits."""
    return f"E-{digest(label, tool)[:10]}"


def register(
    registry: pl.DataFrame, failures: pl.DataFrame, *, seen_at: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Assign each failure to its cluster; mint clusters for blocks never seen.

    An existing row keeps its label, tool, severity, title, root cause and first_seen; only last_seen moves,
    and never back. A merged cluster redirects to the one it was merged into. The same registry and
    failures give the same result in any row order.

    Args:
        registry: Table `error_registry`; empty at first.
        failures: As `failures.failures` gives them.
        seen_at: When these failures were seen, ISO 8601 in the form used so far.

    Returns:
        The registry, sorted by id, and the failures as table `failures`: distance 0, method 'block'.

    Raises:
        MergeRedirectError: If merged ids form a circle or lead to an id that is not in the registry.
    """
    blocks = failures.select("label", "tool").unique()
    ids = [cluster_id(label, tool) for label, tool in blocks.iter_rows()]
    blocks = blocks.with_columns(pl.Series("minted_id", ids, dtype=pl.String))
    grown = pl.concat([table("error_registry").conform(registry), _minted(blocks, registry, seen_at)])
    targets = _targets(grown)
    blocks = blocks.with_columns(
        pl.Series("cluster_id", [targets[minted] for minted in ids], dtype=pl.String),
    )
    assigned = failures.join(blocks, on=["label", "tool"], nulls_equal=True).with_columns(
        pl.lit(0.0).alias("distance"), pl.lit("block").alias("method")
    )
    rows = assigned.select(list(table("failures").schema)).sort(
        "methodology_version", "agent_id", "conversation_id", "turn_index", "label", "failure_id"
    )
    return _seen(grown, blocks["cluster_id"], seen_at), table("failures").conform(rows)


def _minted(blocks: pl.DataFrame, registry: pl.DataFrame, seen_at: str) -> pl.DataFrame:
    known = set(registry["cluster_id"])
    new = [row for row in blocks.iter_rows() if row[2] not in known]
    return table("error_registry").frame(
        {
            "cluster_id": minted_id,
            "label": label,
            "tool": tool,
            "severity": SEVERITY_BY_LABEL.get(label, DEFAULT_SEVERITY),
            "title": label if tool is None else f"{label} · {tool}",
            "first_seen": seen_at,
            "last_seen": seen_at,
        }
        for label, tool, minted_id in new
    )


def _targets(registry: pl.DataFrame) -> dict[str, str]:
    """Where each id leads after all redirects."""
    merged: dict[str, str | None] = dict(registry.select("cluster_id", "merged_into").iter_rows())
    return {start: _follow(start, merged) for start in sorted(merged)}


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


def _seen(registry: pl.DataFrame, ids: pl.Series, seen_at: str) -> pl.DataFrame:
    last_seen = (
        pl.when(pl.col("cluster_id").is_in(ids.unique().to_list()))
        .then(pl.max_horizontal("last_seen", pl.lit(seen_at)))
        .otherwise(pl.col("last_seen"))
    )
    return registry.with_columns(last_seen.alias("last_seen")).sort("cluster_id")
