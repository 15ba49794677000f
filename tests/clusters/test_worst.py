"""The worst findings: the most severe clusters first, one row each, with a quote that was found."""

from agent_eval.clusters.worst import N_QUOTES, failures_to_quote, worst_clusters, worst_findings
from agent_eval.tables import table

PAIR = {"methodology_version": "1.3.0", "agent_id": "bot"}


def test_severity_comes_before_frequency_and_a_quote_that_was_found_before_others() -> None:
    often, severe = ("bot", "often", "low", 90), ("bot", "severe", "critical", 1)
    columns = ("agent_id", "cluster_id", "severity", "n_turns")
    clusters = table("error_clusters").frame(
        PAIR | dict(zip(columns, row, strict=True)) | {"title": row[1]}
        for row in (often, severe, ("bot", "wide", "high", 2), ("other", "wide", "high", 5))
    )
    failures = table("failures").frame(
        {**PAIR, "cluster_id": "severe", "conversation_id": "c", "turn_index": turn, "quote": quote}
        for turn, quote in ((0, "invented"), (1, "verbatim"))
    )
    judgments = table("turn_judgments").frame(
        {**PAIR, "conversation_id": "c", "turn_index": turn, "evidence": quote, "evidence_verified": found, "is_effective": True}
        for turn, quote, found in ((0, "invented", False), (1, "verbatim", True))
    )  # fmt: skip
    found = worst_findings(worst_clusters(clusters, 2), failures, judgments)
    assert found.select("cluster_id", "agent_id", "quote", "turn_index").rows() == [
        ("severe", "bot", "verbatim", 1),
        ("wide", "other", None, None),
    ]


def test_the_worst_finding_is_the_same_whatever_the_order_of_rows() -> None:
    clusters = table("error_clusters").frame(
        PAIR | {"cluster_id": f"c{i}", "severity": "high", "n_turns": 2, "title": "t"} for i in range(9)
    )
    failures = table("failures").frame(
        PAIR
        | {
            "cluster_id": "c0",
            "failure_id": f"{i}",
            "conversation_id": f"k{i}",
            "turn_index": 0,
            "quote": f"q{i}",
        }
        for i in range(9)
    )
    judgments = table("turn_judgments").empty()
    for seed in range(20):
        worst = worst_clusters(clusters.sample(fraction=1, shuffle=True, seed=seed), 1)
        of_cluster = failures_to_quote(failures.sample(fraction=1, shuffle=True, seed=seed))
        found = worst_findings(worst, of_cluster, judgments)
        assert found.select("cluster_id", "quote").rows() == [("c0", "q0")]


def test_of_a_large_cluster_some_failures_are_looked_at_those_with_a_quote_first() -> None:
    failures = table("failures").frame(
        {**PAIR, "cluster_id": "large", "conversation_id": f"c{i:04}", "turn_index": 0, "quote": "q" if i == 500 else None}
        for i in range(N_QUOTES * 6)
    )  # fmt: skip
    chosen = failures_to_quote(failures)
    assert chosen.height == N_QUOTES
    assert chosen["quote"][0] == "q"
