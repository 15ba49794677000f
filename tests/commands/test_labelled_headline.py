"""Labels that a sheet drew correct the headline on every surface, and labels that nobody drew decide their own part."""

import csv
import json
import re
from pathlib import Path

import polars as pl
import pytest

from agent_eval.project import Project
from agent_eval.report.asset_pages.quality import logs_table, summary_table
from agent_eval.report.asset_pages.scoring import reliability_plot
from tests.commands.conftest import Model, invoke, use

pytestmark = pytest.mark.slow
OWN_LABEL = re.compile(r"1\s+part\s+decided\s+by\s+people")
VERSION, N = "1.3.0", 10
GATES = "\n[gates.overall]\ngoal_completion = 0.4\n"


def import_logs(root: Path, agent: str) -> None:
    talks = [
        {"id": f"{agent}-{i}", "task_id": f"t{i}", "messages": [{"role": "user", "content": f"Cancel order {i}{agent}."}, {"role": "assistant", "content": f"Order {i} of {agent} is cancelled."}]}
        for i in range(N)
    ]  # fmt: skip
    file = root / f"{agent}.jsonl"
    file.write_text("\n".join(map(json.dumps, talks)))
    assert invoke("import", "auto", str(file), "--agent", agent).exit_code == 0


def shown(agent: str) -> dict[str, object]:
    """The success rate of an agent on every surface that shows it."""
    project = Project.open()
    of = {"agent_id": agent, "methodology_version": VERSION}
    summary = {
        row["quantity"]: row for row in json.loads(invoke("summary", "--agent", agent, "--json").stdout)
    }
    gate = json.loads(invoke("gate", "--agent", agent, "--json").stdout)
    compared = json.loads(invoke("compare", "alpha", "beta", "--json").stdout)
    (success,) = [row for row in compared if row["quantity"] == "pass@1"]
    reliable = json.loads(invoke("reliability", "--agent", agent, "--json").stdout)
    (pass_at_1,) = [row for row in reliable if row["k"] == 1]
    (goal,) = [row for row in gate if row["subject"] == "goal_completion"]
    composite = project.table("composite_scores").filter(**of).row(0, named=True)
    return {
        "board": project.table("log_leaderboard").filter(**of)["success_rate"].item(),
        "summary": summary["success rate"]["mean"],
        "goals": summary["goal_completion"]["mean"],
        "composite": composite["goal_completion"],
        "reliability": pass_at_1["pass_at_k"],
        "compare": success["value" if agent == "alpha" else "other_value"],
        "gate": goal["value"],
    }


def fill(root: Path, answer: str) -> None:
    """Label every part of the sheet with an answer."""
    sheet = root / "data" / "sheets" / "sheet-0001.csv"
    rows = [
        {**row, "label": answer, "rater": "anna"} for row in csv.DictReader(sheet.read_text().splitlines())
    ]
    with (root / "labels.csv").open("w") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert invoke("labels", "import", str(root / "labels.csv")).exit_code == 0


def test_drawn_labels_correct_the_headline_everywhere_and_other_labels_only_their_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    root = use(monkeypatch, tmp_path / "project")
    invoke("init", str(root))
    for agent in ("alpha", "beta"):
        import_logs(root, agent)
    settings = root / "agent_eval.toml"
    settings.write_text(settings.read_text() + GATES)
    model.answers["goal_completion"] = 1
    assert invoke("run", "--judge", "scripted").exit_code in (0, 1)
    assert set(shown("alpha").values()) == {1.0}
    before = Project.open().table("quality_summary")

    # a label that no sheet drew counts for its own part, and every surface says so
    (root / "own.csv").write_text(
        "agent,conversation,metric,rater,label\nalpha,alpha-0,goal_completion,carl,0\n"
    )
    assert invoke("labels", "import", str(root / "own.csv")).exit_code == 0
    said = invoke("run", "--judge", "scripted").stdout
    assert set(shown("alpha").values()) == {0.9}
    assert invoke("report", "--out", str(root / "report")).exit_code == 0
    alpha = {"agent_id": "alpha", "methodology_version": VERSION}
    project = Project.open()
    pages = [page.read_text() for page in (root / "report").rglob("alpha*.html")]
    surfaces = {
        "run": said,
        "summary": invoke("summary", "--agent", "alpha").stdout,
        "compare": invoke("compare", "alpha", "beta", "--notes").stdout,
        "reliability": invoke("reliability", "--agent", "alpha").stdout,
        "gate": invoke("gate", "--agent", "alpha", "--json").stdout,
        "report": max(pages, key=lambda page: page.count("decided by people")),
        "Dagster, logs": logs_table(project.table("log_leaderboard")),
        "Dagster, summary": summary_table(project.table("quality_summary").filter(**alpha)),
        "Dagster, reliability": reliability_plot(project.table("reliability").filter(**alpha)),
    }
    missing = [name for name, text in surfaces.items() if not OWN_LABEL.search(text)]
    assert not missing, {name: surfaces[name] for name in missing}
    (label,) = (root / "data" / "ratings").glob("*.csv")
    label.unlink()

    assert invoke("labels", "sheet", "--n", "12", "--metric", "goal_completion").exit_code == 0
    fill(root, "0")
    assert invoke("run", "--judge", "scripted").exit_code in (0, 1)
    for agent in ("alpha", "beta"):
        assert set(shown(agent).values()) == {0.0}, shown(agent)
    summary = Project.open().table("quality_summary").filter(quantity="success rate")
    assert summary.select("mean_of_judge", "n_labels_drawn").unique().rows() == [(1.0, 6)]
    assert (summary["high"] < 0.5).all()
    results = Project.open().table("gate_results").filter(subject="goal_completion")
    assert set(results["result"]) == {"failed"}
    answered = Project.open().table("conversation_judgments").filter(metric="goal_completion")
    people = answered.filter(judge="human")
    assert people["is_effective"].all()
    assert not people["is_counted"].any()
    assert answered.filter("is_counted")["judge"].unique().to_list() == ["scripted"]
    # other quantities are as before
    other = ~pl.col("quantity").is_in(["success rate", "goal_completion"])
    same = ["quantity", "agent_id", "mean", "low", "high"]
    after = Project.open().table("quality_summary")
    assert after.filter(other).select(same).equals(before.filter(other).select(same))
