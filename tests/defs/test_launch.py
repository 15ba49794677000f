"""The runs that `agent-eval run` plans: each stale partition of an asset once, error clusters after all judgments."""

import itertools
from typing import cast

import dagster as dg
import polars as pl
import pytest

from agent_eval.definitions import defs
from agent_eval.defs.launch import (
    CLUSTERING,
    JUDGING,
    LONGEST_WHY,
    Launch,
    by_stage,
    cause_of_failure,
    place_of_several,
)
from agent_eval.project import Project
from agent_eval.project.data_versions import Sources
from agent_eval.tables.schema import MADE_FROM, below
from tests.conftest import REPOSITORY

AGENTS = sorted(path.name for path in (REPOSITORY / "data" / "sessions").iterdir())
VERSIONS = ["1.0.0", "1.1.0", "1.2.0", "1.3.0"]


def planned(limit: int | None, missing: int) -> list[tuple[str, tuple[str, ...], str, str]]:
    """Plan all assets of all pairs, without the pairs assets (error clusters excepted) of the first agents."""
    stages = by_stage(defs)
    done = set(AGENTS[:missing])
    assets = [key.path[-1] for stage in ("agent x version", "gate_results") for key in stages[stage]]
    places = [
        (asset, agent, version)
        for asset, agent, version in itertools.product(assets, AGENTS, VERSIONS)
        if agent not in done or asset in (*CLUSTERING, *below(CLUSTERING))
    ]
    stale = pl.DataFrame(places, ["asset", "agent_id", "methodology_version"], orient="row")
    project = Project.open(REPOSITORY)
    project = Project(project.home, project.settings.model_copy(update={"max_conversations_per_run": limit}))
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("agent", AGENTS)
        launch = Launch(project, defs, instance, cast("Sources", None), stages)
        found = launch._planned(stale, ())
    return [
        (stage, tuple(key.path[-1] for key in assets), first, last) for stage, assets, first, last in found
    ]


def pairs_of(first: str, last: str) -> list[tuple[str, str]]:
    (a, v), (b, w) = first.split("|"), last.split("|")
    return [
        (agent, version)
        for agent in AGENTS[AGENTS.index(a) : AGENTS.index(b) + 1]
        for version in VERSIONS[VERSIONS.index(v) : VERSIONS.index(w) + 1]
    ]


@pytest.mark.parametrize(("limit", "missing"), [(None, 0), (1, 0), (40, 0), (1, 3), (None, 3)])
def test_error_clusters_are_made_after_all_judgments_whatever_the_chunks(
    limit: int | None, missing: int
) -> None:
    plan = planned(limit, missing)
    made = [
        ((asset, pair), i)
        for i, (_, assets, first, last) in enumerate(plan)
        for asset in assets
        for pair in pairs_of(first, last)
    ]
    made_in = dict(made)
    assert len(made_in) == len(made)  # each once
    clustering = [i for i, (_, assets, _, _) in enumerate(plan) if {*CLUSTERING} & {*assets}]
    assert (len(clustering) > 1) == (limit is not None)
    judging = [i for i, (_, assets, _, _) in enumerate(plan) if "turn_judgments" in assets]
    assert max(judging) <= min(clustering)
    assert (len(judging) > 1) == (limit is not None)
    for (asset, pair), i in made:  # else it is stale again at once
        assert all(made_in.get((parent, pair), 0) <= i for parent in MADE_FROM[asset])
    gates = [i for i, (_, assets, _, _) in enumerate(plan) if "gate_results" in assets]
    assert min(gates) >= max(clustering)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ([10], " (1 of 4, about 30 s left)"),
        ([10, 40], " (2 of 4, about 65 s left)"),  # one more like the second, and one of unknown duration
        ([10, 40, 200], " (3 of 4, about 83 s left)"),
        ([10, 400], " (2 of 4, about 10 min left)"),
        ([10, 40, 200, 5], " (4 of 4)"),
    ],
)
def test_the_time_left_is_estimated_from_finished_runs_of_the_same_assets(
    seconds: list[float], said: str
) -> None:
    kinds = [("turns",), ("turn_judgments",), ("turn_judgments",), ("leaderboard",)]
    assert place_of_several(kinds, seconds) == said
    assert place_of_several(kinds[:1], seconds[:1]) == ""


@pytest.mark.parametrize("limit", [None, 1, 40, 70])
def test_a_large_agent_is_judged_in_one_run_for_all_versions_and_its_other_tables_are_computed_by_version(
    limit: int | None,
) -> None:
    sizes = Project.open(REPOSITORY).n_conversations(AGENTS)
    large = {agent for agent, n in sizes.items() if limit and n * len(VERSIONS) > limit}
    assert bool(large) == (limit is not None)
    for _, assets, first, last in planned(limit, 0):
        for agent in large & {agent for agent, _ in pairs_of(first, last)}:
            of_agent = [version for name, version in pairs_of(first, last) if name == agent]
            if "turn_judgments" in assets:
                assert ({*assets}, of_agent) == ({*JUDGING}, VERSIONS)
            else:
                assert len(of_agent) == 1 or len(of_agent) * sizes[agent] <= (limit or 0)


@pytest.mark.parametrize(
    ("n_words", "end"), [(0, "no step reported an error"), (100, "Fix it"), (200, "word …")]
)
def test_the_cause_of_a_failure_is_given_with_its_fix_and_cut_between_words(n_words: int, end: str) -> None:
    @dg.op
    def broken() -> None:
        if n_words:
            raise ValueError("word\n" * n_words + "Fix it.")

    @dg.job
    def job() -> None:
        broken()

    cause = cause_of_failure(job.execute_in_process(raise_on_error=False))
    assert cause.endswith(end)
    assert len(cause) <= LONGEST_WHY
    assert "\n" not in cause
