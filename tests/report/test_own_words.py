import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from agent_eval.commands.results.notebook import NotebookProject
from agent_eval.project import Project
from agent_eval.project.report import asset_page
from agent_eval.report.clusters import with_own_words
from agent_eval.report.names import file_name
from agent_eval.tables import table
from tests.commands.conftest import invoke
from tests.report.pages import pages_of, reader_of

BY_RULE = "false information: It invents a fee."
"""The registered title: of agent a's failure, which is the most typical."""
CAUSES = {"a": "It invents a fee.", "b": "It invents a date.", "c": "It invents a name."}
OWN = {agent: f"false information: {cause}" for agent, cause in CAUSES.items()}
ALL = ["a", "b"]


def worded(registered: dict[str, str], agents: Sequence[str], asked: str) -> dict[str, object]:
    """Return the words of the cluster for one agent, if these agents have failures in it."""
    cluster = {"cluster_id": "E-1", "label": "false information", "severity": "high"}
    rule = {"rule_title": BY_RULE, "rule_root_cause": CAUSES["a"], "founder": "text a"}
    known = {"title": BY_RULE, "root_cause": CAUSES["a"]} | rule | registered
    place = {"methodology_version": "1", "conversation_id": "c", "turn_index": 0, "method": "minted"}
    failures = [
        cluster
        | place
        | {"agent_id": agent, "failure_id": f"{agent}{i}", "text_hash": f"text {agent if i == 0 else 'z'}"}
        | {"cause": CAUSES[agent] if i == 0 else "Z.", "distance": 0.1 * i, "should_have": f"Ask {agent}."}
        for agent in agents
        for i in (1, 0)
    ]
    counts = {"n_failures": 2, "n_turns": 1, "n_conversations": 1, "examples": ["c#0"]}
    of = {"methodology_version": "1", "title": known["title"], "root_cause": known["root_cause"]}
    rows = table("error_clusters").frame(cluster | counts | of | {"agent_id": a} for a in agents)
    read = reader_of(
        {
            "error_clusters": rows,
            "error_registry": table("error_registry").frame([cluster | known]),
            "failures": table("failures").frame(
                {k: v for k, v in f.items() if k in table("failures").schema} for f in failures
            ),
        }
    )
    clusters = table("error_clusters").frame([cluster | counts | of | {"agent_id": asked}])
    [row] = with_own_words(read, clusters).to_dicts()
    return {name: row[name] for name in ("title", "root_cause", "should_have", "words_of")}


BY_MODEL = {"title": "Invents facts", "root_cause": "It invents.", "model_root_cause": "It invents."}
BY_PERSON = {"title": "Invents facts", "root_cause": "No price list.", "model_root_cause": "It invents."}


@pytest.mark.parametrize(
    ("registered", "agents", "asked", "title", "cause", "words_of"),
    [
        ({}, ALL, "a", OWN["a"], CAUSES["a"], None),
        ({}, ALL, "b", OWN["b"], CAUSES["b"], None),
        ({}, ["b", "a", "c"], "c", OWN["c"], CAUSES["c"], None),
        ({}, ["b"], "b", BY_RULE, CAUSES["a"], None),  # the words of an earlier run of the agent
        ({}, ["a"], "b", BY_RULE, CAUSES["a"], ["a"]),  # gone: the agent has no failure of its own
        (BY_MODEL, ALL, "b", "Invents facts", CAUSES["b"], ALL),
        (BY_MODEL, ["b"], "b", "Invents facts", "It invents.", None),
        (BY_PERSON, ALL, "b", "Invents facts", "No price list.", ALL),
    ],
)
def test_the_words_of_a_cluster_are_of_the_agents_own_failures_or_say_whose_they_are(
    registered: dict[str, str],
    agents: list[str],
    asked: str,
    title: str,
    cause: str,
    words_of: list[str] | None,
) -> None:
    remedy = f"Ask {asked}." if asked in agents else None
    expected = {"title": title, "root_cause": cause, "should_have": remedy, "words_of": words_of}
    assert worded(registered, agents, asked) == expected


VERSION = "1.3.0"


def test_no_surface_shows_an_agent_the_cause_of_another(
    sample: Project, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = sample.table("error_clusters").filter(pl.col("same_as").is_null(), methodology_version=VERSION)
    shared = clusters.filter(pl.col("agent_id").n_unique().over("cluster_id") > 1)
    failures = sample.table("failures").filter(methodology_version=VERSION)
    assert shared.height > 5
    monkeypatch.setenv("AGENT_EVAL_HOME", str(sample.home.root))
    errors_page = pages_of(folder)[f"boards/{VERSION}/errors.html"].text
    notebook = NotebookProject.open(sample.home.root)
    for agent, cluster in shared.select("agent_id", "cluster_id").iter_rows():
        own = failures.filter(agent_id=agent, cluster_id=cluster)
        of_others = failures.filter(pl.col("agent_id") != agent, cluster_id=cluster)
        causes, others = (set(f.select(pl.coalesce("cause", "reason")).to_series()) for f in (own, of_others))
        [row] = [r for r in notebook.errors(agent).rows.to_dicts() if r["cluster_id"] == cluster]
        assert row["root_cause"] in causes
        listed = json.loads(invoke("errors", "--agent", agent, "--json").stdout)
        printed = json.dumps(
            [r for r in listed if not r["words_of"]], ensure_ascii=False
        )  # else it says whose
        exported = invoke("errors", "--agent", agent, "--export", cluster, "--format", "jsonl").stdout
        named = asset_page(sample, "error_clusters", file_name(agent, VERSION))
        assert named
        for surface in (printed, exported, named[1]):
            assert not [cause for cause in others - causes if cause[:40] in surface]
        assert row["title"] in errors_page
