"""Read and report the observed data versions of the sources, by partition.

An observation is reported only if the data version differs from the previous one, so each event is a change.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext

import dagster as dg

from agent_eval.project.data_versions import Sources

DATA_VERSION = "dagster/data_version"
_AT_ONCE = 200  # observations per transaction, limited because other writers of the event log wait
NAMES = tuple(Sources.__dataclass_fields__)
RETIRED = ("judge_spec",)
"""Names of sources in earlier releases: `judge_config` was `judge_spec`."""


def observed(instance: dg.DagsterInstance) -> Sources:
    """Return the latest observed data versions, by source and partition."""
    found = {}
    for name in NAMES:
        tags = instance.event_log_storage.get_latest_tags_by_partition(
            dg.AssetKey(name), dg.DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION]
        )
        found[name] = {partition: tag[DATA_VERSION] for partition, tag in tags.items() if DATA_VERSION in tag}
    return Sources(**found)


def new_observations(
    now: Sources, before: Sources, partitions: Collection[str] | None = None
) -> list[dg.AssetObservation]:
    """Return one observation for each partition with a changed data version, limited to `partitions` if given."""
    seen: Mapping[str, Mapping[str, str]] = before.by_name()
    return [
        dg.AssetObservation(name, partition=partition, tags={DATA_VERSION: version})
        for name, versions in now.by_name().items()
        for partition, version in sorted(versions.items())
        if seen[name].get(partition) != version and (partitions is None or partition in partitions)
    ]


def report(instance: dg.DagsterInstance, observations: Sequence[dg.AssetObservation]) -> None:
    """Report observations outside of a run, many in one transaction if the event log supports it."""
    in_one_transaction = getattr(instance.event_log_storage, "events_outside_runs", nullcontext)
    for start in range(0, len(observations), _AT_ONCE):
        with in_one_transaction():
            for observation in observations[start : start + _AT_ONCE]:
                instance.report_runless_asset_event(observation)


def remove_retired(instance: dg.DagsterInstance) -> None:
    """Remove observations of sources that earlier releases defined; the UI would list them as undefined assets."""
    retired = [key for key in map(dg.AssetKey, RETIRED) if instance.has_asset_key(key)]
    if retired:
        instance.wipe_assets(retired)
