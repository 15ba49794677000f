import itertools
import multiprocessing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from agent_eval.clusters.cluster_registry import (
    Grown,
    cluster_id,
    new_texts,
    register,
    rule_title,
    targets,
)
from agent_eval.clusters.failures import failures
from agent_eval.clusters.severity import at_least, severity_of
from agent_eval.clusters.texts import BLOCK
from agent_eval.errors import AgentEvalError
from agent_eval.metrics.metric_set import DEFAULT
from agent_eval.project import Project
from agent_eval.project.clusters import cluster_failures
from agent_eval.tables import table
from tests.clusters.rows import (
    MEMBERS,
    REGISTRY,
    SPACE,
    TODAY,
    UNASKED,
    WORDS,
    calls,
    clusters_of,
    grown,
    judgment,
    judgments,
    named,
    together,
    told,
)


def test_failures_near_to_each_other_share_a_cluster_and_blocks_never_do() -> None:
    of_tools = [told("refund late", label="wrong tool", tool=tool) for tool in ("pay", "book", None)]
    several = told("refund late", "refund invented", "baggage free"), told("refund late", label="repetition")
    result = grown(pl.concat([*several, *of_tools]))
    of_false = result.failures.filter(pl.col("label") == "false information")
    groups = named([("refund late", "refund invented"), ("baggage free",)])
    assert together(Grown(result.registry, result.members, of_false)) == groups
    assert result.failures["cluster_id"].n_unique() == 3 + 3


def test_a_cluster_is_titled_and_explained_by_its_reason() -> None:
    row = grown(told("refund late")).registry.row(0, named=True)
    assert row["title"] == "false information: refund late, e.g. “quote of refund late”"
    assert (row["root_cause"], row["severity"]) == ("refund late", "high")
    assert (row["first_seen"], row["last_seen"], row["merged_into"]) == (TODAY, TODAY, None)


GENERAL = DEFAULT.descriptions["false information"]
QUOTE = "It costs 4 EUR"


@pytest.mark.parametrize(
    ("quote", "cause", "reason", "title"),
    [
        (QUOTE, "The price is\nwrong.", "It is 5.", f"The price is wrong, e.g. “{QUOTE}”"),
        (QUOTE, "wrong " * 19, "", "wrong " * 19),  # no room is left for an example
        ("x" * 500, "The price is wrong.", "", f"The price is wrong, e.g. “{'x' * 97}…”"),
        ("The price is wrong.", "The price is wrong.", "", "The price is wrong."),
        (QUOTE, GENERAL, "", f"“{QUOTE}”"),  # the label says as much
        (QUOTE, GENERAL, "It is 5 EUR. So it is wrong.", f"It is 5 EUR, e.g. “{QUOTE}”"),
        (QUOTE, "", "On 1. May, at 4.5 km, e.g. here. Next.", f"On 1. May, at 4.5 km, e.g. here, e.g. “{QUOTE}”"),
        (QUOTE, "", "Wrong price for the room " * 5, f"{'Wrong price for the room ' * 4}Wrong price for the…"),
        (QUOTE, "", QUOTE, f"“{QUOTE}”"),
        ("It is wrong. It stops.", "", "It is wrong. It stops.", "It is wrong. It stops."),  # the quote is the reason
        ("It is wrong. It stops.", "It is wrong.", "", "It is wrong. It stops."),
        ("It is wrong", "It is wrong and stops.", "", "It is wrong and stops."),
        ("", GENERAL, "", GENERAL),
        ("", "", "It is 5.", "It is 5."),
        ("", "", "", None),
    ],
)  # fmt: skip
def test_a_title_says_what_went_wrong_and_where(
    quote: str, cause: str, reason: str, title: str | None
) -> None:
    name = "false information"
    expected = name if title is None else f"{name}: {title.strip()}"
    assert rule_title(name, None, quote, cause, reason) == expected


def test_a_long_quote_is_cut_to_one_line() -> None:
    title = rule_title("wrong tool", "book", "a\nb " + "x" * 500)
    assert title.startswith("wrong tool · book: “a b xxx")
    assert title.endswith("…”")
    assert len(title) < 150


def test_known_words_keep_their_cluster_and_need_no_model() -> None:
    before = grown(told("refund late", "baggage free"))
    earlier = grown(told("refund late"), before, UNASKED, seen_at=date(2020, 1, 1))
    assert earlier.registry["last_seen"].to_list() == [TODAY, TODAY]  # never moves back
    after = grown(told("baggage free"), before, UNASKED, seen_at=date(2026, 7, 1))
    assert clusters_of(after)["baggage free"] == clusters_of(before)["baggage free"]
    assert sorted(after.registry["last_seen"]) == [TODAY, date(2026, 7, 1)]
    assert_frame_equal(after.members, before.members)


def test_new_words_join_the_cluster_that_they_are_near_to() -> None:
    before = grown(told("refund late", "baggage free"))
    after = grown(told("refund unclear"), before)
    row = after.failures.row(0, named=True)
    assert (row["cluster_id"], row["method"]) == (clusters_of(before)["refund late"], "prototype")
    assert row["distance"] <= SPACE.radius


def test_failures_without_words_are_a_cluster_of_their_block() -> None:
    silent = told("x", "y").with_columns(reason=pl.Series([None, "  "]), quote=pl.lit(None, pl.String))
    result = grown(silent, space=UNASKED)
    found = result.failures.select("cluster_id", "method", "distance", "text_hash").unique()
    assert found.rows() == [(cluster_id("false information", None), "block", 0.0, None)]
    assert result.registry["title"].to_list() == ["false information"]
    assert_frame_equal(grown(silent, result).registry, result.registry)


FROZEN = "E-234f542c60"


def test_ids_are_the_same_on_every_machine() -> None:
    # frozen: a change here would orphan every id that people have written down
    assert cluster_id("wrong tool", None) == "E-02df91d3af"
    assert cluster_id("wrong tool", "book") == "E-986aab779e"
    assert clusters_of(grown(told("refund late")))["refund late"] == FROZEN


def test_an_id_is_not_given_twice_when_its_text_founds_another_cluster() -> None:
    # a registry whose cluster has this id and another founder: the hash is taken, the next one is minted
    taken = {"cluster_id": FROZEN, "label": "false information", "title": "old", "founder": "other"}
    other = {"cluster_id": FROZEN, "label": "repetition", "text_hash": "other", "text": "other"}
    registry = table("error_registry").frame([taken | {"severity": "high"}])
    members = table("error_members").frame([other | {"method": "minted"}])
    result = register(registry, members, told("refund late"), SPACE, seen_at=TODAY)
    assert result.failures["cluster_id"].item() != FROZEN
    assert result.registry.filter(pl.col("cluster_id") == FROZEN)["title"].item() == "old"


def test_a_run_that_died_before_its_members_were_written_mints_the_same_ids() -> None:
    whole = grown(told("refund late"))
    assert_equal(grown(told("refund late"), replace(whole, members=MEMBERS)), whole)


def test_a_merged_cluster_redirects_and_new_failures_follow() -> None:
    first = grown(told("refund late", "baggage free"))
    away, into = clusters_of(first)["refund late"], clusters_of(first)["baggage free"]
    redirected = pl.when(pl.col("cluster_id") == away).then(pl.lit(into)).otherwise("merged_into")
    merged = first.registry.with_columns(merged_into=redirected)
    ids = clusters_of(
        grown(told("refund late", "refund unclear", "flight gone"), replace(first, registry=merged))
    )
    assert (ids["refund late"], ids["refund unclear"]) == (into, into)
    assert ids["flight gone"] not in {away, into}


@pytest.mark.parametrize("chain", [{"a": "b", "b": "a"}, {"a": "nowhere"}, {"a": "a"}])
def test_merges_that_lead_nowhere_are_named(chain: dict[str, str]) -> None:
    registry = table("error_registry").frame(
        {"cluster_id": name, "label": "repetition", "severity": "low", "merged_into": into}
        for name, into in chain.items()
    )
    with pytest.raises(AgentEvalError, match="error_registry: a is merged into"):
        targets(registry)


Texts = list[tuple[str, str, str]]
WORD = st.sampled_from(WORDS)
TEXTS = st.lists(
    st.tuples(WORD, WORD, st.sampled_from(["wrong tool", "repetition"])), min_size=1, max_size=25
)


def of(texts: Texts) -> pl.DataFrame:
    parts = [told(f"{a} {b}", label=label, agent_id=f"a{i}") for i, (a, b, label) in enumerate(texts)]
    return pl.concat(parts)


def assert_equal(one: Grown, other: Grown) -> None:
    for name in ("registry", "members", "failures"):
        assert_frame_equal(getattr(one, name), getattr(other, name))


@pytest.mark.slow
@settings(max_examples=25)
@given(TEXTS, st.randoms())
def test_row_order_does_not_matter(texts: Texts, random: Any) -> None:
    failures = of(texts)
    order = list(range(failures.height))
    random.shuffle(order)
    assert_equal(grown(failures), grown(failures[order]))


@settings(max_examples=25)
@given(TEXTS, TEXTS)
def test_what_arrives_later_moves_no_failure(old: Texts, new: Texts) -> None:
    before = grown(of(old))
    after = grown(of(old + new), before)
    kept = after.failures.join(before.failures, on="failure_id", suffix="_before")
    assert kept["cluster_id"].to_list() == kept["cluster_id_before"].to_list()
    assert set(before.registry["cluster_id"]) <= set(after.registry["cluster_id"])
    assert after.registry["cluster_id"].n_unique() == after.registry.height


@pytest.mark.slow
@settings(max_examples=25)
@given(TEXTS, TEXTS)
def test_new_texts_of_one_agent_after_another_grow_the_registry_that_all_failures_grow(
    old: Texts, new: Texts
) -> None:
    before = grown(of(old[:3]))
    failures = pl.concat([of(old + new), told("", label="repetition")])
    known = before.members.select(*BLOCK, "text_hash")
    reduced = failures.clear()
    for of_agent in failures.partition_by("agent_id"):
        reduced = new_texts(pl.concat([reduced, of_agent]), known)
    assert_equal(grown(failures, grown(reduced, before)), grown(failures, before))


def test_severity_comes_from_the_metric_and_keeps_its_order() -> None:
    asked = ("unsafe action", "wrong tool", "repetition", "off brand")
    assert [severity_of(label) for label in asked] == ["critical", "high", "medium", "medium"]
    clusters = table("error_clusters").frame(
        {"cluster_id": name, "severity": name, "n_turns": n}
        for n, name in enumerate(("low", "critical", "high", "medium"))
    )
    assert at_least(clusters, "high")["severity"].to_list() == ["critical", "high"]
    assert at_least(clusters, "low").height == 4


def _one_partition(root: Path, agent: str) -> None:
    one = judgment("repetition", agent_id=agent)
    rows = judgments(*(one | {"turn_index": i, "rationale": f"{word} again"} for i, word in enumerate(WORDS)))
    cluster_failures(Project.open(root), failures(rows, calls()), run_id=agent)


@pytest.mark.slow
def test_partitions_that_run_at_once_mint_no_duplicates(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_one_partition, args=(tmp_path, agent)) for agent in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    store = Project.open(tmp_path).store
    members, registry = store.read(table("error_members")), store.read(table("error_registry"))
    assert members.height == len(WORDS)
    assert set(members["cluster_id"]) == set(registry["cluster_id"])
    assert registry["founder"].n_unique() == registry.height
    assert all(len(list(group)) == 1 for _, group in itertools.groupby(sorted(registry["cluster_id"])))
    assert REGISTRY.schema == registry.schema


def caused(causes: dict[str, str]) -> pl.DataFrame:
    """Failures with these reasons and their causes."""
    failures = told(*causes)
    return failures.with_columns(cause=pl.col("reason").replace_strict(causes))


def test_failures_are_grouped_by_their_causes_and_named_by_them() -> None:
    reasons = {
        "refund of Ann": "invoice wrong",
        "baggage of Bob": "invoice wrong again",
        "flight": "password told",
    }
    result = grown(caused(reasons))
    assert together(result) == named([["refund of Ann", "baggage of Bob"], ["flight"]])
    titles = {
        title.partition(": ")[2].partition(", e.g. “quote of ")[0] for title in result.registry["title"]
    }
    assert titles == {*result.registry["root_cause"]}
    assert {*result.registry["root_cause"]} <= {*reasons.values()}


def test_a_failure_keeps_its_cluster_when_its_cause_becomes_known() -> None:
    before = grown(told("refund late", "baggage free"))
    after = grown(caused({"refund late": "password told", "flight": "password told"}), before)
    clusters = clusters_of(after)
    assert clusters["refund late"] == clusters_of(before)["refund late"]
    assert clusters["flight"] not in clusters_of(before).values()


@pytest.mark.parametrize("blank", ["", "  ", "…", "\n"])
def test_a_cause_without_words_is_none(blank: str) -> None:
    result = grown(caused({"refund late": blank, "baggage free": blank}))
    assert together(result) == named([["refund late"], ["baggage free"]])
    assert result.members["cause"].null_count() == 2
