"""`agent-eval run` with a judge model: caps, outages, what is asked again, and what a process without a model leaves alone."""

import json
from pathlib import Path

import polars as pl
import pytest

from agent_eval.judge.llm.client import CallError
from agent_eval.project import Project
from agent_eval.tables import table
from tests.commands.conftest import AGENT, KEY, Model, invoke
from tests.judge.fakes import USAGE

pytestmark = pytest.mark.slow

VERSION = "1.3.0"


def run(*options: str, judge: bool = True) -> tuple[int, str]:
    named = ("--judge", "some/model") if judge else ()
    done = invoke("run", "--methodology", VERSION, *named, *options)
    return done.exit_code, done.stderr


def judged() -> pl.DataFrame:
    store = Project.open().store
    columns = ["judge", "status", "unscored_reason", "metric", "cost_usd", "question_key"]
    parts = (
        store.read(table(name), columns=columns) for name in ("turn_judgments", "conversation_judgments")
    )
    return pl.concat(parts)


def of_model(status: str) -> int:
    rubrics = Project.open().store.read(table("rubric_ratings"), columns=["judge", "status"])
    rows = pl.concat([judged().select("judge", "status"), rubrics])
    return rows.filter(judge="some/model", status=status).height


def clusters() -> pl.DataFrame:
    """The clusters with words: the others are named by their block alone."""
    return Project.open().table("error_registry").filter(pl.col("founder").is_not_null())


def gates() -> tuple[int, dict[str, set[str]]]:
    """The exit code of `agent-eval gate`, and the results of each gate."""
    done = invoke("gate", "--agent", AGENT, "--json")
    found = pl.DataFrame(json.loads(done.stdout))
    return done.exit_code, {str(gate): set(rows["result"]) for (gate,), rows in found.group_by("gate")}


def test_what_a_judge_has_not_answered_is_asked_once_and_what_it_answered_stays(
    root: Path, model: Model
) -> None:
    (root / "agent_eval.toml").write_text("[gates.thresholds]\nhelpfulness = 4\n")
    an_outage_a_cap_and_the_rest_each_pay_only_for_what_is_missing(root, model)
    a_process_without_the_model_keeps_its_verdicts_and_what_it_leaves_open_is_asked_later(root, model)


def an_outage_a_cap_and_the_rest_each_pay_only_for_what_is_missing(root: Path, model: Model) -> None:
    """Of the gates an outage is unknown, a part of the answers fails, and a judge that answers passes."""
    estimate = ("run", "--methodology", VERSION, "--judge", "some/model", "--dry-run", "--json")
    n_calls = json.loads(invoke(*estimate).stdout)[-1]["n_calls"]
    assert not (root / "data" / "agent_eval.duckdb").exists()  # nothing was done

    model.always = CallError("authentication", f"refused {KEY[:2]}")
    code, _ = run()
    assert code == 2
    assert model.n_asked() <= 5 + 16 + 5  # five in a row end a pass; those under way finish
    assert of_model("scored") == 0
    assert of_model("unscored") > 0
    code, found = gates()
    assert code == 2
    assert found["coverage"] == found["threshold"] == found["errors"] == {"unknown"}

    model.always = None
    code, said = run("--max-calls", "5")
    assert (code, model.n_asked()) == (1, 5)
    assert "5 judge calls" in said
    assert set(judged().filter(status="unscored")["unscored_reason"]) == {"budget_exhausted"}
    paid = of_model("scored")
    code, found = gates()
    assert (code, found["coverage"]) == (1, {"failed"})
    assert "unknown" in found["threshold"]

    code, _ = run()
    assert (code, model.n_asked()) == (0, n_calls - 5)
    assert of_model("unscored") == 0
    assert of_model("scored") > paid
    _, found = gates()
    assert found["coverage"] == found["threshold"] == {"passed"}  # every rating is a 4
    bill = pytest.approx(n_calls * (USAGE.cost_usd or 0))
    assert Project.open().table("judge_cache")["cost_usd"].sum() == bill  # it is stored


def a_process_without_the_model_keeps_its_verdicts_and_what_it_leaves_open_is_asked_later(
    root: Path, model: Model
) -> None:
    before = judged()
    for judge in (True, False):
        assert "Nothing was stale" in run(judge=judge)[1]

    lines = (file := next(root.rglob("conversations.jsonl"))).read_text().splitlines()
    first = json.loads(lines[0])
    said = {"user": "And now?", "assistant": "All is done."}
    first["messages"] += [{"role": role, "content": text} for role, text in said.items()]
    file.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    run(judge=False)
    open_now = judged()
    assert "needs a judge model" in set(open_now["unscored_reason"])
    kept = before.filter(judge="some/model", metric="helpfulness")
    assert kept.join(open_now, on=["question_key", "judge", "status"], how="semi").height == kept.height
    assert run()[0] == 0
    assert 1 <= model.n_asked() <= 3  # the turn with the whole, the session, the slot's criteria
    assert "needs a judge model" not in set(judged().filter(metric="helpfulness")["unscored_reason"])


def n_calls_planned() -> int:
    *_, total = json.loads(
        invoke("run", "--methodology", VERSION, "--judge", "some/model", "--dry-run", "--json").stdout
    )
    return int(total["n_calls"])


def test_a_cluster_without_a_name_keeps_the_rules_loses_nothing_and_is_asked_for_again(
    root: Path, model: Model
) -> None:
    model.answers = {"agent_behavior_failure": "false information", "every name": "none"}
    code, said = run()
    n_calls = model.n_asked()
    assert (code, "keep the name of the rule" in said) == (0, True)
    before = clusters()
    assert before["naming_problem"].null_count() == 0
    assert before["title"].to_list() == before["rule_title"].to_list()
    failures = Project.open().table("failures")
    assert failures["cluster_id"].null_count() == 0

    del model.answers["every name"]
    n_planned = n_calls_planned()
    assert run()[0] == 0
    assert model.n_asked() == n_planned == -(-before.height // 5)
    named = clusters()
    assert set(named["named_by"]) == {"some/model"}
    assert named["naming_problem"].null_count() == named.height
    assert Project.open().table("failures").equals(failures)
    assert ("Nothing was stale" in run()[1], n_calls_planned()) == (True, 0)

    bill = Project.open().table("judge_cache")["cost_usd"].sum()
    assert bill == pytest.approx(n_calls * (USAGE.cost_usd or 0))  # as many names as were lost before

    (root / "agent_eval.toml").write_text('taxonomy = "trail"\n')
    n_sorting = n_calls_planned()
    assert (run()[0], model.n_asked()) == (0, n_sorting)
    assert n_sorting >= 1
    assert set(clusters()["category_by"]) == {"some/model"}
    assert n_calls_planned() == 0


def test_a_cap_in_dollars_needs_a_price(root: Path, model: Model) -> None:
    with pytest.raises(Exception, match="price of judge model 'some/model' is not known"):
        invoke("run", "--judge", "some/model", "--max-cost", "1")
    assert model.n_asked() == 0
