"""Check everything that a simulation needs before the first call, and plan its conversations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agent_eval.errors import ConfigurationError, JudgeError, NotFoundError
from agent_eval.formats.refusals import Refusal
from agent_eval.judge.llm.budget import Budget, Price
from agent_eval.judge.llm.client import Client, LiteLLMClient, imported, problem_of
from agent_eval.judge.llm.progress import Watch
from agent_eval.simulate.agents.endpoints import (
    Allowed,
    CommandEndpoint,
    HttpEndpoint,
    LitellmEndpoint,
    OpenAIEndpoint,
    PythonEndpoint,
    ScriptedEndpoint,
    agent_hash,
    endpoint_of,
    price_in_endpoint,
)
from agent_eval.simulate.agents.http import HttpAgent
from agent_eval.simulate.agents.litellm_model import LitellmAgent
from agent_eval.simulate.agents.local import CommandAgent, PythonAgent
from agent_eval.simulate.agents.replies import AgentUnderTest
from agent_eval.simulate.agents.scripted import ScriptedAgent
from agent_eval.simulate.conversations import AgentSetup
from agent_eval.simulate.mocks import functions_of
from agent_eval.simulate.runner import Benchmark, SimulationReport, SuiteRun, TestedAgent, planned, simulate
from agent_eval.simulate.scenarios import (
    BenchmarkScenario,
    ScenarioError,
    read_suites,
    unknown_suite,
)
from agent_eval.simulate.users import Simulator
from agent_eval.transcripts.models import Agent

_LOCAL = {"localhost", "127.0.0.1", "::1"}


def _unknown_price(agent: str) -> JudgeError:
    return JudgeError(
        f"The price of agent {agent!r} is not known, so a limit in dollars cannot be enforced. Set price_in and "
        "price_out (US dollars per million tokens, 0 if it is free) in its endpoint, or cap calls with --max-calls."
    )


@dataclass(frozen=True)
class SimulationSetup:
    """Hold what a project provides to simulations."""

    scenarios: Path
    sessions: Path
    agents: Mapping[str, Agent]
    agent_problems: Sequence[Refusal]  # invalid entries of agents.yaml
    versions: tuple[str, ...]  # methodology versions
    allowed: Allowed
    budget: Budget
    is_capped_in_dollars: bool
    price_of: Callable[[str], Price | None]
    user: Client | None  # the model that plays users
    concurrency: int


@dataclass(frozen=True)
class Simulation:
    """Hold what is going to be run, after all checks."""

    setup: SimulationSetup
    benchmarks: list[Benchmark]
    simulator: Simulator | None

    @property
    def n_jobs(self) -> int:
        """Return the number of conversations that are not finished."""
        return sum(len(benchmark.jobs) for benchmark in self.benchmarks)

    def run(self, watch: Watch | None = None, concurrency: int | None = None) -> SimulationReport:
        """Hold the conversations and write the sessions."""
        is_user_of_litellm = self.simulator is not None and isinstance(self.simulator.client, LiteLLMClient)
        if is_user_of_litellm or any(isinstance(b.tested.agent, LitellmAgent) for b in self.benchmarks):
            imported()  # takes seconds, which would stop all conversations and count as latency of the agents
        return simulate(
            self.benchmarks,
            scenarios_folder=self.setup.scenarios,
            simulator=self.simulator,
            resolve=self.setup.allowed.function,
            budget=self.setup.budget,
            concurrency=concurrency or self.setup.concurrency,
            watch=watch,
        )


def prepared(
    setup: SimulationSetup,
    agents: Sequence[str],
    suites: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    *,
    n_sessions: int = 1,
    trials: int | None = None,
    seed: int = 0,
) -> Simulation:
    """Check agents, scenarios, models and permissions, and plan the conversations. Nothing is run or written.

    Raises:
        NotFoundError: If an agent has no entry in agents.yaml, or if a suite or scenario does not exist.
        ScenarioError: If a scenario of a requested suite is invalid.
        EndpointError: If an endpoint is invalid or uses what agent_eval.toml does not allow.
        ConfigurationError: If a simulated user has no model.
        JudgeError: If a cap in dollars cannot be enforced.
    """
    for name in agents:
        if name not in setup.agents:
            invalid = "".join(f" {p.file}:{p.line}: {p.reason}." for p in setup.agent_problems[:3])
            raise NotFoundError(
                f"Agent {name!r} has no valid entry in agents.yaml. Agents there: {', '.join(sorted(setup.agents)) or 'none'}. Add "
                f"an entry with an endpoint.{invalid}"
            )
    tested = [_tested(setup, setup.agents[name]) for name in dict.fromkeys(agents)]
    loaded = read_suites(setup.scenarios, suites)
    if not loaded:
        raise NotFoundError("The project has no scenarios. Add files data/scenarios/SUITE/ID.scenario.yaml.")
    if problems := [problem for suite in loaded for problem in suite.problems]:
        raise ScenarioError(problems)
    scenario_ids = sorted({scenario.id for suite in loaded for scenario in suite.scenarios})
    for name in scenarios:
        if name not in scenario_ids:
            raise unknown_suite("Scenario", name, scenario_ids)
    suites_with_scenarios = [
        (suite, tuple(s for s in suite.scenarios if not scenarios or s.id in scenarios)) for suite in loaded
    ]
    runs = [
        SuiteRun(suite, some, n_sessions, trials, seed, setup.versions)
        for suite, some in suites_with_scenarios
        if some
    ]
    of_runs = [scenario for run in runs for scenario in run.scenarios]
    for function in (f for s in of_runs for tool in s.tools for f in functions_of(tool.mock)):
        setup.allowed.function(function)
    simulated = next((scenario for scenario in of_runs if scenario.user is not None), None)
    simulator = None if simulated is None else _simulator(setup, simulated)
    return Simulation(setup, planned(setup.sessions, tested, runs, simulator), simulator)


def _simulator(setup: SimulationSetup, scenario: BenchmarkScenario) -> Simulator:
    if setup.user is None:
        raise ConfigurationError(
            f"Scenario {scenario.id!r} has a simulated user, and no model plays it. Pass --user MODEL, set user_model in "
            "agent_eval.toml, or replace `user` with scripted `turns`."
        )
    price = setup.price_of(setup.user.model)
    if problem := problem_of(setup.user.model, is_listed=price is not None):
        raise JudgeError(problem.replace("Judge model", "User model"))
    if setup.is_capped_in_dollars and price is None:
        raise _unknown_price(setup.user.model)
    return Simulator(setup.user, setup.budget)


def _tested(setup: SimulationSetup, agent: Agent) -> TestedAgent:
    endpoint, allowed = endpoint_of(agent), setup.allowed
    price = _price(setup, endpoint)
    if setup.is_capped_in_dollars and price is None:
        raise _unknown_price(agent.agent_id)
    under_test: AgentUnderTest
    facts = {"endpoint": endpoint.kind}
    match endpoint:
        case OpenAIEndpoint() | HttpEndpoint():
            under_test = HttpAgent(endpoint, allowed, price)
            _ = under_test.headers  # checks the variables before anything is run
            facts |= {"url": endpoint.url}
        case LitellmEndpoint():
            if problem := problem_of(endpoint.model, is_listed=price is not None):
                raise JudgeError(problem.replace("Judge model", f"Agent {agent.agent_id!r}: model"))
            client = LiteLLMClient(
                endpoint.model, endpoint.temperature, endpoint.timeout_s, price, endpoint.max_reply_mb
            )
            under_test = LitellmAgent(endpoint, client)
        case PythonEndpoint():
            under_test = PythonAgent(endpoint, allowed.function(endpoint.function), price)
            facts |= {"function": endpoint.function}
        case ScriptedEndpoint():
            under_test = ScriptedAgent(endpoint.suite, endpoint.fault)
            facts |= {"model": "a script, not a model"}
        case _:
            assert isinstance(endpoint, CommandEndpoint)
            under_test = CommandAgent(endpoint, tuple(allowed.argv(endpoint.command)), allowed, price)
            _ = under_test.environment()
            facts |= {"command": endpoint.command}
    if isinstance(endpoint, OpenAIEndpoint | LitellmEndpoint):
        facts |= {"model": endpoint.model}
    prompt = getattr(endpoint, "system_prompt", None)
    of_agent = AgentSetup(agent.agent_id, f"agent {agent.agent_id}", prompt, endpoint.tools, setup.budget)
    return TestedAgent(of_agent, under_test, agent_hash(endpoint), facts)


def _price(
    setup: SimulationSetup,
    endpoint: OpenAIEndpoint
    | HttpEndpoint
    | LitellmEndpoint
    | PythonEndpoint
    | CommandEndpoint
    | ScriptedEndpoint,
) -> Price | None:
    """Return the price that the endpoint states, else 0 for a script or a server on this machine, else litellm's."""
    if (stated := price_in_endpoint(endpoint)) is not None:
        return stated
    if isinstance(endpoint, ScriptedEndpoint):
        return Price(0.0, 0.0)
    if isinstance(endpoint, OpenAIEndpoint | HttpEndpoint) and urlsplit(endpoint.url).hostname in _LOCAL:
        return Price(0.0, 0.0)
    return setup.price_of(endpoint.model) if isinstance(endpoint, LitellmEndpoint) else None
