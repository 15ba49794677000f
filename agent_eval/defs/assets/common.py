"""Provide code that the assets share: decorator arguments, and the checking, display and storage of rows.

A table asset is a function with the decorator `@dg.asset(**table_asset("universal_scores"), ...)`, whose body ends
with `yield from check_and_store(context, {"universal_scores": rows}, ...)`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypedDict

import dagster as dg
import polars as pl

from agent_eval import __version__
from agent_eval.defs.checks import check_specs, checked
from agent_eval.defs.dagster_internals import add_metadata_by_partition
from agent_eval.defs.gate_checks import gate_check_specs
from agent_eval.defs.partitions import MAPPINGS, PARTITIONS, key_frame
from agent_eval.formats.spill import Rows
from agent_eval.judge.llm.progress import Progress, Watch
from agent_eval.project import Project
from agent_eval.report.asset_pages.pages import partition_figures
from agent_eval.report.links import REPORT, asset_page
from agent_eval.tables import table
from agent_eval.tables.rules import PARENTS
from agent_eval.tables.schema import MADE_FROM, SOURCES, shape_of

OWNERS = ["team:evaluation"]
KINDS = {"polars", "duckdb"}
ONE_RUN = dg.BackfillPolicy.single_run()

TableEvents = Iterator[dg.AssetCheckResult | dg.Output[Rows]]
"""The events that the body of a table asset yields: check results, and rows for the store."""


def report_link(project: Project, path: str = "") -> dg.UrlMetadataValue:
    """Return the link to a page of the report: at the address in the settings, else as the UI serves it."""
    return dg.MetadataValue.url(f"{(project.settings.report_url or REPORT).rstrip('/')}/{path}")


class _Op(TypedDict):
    """Hold the arguments that follow from the tables that an op fills."""

    partitions_def: dg.PartitionsDefinition[Any]
    ins: dict[str, dg.AssetIn]
    deps: list[dg.AssetDep]
    backfill_policy: dg.BackfillPolicy
    check_specs: list[dg.AssetCheckSpec]


class TableAsset(_Op):
    """Hold the arguments of `@dg.asset` that are the same for every asset with a table."""

    kinds: set[str]
    owners: list[str]
    code_version: str
    metadata: dict[str, Any]


class TableMultiAsset(_Op):
    """Hold the arguments of `@dg.multi_asset` that are the same for every op that fills several tables."""

    outs: dict[str, dg.AssetOut]


def table_asset(name: str, without_rows: Collection[str] = (), **parts: dict[str, Any]) -> TableAsset:
    """Return the arguments of `@dg.asset` for the asset that fills table `name`, as `tables.txt` declares it.

    Args:
        name: The table.
        without_rows: The tables among its inputs whose rows are not loaded. Sources have no rows.
        parts: The inputs of which only a part is loaded, each from `part_of`.

    Raises:
        LookupError: If a name in `without_rows` or `parts` is not an input of the table.
    """
    return {
        **_op([name], without_rows, parts),
        "kinds": KINDS,
        "owners": OWNERS,
        "code_version": __version__,
        "metadata": table_metadata(name),
    }


def table_multi_asset(
    descriptions: Mapping[str, str],
    without_rows: Collection[str] = (),
    freshness: Mapping[str, dg.FreshnessPolicy] | None = None,
    **parts: dict[str, Any],
) -> TableMultiAsset:
    """Return the arguments of `@dg.multi_asset` for the op that fills these tables, each with its description.

    The tables have the same partitions and inputs. For the other arguments and errors, see `table_asset`.
    """
    return {
        **_op([*descriptions], without_rows, parts),
        "outs": {
            name: dg.AssetOut(
                description=_with_others(description, name, descriptions),
                metadata=table_metadata(name),
                kinds=KINDS,
                owners=OWNERS,
                code_version=__version__,
                freshness_policy=(freshness or {}).get(name),
            )
            for name, description in descriptions.items()
        },
    }


def _op(names: list[str], without_rows: Collection[str], parts: Mapping[str, dict[str, Any]]) -> _Op:
    """Return the partitions, inputs and checks of the op that fills these tables."""
    reads, shape = MADE_FROM[names[0]], shape_of(names[0])
    if unknown := {*without_rows, *parts} - {*reads}:
        raise LookupError(
            f"{', '.join(sorted(unknown))}: not an input of {names[0]}, which reads {', '.join(reads)}. "
            "Correct the name, or the line `reads` in agent_eval/tables/tables.txt."
        )
    mappings = {parent: MAPPINGS.get((shape, shape_of(parent))) for parent in reads}
    unloaded = {*SOURCES, *without_rows}
    return {
        "partitions_def": PARTITIONS[shape],
        "ins": {
            parent: dg.AssetIn(partition_mapping=mapping, metadata=parts.get(parent))
            for parent, mapping in mappings.items()
            if parent not in unloaded
        },
        "deps": [
            dg.AssetDep(parent, partition_mapping=mapping)
            for parent, mapping in mappings.items()
            if parent in unloaded
        ],
        "backfill_policy": ONE_RUN,
        "check_specs": [
            spec for specs in (check_specs, gate_check_specs) for name in names for spec in specs(name)
        ],
    }


def _with_others(description: str, name: str, descriptions: Iterable[str]) -> str:
    """Return the description of a table, extended by the names of the tables that the same op computes."""
    others = ", ".join(other for other in descriptions if other != name)
    return f"{description} One op computes this table together with {others}."


def part_of(columns: Iterable[str], **values: Iterable[object]) -> dict[str, Any]:
    """Return an input that loads only these columns, and only rows whose values are listed in `values`.

    The tables of judgments are large. Loading only the rows and columns that an asset reads limits its memory use.
    """
    return {"columns": [*columns], "values": {name: [*allowed] for name, allowed in values.items()}}


def table_metadata(name: str) -> dict[str, Any]:
    """Return the asset metadata that describes a table: its grain, its key, and its columns with their meaning.

    A column outside the key that a parent table declares with the same name and meaning names it as its origin.
    """
    contract = table(name)
    parents = [table(parent) for parent in MADE_FROM.get(name, ()) if parent not in SOURCES]
    origins = {
        c.name: [dg.TableColumnDep(dg.AssetKey(p.name), c.name) for p in parents if c in p.columns]
        for c in contract.columns
        if c.name not in contract.key
    }
    columns = [
        dg.TableColumn(
            c.name,
            str(c.dtype),
            c.meaning + _from(origins.get(c.name, [])),
            dg.TableColumnConstraints(nullable=c.nullable),
        )
        for c in contract.columns
    ]
    grain = contract.grain[0].upper() + contract.grain[1:]
    return {
        "dagster/column_schema": dg.TableSchema(columns),
        "dagster/column_lineage": dg.TableColumnLineage({c: deps for c, deps in origins.items() if deps}),
        "dagster/table_name": name,
        "grain": f"{grain}. Key: {', '.join(contract.key)}.",
    }


def _from(origins: Iterable[dg.TableColumnDep]) -> str:
    """Return the origins of a column as text for its description: only Dagster+ displays column lineage."""
    names = ", ".join(f"{origin.asset_key.path[-1]}.{origin.column_name}" for origin in origins)
    return f" (from {names})" if names else ""


def check_and_store(
    context: dg.AssetExecutionContext,
    frames: Mapping[str, Rows],
    /,
    **parents: pl.DataFrame,
) -> TableEvents:
    """Check the new rows of each table, show them on the pages of its partitions and pass them to the store.

    Args:
        context: The context of the asset.
        frames: The new rows by table name; the tables are stored in this order.
        parents: The tables that the new rows refer to (`tables.rules.PARENTS`), unless they are in `frames`.

    Raises:
        dg.Failure: If a blocking check failed; the stored rows are not changed.
        LookupError: If a parent table was not passed.
    """
    partitions = key_frame(context.assets_def.partitions_def, context.partition_keys)
    at_hand: dict[str, Rows] = {**parents, **frames}
    for name, frame in frames.items():
        if name in PARENTS and PARENTS[name][0] not in at_hand:
            parent = PARENTS[name][0]
            raise LookupError(
                f"The rows of {name} belong to rows of {parent}: pass {parent}={parent} to check_and_store."
            )
        for event in checked(name, frame, partitions, at_hand, output=name if len(frames) > 1 else "result"):
            if isinstance(event, dg.Output):
                _show(context, name, event.value, partitions)
            yield event


def _show(context: dg.AssetExecutionContext, name: str, rows: Rows, partitions: pl.DataFrame) -> None:
    """Add the row count, the figures and the link to the page of each partition to its event."""
    add_metadata_by_partition(
        context,
        name,
        {
            "|".join(of.partition): {
                "dagster/partition_row_count": of.n_rows,
                **of.figures,
                "page": dg.MetadataValue.url(asset_page(name, *of.partition)),
                **({"preview": dg.MetadataValue.md(of.preview)} if of.preview else {}),
            }
            for of in partition_figures(name, rows, partitions)
        },
    )


def watch_of(context: dg.AssetExecutionContext, project: Project) -> Watch:
    """Return a watcher that reports the progress of judge models to the run's log and to the project's own watcher."""

    def watch(progress: Progress) -> None:
        context.log.info(progress.line())
        if project.watch is not None:
            project.watch(progress)

    return watch
