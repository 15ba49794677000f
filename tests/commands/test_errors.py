import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.clusters.naming import Case, ClusterNames, Name, Namer
from agent_eval.project import Project
from agent_eval.project.clusters import (
    cached_vectors,
    cluster_failures,
    cluster_version,
    consolidate_clusters,
    space,
)
from agent_eval.report.asset_pages.clusters import clusters_page, trends_page
from agent_eval.tables import table
from tests.clusters.rows import TODAY, VERSION, told


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two agents with clusters and rates in the store; nothing was run."""
    (tmp_path / "data" / "clusters").mkdir(parents=True)
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    opened = Project.open()
    place = {"methodology_version": VERSION, "cluster_id": "E-0000000001", "label": "repetition"}
    counts = {
        "n_failures": 9,
        "n_turns": 9,
        "n_conversations": 9,
        "n_turns_eligible": 100,
        "rate_per_100_turns": 9.0,
    }
    cluster = {**place, **counts, "severity": "high", "title": "[bold]hostile\x1b[31m", "examples": ["c#0"]}
    write = opened.store.upsert
    write(
        table("error_clusters"), table("error_clusters").frame([{**cluster, "agent_id": "new"}]), run_id="r"
    )
    registry = {
        **{k: place[k] for k in ("cluster_id", "label")},
        "severity": "high",
        "title": cluster["title"],
        "first_seen": TODAY,
    }
    write(table("error_registry"), table("error_registry").frame([registry]), run_id="r")
    rates = [
        {"agent_id": agent, "benchmark_id": run, "cluster_id": name, "n_turns": n, "sum_squares": n, "n_conversations": 100, "sum_products": n}
        for agent, run, n_seen in (("new", "r1", 30), ("new", "r2", 9), ("old", "r1", 40))
        for name, n in ((None, 100), (place["cluster_id"], n_seen))
    ]  # fmt: skip
    common = {"methodology_version": VERSION, "metrics": "agent_behavior_failure"}
    dated = [
        {
            **common,
            **r,
            "run_date": f"2026-01-0{str(r['benchmark_id'])[1]}",
            "is_current": r["benchmark_id"] == "r2" or r["agent_id"] == "old",
        }
        for r in rates
    ]
    write(table("error_rates"), table("error_rates").frame(dated), run_id="r")
    state = [
        {"asset": "error_rates", "agent_id": agent, "methodology_version": VERSION, "fingerprint": "x"}
        for agent in ("new", "old")
    ]
    write(table("run_state"), table("run_state").frame(state), run_id="r")
    return opened


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["errors", "--methodology", VERSION, *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(("since", "before"), [("old", 40.0), ("r1", 30.0)])
def test_errors_are_compared_with_an_agent_or_with_a_run(project: Project, since: str, before: float) -> None:
    code, output = invoke("--agent", "new", "--since", since, "--json")
    rows = json.loads(output)
    assert code == 0
    assert [(r["agent_id"], r["trend"], r["n_turns"], r["baseline_rate_per_100_turns"]) for r in rows] == [
        ("new", "improved", 9, before)
    ]


def test_the_table_fits_a_hundred_columns_and_a_transcript_stays_text(project: Project) -> None:
    code, output = invoke("--since", "old")
    assert code == 0
    assert max(map(len, output.splitlines())) <= 100
    assert "[bold]hostile" in output
    assert "\x1b" not in output
    assert "improved, was 40.0" in output


def test_what_is_neither_agent_nor_run_is_named_with_what_there_is(project: Project) -> None:
    result = CliRunner().invoke(app, ["errors", "--methodology", VERSION, "--agent", "new", "--since", "r9"])
    assert "'r9' is neither an agent nor a run" in str(result.exception)
    assert "Agents: new, old. Runs: r1, r2." in str(result.exception)


def test_an_agent_without_failures_is_told_so(project: Project) -> None:
    assert "No failures" in invoke("--agent", "old")[1]


def test_clusters_grow_in_the_store_with_peoples_words_and_a_models(project: Project) -> None:
    found = told("the refund was invented", "baggage is not free")
    first = cluster_failures(project, found, run_id="r")
    refund = first.failures["cluster_id"][0]
    version = cluster_version(project)
    (project.home.clusters / "people.yaml").write_text(f"- cluster: {refund}\n  title: Ours\n")
    assert cluster_version(project) != version

    def answer(cases: Sequence[Case]) -> ClusterNames:
        return ClusterNames({case.cluster_id: Name("Theirs", "why", "critical") for case in cases})

    cluster_failures(project, found, run_id="r", namer=Namer("mock", answer))
    registry = project.store.read(table("error_registry")).filter(pl.col("named_by") == "mock")
    assert sorted(registry["title"]) == ["Ours", "Theirs"]
    assert set(registry["severity"]) == {"critical"}
    again = cluster_failures(project, found, run_id="r")
    assert again.failures.equals(first.failures)
    assert consolidate_clusters(project, run_id="r").is_empty()


def test_vectors_are_made_once(project: Project) -> None:
    texts = pl.DataFrame({"text_hash": ["a", "b"], "text": ["refund", "baggage"]})
    made = space(project, "r").vectors(texts)

    class Never:
        name, radius = "wordllama-256.1", 1.0

        def __call__(self, texts: object) -> object:
            raise AssertionError("embedded twice")

    kept = cached_vectors(project.store, Never(), texts[::-1], run_id="r")  # type: ignore[arg-type]
    assert (kept == made[::-1]).all()


def test_pages_show_severity_counts_trend_and_examples_and_keep_transcripts_inert(project: Project) -> None:
    rows = project.store.read(table("error_clusters")).with_columns(
        title=pl.lit("<script>|"), trend=pl.lit("new")
    )
    page = clusters_page(rows)
    for text in ("severity", "high", "&lt;script&gt;\\|", "new", "c\\#0", "9"):
        assert text in page
    assert "<script>" not in page
    compared = table("error_trends").frame(
        [{**rows.select("methodology_version", "agent_id", "cluster_id", "label", "title", "severity").row(0, named=True), "trend": "new",
          "rate_per_100_turns": 9.0, "baseline_rate_per_100_turns": 0.0, "q_value": 0.4, "is_significant": False}]
    )  # fmt: skip
    assert "new: new 0.0 → 9.0, q 0.4 (may be chance)" in trends_page(rows, compared).replace("\\", "")
