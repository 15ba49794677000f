"""Render the leaderboard, with badges and reasons, as text for all outputs and as a page of the Dagster UI."""

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import polars as pl

from agent_eval.formats.plain_text import count_of
from agent_eval.methodology import Methodology
from agent_eval.report.asset_pages.scoring import STATUS_COLOURS
from agent_eval.report.links import REPORT, agent_page, partition_page
from agent_eval.report.markdown import escape, markdown_table
from agent_eval.report.svg import GREY, IntervalBar, spans
from agent_eval.scores.composite.ratings import grouped
from agent_eval.scores.reliability.shortfall import bounds, shortfall
from agent_eval.scores.statistics.clustered import FEWEST_SERIAL
from agent_eval.scores.statistics.exact import from_text, rounded

UNCHECKED = "not checked against people"
"""End of the badge of a judge of which people labelled too few answers, or none."""
STALE = "judge has changed since people checked it"
"""Beginning of the badge of a judge that has changed since people labelled its answers."""


def shown(exact: str | None) -> str:
    """Return an exact score with one decimal, rounded half up; '–' if it is missing."""
    return "–" if exact is None else rounded(from_text(exact))


def composite(row: dict[str, object]) -> str:
    """Return the composite; if the penalty is unknown, return the raw composite in brackets, marked as raw."""
    exact, raw = row["composite_exact"], row["raw_composite_score"]
    if exact is None and isinstance(raw, float):
        return f"({one_decimal(raw)} raw)"
    return shown(str(exact) if exact else None)


def badges(row: dict[str, object]) -> list[str]:
    """Return the disclosures of a row as short texts; unknown disclosures are marked."""
    tested = {True: "repeatability tested", False: "repeatability not tested", None: "repeatability ?"}
    hallucination = {True: "hallucination passed", False: "hallucination FAILED", None: "hallucination ?"}
    scope = row["u3_scope"]
    is_alone = row["rank"] == 1 and row["lead_points"] is None
    suites = row.get("suites")
    pareto = ["Pareto front"] if row["is_pareto"] and not is_alone else []
    return [
        tested[_flag(row["repeatability_tested"])],
        f"U3 {str(scope).replace('_', ' ')}" if scope else "U3 scope ?",
        hallucination[_flag(row["hallucination_passed"])],
        *(["disputed"] if row["disputed"] else []),
        *(f"suite {suite}" for suite in (suites if isinstance(suites, list) else ())),
        *pareto,
        *filter(None, [mixed_ratings(row), calibration(row)]),
    ]


def mixed_ratings(row: dict[str, object]) -> str | None:
    """Return how many ratings people gave and what is known of the judge's error, as text; None unless both rated.

    Example: '6 of 42 ratings by people; the interval includes the judge's error on the rest (± 1.9 points)'.
    """
    n, by_people, error = (
        row.get(name) for name in ("n_ratings", "n_ratings_by_people", "judge_error_0to100")
    )
    judges = str(row.get("judge", "")).split(" + ")
    if not n or not by_people or by_people == n or not set(judges) - {"human", "rule"}:
        return None
    counts_text = f"{by_people} of {count_of(n, 'rating')} by people"
    if not isinstance(error, float):
        return f"{counts_text}; the judge's error on the rest is not known"
    return f"{counts_text}; the interval includes the judge's error on the rest (± {1.96 * error:.1f} points)"


def calibration(row: dict[str, object]) -> str | None:
    """Return the agreement of a row's judges with people as text; None if only people and rules answered.

    Example: 'judge checked against people: 60 labels, agreement 0.80, kappa 0.61 (0.42 to 0.78), helpfulness, lowest of
    3 metrics'. Nothing is said of how good the agreement is.
    """
    standing, kappa = row.get("calibration"), row.get("calibration_kappa")
    if standing is None:
        return None
    if standing == "not calibrated" or not isinstance(kappa, float):
        n = row.get("calibration_n")
        few = f"{count_of(n, 'label')} of people, too few: " if n else ""
        return f"{few}judge {UNCHECKED}"
    shares = row.get("calibration_agreement")
    agreed = f"agreement {shares:.2f}, " if isinstance(shares, float) else ""
    limits = f"{row['calibration_kappa_low']:.2f} to {row['calibration_kappa_high']:.2f}"
    agreement_text = f"{count_of(row['calibration_n'], 'label')}, {agreed}kappa {kappa:.2f} ({limits})"
    n = row["n_metrics_calibrated"]
    of = f", {row['calibration_metric']}" + (f", lowest of {count_of(n, 'metric')}" if n != 1 else "")
    checked = "judge checked against people" if standing == "calibrated" else STALE
    return f"{checked}: {agreement_text}{of}"


def uncalibrated(board: pl.DataFrame) -> str | None:
    """Return a sentence that names the agents whose judges are not calibrated, and the next command; else None."""
    rows = board.filter(pl.col("calibration") == "not calibrated")
    if rows.is_empty():
        return None
    every = board.filter(pl.col("calibration").is_not_null()).height == rows.height
    names = ", ".join(row["name"] or row["agent_id"] for row in rows.iter_rows(named=True))
    few = ", or on too few labels" if rows["calibration_n"].sum() else ""
    return (
        f"Judges not checked against people{few}: {'those of every agent here' if every else names}. "
        "Next: agent-eval labels sheet"
    )


def rank(row: dict[str, object]) -> str:
    """Return the rank, with the range that the intervals allow if it is wider, e.g. '1 (1–3)'; '–' if unranked."""
    if row["rank"] is None:
        return "–"
    low, high = row["rank_low"], row["rank_high"]
    return f"{row['rank']}" if low is None or low == high else f"{row['rank']} ({low}–{high})"


def leads(board: pl.DataFrame) -> list[str]:
    """Return one sentence for each template with two ranked agents: the lead, and whether it survives a change.

    The change is a single rating that is one point lower or higher.
    """
    of_template = board.group_by("methodology_version", "template", maintain_order=True)
    ranked = [rows.filter(pl.col("rank").is_not_null()) for _, rows in of_template]
    firsts = [rows.filter(pl.col("rank") == 1, pl.col("lead_points").is_not_null()) for rows in ranked]
    return [
        _lead(first.to_dicts(), has_intervals=not rows["low"].null_count())
        for first, rows in zip(firsts, ranked, strict=True)
        if first.height
    ]


def _lead(firsts: list[dict[str, Any]], *, has_intervals: bool) -> str:
    row, template = firsts[0], firsts[0]["template"]
    *names, name = (each["name"] or each["agent_id"] for each in firsts)
    if names:
        return f"{', '.join(names)} and {name} share the first rank of {template}."
    points = one_decimal(row["lead_points"])
    if row["rank_low"] is None or row["rank_low"] != row["rank_high"]:
        lacking = "an interval needs several sessions" if row["low"] is None else "others have no interval"
        why = "the rank ranges overlap" if has_intervals else lacking
        return f"{name} leads {template} by {points} points; the lead may be due to chance: {why}."
    stays = "survives" if row["lead_survives_point"] else "does not survive"
    return f"{name} leads {template} by {points} points; the lead {stays} a one-point change of one rating."


def outcomes(board: pl.DataFrame) -> list[str]:
    """Return lines about incomplete evidence of agents, and its possible effect on the results.

    The lines describe trials of unknown outcome, judgments made on part of the evidence, judged samples, judges whose
    answers came from several models, sessions and runs that do not count, and intervals that take sessions as independent.
    """
    return [
        f"{row['name'] or row['agent_id']}: {outcome_text}"
        for row in board.iter_rows(named=True)
        for outcome_text in (
            _outcome(row) if shortfall(row) else None,
            _serial(row),
            _seen(row),
            _sampled(row),
            *(row.get("several_models") or ()),
            _earlier(row),
            _dropped(row),
        )
        if outcome_text
    ]


def _serial(row: dict[str, Any]) -> str | None:
    """Return a text if the interval takes sessions as independent, because their dependence cannot be estimated."""
    n, dates = row.get("n_sessions") or 0, row.get("session_dates") or ()
    if row.get("low") is None or (n >= FEWEST_SERIAL and len(dates) == n):
        return None
    few = "too few to show" if n < FEWEST_SERIAL else "without a date each, so they do not show"
    return f"{n} sessions, {few} whether a session depends on the one before; the interval takes them as independent"


def _earlier(row: dict[str, Any]) -> str | None:
    """Return a text on kept answers, if there are any."""
    n = row.get("n_earlier_wording")
    return f"{count_of(n, 'answer')} to an earlier wording of the question" if n else None


def _seen(row: dict[str, Any]) -> str | None:
    """Return text such as '12 of 340 judgments were made on part of the evidence, at least 41.0 % of it'."""
    if not row.get("n_seen_in_part"):
        return None
    least = math.floor(1000 * row["least_seen_share"]) / 10
    share = f"at least {least:.1f} % of it" if least else "some on less than 0.1 % of it"
    return f"{row['n_seen_in_part']:,} of {row['n_judged']:,} judgments were made on part of the evidence, {share}"


def _dropped(row: dict[str, Any]) -> str | None:
    """Return a text on the sessions and runs that do not count, with the reasons."""
    dropped = row.get("dropped_runs")
    return f"does not count: {'; '.join(dropped)}" if dropped else None


def _sampled(row: dict[str, Any]) -> str | None:
    """Return a text on the judged sample and its margin of error in percentage points.

    The margin is half the width of the 95 % interval for a share of one half, sampled without replacement (Cochran,
    Sampling Techniques, 1977, 3.1). Example: '41 of 205 conversations were put to a judge model (judge_sample); a
    share measured on them is known to ±13.8 points'.
    """
    n, total = row.get("n_sampled"), row.get("n_to_sample")
    if n is None or total is None:
        return None
    left = (total - n) / max(total - 1, 1)
    points = 100 * min(1.959963984540054 * math.sqrt(0.25 / n * left), 1.0) if n else 100.0
    return (
        f"{n:,} of {total:,} conversations were put to a judge model (judge_sample); "
        f"a share measured on them is known to ±{points:.1f} points"
    )


def _outcome(row: dict[str, Any]) -> str:
    """Return a text on trials whose outcome is not known.

    Example: '180 of 200 planned trials known: 20 lost to the harness; pass@1 .420, worst to best case .378 to .478'.
    """
    parts = [shortfall(row) or ""]
    for name, words in (("pass_at_1", "pass@1"), ("goal_completion", "goal completion")):
        if row.get(f"{name}_worst") is not None:
            value = "unknown" if row[name] is None else f"{row[name]:.3f}"
            parts.append(f"{words} {value}, worst to best case {bounds(row, name)}")
    return "; ".join(parts)


_OF_METHOD: Mapping[object, str] = {"bounded": " (any spread)", "t_near_end": " (spread not seen)"}


def interval(row: dict[str, object]) -> str:
    """Return the 95 % interval of the composite as text, or the number of sessions if there is no interval."""
    low, high = row["low"], row["high"]
    if isinstance(low, float) and isinstance(high, float):
        return f"{low:.1f}–{high:.1f}{_OF_METHOD.get(row.get('interval_method'), '')}"
    return f"n = {row['n_sessions']}, none"


BOARD: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "rank": rank,
    "agent": lambda row: row["name"] or row["agent_id"],
    "template": lambda row: row["template"] or "–",
    "composite": composite,
    "U": lambda row: one_decimal(row["universal_0to100"]),
    "D": lambda row: one_decimal(row["domain_0to100"]),
    "penalty": lambda row: _points(row["repeatability_penalty"]),
    "interval": interval,
    "detectable": lambda row: one_decimal(row["smallest_detectable"]),
    "status": lambda row: row["status"],
    "badges": lambda row: " · ".join(badges(row)),
    "judge": lambda row: row["judge"],
    "cost": lambda row: cost(row["cost_usd_per_conversation"]),
    "missing": lambda row: "; ".join(grouped(row["missing"])),
}
"""The columns of the board as text, by heading."""


def readable(board: pl.DataFrame) -> pl.DataFrame:
    """Return the board as a frame of texts for display, in the order of its rows."""
    rows = [{head: text(row) for head, text in BOARD.items()} for row in board.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=dict.fromkeys(BOARD, pl.String))


def readable_changes(changes: pl.DataFrame) -> pl.DataFrame:
    """Return rows of table board_changes as texts, in the same order; an unchanged value is shown only once."""
    names = ("when (UTC)", "version", "agent", "composite", "rank", "status", "cause")
    return pl.DataFrame(
        [_readable_change(row) for row in changes.iter_rows(named=True)],
        schema=dict.fromkeys(names, pl.String),
        orient="row",
    )


def _readable_change(row: dict[str, Any]) -> tuple[str, ...]:
    def sides(name: str, text: Callable[[Any], str]) -> str:
        old, new = row[f"old_{name}"], row[f"new_{name}"]
        return text(new) if old == new else f"{text(old)} → {text(new)}"

    others = [agent for agent in row["cause_agents"] if agent != row["agent_id"]]
    of_others = f" of {', '.join(others)}" if others else ""
    return (
        f"{row['changed_at']:%Y-%m-%d %H:%M}",
        row["methodology_version"],
        row["name"] or row["agent_id"],
        sides("composite_exact", shown),
        sides("rank", lambda rank: "–" if rank is None else str(rank)),
        sides("status", lambda status: status or "not on the board"),
        f"{row['cause']}{of_others}",
    )


def versions_in(board: pl.DataFrame) -> list[str]:
    """Return the methodology versions that have rows on the board."""
    return board["methodology_version"].unique(maintain_order=True).to_list()


def superseded_notes(methodologies: Iterable[Methodology], asset: str) -> dict[str, str]:
    """Return, for each superseded version, a Markdown note that links to the page of the current version."""
    versions = list(methodologies)
    current = next((m.version for m in versions if m.status == "current"), None)
    link = f" Current version: [{current}]({partition_page(asset, current)})." if current else ""
    return {
        m.version: f"Version {m.version} is superseded by {m.superseded_by}.{link}"
        for m in versions
        if m.superseded_by
    }


def board_page(board: pl.DataFrame, version: str, report: str = REPORT) -> str:
    """Return Markdown for the asset page of one version: a plot of composites, the board, and its details.

    The name of an agent links to its composite in the UI. Column `report` links to its page in the HTML report, whose
    address is `report`.
    """
    rows = board.to_dicts()
    plot = spans(
        f"Composite scores under {version} with 95 % intervals, 0 to 100", [_span(row) for row in rows]
    )
    texts = readable(board)
    addresses = [
        (
            partition_page("composite_scores", row["agent_id"], version),
            agent_page(row["agent_id"], version, report),
        )
        for row in rows
    ]
    linked = texts.select("rank", "agent", "composite", "interval", "status").with_columns(
        pl.lit("open").alias("report"),
        pl.Series("_composite", [composite for composite, _ in addresses], dtype=pl.String),
        pl.Series("_report", [page for _, page in addresses], dtype=pl.String),
    )
    reasons = [
        f"- {escape(row['agent'])} ({escape(row['template'])}): U {row['U']}, D {row['D']}, penalty {row['penalty']}, "
        f"judge {escape(row['judge'])}, {escape(row['cost'])}; {escape(row['badges'])}{escape('; missing: ' + row['missing'], 600) if row['missing'] else ''}"
        for row in texts.iter_rows(named=True)
    ]
    lacking = (
        markdown_table(pl.DataFrame({"incomplete evidence": unknown_lines}))
        if (unknown_lines := outcomes(board))
        else ""
    )
    board_table = markdown_table(linked, links={"agent": "_composite", "report": "_report"})
    return "\n\n".join(filter(None, [plot, board_table, "\n".join(reasons), lacking]))


def _span(row: dict[str, Any]) -> IntervalBar:
    """Return the bar of an agent's composite with its interval; without a composite, its text is the status."""
    status = str(row["status"])
    words = f"{composite(row)} {status}" if row["composite_score"] is not None else status
    colour = STATUS_COLOURS.get(status, GREY)
    return IntervalBar(
        row["name"] or row["agent_id"], row["composite_score"], row["low"], row["high"], words, colour
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def one_decimal(value: float | None) -> str:
    """Return a stored float with one decimal, rounded half up from its nearest fraction; '–' for null."""
    return "–" if value is None else rounded(Fraction(value).limit_denominator(10**6))


def cost(value: float | None) -> str:
    """Return what a conversation costs as text."""
    return "cost unknown" if value is None else f"${value:.4f} per conversation"


def _points(value: float | None) -> str:
    return "?" if value is None else f"−{value:g}" if value else "0"
