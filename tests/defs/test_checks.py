"""Broken rows do not reach the store, and the check of the asset says which they are."""

import dagster as dg
import polars as pl
import pytest

from agent_eval.definitions import defs
from agent_eval.defs.checks import check_specs, checked
from agent_eval.tables import table

PAIR = {"methodology_version": "1.3.0", "agent_id": "a"}
PARTITION = pl.DataFrame([PAIR])
JUDGMENT = PAIR | {
    "conversation_id": "c",
    "turn_index": 0,
    "metric": "helpfulness",
    "judge": "m",
    "status": "scored",
    "is_effective": True,
    "rating_1to5": 4,
}
TURNS = table("turns").frame([{"agent_id": "a", "conversation_id": "c", "turn_index": 0}])


def outcome(
    name: str, frame: pl.DataFrame, **others: pl.DataFrame
) -> tuple[dict[str, bool], pl.DataFrame | None]:
    """Check → passed, and the rows that would be stored; None when nothing would."""
    results: dict[str, bool] = {}
    rows = None
    try:
        for event in checked(name, frame, PARTITION, others, output=name):
            if isinstance(event, dg.AssetCheckResult):
                assert event.check_name is not None
                results[event.check_name] = event.passed
            else:
                rows = event.value
    except dg.Failure:
        assert rows is None
    return results, rows


def test_good_rows_pass_every_check_and_are_stored() -> None:
    frame = table("turn_judgments").frame([JUDGMENT])
    results, rows = outcome("turn_judgments", frame, turns=TURNS)
    assert results == {
        "keeps_contract": True,
        "one_methodology": True,
        "on_scale": True,
        "no_orphans": True,
        "nothing_set_aside": True,
    }
    assert rows is not None
    assert rows.equals(frame)


def test_a_rating_off_the_scale_is_set_aside_with_a_warning_and_stops_nobody() -> None:
    frame = table("turn_judgments").frame([JUDGMENT | {"rating_1to5": 6}])
    results, rows = outcome("turn_judgments", frame, turns=TURNS)
    assert [name for name, passed in results.items() if not passed] == ["nothing_set_aside"]
    assert rows is not None
    assert rows.select("status", "rating_1to5").row(0) == ("invalid", None)


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"methodology_version": "1.2.0"}, "one_methodology"),
        ({"turn_index": 7}, "no_orphans"),
    ],
)
def test_a_defect_of_ours_is_blocked(changes: dict[str, object], failed: str) -> None:
    results, rows = outcome(
        "turn_judgments", table("turn_judgments").frame([JUDGMENT | changes]), turns=TURNS
    )
    assert [name for name, passed in results.items() if not passed] == [failed]
    assert rows is None


def test_a_score_off_the_scale_is_blocked() -> None:
    frame = table("universal_scores").frame(
        [PAIR | {"n_sessions": 1, "n_unscored": 0, "judges": [], "missing": [], "universal_0to100": 101.0}]
    )
    results, rows = outcome("universal_scores", frame)
    assert not results["on_scale"]
    assert rows is None


def test_a_frame_that_breaks_the_contract_fails_that_check_and_is_not_stored() -> None:
    results, rows = outcome("universal_scores", pl.DataFrame({"x": [1]}))
    assert results == {"keeps_contract": False}
    assert rows is None


def test_every_asset_reports_its_checks_itself_and_they_block() -> None:
    graph = defs.resolve_asset_graph()
    others = {
        dg.AssetKey("judge_audits"),
        dg.AssetKey("html_report"),
    }  # one adds rows, the other stores no table
    for key in graph.materializable_asset_keys - others:
        specs = check_specs(key.path[-1])
        assert {"keeps_contract", "one_methodology"} <= {spec.name for spec in specs}
        assert all(spec.blocking for spec in specs if spec.name != "nothing_set_aside")
        assert {spec.key for spec in specs} <= set(graph.asset_check_keys)
