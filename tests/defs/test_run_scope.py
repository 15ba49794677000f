"""Which agents and versions a run needs for itself: in a lake, runs on others go on meanwhile."""

from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest

from agent_eval.defs.resources import RANGE_TAGS, scope_of_run
from agent_eval.storage import RunScope

FIRST, LAST = RANGE_TAGS


@pytest.mark.parametrize(
    ("assets", "tags", "scope"),
    [
        (["turns", "tool_calls"], {"dagster/partition": "b"}, (["b"], None)),
        (["turn_judgments"], {"dagster/partition": "b|1.2.0"}, (["b"], ["1.2.0"])),
        (["turn_judgments"], {FIRST: "b|1.1.0", LAST: "c|1.3.0"}, (["b", "c"], ["1.1.0", "1.2.0", "1.3.0"])),
        (["turn_judgments", "turns"], {FIRST: "b|1.0.0", LAST: "c|1.3.0"}, (["b", "c"], None)),
        (["leaderboard"], {"dagster/partition": "1.3.0"}, None),
        (["turn_judgments", "leaderboard"], {FIRST: "b|1.0.0", LAST: "c|1.3.0"}, None),
        (["gate_results"], {"dagster/partition": "b|1.0.0"}, None),  # compares agents
        (["turns"], {"dagster/partition": "removed"}, None),
        (["turns"], {}, None),
        ([], {"dagster/partition": "b"}, None),
    ],
)
def test_a_run_needs_the_agents_and_versions_of_its_partitions_or_all(
    assets: list[str], tags: dict[str, str], scope: tuple[list[str], list[str] | None] | None
) -> None:
    run = SimpleNamespace(tags=tags, asset_selection={dg.AssetKey(name) for name in assets})
    instance = SimpleNamespace(get_dynamic_partitions=lambda _: ["a", "b", "c", "d"])
    context = cast("dg.InitResourceContext", SimpleNamespace(run=run, instance=instance))
    assert scope_of_run(context) == (RunScope(*scope) if scope else None)
