"""Clusters, ids, names and severities depend on the runs, not on the order or the parts in which they are registered."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.clusters.cluster_registry import Grown, new_texts, targets
from agent_eval.clusters.consolidation import consolidate
from agent_eval.clusters.failures import with_run_key
from agent_eval.clusters.naming import Case, ClusterNames, Name, Namer, name_clusters
from agent_eval.clusters.overrides import apply_overrides, read_overrides
from agent_eval.formats.hashing import digest
from agent_eval.tables import table
from agent_eval.tables.vocabularies import SEVERITY
from tests.clusters.rows import MEMBERS, REGISTRY, SPACE, TODAY, WORDS, clusters_of, grown, told

HISTORY = ["first_seen", "last_seen", "merged_into", "merged_by", "n_texts_named"]
"""Columns of the registry that say what was done when."""


def in_run(key: str, *reasons: str, agent_id: str = "a") -> pl.DataFrame:
    failures = told(*reasons, agent_id=f"{key} {agent_id}")
    return failures.with_columns(run_key=pl.lit(key))


def by_content(cases: Sequence[Case]) -> ClusterNames:
    """A model whose answer follows from all that it is shown."""
    shown = {case.cluster_id: digest(repr(case)) for case in cases}
    return ClusterNames(
        {c: Name(f"T {s}", f"C {s}", SEVERITY.categories[int(s[0], 16) % 4]) for c, s in shown.items()}
    )


def after(parts: Sequence[pl.DataFrame]) -> Grown:
    """The tables after these parts were registered and named, each in a process of its own."""
    state, everything = Grown(REGISTRY, MEMBERS, parts[0].clear()), parts[0].clear()
    for part in parts:
        everything = pl.concat([everything, part])
        state = grown(part, state)
        named = name_clusters(state.registry, state.members, SPACE, Namer("mock", by_content), at=TODAY)
        state = Grown(named.registry, state.members, part)
    return grown(everything, state)


def living_rows(registry: pl.DataFrame) -> pl.DataFrame:
    return registry.filter(pl.col("merged_into").is_null()).drop(HISTORY)


def assert_same(one: Grown, other: Grown) -> None:
    assert_frame_equal(living_rows(one.registry), living_rows(other.registry))
    assert_frame_equal(one.members, other.members)
    assert_frame_equal(one.failures, other.failures, check_row_order=False)


SAID = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS)), min_size=1, max_size=8)
RUNS = st.lists(
    st.tuples(st.sampled_from(["2026-01-01", "2026-01-02", "2026-01-03"]), SAID), min_size=2, max_size=5
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(RUNS, st.randoms())
def test_the_order_of_runs_does_not_matter(
    runs: list[tuple[str, list[tuple[str, str]]]], random: Any
) -> None:
    parts = [
        in_run(day, *(" ".join(said) for said in texts), agent_id=str(i))
        for i, (day, texts) in enumerate(runs)
    ]
    whole = after([pl.concat(parts)])
    for order in (sorted(range(len(parts)), key=lambda _: random.random()) for _ in range(2)):
        assert_same(after([parts[i] for i in order]), whole)
    known, reduced = MEMBERS, parts[0].clear()
    for part in parts:
        reduced = new_texts(pl.concat([reduced, part]), known)
    assert_frame_equal(grown(reduced).members, whole.members)


def test_an_id_of_a_later_run_leads_to_where_its_text_went_and_comes_back_with_it() -> None:
    late, early = in_run("2", "refund flight"), in_run("1", "refund")
    first = grown(late)
    old = clusters_of(first)["refund flight"]
    both = grown(early, first)
    assert clusters_of(grown(late, both))["refund flight"] == clusters_of(both)["refund"]
    assert targets(both.registry)[old] == clusters_of(both)["refund"]
    assert both.events.select("kind", "cluster_id", "other_id", "by").rows() == [
        ("moved", old, clusters_of(both)["refund"], "regrouping")
    ]
    again = grown(in_run("0", "flight"), both)
    whole = grown(pl.concat([in_run("0", "flight"), early, late]))
    assert_frame_equal(again.members, whole.members)
    assert set(targets(again.registry).values()) == {*whole.registry["cluster_id"]}


LATER = ("refund late", "baggage free", "refund flight")


@pytest.mark.parametrize("splits", [False, True])
def test_what_people_decided_stays_when_an_earlier_run_is_added(splits: bool) -> None:
    first = grown(in_run("2", *LATER))
    ids = clusters_of(first)
    text = (
        f"- {{cluster: {ids['baggage free']}, merge_into: {ids['refund late']}, severity: critical}}\n"
        f"- {{cluster: {ids['refund late']}, title: Ours}}\n"
    )
    if splits:
        text += f"- {{cluster: {ids['refund late']}, split: {{odd: [refund flight]}}}}\n"
    entries, refused = read_overrides("p.yaml", text)
    state = apply_overrides(first.registry, first.members, entries, at=TODAY)
    for early in (in_run("1", "refund", "baggage"), in_run("0", "refund password")):
        late = grown(early, Grown(state.registry, state.members, first.failures))
        state = apply_overrides(late.registry, late.members, entries, at=TODAY)
        assert (refused, state.refused) == ([], ())
        now = clusters_of(grown(in_run("2", *LATER), Grown(state.registry, state.members, first.failures)))
        assert now["baggage free"] == now["refund late"]
        assert (now["refund late"] == now["refund flight"]) is not splits
        row = state.registry.row(by_predicate=pl.col("cluster_id") == now["refund late"], named=True)
        assert row["title"] == "Ours"


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_thirty_nights_move_no_id(order: tuple[int, ...]) -> None:
    nights = [
        in_run(f"2026-01-{n:02}", *(f"{w} {WORDS[n % 8]} {'so ' * (n % 5)}" for w in WORDS))
        for n in range(1, 31)
    ]
    state = grown(nights[0])
    ids = clusters_of(state)
    for night in nights[1:]:
        parts = night.with_row_index("i").with_columns(pl.col("i") % 3)
        for i in order:
            part = parts.filter(pl.col("i") == i).drop("i")
            state = grown(part, state)
        state = grown(night, state)
    kept = clusters_of(grown(nights[0], state))
    assert kept == ids


def test_runs_are_ordered_by_date_and_then_by_benchmark_with_its_numbers() -> None:
    names = {"n10": None, "n9": None, "a": "2026-01-02", "b": "2026-01-01"}
    key = {"methodology_version": "1.3.0", "agent_id": "a"}
    rows = [
        key
        | {
            "conversation_id": n,
            "session_id": n,
            "benchmark_id": n,
            "n_turns": 1,
            "tests": [],
            "is_admitted": True,
        }
        for n in names
    ]
    sessions = [
        {
            "agent_id": "a",
            "session_id": n,
            "benchmark_id": n,
            "session_date": d,
            "methodology_versions": ["any"],
        }
        for n, d in names.items()
    ]
    failures = pl.DataFrame([key | {"conversation_id": n} for n in [*names, "unknown"]])
    keyed = with_run_key(failures, table("transcripts").frame(rows), table("sessions").frame(sessions))
    assert keyed.sort("run_key")["conversation_id"].to_list() == ["unknown", "n9", "n10", "b", "a"]


def test_a_split_by_consolidation_stays_when_an_earlier_run_is_added() -> None:
    words = [f"refund {'so ' * i}{'flight' if i % 2 else 'invoice'}" for i in range(12)]
    first = grown(in_run("2", *words))
    made = consolidate(first.registry, first.members, SPACE, at=TODAY)
    late = grown(in_run("1", "refund password"), Grown(made.registry, made.members, first.failures))
    split = made.members.filter(pl.col("method") == "consolidation")
    kept = late.members.join(split, on=["text_hash", "cluster_id"], how="semi")
    assert kept.height == split.height
