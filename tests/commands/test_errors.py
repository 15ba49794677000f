import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from agent_eval.cli import app
from agent_eval.clusters.naming import Case, ClusterNames, Name, Namer
from agent_eval.commands.results.since import Periods, without_time
from agent_eval.errors import NotFoundError
from agent_eval.project import Project
from agent_eval.project.clusters import (
    cached_vectors,
    cluster_failures,
    cluster_version,
    consolidate_clusters,
    decide_proposals,
    space,
)
from agent_eval.report.asset_pages.clusters import clusters_page, trends_page
from agent_eval.tables import table
from tests.clusters.rows import TODAY, VERSION, told

HOSTILE = "[bold]hostile\x1b[31m"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two agents with clusters and rates in the store; nothing was run."""
    (tmp_path / "data" / "clusters").mkdir(parents=True)
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    of_version = {"methodology_version": VERSION, "metrics": "agent_behavior_failure"}
    named = {"cluster_id": "E-0000000001", "label": "repetition", "severity": "high", "title": HOSTILE}
    counts = dict.fromkeys(("n_failures", "n_turns", "n_conversations"), 9)
    counts |= {"n_turns_eligible": 100, "rate_per_100_turns": 9}
    rates = [
        {
            **of_version,
            **{"agent_id": agent, "benchmark_id": run, "is_current": run == current},
            **{"run_date": f"2026-01-0{run[1]}", "cluster_id": cluster},
            **dict.fromkeys(("n_turns", "sum_squares", "sum_products"), n),
            "n_conversations": 100,
        }
        for agent, run, n_seen, current in (
            ("new", "r1", 30, "r2"),
            ("new", "r2", 9, "r2"),
            ("old", "r1", 40, "r1"),
        )
        for cluster, n in ((None, 100), (named["cluster_id"], n_seen))
    ]
    state = {"asset": "error_rates", "methodology_version": VERSION, "fingerprint": "x"}
    rows: dict[str, list[dict[str, Any]]] = {
        "error_clusters": [of_version | named | counts | {"agent_id": "new", "examples": ["c#0"]}],
        "error_registry": [named | {"first_seen": TODAY}],
        "error_rates": rates,
        "run_state": [state | {"agent_id": agent} for agent in ("new", "old")],
    }
    opened = Project.open()
    for name, written in rows.items():
        known = [{k: v for k, v in row.items() if k in table(name).schema} for row in written]
        opened.store.upsert(table(name), table(name).frame(known), run_id="r")
    return opened


@pytest.mark.parametrize(
    ("judges", "said"),
    [
        ((), "No turns are stored yet."),
        (
            ("rule", "unscored"),
            "Unknown: no judge was asked about failures in 2 turns, and rules found none.",
        ),
        (("m", "m"), "No failures were found in 2 judged turns."),
        (("m", "rule"), "No failures were found in 1 judged turn; 1 of 2 turns were not judged."),
    ],
)
def test_without_failures_errors_says_whether_turns_were_judged(
    project: Project, judges: tuple[str, ...], said: str
) -> None:
    place = {"methodology_version": VERSION, "agent_id": "old", "conversation_id": "c"}
    content = {"messages": "[]", "n_tool_calls": 0, "content_hash": "h"}
    turns = [place | {"turn_index": i} for i in range(len(judges))]
    metric = {"metric": "agent_behavior_failure", "label": "no failure", "is_effective": True}
    judged = [
        turn | metric | {"judge": judge, "status": "unscored" if judge == "unscored" else "scored"}
        for turn, judge in zip(turns, judges, strict=True)
    ]
    project.store.upsert(table("turns"), table("turns").frame(turn | content for turn in turns), run_id="r")
    project.store.upsert(table("turn_judgments"), table("turn_judgments").frame(judged), run_id="r")
    assert said in invoke("--agent", "old")[1].replace("\n", " ")


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


def test_the_output_fits_a_hundred_columns_and_a_transcript_stays_text(project: Project) -> None:
    code, output = invoke("--since", "old")
    assert code == 0
    assert max(map(len, output.splitlines())) <= 100
    assert "[bold]hostile" in output
    assert "\x1b" not in output
    assert "improved, was 40.0" in output


def test_each_cluster_has_its_severity_title_number_label_cause_and_examples_that_explain_opens(
    project: Project,
) -> None:
    known = project.table("error_registry").with_columns(root_cause=pl.lit("It says it twice. And more."))
    project.store.upsert(table("error_registry"), known, run_id="r")
    examples = pl.Series([["c#0", "c#2", "c d#1"]])
    project.store.upsert(
        table("error_clusters"), project.table("error_clusters").with_columns(examples=examples), run_id="r"
    )
    of = {"cluster_id": known["cluster_id"][0], "agent_id": "new", "methodology_version": VERSION}
    failed = [
        of
        | {
            "failure_id": f"f{i}",
            "conversation_id": "c",
            "turn_index": i,
            "label": "repetition",
            "method": "minted",
            "should_have": said,
        }
        for i, said in enumerate(("Stop.", "Stop.", "Ask.", None))
    ]
    project.store.upsert(table("failures"), table("failures").frame(failed), run_id="r")
    lines = invoke()[1].splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("[high] [bold]hostile"))
    assert lines[at].endswith("(9)")
    cause = ["  cause: It says it twice.", "  a good agent would have done: Stop."]
    assert lines[at + 1 : at + 4] == ["  label: repetition", *cause]
    shown = [line.strip() for line in lines if "--turn" in line]
    version = [] if project.registry.current.version == VERSION else ["--methodology", VERSION]
    assert [shlex.split(line)[2:] for line in shown] == [
        ["new", "--turn", example, *version] for example in ("c#0", "c#2", "c d#1")
    ]
    counts = dict.fromkeys(("n_user_messages", "n_tool_calls"), 0)
    rows: dict[str, dict[str, Any]] = {
        "transcripts": counts | {"methodology_version": VERSION, "session_id": "s", "benchmark_id": "s", "n_turns": 1, "is_admitted": True, "tests": []},
        "turns": {"turn_index": 1, "user_message": "Hi", "agent_message": "Hi Hi", "messages": "[]", "n_tool_calls": 0, "content_hash": "h"},
    }  # fmt: skip
    for name, row in rows.items():
        of = {"agent_id": "new", "conversation_id": "c d"}
        project.store.upsert(table(name), table(name).frame([row | of]), run_id="r")
    opened = CliRunner().invoke(app, shlex.split(shown[2])[1:])
    assert (opened.exit_code, "agent: Hi Hi" in opened.output) == (0, True)
    unknown = CliRunner().invoke(app, ["explain", "new", "--turn", "c d#7", *version])
    assert "has no turn 'c d#7'" in str(unknown.exception)


def test_two_agents_share_the_heading_of_a_cluster_without_a_cause_and_each_has_up_to_three_examples(
    project: Project,
) -> None:
    registry = project.table("error_registry").with_columns(
        severity=pl.lit("critical"), title=pl.lit("Leaks a code"), label=pl.lit("unsafe state")
    )
    project.store.upsert(table("error_registry"), registry, run_id="r")
    examples = [f"c{i}#{i}" for i in range(5)]
    rows = project.table("error_clusters").to_dicts()
    rows = [r | {"agent_id": a, "examples": examples[:n]} for r in rows for a, n in (("new", 5), ("old", 1))]
    project.store.upsert(table("error_clusters"), table("error_clusters").frame(rows), run_id="r")
    lines = [line.strip() for line in invoke()[1].splitlines()]
    at = lines.index("[critical] Leaks a code (18)")
    assert lines[at + 1] == "label: unsafe state"
    assert [line for line in lines if line.startswith("cause:")] == []
    shown = [shlex.split(line)[2:5] for line in lines if "explain" in line and "--turn" in line]
    assert shown == [["new", "--turn", example] for example in examples[:3]]


def test_what_is_neither_agent_nor_run_is_named_with_what_there_is(project: Project) -> None:
    result = CliRunner().invoke(app, ["errors", "--methodology", VERSION, "--agent", "new", "--since", "r9"])
    assert "'r9' is neither an agent nor a run" in str(result.exception)
    assert "Agents: new, old. Runs: r1, r2." in str(result.exception)


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
    registry = project.table("error_registry").filter(pl.col("named_by") == "mock")
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
    rows = project.table("error_clusters").with_columns(title=pl.lit("<script>|"), trend=pl.lit("new"))
    page = clusters_page(rows)
    for text in ("severity", "high", "&lt;script&gt;\\|", "new", "c\\#0", "9"):
        assert text in page
    assert "<script>" not in page
    compared = table("error_trends").frame(
        [{**rows.select("methodology_version", "agent_id", "cluster_id", "label", "title", "severity").row(0, named=True), "trend": "new",
          "rate_per_100_turns": 9.0, "baseline_rate_per_100_turns": 0.0, "q_value": 0.4, "is_significant": False}]
    )  # fmt: skip
    assert "new: new 0.0 → 9.0, q 0.4 (may be chance)" in trends_page(rows, compared).replace("\\", "")


@pytest.mark.slow
def test_33_of_33_proposed_merges_are_listed_accepted_and_undone_by_one_command_each(
    project: Project,
) -> None:
    runner = CliRunner()
    labels = [f"kind {i}" for i in range(33)]
    found = pl.concat([told("refund late", "baggage free", label=label) for label in labels])
    ids = cluster_failures(project, found, run_id="r").failures.select("label", "reason", "cluster_id")
    of = {(label, reason): cluster for label, reason, cluster in ids.iter_rows()}
    pairs = {of[label, "refund late"]: of[label, "baggage free"] for label in labels}

    def namer(cases: Sequence[Case]) -> ClusterNames:
        ids = [case.cluster_id for case in cases]
        return ClusterNames({name: Name("t", "one cause", "low", pairs.get(name)) for name in ids})

    def clusters() -> int:
        applied = cluster_failures(project, found, run_id="r", namer=Namer("mock", namer))
        return applied.failures["cluster_id"].n_unique()

    assert clusters() == 66
    listed = json.loads(runner.invoke(app, ["errors", "--proposals", "--json"]).stdout)
    assert {row["cluster_id"]: row["other_id"] for row in listed} == pairs
    version = cluster_version(project)
    assert runner.invoke(app, ["errors", "--accept", "all"]).exit_code == 0
    assert cluster_version(project) != version
    assert clusters() == 33
    assert "0 proposed merges" in runner.invoke(app, ["errors", "--proposals"]).stdout
    one = next(iter(pairs))
    assert runner.invoke(app, ["errors", "--undo", one]).exit_code == 0
    assert clusters() == 34
    assert runner.invoke(app, ["errors", "--undo", "all"]).exit_code == 0
    assert clusters() == 66
    assert cluster_version(project) == version
    with pytest.raises(NotFoundError, match="no such merge"):
        decide_proposals(project, ["E-0000000009"], [])
    by_model = project.with_settings(clusters="model")
    cluster_failures(by_model, found, run_id="r")
    assert cluster_failures(by_model, found, run_id="r").failures["cluster_id"].n_unique() == 33
    decide_proposals(by_model, [], [one])  # a merge by a model is undone too, and stays undone
    assert cluster_failures(by_model, found, run_id="r").failures["cluster_id"].n_unique() == 34
    assert len(decide_proposals(by_model, [], ["all"]).undone) == 32
    assert cluster_failures(by_model, found, run_id="r").failures["cluster_id"].n_unique() == 66
    assert not decide_proposals(by_model, [], ["all"]).undone
    with pytest.raises(NotFoundError, match="no such merge"):
        decide_proposals(by_model, [], [one])  # what is undone is no merge


def test_decisions_keep_the_other_entries_of_the_file(project: Project) -> None:
    found = told("refund late", "baggage free")
    one, other = sorted(cluster_failures(project, found, run_id="r").registry["cluster_id"])[:2]
    file = project.home.clusters / "accepted.yaml"
    file.parent.mkdir(exist_ok=True)
    by_hand = [{"cluster": one, "title": "Late refunds"}, {"cluster": one, "severity": "low"}]
    file.write_text(yaml.safe_dump([*by_hand, {"cluster": one, "merge_into": other}]))
    assert decide_proposals(project, [], ["all"]).undone == [one]
    assert yaml.safe_load(file.read_text()) == by_hand


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ([True, True], []),
        ([True, False], ["1 conversation without a time is in neither period."]),
        ([False, False], ["2 conversations without a time are in neither period."]),
    ],
)
def test_conversations_without_a_time_are_counted(known: list[bool], line: list[str]) -> None:
    rows = [("a", str(i), "since" if is_known else None) for i, is_known in enumerate(known)]
    frame = pl.DataFrame(rows, ["agent_id", "conversation_id", "period"], orient="row")
    assert without_time(Periods("since", "before", frame)) == line
