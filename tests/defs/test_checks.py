"""Broken rows do not reach the store, and the check of the asset says which they are."""

import contextlib
from collections.abc import Iterator

import dagster as dg
import polars as pl
import pytest

from agent_eval.definitions import defs
from agent_eval.defs.checks import check_specs, checked
from agent_eval.formats import spill
from agent_eval.formats.spill import Rows
from agent_eval.tables import table

PAIR = {"methodology_version": "1.3.0", "agent_id": "a"}
PARTITION = pl.DataFrame([PAIR])
TURN = {"conversation_id": "c", "turn_index": 0, "metric": "helpfulness"}
JUDGMENT = PAIR | TURN | {"judge": "m", "status": "scored", "is_effective": True, "rating_1to5": 4}
TURNS = table("turns").frame([{"agent_id": "a", "conversation_id": "c", "turn_index": 0}])


def outcome(name: str, frame: Rows, **others: pl.DataFrame) -> tuple[dict[str, bool], Rows | None]:
    """Check → passed, and the rows that would be stored; None when nothing would."""
    results: dict[str, bool] = {}
    rows = None
    try:
        for event in checked(name, frame, PARTITION, others, output=name):
            if isinstance(event, dg.AssetCheckResult):
                assert event.check_name is not None
                results[event.check_name] = event.passed
                assert (event.description is None) == event.passed
            else:
                rows = event.value
    except dg.Failure:
        assert rows is None
    return results, rows


def test_good_rows_pass_every_check_and_are_stored() -> None:
    frame = table("turn_judgments").frame([JUDGMENT])
    results, rows = outcome("turn_judgments", frame, turns=TURNS)
    names = ("keeps_contract", "one_methodology", "on_scale", "no_orphans", "nothing_set_aside")
    assert results == dict.fromkeys(names, True)
    assert isinstance(rows, pl.DataFrame)
    assert rows.equals(frame)


def test_a_rating_off_the_scale_is_set_aside_with_a_warning_and_stops_nobody() -> None:
    frame = table("turn_judgments").frame([JUDGMENT | {"rating_1to5": 6}])
    results, rows = outcome("turn_judgments", frame, turns=TURNS)
    assert [name for name, passed in results.items() if not passed] == ["nothing_set_aside"]
    assert isinstance(rows, pl.DataFrame)
    assert rows.select("status", "rating_1to5").row(0) == ("invalid", None)


def test_a_failed_check_says_what_and_where() -> None:
    frame = table("turn_judgments").frame([JUDGMENT | {"rating_1to5": 6}])
    events = checked("turn_judgments", frame, PARTITION, {"turns": TURNS}, output="turn_judgments")
    said = {e.description for e in events if isinstance(e, dg.AssetCheckResult)} - {None}
    first = (
        "methodology_version 1.3.0, agent_id a, conversation_id c, turn_index 0, metric helpfulness, judge m"
    )
    assert said == {f"1 row of turn_judgments; the first: {first}"}


@pytest.mark.parametrize(
    ("column", "value", "failed"),
    [("methodology_version", "1.2.0", "one_methodology"), ("turn_index", 7, "no_orphans")],
)
def test_a_defect_of_ours_is_blocked(column: str, value: object, failed: str) -> None:
    frame = table("turn_judgments").frame([JUDGMENT | {column: value}])
    results, rows = outcome("turn_judgments", frame, turns=TURNS)
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
    # one adds rows, the other stores no table
    others = {dg.AssetKey(name) for name in ("judge_audits", "html_report")}
    for key in graph.materializable_asset_keys - others:
        specs = check_specs(key.path[-1])
        assert {"keeps_contract", "one_methodology"} <= {spec.name for spec in specs}
        assert all(spec.blocking for spec in specs if spec.name != "nothing_set_aside")
        assert {spec.key for spec in specs} <= set(graph.asset_check_keys)


def in_files(monkeypatch: pytest.MonkeyPatch, *parts: list[dict[str, object]]) -> Iterator[Rows]:
    """Yield rows of turn_judgments in temporary files, one per part."""
    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    contract = table("turn_judgments")
    with spill.spilled({"turn_judgments": contract.frame(part)} for part in parts) as rows:
        yield rows["turn_judgments"]


def test_rows_in_files_are_examined_part_by_part_and_an_invalid_rating_is_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = [
        [JUDGMENT],
        [JUDGMENT | {"metric": "relevance", "rating_1to5": 9}],
        [JUDGMENT | {"metric": "clarity"}],
    ]
    for given in in_files(monkeypatch, *several):
        results, rows = outcome("turn_judgments", given, turns=TURNS)
        assert [name for name, passed in results.items() if not passed] == ["nothing_set_aside"]
        assert isinstance(rows, spill.Spilled)
        stored = pl.concat(spill.frames_of(rows))
        assert stored.select("metric", "status", "rating_1to5").rows() == [
            ("helpfulness", "scored", 4), ("relevance", "invalid", None), ("clarity", "scored", 4),
        ]  # fmt: skip


def test_a_defect_in_any_file_is_blocked_and_counted_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [[JUDGMENT | {"turn_index": i, "metric": f"m{i}"}] for i in range(8)]
    for given in in_files(monkeypatch, *parts):
        with pytest.raises(dg.Failure, match="no_orphans failed"):
            list(checked("turn_judgments", given, PARTITION, {"turns": TURNS}, output="x"))
    results: list[dg.AssetCheckResult] = []
    for given in in_files(monkeypatch, *parts):
        with contextlib.suppress(dg.Failure):
            for event in checked("turn_judgments", given, PARTITION, {"turns": TURNS}, output="x"):
                assert isinstance(event, dg.AssetCheckResult)
                results.append(event)
    (orphans,) = [result for result in results if result.check_name == "no_orphans"]
    assert orphans.metadata["n_rows"] == dg.MetadataValue.int(7)
    text = str(orphans.metadata["examples"].value)
    assert [f"| m{i} |" in text for i in range(8)] == [False, *[True] * 5, False, False]
