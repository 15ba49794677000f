"""Units of trends: sessions and task families are the clusters, against Welch's t of their rates and by hand."""

from collections.abc import Mapping

import polars as pl
import pytest
from scipy import stats

from agent_eval.clusters.rates import error_rates, runs
from agent_eval.clusters.trends import compared, earlier_runs
from agent_eval.tables import table
from tests.clusters.rows import BEHAVIOUR, PLACE, judgment, judgments
from tests.clusters.test_trends import REGISTRY, RUN, seen_on, trends

Units = Mapping[str, tuple[int, int]]
"""Name of a unit → its turns with the failure, and its eligible turns."""


def side(agent_id: str, units: Units, unit: str | None = "session", run: str | None = None) -> pl.DataFrame:
    """One run, whose conversations have one turn each."""
    failing = {u: k for u, (k, _) in units.items() if k}
    rows = []
    for cluster, turns in ((None, {u: n for u, (_, n) in units.items()}), ("E-1", failing)):
        total = sum(turns.values())
        row = RUN | {
            "agent_id": agent_id,
            "benchmark_id": run or agent_id,
            "unit": unit,
            "cluster_id": cluster,
        }
        row |= {"sum_products": total} if cluster else {"n_conversations": total}
        row |= {"units": list(turns), "unit_turns": list(turns.values())} if unit else {}
        rows.append(row | {"n_turns": total, "sum_squares": total})
    return table("error_rates").frame(rows)


def trend(*sides: pl.DataFrame) -> dict[str, object]:
    return trends(*sides).row(0, named=True)


def test_sessions_of_one_size_are_compared_by_welchs_t_of_their_rates() -> None:
    here: Units = {"s1": (40, 100), "s2": (10, 100), "s3": (25, 100), "s4": (33, 100)}
    there: Units = {"t1": (5, 100), "t2": (30, 100), "t3": (12, 100)}
    found = trend(side("new", here), side("old", there))
    shares = ([k / n for k, n in units.values()] for units in (here, there))
    expected = stats.ttest_ind(*shares, equal_var=False)
    assert found["unit"] == "session"
    assert found["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    over_conversations = trend(side("new", here, None), side("old", there, None))
    assert over_conversations["unit"] == "conversation"
    assert float(str(over_conversations["p_value"])) < 0.01 < expected.pvalue
    assert float(str(found["rate_low"])) < float(str(over_conversations["rate_low"]))


def test_sessions_that_do_not_differ_are_worth_their_turns() -> None:
    # each has the rate of its side: the variance is the binomial one, z = 0.2 / sqrt(0.3 × 0.7 × 2 / 200)
    here, there = (dict.fromkeys(("s1", "s2"), (k, 100)) for k in (40, 20))
    found = trend(side("new", here), side("old", there))
    p = 2 * stats.t(2).sf(0.2 / (0.3 * 0.7 * 2 / 200) ** 0.5)
    assert (found["design_effect"], found["p_value"]) == (1.0, pytest.approx(p, rel=1e-9))


def test_one_session_leaves_conversations_as_units() -> None:
    found = trend(side("new", {"s1": (30, 100)}), side("old", {"t1": (5, 100), "t2": (5, 100)}))
    assert (found["unit"], found["reason"]) == ("conversation", None)
    assert found["is_significant"]


def test_a_family_is_one_unit_in_all_runs() -> None:
    # two runs with the same three families are three units, not six
    here: Units = {"f1": (20, 50), "f2": (5, 50), "f3": (12, 50)}
    there: Units = {"f1": (4, 100), "f2": (10, 100), "f3": (30, 100)}
    twice = [side("new", here, "task_family", run) for run in ("r1", "r2")]
    found = trend(*twice, side("old", there, "task_family"))
    expected = stats.ttest_ind([0.4, 0.1, 0.24], [0.04, 0.1, 0.3], equal_var=False)
    assert found["unit"] == "task_family"
    assert found["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)


def test_one_family_is_too_few_and_the_trend_is_unknown_with_the_reason() -> None:
    found = trend(
        side("new", {"f1": (90, 100)}, "task_family"), side("old", {"f1": (1, 50), "f2": (0, 50)}, "task_family")
    )  # fmt: skip
    assert (found["p_value"], found["trend"]) == (None, "unknown")
    assert found["reason"] == "too few task families: 1 and 2, 2 of each are needed"


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ({"s1": (0, 10), "s2": (0, 10)}, {"t1": (1, 5), "t2": (0, 5)}),
        ({"s1": (10, 10), "s2": (10, 10)}, {"t1": (5, 5), "t2": (5, 5)}),
        ({"s1": (1, 10**6), "s2": (0, 1)}, {"t1": (1, 1), "t2": (0, 1)}),
    ],
)
def test_extreme_units_have_chances_and_bounds(here: Units, there: Units) -> None:
    found = trend(side("new", here), side("old", there))
    assert 0 <= float(str(found["p_value"])) <= 1
    for prefix in ("", "baseline_"):
        low, high = (float(str(found[f"{prefix}rate_{end}"])) for end in ("low", "high"))
        assert 0 <= low <= float(str(found[f"{prefix}rate_per_100_turns"])) <= high + 1e-9 <= 100 + 1e-9


@pytest.mark.parametrize(
    ("families", "unit", "units", "turns"),
    [((None, "f"), "session", ["s1", "s2"], [2, 1]), (("g", "f"), "task_family", ["f", "g"], [1, 2])],
)
def test_the_turns_of_each_unit_are_stored(
    families: tuple[str | None, str], unit: str, units: list[str], turns: list[int]
) -> None:
    rows = judgments(
        *(judgment("repetition", conversation_id="c1", turn_index=t) for t in range(2)),
        judgment("no failure", conversation_id="c2"),
    )
    held = [{"agent_id": "a", "session_id": f"s{i}", "benchmark_id": "r"} for i in (1, 2)]
    sessions = table("sessions").frame(held)
    transcripts = table("transcripts").frame(
        PLACE | row | {"conversation_id": f"c{i}", "is_admitted": True, "task_family": family}
        for i, (row, family) in enumerate(zip(held, families, strict=True), start=1)
    )
    made = error_rates(
        seen_on(("c1", 0), ("c1", 1)),
        rows,
        runs(transcripts, sessions),
        REGISTRY,
        table("error_rates").empty(),
    )
    of_metric = made.filter(pl.col("metrics") == BEHAVIOUR).sort("cluster_id", nulls_last=False)
    (total, cluster) = of_metric.select("unit", "units", "unit_turns").rows()
    assert total == (unit, units, turns)
    assert cluster == (unit, ["s1"] if unit == "session" else ["g"], [2])
    assert compared(made, earlier_runs(made), REGISTRY).is_empty()
