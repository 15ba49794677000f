"""Evaluate thresholds: the mean of a metric must reach its limit in every scenario and for the agent as a whole.

A scenario is a slot of the methodology. A conversation without a slot belongs to the scenario of its task, and a
conversation without a task is a scenario by itself. The mean of a label metric is the share of turns without a
failure. Means are exact fractions, so a mean equal to the limit passes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.gates.estimates import MeanEstimate, MeanEstimates
from agent_eval.gates.finding import GateFinding, Result
from agent_eval.gates.names import DIMENSIONS, is_score
from agent_eval.metrics.base import HARNESS_ERROR, NO_FAILURE, NO_TURNS, UNANSWERED, UNEXPLAINED_ERROR
from agent_eval.metrics.metric_set import mean_of
from agent_eval.scores.composite.ratings import PAIR
from agent_eval.scores.labelled_parts import labels_said
from agent_eval.scores.reliability.trials import GOAL_METRIC
from agent_eval.scores.statistics.compared_values import DECLARED, is_left_out
from agent_eval.scores.statistics.exact import from_text, rounded
from agent_eval.scores.statistics.unpaired import RULE
from agent_eval.settings.gate_spec import Rules, exact
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.judging import enters_means
from agent_eval.transcripts.outcomes import is_unexplained_error
from agent_eval.transcripts.scenario_names import gated_scenario

_ROUNDING = Fraction(1, 10**9)
"""Tolerance for values that were stored as floats: a share of 0.7 may be stored as 0.6999…"""


@dataclass(frozen=True)
class Mean:
    """Accumulate a mean: the sum and number of scored answers, and the number of open answers.

    `doubted` is the amount by which the sum may be too low, because errors of unknown cause may be the harness's: such a
    conversation may have missed its goal through the harness, and only the best case counts the goal as reached.
    `total_by_rule` and `n_by_rule` are the part of the answers that rules gave.
    """

    total: Fraction = Fraction()
    n: int = 0
    n_open: int = 0
    doubted: Fraction = Fraction()
    total_by_rule: Fraction = Fraction()
    n_by_rule: int = 0

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(
            self.total + other.total,
            self.n + other.n,
            self.n_open + other.n_open,
            self.doubted + other.doubted,
            self.total_by_rule + other.total_by_rule,
            self.n_by_rule + other.n_by_rule,
        )


Means = Mapping[str, Mapping[str, Mean]]
"""Mean by metric and scenario."""
Bounds = tuple[Fraction, Fraction]
"""Worst and best case of a score."""
Scores = Mapping[str, Mapping[str, Fraction]]
"""Value by score and task set ('' for all tasks)."""


def means(
    turn_judgments: pl.DataFrame,
    conversation_judgments: pl.DataFrame,
    transcripts: pl.DataFrame,
    metrics: Collection[str],
    scenarios: Collection[str] = (),
) -> dict[AgentVersion, dict[str, dict[str, Mean]]]:
    """Return, per pair, the mean of each of these metrics in every scenario.

    The means cover the effective judgments of admitted conversations. An answer is open if people disagree, or if
    the metric applies but has no answer because the judge failed, a model is needed, the harness failed, or there
    was nothing to read. `transcripts` may have the column outcome_class of table conversations: a goal that was
    missed in an error of unknown cause is doubted. Benchmark scenarios in `scenarios` have means of their own. Answers of rules in conversations outside the judged sample are omitted.
    """
    if not metrics:
        return {}
    columns = [*PAIR, "conversation_id", "metric", "judge", "status", "unscored_reason"]
    is_by_rule = ((pl.col("judge") == RULE) & ~pl.col("metric").is_in(DECLARED)).alias("is_by_rule")
    columns += ["rating_1to5", "value", "label"]
    answer = pl.coalesce(
        pl.col("rating_1to5").cast(pl.Float64),
        "value",
        pl.when(pl.col("label").is_not_null()).then((pl.col("label") == NO_FAILURE).cast(pl.Float64)),
    )
    lacking = pl.col("unscored_reason").is_in([*UNANSWERED, NO_TURNS, HARNESS_ERROR, UNEXPLAINED_ERROR])
    is_open = pl.col("status").is_in(["unscored", "invalid", "disputed"]) | lacking
    scenario = gated_scenario(scenarios).alias("scenario")
    has_classes = "outcome_class" in transcripts.columns
    is_doubted = (is_unexplained_error() if has_classes else pl.lit(value=False)).alias("is_doubted")
    judgment_counts = (
        pl.concat(
            frame.filter(enters_means(frame)).select(columns)
            for frame in (turn_judgments, conversation_judgments)
        )
        .filter(~(is_by_rule & is_left_out()))
        .filter(pl.col("metric").is_in(list(metrics)))
        .with_columns(
            answer=pl.when(pl.col("status") == "scored").then(answer), is_open=is_open.fill_null(False)
        )
        .filter(pl.col("answer").is_not_null() | pl.col("is_open"))
        .join(
            transcripts.filter("is_admitted").select(*PAIR, "conversation_id", scenario, is_doubted),
            on=[*PAIR, "conversation_id"],
        )
        .group_by(*PAIR, "metric", "scenario", "answer", is_by_rule, "is_doubted")
        .len()
    )
    by_agent: dict[AgentVersion, dict[str, dict[str, Mean]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(Mean))
    )
    for version, agent, metric, name, value, by_rule, doubted, n in judgment_counts.iter_rows():
        total = exact(value or 0) * n
        of_rule = {"total_by_rule": total, "n_by_rule": n} if by_rule else {}
        part = Mean(n_open=n) if value is None else Mean(total, n, **of_rule)
        if doubted and metric == GOAL_METRIC and value is not None:
            part += Mean(doubted=n - total)
        by_agent[AgentVersion(agent, version)][metric][name] += part
    return by_agent


def agent_scores(
    composite_scores: pl.DataFrame,
    universal_scores: pl.DataFrame,
    domain_scores: pl.DataFrame,
    reliability: pl.DataFrame,
) -> dict[AgentVersion, dict[str, dict[str, Fraction]]]:
    """Return the scores of every pair under the names that thresholds use; unknown scores are omitted."""
    by_agent: dict[AgentVersion, dict[str, dict[str, Fraction]]] = defaultdict(lambda: defaultdict(dict))
    for frame, name, column in (
        (composite_scores, "composite", "composite_exact"),
        (composite_scores, "raw_composite", "raw_composite_exact"),
        (universal_scores, "universal", "universal_exact"),
        (domain_scores, "domain", "domain_exact"),
    ):
        for version, agent, text in frame.select(*PAIR, column).drop_nulls(column).iter_rows():
            by_agent[AgentVersion(agent, version)][name][""] = from_text(text)
    for frame, letter in ((universal_scores, "U"), (domain_scores, "D")):
        names = [name.lower() for name in DIMENSIONS if name.startswith(letter)]
        long = frame.select(*PAIR, *names).unpivot(index=PAIR).drop_nulls("value")
        for version, agent, name, value in long.iter_rows():
            by_agent[AgentVersion(agent, version)][name.upper()][""] = _near(value)
    for pair, name, task_set, value, _, _ in _pass_rates(reliability):
        if value is not None:
            by_agent[pair][name][task_set] = _near(value)
    return by_agent


def score_bounds(reliability: pl.DataFrame) -> dict[AgentVersion, dict[str, dict[str, Bounds]]]:
    """Return the worst and best case of the pass rates that depend on trials with an unknown outcome."""
    by_agent: dict[AgentVersion, dict[str, dict[str, Bounds]]] = defaultdict(lambda: defaultdict(dict))
    for pair, name, task_set, value, worst, best in _pass_rates(reliability):
        if value is not None and worst is not None and best is not None:
            low, high = _near(worst), _near(best)
            if not low == high == _near(value):
                by_agent[pair][name][task_set] = low, high
    return by_agent


def labels_of_rates(reliability: pl.DataFrame) -> dict[AgentVersion, dict[str, dict[str, str]]]:
    """Return what people's labels do to the pass rates of every pair, by name and task set."""
    texts: dict[AgentVersion, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for row in reliability.drop_nulls("labels").filter(estimator="unbiased").iter_rows(named=True):
        of_pair = texts[AgentVersion(row["agent_id"], row["methodology_version"])]
        for kind in ("at", "hat"):
            of_pair[f"pass_{kind}_{row['k']}"][row["task_set"]] = row["labels"]
    return texts


_PassRate = tuple[AgentVersion, str, str, float | None, float | None, float | None]


def _pass_rates(reliability: pl.DataFrame) -> Iterator[_PassRate]:
    """Yield the pair, name, task set, value, worst case and best case of every unbiased pass rate.

    For k = 1, the value is the rate over all tasks.
    """
    for row in reliability.filter(estimator="unbiased").iter_rows(named=True):
        pair = AgentVersion(row["agent_id"], row["methodology_version"])
        for kind in ("at", "hat"):
            name = f"pass_{kind}_k"
            if row["k"] == 1 and row["pass_at_1"] is not None:
                name = "pass_at_1"
            values = (row[name], row[f"{name}_worst"], row[f"{name}_best"])
            yield pair, f"pass_{kind}_{row['k']}", row["task_set"], *values


def threshold_findings(
    rules: Rules,
    means: Means,
    scores: Scores,
    bounds: Mapping[str, Mapping[str, Bounds]] | None = None,
    n_refused: int = 0,
    estimates: MeanEstimates | None = None,
    lower_ends: Mapping[str, Mapping[str, float]] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[GateFinding]:
    """Yield one finding per threshold and scenario, and one per threshold for the agent as a whole.

    A mean below its threshold is failed. A mean that reaches its threshold is unknown if more than
    `max_unscored_share` of the answers are open. A metric without any score is unknown. A scenario in which the
    metric does not apply has no finding. A pass rate is also unknown if its worst case is below the threshold and
    its best case is not.
    Rules decide only some answers, so theirs count only if at most `max_unscored_share` of the answers are open; a metric
    that rules alone answered is unknown while any answer is open.

    Args:
        rules: The gate rules.
        means: Means of the pair, from `means`.
        scores: Scores of the pair, from `agent_scores`.
        bounds: Bounds of the pair's scores, from `score_bounds`.
        n_refused: Number of the agent's records that were rejected at import. They count as open answers on goal
            completion for the agent as a whole.
        estimates: Estimates of the pair, from `mean_estimates`: corrected means, and lower ends if the rules require them.
        lower_ends: Lower ends of the pair's scores, from `score_lower_ends`.
        labels: What labels do to the pair's pass rates, from `labels_of_rates`.
    """
    mean_estimates = estimates or {}
    for name, limit in _said(rules.thresholds):
        if not is_score(name):
            others = {s: mean for s, mean in means.get(name, {}).items() if not rules.sets_thresholds(s)}
            if others or not means.get(name):
                yield from _of_scenarios(name, limit, others, rules, mean_estimates)
    for name, limit in _said(rules.overall):
        if not is_score(name):
            whole = sum(means.get(name, {}).values(), Mean())
            if name == GOAL_METRIC and whole.n:
                whole += Mean(n_open=n_refused)
            yield of_mean("overall", name, name, limit, whole, rules, mean_estimates.get((name, None)))
    of_scores: dict[str, Fraction] = {}
    for name, limit in (*_said(rules.thresholds), *_said(rules.overall)):
        if is_score(name):  # both sections may set a limit for a score; the higher one applies
            of_scores[name] = max(limit, of_scores.get(name, limit))
    for name, limit in of_scores.items():
        ends = None if rules.confidence == "point" else (lower_ends or {}).get(name, {})
        yield from _of_score(
            name, limit, scores, (bounds or {}).get(name, {}), (labels or {}).get(name, {}), ends
        )


def _said(limits: Mapping[str, Fraction | None]) -> list[tuple[str, Fraction]]:
    """Return the thresholds, except those that a later layer of the rules removed."""
    return [(name, limit) for name, limit in limits.items() if limit is not None]


def _of_scenarios(
    name: str, limit: Fraction, scenarios: Mapping[str, Mean], rules: Rules, estimates: MeanEstimates
) -> Iterator[GateFinding]:
    if not scenarios:
        yield of_mean("threshold", name, name, limit, Mean(), rules)
    for scenario, mean in sorted(scenarios.items()):
        estimate = estimates.get((name, scenario))
        yield of_mean("threshold", name, f"{name} in {scenario}", limit, mean, rules, estimate)


def of_mean(
    gate: str,
    name: str,
    subject: str,
    limit: Fraction,
    mean: Mean,
    rules: Rules,
    estimate: MeanEstimate | None = None,
) -> GateFinding:
    """Return the finding of a limit on a mean, or on the corrected mean of `estimate`."""
    allowed = rules.max_unscored_share
    if estimate is not None and estimate.n_labels and estimate.value is not None:
        mean = Mean(_near(estimate.value) * mean.n, mean.n, mean.n_open, mean.doubted)
    n_all = mean.n + mean.n_open
    if mean.n == 0:
        lacking = (
            f"open: {count_of(n_all, 'answer')}" if n_all else "the metric did not apply or was not asked"
        )
        return GateFinding(gate, "unknown", f"{name} has no score: {lacking}", subject, None, limit)
    n, total = mean.n, mean.total
    is_by_rule_alone = mean.n_open > 0 and mean.n == mean.n_by_rule
    if is_by_rule_alone or Fraction(mean.n_open, n_all) > allowed:  # rules decide only some of the answers
        n, total = n - mean.n_by_rule, total - mean.total_by_rule
    if n == 0:
        lacking = f"{mean.n} of {n_all} answers, by rule; {mean.n_open} are open"
        return GateFinding(gate, "unknown", f"{name} has no mean: {lacking}", subject, None, limit)
    value = total / n
    evidence = (
        f"{mean_of(name)} {_shown(value)} over {n} of {n_all} answers, at least {_shown(limit)} required"
    )
    if estimate is not None:
        n_drawn, is_corrected = estimate.n_labels or estimate.n_too_few, estimate.n_labels > 0
        labels = labels_said(
            n_drawn, estimate.n_own, is_corrected=is_corrected, has_unchecked=estimate.has_unchecked
        )
        evidence += f"; {labels}" if labels else ""
    result: Result = "passed" if value >= limit else "failed"
    if rules.confidence == "lower":
        result, end = _of_lower_end(None if estimate is None else estimate.low, limit)
        evidence = f"{evidence}; {end}"
    low, high = mean.total / n_all, (mean.total + mean.n_open + mean.doubted) / n_all
    if name == GOAL_METRIC and _is_turned(limit, low, high):
        errors = f" and {_shown(mean.doubted)} failed by an error of unknown cause" if mean.doubted else ""
        result, evidence = "unknown", f"{evidence}; {mean.n_open} are not known{errors}: {_case(low, high)}"
    elif result == "passed" and Fraction(mean.n_open, n_all) > allowed:
        result, evidence = (
            "unknown",
            f"{evidence}; {count_of(mean.n_open, 'answer')} open, too many to decide",
        )
    return GateFinding(gate, result, evidence, subject, value, limit)


def _of_lower_end(low: float | None, limit: Fraction) -> tuple[Result, str]:
    """Return the result of a threshold that must hold for the lower end of the 95 % interval, with words."""
    if low is None:
        return "unknown", "confidence requires an interval, and there is none"
    return ("passed" if _near(low) >= limit else "failed"), f"lower end of the 95 % interval {low:.3f}"


def _is_turned(limit: Fraction, low: Fraction, high: Fraction) -> bool:
    """Return whether the result depends on trials with an unknown outcome."""
    return low < limit <= high


def _case(low: Fraction, high: Fraction) -> str:
    return f"{_shown(low)} if all of them failed, {_shown(high)} if all passed"


def _of_score(
    name: str,
    limit: Fraction,
    scores: Scores,
    bounds: Mapping[str, Bounds],
    labels: Mapping[str, str],
    lower_ends: Mapping[str, float] | None,
) -> Iterator[GateFinding]:
    values = scores.get(name, {})
    if not values:
        yield GateFinding("score", "unknown", f"{name} is not known", name, None, limit)
    for of, value in sorted(values.items()):
        subject = f"{name} on {of}" if of else name
        evidence = f"{name} {_shown(value)}, at least {_shown(limit)} required"
        evidence += f"; {labels[of]}" if of in labels else ""
        result: Result = "passed" if value >= limit else "failed"
        if lower_ends is not None:
            result, end = _of_lower_end(lower_ends.get(of), limit)
            evidence = f"{evidence}; {end}"
        if (ends := bounds.get(of)) is not None:
            evidence = f"{evidence}; not all trials are known: {_case(*ends)}"
            result = (
                "unknown" if _is_turned(limit, *ends) or (value >= limit) != (ends[0] >= limit) else result
            )
        yield GateFinding("score", result, evidence, subject, value, limit)


def _near(value: float) -> Fraction:
    """Return the nearest simple fraction if it differs only by a rounding error, else the exact value of the float."""
    written = exact(value)
    simple = written.limit_denominator(10**6)
    return simple if abs(simple - written) < _ROUNDING else written


def _shown(value: Fraction) -> str:
    """Format a value with at most three decimals, followed by the exact value if it was rounded."""
    text = rounded(value, 3).rstrip("0").rstrip(".")
    return text if exact(text) == value else f"{text} ({value})"
