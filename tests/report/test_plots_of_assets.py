"""Plots and tables on the pages of assets: what is counted, whose share is drawn, and what is called unknown."""

import base64
import re
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from agent_eval.report.asset_pages import clusters, ingest, judging, lineage, quality, scoring
from agent_eval.tables import table

PAIR = {"methodology_version": "1.3.0", "agent_id": "a"}


def drawn(markdown: str) -> list[str]:
    """The texts of the picture that a page begins with."""
    found = re.match(r"!\[[^\]]*\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found, markdown[:200]
    picture = ElementTree.fromstring(base64.b64decode(found[1]))
    return [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]


def rows_of(name: str, *rows: dict[str, Any], **common: Any) -> pl.DataFrame:
    return table(name).frame(PAIR | common | row for row in rows)


def judgments(*rows: dict[str, Any]) -> pl.DataFrame:
    common = PAIR | {"conversation_id": "c", "metric": "helpfulness", "judge": "m", "status": "scored"}
    return table("turn_judgments").frame(
        common | {"turn_index": i, "is_effective": True} | row for i, row in enumerate(rows)
    )


def test_coverage_counts_what_a_model_was_asked_and_nothing_that_is_free_or_imported() -> None:
    rows = judgments(
        {"cost_usd": 0.5, "n_tokens_in": 10, "evidence_verified": True},
        {"status": "unscored", "cost_usd": 0.25, "n_tokens_in": 5},
        {"status": "not_applicable"},
        {"seen_share": 0.5, "cost_usd": 0.25, "evidence_verified": False},
        *({"judge": judge} for judge in ("rule", "human", "recorded", "none", "import:x")),
    )
    (row,) = judging.coverage(rows).to_dicts()
    assert (row["n_asked"], row["n_scored"], row["n_in_part"]) == (3, 2, 1)
    assert (row["n_quotes"], row["n_quotes_found"], row["cost_usd"], row["n_tokens_in"]) == (2, 1, 1.0, 15)
    unknown = judging.coverage(judgments({"cost_usd": 0.5}, {}))
    assert unknown["cost_usd"].to_list() == [None]
    assert judging.coverage_table(unknown).split("\n")[-1].startswith("| all |")


def test_ratings_are_drawn_by_share_with_their_mean_and_the_missing_in_grey() -> None:
    overruled = {"rating_1to5": 2, "is_effective": False}
    counted = judging.rating_counts(judgments({"rating_1to5": 5}, {"rating_1to5": 2}, overruled))
    assert counted["len"].to_list() == [1, 1]
    assert "mean 3.50, n = 2" in drawn(judging.ratings_plot(counted))
    by_a_person = {"rating_1to5": 1, "judge": "human", "label_weight": 2.0, "is_counted": False}
    corrected = {"rating_1to5": 5, "is_effective": False, "is_counted": True}
    both = drawn(judging.ratings_plot(judging.rating_counts(judgments(corrected, by_a_person))))
    assert "mean 5.00, n = 1" in both
    assert "helpfulness, by people" in both
    assert "mean 1.00, n = 1" in both
    rubric = rows_of(
        "rubric_ratings",
        {"status": "scored", "rating_1to5": 4, "is_effective": True},
        {"status": "missing", "is_effective": False},
        session_id="s", target="U1", judge="m",
    )  # fmt: skip
    plotted = judging.rubric_counts(rubric)
    assert "mean 4.00, n = 1" in drawn(judging.ratings_plot(plotted))
    assert "4 × 1, missing × 1" in judging.grid_table(plotted)
    only_missing = plotted.filter(pl.col("rating_1to5").is_null())
    assert "no rating" in drawn(judging.ratings_plot(only_missing))


def test_answers_are_counted_by_status() -> None:
    lost = {"status": "unscored", "is_effective": False}
    counted = judging.answers(judgments({}, lost, {"is_effective": False}))
    assert dict(counted.select("status", "len").iter_rows()) == {"scored": 1, "unscored": 1}
    assert "1 of 2 scored" in drawn(judging.answers_plot(counted))


def test_failures_are_drawn_by_label_the_most_frequent_first() -> None:
    found = (("loop", "agent"), ("unsafe", None), ("unsafe", "environment"))
    rows = pl.DataFrame([PAIR | {"label": label, "fault_author": author} for label, author in found])
    counted = judging.failure_counts(rows)
    assert counted["label"].to_list() == ["unsafe", "unsafe", "loop"]
    texts = drawn(judging.failures_plot(counted))
    assert texts.index("unsafe") < texts.index("loop")
    assert "2" in texts


@pytest.mark.parametrize(("outcome", "column"), [(True, "correct"), (False, "wrong"), (None, "no_outcome")])
def test_conversations_are_counted_by_declared_outcome(outcome: bool | None, column: str) -> None:
    rows = table("conversations").frame(
        {"agent_id": "a", "session_id": "s", "conversation_id": str(i), "n_turns": 2, "n_tool_calls": 3, "outcome_correct": outcome}
        | cost
        for i, cost in enumerate(({"cost_usd": 1.0}, {}))
    )  # fmt: skip
    (counted,) = ingest.outcomes(rows).to_dicts()
    for name in ("correct", "wrong", "no_outcome"):
        assert counted[name] == 2 * (name == column)
    assert (counted["turns"], counted["tool_calls"], counted["cost_usd"]) == (4, 6, None)
    assert "n = 2" in drawn(ingest.outcomes_plot(ingest.outcomes(rows)))


def test_tools_are_counted_by_how_their_calls_ended() -> None:
    rows = table("tool_calls").frame(
        {"agent_id": "a", "conversation_id": "c", "turn_index": 0, "call_index": i, "name": name, "is_error": error}
        for i, (name, error) in enumerate([("find", True), ("find", None), ("find", False), ("buy", False)])
    )  # fmt: skip
    counted = ingest.tool_counts(rows)
    numbers = counted.select("name", "n", "n_errors", "n_unknown").rows()
    assert numbers == [("find", 3, 1, 1), ("buy", 1, 0, 0)]
    words = re.findall(r"\w+", " ".join(drawn(ingest.tools_plot(counted))))
    assert {"answered", "error", "unknown"} <= set(words)


def test_conversations_that_do_not_count_are_listed_with_their_reason() -> None:
    rows = rows_of(
        "transcripts",
        {"conversation_id": "1", "slot": "D1", "is_admitted": True},
        {"conversation_id": "2", "slot": "D1", "is_admitted": False, "reason": "too short"},
        {"conversation_id": "3", "slot": None, "is_admitted": True},
        session_id="s", n_turns=1,
    )  # fmt: skip
    counted = ingest.admitted(rows)
    assert "| D1 | 1 | too short |" in ingest.reasons_table(counted)
    assert ingest.reasons_table(counted.filter("is_admitted")) == "every conversation counts"
    assert "no slot" in drawn(ingest.slots_plot(counted))
    many = pl.concat([counted.filter(~pl.col("is_admitted"))] * 30)
    assert ingest.reasons_table(many).endswith(f"{ingest.MOST} of 30 rows")


def cluster(name: str, severity: str, n_turns: int = 1, **more: Any) -> dict[str, Any]:
    return PAIR | {
        "cluster_id": name, "severity": severity, "title": name, "n_failures": n_turns + 1, "n_turns": n_turns,
        "rate_per_100_turns": 2.0, "examples": [f"said {name}"],
    } | more  # fmt: skip


def test_clusters_are_listed_by_severity_then_by_turns() -> None:
    rows = table("error_clusters").frame(
        [cluster("x", "low", 9), cluster("y", "critical"), cluster("z", "low", 10), cluster("w", "high")]
    )
    assert clusters.most_severe_first(rows, "n_turns")["cluster_id"].to_list() == ["y", "w", "z", "x"]
    texts = drawn(clusters.severities_plot(rows))
    assert texts.index("critical") < texts.index("high") < texts.index("low")
    assert "21 in 2 clusters" in texts
    many = table("error_clusters").frame(cluster(f"c{i:02}", "low") for i in range(60))
    assert "50 of 60 clusters" in clusters.clusters_page(many)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trend": "improved", "q_value": 0.00151}, "improved 6.0 → 3.1, q 0.002"),
        ({"trend": "new", "q_value": 0.4, "is_significant": False}, "new 6.0 → 3.1, q 0.4 (may be chance)"),
        ({"trend": "new", "q_value": 0.4}, "new 6.0 → 3.1, q 0.4 (may be chance)"),
        ({"trend": "gone", "q_value": 0.01, "is_significant": True}, "gone 6.0 → 3.1, q 0.01"),
        ({"trend": "unknown", "baseline_rate_per_100_turns": None}, "unknown ? → 3.1"),
    ],
)
def test_a_trend_shows_both_rates_and_that_it_may_be_chance(changes: dict[str, Any], said: str) -> None:
    row = PAIR | {"cluster_id": "c", "rate_per_100_turns": 3.1, "baseline_rate_per_100_turns": 6.0}
    frame = table("error_trends").frame([row | changes])
    assert frame.select(clusters.change()).item() == said


def test_the_clusters_of_a_version_are_one_row_for_all_agents() -> None:
    rows = table("error_clusters").frame([cluster("x", "low", 2), cluster("x", "low", 3, agent_id="b")])
    trends = table("error_trends").frame(
        PAIR | {"cluster_id": "x", "agent_id": agent, "trend": "gone", "rate_per_100_turns": 0.0, "baseline_rate_per_100_turns": 1.0}
        for agent in "ab"
    )  # fmt: skip
    page = clusters.trends_page(rows, trends)
    assert page.count("\n") == 2
    assert "| 7 | 5 | a, b |" in page
    assert "a: gone 1.0 → 0.0; b: gone 1.0 → 0.0" in page
    assert "2 clusters" not in drawn(clusters.trends_plot(trends))
    assert drawn(clusters.trends_plot(trends)).count("1 cluster") == 2


def test_the_lineage_of_a_score_names_rows_and_runs_of_each_table_up_to_the_sources() -> None:
    written = pl.DataFrame(
        {"table": ["turns", "turns", "composite_scores"], "n_rows": [3, 4, 1],
         "last_run_id": ["old-run-1", "new-run-2", "new-run-2"], "last_written": [1, 2, 3]}
    )  # fmt: skip
    judged = pl.DataFrame({"judge": ["m"]})
    page = lineage.lineage_page("composite_scores", written, judged, {"rubric": "hash1"})
    lines = page.split("\n")
    assert "leaderboard" not in page
    assert lines[2].startswith(
        "| [composite\\_scores](</assets/composite_scores>) | 1 | [new-run-](</runs/new-run-2>) |"
    )
    (turns,) = (line for line in lines if line.startswith("| [turns]"))
    assert turns.startswith("| [turns](</assets/turns>) | 7 | [new-run-](</runs/new-run-2>) |")
    assert "| rubric | hash1 |" in page
    assert "no rating" in lineage.lineage_page("leaderboard", written, judged.clear(), {})


def test_the_ratings_behind_a_score_are_the_lowest_first_and_none_that_does_not_count() -> None:
    rows = table("rubric_ratings").frame(
        PAIR | {"session_id": "s", "target": f"U{i}", "judge": "m", "rating_1to5": i, "is_effective": i != 1, "status": "scored"}
        for i in (4, 1, 2)
    )  # fmt: skip
    lines = lineage.ratings_page(rows).split("\n")[2:]
    assert [re.findall(r"U\d", line)[0] for line in lines] == ["U2", "U4"]


def test_means_are_drawn_as_percent_of_their_scale() -> None:
    rows = rows_of(
        "quality_summary",
        {"quantity": "success rate", "mean": 0.5, "n_conversations": 2, "n_scored": 2, "n_unscored": 0},
        {"quantity": "helpfulness", "mean": None, "n_scored": 0, "n_unscored": 0, "n_unasked": 3},
        scale_low=0.0, scale_high=1.0, judges=["m"],
    )  # fmt: skip
    assert "50.0 %" in drawn(quality.summary_plot(rows))
    assert quality.summary_plot(rows.filter(quantity="helpfulness")) == "no known values yet"
    assert "no judge asked \\(3\\)" in quality.summary_table(rows)


@pytest.mark.parametrize("verdict", ["better", "tie"])
def test_a_pair_is_shown_from_both_sides(verdict: str) -> None:
    pair = {"template": "t", "other_agent_id": "b", "difference": 2.0, "verdict": verdict}
    assert {"+2.0", "-2.0"} <= set(drawn(scoring.pairs_matrix(rows_of("pairwise_comparisons", pair))))


def test_aspects_of_tool_use_without_a_value_are_unknown_and_not_zero() -> None:
    wrong = {"conversation_id": "1", "selection": 0.5, "overall": 0.5, "is_correct": False}
    unknown = {"conversation_id": "2", "selection": 1.0, "is_correct": None}
    rows = rows_of("tool_correctness", wrong, unknown)
    page = scoring.aspects_plot(scoring.aspects(rows))
    assert page.endswith("0 correct, 1 wrong, 1 unknown")
    assert {"0.75, n = 2", "0.50, n = 1", "unknown"} <= set(drawn(page))


def test_results_are_counted_by_a_column() -> None:
    rows = table("gate_results").frame(
        PAIR | {"gate": "errors", "subject": str(i), "result": result}
        for i, result in enumerate(("passed", "failed", "unknown", "passed"))
    )
    assert "2 of 4 passed" in drawn(scoring.results_plot(scoring.results_by("gate")(rows)))


def test_reliability_without_a_task_of_known_outcome_draws_nothing() -> None:
    unknown = "no task has enough trials of known outcome"
    assert scoring.reliability_plot(table("reliability").empty()) == unknown
    ranks = scoring.reliability_ranks(table("reliability_leaderboard").empty())
    assert ranks.startswith("no agent has a task")


def test_what_is_missing_is_listed_and_nothing_missing_is_said() -> None:
    rows = rows_of("composite_scores", {"missing": ["U4: <b>"], "warnings": ["few sessions"]})
    assert scoring.missing_table(rows) == "- U4: &lt;b&gt;\n- few sessions"
    nothing = rows_of("composite_scores", {"missing": [], "warnings": []})
    assert scoring.missing_table(nothing) == "nothing is missing"
