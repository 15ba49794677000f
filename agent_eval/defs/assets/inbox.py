"""Define the inbox: files that arrive by themselves, the sensor that imports them, and the check that names problems.

All of it is off unless the setting [[inbox]] names files.
"""

from pathlib import Path

import dagster as dg

from agent_eval.defs.assets.common import OWNERS
from agent_eval.defs.partitions import project_settings
from agent_eval.project import Project
from agent_eval.transcripts.inbox import Arrival, Inbox, arrivals, take_in

EVERY_S = 30
SHOWN = 20  # problems in the result of the check
INBOX = "inbox_files"
CHECK = "every_file_is_read"

inbox_files = dg.AssetSpec(
    INBOX,
    group_name="ingest",
    owners=OWNERS,
    kinds={"json"},
    description="Files that match the setting [[inbox]]. Each complete file is imported into a session of its agent. An "
    "event of this asset names a file, its session and what was not read.",
)


def _inboxes(project: Project) -> list[Inbox]:
    root = project.home.root
    return [Inbox(str(root / Path(one.glob)), one.agent, one.format) for one in project.settings.inbox]


def _result(imported_files: list[Arrival]) -> tuple[bool, dict[str, dg.MetadataValue]]:
    problems = [f"{one.file}: {problem}" for one in imported_files for problem in one.problems]
    return not problems, {
        "n_files": dg.MetadataValue.int(len(imported_files)),
        "n_problems": dg.MetadataValue.int(len(problems)),
        "first_problems": dg.MetadataValue.json(problems[:SHOWN]),
    }


@dg.asset_check(asset=INBOX, name=CHECK, description="Every file of the inbox was read completely.")
def every_file_is_read(project: dg.ResourceParam[Project]) -> dg.AssetCheckResult:
    """Name the files, records and parts of the inbox that were refused or not read."""
    passed, metadata = _result(arrivals(project.home.data))
    return dg.AssetCheckResult(passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=metadata)


@dg.sensor(
    minimum_interval_seconds=EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Imports new and changed files that match the setting [[inbox]], once they are complete.",
)
def import_inbox(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Import the files that arrived, and report each of them with its session and its problems."""
    project = Project.open()
    with project.store.exclusive_section("run", wait=False) as is_idle:
        if not is_idle:
            return dg.SkipReason("a run is in progress; files are imported when it ends")
        done = take_in(_inboxes(project), project.home.data)
    if not done:
        return dg.SkipReason("no complete file is new or changed")
    for one in done:
        for problem in one.problems:
            context.log.warning(f"{one.file}: {problem}")
    passed, metadata = _result(arrivals(project.home.data))
    events: list[dg.AssetMaterialization | dg.AssetCheckEvaluation] = [
        dg.AssetMaterialization(
            INBOX,
            metadata={
                "file": dg.MetadataValue.path(one.file),
                "session": f"{one.agent_id}/{one.session_id}" if one.session_id else "none",
                "n_imported": one.n_imported,
                "n_problems": len(one.problems),
            },
        )
        for one in done
    ]
    check = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(INBOX),
        check_name=CHECK,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata,
    )
    return dg.SensorResult(asset_events=[*events, check])


IS_ON = bool(project_settings().inbox)
ASSETS: tuple[dg.AssetSpec, ...] = (inbox_files,) if IS_ON else ()
CHECKS = (every_file_is_read,) if IS_ON else ()
SENSORS = (import_inbox,) if IS_ON else ()
