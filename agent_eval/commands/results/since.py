"""Compare what agents did since a day with what they did before, for `summary --since` and `errors --since`.

A conversation happened on the UTC day of its first message with a time, else on the declared date of its session. One
without either is in neither period; the commands print the number of these.
"""

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl
from rich.console import Console

from agent_eval.clusters import trends
from agent_eval.clusters.failures import FAILURE_METRICS
from agent_eval.clusters.rates import error_rates, runs
from agent_eval.commands.results.compare import main_row_first, print_comparison
from agent_eval.commands.results.reliability import pairs_of, trial_tables
from agent_eval.commands.terminal.output import print_json
from agent_eval.errors import InputError, NotFoundError
from agent_eval.formats.plain_text import count_of
from agent_eval.judge.sampling import UNASKED
from agent_eval.project import Project
from agent_eval.project.quality import scales, values_of_conversations
from agent_eval.project.report import reader
from agent_eval.scores.labelled_parts import labelled_metrics
from agent_eval.scores.reliability.trials import trial_outcomes
from agent_eval.scores.statistics import compare as comparing
from agent_eval.tables import table
from agent_eval.transcripts.days import CONVERSATION, day_of, days_of


class Periods(NamedTuple):
    """Hold in which of two periods the conversations of agents happened."""

    since: str  # name of the later one, which starts with the day
    before: str
    conversations: (
        pl.DataFrame
    )  # agent_id, conversation_id, period: one of the two names, null without a time

    def n_without_time(self) -> int:
        """Return the number of conversations in neither period."""
        return self.conversations["period"].null_count()


def periods(project: Project, pairs: pl.DataFrame, day: datetime.date) -> Periods:
    """Return the two periods of the agents' conversations that count under the version of `pairs`.

    Raises:
        NotFoundError: If one of the periods has no conversation; the message names the days that are known.
    """
    transcripts = project.store.read(table("transcripts"), pairs).filter("is_admitted")
    days = days_of(reader(project), transcripts)
    since, before = f"since {day}", f"before {day}"
    period = pl.when(pl.col("day") >= day).then(pl.lit(since)).when(pl.col("day") < day).then(pl.lit(before))
    both_periods = Periods(since, before, days.select(*CONVERSATION, period=period))
    lacking = [name for name in (since, before) if name not in both_periods.conversations["period"]]
    if lacking:
        all_days = sorted(days["day"].drop_nulls().to_list())
        span = f"Known days: {all_days[0]} to {all_days[-1]}" if all_days else "No conversation has a time"
        n = both_periods.n_without_time()
        without = f"; {count_of(n, 'conversation')} without one" if n and all_days else ""
        raise NotFoundError(
            f"There is no conversation {' and none '.join(lacking)} to compare. {span}{without}. Give messages a "
            "`timestamp`, or sessions a `date`, or compare runs: agent-eval errors --since RUN."
        )
    return both_periods


def summary_since(
    project: Project, out: Console, *, version: str, agents: Sequence[str], day: str, as_json: bool
) -> None:
    """Print whether each agent became better or worse: its conversations since a day against the earlier ones.

    JSON rows are those of `compare`, with the periods as agents.

    Raises:
        InputError: If `day` is not a date.
        NotFoundError: If a period has no conversation, or if an agent has no rows.
    """
    if (first := day_of(day)) is None:
        raise InputError(f"--since {day!r} is not a date. Write it as ISO 8601, e.g. 2026-11-20.")
    project.registry.get(version)
    pairs = pairs_of(project, version, agents)
    split = periods(project, pairs, first)
    tables = trial_tables(project, pairs)
    outcomes = trial_outcomes(tables, answer_threshold=project.settings.answer_threshold)
    halves = outcomes.join(split.conversations, on=CONVERSATION, how="left", maintain_order="left")
    values = pl.concat(
        values_of_conversations(project, tables, halves.filter(period=name).drop("period")).with_columns(
            pl.concat_str("agent_id", pl.lit(f" {name}")).alias("agent_id")
        )
        for name in (split.since, split.before)
    )
    no_tasks = comparing.task_values(
        outcomes.clear(), tables.conversations.clear(), tables.turn_judgments.clear(),
        tables.conversation_judgments.clear(), unasked=UNASKED,
    )  # fmt: skip
    rows = [
        comparing.compare(
            f"{agent} {split.since}", f"{agent} {split.before}", _no_sessions(), no_tasks,
            thresholds=project.settings.gates.rules(agent, version).threshold_metrics,
            conversations=values, scales=scales(project),
        )
        for agent in pairs["agent_id"]
    ]  # fmt: skip
    if as_json:
        print_json(pl.concat(rows))
        return
    for agent, of_agent in zip(pairs["agent_id"], rows, strict=True):
        if of_agent.is_empty():
            out.print(f"{agent}: nothing to compare; one of the periods has no known value.", markup=False)
            continue
        print_comparison(out, main_row_first(of_agent), version, scales(project))
    if labelled := labelled_metrics(tables.turn_judgments, tables.conversation_judgments):
        out.print(f"Labels of people do not correct these figures: {', '.join(labelled)}.", markup=False)
    for line in without_time(split):
        out.print(line, markup=False)


def without_time(split: Periods) -> list[str]:
    """Return how many conversations are in neither period, if any."""
    n = split.n_without_time()
    verb = "is" if n == 1 else "are"
    return [f"{count_of(n, 'conversation')} without a time {verb} in neither period."] if n else []


def trends_since(
    project: Project, version: str, agents: Sequence[str], day: datetime.date
) -> tuple[pl.DataFrame, Periods]:
    """Return table `error_trends` of the agents since a day, against the earlier days, and the two periods.

    Raises:
        NotFoundError: If a period has no conversation.
    """
    pairs = pairs_of(project, version, agents)
    split = periods(project, pairs, day)

    def stored(name: str) -> pl.DataFrame:
        return project.store.read(table(name), pairs)

    registry = project.store.read(table("error_registry"))
    sessions = project.store.read(table("sessions"), pairs.select("agent_id"))
    halves = (
        runs(stored("transcripts"), sessions)
        .join(split.conversations.drop_nulls(), on=CONVERSATION)
        .with_columns(benchmark_id="period", run_date=pl.lit(None, dtype=pl.Date))
        .drop("period")
    )
    failure_judgments = stored("turn_judgments").filter(pl.col("metric").is_in(FAILURE_METRICS))
    rates = error_rates(stored("failures"), failure_judgments, halves, registry, table("error_rates").empty())
    comparisons = pairs.select("methodology_version", "agent_id").with_columns(
        baseline_agent_id="agent_id",
        benchmark_id=pl.lit(split.since),
        baseline_benchmark_id=pl.lit(split.before),
    )
    return trends.compared(rates, comparisons, registry), split


def _no_sessions() -> pl.DataFrame:
    names = ("composite_scores", "universal_scores", "domain_scores")
    return comparing.session_values(*(table(name).empty() for name in names))
