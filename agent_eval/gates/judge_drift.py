"""The gate on judge drift: does a judge model still say what it said, by the latest audit?"""

from collections.abc import Collection
from fractions import Fraction

import polars as pl

from agent_eval.gates.finding import GateFinding, Result, worst
from agent_eval.judge.audits.drift import ALL_METRICS
from agent_eval.settings.gate_spec import DriftLimits, Rules, exact


def drift_findings(rules: Rules, judge_drift: pl.DataFrame, judges: Collection[str]) -> list[GateFinding]:
    """One finding per judge model of a pair; none where drift is not limited.

    Args:
        rules: The limits.
        judge_drift: The drift of each model and metric, see `judge.audits.drift`.
        judges: The models that answered for the pair.
    """
    limits = rules.judge_drift
    if limits is None:
        return []
    if not judges:
        return [GateFinding("judge_drift", "unknown", "no judge model answered here")]
    rows = {row["judge"]: row for row in judge_drift.filter(metric=ALL_METRICS).iter_rows(named=True)}
    return [_of_judge(judge, rows.get(judge), limits) for judge in sorted(judges)]


def _of_judge(judge: str, row: dict[str, object] | None, limits: DriftLimits) -> GateFinding:
    if row is None:
        return GateFinding(
            "judge_drift", "unknown", f"{judge} was never audited: run agent-eval audit", judge
        )
    checks = (
        ("mean difference", row["mean_difference"], limits.max_mean_difference, "at most"),
        ("share equal", row["share_equal"], limits.min_share_equal, "at least"),
        ("kappa", row["kappa"], limits.min_kappa, "at least"),
    )
    results: list[Result] = []
    told = []
    for name, value, limit, way in checks:
        if limit is None:
            continue
        if not isinstance(value, float):
            results.append("unknown")
            told.append(f"{name} is not known")
            continue
        results.append("passed" if _keeps(exact(value), limit, way) else "failed")
        told.append(f"{name} {value:.3g}, {way} {float(limit):.3g}")
    evidence = f"{'; '.join(told)}; {row['n']} answers of {judge} audited on {str(row['audited_at'])[:10]}"
    return GateFinding("judge_drift", worst(results), evidence, judge)


def _keeps(value: Fraction, limit: Fraction, way: str) -> bool:
    near = Fraction(1, 10**9)  # a mean of floats
    return abs(value) <= limit + near if way == "at most" else value >= limit - near
