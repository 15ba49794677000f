"""Read and report the data versions of the sources and of the stored tables, by partition.

An event is reported only if the data version differs from the previous one, so each event is a change. The run that
stores the rows of a partition reports them itself; `unreported` finds those that this instance does not know: after the
store was restored, with another DAGSTER_HOME, or if a process was killed between the rows and the event.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext

import dagster as dg

from agent_eval import __version__
from agent_eval.defs.dagster_internals import INCOMPLETE
from agent_eval.project.data_versions import Sources
from agent_eval.project.fingerprints import NO_ROWS, Fingerprints
from agent_eval.tables.schema import MADE_FROM, SOURCES

DATA_VERSION, CODE_VERSION = "dagster/data_version", "dagster/code_version"
_AT_ONCE = 200  # observations per transaction, limited because other writers of the event log wait
NAMES = tuple(Sources.__dataclass_fields__)


def observed(instance: dg.DagsterInstance) -> Sources:
    """Return the latest observed data versions, by source and partition."""
    versions = {}
    for name in NAMES:
        tags = instance.event_log_storage.get_latest_tags_by_partition(
            dg.AssetKey(name), dg.DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION]
        )
        versions[name] = {
            partition: tag[DATA_VERSION] for partition, tag in tags.items() if DATA_VERSION in tag
        }
    return Sources(**versions)


def new_observations(
    now: Sources, before: Sources, partitions: Collection[str] | None = None
) -> list[dg.AssetObservation]:
    """Return one observation for each partition with a changed data version, limited to `partitions` if given."""
    known_versions: Mapping[str, Mapping[str, str]] = before.by_name()
    return [
        dg.AssetObservation(name, partition=partition, tags={DATA_VERSION: version})
        for name, versions in now.by_name().items()
        for partition, version in sorted(versions.items())
        if known_versions[name].get(partition) != version and (partitions is None or partition in partitions)
    ]


def report(
    instance: dg.DagsterInstance, events: Sequence[dg.AssetObservation | dg.AssetMaterialization]
) -> None:
    """Report events outside of a run, many in one transaction if the event log supports it."""
    in_one_transaction = getattr(instance.event_log_storage, "events_outside_runs", nullcontext)
    for start in range(0, len(events), _AT_ONCE):
        with in_one_transaction():
            for event in events[start : start + _AT_ONCE]:
                instance.report_runless_asset_event(event)


def report_unreported(instance: dg.DagsterInstance, marks: Fingerprints) -> int:
    """Report each stored partition whose rows this instance does not know, and return their number.

    A partition that is up to date is reported as computed from the latest events of what it reads; another one gets a
    code version of its own, so that Dagster shows it as stale, as the command does.
    """
    by_asset: dict[str, list[tuple[str, str | None, str | None]]] = {name: [] for name in MADE_FROM}
    for place in filter(marks.is_known, marks.stored):
        by_asset.get(place[0], []).append(place)
    n_reported, latest = 0, {name: _latest_event(instance, name) for name in SOURCES}
    for name, parents in MADE_FROM.items():
        tags_of_partition = instance.event_log_storage.get_latest_tags_by_partition(
            dg.AssetKey(name), dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION]
        )
        inputs = {
            f"dagster/input_{kind}/{parent}": value
            for parent in parents
            for kind, value in (("data_version", NO_ROWS), ("event_pointer", latest[parent]))
        }
        events = [
            dg.AssetMaterialization(
                name,
                partition=_key(place),
                tags=inputs
                | {
                    DATA_VERSION: marks.stored[place],
                    CODE_VERSION: INCOMPLETE if marks.is_changed(place) else __version__,
                },
            )
            for place in by_asset[name]
            if tags_of_partition.get(str(_key(place)), {}).get(DATA_VERSION) != marks.stored[place]
        ]
        report(instance, events)
        n_reported += len(events)
        latest[name] = _latest_event(instance, name)
    return n_reported


def _key(place: tuple[str, str | None, str | None]) -> str:
    _, agent, version = place
    if agent is None or version is None:
        return str(agent or version)
    return dg.MultiPartitionKey({"agent": agent, "version": version})


def _latest_event(instance: dg.DagsterInstance, name: str) -> str:
    """Return the storage id of the latest event with a data version of an asset; "NULL" without one."""
    fetch = instance.fetch_observations if name in SOURCES else instance.fetch_materializations
    records = fetch(dg.AssetKey(name), limit=1).records
    return str(records[0].storage_id) if records else "NULL"
