"""Hold every private name of Dagster that this project uses: look here first after an upgrade of Dagster.

No other module imports a name from `dagster._…`; a test checks it. Each name comes with the reason why it is needed.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

# Only the asset that Definitions makes of an observable source can be given owners, so `sources` makes it itself.
from dagster._core.definitions.external_asset import create_external_asset_from_source_asset

# A copy of Dagster's list of the statuses in which a run has a process would miss a new status.
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

if TYPE_CHECKING:
    # Events that are in the file of a run only are inserted in one statement.
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
        INDEX_SHARD_NAME,  # a batch of events commits this file last, so it has to know which one it is
        SqliteEventLogStorage,  # the batched event log is this class with fewer connections and commits
    )

    # Dagster opens its SQLite files with settings of its own; the batched event log has to use the same.
    from dagster._core.storage.sql import create_engine

    # The batched event log waits as long as Dagster for a file that another process writes to.
    from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS

    # Dagster passes an object of this type to every class that dagster.yaml names.
    from dagster._serdes import ConfigurableClassData

__all__ = [
    "INDEX_SHARD_NAME",
    "IN_PROGRESS_RUN_STATUSES",
    "SQLITE_BUSY_TIMEOUT_SECONDS",
    "ConfigurableClassData",
    "SqlEventLogStorageTable",
    "SqliteEventLogStorage",
    "add_metadata_by_partition",
    "create_engine",
    "create_external_asset_from_source_asset",
    "has_backfill_under_way",
    "release_outputs",
    "run_dev_with_webserver",
]

_LOADED_ON_USE = {  # these load SQLAlchemy, which takes longer than the import of the definitions may
    "INDEX_SHARD_NAME": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "SqlEventLogStorageTable": "dagster._core.storage.event_log.schema",
    "SqliteEventLogStorage": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "create_engine": "dagster._core.storage.sql",
    "SQLITE_BUSY_TIMEOUT_SECONDS": "dagster._core.storage.sqlite",
    "ConfigurableClassData": "dagster._serdes",
}


if not TYPE_CHECKING:  # type checkers would take every name for one of this module

    def __getattr__(name: str) -> Any:
        """Load a name of `_LOADED_ON_USE` when it is imported."""
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


def release_outputs(context: dg.OutputContext) -> None:
    """Drop the outputs that `execute_in_process` keeps of every step until the run ends.

    They are there for the result's `output_for_node`, which is not used here, and would hold all tables of a run in memory.
    """
    step = getattr(context, "_step_context", None)
    if isinstance(kept := getattr(step, "output_capture", None), dict):
        kept.clear()


def has_backfill_under_way(instance: dg.DagsterInstance) -> bool:
    """Return whether a backfill is requested or being cancelled. `DagsterInstance.get_backfills` takes no other filter.

    Imports on use: the module loads Dagster's server, which takes half as long as everything of this project.
    """
    from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

    under_way = BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING])
    return bool(instance.get_backfills(filters=under_way, limit=1))


def run_dev_with_webserver(module: str) -> None:
    """Run `dagster dev` with the arguments of this process and another module as its web server.

    `dagster dev` starts the module `dagster_webserver` in a process of its own and has no option for another one.

    Raises:
        AttributeError: If this release of Dagster starts its processes in another way. Nothing is served then.
    """
    from dagster._cli import cli, dev

    start = getattr(dev, "open_ipc_subprocess")  # noqa: B009  # the name is not one of its interface

    def start_instead(command: Sequence[str], **options: Any) -> Any:
        if "dagster_webserver" not in command and "dagster._daemon" not in command:
            raise AttributeError(f"dagster dev starts an unknown process: {command[:4]}")
        return start([module if part == "dagster_webserver" else part for part in command], **options)

    setattr(dev, "open_ipc_subprocess", start_instead)  # noqa: B010
    cli(auto_envvar_prefix="DAGSTER_CLI", prog_name="dagster")
