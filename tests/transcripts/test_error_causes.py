"""The cause of an error: of the harness, of the agent, or unknown; a text outside the list never gets a verdict."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_eval.project import Project
from agent_eval.project.ingest import agent_sessions_hash, ingest
from agent_eval.settings.settings import Settings
from agent_eval.transcripts.frames import ConversationRows, conversations_from
from agent_eval.transcripts.importers.base import reward_outcome
from agent_eval.transcripts.models import Conversation, Outcome
from agent_eval.transcripts.outcomes import class_of_error, error_causes, with_causes_read, with_rewards_read
from tests.transcripts.making import AGENT, USER, conversation, write_session
from tests.transcripts.test_outcomes import chat, taken

INFRASTRUCTURE = (
    "Your credit balance is too low to access the API",
    "OpenrouterException: This request requires more credits",
    "billing hard limit has been reached",
    "Please slow down your requests",
    "Rate exceeded for the account",
    "capacity temporarily unavailable, try again later",
    "OSError: [Errno 28] No space left on device",
    "disk full while writing the trajectory",
    "sqlite3.OperationalError: database or disk is full",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError: CUDA error: device-side assert triggered",
    "vLLM engine core died unexpectedly",
    "Spot instance preempted",
    "slurmstepd: error: *** JOB 17 CANCELLED DUE TO PREEMPTION ***",
    "Killed",
    "exit code 137",
    "worker 3 was lost: node drained before max_steps",
    "ModuleNotFoundError: No module named 'tau_bench.envs.airline'",
    "ImportError: libGL.so.1: cannot open shared object file",
    "PermissionError: [Errno 13] Permission denied: '/mnt/results'",
    "KeyError: 'choices'",
    "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "TimeoutExpired: command timed out after 1800 seconds",
    "psycopg2.OperationalError: FATAL: too many clients already",
    "redis.exceptions.ReadOnlyError: You can't write against a read only replica",
    "AgentGenerationError: the provider returned nothing",
    "boom",
)


@pytest.mark.parametrize("error", INFRASTRUCTURE)
def test_an_infrastructure_error_is_never_the_agent_s(error: str) -> None:
    assert class_of_error(error) in ("harness_error", "unexplained_error")


AGENT_S = (
    "invalid arguments for tool get_user: user_id is missing",
    "ToolParsingError: no such parameter",
    "agents.exceptions.MaxTurnsExceeded: Max turns (10) exceeded",
    "GraphRecursionError: Recursion limit of 25 reached without hitting a stop condition",
    "Agent stopped due to iteration limit or time limit.",
    "Reached the maximum number of steps",
    "step limit of 30 reached",
    "max_steps",
    "AgentParsingError: no code block",
    "my_agents.agent.AgentError: Error code: 429",
    "agent_error: the message has neither text nor calls",
    "ContextWindowExceededError: 400",
)
UNKNOWN = (
    "MaxTurnsExceeded after openai.RateLimitError: Error code: 429",  # of both classes
    # names that only sound like a known cause
    "AgentRuntimeUnavailableError: runtime pod evicted",
    "AgentOfflineException: the build machine is gone",
    "user_simulator LLM raised litellm.ContextWindowExceededError: prompt too long",
    "UserSimulator error: max turns reached",
    "Grader failed: MaxTurnsExceeded",
    "error: no matching function for call to overloaded function 'foo'",
    "call of overloaded 'abs(unsigned)' is ambiguous",
    "overloaded operator '+' not defined for type Foo",
    # what the agent made or ran may have failed for the agent's own reasons
    "the submitted solution raised: connection refused",
    "function get_price: HTTP 503",
    "generated code failed: requests.ConnectionError",
    "curl: (22) The requested URL returned error: 403",
    "npm ERR! code ECONNREFUSED",
    "checker gave up: MaxTurnsExceeded",
)
HARNESS_S = (
    *("Overloaded", "overloaded_error: Overloaded", "The server is currently overloaded"),
    "engine is overloaded (529)",
    "the gateway generated an error: HTTP 503",
    "checker: connection refused",
    # the type of an exception decides, whatever its message mentions
    "litellm.RateLimitError: the function get_price and the tool search were limited",
    "openai.APITimeoutError: Request timed out while the assistant was asked",
)
CLASSES = {"agent_error": AGENT_S, "unexplained_error": UNKNOWN, "harness_error": HARNESS_S}


@pytest.mark.parametrize(("wanted", "error"), [(name, e) for name, errors in CLASSES.items() for e in errors])
def test_an_error_has_the_class_that_the_list_names(error: str, wanted: str) -> None:
    assert class_of_error(error) == wanted
    correct = False if wanted == "agent_error" else None
    assert Outcome.model_validate({"error": error}).correct is correct


def test_each_line_of_the_list_has_a_source_and_matches_nothing_in_an_empty_text() -> None:
    assert {cause.is_harness for cause in error_causes()} == {True, False}
    for cause in error_causes():
        assert cause.name
        assert len(cause.source) > 10
        assert not cause.pattern.search("")


@given(error=st.text(min_size=1).filter(lambda text: bool(text.strip())), reward=st.sampled_from([0.0, None]))
def test_no_text_outside_the_list_is_given_a_verdict(error: str, reward: float | None) -> None:
    if any(cause.pattern.search(error) for cause in error_causes()):
        return
    outcome = Outcome.model_validate(reward_outcome("any", reward, None, ("error", error)))
    assert outcome.classified == "unexplained_error"
    assert outcome.correct is (False if reward == 0 else None)


EIGHTH = "a-format-of-no-list"


def frame(*outcomes: Mapping[str, Any]) -> pl.DataFrame:
    rows = ConversationRows()
    for i, outcome in enumerate(outcomes):
        rows.add("a", "s", None, Conversation.model_validate(conversation(f"c{i}", outcome=dict(outcome))))
    return rows.conversations.frame()


def test_the_meaning_of_an_outcome_of_any_format_is_in_its_basis() -> None:
    said = [
        reward_outcome(EIGHTH, 0.5, None),
        reward_outcome(EIGHTH, 0.0, None),
        reward_outcome(EIGHTH, 0.0, None, ("crash", "boom")),
        reward_outcome(EIGHTH, 0.0, False),
        reward_outcome(EIGHTH, 1.0, "contradicting"),
    ]
    found, refusals = with_rewards_read(frame(*said), None)
    assert found["outcome_basis"].to_list() == ["reward", "reward", "error", "declared", "contradicting"]
    assert found["outcome_correct"].to_list() == [None, None, None, False, None]
    assert len(refusals) == 2  # unreadable rewards, and success components that contradict each other
    decided, refusals = with_rewards_read(frame(*said), 0.4)
    assert decided["outcome_correct"].to_list() == [True, False, False, False, None]
    assert len(refusals) == 1


def test_a_source_that_sounds_like_a_format_does_not_change_a_declared_outcome() -> None:
    declared = {"correct": False, "source": "tau2 reward", "basis": "declared"}
    found, _ = with_rewards_read(frame(declared, reward_outcome("tau2", 0.5, None)), None)
    assert found["outcome_correct"].to_list() == [False, None]


def test_an_unknown_basis_is_refused() -> None:
    with pytest.raises(ValidationError, match="basis"):
        Outcome.model_validate({"correct": True, "basis": "guess"})


DISK_FULL = {"correct": False, "error": "disk full", "outcome_class": "agent_error"}
EARLIER: list[tuple[dict[str, Any], tuple[str, str, bool | None]]] = [
    ({"correct": True, "reward": 1.0, "source": "tau-bench reward"}, ("reward", "passed", True)),
    ({"correct": False, "reward": 0.0, "source": "tau-bench reward"}, ("reward", "failed", False)),
    ({"source": "openai base_success: contradicting values"}, ("contradicting", "unknown", None)),
    (DISK_FULL | {"reward": 0.0, "source": "tau-bench info.error"}, ("error", "unexplained_error", False)),
    (DISK_FULL | {"source": "openai error"}, ("error", "unexplained_error", None)),
    (
        DISK_FULL | {"error": "agent_error", "source": "tau2 termination_reason"},
        ("exit", "agent_error", False),
    ),
    (DISK_FULL | {"error": "boom"}, ("declared", "agent_error", False)),
    ({"correct": True, "source": "my own reading"}, ("declared", "passed", True)),
    ({"correct": False}, ("declared", "failed", False)),
]


@pytest.mark.parametrize(("earlier", "wanted"), EARLIER)
def test_outcomes_that_an_earlier_release_imported_get_their_basis_and_lose_its_verdicts(
    earlier: dict[str, Any], wanted: tuple[str, str, bool | None]
) -> None:
    outcome = Outcome.model_validate(earlier)
    assert (outcome.basis, outcome.classified, outcome.correct) == wanted
    rows = ConversationRows()
    rows.add("a", "s", None, Conversation.model_validate(conversation("c", outcome=earlier)))
    ((_, back),) = conversations_from(rows.conversations.frame(), rows.turns.frame())
    assert back.outcome == outcome


LIMITS = ("exit_cost", "LimitsExceeded", "exit_total_execution_time")
CRASHES = ("RuntimeError", "docker runtime is gone", "Timeout", "exit_error")


@pytest.mark.parametrize(
    ("status", "wanted"), [*((s, "failed") for s in LIMITS), *((s, "unexplained_error") for s in CRASHES)]
)
def test_an_exit_status_is_a_limit_only_if_it_is_a_known_one(
    tmp_path: Path, status: str, wanted: str
) -> None:
    run = {"trajectory": [], "history": [USER, AGENT], "info": {"exit_status": status}}
    (tmp_path / "t.traj").write_text(json.dumps(run))
    found = taken("swe-agent", tmp_path / "t.traj").conversations
    assert found.select("outcome_class", "outcome_basis").rows() == [(wanted, "exit")]


def caused(causes: Mapping[str, Sequence[str]], *errors: str) -> list[tuple[str, bool | None]]:
    found = with_causes_read(frame(*({"reward": 0.0, "error": error} for error in errors)), causes)
    return found.select("outcome_class", "outcome_correct").rows()


def test_patterns_of_one_s_own_explain_errors_that_the_list_does_not() -> None:
    causes = {"harness": ["preempted", r"errno 28\b"], "agent": ["no plan"]}
    lost, failed, unexplained = ("harness_error", None), ("agent_error", False), ("unexplained_error", False)
    errors = ("Spot instance PREEMPTED", "[Errno 28]", "No plan was made", "boom")
    assert caused(causes, *errors) == [lost, lost, failed, unexplained]
    # of both classes, and a listed error, which patterns of one's own do not change
    assert caused(causes, "no plan: preempted", "MaxTurnsExceeded: preempted") == [unexplained, failed]


def test_a_pattern_takes_linear_time() -> None:
    assert caused({"harness": ["(a+)+$"]}, "a" * 19_000 + "b") == [("unexplained_error", False)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"harness": ["("]}, "is not a supported regex"),
        ({"agent": ["(?<=a)b"]}, "look-around"),
        ({"harness": ["a)|(b"]}, "is not a supported regex"),
        ({"harness": [".*"]}, "matches every error"),
        ({"provider": ["x"]}, "allowed are harness, agent"),
        ({"harness": [""]}, "at least 1 character"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_key_and_reason(value: object, reason: str) -> None:
    with pytest.raises(ValidationError, match="error_causes") as refused:
        Settings.model_validate({"error_causes": value})
    assert reason in str(refused.value)


def test_changed_patterns_make_sessions_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_EVAL_HOME", str(tmp_path))
    crash = conversation("c", outcome={"reward": 0.0, "error": "Spot instance preempted"})
    write_session(tmp_path / "data" / "sessions" / "a", "s", [crash])
    before = agent_sessions_hash(Project.open(), "a")
    assert ingest(Project.open(), ["a"])["conversations"]["outcome_class"].to_list() == ["unexplained_error"]
    (tmp_path / "agent_eval.toml").write_text('[error_causes]\nharness = ["preempted"]\n')
    assert agent_sessions_hash(Project.open(), "a") != before
    assert ingest(Project.open(), ["a"])["conversations"]["outcome_class"].to_list() == ["harness_error"]


def test_a_crash_in_a_chat_line_without_any_verdict_is_unknown(tmp_path: Path) -> None:
    found = chat(tmp_path, {"messages": [USER], "error": "disk full"}).conversations
    rows = found.select("outcome_class", "outcome_correct", "outcome_basis").rows()
    assert rows == [("unexplained_error", None, "error")]


def test_the_stored_text_of_a_traceback_is_its_final_exception_which_patterns_of_one_s_own_can_find() -> None:
    frames = "".join(f'  File "/app/{i}.py", line 1, in run\n    step()\n' for i in range(50))
    error = f"Traceback (most recent call last):\n{frames}LeaseLostError: the node was drained"
    outcome = reward_outcome("any", 0.0, None, ("error", error))
    assert outcome["error"] == "LeaseLostError: the node was drained"
    found = with_causes_read(frame(outcome), {"harness": ["drained"]})
    assert found["outcome_class"].to_list() == ["harness_error"]
