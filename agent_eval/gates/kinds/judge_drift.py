"""Evaluate the judge drift gate: whether a judge model repeated its earlier answers in the latest audit."""

import math
from collections.abc import Collection, Mapping
from fractions import Fraction

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.gates.coverage import NO_QUESTIONS, Asked
from agent_eval.gates.finding import GateFinding, Result, worst
from agent_eval.gates.registry import Gate, GateCase, Kind
from agent_eval.judge.audits.drift import ALL_METRICS
from agent_eval.settings.gate_spec import DriftLimits, Rules, exact

TAIL = 0.025  # probability of each tail of a two-sided 95 % interval


def drift_findings(
    rules: Rules, judge_drift: pl.DataFrame, judges: Collection[str], question_counts: Asked = NO_QUESTIONS
) -> list[GateFinding]:
    """Return one finding per judge model of a pair, or an empty list if the rules do not limit drift.

    Args:
        rules: The gate rules with the limits.
        judge_drift: Drift per judge model and metric, from `judge.audits.drift`.
        judges: The judge models that answered for the pair.
        question_counts: The questions of the pair. If nothing is left to ask a model, the result without a judge is passed.
    """
    limits = rules.judge_drift
    if limits is None:
        return []
    if not judges:
        return [GateFinding("judge_drift", question_counts.without_judge, "no judge model answered")]
    rows = {row["judge"]: row for row in judge_drift.filter(metric=ALL_METRICS).iter_rows(named=True)}
    return [_of_judge(judge, rows.get(judge), limits) for judge in sorted(judges)]


def _of_judge(judge: str, row: dict[str, object] | None, limits: DriftLimits) -> GateFinding:
    if row is None:
        return GateFinding(
            "judge_drift", "unknown", f"{judge} was never audited: run agent-eval judge audit", judge
        )
    checks = (
        ("mean_difference", limits.max_mean_difference, "at most"),
        ("share_equal", limits.min_share_equal, "at least"),
        ("kappa", limits.min_kappa, "at least"),
    )
    results: list[Result] = []
    parts = []
    for name, limit, way in checks:
        if limit is None:
            continue
        result, text = _held(name, row, limit, way)
        results.append(result)
        parts.append(text)
    evidence = f"{'; '.join(parts)}; {count_of(row['n'], 'answer')} of {judge} on {count_of(row['n_turns'], 'turn')} audited on {str(row['audited_at'])[:10]}"
    return GateFinding("judge_drift", worst(results), evidence, judge)


def _held(name: str, row: Mapping[str, object], limit: Fraction, way: str) -> tuple[Result, str]:
    """Compare a figure of the audit with its limit; return the result and its description.

    The result is passed if the whole 95 % interval is within the limit, failed if the whole interval is outside,
    else unknown.
    """
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    words = name.replace("_", " ")
    if not isinstance(value, float):
        return "unknown", f"{words} is not known"
    figure_text = f"{words} {value:.3g}, {way} {float(limit):.3g}"
    if not (isinstance(low, float) and isinstance(high, float)):
        return "unknown", f"{figure_text}: no interval, too few turns"
    figure_text = f"{figure_text}, 95 % {low:.3g} to {high:.3g}"
    if all(_keeps(exact(end), limit, way) for end in (low, high)):
        return "passed", figure_text
    misses = not _keeps(exact(value), limit, way)
    if (
        misses
        and (way == "at least" or low * high > 0)
        and not any(_keeps(exact(e), limit, way) for e in (low, high))
    ):
        return "failed", figure_text
    return "unknown", f"{figure_text}: inconclusive{_needs(name, row, value, (low, high), float(limit), way)}"


def _needs(
    name: str, row: Mapping[str, object], value: float, ends: tuple[float, float], limit: float, way: str
) -> str:
    """Return a clause with the number of turns that would decide the gate if the figure stayed the same.

    The half-width of an interval that is computed from the spread between turns shrinks with the square root of
    the number of turns. If no turn differs, the half-width is the bound 1 − 0.025^(1/n), which shrinks with n.
    """
    distance = abs((abs(value) if way == "at most" else value) - limit)
    n_turns = row["n_turns"]
    if distance < 1e-9 or not isinstance(n_turns, int):
        return ""
    reach = max(value - ends[0], ends[1] - value)
    n = math.ceil(n_turns * (reach / distance) ** 2)
    missed = 1 - TAIL ** (1 / n_turns)
    is_bound = name == "mean_difference" and math.isclose(reach, missed, rel_tol=1e-6)
    if is_bound or row["share_equal"] == 1:
        # solve distance = (1 − 0.025^(1/n)) × the change that one differing answer makes
        n = math.ceil(math.log(TAIL) / math.log1p(-min(distance / reach * missed, 1 - 1e-9)) - 1e-9)
    return f", needs about {count_of(max(n, n_turns + 1), 'turn')}"


def _keeps(value: Fraction, limit: Fraction, way: str) -> bool:
    near = Fraction(1, 10**9)  # tolerance, because the value is a mean of floats
    return abs(value) <= limit + near if way == "at most" else value >= limit - near


def _findings(case: GateCase) -> list[GateFinding]:
    if case.judge_drift is None:
        return []
    judges = case.facts.models.get(case.pair, frozenset[str]())
    return drift_findings(case.rules, case.judge_drift, judges, case.asked)


GATE = Gate(
    order=90,
    kinds=(
        Kind(
            "judge_drift",
            "The intervals of the latest audit's figures are within their limits.",
            exists="`[gates.judge_drift]` is set",
            passes="the 95 % intervals of the limited figures of the latest audit are within their limits, or no judge model answered and nothing is left to ask",
        ),
    ),
    findings=_findings,
)
