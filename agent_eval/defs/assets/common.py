"""What every asset shares: where its rows go, what the UI says about it, how a range of partitions runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from agent_eval import __version__
from agent_eval.tables import table

OWNERS = ["team:evaluation"]
KINDS = {"polars", "duckdb"}
ONE_RUN = dg.BackfillPolicy.single_run()


Wired = Callable[[Callable[..., Any]], dg.AssetsDefinition]


def stored(
    name: str,
    group: str,
    partitions: dg.PartitionsDefinition,
    *,
    ins: Mapping[str, dg.AssetIn] | None = None,
    deps: Sequence[dg.AssetDep | str] = (),
    pool: str | None = None,
) -> Wired:
    """Decorator of the asset that fills table `name`, described by the table's contract."""
    return dg.asset(
        name=name,
        group_name=group,
        description=_description(name),
        metadata=_metadata(name),
        partitions_def=partitions,
        ins=ins,
        deps=deps,
        kinds=KINDS,
        owners=OWNERS,
        code_version=__version__,
        backfill_policy=ONE_RUN,
        pool=pool,
    )


def out(name: str, group: str) -> dg.AssetOut:
    """One output of a `@dg.multi_asset` that fills table `name`."""
    return dg.AssetOut(
        description=_description(name),
        metadata=_metadata(name),
        group_name=group,
        kinds=KINDS,
        owners=OWNERS,
        code_version=__version__,
    )


def ins(**mappings: dg.PartitionMapping) -> dict[str, dg.AssetIn]:
    """Inputs whose partitions are mapped; inputs of the same shape need no entry."""
    return {name: dg.AssetIn(partition_mapping=mapping) for name, mapping in mappings.items()}


def on(name: str, mapping: dg.PartitionMapping) -> dg.AssetDep:
    """A dependency whose rows are not loaded."""
    return dg.AssetDep(name, partition_mapping=mapping)


def _description(name: str) -> str:
    contract = table(name)
    return f"{contract.grain.capitalize()}. Key: {', '.join(contract.key)}."


def _metadata(name: str) -> dict[str, Any]:
    columns = [
        dg.TableColumn(c.name, str(c.dtype), c.meaning, dg.TableColumnConstraints(nullable=c.nullable))
        for c in table(name).columns
    ]
    return {"dagster/column_schema": dg.TableSchema(columns), "dagster/table_name": name}
