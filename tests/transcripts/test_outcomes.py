"""How a trial ended: the class of each record, by format, and rewards that tell no success."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from agent_eval.transcripts.frames import ConversationRows, conversations_from
from agent_eval.transcripts.importers.importing import import_file
from agent_eval.transcripts.models import Conversation, Outcome
from agent_eval.transcripts.outcomes import harness_cause
from agent_eval.transcripts.sessions import IngestedSession, read_sessions
from tests.transcripts.making import AGENT, USER, conversation, lines, write_json, write_session


def taken(format_name: str, path: Path, success_reward: float | None = None) -> IngestedSession:
    import_file(format_name, path, sessions_folder=path.parent / "s", agent_id="a", session_id="x")
    return read_sessions("a", path.parent / "s" / "a", success_reward)


def classes(found: IngestedSession) -> list[str]:
    return list(found.conversations["outcome_class"])


def chat(folder: Path, *records: object) -> IngestedSession:
    (folder / "f.jsonl").write_bytes(lines(records))
    return taken("openai", folder / "f.jsonl")


def tau1(reward: object = 0.0, info: dict[str, object] | None = None, **fields: object) -> dict[str, Any]:
    return {"task_id": 0, "reward": reward, "info": info or {}, "traj": [USER, AGENT]} | fields


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (tau1(1.0), "passed"),
        (tau1(0.0), "failed"),
        (tau1(0.0, traj=[]), "failed"),
        (tau1(1.0, traj=[]), "passed"),
        (tau1(0.0, {"error": "KeyError: 'name'"}, traj=[]), "unexplained_error"),
        (tau1(None, {"error": "KeyError: 'name'"}, traj=None), "unexplained_error"),
        (tau1(0.0, {"error": "no connection from HAT039 to JFK"}), "unexplained_error"),
        (tau1(0.0, {"error": "reservation 429401 not found"}), "unexplained_error"),
        (tau1(0.0, {"error": "MaxTurnsExceeded: Max turns (10) exceeded"}, traj=[]), "agent_error"),
        (tau1(None, {"error": "AgentParsingError: no code block"}, traj=[]), "agent_error"),
        (tau1(0.0, {"error": "litellm.RateLimitError: OpenAIException"}, traj=[]), "harness_error"),
        (tau1(0.0, {"error": "Error code: 401 - invalid_api_key"}, traj=[]), "harness_error"),
        (tau1(1.0, {"error": "Connection error."}), "passed"),
        (tau1(0.4, {"error": "boom"}), "unknown"),
        (tau1(0.4), "unknown"),
        (tau1(None), "unknown"),
        (tau1(0.83, {"reward_info": {"base_success": 1.0}}), "passed"),
        (tau1(0.83, {"reward_info": {"info": {"parts": [{"base_success": 0.0}]}}}), "failed"),
        (tau1(0.83, {"base_success": 0.5}), "unknown"),
        (tau1(0.4, {"error": "Connection error.", "base_success": 0.0}), "harness_error"),
        (tau1(0.4, {"error": "KeyError: 'name'", "base_success": False}), "unexplained_error"),
        (tau1(0.0, {"error": "Connection error.", "base_success": 0.0}), "harness_error"),
        (tau1(0.4, {"error": "Connection error.", "base_success": 1}), "passed"),
        (tau1(0.0, traj=[USER, {**AGENT, "base_success": True}]), "failed"),
    ],
)
def test_a_tau_bench_record_has_the_class_of_its_success_error_and_reward(
    tmp_path: Path, record: dict[str, Any], wanted: str
) -> None:
    known = tau1(1.0, task_id=1)  # without it a file of unreadable rewards would make its zeros unknown
    found = taken("tau-bench", write_json(tmp_path / "f.json", [record, known]))
    assert found.import_errors.is_empty()
    assert classes(found) == [wanted, "passed"]
    is_declared = record["reward"] == 0 or "base_success" in record["info"]
    correct = {"passed": True, "failed": False, "agent_error": False}.get(wanted)
    if wanted == "unexplained_error" and is_declared:
        correct = False
    assert found.conversations["outcome_correct"][0] is correct


def tau2(reason: str, reward: float | None = 0.0, **fields: object) -> dict[str, Any]:
    said = {} if reward is None else {"reward_info": {"reward": reward}}
    run = {"id": "i", "task_id": "t", "messages": [USER, AGENT], "termination_reason": reason}
    return run | said | fields


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (tau2("user_stop", 1.0), "passed"),
        (tau2("user_stop"), "failed"),
        (tau2("user_stop", None), "unknown"),
        (tau2("agent_error"), "agent_error"),
        (tau2("too_many_errors"), "agent_error"),
        (tau2("context_window_exceeded", None, messages=[]), "agent_error"),
        (tau2("max_steps"), "failed"),
        (tau2("max_steps", None), "failed"),
        (tau2("user_error"), "harness_error"),
        (tau2("infrastructure_error", None, messages=[], info={"error": "x"}), "harness_error"),
        (tau2("infrastructure_error", 0.0, messages=None), "harness_error"),
        (tau2("infrastructure_error", 1.0), "passed"),
        (tau2("unexpected_error", None, info={"error_type": "APIConnectionError"}), "harness_error"),
        (tau2("unexpected_error", 0.0, info={"error": "list index out of range"}), "unexplained_error"),
        (tau2("a reason of a later release", 0.0), "unexplained_error"),
        (tau2("agent_stop", 0.0), "failed"),
        (tau2("user_stop", 0.7), "unknown"),
        (tau2("user_stop", 0.7, base_success=True), "passed"),
        (tau2("infrastructure_error", 0.7, base_success=False), "harness_error"),
        (tau2("agent_error", 0.7, base_success=0), "agent_error"),
        (tau2("max_steps", 0.7, base_success=0), "failed"),
        (tau2("infrastructure_error", 0.7, base_success=True), "passed"),
    ],
)
def test_a_tau2_simulation_has_the_class_of_its_reward_and_termination_reason(
    tmp_path: Path, record: dict[str, Any], wanted: str
) -> None:
    runs = [record, tau2("user_stop", 1.0, id="known")]
    found = taken("tau2", write_json(tmp_path / "f.json", {"tasks": [], "simulations": runs}))
    assert found.import_errors.is_empty()
    of = dict(found.conversations.select("conversation_id", "outcome_class").iter_rows())
    assert of == {"i": wanted, "known": "passed"}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"correct": False}, "failed"),
        ({"correct": True}, "passed"),
        ({"correct": 1}, "passed"),
        ({"correct": False, "error": "boom"}, "unexplained_error"),
        ({"correct": False, "error": {"type": "rate_limit_error"}}, "harness_error"),
        ({"error": "boom"}, "unexplained_error"),
        ({"error": False, "reward": 0}, "failed"),
        ({"reward": 1.0, "error": "boom"}, "passed"),
        ({"reward": 0.4, "base_success": 0, "error": "HTTP 429"}, "harness_error"),
        ({"reward": 0.4, "correct": False, "error": "boom"}, "unexplained_error"),
        ({"outcome": {"reward": 0.4, "correct": False, "error": "HTTP 429"}}, "harness_error"),
        ({"outcome": "harness_error"}, "harness_error"),
        ({"outcome": {"correct": True}}, "passed"),
    ],
)
@pytest.mark.parametrize("messages", [{"messages": []}, {"messages": [USER]}, {}])
def test_a_chat_line_without_turns_is_a_trial_when_it_says_how_it_ended(
    tmp_path: Path, fields: dict[str, Any], messages: dict[str, Any], wanted: str
) -> None:
    found = chat(tmp_path, messages | fields)
    n_turns = len(messages.get("messages", []))
    assert (classes(found), found.conversations["n_turns"].to_list()) == ([wanted], [n_turns])
    assert found.turns.height == n_turns


def test_a_record_that_says_nothing_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_bytes(lines([{"messages": []}, {"messages": [], "correct": None}, [USER]]))
    report = import_file("openai", tmp_path / "f.jsonl", sessions_folder=tmp_path / "s", agent_id="a")
    assert (report.n_imported, [r.line for r in report.refusals]) == (1, [1, 2])
    assert all("no outcome, reward or error" in r.reason for r in report.refusals)


def test_conversations_without_turns_come_back_from_the_tables_as_they_went_in(tmp_path: Path) -> None:
    outcomes: list[object] = [{"correct": False, "error": "boom"}, "harness_error", {"reward": 0.3}]
    native = [conversation(str(i), messages=[], outcome=o) for i, o in enumerate(outcomes)]
    write_session(tmp_path / "a", "s", native)
    found = read_sessions("a", tmp_path / "a")
    back = [c for _, c in conversations_from(found.conversations, found.turns)]
    assert back == [Conversation.model_validate(fields) for fields in native]
    assert [c.turns() for c in back] == [(), (), ()]
    assert classes(found) == ["unexplained_error", "harness_error", "unknown"]
    assert found.conversations["content_hash"].null_count() == 0


def test_rows_of_an_earlier_store_without_the_column_can_be_rebuilt() -> None:
    rows = ConversationRows()
    rows.add("a", "s", None, Conversation.model_validate(conversation("c", outcome={"correct": False})))
    null = pl.lit(None, pl.String)
    old = rows.conversations.frame().with_columns(outcome_class=null, outcome_error=null)
    ((_, back),) = conversations_from(old, rows.turns.frame())
    assert back.outcome.classified == "failed"


@pytest.mark.parametrize(("correct", "name"), [(True, "failed"), (False, "passed"), (True, "harness_error")])
def test_an_outcome_that_contradicts_its_class_is_refused(correct: bool, name: str) -> None:
    with pytest.raises(ValidationError, match="leave one of them out"):
        Outcome.model_validate({"correct": correct, "outcome_class": name})


def composite(n: int, **fields: object) -> list[dict[str, Any]]:
    """Four in ten succeed with a composite reward of 0.85, the others fail with 0."""
    return [tau1(0.85 if i % 10 < 4 else 0.0, task_id=i, info={"reward_info": {}}) | fields for i in range(n)]


def test_composite_rewards_count_by_the_success_component_of_the_file(tmp_path: Path) -> None:
    records = composite(20)
    for record in records:
        record["info"]["reward_info"]["base_success"] = 1.0 if record["reward"] else 0.0
    found = taken("tau-bench", write_json(tmp_path / "f.json", records))
    assert found.conversations["outcome_correct"].to_list().count(True) == 8


def test_composite_rewards_without_a_success_component_are_unknown_with_their_zeros(tmp_path: Path) -> None:
    records = [*composite(20), tau1(0.0, {"error": "boom"}, task_id=99, traj=[])]
    path = write_json(tmp_path / "f.json", records)
    found = taken("tau-bench", path)
    assert classes(found) == ["unknown"] * 21
    assert found.conversations["outcome_correct"].null_count() == 21
    ((file, line, reason),) = found.import_errors.select("file", "line", "reason").rows()
    assert (file, line) == ("x/conversations.jsonl", 0)
    assert reason.startswith("reading error: 8 rewards are neither 0 nor 1")
    report = import_file("tau-bench", path, sessions_folder=tmp_path / "s", agent_id="a", session_id="x")
    assert report.n_rewards_between == 8
    write_json(path, [*composite(20), tau1(1.0, task_id=99)])  # also beside a known success
    report = import_file("tau-bench", path, sessions_folder=tmp_path / "s", agent_id="a", session_id="x")
    assert (report.n_rewards_between, report.n_passed) == (8, 1)


def test_a_success_reward_reads_composite_rewards(tmp_path: Path) -> None:
    path = write_json(tmp_path / "f.json", composite(20))
    for least, wanted in ((0.85, 8), (0.86, 0)):
        found = taken("tau-bench", path, least)
        assert found.conversations["outcome_correct"].to_list().count(True) == wanted
        assert found.conversations["outcome_correct"].null_count() == 0
        assert found.import_errors.is_empty()


def test_declared_failures_beside_composite_rewards_stay_failures(tmp_path: Path) -> None:
    found = chat(tmp_path, {"messages": [USER], "reward": 0.5}, {"messages": [USER], "correct": False})
    assert (classes(found), found.import_errors.height) == (["unknown", "failed"], 1)


def test_a_harness_error_with_a_partial_reward_makes_no_other_trial_unknown(tmp_path: Path) -> None:
    broken = tau1(0.4, {"error": "Connection error.", "base_success": 0.0})
    path = write_json(tmp_path / "f.json", [broken, tau1(0.0)])
    found = taken("tau-bench", path)
    assert (classes(found), found.import_errors.height) == (["harness_error", "failed"], 0)
    report = import_file("tau-bench", path, sessions_folder=tmp_path / "s", agent_id="a", session_id="x")
    assert report.n_rewards_between == 0


@pytest.mark.parametrize("reward", [0.0, 0.83, 1.0, None])
@pytest.mark.parametrize(
    ("outer", "inner"), [(1, 0), (False, True), (1.0, 0.5)], ids=["1 and 0", "false and true", "1 and 0.5"]
)
@pytest.mark.parametrize("format_name", ["tau-bench", "tau2", "openai"])
def test_success_components_that_contradict_each_other_are_an_error_of_reading(
    tmp_path: Path, format_name: str, outer: object, inner: object, reward: float | None
) -> None:
    def run(name: str, reward: object, **fields: object) -> dict[str, object]:
        said = {"messages": [USER, AGENT], "traj": [USER, AGENT], "task_id": name, "id": name}
        return said | {"reward": reward, "reward_info": {"reward": reward}} | fields

    bad = run("t", reward, base_success=outer, reward_info={"reward": reward, "base_success": inner})
    bad |= {"error": "Connection error.", "termination_reason": "agent_error"}
    runs = [bad, run("known", 1.0)]
    path = write_json(tmp_path / "f.json", {"simulations": runs} if format_name == "tau2" else runs)
    for success_reward in (None, 0.5):
        found = taken(format_name, path, success_reward)
        of = dict(found.conversations.select("task_id", "outcome_class").iter_rows())
        assert of == {"t": "unknown", "known": "passed"}
        assert found.conversations["outcome_correct"].null_count() == 1
        assert f"{format_name} base_success: contradicting values" in found.conversations["outcome_source"]
        ((line, reason),) = found.import_errors.select("line", "reason").rows()
        assert (line, reason[:24]) == (0, "reading error: 1 records")
    report = import_file(format_name, path, sessions_folder=tmp_path / "s", agent_id="a", session_id="x")
    assert (report.n_contradicting, report.n_rewards_between) == (1, 0)


def test_success_components_that_agree_are_one(tmp_path: Path) -> None:
    run = tau1(0.83, {"base_success": 1, "parts": [{"base_success": 1.0}, {"base_success": None}]})
    assert classes(taken("tau-bench", write_json(tmp_path / "f.json", [run]))) == ["passed"]


@pytest.mark.parametrize("reward", ["0.83", 83, 1.5])
def test_rewards_as_text_and_above_one_are_no_silent_zero(reward: object, tmp_path: Path) -> None:
    found = chat(tmp_path, {"messages": [USER], "reward": reward}, {"messages": [USER], "reward": 0})
    assert (classes(found), found.import_errors.height) == (["unknown", "unknown"], 1)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("litellm.RateLimitError: RateLimitError: OpenAIException - Error code: 429", "rate limit"),
        ("HTTP 429", "rate limit"),
        ("openai.APIConnectionError: Connection error.", "connection"),
        ("litellm.InternalServerError: status code 503", "connection"),
        ("AuthenticationError: Incorrect API key provided", "authentication"),
        ("openai.APITimeoutError: Request timed out.", "time-out of the provider"),
        ("httpx.ReadTimeout", "time-out of the provider"),
        ("Failed to reset environment: docker is not running", "environment reset"),
        ("401 Unauthorized", "authentication"),
        ("RESOURCE_EXHAUSTED: Quota exceeded", "rate limit"),
        ("ThrottlingException: Rate exceeded", "rate limit"),
        ("litellm.exceptions.BadGatewayError", "connection"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "connection"),
        ("env.reset() failed: database locked", "environment reset"),
        ("Docker container failed to start", "environment reset"),
        ("Sandbox timed out starting", "environment reset"),
        ("KeyError: 'rate limit'", None),
        ("Agent exceeded its own rate limit counter of 5 calls", None),
        ("ToolError: Invalid API key argument passed to set_api_key", None),
        ("AssertionError: expected status 503", None),
        ("PermissionDeniedError: agent is not allowed to call refund", None),
        ("The agent timed out after 30 steps", None),
        ("ContextWindowExceededError: 400", None),
        ("ValueError: connection flight HAT429 is full", None),
        ("json.decoder.JSONDecodeError: Expecting value", None),
        ("password reset was not confirmed by the user", None),
        ("", None),
    ],
)
def test_only_documented_errors_are_the_harness_s(error: str, cause: str | None) -> None:
    assert harness_cause(error) == cause


FRAMES = """Traceback (most recent call last):
  File "/app/agent.py", line 10, in solve
    return self.agent.tool(connection_error, rate_limit=429)
           ^^^^^^^^^^^^^^^^
  File "/tau_bench/agents/tool_calling_agent.py", line 3, in call
    raise error
  [Previous line repeated 2 more times]
"""
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
PROVIDER = "openai.RateLimitError: Error code: 429 - {'error': {'message': 'slow down'}}\n"


def grouped(text: str) -> str:
    return "  + Exception Group " + "".join(f"  | {line}\n" for line in text.splitlines()) + "  +-----\n"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (FRAMES + PROVIDER, "rate limit"),
        ("Task 3 of the agent:\n" + FRAMES + PROVIDER, "rate limit"),
        (FRAMES + "KeyError: 'name'\n" + DURING + FRAMES + PROVIDER, "rate limit"),
        (FRAMES + PROVIDER + DURING + FRAMES + "KeyError: 'name'\n", None),
        (FRAMES + "KeyError: 'name'\n" + DURING + PROVIDER, "rate limit"),
        (FRAMES + "KeyError: 'name'", None),
        (FRAMES + "ValueError: Error code: 429", None),
        (FRAMES + "pydantic_core._pydantic_core.ValidationError: rate limit 429", None),
        (FRAMES + "my_agents.agent.RateLimitError: own counter", None),
        (FRAMES + "agent.AgentError: Error code: 429", None),
        (FRAMES + "boom", None),
        (FRAMES + "openai.RateLimitError: too large for the tool call of this agent", "rate limit"),
        (FRAMES + "httpx.ReadTimeout\n", "time-out of the provider"),
        (FRAMES + "docker.errors.APIError: container failed to start", "environment reset"),
        ("openai.RateLimitError: Error code: 429\n" + FRAMES, "rate limit"),
        (FRAMES, None),
        (FRAMES.replace("  ", "").replace("[Prev", "  [Prev") + PROVIDER, "rate limit"),
        ('File "/app/agent.py", line 3, in run\nself.agent.run()\n' + PROVIDER, "rate limit"),
        (grouped(FRAMES + PROVIDER), "rate limit"),
        (grouped(FRAMES + "KeyError: 'rate limit'"), None),
        ((FRAMES * 300 + PROVIDER).replace("\n", "\r\n"), "rate limit"),
        ('agent failed, File "/app/x.py", line 3: ' + PROVIDER, None),
    ],
)
def test_a_traceback_is_classed_by_its_final_exception(error: str, cause: str | None) -> None:
    assert harness_cause(error) == cause


@pytest.mark.parametrize("last", [PROVIDER, "KeyError: 'name'\n"])
def test_a_traceback_has_the_same_class_in_every_format(tmp_path: Path, last: str) -> None:
    error, wanted = FRAMES + last, "harness_error" if last == PROVIDER else "unexplained_error"
    crash: dict[str, object] = {"error": error}
    runs = [tau1(0.0, crash), tau1(0.0, crash, base_success=0), tau1(None, error=error, traj=[]), tau1(1.0)]
    path = write_json(tmp_path / "f.json", runs)
    assert classes(taken("tau-bench", path)) == [wanted, wanted, wanted, "passed"]
    for name in "ot":
        (tmp_path / name).mkdir()
    found = chat(tmp_path / "o", {"messages": [USER], "correct": False} | crash, crash, {"correct": True})
    assert classes(found) == [wanted, wanted, "passed"]
    simulations = [tau2("unexpected_error", None, info=crash), tau2("user_stop", 1.0, id="j")]
    path = write_json(tmp_path / "t" / "f.json", {"tasks": [], "simulations": simulations})
    assert classes(taken("tau2", path)) == [wanted, "passed"]
