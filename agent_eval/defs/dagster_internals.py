"""Everything that this project uses of Dagster without a promise that it stays: read this first after an upgrade.

No other module imports a name from `dagster._…`; a test says so. Each name has the reason why no public one does.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

# What Definitions makes of an observable source: only the asset that it makes can be given owners.
from dagster._core.definitions.external_asset import create_external_asset_from_source_asset

# The only filter that `DagsterInstance.get_backfills` takes: `redo_missed` waits while a backfill is under way.
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

# Dagster's own list of the statuses in which a run has a process: a copy of it would miss a new status.
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

if TYPE_CHECKING:
    # The SQLite file that every run writes to as well, named so that a batch can commit it last.
    # The event log's own class: the batched one differs from it in connections and commits only.
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
        INDEX_SHARD_NAME,
        SqliteEventLogStorage,
    )

    # Dagster's own engine settings for SQLite, so that both storages open the files in the same way.
    from dagster._core.storage.sql import create_engine

    # How long Dagster waits for a file that another process writes to.
    from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS

    # The type of what Dagster hands to a class that dagster.yaml names.
    from dagster._serdes import ConfigurableClassData

__all__ = [
    "INDEX_SHARD_NAME",
    "IN_PROGRESS_RUN_STATUSES",
    "SQLITE_BUSY_TIMEOUT_SECONDS",
    "BulkActionStatus",
    "BulkActionsFilter",
    "ConfigurableClassData",
    "SqliteEventLogStorage",
    "add_metadata_by_partition",
    "create_engine",
    "create_external_asset_from_source_asset",
]

_LOADED_ON_USE = {  # they load SQLAlchemy, which costs more than the import of the definitions may
    "INDEX_SHARD_NAME": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "SqliteEventLogStorage": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "create_engine": "dagster._core.storage.sql",
    "SQLITE_BUSY_TIMEOUT_SECONDS": "dagster._core.storage.sqlite",
    "ConfigurableClassData": "dagster._serdes",
}


def __getattr__(name: str) -> Any:
    """Load the names of `_LOADED_ON_USE` when they are first imported."""
    if name not in _LOADED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LOADED_ON_USE[name]), name)


def add_metadata_by_partition(
    context: dg.AssetExecutionContext, asset: str, by_partition: Mapping[str, Mapping[str, Any]]
) -> None:
    """Do what `context.add_asset_metadata` does, for many partition keys of an asset, in time that grows with their number.

    Dagster's own method resolves the whole range of the run for each key, in queries: with 100 agents that takes two
    thirds of the time that an asset-partition may take. It gathers the metadata in the private `_metadata_accumulator`;
    where a release gathers it elsewhere, the public method is called.
    """
    step = context.op_execution_context.get_step_execution_context()
    gathered = getattr(step, "_metadata_accumulator", None)
    if gathered is None:
        for partition, metadata in by_partition.items():
            context.add_asset_metadata(metadata, asset_key=asset, partition_key=partition)
        return
    for partition, metadata in by_partition.items():
        gathered = gathered.with_additional_asset_metadata(
            asset_key=dg.AssetKey(asset), partition_key=partition, metadata=metadata
        )
    vars(step)["_metadata_accumulator"] = gathered
