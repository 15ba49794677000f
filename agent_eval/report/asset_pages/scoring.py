"""Render scores for the Dagster UI: radar charts, composites with intervals, pass^k over k, and gates."""

from collections.abc import Callable

import polars as pl

from agent_eval.report.markdown import escape, markdown_table
from agent_eval.report.svg import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    RED,
    Bar,
    BarPart,
    Curve,
    IntervalBar,
    bars,
    curves,
    matrix,
    radar,
    spans,
)
from agent_eval.scores.composite.leaderboard import board_interval
from agent_eval.scores.composite.ratings import grouped
from agent_eval.scores.statistics.distribution_free import IntervalMethod

_PAIR = ["methodology_version", "agent_id"]
_ASPECTS = ("selection", "parameters", "sequence", "utilisation", "overall")
_RESULTS = {"passed": GREEN, "failed": RED, "unknown": GREY}
_VERDICTS = {
    "better": GREEN,
    "worse": RED,
    "tie": BLUE,
    "not distinguishable": "#546e7a",
    "unknown": "#757575",
}
_MIRRORED = {"better": "worse", "worse": "better"}
STATUS_COLOURS = {"published": GREEN, "provisional": AMBER, "incomplete": "#757575", "invalid": RED}


def universal_plot(scores: pl.DataFrame) -> str:
    """Draw U1–U6 as a radar chart."""
    row = scores.row(0, named=True)
    axes = [(f"U{i}", row[f"u{i}"]) for i in range(1, 7)]
    return radar(f"U1 to U6 of {row['agent_id']} under {row['methodology_version']}, 1 to 5", axes)


def universal_table(scores: pl.DataFrame) -> str:
    """Return a table of the universal score per session and over all sessions, and the missing ratings."""
    row = scores.row(0, named=True)
    return _sessions(row, row["session_universal"], row["universal_0to100"])


def domain_plot(scores: pl.DataFrame) -> str:
    """Draw D1–D5 as bars on a scale from 0 to 100."""
    row = scores.row(0, named=True)
    rows = [
        Bar(f"D{i}", (BarPart(value, BLUE, "score"),), f"{value:.1f}") if (value := row[f"d{i}"]) is not None
        else Bar(f"D{i}", (), "missing")
        for i in range(1, 6)
    ]  # fmt: skip
    return bars(
        f"D1 to D5 of {row['agent_id']} under {row['methodology_version']}, 0 to 100", rows, largest=100
    )


def criteria_table(scores: pl.DataFrame) -> str:
    """Return a table of the mean ratings by scenario and criterion, and the domain score of each session."""
    row = scores.row(0, named=True)
    names = [*row["criteria"], "criterion 1", "criterion 2", "criterion 3"][:3] if row["criteria"] else None
    grid = pl.DataFrame(
        [
            {"scenario": f"D{i}"}
            | {(names or ["1", "2", "3"])[j - 1]: row[f"d{i}_c{j}"] for j in range(1, 4)}
            | {"score": row[f"d{i}"]}
            for i in range(1, 6)
        ],
        infer_schema_length=None,
    )
    return f"{markdown_table(grid)}\n\n{_sessions(row, row['session_domain'], row['domain_0to100'])}"


def composite_plot(scores: pl.DataFrame, interval: IntervalMethod = "auto") -> str:
    """Draw U, D, the sessions, and the composite with the confidence interval of its board, from 0 to 100."""
    row = scores.row(0, named=True)
    low, high = board_interval(row, interval) or (None, None)
    rows = [
        _span("U", row["universal_0to100"], GREY),
        _span("D", row["domain_0to100"], GREY),
        *(_span(name, score, GREY) for name, score in _session_scores(row)[:8]),
        _span("raw composite", row["raw_composite_score"], BLUE),
        IntervalBar(
            "composite",
            row["composite_score"],
            low,
            high,
            f"{_number(row['composite_score'])} {row['status']}",
            STATUS_COLOURS.get(row["status"], GREY),
        ),
    ]
    return spans(f"Composite of {row['agent_id']} under {row['methodology_version']}, 0 to 100", rows)


def missing_table(scores: pl.DataFrame) -> str:
    """Return a list of missing parts and warnings."""
    row = scores.row(0, named=True)
    texts = [*grouped(row["missing"]), *row["warnings"]]
    return "\n".join(f"- {escape(line, 300)}" for line in texts) if texts else "nothing is missing"


def aspects(tool_correctness: pl.DataFrame) -> pl.DataFrame:
    """Return one row per version and agent: the mean of each aspect, and the number of values behind it."""
    means = [pl.col(aspect).mean() for aspect in _ASPECTS]
    counts = [pl.col(aspect).count().alias(f"n_{aspect}") for aspect in _ASPECTS]
    right = [
        (pl.col("is_correct") == value).sum().alias(name)
        for value, name in ((True, "right"), (False, "wrong"))
    ]
    open_ = pl.col("is_correct").is_null().sum().alias("unknown")
    return tool_correctness.group_by(_PAIR).agg(*means, *counts, *right, open_).sort(_PAIR)


def aspects_plot(aspect_means: pl.DataFrame) -> str:
    """Draw selection, parameters, sequence, utilisation and overall from 0 to 1, and count the correct rows."""
    row = aspect_means.row(0, named=True)
    aspect_bars = [
        Bar(aspect, (BarPart(row[aspect] or 0, BLUE, ""),), _mean_of(row[aspect], row[f"n_{aspect}"]))
        for aspect in _ASPECTS
    ]
    plot = bars("Tool correctness by aspect, mean from 0 to 1", aspect_bars, largest=1)
    return f"{plot}\n\n{row['right']} correct, {row['wrong']} wrong, {row['unknown']} unknown"


def reliability_plot(reliability: pl.DataFrame) -> str:
    """Draw pass@k and pass^k as curves over k for each task set, with a table of intervals."""
    unbiased = reliability.filter(pl.col("estimator") == "unbiased", pl.col("pass_hat_k").is_not_null()).sort(
        "task_set", "k"
    )
    if unbiased.is_empty():
        return "no task has enough trials of known outcome"
    pass_curves: list[Curve] = []
    for (task_set,), rows in unbiased.group_by("task_set", maintain_order=True):
        for column, sign in (("pass_at_k", "pass@k"), ("pass_hat_k", "pass^k")):
            points = tuple((k, y) for k, y in rows.select("k", column).iter_rows() if y is not None)
            pass_curves.append(Curve(f"{sign} {task_set}", points))
    table_rows = unbiased.select(
        "task_set",
        "k",
        "pass_at_k",
        _bounds("pass_at_k"),
        "pass_hat_k",
        _bounds("pass_hat_k"),
        "n_tasks",
        "n_tasks_excluded",
        "n_trials",
        "n_planned",
        "n_known",
        "n_harness_errors",
        "n_unknown",
        "n_unexplained_errors",
        "n_refused",
        "n_without_task",
        "labels",
        pl.format(
            "{} to {}",
            pl.col("pass_hat_k_worst").round(3),
            pl.col("pass_hat_k_best").round(3),
        ).alias("pass_hat_k worst to best"),
        "assessment",
        "reason",
    )
    return f"{curves('pass@k and pass^k over k, unbiased', pass_curves)}\n\n{markdown_table(table_rows.head(20), limit=80)}"


def reliability_ranks(board: pl.DataFrame) -> str:
    """Draw pass^k with its interval, best first, for k = 1 and for the k that most agents have."""
    unbiased = board.filter(pl.col("estimator") == "unbiased", pl.col("rank").is_not_null())
    if unbiased.is_empty():
        return "no agent has a task with enough trials of known outcome"
    ranked_rows = unbiased.filter(pl.col("k").is_in([1, 4])).sort("task_set", "k", "rank", "agent_id")
    rows = [
        IntervalBar(
            f"{row['agent_id']} k={row['k']}",
            row["pass_hat_k"],
            row["pass_hat_k_low"],
            row["pass_hat_k_high"],
            f"{row['pass_hat_k']:.2f} {row['task_set']}",
        )
        for row in ranked_rows.iter_rows(named=True)
    ]
    return spans("pass^k by agent, k = 1 and 4, with 95 % intervals", rows, scale=1)


def pairs_matrix(compared: pl.DataFrame) -> str:
    """Draw a matrix of the differences between all pairs of agents in points, coloured by verdict."""
    names = sorted({*compared["agent_id"], *compared["other_agent_id"]})
    cells: list[tuple[int, int, str, str]] = []
    for a, b, points, verdict in compared.select(
        "agent_id", "other_agent_id", "difference", "verdict"
    ).iter_rows():
        i, j = names.index(a), names.index(b)
        mirrored = _MIRRORED.get(verdict, verdict)
        cells.append((i, j, _VERDICTS[verdict], f"{points:+.1f}"))
        cells.append((j, i, _VERDICTS[mirrored], f"{-points:+.1f}"))
    plot = matrix("Difference of composites, row minus column", names, names, cells)
    table_rows = compared.select(
        "template",
        "agent_id",
        "other_agent_id",
        "difference",
        "low",
        "high",
        "probability_better",
        "p_holm",
        "verdict",
    )
    return f"{plot}\n\ngreen: the row's agent is better, red: worse, grey: not distinguishable or unknown\n\n{markdown_table(table_rows.head(30))}"


def results_by(column: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a function that counts passed, failed and unknown results per version, agent and the named column."""

    def counted(rows: pl.DataFrame) -> pl.DataFrame:
        return (
            rows.group_by(*_PAIR, pl.col(column).alias("row"), "result").len().sort(*_PAIR, "row", "result")
        )

    return counted


def results_plot(result_counts: pl.DataFrame) -> str:
    """Draw one bar per row: the numbers of passed, failed and unknown results."""
    parts: dict[str, dict[str, int]] = {}
    for row, result, n in result_counts.select("row", "result", "len").iter_rows():
        parts.setdefault(row, {})[result] = n
    rows = [
        Bar(
            row,
            tuple(BarPart(counts[r], colour, r) for r, colour in _RESULTS.items() if r in counts),
            f"{counts.get('passed', 0)} of {sum(counts.values())} passed",
        )
        for row, counts in parts.items()
    ]
    return bars("Passed, failed and unknown", rows)


def _bounds(column: str) -> pl.Expr:
    low, high = (pl.col(f"{column}_{end}").round(2).cast(pl.String) for end in ("low", "high"))
    return pl.format("{}–{}", low, high).alias(f"{column} 95 %")


def _session_scores(row: dict[str, list[object]]) -> list[tuple[str, float]]:
    pairs = zip(row["session_ids"] or (), row["session_scores"] or (), strict=False)
    return [(str(name), score) for name, score in pairs if isinstance(score, float)]


def _sessions(row: dict[str, object], scores: object, mean: object) -> str:
    ids, values = row["session_ids"], scores
    rows = list(zip(ids, values, strict=False)) if isinstance(ids, list) and isinstance(values, list) else []
    table_rows = pl.DataFrame(
        [*rows[:10], ("all", mean)], schema={"session": pl.String, "score": pl.Float64}, orient="row"
    )
    missing = row["missing"]
    lines = [f"- {escape(text, 300)}" for text in grouped(missing)] if isinstance(missing, list) else []
    return "\n".join([markdown_table(table_rows, limit=80), "", *lines]).strip()


def _span(label: str, value: float | None, colour: str) -> IntervalBar:
    return IntervalBar(label, value, words=_number(value), colour=colour)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"


def _mean_of(value: float | None, n: int) -> str:
    return "unknown" if value is None else f"{value:.2f}, n = {n}"
