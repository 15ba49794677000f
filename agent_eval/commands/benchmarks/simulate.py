"""Implement `agent-eval simulate`: run scenarios, then with --gate judge them and print a line per scenario."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console

from agent_eval.commands.estimate import refuse_unusable_judges
from agent_eval.commands.gate import gate_rows
from agent_eval.commands.run import run
from agent_eval.commands.terminal.progress import shown_progress
from agent_eval.commands.terminal.tables import FittingTable
from agent_eval.errors import AgentEvalError
from agent_eval.formats.plain_text import count_of, one_line
from agent_eval.gates import exit_code
from agent_eval.project import Project
from agent_eval.project.benchmarks.expected_answers import answer_findings
from agent_eval.scores.reliability.trials import ANSWER_METRIC, TrialTables
from agent_eval.simulate.preparation import Simulation, prepared
from agent_eval.simulate.runner import SimulationReport
from agent_eval.tables import table
from agent_eval.transcripts.scenario_names import scenario_of


@dataclass(frozen=True)
class Options:
    """Hold the options of `agent-eval simulate`."""

    agents: tuple[str, ...]
    suites: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    n_sessions: int = 1
    trials: int | None = None
    seed: int = 0
    concurrency: int | None = None
    dry_run: bool = False
    gate: bool = False


POLL_S = 0.5
_WORST = ("failed", "harness error", "unknown", "passed")


def run_simulation(project: Project, out: Console, err: Console, options: Options, *, watch: bool) -> int:
    """Run the scenarios, with `watch` again after each change of a scenario file, and return the exit code."""
    while True:
        before = _state(project.home.scenarios)
        try:
            code = _once(project, out, err, options)
        except AgentEvalError as error:
            if not watch:
                raise
            err.print(one_line(str(error)), markup=False, soft_wrap=True)
            code = 2
        if not watch:
            return code
        err.print("Waiting for changes in data/scenarios; Ctrl-C ends.", markup=False)
        while _state(project.home.scenarios) == before:
            time.sleep(POLL_S)
        project = Project(home=project.home, settings=project.settings)


def _once(project: Project, out: Console, err: Console, options: Options) -> int:
    simulation = prepared(
        project.simulation_setup(), options.agents, options.suites, options.scenarios,
        n_sessions=options.n_sessions, trials=options.trials, seed=options.seed,
    )  # fmt: skip
    if options.dry_run:
        print_plan(simulation, out)
        return 0
    if options.gate:
        refuse_unusable_judges(project, (), ())
    with shown_progress(err, "Holding conversations …") as progress:
        report = simulation.run(progress.watch, options.concurrency)
    print_report(report, out, err)
    if not options.gate or report.exit_code == 2:
        return report.exit_code
    version = project.registry.current.version
    with shown_progress(err) as progress:
        run_report = run(project.watched(progress.watch), options.agents, (version,), say=progress.say)
    for warning in run_report.warnings:
        err.print(one_line(warning), markup=False, soft_wrap=True)
    current = {
        b.run.suite.task_id(scenario) for b in simulation.benchmarks for scenario in b.run.suite.scenarios
    }
    return gate_scenarios(project, out, options.agents, version, current)


def _state(folder: Path) -> dict[str, int]:
    files = folder.rglob("*.yaml") if folder.is_dir() else ()
    return {str(path): path.stat().st_mtime_ns for path in files if path.is_file()}


def print_plan(simulation: Simulation, out: Console) -> None:
    """Print what would be run: conversations, and the largest number of messages to each agent."""
    for benchmark in simulation.benchmarks:
        most = sum(job.scenario.n_messages for job in benchmark.jobs)
        n_finished = sum(len(folder.finished) for folder in benchmark.folders)
        text = (
            f"{benchmark.tested.setup.agent_id}, suite {benchmark.run.suite.name}: {count_of(len(benchmark.folders), 'session')}, "
            f"{count_of(len(benchmark.jobs), 'conversation')} to hold, {n_finished} finished; at most {count_of(most, 'message')} to the agent"
        )
        out.print(one_line(text), markup=False, soft_wrap=True)


def print_report(report: SimulationReport, out: Console, err: Console) -> None:
    """Print the sessions and the outcomes of the conversations."""
    classes = ", ".join(
        f"{n} {name.replace('_', ' ')}" for name, n in sorted(report.outcomes.items()) if name != "unknown"
    )
    conversations = f"{count_of(report.n_held, 'conversation')} held" + (f" ({classes})" if classes else "")
    left = f", {report.n_left} left" if report.n_left else ""
    out.print(f"{conversations}, {report.n_kept} kept{left}", markup=False)
    for name in report.sessions:
        out.print(one_line(f"Session {name}"), markup=False, soft_wrap=True)
    if report.slips.n_messages:
        out.print(report.slips.line(), markup=False)
    for problem in report.problems:
        err.print(one_line(problem), markup=False, soft_wrap=True)
    if report.n_left:
        err.print("Run the same command again to continue.", markup=False)


def gate_scenarios(
    project: Project, out: Console, agents: Sequence[str], version: str, current: Collection[str]
) -> int:
    """Print one line per agent and scenario, and return the exit code.

    `current` are the tasks of this run's suites. Sessions of an earlier text of one of their scenarios count too, and
    the lines name them.

    It is 1 if a scenario or a gate failed, else 2 if one is unknown or was lost to the harness, else 0.
    """
    rows = gate_rows(project, version, agents)
    lines = list(scenario_results(project, rows, agents, version, current))
    scenario_table = FittingTable(title=f"Scenarios · methodology {version}")
    for head in ("agent", "scenario", "result", "why"):
        scenario_table.add_column(head)
    for line in lines:
        scenario_table.add_row(*line)
    out.print(scenario_table)
    others = rows.filter(pl.col("result") != "passed")
    for row in others.iter_rows(named=True):
        text = f"gate {row['gate']} {row['result']} for {row['agent_id']}: {row['evidence']}"
        out.print(one_line(text), markup=False, soft_wrap=True)
    results = {result for _, _, result, _ in lines}
    if "failed" in results:
        return 1
    code = exit_code(rows)
    return 2 if code == 0 and results != {"passed"} else code


def scenario_results(
    project: Project, rows: pl.DataFrame, agents: Sequence[str], version: str, current: Collection[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield agent, scenario, result and reason of every scenario in the agents' admitted sessions.

    A scenario failed if the agent failed, or an assertion, an expected answer, a threshold or its severity did; else it is unknown if one is unknown,
    else `harness error` if all its conversations were lost to the harness, else passed.
    """
    names = {scenario_of(task) for task in current}
    for agent in agents:
        pair = pl.DataFrame({"agent_id": [agent], "methodology_version": [version]})
        admitted = project.store.read(table("transcripts"), pair).filter("is_admitted")
        outcomes = project.store.read(table("conversations"), pair.select("agent_id"))
        asserted = project.store.read(table("assertion_results"), pair)
        of_metric = pair.with_columns(metric=pl.lit(ANSWER_METRIC))
        answers = list(
            answer_findings(
                TrialTables(
                    *(admitted, outcomes, table("tool_correctness").empty()),
                    project.store.read(table("conversation_judgments"), of_metric),
                    project.store.read(table("turn_judgments"), of_metric),
                ),
                answer_threshold=project.settings.answer_threshold,
            )
        )
        columns = ["conversation_id", "outcome_class", "outcome_error", "metadata"]
        of = admitted.select("conversation_id", "session_id", "task_id", "slot").join(
            outcomes.select(columns), on="conversation_id"
        )
        of = of.filter(
            pl.col("metadata").str.contains('"benchmark"', literal=True) & pl.col("task_id").is_not_null()
        )
        gates = rows.filter(pl.col("agent_id") == agent, pl.col("gate").is_in(["threshold", "errors"]))
        for (task, slot), group in sorted(of.group_by("task_id", "slot"), key=lambda item: str(item[0])):
            name = scenario_of(str(task))
            reasons = list(_reasons(group, asserted, gates, {name, str(slot), str(task)}))
            ids = set(group["conversation_id"])
            of_answers = [(verdict, why and f"{cid}: {why}") for cid, verdict, why in answers if cid in ids]
            reasons += of_answers
            result = min((result for result, _ in reasons), key=_WORST.index, default="passed")
            why = next((reason for one, reason in reasons if one == result), "")
            is_required = of_answers or _is_required(group, asserted, gates, {name, str(slot), str(task)})
            if result == "passed" and not is_required:
                why = "the agent replied; the scenario has no assertion, threshold or severity"
            if task not in current and name in names:
                sessions = ", ".join(sorted(set(group["session_id"])))
                why = f"an earlier text of this scenario, which counts until its session is removed ({sessions}){why and ': '}{why}"
            yield agent, name, result, why


def _is_required(group: pl.DataFrame, asserted: pl.DataFrame, gates: pl.DataFrame, names: set[str]) -> bool:
    """Return whether an assertion or a gate decides about the conversations of a scenario."""
    ids = group["conversation_id"].implode()
    subjects = (str(subject).partition(" in ")[2] for subject in gates["subject"].drop_nulls())
    return asserted.filter(pl.col("conversation_id").is_in(ids)).height > 0 or not names.isdisjoint(subjects)


def _reasons(
    group: pl.DataFrame, asserted: pl.DataFrame, gates: pl.DataFrame, names: set[str]
) -> Iterator[tuple[str, str]]:
    lost = group.filter(pl.col("outcome_class") == "harness_error")
    if lost.height:
        yield ("harness error" if lost.height == group.height else "unknown"), str(lost["outcome_error"][0])
    for row in group.filter(pl.col("outcome_class").is_in(["agent_error", "failed"])).iter_rows(named=True):
        yield "failed", f"{row['conversation_id']}: {row['outcome_error'] or row['outcome_class']}"
    if group.filter(pl.col("outcome_class") == "unexplained_error").height:
        yield "unknown", "an error of unknown cause ended a conversation"
    ids = group["conversation_id"].implode()
    for row in asserted.filter(pl.col("conversation_id").is_in(ids)).iter_rows(named=True):
        if row["result"] != "passed":
            yield row["result"], f"{row['assertion'] or row['kind']}: {row['reason'] or ''}"
    for row in gates.iter_rows(named=True):
        subject = str(row["subject"] or "")
        if row["result"] != "passed" and subject.partition(" in ")[2] in names:
            yield row["result"], f"{subject}: {row['evidence']}"
