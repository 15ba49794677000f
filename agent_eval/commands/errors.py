"""Implement `agent-eval errors`: show error clusters, their frequency and their trend."""

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args
from uuid import uuid4

import polars as pl
import yaml
from rich.console import Console
from rich.text import Text

from agent_eval.clusters import trends
from agent_eval.clusters.cluster_registry import targets
from agent_eval.clusters.clusters import N_EXAMPLES
from agent_eval.clusters.failures import FAILURE_METRICS, RULE
from agent_eval.clusters.worst import failures_to_quote
from agent_eval.commands.results.since import trends_since, without_time
from agent_eval.commands.terminal.output import print_json
from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.atomic_files import write_atomically
from agent_eval.formats.plain_text import count_of, sanitize_line
from agent_eval.project import Project
from agent_eval.project.clusters import consolidate_clusters, decide_proposals, proposals
from agent_eval.project.report import reader
from agent_eval.report.asset_pages.clusters import most_severe_first
from agent_eval.report.asset_pages.ingest import CALLS, tool_counts
from agent_eval.report.clusters import with_own_words
from agent_eval.report.conclusions import (
    changes_since,
    clusters_answer,
    failing_tools,
    first_days,
    open_failures,
    since_when,
)
from agent_eval.simulate.case_formats import (
    CaseFormat,
    failure_line,
    inspect_sample,
    pytest_file,
    task_text,
)
from agent_eval.simulate.regression import SUITE_OF_REGRESSIONS, NotExportableError, regression
from agent_eval.simulate.scenarios import SUFFIX
from agent_eval.tables import table
from agent_eval.transcripts.days import day_of

WIDTH = 100
_CLUSTER = ("methodology_version", "agent_id", "cluster_id")
_TURN = ("agent_id", "conversation_id", "turn_index")
CASE_FORMATS: tuple[str, ...] = get_args(CaseFormat)
_COLOURS = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "dim"}

_DESCRIBED = (
    *("label", "tool", "title", "root_cause", "severity", "severity_rank", "first_seen", "last_seen"),
    *("category", "category_by"),
)
"""Columns of an error cluster that are stored in the registry."""
_OF_ISSUE = {
    "issue_status": "status",
    "issue_first_run": "first_run",
    "issue_reason": "reason",
    **{name: name for name in ("fixed_in", "returned_in", "n_clean", "n_clean_needed", "n_runs_needed")},
    **{name: name for name in ("n_goals_missed", "seconds", "cost_usd")},
    "cost_rank": "rank",
}
"""Columns of error_issues by their names in the printed rows."""


def errors(
    project: Project, out: Console, *, version: str, agents: Sequence[str], since: str | None, as_json: bool
) -> None:
    """Print error clusters and their trends under one version.

    JSON rows contain the columns of the `error_clusters` table and the comparison. Without `since`, each agent is compared with its
    baseline in agents.yaml, or with its previous run if there is no baseline.

    Raises:
        NotFoundError: If an agent has no rows,
            or if `since` is neither an agent, nor a run, nor a day with conversations before and after it.
    """
    project.registry.get(version)
    some = project.some_agents(agents)
    pairs = pl.DataFrame(
        {"agent_id": some, "methodology_version": version}, schema_overrides={"agent_id": pl.String}
    )
    clusters = project.store.read(table("error_clusters"), pairs)
    compared, notes = _compared(project, version, some, since)
    rows = _joined(clusters, compared, project.store.read(table("error_registry")))
    rows = rows.join(
        first_days(reader(project), clusters), on="cluster_id", how="left", maintain_order="left"
    )
    rows = with_own_words(reader(project), rows)
    issues = project.store.read(table("error_issues"), pairs).select(*_CLUSTER, *_OF_ISSUE.values())
    of_issue = issues.rename({old: new for new, old in _OF_ISSUE.items()})
    rows = rows.join(of_issue, on=_CLUSTER, how="left", maintain_order="left")
    of_version = () if version == project.registry.current.version else ("--methodology", version)
    if as_json:
        print_json(rows.drop("since_day"))
        return
    if rows.is_empty():
        out.print(_without_failures(project, pairs))
    else:
        n_open = open_failures(project.store.read(table("quality_summary"), pairs))
        _print(rows, out, version, since, n_open, of_version)
    calls = project.store.counts(table("tool_calls"), pairs.select("agent_id"), columns=CALLS)
    for line in filter(None, (failing_tools(tool_counts(calls)), *notes)):
        out.print(line, markup=False)


def _without_failures(project: Project, pairs: pl.DataFrame) -> str:
    """Return whether turns were judged for failures, and by whom, where no failure was found.

    Rules report only failures, so turns that only rules looked at were not judged.
    """
    columns = ("metric", "judge", "status", *_TURN)
    counts = project.store.counts(table("turn_judgments"), pairs, columns=columns)
    judgment_counts = counts.filter(
        pl.col("metric").is_in(FAILURE_METRICS), pl.col("status") == "scored", pl.col("judge") != RULE
    )
    turns = project.store.counts(table("turns"), pairs.select("agent_id"), columns=_TURN).height
    n = judgment_counts.unique(_TURN).height
    if n:
        unjudged = f"; {turns - n:,} of {turns:,} turns were not judged" if n < turns else ""
        return f"No failures were found in {count_of(n, 'judged turn')}{unjudged}."
    if not turns:
        return "No turns are stored yet. Next: agent-eval run; before that, agent-eval import auto PATH… --agent ID"
    return (
        f"Unknown: no judge was asked about failures in {count_of(turns, 'turn')}, and rules found none. "
        "Next: agent-eval run --judge MODEL --dry-run"
    )


def consolidate(project: Project, out: Console) -> None:
    """Merge and split clusters, and print the changes."""
    events = consolidate_clusters(project, run_id=str(uuid4()))
    for kind, cluster, other, reason in events.select("kind", "cluster_id", "other_id", "reason").iter_rows():
        out.print(Text(f"{kind}: {cluster} → {other}: {reason}"))
    out.print(
        f"{count_of(events.height, 'change')}. Next: agent-eval run, which updates the tables of all agents."
    )


def list_proposals(project: Project, out: Console, *, as_json: bool) -> None:
    """Print the merges that a model proposed and that are not decided, with both titles and the reason."""
    registry = project.store.read(table("error_registry"))
    title = pl.col("title")
    rows = (
        proposals(project)
        .select("cluster_id", "other_id", "by", "reason", "at")
        .join(registry.select("cluster_id", title), on="cluster_id", how="left")
        .join(registry.select(other_id="cluster_id", other_title=title), on="other_id", how="left")
    )
    if as_json:
        print_json(rows)
        return
    out.print(f"{count_of(rows.height, 'proposed merge')} of clusters with the same cause.")
    for row in rows.iter_rows(named=True):
        text = Text(f"\n{row['cluster_id']} ", style="bold").append(sanitize_line(str(row["title"])))
        text.append(f"\n  into {row['other_id']} {sanitize_line(str(row['other_title']))}", style="not bold")
        text.append(
            f"\n  {sanitize_line(_cut(row['reason'] or '', 300))} ({sanitize_line(row['by'])})", style="dim"
        )
        out.print(text, width=min(out.width, WIDTH))
    if not rows.is_empty():
        out.print("\nNext: agent-eval errors --accept all, or --accept CLUSTER", markup=False)


def decide(project: Project, out: Console, *, accepted: Sequence[str], undone: Sequence[str]) -> None:
    """Accept or undo merges, and print how many.

    Raises:
        NotFoundError: If there is no such merge; nothing is written.
    """
    decided = decide_proposals(project, accepted, undone)
    for n, verb in ((len(decided.accepted), "accepted"), (len(decided.undone), "undone")):
        if n:
            out.print(f"{count_of(n, 'merge')} {verb} in {decided.file}.", markup=False, soft_wrap=True)
    if not decided.accepted and not decided.undone:
        out.print("There is no such merge; nothing was changed.")
        return
    out.print("Next: agent-eval run, which updates the tables of all agents.")


def export(project: Project, out: Console, *, version: str, agents: Sequence[str], cluster: str) -> Path:
    """Write the scenario that repeats a failure of a cluster, and return its file.

    The first quoted failure whose conversation can be repeated is used.

    Raises:
        NotFoundError: If no failure belongs to the cluster.
        NotExportableError: If no conversation of the cluster can be repeated.
        InputError: If the file exists with another content.
    """
    recorded = _recorded(project, version, agents, cluster)
    scenario, failure, turns = _repeated(recorded)
    file = _written(project, out, scenario, failure["agent_id"])
    if n_attachments := _n_attachments(turns, failure["turn_index"]):
        out.print(f"Not repeated: {count_of(n_attachments, 'attachment')} of the user.")
    return file


def exported(project: Project, *, version: str, agents: Sequence[str], cluster: str, case_format: str) -> str:
    """Return the failures of a cluster as text for another tool; nothing is written.

    Raises:
        NotFoundError: If no failure belongs to the cluster.
        NotExportableError: If a test for pytest is asked for and no conversation of the cluster can be repeated.
    """
    recorded = _recorded(project, version, agents, cluster)
    if case_format == "pytest":
        scenario, failure, _ = _repeated(recorded)
        return pytest_file(scenario, failure["agent_id"])
    if case_format == "task":
        clusters = {case.cluster["agent_id"]: case.cluster for case in recorded}
        return task_text([*clusters.values()], [case.failure for case in recorded])
    line = {"inspect": inspect_sample, "jsonl": failure_line}[case_format]
    return "".join(f"{line(c.failure, c.cluster, c.conversation, c.turns)}\n" for c in recorded)


class _Recorded(NamedTuple):
    """Hold a failure with its cluster, its conversation and the conversation's turns in order."""

    failure: dict[str, Any]
    cluster: dict[str, Any]
    conversation: dict[str, Any]
    turns: list[dict[str, Any]]


def _recorded(project: Project, version: str, agents: Sequence[str], cluster: str) -> list[_Recorded]:
    """Return the failures of a cluster, the first to quote first; those of its target if it was merged."""
    project.registry.get(version)
    pairs = pl.DataFrame({"agent_id": project.some_agents(agents)}, schema={"agent_id": pl.String})
    pairs = pairs.with_columns(methodology_version=pl.lit(version))
    clusters = project.store.read(table("error_clusters"), pairs)
    cluster_ids = clusters["cluster_id"].unique().sort().to_list()
    redirects = targets(project.store.read(table("error_registry")))
    requested_id = {name.lower(): name for name in [*redirects, *cluster_ids]}.get(cluster.lower(), cluster)
    target_id = requested_id if requested_id in cluster_ids else redirects.get(requested_id, requested_id)
    rows = most_severe_first(clusters.filter(pl.col("cluster_id") == target_id), "n_turns")
    rows = with_own_words(reader(project), rows)
    of_cluster = rows.select(*pairs.columns, "cluster_id")
    failures = failures_to_quote(project.store.read(table("failures"), of_cluster), most=None)
    if failures.is_empty():
        near = difflib.get_close_matches(cluster, cluster_ids, n=1)
        raise NotFoundError(
            f"Cluster {cluster!r}{'' if target_id == requested_id else f', which was merged into {target_id},'} has no failure of these agents under this version."
            f"{f' Did you mean {near[0]!r}?' if near else ''} `agent-eval errors` lists the clusters."
        )
    key = ["agent_id", "conversation_id"]
    keys = failures.select(key).unique()
    conversations = {
        tuple(row[name] for name in key): row
        for row in project.store.read(table("conversations"), keys).iter_rows(named=True)
    }
    turns = project.store.read(table("turns"), keys).sort("turn_index")
    of_conversation = turns.partition_by(key, as_dict=True)
    described = {row["agent_id"]: row for row in rows.iter_rows(named=True)}
    return [
        _Recorded(f, described[f["agent_id"]], conversations[where], of_conversation[where].to_dicts())
        for f in failures.to_dicts()
        if (where := (f["agent_id"], f["conversation_id"])) in of_conversation
    ]


def _repeated(
    recorded: Sequence[_Recorded],
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Return the scenario of the first failure that can be repeated, with the failure and its turns."""
    problems: list[NotExportableError] = []
    for failure, cluster, conversation, turns in recorded:
        try:
            return regression(failure, cluster, conversation, turns), failure, turns
        except NotExportableError as problem:
            problems.append(problem)
    raise problems[0]


def _n_attachments(turns: Sequence[dict[str, Any]], last: int) -> int:
    repeated = [m for turn in turns if turn["turn_index"] <= last for m in json.loads(turn["messages"])]
    return sum(len(m.get("attachments") or ()) for m in repeated if m["role"] == "user")


def _written(project: Project, out: Console, scenario: dict[str, Any], agent: str) -> Path:
    file = project.home.scenarios / SUITE_OF_REGRESSIONS / f"{scenario['id']}{SUFFIX}"
    text = yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True, width=100)
    if file.exists() and file.read_text(encoding="utf-8") != text:
        raise InputError(f"{file} exists with another content. Move or delete it, then repeat the command.")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)
    required = [name for assertion in scenario.get("assertions", ()) for name in assertion if name != "turn"]
    severity = scenario.get("fail_on_error_severity")
    demand_texts = {"expected_answer": "expected_answer, which a judge decides"}
    demands = [demand_texts.get(name, name) for name in dict.fromkeys(required)]
    if severity:
        demands.append(f"that no failure of severity {severity} or above is found, which a judge decides")
    checked = f"It requires: {', '.join(demands)}."
    out.print(sanitize_line(f"{file}: repeats {scenario['description']}"), markup=False, soft_wrap=True)
    out.print(sanitize_line(checked), markup=False, soft_wrap=True)
    out.print(
        f"Next: agent-eval simulate --suite {SUITE_OF_REGRESSIONS} --agent {shlex.quote(agent)}",
        markup=False,
        soft_wrap=True,
    )
    return file


def _compared(
    project: Project, version: str, agents: Sequence[str], since: str | None
) -> tuple[pl.DataFrame, list[str]]:
    """Return the `error_trends` table of these agents, stored or relative to `since`, and notes on what is left out."""
    of_version = pl.DataFrame({"methodology_version": [version]})
    if since is None:
        stored = project.store.read(table("error_trends"), of_version)
        return stored.filter(pl.col("agent_id").is_in(list(agents))), []
    rates = project.store.read(table("error_rates"), of_version)
    agent_rows = pl.DataFrame({"agent_id": list(agents)}, schema={"agent_id": pl.String})
    if since in project.known_agents():
        others = agent_rows.filter(pl.col("agent_id") != since).with_columns(baseline=pl.lit(since))
        comparisons = trends.baselines(rates, others)
    else:
        mine = rates.join(agent_rows, on="agent_id")
        runs = sorted(set(mine["benchmark_id"]))
        if since not in runs:
            if (day := day_of(since)) is not None:
                day_trends, split = trends_since(project, version, agents, day)
                return day_trends, without_time(split)
            agents = project.known_agents()
            raise NotFoundError(
                f"--since {since!r} is neither an agent nor a run (benchmark_id) of the agents shown, and not a day (ISO "
                "8601). "
                f"Agents: {', '.join(agents) or 'none'}. Runs: {', '.join(runs) or 'none'}."
            )
        comparisons = trends.since_run(mine, since)
    return trends.compared(rates, comparisons, project.store.read(table("error_registry"))), []


def _joined(clusters: pl.DataFrame, compared: pl.DataFrame, registry: pl.DataFrame) -> pl.DataFrame:
    """Return clusters with their comparison, including clusters that disappeared, in order of severity and q-value."""
    described = registry.select("cluster_id", *_DESCRIBED)
    with_counts = clusters.drop(*_DESCRIBED, "trend")
    with_counts = with_counts.rename({"n_turns": "n_turns_seen"}).drop(
        "n_turns_eligible", "rate_per_100_turns"
    )
    of_trend = compared.drop("label", "title", "severity", "severity_rank")
    alone = clusters.select(*_CLUSTER, "n_turns_eligible", "rate_per_100_turns")
    rows = (
        with_counts.join(of_trend, on=_CLUSTER, how="full", coalesce=True)
        .join(alone, on=_CLUSTER, how="left", suffix="_alone")
        .with_columns(
            pl.coalesce(name, f"{name}_alone").alias(name)
            for name in ("n_turns_eligible", "rate_per_100_turns")
        )
        .drop("n_turns_eligible_alone", "rate_per_100_turns_alone", "n_turns")
        .rename({"n_turns_seen": "n_turns"})
        .with_columns(pl.col("n_failures", "n_turns", "n_conversations").fill_null(0))
        .join(described, on="cluster_id", how="left")
    )
    first = [
        "cluster_id",
        "severity",
        "title",
        "root_cause",
        "agent_id",
        "n_turns",
        "rate_per_100_turns",
        "trend",
    ]
    return most_severe_first(rows, "n_turns").select(*first, pl.exclude(first))


def _print(
    rows: pl.DataFrame,
    out: Console,
    version: str,
    since: str | None,
    n_open: int | None,
    of_version: Sequence[str] = (),
) -> None:
    compared = f" since {since}" if since else ""
    also = rows.filter(pl.col("same_as").is_not_null())
    rows = rows.filter(pl.col("same_as").is_null())
    width = min(out.width, WIDTH)
    if since:
        out.print(Text(changes_since(rows, since)), width=width)
    out.print(Text(clusters_answer(rows, n_open)), width=width)
    out.print(Text(f"Error clusters · methodology {version}{compared}", style="bold"), width=width)
    for _, group in rows.group_by("cluster_id", maintain_order=True):
        out.print()
        labelled = also.filter(pl.col("same_as") == group["cluster_id"][0])
        out.print(_described(group.to_dicts(), labelled.to_dicts()), width=width)
        for line in _examples(group.to_dicts(), of_version):
            out.print(line, soft_wrap=True)
    out.print()
    if by_category := _by_category(rows):
        out.print(Text(by_category), width=width)
    out.print(Text(_legend(rows), style="dim"), width=width)


def _by_category(rows: pl.DataFrame) -> str:
    """Return the numbers of failures and clusters by category of the taxonomy, most failures first; '' without a taxonomy."""
    versions = rows["taxonomy"].drop_nulls().unique().sort().to_list()
    if not versions:
        return ""
    counts = (
        rows.group_by(pl.col("category").fill_null("without a category"))
        .agg(pl.col("n_failures").sum(), n_clusters=pl.col("cluster_id").n_unique())
        .filter(pl.col("n_failures") > 0)
        .sort("n_failures", "category", descending=[True, False])
    )
    parts = [
        f"{sanitize_line(category)}: {count_of(n, 'failure')} in {count_of(n_clusters, 'cluster')}"
        for category, n, n_clusters in counts.iter_rows()
    ]
    return f"{sanitize_line(' and '.join(versions))}. {'; '.join(parts)}."


def _described(group: list[dict[str, Any]], also: list[dict[str, Any]]) -> Text:
    """Return a cluster as text: severity, title and number of turns; label; cause; and each agent's rate and trend.

    `also` are the clusters with other labels of the same findings.
    """
    row, n = group[0], sum(row["n_turns"] for row in group)
    text = Text(f"[{row['severity']}] ", style=_COLOURS[row["severity"]])
    text.append(f"{sanitize_line(str(row['title']))} ({n})", style="bold")
    tool = f" · {sanitize_line(row['tool'])}" if row.get("tool") else ""
    text.append(f"\n  label: {sanitize_line(str(row['label']))}{tool}", style="not bold")
    for name, label in dict.fromkeys((other["cluster_id"], other["label"]) for other in also):
        text.append(f"\n  also labelled: {sanitize_line(label)} ({name})", style="not bold")
    if row.get("category"):
        text.append(
            f"\n  category: {sanitize_line(row['category'])} (by {sanitize_line(row['category_by'])})",
            style="not bold",
        )
    words_of = sanitize_line(", ".join(row["words_of"] or ()))
    if words_of:
        text.append(f"\n  title for: {words_of}", style="not bold")
    of = words_of if not row["n_turns"] else sanitize_line(row["agent_id"]) if len(group) > 1 else ""
    whose = f", {of}" if of else ""
    if row["root_cause"]:
        cause = sanitize_line(_cut(_first_sentence(row["root_cause"]), 200))
        text.append(f"\n  cause{whose}: {cause}", style="not bold")
    if row["should_have"]:
        remedy = sanitize_line(_cut(row["should_have"], 200))
        text.append(f"\n  a good agent would have done{whose}: {remedy}", style="not bold")
    for of_agent in group:
        rate = of_agent["rate_per_100_turns"]
        per_100 = "" if rate is None else f", {rate:.1f} per 100"
        trend = "" if of_agent["trend"] is None else f", {_trend(of_agent)}"
        agent, turns = sanitize_line(of_agent["agent_id"]), of_agent["n_turns"]
        text.append(f"\n  {agent}: {count_of(turns, 'turn')}{per_100}{trend}", style="not bold")
        if issue_text := _issue(of_agent):
            text.append(f"\n    {sanitize_line(issue_text)}", style="not bold")
    text.append(f"\n  {row['cluster_id']}, {since_when(row)}", style="not bold dim")
    return text


def _issue(row: dict[str, Any]) -> str:
    """Return the state of a cluster as an issue of the agent, and what its conversations cost; '' if it is unknown."""
    if row.get("issue_status") is None:
        return ""
    needed, fixed, again = row["n_runs_needed"], row["fixed_in"], row["returned_in"]
    if row["issue_status"] == "fixed":
        state = f"fixed in {fixed}" + (
            f", seen again in {again}, which may be due to chance" if again else ""
        )
    else:
        back = (
            f"; it was fixed in {fixed} and came back in {again}"
            if again
            else f" since {row['issue_first_run']}"
        )
        so_far = f" ({row['n_clean']} of {row['n_clean_needed']} conversations)" if row["n_clean"] else ""
        until = (
            "" if needed is None else f"; counts as fixed after {count_of(needed, 'run')} without it{so_far}"
        )
        why = f"; {row['issue_reason']} since" if row["issue_reason"] else ""
        state = f"open{back}{until}{why}"
    missed, seconds, cost = row["n_goals_missed"], row["seconds"], row["cost_usd"]
    costs = (
        *(() if not missed else (f"{count_of(missed, 'goal')} missed",)),
        *(() if seconds is None else (f"{seconds:,.0f} s",)),
        *(() if cost is None else (f"${cost:,.2f}",)),
    )
    return state + (f"; in its conversations: {', '.join(costs)}" if costs else "")


def _examples(group: list[dict[str, Any]], of_version: Sequence[str]) -> Iterator[Text]:
    """Yield the commands that show up to three examples of a cluster."""
    of_agents = [(row["agent_id"], example) for row in group for example in row["examples"] or ()]
    for agent, example in of_agents[:N_EXAMPLES]:
        words = " ".join(
            map(shlex.quote, (sanitize_line(agent), "--turn", sanitize_line(example), *of_version))
        )
        yield Text(f"  agent-eval explain {words}", style="dim")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s+(?=\S)", " ".join(text.split()), maxsplit=1)[0]


def _trend(row: dict[str, object]) -> str:
    """Return the trend, the earlier rate and its significance as text."""
    if row["trend"] is None:
        return "–"
    before, q_value = row["baseline_rate_per_100_turns"], row["q_value"]
    is_other = row["baseline_agent_id"] != row["agent_id"]
    whose = row["baseline_agent_id"] if is_other else row["baseline_benchmark_id"]
    of = f" in {sanitize_line(str(whose))}" if whose is not None else ""
    was = f", was {before:.1f}{of}" if isinstance(before, float) else ""
    doubt = ", may be due to chance" if row["trend"] in ("new", "gone") and not row["is_significant"] else ""
    sure = f", q {q_value:.2g}{doubt}" if isinstance(q_value, float) else ""
    return f"{row['trend']}{was}{sure}"


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _legend(rows: pl.DataFrame) -> str:
    n = rows["cluster_id"].n_unique()
    lines = [
        f"{count_of(n, 'cluster')} listed. per 100: turns with the error per 100 turns that people or models judged; –: no turns were judged."
    ]
    if rows["trend"].null_count() < rows.height:
        lines.append(
            "was: rate of the baseline, which is named. q ≤ 0.05: about 5 % of such findings are expected to be false."
        )
    else:
        lines.append(
            "No trend. Set a baseline in agents.yaml, compare with --since AGENT, or import another run of the agent."
        )
    return " ".join(lines)
