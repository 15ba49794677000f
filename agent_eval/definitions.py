"""Define all assets, resources and automation. workspace.yaml names this module as the entry point for Dagster.

To read the code, start here and continue with `defs/assets/` and the packages that the assets call.
"""

import dagster as dg

from agent_eval.defs.assets import audits, benchmarks, boards, errors, gates, inbox, ingest, judging, scores
from agent_eval.defs.automation import JOBS, SCHEDULES, SENSORS
from agent_eval.defs.io_manager import TableIO
from agent_eval.defs.resources import ProjectResource
from agent_eval.defs.sources import SOURCES
from agent_eval.defs.tags import tagged

MODULES = (ingest, judging, audits, errors, scores, boards, gates)
_LOADED = [asset for asset in dg.load_assets_from_modules(MODULES) if isinstance(asset, dg.AssetsDefinition)]
"""All assets of these modules are loaded; those of `inbox` and `benchmarks` depend on settings."""

defs = dg.Definitions(
    assets=[
        *dg.map_asset_specs(tagged, [*SOURCES, *_LOADED]),
        *map(tagged, inbox.ASSETS),
        *dg.map_asset_specs(tagged, benchmarks.ASSETS),
    ],
    asset_checks=inbox.CHECKS,
    sensors=[*SENSORS, *inbox.SENSORS],
    schedules=[*SCHEDULES, *benchmarks.SCHEDULES],
    jobs=[*JOBS, *benchmarks.JOBS],
    resources={"io_manager": TableIO(), "no_io_manager": dg.mem_io_manager, "project": ProjectResource()},
    executor=dg.in_process_executor,
)
