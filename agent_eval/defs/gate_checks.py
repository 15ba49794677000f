"""Report gates as asset checks on the pages of the assets that they concern.

The op of an asset reports its gate checks. They never block. A failed check lists the agents that failed and the
reasons; an unknown gate also fails its check, with severity WARN. A check covers every agent and version, not only
those of its run: the others are read from table gate_results. A check therefore passes only after every cause is
resolved. When gate_results is computed, all checks are reported again.
"""

from collections.abc import Iterator, Mapping

import dagster as dg
import polars as pl

from agent_eval.defs.partitions import key_frame
from agent_eval.formats.spill import Rows
from agent_eval.gates import KINDS
from agent_eval.gates.finding import listed
from agent_eval.methodology.models import in_version_order
from agent_eval.project import Project
from agent_eval.project.gates import gates_of
from agent_eval.report.links import partition_page
from agent_eval.report.markdown import markdown_table
from agent_eval.tables import table

SHOWN = 50  # maximum number of rows in the metadata

_ELSEWHERE = [(*kind.check, name) for name, kind in KINDS.items() if kind.check is not None]
_CHECKS: Mapping[str, Mapping[str, str]] = {
    **{asset: {check: gate for of, check, gate in _ELSEWHERE if of == asset} for asset, _, _ in _ELSEWHERE},
    "gate_results": {gate: gate for gate in KINDS},
}
"""Asset → its gate checks by name, each with the kind of gate that it reports."""


def gate_check_specs(asset: str) -> list[dg.AssetCheckSpec]:
    """Return the specs of the gate checks of an asset; the list is empty for most assets."""
    return [
        dg.AssetCheckSpec(name, asset=asset, description=KINDS[gate].meaning)
        for name, gate in _CHECKS.get(asset, {}).items()
    ]


def gate_check_results(
    context: dg.AssetExecutionContext, project: Project, asset: str, at_hand: Mapping[str, Rows]
) -> Iterator[dg.AssetCheckResult]:
    """Report every gate check of an asset.

    Args:
        context: The context of the asset, which defines the partitions of the run.
        project: The project, whose store contains the rows of all other partitions.
        asset: The asset.
        at_hand: The rows of these partitions by table: the inputs of the gates, or table gate_results.
    """
    gate_rows = at_hand.get("gate_results")
    gates = gate_rows if isinstance(gate_rows, pl.DataFrame) else gates_of(project, at_hand)
    own = key_frame(context.assets_def.partitions_def, context.partition_keys)
    others = project.store.read(table("gate_results")).join(own, on=own.columns, how="anti")
    every = pl.concat([gates, others])
    for name, gate in _CHECKS[asset].items():
        yield gate_result(asset, name, every.filter(pl.col("gate") == gate))
    if asset == "gate_results":
        _report_again(context.instance, every)


def _report_again(instance: dg.DagsterInstance, gates: pl.DataFrame) -> None:
    """Report the gate checks of other assets again after gates were recomputed."""
    for asset in _CHECKS.keys() - {"gate_results"}:
        for name, gate in _CHECKS[asset].items():
            evaluation = gate_result(asset, name, gates.filter(pl.col("gate") == gate))
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=dg.AssetKey(asset),
                    check_name=name,
                    passed=evaluation.passed,
                    severity=evaluation.severity,
                    description=evaluation.description,
                    metadata=evaluation.metadata,
                )
            )


def gate_result(asset: str, name: str, rows: pl.DataFrame) -> dg.AssetCheckResult:
    """Return the result of a check, computed from its gates; a check without a configured gate passes."""
    red = rows.filter(pl.col("result") != "passed")
    # failed gates come first, and the latest version
    red = in_version_order(red.reverse()).reverse().sort("result", maintain_order=True)
    is_failed = "failed" in set(red["result"])
    descriptions = (
        f"{row['agent_id']} {row['methodology_version']} {row['result']}: "
        f"{row['subject']}{': ' if row['subject'] else ''}{row['evidence']}"
        for row in red.iter_rows(named=True)
    )
    columns = ["agent_id", "methodology_version", "subject", "result", "evidence", "page"]
    first = red.head(SHOWN)
    pages = [partition_page("gate_results", *key) for key in first.select(columns[:2]).iter_rows()]
    with_links = first.with_columns(pl.Series("page", pages, dtype=pl.String)).select(columns)
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=name,
        passed=red.is_empty(),
        severity=dg.AssetCheckSeverity.ERROR if is_failed else dg.AssetCheckSeverity.WARN,
        description=listed(descriptions)
        if not red.is_empty()
        else None
        if rows.height
        else "not demanded here",
        metadata={
            "n_gates": rows.height,
            "n_failed": red.filter(pl.col("result") == "failed").height,
            "n_unknown": red.filter(pl.col("result") == "unknown").height,
            "failing": dg.MetadataValue.md(markdown_table(with_links, limit=300, links={"agent_id": "page"})),
        },
    )
