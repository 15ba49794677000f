from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.clusters.failures import failures
from agent_eval.clusters.registry import SEVERITY_BY_LABEL, cluster_id, register
from agent_eval.errors import AgentEvalError
from agent_eval.tables import table
from tests.clusters.rows import TOOL, call, calls, judgment, judgments

EMPTY = table("error_registry").empty()


def found(*labels: tuple[str, int]) -> pl.DataFrame:
    """Failures of the agent; those of even turns concern the tool `book`."""
    rows = [judgment(label, TOOL, turn_index=turn) for label, turn in labels]
    return failures(judgments(*rows), calls(*(call("book", turn) for _, turn in labels if turn % 2 == 0)))


def registered(*rows: dict[str, Any]) -> pl.DataFrame:
    return table("error_registry").frame(rows)


def row(label: str, tool: str | None = None, **more: Any) -> dict[str, Any]:
    seen = {"first_seen": "2026-01-01", "last_seen": "2026-01-02"}
    named = {"cluster_id": cluster_id(label, tool), "label": label, "tool": tool}
    return {**named, "severity": "low", "title": label, **seen, **more}


def test_a_label_with_its_tool_is_one_cluster() -> None:
    registry, assigned = register(
        EMPTY, found(("wrong tool", 0), ("wrong tool", 2), ("wrong tool", 1)), seen_at="2026-05-01"
    )
    with_tool, without = cluster_id("wrong tool", "book"), cluster_id("wrong tool", None)
    assert assigned["cluster_id"].to_list() == [with_tool, without, with_tool]
    assert assigned.select("distance", "method").unique().rows() == [(0.0, "block")]
    described = registry.sort("title").select("cluster_id", "title", "severity", "first_seen", "last_seen")
    assert described.rows() == [
        (without, "wrong tool", "high", "2026-05-01", "2026-05-01"),
        (with_tool, "wrong tool · book", "high", "2026-05-01", "2026-05-01"),
    ]


def test_ids_are_the_same_on_every_machine() -> None:
    # frozen: a change here would orphan every id that people have written down
    assert cluster_id("wrong tool", None) == "E-02df91d3af"
    assert cluster_id("wrong tool", "book") == "E-986aab779e"


def test_new_failures_move_last_seen_only() -> None:
    first, _ = register(EMPTY, found(("wrong tool", 0)), seen_at="2026-05-01")
    second, _ = register(first, found(("wrong tool", 0), ("repeated tool call", 2)), seen_at="2026-06-01")
    kept = second.filter(cluster_id=cluster_id("wrong tool", "book"))
    assert kept.select("first_seen", "last_seen").rows() == [("2026-05-01", "2026-06-01")]
    assert second.height == 2
    replayed, _ = register(second, found(("wrong tool", 0)), seen_at="2026-05-15")
    assert_frame_equal(replayed, second)


def test_a_cluster_that_is_not_seen_stays_as_it_was() -> None:
    before = registered(row("unsafe state"))
    after, _ = register(before, found(), seen_at="2026-06-01")
    assert_frame_equal(after, before)


def test_what_a_person_wrote_stays() -> None:
    written = row("wrong tool", severity="critical", title="books twice", root_cause="no idempotency key")
    after, _ = register(registered(written), found(("wrong tool", 1)), seen_at="2026-06-01")
    columns = ("severity", "title", "root_cause", "first_seen", "last_seen")
    assert after.select(columns).rows() == [
        ("critical", "books twice", "no idempotency key", "2026-01-01", "2026-06-01")
    ]


def test_merged_clusters_redirect_to_the_last_one() -> None:
    chain = registered(
        row("wrong tool", merged_into=cluster_id("wrong arguments", None)),
        row("wrong arguments", merged_into="E-human"),
        row("bad booking", cluster_id="E-human"),
    )
    after, assigned = register(chain, found(("wrong tool", 1)), seen_at="2026-06-01")
    assert assigned["cluster_id"].to_list() == ["E-human"]
    assert after.height == 3
    last_seen = dict(after.select("cluster_id", "last_seen").iter_rows())
    assert last_seen["E-human"] == "2026-06-01"
    assert last_seen[cluster_id("wrong tool", None)] == "2026-01-02"


@pytest.mark.parametrize(
    ("target", "problem"), [("E-nowhere", "not in the registry"), (None, "leads back to itself")]
)
def test_a_redirect_that_leads_nowhere_is_named(target: str | None, problem: str) -> None:
    own = cluster_id("wrong tool", None)
    circle = registered(
        row("wrong tool", merged_into=target or "E-2"), row("x", cluster_id="E-2", merged_into=own)
    )
    with pytest.raises(AgentEvalError, match=problem):
        register(circle, found(("wrong tool", 1)), seen_at="2026-06-01")


def test_a_label_that_we_do_not_know_is_kept() -> None:
    registry, assigned = register(EMPTY, found(("went silent", 1)), seen_at="2026-06-01")
    assert registry["severity"].to_list() == ["medium"]
    assert assigned["cluster_id"].to_list() == [cluster_id("went silent", None)]


def test_severities_are_on_the_scale_of_the_registry() -> None:
    severity = next(c for c in table("error_registry").columns if c.name == "severity")
    assert severity.meaning == "low < medium < high < critical"
    assert set(SEVERITY_BY_LABEL.values()) <= set(severity.meaning.split(" < "))


LABELLED = st.lists(
    st.tuples(st.sampled_from(sorted(SEVERITY_BY_LABEL)), st.integers(0, 5)), unique=True, max_size=8
)


@given(LABELLED, st.integers(0, 8), st.randoms(use_true_random=False))
def test_order_of_rows_and_of_arrival_does_not_matter(
    labelled: list[tuple[str, int]], cut: int, random: Any
) -> None:
    everything = found(*labelled)
    registry, assigned = register(EMPTY, everything, seen_at="t")
    shuffled = everything.sample(fraction=1, shuffle=True, seed=random.randrange(1000))
    again, assigned_again = register(registry[::-1], shuffled, seen_at="t")
    assert_frame_equal(again, registry)
    assert_frame_equal(assigned_again, assigned)
    # in two parts: the second part keeps the ids of the first
    grown, _ = register(EMPTY, shuffled.head(cut), seen_at="t")
    in_parts, _ = register(grown, shuffled.tail(max(0, shuffled.height - cut)), seen_at="t")
    assert_frame_equal(in_parts, registry)
