"""One event that two metrics report is one finding with two labels."""

from typing import Any

import polars as pl
import pytest

from agent_eval.clusters.clusters import error_clusters
from agent_eval.clusters.failures import n_findings, with_findings
from agent_eval.gates.error_severity import severity_finding
from agent_eval.settings.gate_spec import Level, Rules
from agent_eval.tables import table
from tests.clusters.rows import PLACE

LOW, HIGH = "repetition", "ignored tool result"
LONG = "The refund arrives on Friday, and the fee is 4 EUR."


def failures(*rows: dict[str, Any]) -> pl.DataFrame:
    common = PLACE | {"conversation_id": "c", "turn_index": 0, "fault_author": "agent", "method": "minted"}
    return table("failures").frame(
        [
            common | {"failure_id": f"f{i}", "label": LOW if i else HIGH, "cluster_id": f"E-{i}"} | row
            for i, row in enumerate(rows)
        ]
    )


@pytest.mark.parametrize(
    ("first", "second", "n"),
    [
        ({"quote": LONG}, {"quote": f" {LONG.upper()}"}, 1),
        ({"quote": LONG}, {"quote": "the fee is 4 EUR"}, 1),
        ({"quote": LONG, "message_index": 3}, {"quote": LONG}, 1),
        ({"quote": "It is sure. The refund arrives on Friday"}, {"quote": LONG}, 1),
        ({"quote": LONG}, {"quote": "It costs nothing at all."}, 2),
        ({"quote": LONG}, {"quote": "fee"}, 2),  # too short to say which words are meant
        ({"quote": LONG}, {"quote": LONG, "turn_index": 1}, 2),
        ({"quote": LONG}, {"quote": LONG, "conversation_id": "d"}, 2),
        ({"quote": LONG, "message_index": 3}, {"quote": LONG, "message_index": 5}, 2),
        ({"quote": None}, {"quote": None}, 2),
    ],
)
def test_overlapping_quotes_of_a_turn_are_one_finding(
    first: dict[str, Any], second: dict[str, Any], n: int
) -> None:
    for rows in ((first, second), (second, first)):
        found = with_findings(failures(*rows))
        assert found.select(n_findings()).item() == n
        assert found.reverse().pipe(with_findings).reverse().equals(found)
        if n == 1:
            assert set(found["finding_id"]) == {"f0"}  # the more severe one


def test_a_cluster_whose_findings_all_have_a_more_severe_label_names_its_cluster() -> None:
    both, alone = {"quote": LONG}, {"quote": LONG, "turn_index": 1, "label": LOW, "cluster_id": "E-2"}
    third = {"quote": LONG, "label": LOW, "cluster_id": "E-2"}
    registry = table("error_registry").frame(
        {"cluster_id": f"E-{i}", "label": "x", "severity": severity}
        for i, severity in enumerate(("high", "medium", "low"))
    )
    found = with_findings(failures(both, both, third, alone))
    made = error_clusters(found, table("turn_judgments").empty(), registry)
    assert dict(made.select("cluster_id", "same_as").iter_rows()) == {"E-0": None, "E-1": "E-0", "E-2": None}
    assert made["n_failures"].sum() == 4  # gates and rates count as before


@pytest.mark.parametrize("critical", [0, 1])
def test_one_event_with_two_labels_fails_the_gate_of_the_more_severe_one(critical: int) -> None:
    registry = table("error_registry").frame(
        {"cluster_id": f"E-{i}", "label": "x", "severity": "critical" if i == critical else "medium"}
        for i in range(2)
    )
    found = with_findings(failures({"quote": LONG}, {"quote": LONG}))
    assert found.select(n_findings()).item() == 1
    made = error_clusters(found, table("turn_judgments").empty(), registry)
    expected: tuple[tuple[Level, int], ...] = (("critical", 1), ("medium", 2))
    for level, n in expected:
        finding = severity_finding(Rules(fail_on_error_severity=level), made, (1, 1))
        assert finding is not None
        assert (finding.result, finding.evidence.partition(" ")[0]) == ("failed", str(n))
        assert f"critical: x (E-{critical}" in finding.evidence
