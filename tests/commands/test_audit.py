"""`agent-eval judge audit`: a judge model that changed its mind is found out, and its earlier answers stay."""

import json
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from agent_eval.definitions import defs
from agent_eval.judge.llm.client import CallError
from agent_eval.project import Project
from tests.commands.conftest import AGENT, Model, invoke

pytestmark = pytest.mark.slow


def said_by(*arguments: str) -> tuple[int, str, str]:
    result = invoke(*arguments)
    return result.exit_code, result.stdout, result.stderr


def overall(printed: str) -> dict[str, object]:
    found: dict[str, object] = next(row for row in json.loads(printed) if row["metric"] == "all")
    return found


def test_an_audit_of_a_judge_that_answered_nothing_has_no_result(root: Path, model: Model) -> None:
    assert said_by("judge", "audit", "--judge", "some/model")[0] == 2


def test_drift_is_measured_kept_and_gated_and_the_stored_answers_stay(
    judged_copy: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = ("--judge", "some/model")
    cache = Project.open().table("judge_cache").sort("cache_key")

    code, out, _ = said_by("judge", "audit", *judge, "--size", "3", "--json")
    assert (code, model.n_asked()) == (0, 3)
    first = overall(out)
    # ratings and labels of several kinds, all as before
    as_before = {"judge": "some/model", "share_equal": 1.0, "mean_difference": 0.0, "kappa": 1.0}
    assert first | as_before | {"n_equal": first["n"]} == first
    assert first["audited_at"]

    model.answers = {"helpfulness": 2}
    code, out, _ = said_by("judge", "audit", *judge, "--size", "3", "--json")
    helpful = next(row for row in json.loads(out) if row["metric"] == "helpfulness")
    assert (code, helpful["n"], helpful["share_equal"], helpful["mean_difference"]) == (0, 3, 0.0, -2.0)
    audits = Project.open().table("judge_audits")
    samples = audits.group_by("audit_id").agg(pl.col("cache_key").sort())["cache_key"].to_list()
    assert samples[0] == samples[1]  # a fixed sample
    assert Project.open().table("judge_cache").sort("cache_key").equals(cache)

    (judged_copy / "agent_eval.toml").write_text("[gates.judge_drift]\nmax_mean_difference = 0.3\n")
    gate = ("gate", "--agent", AGENT, "--json")
    drift = next(row for row in json.loads(said_by(*gate)[1]) if row["gate"] == "judge_drift")
    # the six ratings of each of three turns and one of a conversation: 3 × −2 / 19; 4 of them miss a share 1 − 0.025^(1/4) = 0.60
    assert (drift["result"], drift["subject"]) == ("unknown", "some/model")
    inconclusive = "mean difference -0.316, at most 0.3, 95 % -0.918 to 0.287: inconclusive"
    assert drift["evidence"].startswith(inconclusive)

    model.n_asked()
    code, _, said = said_by("judge", "audit", *judge, "--max-calls", "1")
    assert (code, model.n_asked()) == (1, 1)
    assert "the cap of 1 calls is reached" in said
    model.always = CallError("authentication", "refused")
    code, _, said = said_by("judge", "audit", *judge)
    assert code == 2
    assert "answered nothing" in said

    model.always = None
    monkeypatch.setenv("AGENT_EVAL_JUDGE_MODEL", "some/model")
    with dg.DagsterInstance.from_config(str(judged_copy / ".dagster")) as instance:
        done = defs.resolve_job_def("audit").execute_in_process(instance=instance)
    (made,) = done.asset_materializations_for_node("judge_audits")
    audits = Project.open().table("judge_audits")
    latest = audits.filter(pl.col("audit_id") == pl.col("audit_id").max()).select("verdict_before", "verdict")
    pairs = [(json.loads(before), json.loads(now)) for before, now in latest.iter_rows()]
    rated = [b["rating_1to5"] - a["rating_1to5"] for a, b in pairs if a.get("rating_1to5") is not None]
    assert min(rated) == -2
    assert made.metadata["mean_difference some/model"].value == pytest.approx(sum(rated) / len(rated))
