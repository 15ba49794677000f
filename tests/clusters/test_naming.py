from collections.abc import Sequence

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.clusters.cluster_registry import targets
from agent_eval.clusters.consolidation import event, events_frame
from agent_eval.clusters.naming import (
    Case,
    ClusterNames,
    Name,
    Named,
    Namer,
    merge_proposed,
    name_clusters,
    open_proposals,
)
from agent_eval.clusters.overrides import OverrideEntry, apply_overrides, read_overrides
from tests.clusters.rows import SPACE, TODAY, clusters_of, grown, told

FIRST = grown(told("refund late", "refund invented", "baggage free", "flight gone"))
IDS = sorted(set(clusters_of(FIRST).values()))


class Listening:
    """A namer that answers as told, by default well, and remembers what it was shown."""

    def __init__(self, *, lost: str = "", **said: str) -> None:
        self.lost, self.said = lost, said
        self.shown: list[Case] = []

    def __call__(self, cases: Sequence[Case]) -> ClusterNames:
        self.shown += cases
        ids = [case.cluster_id for case in cases]
        if self.lost:
            return ClusterNames(lost=dict.fromkeys(ids, self.lost))
        facts = {"root_cause": "why", "severity": "medium", **self.said}
        return ClusterNames({name: Name(f"Title {name}", **facts) for name in ids})


def run(namer: Listening, registry: pl.DataFrame = FIRST.registry, model: str = "mock") -> Named:
    return name_clusters(registry, FIRST.members, SPACE, Namer(model, namer), at=TODAY)


def test_new_clusters_are_named_once_by_each_model() -> None:
    named = run(Listening())
    assert sorted(named.registry["title"]) == [f"Title {name}" for name in IDS]
    assert set(named.registry["severity"]) == {"high"}  # the rule's, which is graver
    again = Listening()
    assert_frame_equal(run(again, named.registry).registry, named.registry)
    assert again.shown == []
    other = Listening()
    run(other, named.registry, model="another")
    assert [case.cluster_id for case in other.shown] == IDS


def test_a_models_severity_counts_where_it_is_graver() -> None:
    assert set(run(Listening(severity="critical")).registry["severity"]) == {"critical"}


def test_a_cluster_is_named_again_when_its_texts_have_doubled() -> None:
    named = run(Listening())
    more = grown(
        told("refund late", "refund unclear", "refund gone"),
        type(FIRST)(named.registry, FIRST.members, FIRST.failures),
    )
    namer = Listening()
    name_clusters(more.registry, more.members, SPACE, Namer("mock", namer), at=TODAY)
    assert [case.cluster_id for case in namer.shown] == [clusters_of(FIRST)["refund late"]]


def test_a_name_that_does_not_come_leaves_the_rules_and_says_why_until_it_comes() -> None:
    lost = run(Listening(lost="judge_error: no connection")).registry
    unsaid = lost.with_columns(naming_problem=pl.lit(None, dtype=pl.String))
    assert_frame_equal(unsaid, FIRST.registry)
    assert set(lost["naming_problem"]) == {"judge_error: no connection"}
    named = run(Listening(), lost).registry
    assert named["naming_problem"].null_count() == len(IDS)
    assert sorted(named["title"]) == [f"Title {name}" for name in IDS]


def test_a_proposed_merge_moves_nothing() -> None:
    named = run(Listening(merge_into=IDS[0]))
    assert named.registry["merged_into"].null_count() == named.registry.height
    proposed = named.events.select("kind", "cluster_id", "other_id", "by", "reason")
    assert ("merge proposed", IDS[1], IDS[0], "mock", "why") in proposed.rows()


def test_a_case_shows_eight_members_and_four_near_misses_of_its_block() -> None:
    many = grown(
        told(*(f"refund {'so ' * i}" for i in range(12)), *(f"flight {'so ' * i}" for i in range(9)))
    )
    elsewhere = grown(told("refund elsewhere", label="unsafe action"), many)
    namer = Listening()
    name_clusters(elsewhere.registry, elsewhere.members, SPACE, Namer("mock", namer), at=TODAY)
    counts = {
        case.label: [(len(c.members), len(c.near_misses)) for c in namer.shown if c.label == case.label]
        for case in namer.shown
    }
    assert counts == {"false information": [(8, 4), (8, 4)], "unsafe action": [(1, 0)]}
    [one, two] = [case for case in namer.shown if case.label == "false information"]
    assert (one.neighbours, two.neighbours) == ((two.cluster_id,), (one.cluster_id,))


def proposals(*pairs: tuple[str, str]) -> pl.DataFrame:
    return events_frame([event("merge proposed", a, b, "mock", "one cause", TODAY) for a, b in pairs])


@pytest.mark.parametrize(
    ("pairs", "is_open"),
    [
        ([(0, 1)], [0]),
        ([(0, 1), (1, 2)], [0, 1]),  # a chain ends in the last
        ([(0, 1), (1, 0)], [0]),  # a circle is opened
        ([(0, 1), (1, 2), (2, 0)], [0, 1]),
        ([(0, 0)], []),
        ([(0, 9), (9, 0)], []),  # unknown clusters
    ],
)
def test_proposals_are_open_until_they_lead_nowhere(pairs: list[tuple[int, int]], is_open: list[int]) -> None:
    ids = dict(enumerate(IDS)) | {9: "E-0000000000"}
    events = proposals(*((ids[a], ids[b]) for a, b in pairs))
    found = open_proposals(events, FIRST.registry)
    assert found["cluster_id"].to_list() == [ids[i] for i in is_open]
    merged = merge_proposed(FIRST.registry, events, (), at=TODAY)
    assert targets(merged.registry)  # no circle
    assert merged.events["kind"].to_list() == ["merge"] * len(is_open)
    assert open_proposals(events, merged.registry).is_empty()
    kept = merge_proposed(FIRST.registry, events, IDS, at=TODAY)
    assert_frame_equal(kept.registry, FIRST.registry)
    undone = apply_overrides(merged.registry, FIRST.members, separating(*IDS), at=TODAY).registry
    assert undone["merged_into"].null_count() == undone.height


def separating(*clusters: str) -> list[OverrideEntry]:
    return read_overrides("p.yaml", "".join(f"- {{cluster: {c}, merge_into: null}}\n" for c in clusters))[0]
