"""Which agents a run needs for itself: in a lake, runs on other agents go on meanwhile."""

from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest

from agent_eval.defs.resources import RANGE_TAGS, agents_of_run

FIRST, LAST = RANGE_TAGS


@pytest.mark.parametrize(
    ("assets", "tags", "agents"),
    [
        (["turns", "tool_calls"], {"dagster/partition": "b"}, ["b"]),
        (["turn_judgments", "turns"], {FIRST: "b|1.0.0", LAST: "c|1.3.0"}, ["b", "c"]),
        (["leaderboard"], {"dagster/partition": "1.3.0"}, None),
        (["turn_judgments", "leaderboard"], {FIRST: "b|1.0.0", LAST: "c|1.3.0"}, None),
        (["gate_results"], {"dagster/partition": "b|1.0.0"}, None),  # compares agents
        (["turns"], {"dagster/partition": "removed"}, None),
        (["turns"], {}, None),
        ([], {"dagster/partition": "b"}, None),
    ],
)
def test_a_run_needs_the_agents_of_its_partitions_or_all(
    assets: list[str], tags: dict[str, str], agents: list[str] | None
) -> None:
    run = SimpleNamespace(tags=tags, asset_selection={dg.AssetKey(name) for name in assets})
    instance = SimpleNamespace(get_dynamic_partitions=lambda _: ["a", "b", "c", "d"])
    context = cast("dg.InitResourceContext", SimpleNamespace(run=run, instance=instance))
    assert agents_of_run(context) == agents
