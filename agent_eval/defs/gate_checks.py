"""Gates as checks: each is on the page of the asset that it concerns, and reported by that asset's own op.

They never block. A failed check says which agents failed and why; an unknown gate fails its check too, as a warning.
A check speaks of every agent and version, not only of those of its run: of the others it says what table gate_results
holds. So it turns green only when the last cause is gone. When gate_results is made, all checks are reported again.
"""

from collections.abc import Iterator, Mapping

import dagster as dg
import polars as pl

from agent_eval.defs.partitions import key_frame
from agent_eval.gates import KINDS
from agent_eval.gates.finding import listed
from agent_eval.project import Project
from agent_eval.project.gates import gates_of
from agent_eval.report.links import partition_page
from agent_eval.report.markdown import markdown_table
from agent_eval.tables import table

SHOWN = 50  # rows in the metadata

_MEANING = {
    "coverage": "Of what a model was asked about each agent, at most `max_unscored_share` is unscored; of its planned "
    "trials, at most that share is lost.",
    "required_tests": "Every required test was held and judged.",
    "disclosures": "Every required disclosure was made.",
    "status": "The agent's scores may be published.",
    "threshold": "In every scenario the mean of each metric reaches [gates.thresholds].",
    "overall": "Over the agent as a whole the mean of each metric reaches [gates.overall].",
    "score": "Each score reaches its threshold.",
    "errors": "No error cluster is as grave as `fail_on_error_severity`.",
    "silent_turns": "The share of turns in which the agent owed a reply and gave none is at most `silent_turns`, and "
    "every conversation has a reply.",
    "assertions": "What `expected` demands of the conversations was done.",
    "regression": "Shown to be less than the margin worse than the [gates.baseline]; without a margin, nowhere significantly worse.",
    "judge_drift": "The intervals of the latest audit's figures keep their limits.",
}


_CHECKS: Mapping[str, Mapping[str, str]] = {
    "turn_judgments": {"judge_coverage": "coverage", "silent_turns": "silent_turns"},
    "error_clusters": {"errors": "errors"},
    "assertion_results": {"assertions": "assertions"},
    "composite_scores": {gate: gate for gate in ("required_tests", "disclosures", "status")},
    "gate_results": {gate: gate for gate in KINDS},
}
"""Asset → its gate checks, each with the kind of gate that it reports."""


def gate_check_specs(asset: str) -> list[dg.AssetCheckSpec]:
    """Return the gate checks of an asset; most assets have none."""
    return [
        dg.AssetCheckSpec(name, asset=asset, description=_MEANING[gate])
        for name, gate in _CHECKS.get(asset, {}).items()
    ]


def gate_check_results(
    context: dg.AssetExecutionContext, project: Project, asset: str, at_hand: Mapping[str, pl.DataFrame]
) -> Iterator[dg.AssetCheckResult]:
    """Report every gate check of an asset.

    Args:
        context: The context of the asset, for its partitions.
        project: The project, for what is stored of all other partitions.
        asset: The asset.
        at_hand: The rows of these partitions by table: what the gates are decided by, or they themselves.
    """
    gates = at_hand["gate_results"] if "gate_results" in at_hand else gates_of(project, at_hand)
    own = key_frame(context.assets_def.partitions_def, context.partition_keys)
    others = project.store.read(table("gate_results")).join(own, on=own.columns, how="anti")
    every = pl.concat([gates, others])
    for name, gate in _CHECKS[asset].items():
        yield gate_result(asset, name, every.filter(pl.col("gate") == gate))
    if asset == "gate_results":
        _report_again(context.instance, every)


def _report_again(instance: dg.DagsterInstance, gates: pl.DataFrame) -> None:
    """Report the gate checks of the other assets, which saw the gates of some partitions before they were made anew."""
    for asset in _CHECKS.keys() - {"gate_results"}:
        for name, gate in _CHECKS[asset].items():
            found = gate_result(asset, name, gates.filter(pl.col("gate") == gate))
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=dg.AssetKey(asset),
                    check_name=name,
                    passed=found.passed,
                    severity=found.severity,
                    description=found.description,
                    metadata=found.metadata,
                )
            )


def gate_result(asset: str, name: str, rows: pl.DataFrame) -> dg.AssetCheckResult:
    """The outcome of a check from the gates that it stands for; where none is demanded there is nothing to fail."""
    red = rows.filter(pl.col("result") != "passed").sort("result")  # failed before unknown
    is_failed = "failed" in set(red["result"])
    told = (
        f"{row['agent_id']} {row['methodology_version']} {row['result']}: "
        f"{row['subject']}{': ' if row['subject'] else ''}{row['evidence']}"
        for row in red.iter_rows(named=True)
    )
    columns = ["agent_id", "methodology_version", "subject", "result", "evidence", "page"]
    first = red.head(SHOWN)
    pages = [partition_page("gate_results", *key) for key in first.select(columns[:2]).iter_rows()]
    shown = first.with_columns(pl.Series("page", pages, dtype=pl.String)).select(columns)
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=name,
        passed=red.is_empty(),
        severity=dg.AssetCheckSeverity.ERROR if is_failed else dg.AssetCheckSeverity.WARN,
        description=listed(told) if not red.is_empty() else None if rows.height else "not demanded here",
        metadata={
            "n_gates": rows.height,
            "n_failed": red.filter(pl.col("result") == "failed").height,
            "n_unknown": red.filter(pl.col("result") == "unknown").height,
            "failing": dg.MetadataValue.md(markdown_table(shown, limit=300, links={"agent_id": "page"})),
        },
    )
