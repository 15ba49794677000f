"""Evaluate judge coverage and the benchmark requirements: required tests, disclosures and a publishable status."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import polars as pl

from agent_eval.gates.finding import GateFinding, Result, worst
from agent_eval.metrics.base import HARNESS_ERROR, NO_TURNS, UNANSWERED, UNEXPLAINED_ERROR
from agent_eval.scores.composite.disclosures import is_present
from agent_eval.scores.composite.ratings import PAIR, grouped
from agent_eval.scores.reliability.shortfall import bounds, shortfall
from agent_eval.scores.statistics.exact import rounded
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.judging import is_harness_failure, is_imported_judge, without_checks_of_judges

TESTS = ("standardised_task", "hallucination", "error_injection")
DISCLOSURES = ("u3_scope", "repeatability_tested")
OF_STATUS: Mapping[str, Result] = {
    "published": "passed",
    "provisional": "failed",
    "incomplete": "failed",
    "invalid": "unknown",
    "not_applicable": "unknown",
}
NOTHING_TO_READ = (HARNESS_ERROR, UNEXPLAINED_ERROR, NO_TURNS)
"""Reasons for a missing answer that say nothing about the agent."""
MIN_SEEN_SHARE = 0.5
TOO_LITTLE_SEEN = "judged on less than half of the evidence"


@dataclass(frozen=True)
class Asked:
    """Count questions of a pair. A question is one metric of a turn or conversation.

    Questions that are neither put to a model nor open were settled: people, rules or declared outcomes answered them.
    """

    n: int = 0  # questions put to a model
    n_unscored: int = 0  # those that no judge scored
    reasons: tuple[str, ...] = ()
    n_open: int = 0  # questions that wait for a model or person, or on which people disagree; put to no model
    n_settled: int = 0
    n_earlier: int = 0  # questions put to a model that are answered in an earlier wording

    def __add__(self, other: "Asked") -> "Asked":
        """Return the counts of both parts of a pair's conversations."""
        return Asked(
            self.n + other.n,
            self.n_unscored + other.n_unscored,
            tuple(sorted({*self.reasons, *other.reasons})),
            self.n_open + other.n_open,
            self.n_settled + other.n_settled,
            self.n_earlier + other.n_earlier,
        )

    @property
    def is_any(self) -> bool:
        """Return whether the pair has a question, so that its gates have something to evaluate."""
        return self.n + self.n_open + self.n_settled > 0

    @property
    def is_all_settled(self) -> bool:
        """Return whether the pair has questions, and none is left for a model."""
        return self.n_settled > 0 and self.n == self.n_open == 0

    @property
    def without_judge(self) -> Result:
        """Return the result of a gate about judges if the pair has none: unknown while a question is left to ask."""
        return "passed" if self.is_all_settled else "unknown"


NO_QUESTIONS = Asked()


def put_to_a_model(
    turn_judgments: pl.DataFrame, conversation_judgments: pl.DataFrame
) -> dict[AgentVersion, Asked]:
    """Count, per pair, the questions that a model was asked, those that are open, and those that are settled.

    An answer based on less than MIN_SEEN_SHARE of the evidence counts as unscored. A question on which
    people disagree is open. Answers that only check a judge are left out. Questions that do not apply, or about which there is nothing to read, are none of the three.
    """
    columns = [
        *(*PAIR, "conversation_id", "turn_index", "metric"),
        *("judge", "status", "unscored_reason", "seen_share", "label", "earlier_profile", "is_effective"),
    ]
    turns = turn_judgments.select(columns)
    whole = conversation_judgments.with_columns(turn_index=pl.lit(None, pl.Int64)).select(columns)
    scarce = (pl.col("status") == "scored") & (pl.col("seen_share").fill_null(1.0) < MIN_SEEN_SHARE)
    unscored = (pl.col("status") == "unscored") | scarce
    stated_reason = pl.when(scarce).then(pl.lit(TOO_LITTLE_SEEN)).otherwise(pl.col("unscored_reason"))
    is_ours = ~pl.col("judge").is_in(["rule", "human"]) & ~is_imported_judge()
    by_model = is_ours & pl.col("status").is_in(["scored", "unscored"])
    put = by_model | unscored
    question = [*PAIR, "conversation_id", "turn_index", "metric"]
    questions = (
        without_checks_of_judges(pl.concat([turns, whole]), question)
        .lazy()  # much faster than to aggregate a frame
        .select(
            *question,
            is_put=put,
            is_answered=put & ~unscored,
            reason=pl.when(put).then(stated_reason),
            is_scored=pl.col("status") == "scored",
            is_disputed=pl.col("status") == "disputed",
            waits=pl.col("unscored_reason").is_in(UNANSWERED),
            is_earlier=pl.col("is_effective") & pl.col("earlier_profile").is_not_null(),
        )
        .group_by(question)
        .agg(pl.exclude("reason").any(), pl.col("reason").min())
    )
    is_put, is_settled = pl.col("is_put"), pl.col("is_scored")
    is_open = (pl.col("is_disputed") | (pl.col("waits") & ~is_settled)) & ~is_put
    is_lost = is_put & ~pl.col("is_answered")
    per_pair = (
        questions.group_by(PAIR)
        .agg(
            is_put.sum(),
            is_lost.sum().alias("n_unscored"),
            pl.col("reason").filter(is_lost).drop_nulls().unique().sort(),
            is_open.sum().alias("n_open"),
            (is_settled & ~is_put & ~is_open).sum().alias("n_settled"),
            (is_put & pl.col("is_earlier")).sum().alias("n_earlier"),
        )
        .collect()
    )
    return {
        AgentVersion(agent, version): Asked(n, lost, tuple(why), n_open, settled, earlier)
        for version, agent, n, lost, why, n_open, settled, earlier in per_pair.iter_rows()
    }


def slotted(transcripts: pl.DataFrame) -> set[AgentVersion]:
    """Return the pairs with a conversation in a slot that counts, or that only a harness failure excluded."""
    counts = pl.col("is_admitted") | is_harness_failure()
    slot_rows = transcripts.filter(pl.col("slot").is_not_null() & counts)
    return {AgentVersion(agent, version) for version, agent in slot_rows.select(PAIR).unique().iter_rows()}


def coverage_finding(counts: Asked, allowed: Fraction) -> GateFinding:
    """Return the result for the questions put to a model: failed if more than the allowed share is unscored.

    It is passed if there was nothing to ask, because people, rules and declared outcomes settled every question. It is
    unknown if questions are open, if no question of those asked was scored, or if there is no question at all.
    """
    n_asked, n_unscored = counts.n, counts.n_unscored
    if counts.is_all_settled:
        settled = f"{counts.n_settled:,} question{'s are' if counts.n_settled > 1 else ' is'} settled"
        return GateFinding("coverage", "passed", f"nothing to ask a model: {settled}")
    if n_asked == 0:
        are_open = f"; {counts.n_open:,} {'are' if counts.n_open > 1 else 'is'} open" if counts.n_open else ""
        return GateFinding("coverage", "unknown", f"no model was asked a question{are_open}")
    why = f" ({', '.join(counts.reasons)})" if counts.reasons else ""
    share = Fraction(n_unscored, n_asked)
    evidence = (
        f"{n_asked - n_unscored} of {n_asked} questions scored, {rounded(share * 100)} % unscored{why}; "
        f"allowed {rounded(allowed * 100)} %"
    )
    if counts.n_earlier:
        evidence = f"{evidence}; {counts.n_earlier:,} of them in an earlier wording"
    if n_unscored == n_asked:
        return GateFinding("coverage", "unknown", evidence)
    return GateFinding("coverage", "failed" if share > allowed else "passed", evidence)


def trial_finding(
    row: Mapping[str, object], reliability: pl.DataFrame, allowed: Fraction
) -> GateFinding | None:
    """Return the finding on missing trials, or None if the outcome of every planned trial is known.

    It is failed if too many trials were rejected at import, and unknown if too many were lost to harness failures.
    Trials with an unknown outcome appear in the evidence only: the thresholds gate decides whether they matter.

    Args:
        row: A row of composite_scores.
        reliability: The rows of the table reliability for the same agent and version.
        allowed: Share of the planned trials, 0–1, that may be rejected, and that may be lost to the harness.
    """
    sets = reliability.filter(k=1, estimator="unbiased")
    n_unknown = sets["n_unknown"].sum() if sets["n_unknown"].null_count() == 0 else None
    n_known = sets["n_known"].sum() if sets.height and sets["n_known"].null_count() == 0 else None
    lacking = shortfall({**row, "n_unknown": n_unknown, "n_known": n_known})
    n_planned, n_refused, n_broken = (
        n if isinstance(n := row.get(name), int) else 0
        for name in ("n_planned", "n_refused", "n_harness_errors")
    )
    if lacking is None or not n_planned:
        return None
    rates = [
        f"pass@1 on {one['task_set']} is {bounds(one, 'pass_at_1')} from worst to best case"
        for one in sets.sort("task_set").iter_rows(named=True)
        if one["pass_at_1_worst"] is not None
    ]
    result: Result = "passed"
    if Fraction(n_broken, n_planned) > allowed:
        result = "unknown"
    if Fraction(n_refused, n_planned) > allowed:
        result = "failed"
    may = f"at most {rounded(allowed * 100)} % may be refused, and as many lost to the harness"
    evidence = "; ".join([lacking, *rates, may])
    return GateFinding("coverage", result, evidence)


def both(first: GateFinding, second: GateFinding | None) -> GateFinding:
    """Merge two findings of one gate: the worse result, with the evidence of both."""
    if second is None:
        return first
    return replace(
        first,
        result=worst([first.result, second.result]),
        evidence=f"{first.evidence}; {second.evidence}",
    )


def benchmark_findings(row: Mapping[str, object]) -> Iterator[GateFinding]:
    """Yield the findings on required tests, disclosures and status of an agent with a benchmark session."""
    missing, status = _texts(row["missing"]), str(row["status"])
    # the harness failed before a session took place, so the tests are unknown rather than missing
    lost = status == "invalid" and row["n_sessions"] == 0
    tests, disclosures = _about(TESTS, missing), _about(DISCLOSURES, missing)
    warned = _about(TESTS, _texts(row["warnings"]))
    absent = [text for text in tests if not is_present(text)]
    yield GateFinding(
        "required_tests",
        "unknown" if lost else "failed" if absent else "unknown" if tests else "passed",
        "; ".join(grouped([*tests, *warned])) or "all required tests are present",
    )
    yield GateFinding(
        "disclosures",
        "unknown" if lost else "failed" if disclosures else "passed",
        "; ".join(grouped(disclosures)) or "all required disclosures are made",
    )
    yield GateFinding("status", OF_STATUS[status], "; ".join([status, *grouped(missing)]))


def _about(names: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Return the texts that begin with one of the names, e.g. 'hallucination: …' or 'u3_scope (session b): …'."""
    prefixes = tuple(names)
    return [text for text in texts if re.split(r"[ :]", text, maxsplit=1)[0] in prefixes]


def _texts(value: object) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else []
