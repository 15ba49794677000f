"""Judgments of other tools: read, and compared with ours by conversation."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from agent_eval.judge.inputs.foreign_judgments import agreement, kept_policy, read_foreign


def entry(name: object = "c1", verdict: object = "pass", **facts: object) -> dict[str, object]:
    judge = {"judge_model": "m", "judge_prompt_name": "p"}
    return {"simulation_id": name, "judge_verdict": verdict, **judge, **facts}


def written(folder: Path, value: object, name: str = "j.json") -> Path:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder / name


def test_bad_entries_are_refused_by_file_and_number_and_the_rest_counts(tmp_path: Path) -> None:
    held = [entry(), entry(), entry("c2", "maybe"), entry(None), 3, entry("c3", None), entry("c4", "fail")]
    rows, refusals = read_foreign([written(tmp_path, {"entries": held})])
    verdicts = [("c1", True), ("c2", None), ("c3", None), ("c4", False)]
    assert rows.select("conversation_id", "is_passed").rows() == verdicts
    assert [(r.file, r.line) for r in refusals] == [("j.json", n) for n in (2, 3, 4, 5, 6)]
    assert "'maybe' is not known; known: pass" in refusals[1].reason


@pytest.mark.parametrize(
    ("verdict", "facts", "is_passed", "reason"),
    [
        ("Pass ", {}, True, None),
        ("satisfied", {}, True, None),
        ("compliant", {}, True, None),
        ("FAIL", {}, False, None),
        ("satisfactory", {"agreement": None, "tau2_success": True}, None, "could not be read by its source"),
        ("mostly fine", {"agreement": True, "tau2_success": True}, True, None),
        ("mostly fine", {"agreement": False, "tau2_success": True}, False, None),
        ("pass", {"agreement": True, "tau2_success": False}, None, "contradicts agreement"),
        ("satisfactory", {"agreement": None}, True, None),  # without an outcome the source compared nothing
        ("Tie", {}, None, "is a tie"),
    ],
)
def test_a_verdict_is_read_as_its_source_read_it(
    tmp_path: Path, verdict: str, facts: dict[str, object], is_passed: bool | None, reason: str | None
) -> None:
    entries = {"entries": [entry(verdict=verdict, **facts)]}
    rows, refusals = read_foreign([written(tmp_path, entries, "j.json.gz")])
    assert (rows["is_passed"].to_list(), rows["judge"].to_list()) == ([is_passed], ["m p"])
    assert [reason in r.reason for r in refusals if reason] == [True] * (reason is not None)
    assert len(refusals) == (reason is not None)


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"entries": 3}', b"\xff", b"[" * 100_000])
def test_a_file_that_is_none_is_refused(tmp_path: Path, value: bytes) -> None:
    good = written(tmp_path, {"entries": [entry()]}, "good.json")
    rows, [refusal] = read_foreign([written(tmp_path, value), good])
    assert (rows.height, refusal.file, refusal.line) == (1, "j.json", 0)
    assert read_foreign([tmp_path / "gone.json"])[1][0].line == 0
    truncated = tmp_path / "t.json.gz"
    truncated.write_bytes(gzip.compress(json.dumps({"entries": [entry()]}).encode())[:20])
    assert len(read_foreign([truncated])[1]) == 1


def test_agreement_is_over_conversations_that_both_judged() -> None:
    foreign = pl.DataFrame(
        [(c, "m p", p) for c, p in (("a", True), ("b", True), ("c", False), ("d", False), ("e", True))],
        schema=["conversation_id", "judge", "is_passed"], orient="row",
    )  # fmt: skip
    turns = pl.DataFrame(
        [("a", "scored", 1.0), ("b", "scored", 1.0), ("b", "scored", 0.5), ("c", "scored", 0.0), ("d", "scored", 1.0),
         ("e", "unscored", None), ("e", "not_applicable", None)],
        schema=["conversation_id", "status", "value"], orient="row",
    )  # fmt: skip
    ours = kept_policy(turns)
    assert ours == {"a": True, "b": False, "c": False, "d": True}
    [row] = agreement(foreign, ours).to_dicts()
    # both judged a, b, c, d: equal on a and c; by chance 0.5 × 0.5 + 0.5 × 0.5 = 0.5
    assert row == {
        "judge": "m p", "n_foreign": 5, "n": 4, "kept_by_foreign": 0.5, "kept_by_ours": 0.5, "share_equal": 0.5,
        "kappa": 0.0,
    }  # fmt: skip
    [nothing] = agreement(foreign, {}).to_dicts()
    assert (nothing["n"], nothing["share_equal"], nothing["kappa"]) == (0, None, None)


def test_the_judges_of_tau2_are_read_whole(shared_data: Path) -> None:
    folder = shared_data / "tau2_judges"
    rows, refusals = read_foreign(sorted(folder.glob("*.json.gz")))
    assert rows.height == 200
    # satisfactory (3), compliant and correct: `agreement` is null
    assert {r.file for r in refusals} == {"airline__policy_chain_of_thought_v1.json.gz"}
    assert rows["is_passed"].null_count() == len(refusals) == 5
    equal = pl.col("is_passed") == pl.col("is_success")
    counts = rows.group_by("judge").agg(pl.col("is_passed").sum(), equal.sum().alias("equal"))
    assert {name.split()[-1]: (passed, equal) for name, passed, equal in counts.iter_rows()} == {
        "customer_outcome_v1": (35, 20), "policy_chain_of_thought_v1": (32, 18),
        "policy_conversation_v1": (29, 34), "quick_triage_v1": (46, 25),
    }  # fmt: skip
