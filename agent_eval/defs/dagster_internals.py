"""Import every private name of Dagster that this project uses. Check this module after an upgrade of Dagster.

A test ensures that no other module imports a name from `dagster._…`. A comment at each name states why it is needed.
"""

import importlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

# An observable source cannot have owners, but the asset that Definitions creates from it can: `sources` creates it.
from dagster._core.definitions.external_asset import create_external_asset_from_source_asset

# One op stores many partitions, each with a data version of its own: the IO manager reports them (see
# `log_materializations`), and this key in the metadata of an output keeps Dagster from adding one for all of them.
from dagster._core.definitions.source_asset import (
    SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION as REPORTED_BY_IO_MANAGER,
)

# The batched event log stores these types of events in the index, as Dagster does; a status event has an owner.
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS, EVENT_TYPE_TO_PIPELINE_RUN_STATUS

# A copy of Dagster's list of the statuses in which a run has a process would miss a new status.
from dagster._core.storage.dagster_run import FINISHED_STATUSES, IN_PROGRESS_RUN_STATUSES

if TYPE_CHECKING:
    # Events that are stored only in the file of a run are inserted with one statement.
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
        INDEX_SHARD_NAME,  # the file that a batch of events commits last
        SqliteEventLogStorage,  # the base class of the batched event log, which uses fewer connections and commits
    )

    # Dagster's default starts four processes per run that copy its output; see `leave_output`.
    from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
    from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager

    # Dagster opens its SQLite files with specific settings, and the batched event log has to use the same ones.
    from dagster._core.storage.sql import create_engine

    # The batched event log waits as long as Dagster does for a file that another process writes to.
    from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS

    # Dagster passes an object of this type to every class that dagster.yaml names.
    from dagster._serdes import ConfigurableClassData

__all__ = [
    "ASSET_CHECK_EVENTS",
    "ASSET_EVENTS",
    "EVENT_TYPE_TO_PIPELINE_RUN_STATUS",
    "FINISHED_STATUSES",
    "INDEX_SHARD_NAME",
    "IN_PROGRESS_RUN_STATUSES",
    "REPORTED_BY_IO_MANAGER",
    "SQLITE_BUSY_TIMEOUT_SECONDS",
    "ConfigurableClassData",
    "LocalComputeLogManager",
    "NoOpComputeLogManager",
    "SqlEventLogStorageTable",
    "SqliteEventLogStorage",
    "add_metadata_by_partition",
    "create_engine",
    "create_external_asset_from_source_asset",
    "has_backfill_under_way",
    "leave_output",
    "log_materializations",
    "release_outputs",
    "run_dev_with_webserver",
    "start_backfill",
]

_LOADED_ON_USE = {  # these import SQLAlchemy, which would exceed the time limit for loading the definitions
    "INDEX_SHARD_NAME": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "SqlEventLogStorageTable": "dagster._core.storage.event_log.schema",
    "SqliteEventLogStorage": "dagster._core.storage.event_log.sqlite.sqlite_event_log",
    "LocalComputeLogManager": "dagster._core.storage.local_compute_log_manager",
    "NoOpComputeLogManager": "dagster._core.storage.noop_compute_log_manager",
    "create_engine": "dagster._core.storage.sql",
    "SQLITE_BUSY_TIMEOUT_SECONDS": "dagster._core.storage.sqlite",
    "ConfigurableClassData": "dagster._serdes",
}


if not TYPE_CHECKING:  # otherwise type checkers would accept every name as an attribute of this module

    def __getattr__(name: str) -> Any:
        """Load a name listed in `_LOADED_ON_USE` when it is first used."""
        if name not in _LOADED_ON_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LOADED_ON_USE[name]), name)


INCOMPLETE = "some answers are missing"
"""The code version of a partition without some answers of judge models."""


def add_metadata_by_partition(
    context: dg.AssetExecutionContext, asset: str, by_partition: Mapping[str, Mapping[str, Any]]
) -> None:
    """Add metadata to many partitions of an asset, as `context.add_asset_metadata` does, in linear time.

    Dagster's method queries the whole partition range of the run for each key: with 100 agents, this takes two
    thirds of the time limit for one partition of an asset. Dagster collects the metadata in the private attribute
    `_metadata_accumulator`. If a release of Dagster does not have this attribute, the public method is called.
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


def log_materializations(context: dg.OutputContext, versions: Mapping[str, tuple[str, bool]]) -> None:
    """Report one materialization per partition, each with its own data version, in one batch of events.

    Dagster itself gives all partitions of a run one data version. The tags and the metadata are otherwise those that it
    would report; `OutputContext.log_event` reports events one by one.

    Args:
        context: The context of `handle_output`.
        versions: Data version by partition key, and whether the rows are complete. A partition with incomplete rows gets
            another code version than that of its asset, so that Dagster shows it as stale.
    """
    from dagster._core.definitions.partitions.utils import get_tags_from_multi_partition_key as partition_tags
    from dagster._core.events import DagsterEvent, DagsterEventBatchMetadata, generate_event_batch_id
    from dagster._core.execution.plan import execute_step

    step, events = getattr(context, "_step_context", None), getattr(context, "_events", None)
    if step is None or events is None:
        return
    key, batch = context.asset_key, cast("Any", generate_event_batch_id)()
    step.wipe_input_asset_version_info(key)
    inputs = getattr(execute_step, "_get_input_provenance_data")(key, step)  # noqa: B009
    code = getattr(execute_step, "_get_code_version")(key, step)  # noqa: B009
    tags_of = getattr(execute_step, "_build_data_version_tags")  # noqa: B009
    of_asset = step.get_asset_metadata(asset_key=key) or {}
    for number, (partition, (version, is_complete)) in enumerate(versions.items(), start=1):
        dimensions = partition_tags(partition) if isinstance(partition, dg.MultiPartitionKey) else {}
        event = dg.AssetMaterialization(
            key,
            partition=partition,
            metadata={**of_asset, **(step.get_asset_metadata(asset_key=key, partition_key=partition) or {})},
            tags=dimensions
            | tags_of(dg.DataVersion(version), code if is_complete else INCOMPLETE, inputs, True),
        )
        of_batch = DagsterEventBatchMetadata(batch, number == len(versions))
        events.append(DagsterEvent.asset_materialization(step, event, of_batch))


def release_outputs(context: dg.OutputContext) -> None:
    """Discard the step outputs that `execute_in_process` keeps until the run ends.

    They serve the result's method `output_for_node`, which this project does not use, and would keep all tables of
    a run in memory.
    """
    step = getattr(context, "_step_context", None)
    if isinstance(output_capture := getattr(step, "output_capture", None), dict):
        output_capture.clear()


def leave_output(instance: dg.DagsterInstance) -> None:
    """Let the runs of this process write to its stdout and stderr, if Dagster would capture both in local files.

    For each run, Dagster starts four processes that copy the files to the terminal, up to a second later. Output
    that dagster.yaml stores elsewhere is still captured.
    """
    names = importlib.import_module(__name__)
    if isinstance(instance.compute_log_manager, names.LocalComputeLogManager):
        manager = names.NoOpComputeLogManager()
        manager.register_instance(instance)
        vars(instance)["_compute_log_manager"] = manager


def has_backfill_under_way(instance: dg.DagsterInstance) -> bool:
    """Return whether a backfill is in progress: requested, or ending its runs after a failure or a request to cancel.

    `DagsterInstance.get_backfills` only accepts a private filter class. Its module is imported when this function is
    called: it loads Dagster's server, which takes half as long as loading this whole project.
    """
    from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus

    under_way = [BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING, BulkActionStatus.FAILING]
    return bool(instance.get_backfills(filters=BulkActionsFilter(statuses=under_way), limit=1))


def start_backfill(
    instance: dg.DagsterInstance,
    defs: dg.Definitions,
    partitions: Mapping[str, Sequence[str]],
    *,
    title: str,
    tags: Mapping[str, str],
) -> str:
    """Request a backfill of these partitions of each asset from the daemon, as the UI does, and return its id.

    Dagster has no public function that starts a backfill.
    """
    from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
    from dagster._core.definitions.events import AssetKeyPartitionKey
    from dagster._core.execution.backfill import PartitionBackfill
    from dagster._core.utils import make_new_backfill_id

    places = {
        AssetKeyPartitionKey(dg.AssetKey(name), key) for name, keys in partitions.items() for key in keys
    }
    subset = AssetGraphSubset.from_asset_partition_set(places, defs.resolve_asset_graph())
    backfill = make_new_backfill_id()
    instance.add_backfill(
        PartitionBackfill.from_asset_graph_subset(
            backfill, time.time(), tags, instance, subset, title, None, None
        )
    )
    return backfill


def run_dev_with_webserver(module: str) -> None:
    """Run `dagster dev` with the arguments of this process and with `module` as its web server.

    `dagster dev` starts module `dagster_webserver` in a separate process and has no option to replace it.

    Raises:
        AttributeError: If this release of Dagster starts its processes in a different way. No server is started then.
    """
    from dagster._cli import cli, dev

    start = getattr(dev, "open_ipc_subprocess")  # noqa: B009  # the name is not one of its interface

    def start_instead(command: Sequence[str], **options: Any) -> Any:
        if "dagster_webserver" not in command and "dagster._daemon" not in command:
            raise AttributeError(f"dagster dev starts an unknown process: {command[:4]}")
        return start([module if part == "dagster_webserver" else part for part in command], **options)

    setattr(dev, "open_ipc_subprocess", start_instead)  # noqa: B010
    cli(auto_envvar_prefix="DAGSTER_CLI", prog_name="dagster")
