"""Gates: does this run pass, fail, or not say? Unknown is never passed.

Each gate shows its evidence; `exit_code` turns them into the answer for CI.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal

import polars as pl

from agent_eval.scores.disclosures import NOT_JUDGED
from agent_eval.scores.exact import rounded
from agent_eval.scores.ratings import PAIR, Pair, grouped

Result = Literal["passed", "failed", "unknown"]
Finding = tuple[str, Result, str]  # gate, result, evidence

TESTS = ("standardised_task", "hallucination", "error_injection")
DISCLOSURES = ("u3_scope", "repeatability_tested")
OF_STATUS: Mapping[str, Result] = {
    "published": "passed",
    "provisional": "failed",
    "incomplete": "failed",
    "invalid": "unknown",
    "not_applicable": "unknown",
}
SCHEMA = pl.Schema(dict.fromkeys((*PAIR, "gate", "result", "evidence"), pl.String))


def gates(
    composite_scores: pl.DataFrame,
    turn_judgments: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    transcripts: pl.DataFrame,
    *,
    pairs: pl.DataFrame | None = None,
    max_unscored_share: float = 0.05,
) -> pl.DataFrame:
    """One row per pair of `composite_scores` and gate: passed, failed or unknown, with the evidence.

    `coverage` counts questions (a metric of a turn or conversation) that were put to a model: none put or
    none scored is unknown, more than `max_unscored_share` unscored fails. `required_tests`, `disclosures`
    and `status` are there only for agents with a slotted session, one that was held as a benchmark. A pair of
    `pairs` (agent_id, methodology_version) without a composite row has an unknown status: it never passes unseen.
    """
    allowed = Fraction(str(max_unscored_share))
    asked = _asked(turn_judgments, conversation_judgments)
    slotted = _slotted(transcripts)
    rows = []
    for row in composite_scores.sort(PAIR).iter_rows(named=True):
        pair = Pair(row["methodology_version"], row["agent_id"])
        n_asked, n_unscored, reasons = asked.get(pair, (0, 0, []))
        found = [_coverage(n_asked, n_unscored, reasons, allowed)]
        found += _of_benchmark(row) if pair in slotted else []
        rows += [(*pair, *finding) for finding in found]
    if pairs is not None:
        unseen = pairs.join(composite_scores, on=PAIR, how="anti").select(PAIR).sort(PAIR)
        rows += [
            (*pair, "status", "unknown", "no transcripts: not run yet, or every record was refused")
            for pair in unseen.rows()
        ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort(PAIR, maintain_order=True)


def exit_code(gates: pl.DataFrame) -> int:
    """1 any failed, else 2 any unknown or nothing evaluated, else 0."""
    results = set(gates["result"])
    if "failed" in results:
        return 1
    return 0 if results == {"passed"} else 2


def _asked(
    turn_judgments: pl.DataFrame, conversation_judgments: pl.DataFrame
) -> dict[Pair, tuple[int, int, list[str]]]:
    """Per pair: questions put to a model, how many no judge scored, and the reasons."""
    columns = [*PAIR, "conversation_id", "turn_index", "metric", "judge", "status", "unscored_reason"]
    turns = turn_judgments.select(columns)
    whole = conversation_judgments.with_columns(turn_index=pl.lit(None, pl.Int64)).select(columns)
    unscored = pl.col("status") == "unscored"
    by_model = ~pl.col("judge").is_in(["rule", "human"]) & pl.col("status").is_in(["scored", "unscored"])
    questions = (
        pl.concat([turns, whole])
        .filter(by_model | unscored)
        .group_by(*PAIR, "conversation_id", "turn_index", "metric")
        .agg(is_unscored=unscored.all(), reason=pl.col("unscored_reason").drop_nulls().min())
    )
    per_pair = questions.group_by(PAIR).agg(
        pl.len(),
        pl.col("is_unscored").sum(),
        pl.col("reason").filter("is_unscored").drop_nulls().unique().sort(),
    )
    return {Pair(version, agent): (n, lost, why) for version, agent, n, lost, why in per_pair.iter_rows()}


def _slotted(transcripts: pl.DataFrame) -> set[Pair]:
    """Pairs with a slotted conversation that counts, or that only a failing harness kept from counting."""
    counts = pl.col("is_admitted") | pl.col("reason").str.starts_with("harness failure").fill_null(False)
    held = transcripts.filter(pl.col("slot").is_not_null() & counts)
    return {Pair(*row) for row in held.select(PAIR).unique().iter_rows()}


def _coverage(n_asked: int, n_unscored: int, reasons: Sequence[str], allowed: Fraction) -> Finding:
    if n_asked == 0:
        return "coverage", "unknown", "no question was put to a model"
    why = f" ({', '.join(reasons)})" if reasons else ""
    share = Fraction(n_unscored, n_asked)
    evidence = (
        f"{n_asked - n_unscored} of {n_asked} questions scored, {rounded(share * 100)} % unscored{why}; "
        f"allowed {rounded(allowed * 100)} %"
    )
    if n_unscored == n_asked:
        return "coverage", "unknown", evidence
    return "coverage", "failed" if share > allowed else "passed", evidence


def _of_benchmark(row: Mapping[str, object]) -> Iterator[Finding]:
    missing, status = _texts(row["missing"]), str(row["status"])
    lost = (
        status == "invalid" and row["n_sessions"] == 0
    )  # nothing was held: the harness's failure, not a gap
    tests, disclosures = _about(TESTS, missing), _about(DISCLOSURES, missing)
    warned = _about(TESTS, _texts(row["warnings"]))
    absent = [text for text in tests if not text.endswith(NOT_JUDGED)]
    yield (
        "required_tests",
        "unknown" if lost else "failed" if absent else "unknown" if tests else "passed",
        "; ".join(grouped([*tests, *warned])) or "all required tests are present",
    )
    yield (
        "disclosures",
        "unknown" if lost else "failed" if disclosures else "passed",
        "; ".join(grouped(disclosures)) or "all required disclosures are made",
    )
    yield "status", OF_STATUS[status], "; ".join([status, *grouped(missing)])


def _about(names: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The texts that name one of these first: 'hallucination: …', 'u3_scope (session b): …'."""
    wanted = tuple(names)
    return [text for text in texts if re.split(r"[ :]", text, maxsplit=1)[0] in wanted]


def _texts(value: object) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else []
