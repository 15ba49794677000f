from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from agent_eval.clusters.naming import Case
from agent_eval.clusters.taxonomies.taxonomy import (
    NONE,
    PACKAGED,
    Categoriser,
    Taxonomy,
    categorised,
    failure_labels,
    read_taxonomy,
)
from agent_eval.errors import ConfigurationError
from agent_eval.judge.clusters.category import categories_of
from agent_eval.judge.llm.client import Reply
from tests.clusters.rows import SPACE, UNASKED, grown, told
from tests.judge.fakes import USAGE, Kept, ScriptedClient, panel_of
from tests.judge.material import nothing

HERE = Path()
FIRST = grown(
    pl.concat(
        [
            told("refund late", "baggage free"),
            told("said twice", label="repetition"),
            told("x", label="stuck loop"),
        ]
    )
)
OWN = """\
title: Ours
categories:
  facts: {meaning: It is wrong.}
  style: {meaning: It is said badly.}
  loops: {meaning: It goes on.}
crosswalk:
  false information: [facts, style]
  repetition: style
"""


class Sorter:
    """A judge that gives every cluster the last candidate, or what it is told, and remembers the clusters."""

    def __init__(self, answer: str | None = None) -> None:
        self.answer, self.asked = answer, list[str]()

    def __call__(
        self, cases: Sequence[Case], candidates: Mapping[str, Mapping[str, str]]
    ) -> Mapping[str, str]:
        self.asked += sorted(case.label for case in cases)
        assert not any(case.near_misses for case in cases)
        return {case.cluster_id: self.answer or [*candidates[case.cluster_id]][-1] for case in cases}


def own(tmp_path: Path, text: str = OWN) -> Taxonomy:
    (tmp_path / "own.yaml").write_text(text)
    taxonomy = read_taxonomy("own.yaml", tmp_path)
    assert taxonomy is not None
    return taxonomy


def by_label(registry: pl.DataFrame) -> dict[str, tuple[str | None, str | None]]:
    rows = registry.select("label", "category", "category_by").iter_rows()
    return {label: (category, by) for label, category, by in rows}


@pytest.mark.parametrize("name", PACKAGED)
def test_a_published_taxonomy_has_a_source_and_a_category_for_every_label(name: str) -> None:
    taxonomy = read_taxonomy(name, HERE)
    assert taxonomy is not None
    assert [label for label in failure_labels() if taxonomy.usual(label) is None] == []
    assert all(taxonomy.group(category) for category in taxonomy.categories)
    assert "arXiv:" in (Path(__file__).parents[2] / f"agent_eval/clusters/taxonomies/{name}.yaml").read_text()


def test_a_judge_is_asked_once_and_only_where_the_crosswalk_leaves_several(tmp_path: Path) -> None:
    taxonomy, sorter = own(tmp_path), Sorter()
    plain = categorised(FIRST.registry, FIRST.members, UNASKED, taxonomy)
    crosswalk = {"false information": ("facts", "crosswalk"), "repetition": ("style", "crosswalk")}
    assert by_label(plain) == crosswalk | {"stuck loop": (None, None)}
    judged = categorised(plain, FIRST.members, SPACE, taxonomy, Categoriser("m", sorter))
    assert sorter.asked == ["false information", "false information", "stuck loop"]
    of_judge = crosswalk | {"false information": ("style", "m"), "stuck loop": ("loops", "m")}
    assert by_label(judged) == of_judge
    for categoriser in (Categoriser("m", Sorter()), None):  # asked already, and without a judge
        assert_frame_equal(categorised(judged, FIRST.members, UNASKED, taxonomy, categoriser), judged)
    changed, again = own(tmp_path, OWN.replace("It goes on", "It never ends")), Sorter(NONE)
    assert changed.version != taxonomy.version
    asked = categorised(judged, FIRST.members, SPACE, changed, Categoriser("m", again))
    assert again.asked == ["stuck loop"]
    assert by_label(asked) == of_judge | {"stuck loop": (None, "m")}
    none = by_label(categorised(asked, FIRST.members, UNASKED, None))
    assert set(none.values()) == {(None, None)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (OWN.replace("repetition:", "repetitoin:"), "own.yaml:8: crosswalk: 'repetitoin' is not a failure label"),
        (OWN.replace("[facts, style]", "[fact]"), "own.yaml:7: crosswalk.false information: 'fact' is not a category"),
        (OWN.replace("  style:", f"  {NONE}:"), "own.yaml:4: categories"),
        (OWN.replace("meaning: It goes on.", "means: It goes on."), "own.yaml:5: categories.loops"),
        (OWN.replace("title: Ours\n", ""), "own.yaml:1: title"),
        (OWN.replace("  style:", "  'facts ':").replace("style", "facts"), "own.yaml:4: categories"),
        (OWN.replace("  style:", '  "a\\nb":'), "has control characters, line breaks, or blanks at its ends"),
        (OWN.replace("  repetition", "  ' false information '"), "own.yaml:8: crosswalk"),
        ("title: T\ncategories:\n  a: {meaning: b}\n", "own.yaml:2: categories has 1; at least 2 entries are needed"),
        ("- facts", "is not a mapping"),
        ("a: [", "own.yaml:"),
    ],
)  # fmt: skip
def test_an_invalid_taxonomy_is_named_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        own(tmp_path, text)
    assert problem in str(error.value)


@pytest.mark.parametrize("name", ["mats", "gone.yaml"])
def test_an_unknown_taxonomy_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        read_taxonomy(name, tmp_path)
    assert read_taxonomy("labels", tmp_path) is None


def test_a_model_is_asked_with_the_candidates_once_and_an_unknown_category_is_not_taken() -> None:
    cases = [Case(f"E-{i}", "false information", None, ()) for i in range(7)]
    candidates = {case.cluster_id: {"facts": "It is wrong."} for case in cases}
    said = Reply("{" + ", ".join(f'"E-{i}": "{"facts" if i else "made up"}"' for i in range(7)) + "}", USAGE)
    client, kept = ScriptedClient(always=said), Kept()
    found = categories_of(cases, candidates, panel_of(client, kept=kept), nothing)
    assert found == {case.cluster_id: "facts" for case in cases[1:]}
    assert len(client.asked) == 2
    assert "- facts: It is wrong." in str(client.asked[0].messages[0]["content"])
    other = {**candidates, "E-3": {"facts": "It is false."}}
    again = ScriptedClient(always=said)
    stored = kept.frame()
    categories_of(cases[1:], other, panel_of(again), lambda _: stored)
    assert [[m.name for m in prompt.metrics] for prompt in again.asked] == [["E-3"]]
