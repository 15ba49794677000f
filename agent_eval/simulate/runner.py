"""Run suites against agents: plan the conversations, hold them concurrently, and store each as soon as it is finished."""

import asyncio
import datetime
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent_eval.errors import RunError
from agent_eval.formats.hashing import digest
from agent_eval.formats.plain_text import count_of
from agent_eval.judge.llm.budget import Budget
from agent_eval.judge.llm.progress import Progress, Reporter, Watch
from agent_eval.judge.run_sync import first_of, run_sync
from agent_eval.simulate.agents.replies import AgentConversation, AgentUnderTest
from agent_eval.simulate.conversations import AgentSetup, LiveConversation
from agent_eval.simulate.mocks import Resolve
from agent_eval.simulate.scenarios import BenchmarkScenario, LoadedSuite
from agent_eval.simulate.session_folders import SessionFolder, benchmark_of, disclose, u3_scope
from agent_eval.simulate.users import NoBudgetError, ScriptedUser, Simulator, SlipCount, User
from agent_eval.transcripts.models import Conversation, Session

MOST_REPEATS = 2  # times that a conversation is held again after a failure of the harness
EVERY_S = 5.0  # seconds between two lines of progress


@dataclass(frozen=True)
class TestedAgent:
    """Hold an agent with its setup and the hash of its configuration."""

    setup: AgentSetup
    agent: AgentUnderTest
    hash: str
    facts: Mapping[str, str]  # names for the metadata of its conversations, such as its model and address


@dataclass(frozen=True)
class SuiteRun:
    """Define what is run of a suite."""

    suite: LoadedSuite
    scenarios: tuple[BenchmarkScenario, ...]
    n_sessions: int
    trials: int | None  # None: those of each scenario
    seed: int
    versions: tuple[str, ...]  # methodology versions for which sessions with slots count

    @property
    def is_whole(self) -> bool:
        """Return whether all scenarios of the suite are run."""
        return len(self.scenarios) == len(self.suite.scenarios)

    def trials_of(self, scenario: BenchmarkScenario) -> int:
        """Return the number of trials of a scenario in each session."""
        return scenario.trials if self.trials is None else self.trials

    def key(self, agent_hash: str, simulator_hash: str) -> str:
        """Return the key of a run (8 hex digits): equal runs are continued, different ones are kept apart."""
        trials = [(s.id, self.trials_of(s)) for s in self.scenarios]
        return digest("run", self.suite.hash, trials, self.seed, agent_hash, simulator_hash)[:8]


@dataclass(frozen=True)
class Job:
    """Define one conversation that is to be held."""

    tested: TestedAgent
    run: SuiteRun
    scenario: BenchmarkScenario
    conversation_id: str
    trial: int
    seed: int  # depends on scenario, session and trial, and not on the agent
    folder: SessionFolder


@dataclass
class Benchmark:
    """Hold the sessions of one agent and suite."""

    tested: TestedAgent
    run: SuiteRun
    benchmark_id: str
    folders: list[SessionFolder] = field(default_factory=list[SessionFolder])
    jobs: list[Job] = field(default_factory=list[Job])


@dataclass
class SimulationReport:
    """Hold the result of `simulate`."""

    sessions: list[str] = field(default_factory=list[str])  # sessions that are complete, new or earlier
    n_held: int = 0  # conversations held and stored in this run
    n_kept: int = 0  # conversations of earlier runs
    n_left: int = 0  # conversations not held, because of a cap or an agent that cannot be reached
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    problems: list[str] = field(default_factory=list[str])
    slips: SlipCount = field(default_factory=SlipCount)

    @property
    def exit_code(self) -> int:
        """Return 0 if all conversations are finished, else 2 if none was held or kept, else 1."""
        if not self.n_left and not self.outcomes.get("harness_error"):
            return 0
        return 1 if self.n_held or self.n_kept else 2


@dataclass
class ConversationProgress(Progress):
    """Track conversations in place of calls."""

    classes: dict[str, int] = field(default_factory=dict[str, int])

    def line(self) -> str:
        """Return a line such as '12 of 64 conversations, 2 agent_error, $0.01 so far, 40 s left'."""
        parts = [f"{self.n_done:,} of {count_of(self.n_calls, 'conversation')}"]
        parts += [f"{n} {name}" for name, n in sorted(self.classes.items()) if name != "unknown"]
        parts.append("cost unknown" if self.cost_usd is None else f"${self.cost_usd:.4f} so far")
        if self.n_left and self.seconds_left is not None:
            parts.append(f"{self.seconds_left:.0f} s left")
        return ", ".join(parts)


def planned(
    sessions_folder: Path,
    tested: Sequence[TestedAgent],
    runs: Sequence[SuiteRun],
    simulator: Simulator | None,
) -> list[Benchmark]:
    """Return the sessions of each agent and suite with the conversations that are not finished yet."""
    now = datetime.datetime.now(datetime.UTC)
    benchmarks: list[Benchmark] = []
    for run in runs:
        is_simulated = any(s.user is not None for s in run.scenarios)
        simulator_hash = simulator.hash if simulator is not None and is_simulated else "scripted"
        for agent in tested:
            home = sessions_folder / agent.setup.agent_id
            key = run.key(agent.hash, simulator_hash)
            benchmark = Benchmark(agent, run, benchmark_of(home, run.suite.name, key, now))
            for number in range(1, run.n_sessions + 1):
                _add_session(benchmark, home, number)
            benchmarks.append(benchmark)
    return benchmarks


def _add_session(benchmark: Benchmark, home: Path, number: int) -> None:
    run, session_id = benchmark.run, f"{benchmark.benchmark_id}-{number}"
    trials_by_id: dict[str, tuple[BenchmarkScenario, int]] = {}
    for scenario in run.scenarios:
        n_trials = run.trials_of(scenario)
        for trial in range(n_trials):
            suffix = f"-{trial}" if n_trials > 1 else ""
            trials_by_id[f"{session_id}-{scenario.id}{suffix}"] = (scenario, (number - 1) * n_trials + trial)
    folder = SessionFolder(home / session_id, list(trials_by_id))
    folder.load()
    benchmark.folders.append(folder)
    for name in folder.missing:
        scenario, trial = trials_by_id[name]
        seed = int(digest("seed", run.seed, scenario.seed, scenario.hash, trial)[:7], 16)
        benchmark.jobs.append(Job(benchmark.tested, run, scenario, name, trial, seed, folder))


def simulate(
    benchmarks: Sequence[Benchmark],
    *,
    scenarios_folder: Path,
    simulator: Simulator | None,
    resolve: Resolve,
    budget: Budget,
    concurrency: int,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> SimulationReport:
    """Hold all planned conversations, and put each session in place once it is complete.

    Raises:
        RunError: If another process runs one of the suites.
    """
    names = sorted({b.run.suite.name for b in benchmarks})
    with _exclusive([scenarios_folder / name for name in names]):
        runner = _Runner(benchmarks, simulator, resolve, budget, concurrency, watch, say)
        return run_sync(runner.run())


@contextmanager
def _exclusive(folders: Sequence[Path]) -> Iterator[None]:
    handles: list[int] = []
    try:
        for folder in folders:
            handles.append(os.open(folder, os.O_RDONLY))
            try:
                fcntl.flock(handles[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(
                    f"Suite {folder.name!r} is being run by another process. Wait until it has finished."
                ) from None
        yield
    finally:
        for handle in handles:
            os.close(handle)


class _Runner:
    def __init__(
        self,
        benchmarks: Sequence[Benchmark],
        simulator: Simulator | None,
        resolve: Resolve,
        budget: Budget,
        concurrency: int,
        watch: Watch | None,
        say: Callable[[str], None],
    ) -> None:
        self.benchmarks, self.simulator, self.resolve = benchmarks, simulator, resolve
        self.budget, self.concurrency, self.say = budget, concurrency, say
        self.report = SimulationReport()
        self.why_stopped: str | None = None
        self.unusable: dict[str, str] = {}  # agents that cannot be reached → reason
        self.answered: set[str] = set()  # agents that replied at least once in this run
        self.n_in_progress = 0
        self.most_calls = 0  # calls that a conversation needs, at most: expected at first, then as seen
        self.has_ended = asyncio.Condition()
        n_jobs = sum(len(b.jobs) for b in benchmarks)
        self.progress = ConversationProgress("simulate", n_jobs)
        self.reporter = Reporter(self.progress, watch if n_jobs else None, EVERY_S)

    async def run(self) -> SimulationReport:
        queue = _in_turn([benchmark.jobs for benchmark in self.benchmarks])
        for benchmark in self.benchmarks:
            self.report.n_kept += sum(len(f.finished) for f in benchmark.folders)
            self._place(benchmark)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.concurrency, self.progress.n_calls)):
                    group.create_task(self._work(queue))
        except (
            ExceptionGroup
        ) as failed:  # such as a full disk; the first one cancelled the other conversations
            raise first_of(failed) from None
        for benchmark in self.benchmarks:
            self.report.sessions += [f.folder.name for f in benchmark.folders if f.is_in_place]
            self.report.n_left += sum(len(f.missing) for f in benchmark.folders)
        if self.why_stopped:
            self.report.problems.append(self.why_stopped)
        self.report.problems += [f"{agent}: {why}" for agent, why in sorted(self.unusable.items())]
        if self.simulator is not None:
            self.report.slips = self.simulator.slips
        return self.report

    async def _work(self, queue: Iterator[Job]) -> None:
        for job in queue:
            agent_id = job.tested.setup.agent_id
            if self.why_stopped is None and agent_id not in self.unusable:
                async with self._room_for(job):
                    conversation = await self._held(job) if self.why_stopped is None else None
                if conversation is not None:
                    await job.folder.add(conversation)
                    self._count(conversation)
                    if not job.folder.missing:
                        self._place(next(b for b in self.benchmarks if job.folder in b.folders))
                    continue
            self.reporter.call_ended("not_sent", 0, self.budget.known_cost_usd)

    @asynccontextmanager
    async def _room_for(self, job: Job) -> AsyncIterator[None]:
        """Wait until the cap on calls lets the conversations in progress and this one end; one is always held.

        Without this, a cap below the calls of all concurrent conversations would finish none of them in any run.
        """
        self.most_calls = max(self.most_calls, _expected_calls(job.scenario))
        async with self.has_ended:
            await self.has_ended.wait_for(self._has_room)
            self.n_in_progress += 1
        try:
            yield
        finally:
            async with self.has_ended:
                self.n_in_progress -= 1
                self.has_ended.notify_all()

    def _has_room(self) -> bool:
        cap = self.budget.max_calls
        if cap is None or not self.n_in_progress:
            return True
        return (self.n_in_progress + 1) * self.most_calls <= cap - self.budget.n_calls

    async def _held(self, job: Job) -> Conversation | None:
        """Hold a conversation, again after a failure of the harness; None if it cannot be held now."""
        agent_id = job.tested.setup.agent_id
        for attempt in range(1 + MOST_REPEATS):
            async with self._started(job, attempt) as live:
                try:
                    await live.run()
                except NoBudgetError as error:
                    self.why_stopped = str(error)
                    return None
            self.most_calls = max(self.most_calls, live.n_replies)
            if live.n_replies:
                self.answered.add(agent_id)
            if live.outcome.classified != "harness_error":
                break
            if not live.n_replies and agent_id not in self.answered:
                self.unusable[agent_id] = f"the agent gave no reply at all: {live.outcome.error}"
                return None
        return live.conversation(
            job.conversation_id, job.run.suite.task_id(job.scenario), job.trial, self._facts(job)
        )

    @asynccontextmanager
    async def _started(self, job: Job, attempt: int) -> AsyncIterator[LiveConversation]:
        opaque = digest("conversation", job.conversation_id, attempt, os.urandom(8).hex())[:20]
        mocks = job.scenario.mocks(job.conversation_id, job.seed, self.resolve)
        record = job.folder.record_of(job.conversation_id, is_repeated=attempt > 0)
        user: User = ScriptedUser(job.scenario)
        if job.scenario.user is not None:
            assert self.simulator is not None
            user = self.simulator.user(job.scenario, record)
        agent: AgentConversation = job.tested.agent.start(opaque)
        try:
            yield LiveConversation(
                job.tested.setup, agent, user, mocks, job.scenario, opaque, job.seed, record
            )
        finally:
            await agent.close()

    def _facts(self, job: Job) -> dict[str, str | int | None]:
        suite = job.run.suite
        is_simulated = job.scenario.user is not None and self.simulator is not None
        return {
            "suite": suite.name,
            "suite_version": suite.suite.version,
            "suite_hash": suite.hash,
            "suite_is_public": suite.suite.public,
            "scenario": job.scenario.id,
            "scenario_hash": job.scenario.hash,
            "agent_hash": job.tested.hash,
            **job.tested.facts,
            "simulator_hash": self.simulator.hash if is_simulated and self.simulator else None,
            "seed": job.seed,
        }

    def _count(self, conversation: Conversation) -> None:
        outcome = conversation.outcome.classified
        self.report.n_held += 1
        self.report.outcomes[outcome] = self.report.outcomes.get(outcome, 0) + 1
        self.progress.classes = self.report.outcomes
        self.reporter.call_ended("done", 0, self.budget.known_cost_usd)

    def _place(self, benchmark: Benchmark) -> None:
        """Put the finished sessions of a benchmark in place, and update its disclosures."""
        run = benchmark.run
        has_slots = any(s.slot for s in run.scenarios)
        for number, folder in enumerate(benchmark.folders, start=1):
            if folder.missing or folder.is_in_place:
                continue
            finished = folder.finished.values()
            versions = run.suite.suite.methodology_versions or run.versions
            counts = has_slots and run.is_whole and versions != "any"
            folder.complete(
                Session.model_validate(
                    {
                        "methodology_versions": versions if counts else "any",
                        "benchmark_id": benchmark.benchmark_id,
                        "date": datetime.datetime.now(datetime.UTC).date(),
                        "session_run": number,
                        "evaluator": "agent-eval simulate",
                        "u3_scope": u3_scope(finished) if counts else None,
                        "links": run.suite.suite.links if counts else {},
                        "task_set": run.suite.name,
                    }
                )
            )
            self.say(f"session {benchmark.tested.setup.agent_id}/{folder.folder.name}")
        disclose(benchmark.folders)


def _expected_calls(scenario: BenchmarkScenario) -> int:
    """Return the calls of a conversation in which each turn has a reply, a round of tools and a simulated message."""
    per_turn = 1 + bool(scenario.tools) + (scenario.user is not None)
    return per_turn * (1 + len(scenario.turns) if scenario.user is None else scenario.max_turns)


def _in_turn(lists: Sequence[Sequence[Job]]) -> Iterator[Job]:
    """Yield the jobs of all benchmarks, one of each in turn, so that agents are run under the same conditions."""
    for at in range(max(map(len, lists), default=0)):
        yield from (jobs[at] for jobs in lists if at < len(jobs))
