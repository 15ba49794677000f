"""Evaluate the calibration gate: whether each judge demonstrably agrees with people, on enough labels."""

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.gates.coverage import NO_QUESTIONS, Asked
from agent_eval.gates.finding import GateFinding, listed, short
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.settings.gate_spec import CalibrationLimits, Rules, exact

SHEET = "label some with agent-eval labels sheet"


def calibration_findings(
    rules: Rules, standings: pl.DataFrame, question_counts: Asked = NO_QUESTIONS
) -> list[GateFinding]:
    """Return one finding per judge and metric of a pair, or an empty list if the rules do not require calibration.

    If the rules do not list `metrics`, the gate covers the metrics that people labelled. For a judge without a labelled
    metric, the result is then unknown.

    Args:
        rules: The gate rules with the limits.
        standings: Rows of `judge_standings` for the pair.
        question_counts: The questions of the pair. If nothing is left to ask a model, the result without a judge is passed.
    """
    limits = rules.calibration
    if limits is None:
        return []
    if standings.is_empty():
        reason = "no judge other than people and rules answered"
        return [GateFinding("calibration", question_counts.without_judge, reason)]
    findings: list[GateFinding] = []
    for (judge,), of_judge in standings.group_by("judge", maintain_order=True):
        rows = {row["metric"]: row for row in of_judge.iter_rows(named=True)}
        labelled = [metric for metric, row in rows.items() if row["n"] is not None]
        findings += [
            _of_metric(str(judge), metric, rows.get(metric), limits, question_counts)
            for metric in limits.metrics or labelled
        ]
        if not limits.metrics and not labelled:
            reason = f"no answer of {short(str(judge))} was compared with labels by people: {SHEET}"
            findings.append(GateFinding("calibration", "unknown", reason, str(judge)))
        elif not limits.metrics and (others := sorted(rows.keys() - labelled)):
            last = findings[-1]
            more = f"; no labels of {listed(others)}"
            findings[-1] = GateFinding(**{**vars(last), "evidence": last.evidence + more})
    return findings


def _of_metric(
    judge: str, metric: str, row: Mapping[str, Any] | None, limits: CalibrationLimits, question_counts: Asked
) -> GateFinding:
    subject = f"{metric} by {judge}"
    if row is None and question_counts.is_any and question_counts.n_unscored == question_counts.n_open == 0:
        return GateFinding("calibration", "passed", "the judge answered no question about it", subject)
    if row is None or row["n"] is None:
        return GateFinding("calibration", "unknown", f"no labels by people: {SHEET}", subject)
    text = f"judge and people on n = {row['n']:,}"
    if row["standing"] == "stale":
        of = f" of {short(row['compared_judge'])}" if row["compared_judge"] != judge else ""
        reason = f"{text}{of}: stale, because the rubric, prompt or model has changed; run agent-eval run, or {SHEET}"
        return GateFinding("calibration", "unknown", reason, subject)
    if limits.min_n is not None and row["n"] < limits.min_n:
        reason = f"{text}, at least {limits.min_n:,}: needs {count_of(limits.min_n - row['n'], 'more label')}"
        return GateFinding("calibration", "failed", reason, subject, row["n"])
    if limits.min_kappa is None:
        return GateFinding("calibration", "passed", text, subject, row["n"])
    return _of_kappa(subject, text, row, limits)


def _of_kappa(subject: str, text: str, row: Mapping[str, Any], limits: CalibrationLimits) -> GateFinding:
    least, kappa, low = limits.min_kappa or exact(0), row["kappa"], row["kappa_low"]
    if kappa is None:
        why = "1 label is too few" if row["n"] == 1 else "kappa is not defined, as all answers are the same"
        reason = f"{text}: {why}; {SHEET}"
        return GateFinding("calibration", "unknown", reason, subject, threshold=least)
    name = "kappa with quadratic weights" if row["is_weighted"] else "kappa"
    text = f"{text}: {name} {kappa:.2f}, lower end at least {float(least):g}"
    if low is None:
        reason = f"{text}; no interval: labels of {row['n_conversations']} conversations are too few or do not vary"
        return GateFinding("calibration", "unknown", reason, subject, kappa, least)
    text = f"{text}, 95 % {low:.2f} to {row['kappa_high']:.2f}"
    if low >= float(least):
        return GateFinding("calibration", "passed", text, subject, kappa, least)
    return GateFinding("calibration", "failed", f"{text}: {_needs(row, float(least))}", subject, kappa, least)


def _needs(row: Mapping[str, Any], least: float) -> str:
    """Return, as text, how many labels this kappa needs to pass the gate.

    The width of the interval is assumed to shrink with the square root of the number of labels.
    """
    distance = row["kappa"] - least
    if distance <= 1e-9:
        return "more labels alone do not help, as the kappa itself is too low"
    n = math.ceil(row["n"] * ((row["kappa"] - row["kappa_low"]) / distance) ** 2)
    return f"at this kappa it needs about {count_of(max(n, row['n'] + 1), 'label')}"


def _findings(case: GateCase) -> list[GateFinding]:
    if case.calibration is None:
        return []
    return calibration_findings(case.rules, case.own(case.calibration), case.asked)


GATE = Gate(
    order=100,
    kinds=(
        Kind(
            "calibration",
            "The interval of each judge's kappa with people lies above its limit, on enough labels.",
            exists="`[gates.calibration]` is set",
            passes="for each judge and metric, the lower end of the 95 % interval of kappa with people is at least `min_kappa`, on at least `min_n` labels; without a judge as `judge_drift`",
        ),
    ),
    findings=_findings,
)
