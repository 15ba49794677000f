"""Grouping by causes agrees with people's categories: the 126 reasons of Who&When, in categories made by hand."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from agent_eval.clusters.cluster_registry import Grown, Space
from agent_eval.clusters.consolidation import consolidate
from agent_eval.clusters.embedding import embedder
from agent_eval.clusters.overrides import apply_overrides, read_overrides, split_id
from tests.clusters.rows import TODAY, grown, told
from tests.clusters.whowhen import CATEGORIES, CAUSES

CATEGORY = {i: name for name, numbers in CATEGORIES.items() for i in numbers}


@pytest.fixture(scope="module")
def space() -> Space:
    model = embedder("wordllama")
    return Space(lambda texts: np.array(model(texts["text"].to_list()), dtype=np.float32), model.radius)


@pytest.fixture(scope="module")
def failures(shared_data: Path) -> pl.DataFrame:
    """The failures with causes for every second one, and the category of each."""
    with gzip.open(shared_data / "whowhen" / "algorithm_generated.jsonl.gz", "rt") as lines:
        reasons = [json.loads(line)["mistake_reason"] for line in lines]
    frame = told(*reasons)
    numbers = range(len(reasons))
    return frame.with_columns(
        cause=pl.Series([CAUSES.get(i) for i in numbers]), category=pl.Series([CATEGORY[i] for i in numbers])
    )


def agreement(failures: pl.DataFrame, result: Grown) -> tuple[float, float]:
    """The adjusted Rand index, and the purity of the ten largest clusters."""
    from sklearn.metrics import adjusted_rand_score

    rows = result.failures.join(failures.select("failure_id", "category"), on="failure_id")
    groups = rows.group_by("cluster_id").agg("category").get_column("category").to_list()
    largest = sorted(groups, key=len, reverse=True)[:10]
    pure = sum(Counter(group).most_common(1)[0][1] for group in largest)
    return adjusted_rand_score(rows["category"], rows["cluster_id"]), pure / sum(map(len, largest))


def test_causes_group_as_people_do_and_reasons_alone_do_so_less(failures: pl.DataFrame, space: Space) -> None:
    index, purity = agreement(failures, grown(failures, space=space))
    without, _ = agreement(failures, grown(failures.with_columns(cause=pl.lit(None, pl.String)), space=space))
    assert index >= 0.45
    assert purity >= 0.85
    assert without < index - 0.1


def test_a_cluster_with_a_cause_is_named_by_one_before_any_quote(
    failures: pl.DataFrame, space: Space
) -> None:
    result = grown(failures, space=space)
    with_cause = result.failures.filter(pl.col("cause").is_not_null())["cluster_id"].unique()
    titles = result.registry.filter(pl.col("cluster_id").is_in(with_cause.implode()))["title"]
    assert [title for title in titles if ": “" in title] == []


def written(placed: pl.DataFrame) -> Iterator[dict[str, object]]:
    """What a person writes: of each category, a text is split off as its home, and the others are moved there."""
    texts = placed.with_columns(text=pl.coalesce("cause", "reason")).unique("text", maintain_order=True)
    for (category,), rows in texts.group_by("category", maintain_order=True):
        name = str(category).replace(" ", "-")
        [first, *others] = rows.select("cluster_id", "text").iter_rows()
        yield {"cluster": first[0], "split": {name: [first[1]]}}
        if others:
            yield {"cluster": split_id(first[0], name), "texts": [text for _, text in others]}


@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_moved_by_people_places_the_rest(failures: pl.DataFrame, space: Space, seed: int) -> None:
    result = grown(failures, space=space)
    labelled = failures.sample(25, seed=seed)
    placed = labelled.join(result.failures.select("failure_id", "cluster_id"), on="failure_id")
    entries, refused = read_overrides("people.yaml", json.dumps([*written(placed)]))
    assert refused == []
    applied = apply_overrides(result.registry, result.members, entries, at=TODAY)
    assert applied.refused == ()
    made = consolidate(applied.registry, applied.members, space, at=TODAY)
    assert "moved" in made.events["kind"].to_list()
    rest = failures.join(labelled, on="failure_id", how="anti")
    index, _ = agreement(rest, grown(rest, Grown(made.registry, made.members, rest), space=space))
    assert index >= 0.35
