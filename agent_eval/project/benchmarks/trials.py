"""Hold one conversation of a scenario and decide at once whether it passed, for test suites. No session is written.

Assertions, rules and, if a judge is used, its answers decide, with the thresholds of the scenario and the project.
"""

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import polars as pl

from agent_eval.errors import JudgeError, NotFoundError, RunError
from agent_eval.formats.files import entries
from agent_eval.gates.names import is_score
from agent_eval.gates.scenarios import scenarios_of, threshold_findings_of_scenarios
from agent_eval.gates.thresholds import means
from agent_eval.judge.engine import Judged, judge_transcripts
from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.client import LiteLLMClient
from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.metrics.base import NO_FAILURE, SEVERITIES
from agent_eval.project.benchmarks.expected_answers import answer_findings
from agent_eval.project.gates import gates_of_scenario
from agent_eval.project.project import Project
from agent_eval.project.quality import scales
from agent_eval.scores.reliability.trials import TrialTables
from agent_eval.scores.tools.assertions import assertion_results
from agent_eval.settings.gate_spec import Rules, ScenarioGates
from agent_eval.simulate.agents.endpoints import Allowed
from agent_eval.simulate.preparation import SimulationSetup, prepared
from agent_eval.simulate.scenarios import (
    SUFFIX,
    SUITE,
    BenchmarkScenario,
    ScenarioError,
    read_suites,
    unknown_suite,
)
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentVersion
from agent_eval.tables.frames import Transcripts
from agent_eval.transcripts.frames import ConversationRows
from agent_eval.transcripts.models import Agent, Conversation

TrialOutcome = Literal["failed", "harness error", "unknown", "passed"]
_ORDER: tuple[TrialOutcome, ...] = ("failed", "harness error", "unknown", "passed")
_CALLED = "test:agent"
_IDS = (
    "agent_id",
    "conversation_id",
    "session_id",
    "n_turns",
    "n_user_messages",
    "n_tool_calls",
    "content_hash",
)


@dataclass(frozen=True)
class Trial:
    """Hold a conversation and what was found in it; `findings` are pairs of an outcome and a sentence."""

    conversation: Conversation
    findings: tuple[tuple[TrialOutcome, str], ...]

    @property
    def outcome(self) -> TrialOutcome:
        """Return the worst outcome of the findings; passed if there is none."""
        return min((outcome for outcome, _ in self.findings), key=_ORDER.index, default="passed")

    @property
    def passed(self) -> bool:
        """Return whether everything that was checked holds, and nothing is unknown."""
        return self.outcome == "passed"

    def report(self) -> str:
        """Return what was found, and the messages, as text."""
        lines = [f"{outcome}: {sentence}" for outcome, sentence in self.findings]
        for message in self.conversation.messages:
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            lines += [f"  {message.role}: {part}" for part in (message.content, *calls) if part]
        return "\n".join(lines)


@dataclass(frozen=True)
class _WithFunction(Allowed):
    """Also allow the function that a test passes as its agent."""

    agent: Callable[..., Any] | None = None

    def function(self, name: str) -> Callable[..., Any]:
        return self.agent if name == _CALLED and self.agent is not None else super().function(name)


def scenario_file(project: Project, name: str) -> Path:
    """Return the file of a scenario: a path, 'shop/refund', or 'refund' if only one suite of the project has it.

    Raises:
        NotFoundError: If it does not exist, or several suites have it.
    """
    if name.endswith(SUFFIX):
        files = [path for path in (Path(name), project.home.root / name) if path.is_file()][:1]
    else:
        suite, _, scenario = name.rpartition("/")
        present = (folder / f"{scenario}{SUFFIX}" for folder in entries(project.home.scenarios))
        files = [file for file in present if suite in ("", file.parent.name) and file.is_file()]
    if len(files) != 1:
        scenario_names = [f"{s.name}/{one.id}" for s in project.suites for one in s.scenarios]
        raise unknown_suite(
            "Scenario", name, scenario_names, "is in several suites" if files else "does not exist"
        )
    return files[0]


def n_trials(file: Path) -> int:
    """Return the number of trials that a scenario file states.

    Raises:
        ScenarioError: If the file, or suite.yaml beside it, is invalid.
    """
    with _alone(file) as folder:
        return _checked(folder).trials


def hold_trial(
    project: Project,
    file: Path,
    agent: str | Callable[..., Any],
    *,
    trial: int = 0,
    judges: Sequence[str] = (),
) -> Trial:
    """Hold one conversation of a scenario file with an agent, and return what was found in it.

    Args:
        project: The project: its settings, agents and caps. Nothing is written to its sessions.
        file: The scenario; suite.yaml beside it is read too.
        agent: The id of an agent in agents.yaml, or a function as for the endpoint `python`.
        trial: Number of the trial; each has a seed of its own.
        judges: litellm names of judge models. Without one, only assertions and rules decide.

    Raises:
        ScenarioError: If the scenario is invalid.
        NotFoundError: If agents.yaml has no such agent.
        RunError: If the agent cannot be reached, or a cap is reached.
        JudgeError: If a judge model cannot be used.
    """
    project = project.with_settings(judge_model=",".join(judges) or None)
    if judges and (problems := project.judges.problems()):
        raise JudgeError(" ".join(problems))
    with _alone(file) as folder:
        scenario = _checked(folder)
        setup = _setup(project, folder, agent)
        [agent_id] = [agent] if isinstance(agent, str) else setup.agents
        report = prepared(setup, [agent_id], trials=1, seed=trial).run()
        lines = [path.read_text(encoding="utf-8") for path in folder.glob("sessions/*/[!.]*/*.jsonl")]
        if not lines:
            raise RunError("; ".join(report.problems) or "No conversation was held.")
        conversation = Conversation.model_validate_json(lines[0])
    panel = _panel(project, setup) if judges else None
    return Trial(conversation, tuple(_findings(project, conversation, scenario, agent_id, panel)))


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[Path]:
    """Yield a temporary folder with this scenario alone, so that no other process is locked out."""
    if not file.is_file():
        raise NotFoundError(f"{file} does not exist.")
    with tempfile.TemporaryDirectory(prefix="agent-eval-") as name:
        suite = Path(name, "scenarios", file.absolute().parent.name)
        suite.mkdir(parents=True)
        Path(name, "sessions").mkdir()
        for source in (file, file.parent / SUITE):
            if source.is_file():
                shutil.copyfile(source, suite / source.name)
        yield Path(name)


def _checked(folder: Path) -> BenchmarkScenario:
    [suite] = read_suites(folder / "scenarios")
    if suite.problems:
        raise ScenarioError(suite.problems)
    return suite.scenarios[0]


def _setup(project: Project, folder: Path, agent: str | Callable[..., Any]) -> SimulationSetup:
    s = project.settings
    is_project = project.home.data.exists() or (project.home.root / "agent_eval.toml").exists()
    budget = (
        None if is_project else Budget(s.budget.max_calls, s.budget.max_cost_usd)
    )  # outside of a project, nothing is written
    setup = project.simulation_setup(folder / "sessions", budget)
    setup = replace(setup, scenarios=folder / "scenarios")
    if isinstance(agent, str):
        return setup
    own = Agent(
        agent_id="agent", endpoint={"kind": "python", "function": _CALLED, "price_in": 0, "price_out": 0}
    )
    allowed = _WithFunction(setup.allowed.modules, setup.allowed.commands, setup.allowed.variables, agent)
    return replace(setup, agents={own.agent_id: own}, allowed=allowed)


def _panel(project: Project, setup: SimulationSetup) -> Panel:
    s = project.settings

    @contextlib.contextmanager
    def writing() -> Iterator[Callable[[Sequence[Mapping[str, object]]], None]]:
        yield lambda _: None

    runtime = JudgeRuntime(
        client=lambda model: LiteLLMClient(
            model,
            s.judge_temperature,
            s.judge_timeout_s,
            project.judges.price_of(model),
            s.judge_max_reply_mb,
            s.judge_direct,
        ),
        writing=writing,
        secret=secrets.token_bytes(32),
        budget=setup.budget,
        concurrency=s.judge_concurrency,
        max_tokens=s.judge_max_tokens,
    )
    assert project.judges.own is not None
    return Panel(project.judges.own, runtime, project.judges.view_limits)


def _findings(
    project: Project,
    conversation: Conversation,
    scenario: BenchmarkScenario,
    agent_id: str,
    panel: Panel | None,
) -> Iterator[tuple[TrialOutcome, str]]:
    outcome = conversation.outcome
    match outcome.classified:
        case "harness_error":
            yield "harness error", outcome.error or "the harness failed"
        case "agent_error" | "failed":
            yield "failed", outcome.error or outcome.classified
        case "unexplained_error":
            yield "unknown", outcome.error or "an error of unknown cause"
        case _:
            pass
    version = project.registry.current.version
    rows = ConversationRows()
    rows.add(agent_id, "test", None, conversation)
    conversation_rows, turns = rows.conversations.frame(), rows.turns.frame()
    conversations = table("conversations").conform(conversation_rows)
    transcripts = table("transcripts").frame(
        {name: row[name] for name in _IDS}
        | {"task_id": conversation.task_id, "methodology_version": version, "benchmark_id": "test", "tests": [], "is_admitted": True}
        for row in conversation_rows.iter_rows(named=True)
    )  # fmt: skip
    calls = table("tool_calls").conform(rows.tool_calls.frame())
    for row in assertion_results(transcripts, conversations, calls, turns).iter_rows(named=True):
        if row["result"] != "passed":
            yield (
                row["result"],
                f"assertion {row['assertion'] or row['kind']}: {row['reason'] or 'does not hold'}",
            )
    cache = table("judge_cache").empty()
    tables = judge_transcripts(
        *(
            transcripts,
            conversations,
            table("turns").conform(turns),
            table("human_ratings").empty(),
            lambda _: cache,
        ),
        metrics=project.metrics,
        panel=panel,
        names=project.blinded_terms([agent_id]),
    )
    of_answers = TrialTables(
        *(transcripts, conversations, table("tool_correctness").empty()),
        table("conversation_judgments").conform(tables.conversation_judgments),
        table("turn_judgments").conform(tables.turn_judgments),
    )
    for _, result, sentence in answer_findings(
        of_answers, answer_threshold=project.settings.answer_threshold
    ):
        if result != "passed":
            yield result, sentence
    pair = AgentVersion.of(agent_id=agent_id, methodology_version=version)
    [name] = scenarios_of(transcripts)["scenario"]
    spec = project.settings.gates
    own = spec.scenarios.get(name) or gates_of_scenario(scenario)
    rules = replace(spec.rules(agent_id, version), scenarios={name: own})
    yield from _silence(conversation, rules)
    yield from _thresholds(project, pair, rules, transcripts, tables)
    yield from _errors(project, rules, own, tables.turn_judgments, is_judged=panel is not None)


def _silence(conversation: Conversation, rules: Rules) -> Iterator[tuple[TrialOutcome, str]]:
    silent = [turn.turn_index for turn in conversation.turns() if turn.reply == "no reply"]
    if (
        silent
        and rules.silent_turns is not None
        and Fraction(len(silent), conversation.n_turns) > rules.silent_turns
    ):
        yield "failed", f"no reply in turns {', '.join(map(str, silent))}"


def _thresholds(
    project: Project, pair: AgentVersion, rules: Rules, transcripts: Transcripts, tables: Judged
) -> Iterator[tuple[TrialOutcome, str]]:
    """Compare the thresholds of the scenario and those of the project for every scenario."""
    [(name, own)] = rules.scenarios.items()
    limits = {metric: limit for metric, limit in rules.thresholds.items() if not is_score(metric)}
    metric_names = tuple({**limits, **own.thresholds}) if own.metrics is None else own.metrics
    gates = own.model_copy(update={"metrics": metric_names})
    if not gates.metrics:
        return
    rules = replace(rules, thresholds=limits, scenarios={name: gates})
    scenario_means = means(
        tables.turn_judgments, tables.conversation_judgments, transcripts, {*limits, *own.thresholds}, [name]
    ).get(pair, {})
    metrics = project.metrics.names
    for finding in threshold_findings_of_scenarios(
        rules, scenario_means, scenarios_of(transcripts), metrics=metrics, scales=scales(project)
    ):
        if finding.result != "passed":
            yield finding.result, f"threshold {finding.subject}: {finding.evidence}"


def _errors(
    project: Project, rules: Rules, own: ScenarioGates, turns: pl.DataFrame, *, is_judged: bool
) -> Iterator[tuple[TrialOutcome, str]]:
    """Find failures that are at least as severe as the scenario, or else the project, allows."""
    level = own.fail_on_error_severity or rules.fail_on_error_severity
    if level == "none":
        return
    severities = project.metrics.severities
    labels = turns.filter("is_effective", pl.col("label").is_not_null(), pl.col("label") != NO_FAILURE)
    n_failed = 0
    for row in labels.iter_rows(named=True):
        severity = severities.get(row["label"])
        if severity is not None and SEVERITIES.index(severity) >= SEVERITIES.index(level):
            n_failed += 1
            why = row["evidence"] or row["rationale"] or ""
            yield "failed", f"{row['label']} ({severity}) in turn {row['turn_index']}: {why}"
    if own.fail_on_error_severity is not None and not is_judged and not n_failed:
        yield "unknown", f"fail_on_error_severity {level}: rules found nothing, and no judge was asked"
