"""Test agents with scenarios in a test suite of your own: the pytest plugin, and `simulate` for tests in Python.

With the plugin, files *.scenario.yaml are tests: `pytest --agent my-agent data/scenarios`. pytest loads this module by
an entry point; it imports the rest of agent_eval only when a scenario is collected or `simulate` is called.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agent_eval.project.benchmarks.trials import Trial

__all__ = ["simulate"]
_SUFFIX = ".scenario.yaml"
_NO_AGENT = "no agent: pass --agent ID, with an agent that has an endpoint in agents.yaml"


def simulate(
    scenario: str | Path | Mapping[str, Any],
    agent: str | Callable[..., Any],
    *,
    trial: int = 0,
    judge: str | Sequence[str] = (),
) -> "Trial":
    """Hold one conversation with an agent, and return it with what was found. No session is written.

    Args:
        scenario: A scenario of the project, such as 'shop/refund', or 'refund' if only one suite has it; the path of a scenario
            file, also relative to the project; or its keys as a dict.
        agent: The id of an agent in agents.yaml; or a function that receives a dict with `messages`, `new`, `tools`, `seed` and
            `conversation_id`, and returns a text or a message with `content` and `tool_calls`.
        trial: Number of the trial; each has a seed of its own.
        judge: litellm name of a judge model, or several. Without one, only assertions and rules decide.

    Returns:
        A `Trial` with `passed`, `outcome` (passed, failed, unknown or harness error), `findings`, `conversation` and `report()`.

    Raises:
        ScenarioError: If the scenario is invalid.
        NotFoundError: If the project has no such scenario, or several suites have it,
            or if agents.yaml has no such agent.
        RunError: If the agent cannot be reached, or a cap is reached.

    Example:
        >>> from agent_eval.testing import simulate
        >>> asked = {"opening": "Where is order 1042?", "assertions": [{"required_text": ["Monday"]}]}
        >>> simulate(asked, lambda request: "It arrives on Monday.").passed
        True
    """
    import yaml

    from agent_eval.formats.files import is_slug
    from agent_eval.project import Project
    from agent_eval.project.benchmarks.trials import hold_trial, scenario_file

    project = Project.open_or_packaged()
    judges = [judge] if isinstance(judge, str) else list(judge)
    if isinstance(scenario, Mapping):
        with tempfile.TemporaryDirectory(prefix="agent-eval-") as folder:
            name = str(scenario.get("id", "scenario"))
            file = Path(folder, "test", f"{name if is_slug(name) else 'scenario'}{_SUFFIX}")
            file.parent.mkdir()
            file.write_text(yaml.safe_dump(dict(scenario), sort_keys=False), encoding="utf-8")
            return hold_trial(project, file, agent, trial=trial, judges=judges)
    file = scenario if isinstance(scenario, Path) else scenario_file(project, scenario)
    return hold_trial(project, file, agent, trial=trial, judges=judges)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("agent_eval", "scenarios of agent_eval")
    group.addoption(
        "--agent", action="append", default=[], metavar="ID",
        help="Hold the scenarios (*.scenario.yaml) with this agent of agents.yaml (repeatable).",
    )  # fmt: skip
    group.addoption(
        "--judge", action="append", default=[], metavar="MODEL",
        help="litellm name of a judge model (repeatable). Default: only assertions and rules decide.",
    )  # fmt: skip
    group.addoption("--user", metavar="MODEL", help="litellm name of the model that plays simulated users.")
    group.addoption(
        "--allow-unknown", action="store_true",
        help="Skip a scenario whose result is unknown, instead of failing it.",
    )  # fmt: skip


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect scenario files."""
    if not file_path.name.endswith(_SUFFIX):
        return None
    return ScenarioFile.from_parent(parent, path=file_path)


class ScenarioFile(pytest.File):
    """Collect one test per agent and trial of a scenario file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the tests. Without an agent, there is one that is skipped."""
        from agent_eval.errors import AgentEvalError
        from agent_eval.project.benchmarks.trials import n_trials

        try:
            n = n_trials(self.path)
        except AgentEvalError as error:
            raise self.CollectError(str(error)) from None
        for agent in dict.fromkeys(self.config.getoption("--agent")) or [None]:
            for trial in range(n if agent else 1):
                name = f"{agent or 'no agent'}{f'-{trial}' if agent and n > 1 else ''}"
                yield ScenarioItem.from_parent(self, name=name, agent=agent, trial=trial)


class ScenarioItem(pytest.Item):
    """Test one trial of a scenario with one agent."""

    def __init__(self, *, agent: str | None, trial: int, **more: Any) -> None:
        super().__init__(**more)
        self.agent, self.trial = agent, trial

    def runtest(self) -> None:
        """Hold the conversation; fail unless it passed."""
        if self.agent is None:
            pytest.skip(_NO_AGENT)
        from agent_eval.project import Project
        from agent_eval.project.benchmarks.trials import hold_trial

        option = self.config.getoption
        project = Project.open(self._root()).with_settings(user_model=option("--user"))
        trial_result = hold_trial(project, self.path, self.agent, trial=self.trial, judges=option("--judge"))
        if trial_result.outcome == "unknown" and option("--allow-unknown"):
            pytest.skip("; ".join(f"{outcome}: {sentence}" for outcome, sentence in trial_result.findings))
        if not trial_result.passed:
            raise ScenarioFailedError(trial_result.report())

    def _root(self) -> str | None:
        """Return the folder to search for the project from; None if AGENT_EVAL_HOME names it."""
        return None if os.environ.get("AGENT_EVAL_HOME") else str(self.path.parent)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what was found as text, without a traceback of agent_eval."""
        from agent_eval.errors import AgentEvalError

        if isinstance(excinfo.value, ScenarioFailedError | AgentEvalError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the name under which pytest lists the test."""
        return self.path, 0, f"{self.path.name.removesuffix(_SUFFIX)} with {self.name}"


class ScenarioFailedError(Exception):
    """Raised when a scenario did not pass; the message lists what was found."""
