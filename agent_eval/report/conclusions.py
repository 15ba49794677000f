"""Say in one line each what a run showed: who leads, the worst finding, what is unknown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from agent_eval.clusters.worst import CLUSTER
from agent_eval.formats.plain_text import count_of, one_line, shortened
from agent_eval.report.board import composite, leads
from agent_eval.report.quality import headline, headline_interval, value_of
from agent_eval.scores.statistics.compare import OF_THIS_SIZE
from agent_eval.scores.statistics.quality import COST
from agent_eval.scores.statistics.unpaired import FAILURE_RATE, SUCCESS_RATE
from agent_eval.tables import table
from agent_eval.transcripts.days import CONVERSATION, days_of

UNSCORED = ("incomplete", "invalid")
"""States of a board row without a score."""
_LONGEST_QUOTE = 100  # characters


def leader(board: pl.DataFrame, logs: pl.DataFrame) -> str:
    """Return who leads and whether that is certain.

    If several templates have a lead, the one with most ranked agents is named and the others are counted. Without a
    lead, the only ranked agents are named; without these, the success rates of the logs.

    Args:
        board: Rows of table leaderboard under one version.
        logs: Rows of table log_leaderboard under the same version.
    """
    ranked = board.filter(pl.col("rank").is_not_null())
    sizes = (
        ranked.group_by("template", maintain_order=True)
        .len()
        .sort("len", descending=True, maintain_order=True)
    )
    with_leads = [
        sentence
        for template in sizes["template"]
        for sentence in leads(ranked.filter(pl.col("template") == template))
    ]
    if with_leads:
        more = f" {count_of(len(with_leads) - 1, 'more lead')} below." if len(with_leads) > 1 else ""
        return with_leads[0] + more
    if ranked.height:
        alone = [f"{_name(row)} has {composite(row)} in {row['template']}" for row in ranked.to_dicts()]
        return f"{_listed(alone)}; no other agent is ranked there."
    if logs.height:
        return _success(logs)
    return "No agent is ranked yet." if board.height else "There is no result yet. Next: agent-eval run"


def board_answer(name: str, rows: pl.DataFrame) -> str:
    """Return who leads a board of one version, and what a conversation costs; for reliability, who is first per task set.

    Args:
        name: leaderboard, log_leaderboard or reliability_leaderboard.
        rows: The rows of this table, the board's in reading order.
    """
    if name == "reliability_leaderboard":
        return reliability_answer(rows)
    of_boards = {other: table(other).empty() for other in ("leaderboard", "log_leaderboard")} | {name: rows}
    says = leader(of_boards["leaderboard"], of_boards["log_leaderboard"])
    return " ".join(filter(None, [says, prices(rows)]))


def prices(rows: pl.DataFrame) -> str:
    """Return what a conversation of each agent costs, that of the leader first; empty without agents."""
    of_ranked = rows.clear()
    if "rank" in rows.columns:
        size = pl.len().over("template")
        of_ranked = rows.drop_nulls("rank").sort(size, "template", "rank", descending=[True, False, False])
    of_agent = [
        f"{_name(row)} {'unknown' if cost is None else f'${cost:.4f}'}"
        for row in (rows if of_ranked.is_empty() else of_ranked).to_dicts()
        for cost in (row["cost_usd_per_conversation"],)
    ]
    return f"Cost of a conversation: {_listed(of_agent)}." if of_agent else ""


def reliability_answer(rows: pl.DataFrame) -> str:
    """Return which agent is first by pass^k in each task set, by the unbiased estimator at the largest k, from rows of a board of reliability."""
    of_default = pl.col("estimator").cast(pl.String) != "unbiased"
    ranked = rows.filter(pl.col("rank") == 1).sort(
        of_default, "k", "agent_id", descending=[False, True, False]
    )
    firsts = ranked.unique("task_set", keep="first", maintain_order=True).sort("task_set")
    answers = []
    for row in firsts.to_dicts():
        low, high = row["pass_hat_k_low"], row["pass_hat_k_high"]
        bounds = "" if low is None else f" ({low:.3f} to {high:.3f})"
        of = f"{one_line(row['agent_id'])} is first by pass^{row['k']}: {row['pass_hat_k']:.3f}{bounds}"
        answers.append(f"{of} on {count_of(row['n_tasks'], 'task')} of {one_line(row['task_set'])}")
    return f"{_listed(answers)}." if answers else "No agent is ranked by reliability."


def _success(logs: pl.DataFrame) -> str:
    """Return the success rates of the logs, highest first, or that none is known."""
    rated = logs.filter(pl.col("success_rate").is_not_null()).sort(
        "success_rate", descending=True, maintain_order=True
    )
    if rated.is_empty():
        return f"The success of {count_of(logs.height, 'agent')} is unknown: no judge model and no declared outcome decided it."
    figures = [(row, headline(row, "success_rate")) for row in rated.to_dicts()]
    rates = [f"{_name(row)} {value_of(figure)} ({_interval(figure)})" for row, figure in figures]
    lacking = f"; {logs.height - rated.height} unknown" if rated.height < logs.height else ""
    if len(rates) == 1:
        return f"Success of {rates[0]}, {count_of(rated['n_conversations'][0], 'conversation')}{lacking}."
    a, b = rated["agent_id"][0], rated["agent_id"][1]
    return f"Success: {_listed(rates)}{lacking}; logs are not ranked (agent-eval compare {a} {b} tests the difference)."


def open_failures(summary: pl.DataFrame) -> int | None:
    """Return how many questions about failures have no answer, from rows of table quality_summary.

    None if no question about failures is known: these metrics are switched off, or the table is not computed yet.
    """
    of_failures = summary.filter(pl.col("quantity").str.starts_with(FAILURE_RATE))
    if of_failures.is_empty():
        return None
    return int(of_failures.select(pl.col("n_unasked") + pl.col("n_unscored")).sum().item())


def _unanswered(n_open: int | None, why: str = "") -> str:
    """Return what limits that no failure was found; empty if every question about failures was answered."""
    if n_open is None:
        return "; no answer about failures is known"
    return f"; {count_of(n_open, 'question')} about failures not answered{why}" if n_open else ""


def none_found(n_open: int | None, *, has_judge: bool) -> str:
    """Return 'none found', and how many questions about failures have no answer unless all have one."""
    return f"none found{_unanswered(n_open, '' if has_judge else ', for want of a judge model')}"


def worst_finding(
    finding: Mapping[str, Any] | None, n_open: int | None = 0, *, has_judge: bool = False
) -> str:
    """Return the worst finding with its quote, or how much is still open if none was found.

    Args:
        finding: A row of `clusters.worst.worst_findings`; None without findings.
        n_open: Questions about failures without an answer, from `open_failures`.
        has_judge: Whether the project has a judge model.
    """
    if finding is None:
        return f"Worst finding: {none_found(n_open, has_judge=has_judge)}."
    title, quote = _title(finding), one_line(finding["quote"] or "")
    quoted = f": “{_cut(quote)}”" if quote and quote[:20] not in title else ""
    where = count_of(finding["n_turns"], "turn")
    if finding["conversation_id"] is not None:
        place = f"conversation {one_line(finding['conversation_id'])}, turn {finding['turn_index']}"
        where = place if finding["n_turns"] == 1 else f"{where}, e.g. {place}"
    return f"Worst finding ({finding['severity']}): {title}{quoted}, {finding['agent_id']}, {where}."


def clusters_answer(rows: pl.DataFrame, n_open: int | None) -> str:
    """Return how many clusters there are by severity, and the worst one: its agent, place and first day.

    Clusters with all their findings in another one, and those that the agent no longer has, are not counted.

    Args:
        rows: Rows of table error_clusters with the column of `first_days`, most severe first.
        n_open: Questions about failures without an answer, from `open_failures`.
    """
    rows = rows.filter(pl.col("same_as").is_null(), pl.col("n_turns") > 0)
    if rows.is_empty():
        return f"No failure was found{_unanswered(n_open)}."
    counts = rows.unique("cluster_id", maintain_order=True).group_by("severity", maintain_order=True).len()
    worst = rows.row(0, named=True)
    by_severity = ", ".join(f"{n:,} {severity}" for severity, n in counts.rows())
    place = [worst["agent_id"], *worst["examples"][:1]]
    where = ", ".join([_title(worst), *map(one_line, place)])
    n = count_of(rows["cluster_id"].n_unique(), "error cluster")
    return f"{n}: {by_severity}. Worst: {where}, {since_when(worst)}."


def since_when(cluster: Mapping[str, Any]) -> str:
    """Return since when a cluster occurs: `since_day`, the first day of its conversations.

    Without a time in its conversations, the day is unknown; that of the run that found it is another one.
    """
    if cluster["since_day"] is None:
        return f"since an unknown day (no times in its conversations; found by the run of {cluster['first_seen']})"
    return f"since {cluster['since_day']}"


def failing_tools(calls: pl.DataFrame) -> str:
    """Return which tools failed most often, e.g. 'Failed tool calls: search 9 of 21, book 2 of 40.'; empty without calls.

    Calls whose result does not say whether they failed are in no share; their number is stated.

    Args:
        calls: Rows of `asset_pages.ingest.tool_counts`; the agents of a tool are added up.
    """
    of_tool = calls.group_by("name").agg(pl.col("n", "n_errors", "n_unknown").sum())
    if of_tool.is_empty():
        return ""
    tool_counts = of_tool.with_columns(n_known=pl.col("n") - pl.col("n_unknown"))
    failing = tool_counts.filter(pl.col("n_errors") > 0).sort(
        "n_errors", pl.col("n_errors") / pl.col("n_known"), "name", descending=[True, True, False]
    )
    tools = [
        f"{_cut(one_line(row['name']))} {row['n_errors']:,} of {row['n_known']:,}"
        for row in failing.to_dicts()
    ]
    n_known, n_unknown = tool_counts["n_known"].sum(), tool_counts["n_unknown"].sum()
    failed = _listed(tools) if tools else f"none of {n_known:,}" if n_known else "unknown"
    silent = f"; of {n_unknown:,} no result says whether they failed" if n_unknown else ""
    return f"Failed tool calls: {failed}{silent}."


def first_days(
    read: Callable[..., pl.DataFrame], clusters: pl.DataFrame, by: Sequence[str] = ("cluster_id",)
) -> pl.DataFrame:
    """Return the first day on which each cluster occurred: the columns `by` and `since_day`.

    `since_day` is null if the cluster's conversations have no times; a cluster without failures has no row.

    Args:
        read: A function that reads the rows of a stored table that match keys: name, keys, columns.
        clusters: Rows of table error_clusters.
        by: The columns that identify a row of the result, out of those of `clusters.worst.CLUSTER`.
    """
    failures = read("failures", clusters.select(CLUSTER), columns=[*CLUSTER, "conversation_id"])
    where = failures.select("methodology_version", *CONVERSATION).unique()
    days = days_of(read, read("transcripts", where))
    located = failures.select([*CLUSTER, "conversation_id"]).join(
        days.unique(CONVERSATION), on=CONVERSATION, how="left"
    )
    return located.group_by(by).agg(since_day=pl.col("day").min())


def with_first_day(
    read: Callable[..., pl.DataFrame], cluster_rows: pl.DataFrame, clusters: pl.DataFrame
) -> pl.DataFrame:
    """Return rows of table error_clusters (`cluster_rows`) with `since_day` of the first one, over all its rows in `clusters`."""
    of_first = clusters.join(cluster_rows.head(1), on="cluster_id", how="semi")
    return cluster_rows.join(first_days(read, of_first), on="cluster_id", how="left", maintain_order="left")


def changes_since(rows: pl.DataFrame, since: str) -> str:
    """Return how many clusters became more or less frequent since a day, a run or an agent, and whether that is certain.

    Args:
        rows: Rows of table error_trends.
        since: The baseline, for display.
    """
    rows_with_trend = rows.filter(pl.col("trend").is_not_null())
    sure = rows_with_trend.filter(pl.col("is_significant").fill_null(value=False))
    worse, better = (
        sure.filter(pl.col("trend").is_in(names)) for names in (["new", "regressed"], ["gone", "improved"])
    )
    n_open = rows_with_trend.filter(trend="unknown").height
    parts = [
        f"{worse.height} worse, {better.height} better, {rows_with_trend.height - sure.height - n_open} not distinguishable"
    ]
    parts += [f"{n_open} unknown, because one side was not judged for them"] if n_open else []
    titles = f" Worse: {_listed([_title(row) for row in worse.to_dicts()], most=3)}." if worse.height else ""
    return f"Error clusters since {one_line(since)}: {', '.join(parts)}.{titles}"


def unknown(
    board: pl.DataFrame, gates: pl.DataFrame, n_unscored: int, n_refused: int, n_replaced: int = 0
) -> str:
    """Return what is failed, unknown or missing: gates, agents without a score, unscored judgments, rejected records."""
    parts = [gates_counts(gates)]
    parts += [gates_sentence] if (gates_sentence := passing(gates)) else []
    without = [
        f"{_name(row)} ({row['status']})" for row in board.filter(pl.col("status").is_in(UNSCORED)).to_dicts()
    ]
    parts += [f"no score: {_listed(without)}"] if without else []
    parts += [f"{count_of(n_unscored, 'judgment')} unscored"] if n_unscored else []
    if n_replaced:
        parts.append(
            f"{count_of(n_replaced, 'answer')} to an earlier wording of a question, until the next run asks again"
        )
    parts += [f"{count_of(n_refused, 'record')} rejected"] if n_refused else []
    return f"{'; '.join(parts)}."


def next_steps(agent: str, n_unasked: int = 0) -> str:
    """Return the commands to continue with: for this agent, and for questions that no judge was asked."""
    judge = "agent-eval run --judge MODEL --dry-run · " if n_unasked else ""
    of_agent = f"--agent {one_line(agent)}"
    return f"Next: {judge}agent-eval summary {of_agent} · agent-eval errors {of_agent} · agent-eval gate"


def gates_counts(gates: pl.DataFrame) -> str:
    """Return the results of gates in one clause, e.g. 'Gates: 8 failed, 6 unknown, 41 passed'."""
    if gates.is_empty():
        return "Gates: none evaluated"
    results = dict(gates.group_by("result").len().rows())
    counts = [f"{results[name]:,} {name}" for name in ("failed", "unknown", "passed") if name in results]
    return f"Gates: {', '.join(counts)}"


def passing(gates: pl.DataFrame) -> str:
    """Return which of several agents passed all their gates, in one clause; empty for fewer than two agents.

    Args:
        gates: Rows of table gate_results under one version.
    """
    by_agent = gates.group_by("agent_id").agg(is_passed=(pl.col("result") == "passed").all())
    if by_agent.height < 2:
        return ""
    passed = sorted(by_agent.filter("is_passed")["agent_id"])
    return (
        f"all gates passed by {_listed(list(map(one_line, passed)), most=5)}"
        if passed
        else "no agent passed all gates"
    )


def gates_answer(gates: pl.DataFrame) -> str:
    """Return which agents passed all their gates, or, if none did, how many gates failed or are unknown."""
    if gates.is_empty():
        return ""
    passed = passing(gates)
    return (
        passed[:1].upper() + passed[1:]
        if passed.startswith("all")
        else "; ".join(filter(None, (gates_counts(gates), passed)))
    )


def worst_of(clusters: pl.DataFrame) -> str:
    """Return the worst error with its agent, first day and place, e.g. 'Worst error (high), a, …'; empty without errors.

    Args:
        clusters: Rows of table error_clusters with the column of `first_days`, most severe first.
    """
    for row in clusters.head(1).to_dicts():
        place = "".join(f" – {one_line(example)}" for example in row["examples"][:1])
        return f"Worst error ({row['severity']}), {one_line(row['agent_id'])}, {since_when(row)}: {_title(row)}{place}"
    return ""


def comparison(row: Mapping[str, Any], needed: int | None, width: float) -> str:
    """Return the verdict of one row of `compare` with both values, the interval, and how much data would tell.

    Args:
        row: The row.
        needed: Units of each agent that would show the observed difference; None if unknown or already shown.
        width: Width of the quantity's scale; a quantity from 0 to 1 is given in percent.
    """
    is_share = width == 1
    points = " points" if is_share or width == 100 else ""

    def text(value: float, sign: str = "") -> str:
        scaled_value = 100 * value if is_share else value
        return f"{scaled_value:{sign if value else ''}.3g}".replace("-", "−")

    unit = " %" if is_share else ""
    sides = [
        f"{one_line(row[agent])} {'–' if row[value] is None else text(row[value]) + unit}"
        for agent, value in (("agent_id", "value"), ("other_agent_id", "other_value"))
    ]
    verdict_text = f"{row['quantity']}: {' against '.join(sides)}: {row['verdict']}"
    if row["difference"] is not None:
        bounds = "" if row["low"] is None else f", {text(row['low'], '+')} to {text(row['high'], '+')}"
        verdict_text += f" (difference {text(row['difference'], '+')}{points}{bounds})"
    if row["reason"]:
        verdict_text += f"; {one_line(row['reason'])}"
    is_told = (row["reason"] or "").startswith(OF_THIS_SIZE)
    tell = (
        f" About {count_of(needed, row['unit'].removesuffix('s'))} of each would tell."
        if needed and not is_told
        else ""
    )
    return f"{verdict_text}.{tell}"


def successes(rows: pl.DataFrame) -> str:
    """Return the success rates of agents, highest first, from rows of table quality_summary."""
    if rows.is_empty():
        return "There is no summary yet. Next: agent-eval run"
    of_success = rows.filter(pl.col("quantity") == SUCCESS_RATE)
    rated = of_success.filter(pl.col("mean").is_not_null()).sort("mean", "agent_id", descending=[True, False])
    without = sorted(set(rows["agent_id"]) - set(rated["agent_id"]))
    costs = {
        row["agent_id"]: f"; {value_of(row)} each"
        for row in rows.filter(pl.col("quantity") == COST, pl.col("mean").is_not_null()).to_dicts()
    }
    rates = [
        f"{one_line(row['agent_id'])} {value_of(row)} ({_interval(row)}; {count_of(row['n_scored'], 'conversation')}{costs.get(row['agent_id'], '; cost unknown' if costs else '')})"
        for row in rated.to_dicts()
    ]
    if not rates:
        return (
            f"Success is unknown for {_listed(without)}: no judge model and no declared outcome decided it."
        )
    return f"Success: {_listed(rates)}{f'; unknown: {_listed(without)}' if without else ''}."


def score_rows(board: pl.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield the agent, its score with its interval or number of sessions, and its status, for each row of a board."""
    for row in board.to_dicts():
        score = composite(row)
        if row["low"] is not None:
            score += f" ({row['low']:.1f}–{row['high']:.1f})"
        elif row["composite_exact"] is not None:
            score += f", {count_of(row['n_sessions'], 'session')}"
        yield _name(row), score, str(row["status"])


def _interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a figure inside a sentence, e.g. 'no interval: only one session'."""
    return headline_interval(row).replace("none: ", "no interval: ")


def _name(row: Mapping[str, Any]) -> str:
    return one_line(str(row["name"] or row["agent_id"]))


def _title(row: Mapping[str, Any]) -> str:
    """Return the title of a cluster inside a sentence, without its full stop."""
    return _cut(one_line(str(row["title"]))).removesuffix(".")


def _listed(texts: Sequence[str], most: int = 3) -> str:
    """Return the first texts, separated by commas, and how many more there are."""
    more = [f"{len(texts) - most} more"] if len(texts) > most else []
    return ", ".join([*texts[:most], *more])


def _cut(text: str) -> str:
    return shortened(text, _LONGEST_QUOTE)
