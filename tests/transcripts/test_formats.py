"""What each format's records become."""

import gzip
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.importers.chats import openai
from agent_eval.transcripts.importers.importing import ImportReport, import_file
from agent_eval.transcripts.models import Conversation
from tests.transcripts.making import AGENT, USER, lines

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}


Found = tuple[ImportReport, list[dict[str, Any]]]
Take = Callable[..., Found]


@pytest.fixture
def take(tmp_path: Path) -> Take:
    """Import a value as JSON, or bytes: the report, and the conversations that it stored."""
    numbers = itertools.count()

    def imported(format_name: str, content: object, name: str = "r.json", **options: Any) -> Found:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        options = {"agent_id": "a", "session_id": "s", **options}
        report = import_file(format_name, folder / name, sessions_folder=folder / "sessions", **options)
        file = report.folder / "conversations.jsonl"
        return report, [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return imported


def tau1(task_id: object = 0, trial: object = 0, reward: object = 1.0, **fields: object) -> dict[str, Any]:
    action = {"name": "cancel", "kwargs": {"id": 7}}
    info = {
        "task": {"instruction": "Cancel it.", "actions": [action], "outputs": ["12"], "user_id": "u"},
        "user_cost": 0.1,
    }
    traj = [{"role": "system", "content": "Policy"}, USER, {**AGENT, "content": None, "tool_calls": [CALL]}]
    traj.append({"role": "tool", "tool_call_id": "c1", "name": "find", "content": "found"})
    return {"task_id": task_id, "trial": trial, "reward": reward, "info": info, "traj": traj} | fields


def test_a_tau_bench_record_keeps_its_messages_goal_truth_and_outcome(take: Take) -> None:
    _, (c,) = take("tau-bench", [tau1(task_id=3, trial=1)], "r.json.gz")
    assert (c["conversation_id"], c["task_id"], c["trial"], c["goal"]) == ("s:3-1", "3", 1, "Cancel it.")
    assert [m["role"] for m in c["messages"]] == ["system", "user", "assistant", "tool"]
    assert c["messages"][2]["tool_calls"] == [{"id": "c1", "name": "find", "arguments": {"id": 7}}]
    assert c["messages"][3] == {"role": "tool", "content": "found", "name": "find", "tool_call_id": "c1"}
    assert c["expected"] == [{"tools": [{"name": "cancel", "arguments": {"id": 7}}], "answer": "12"}]
    assert c["outcome"] == {"correct": True, "reward": 1.0, "source": "tau-bench reward", "basis": "reward"}
    assert c["metadata"] == {"user_id": "u", "user_cost_usd": 0.1}


@pytest.mark.parametrize(
    ("reward", "fields", "correct"),
    [
        *((reward, {}, True) for reward in (1.0, 0.9999995, 1, True)),
        *((reward, {}, False) for reward in (0.0, -5e-7, False)),
        *((reward, {}, None) for reward in (0.5, 0.99999, None)),
        *((reward, {"traj": []}, reward) for reward in (True, False)),
        (0.3, {"base_success": True}, True),
        (1.0, {"base_success": False}, False),
        (1.0, {"base_success": None}, True),
        (0.7, {"info": {"reward_info": {"base_success": False}}}, False),
    ],
)
def test_correct_is_base_success_else_a_reward_close_to_0_or_1_else_unknown(
    take: Take, reward: object, fields: dict[str, object], correct: bool | None
) -> None:
    _, (c,) = take("tau-bench", [tau1(reward=reward, **fields)])
    assert c.get("outcome", {}).get("correct") == correct


RUN: dict[str, Any] = {"task_id": None, "traj": [USER, AGENT], "messages": [USER, AGENT], "info": {}}


@pytest.mark.parametrize("format_name", ["tau-bench", "tau2", "openai"])
def test_a_null_task_id_is_no_task_and_a_reward_of_true_is_1(take: Take, format_name: str) -> None:
    runs = [RUN | {"reward": r, "reward_info": {"reward": r}} for r in (True, False, 0.0)]
    whole = {"simulations": runs, "tasks": [{"id": None}]}
    report, found = take(format_name, whole if format_name == "tau2" else runs)
    assert [(c["conversation_id"], c.get("task_id")) for c in found] == [(f"s:{i}", None) for i in (1, 2, 3)]
    outcomes = [(c["outcome"]["correct"], c["outcome"]["reward"]) for c in found]
    assert outcomes == [(True, 1.0), (False, 0.0), (False, 0.0)]
    assert [c.get("metadata", {}).get("recorded_reward") for c in found] == [True, False, None]
    assert report.notes == ("2 of 3 conversations: the reward is true or false and is read as 1 or 0.",)


def test_a_tau_bench_error_beside_info_is_read_like_one_in_it(take: Take) -> None:
    crash = {"error": "KeyError: 'name'"}
    runs = [
        {"task_id": 0, "error": "openai.RateLimitError: Error code: 429"},
        tau1(reward=0.0, info={}, **crash),
        tau1(trial=1, reward=0.0, info={"error": "Connection error."}, **crash),
        tau1(trial=2, reward=1.0),
    ]
    _, found = take("tau-bench", runs)
    assert [(c["outcome"].get("outcome_class"), c["outcome"]["source"]) for c in found] == [
        ("harness_error", "tau-bench error"),
        ("unexplained_error", "tau-bench error"),
        ("harness_error", "tau-bench info.error"),
        (None, "tau-bench reward"),
    ]
    assert found[1]["metadata"]["error"] == crash["error"]


def test_a_task_without_actions_says_nothing_of_tools(take: Take) -> None:
    info = {"task": {"instruction": "Ask.", "actions": [], "outputs": []}}
    _, (c,) = take("tau-bench", [tau1(info=info)])
    assert "expected" not in c


def test_trials_that_hold_the_tasks_index_are_renumbered_and_keep_what_was_recorded(take: Take) -> None:
    records = [tau1(task_id=5, trial=5, reward=r) for r in (0.0, 1.0, 0.25)] + [tau1(task_id=0, trial=0)]
    _, found = take("tau-bench", records)
    assert [(c["task_id"], c["trial"]) for c in found] == [("5", 5), ("5", 0), ("5", 1), ("0", 0)]
    assert len({c["conversation_id"] for c in found}) == 4
    assert [c["metadata"].get("recorded_trial") for c in found] == [None, 5, 5, None]


def test_a_record_that_repeats_another_word_for_word_is_a_duplicate(take: Take) -> None:
    report, found = take("tau-bench", [tau1(), tau1(trial=1), tau1()])
    assert len(found) == 2
    assert [(r.line, r.reason) for r in report.refusals] == [(3, "the same as record 1, which was imported")]


@pytest.mark.parametrize("trial", [{}, {"trial": None}])
def test_equal_records_that_name_no_trial_are_trials_of_their_own(take: Take, trial: dict[str, None]) -> None:
    runs = [RUN | {"task_id": 0, "reward": r} | trial for r in (0.0, 0.0, 0.0, 1.0)]
    report, found = take("tau-bench", runs)
    assert report.n_refused == 0
    trials = [(c["trial"], c["outcome"]["correct"]) for c in found]
    assert trials == [(0, False), (1, False), (2, False), (3, True)]
    _, chat = take("openai", lines(runs), "r.jsonl")
    for key in ("conversation_id", "task_id", "trial", "outcome"):
        ours = [c[key]["correct"] if key == "outcome" else c[key] for c in chat]
        assert ours == [c[key]["correct"] if key == "outcome" else c[key] for c in found]

    simulation = RUN | {"task_id": "0", "reward_info": {"reward": 0.0}} | trial
    simulations = [simulation] * 2 + [simulation | {"id": "i"}] * 2
    report, found = take("tau2", {"tasks": [], "simulations": simulations})
    assert ([c["trial"] for c in found], [r.line for r in report.refusals]) == ([0, 1, 2], [4])


def test_bad_tau_bench_records_are_refused_by_number(take: Take) -> None:
    robot = tau1(trial=1, traj=[{"role": "robot"}])
    nothing = tau1(trial=2, traj=[], reward=None)
    records = [tau1(), "text", {"task_id": 1}, robot, nothing, tau1(trial=3, traj=[7])]
    report, found = take("tau-bench", records)
    assert len(found) == 1
    assert [r.line for r in report.refusals] == [2, 3, 4, 5, 6]
    assert "messages[0].role is 'robot'" in report.refusals[2].reason


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_an_array_that_breaks_off_keeps_the_records_before_the_break(take: Take, cut: int) -> None:
    report, found = take("tau-bench", json.dumps([tau1(trial=i) for i in range(3)]).encode()[:-cut])
    assert len(found) == (3 if cut == 1 else 2)
    assert [r.line for r in report.refusals] == [len(found) + 1]


def said(role: str, content: object, **more: object) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(call_id: str, name: str, by: str, **arguments: object) -> list[dict[str, Any]]:
    return [{"id": call_id, "name": name, "arguments": arguments, "requestor": by}]


def tau2(**fields: object) -> dict[str, Any]:
    none = {"tool_calls": None, "raw_data": None}
    messages = [
        said("assistant", "Hi!", cost=0.0, timestamp="2025-01-01T00:00:00", **none),
        said(
            "user", "My line is dead", cost=0.01, usage={"prompt_tokens": 4}, **none | {"raw_data": {"x": 1}}
        ),
        said("assistant", "", tool_calls=called("c1", "find", "assistant", id=7), cost=0.02),
        said("tool", "no such line", id="c1", error=True, requestor="assistant"),
        said("user", None, tool_calls=called("c2", "restart", "user")),
        said("tool", "restarted", id="c2", error=False, requestor="user"),
        said("assistant", "", tool_calls=None),
    ]
    run = {"id": "u-1", "task_id": "t", "trial": 0, "messages": messages, "reward_info": {"reward": 1.0}}
    measured = {"termination_reason": "user_stop", "agent_cost": 0.03, "duration": 4.5, "seed": 9}
    return run | measured | fields


def one_of(*simulations: dict[str, Any], tasks: Sequence[object] = ()) -> dict[str, Any]:
    return {"tasks": list(tasks), "simulations": list(simulations)}


INSTRUCTIONS = {
    "reason_for_call": "No signal.",
    "known_info": "You are Ann.",
    "task_instructions": "Be brief.",
}
TASK: dict[str, Any] = {
    "id": "t",
    "user_scenario": {"persona": "Patient.", "instructions": INSTRUCTIONS},
    "evaluation_criteria": {
        "actions": [
            {"name": "find", "arguments": {"id": 7}, "requestor": "assistant"},
            {"name": "restart", "arguments": {}, "requestor": "user"},
        ],
        "nl_assertions": ["Agent apologises."],
        "communicate_info": None,
    },
}


@pytest.mark.parametrize("order", [("tasks", "simulations"), ("simulations", "tasks")])
def test_a_tau2_simulation_gets_goal_and_truth_from_its_task(take: Take, order: tuple[str, str]) -> None:
    parts = one_of(tau2(), tasks=[TASK])
    _, (c,) = take("tau2", {"info": {}} | {name: parts[name] for name in order})
    assert (c["conversation_id"], c["task_id"], c["trial"]) == ("u-1", "t", 0)
    assert (c["goal"], c["profile"]) == ("No signal.\n\nBe brief.", "Patient.\n\nYou are Ann.")
    find = {"name": "find", "arguments": {"id": 7}, "match": "exact"}
    restart = {"name": "restart", "arguments": {}, "match": "exact", "requestor": "user"}
    assert c["expected"] == [{"tools": [find, restart], "assertions": ["Agent apologises."]}]
    assert c["outcome"] == {"correct": True, "reward": 1.0, "source": "tau2 reward", "basis": "reward"}
    kept = {"termination_reason": "user_stop", "duration": 4.5, "seed": 9}
    assert c["metadata"] == kept | {"agent_cost_usd": 0.03, "simulation_id": "u-1"}


def check(name: str, match: bool = True, **action: object) -> dict[str, Any]:
    """One of a simulation's own action checks, by default of the agent's call find(id=7)."""
    given: dict[str, object] = {"name": name, "arguments": {}, "requestor": "assistant", "compare_args": None}
    return {"action": given | action, "action_match": match}


OWN_CHECKS = [check("find", arguments={"id": 7}), check("restart", False, requestor="user")]


def tau2_with(reward_info: dict[str, Any], task: dict[str, Any] = TASK) -> dict[str, Any]:
    return one_of(tau2(reward_info=reward_info), tasks=[task])


def test_the_truth_of_a_tau2_simulation_is_what_it_was_checked_against(take: Take) -> None:
    # the order of the definition is no matter
    reward = {"reward": 0.0, "action_checks": [*reversed(OWN_CHECKS)]}
    _, (c,) = take("tau2", tau2_with(reward))
    assert [call["name"] for call in c["expected"][0]["tools"]] == ["restart", "find"]
    assert c["goal"] == "No signal.\n\nBe brief."
    assert c["metadata"]["action_matches"] == [False, True]
    assert "task_definition_refused" not in c["metadata"]


def test_compare_args_of_a_checked_action_are_kept(take: Take) -> None:
    checks = [check("find", arguments={"id": 7}, compare_args=["id"])]
    _, (c,) = take("tau2", tau2_with({"reward": 0.0, "action_checks": checks}, {"id": "other"}))
    find = {"name": "find", "arguments": {"id": 7}, "match": "exact", "compare_args": ["id"]}
    assert c["expected"][0]["tools"] == [find]


@pytest.mark.parametrize(
    "reward_info",
    [
        {"action_checks": [check("cancel", arguments={"id": 7}), OWN_CHECKS[1]]},
        {"action_checks": [check("find", arguments={"id": 8}), OWN_CHECKS[1]]},
        {"action_checks": [check("find", arguments={"id": 7}, compare_args=[]), OWN_CHECKS[1]]},
        {"action_checks": [check("find", arguments={"id": 7}), check("restart")]},
        {"action_checks": OWN_CHECKS[:1]},
        {"action_checks": None, "info": {"action": {"note": "No actions to evaluate"}}},
    ],
)
def test_a_task_definition_that_differs_from_the_simulations_own_checks_is_left_out_with_a_count(
    take: Take, reward_info: dict[str, Any]
) -> None:
    own = {"nl_assertions": [{"nl_assertion": "Agent cancels."}], "communicate_checks": [{"info": "12"}]}
    found = tau2_with({"reward": 1.0} | own | reward_info)
    found["simulations"] += [tau2(id="u-2", trial=1)]
    report, (c, other) = take("tau2", found)
    assert {"goal", "profile"}.isdisjoint(c)
    assert (c["expected"][0]["answer"], c["expected"][0]["assertions"]) == ("12", ["Agent cancels."])
    checks = reward_info["action_checks"] or []
    names = [call["name"] for call in c["expected"][0].get("tools") or ()]
    assert names == [action["action"]["name"] for action in checks]
    assert other["goal"]
    assert (report.n_imported, report.n_refused) == (2, 0)
    (note,) = report.notes
    begins = "1 of 2 conversations: the goal and the ground truth of the task definition are omitted because"
    assert note.startswith(begins)


def named(task_user: str, tool_user: str, said: str = "") -> dict[str, Any]:
    """A file whose task is of one user and whose environment answers with another."""
    task = json.loads(json.dumps(TASK))
    task["user_scenario"]["instructions"]["known_info"] = f"Your user id is {task_user}."
    simulation = tau2()
    simulation["messages"][3]["content"] = json.dumps({"user_id": tool_user})
    simulation["messages"][1]["content"] = f"My line is dead. {said}"
    return one_of(simulation, tasks=[task])


def made_up() -> dict[str, Any]:
    """Only the agent names the other user."""
    file = named("ann_lee_1", "bob_ray_2")
    file["simulations"][0]["messages"][3]["content"] = "Error: User bob_ray_2 not found"
    return file


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        (made_up(), True),
        (named("ann_lee_1", "ann_lee_1"), True),
        (named("ann_lee_1", "bob_ray_2"), False),
        (named("ann_lee_1", "bob_ray_2", "I am ann_lee_1."), True),  # the environment named a third person
        (named("unknown", "bob_ray_2"), True),  # the definition names no user id
    ],
)
def test_a_task_definition_of_another_user_is_left_out(take: Take, file: dict[str, Any], fits: bool) -> None:
    report, (c,) = take("tau2", file)
    assert ("goal" in c, "expected" in c, len(report.notes)) == (fits, fits, 0 if fits else 1)


@pytest.mark.parametrize(
    ("instructions", "asked", "task_set"),
    [
        ({"domain": "airline"}, None, "airline"),
        ({"domain": "airline"}, "mine", "mine"),
        ({"domain": ""}, None, "tau2"),
        ("Be brief.", None, "tau2"),
    ],
)
def test_the_task_set_of_a_tau2_file_is_its_domain_unless_asked_otherwise(
    take: Take, instructions: object, asked: str | None, task_set: str
) -> None:
    task = {"id": "t", "user_scenario": {"instructions": instructions}}
    report, _ = take("tau2", one_of(tau2(), tasks=[task]), task_set=asked)
    assert f"task_set: {task_set}\n" in (report.folder / "session.yaml").read_text()


def test_tau2_messages_are_all_kept_with_calls_of_the_user_errors_and_costs(take: Take) -> None:
    _, (c,) = take("tau2", one_of(tau2(agent_cost=0.0)))
    messages = c["messages"]
    roles = ["assistant", "user", "assistant", "tool", "user", "tool", "assistant"]
    assert [m["role"] for m in messages] == roles
    # a cost of 0 is unknown
    assert messages[0] == {"role": "assistant", "content": "Hi!", "timestamp": "2025-01-01T00:00:00"}
    assert "agent_cost_usd" not in c["metadata"]
    assert (messages[1]["usage"], messages[1]["cost_usd"]) == ({"prompt_tokens": 4}, 0.01)
    assert messages[3] == {"role": "tool", "content": "no such line", "tool_call_id": "c1", "is_error": True}
    assert messages[4]["tool_calls"] == [{"id": "c2", "name": "restart"}]
    assert messages[6] == {"role": "assistant", "content": ""}


def test_tau2_simulations_that_share_an_id_get_ids_from_task_and_trial(take: Take) -> None:
    _, found = take("tau2", one_of(tau2(), tau2(trial=1), tau2(trial=1, seed=8)))
    named = [(c["conversation_id"], c["trial"]) for c in found]
    assert named == [("u-1", 0), ("s:t-1", 1), ("s:t-2", 2)]


def test_a_tau2_file_without_simulations_says_what_was_expected(take: Take) -> None:
    report, _ = take("tau2", {"tasks": [TASK]})
    assert [(r.line, "tasks and simulations" in r.reason) for r in report.refusals] == [(0, True)]


TWO = [{"messages": [USER, AGENT]}, {"messages": [USER]}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", lines([TWO[0], [USER]])),
        ("b.json", json.dumps(TWO).encode()),
        ("c.json", json.dumps([[USER, AGENT], [USER]]).encode()),
        ("d.json", json.dumps(TWO, indent=2).encode()),
        ("e.txt", lines([[USER, AGENT], [USER]])),
    ],
)
def test_chat_files_are_read_by_line_and_as_arrays(take: Take, name: str, content: bytes) -> None:
    report, found = take("openai", content, name)
    assert report.refusals == ()
    assert [(c["conversation_id"], len(c["messages"])) for c in found] == [("s:1", 2), ("s:2", 1)]


@pytest.mark.parametrize("value", [{"messages": [USER, AGENT]}, [USER, AGENT]])
@pytest.mark.parametrize("indent", [None, 2])
def test_one_conversation_fills_a_file_pretty_printed_or_not(take: Take, value: object, indent: int) -> None:
    report, found = take("openai", json.dumps(value, indent=indent).encode())
    assert report.refusals == ()
    assert [len(c["messages"]) for c in found] == [2]


@pytest.mark.parametrize("first", [b'{"messages": [\n', b'[{"role": "user"\n'])
def test_a_bad_first_line_does_not_hide_the_others(take: Take, first: bytes) -> None:
    report, _ = take("openai", first + lines([[USER, AGENT]]), "a.jsonl")
    assert (report.n_imported, [r.line for r in report.refusals]) == (1, [1])


def test_known_keys_of_a_chat_line_are_used_and_unknown_ones_kept(take: Take) -> None:
    known = {"id": "c-1", "task_id": 7, "trial": 2, "goal": "Know", "tools": [{"type": "function"}]}
    line = {"messages": [USER, AGENT], "reward": 0.0, "model": "m", "metadata": {"seed": 1}} | known
    _, (c,) = take("openai", lines([line]))
    assert (c["conversation_id"], c["task_id"], c["trial"], c["goal"]) == ("c-1", "7", 2, "Know")
    assert c["tools"] == [{"type": "function"}]
    assert c["outcome"] == {"correct": False, "reward": 0.0, "source": "openai reward", "basis": "reward"}
    assert c["metadata"] == {"seed": 1, "model": "m"}


def test_arguments_that_are_a_python_dict_in_text_are_read_and_noted(take: Take) -> None:
    text, twice = "{'city': 'Oslo', 'days': (1, 2), 'exact': True, 'note': None}", "{'a': 1, 'a': 2}"
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]},
        {"role": "assistant", "tool_calls": [{"name": "f", "arguments": twice}]},
    ]
    _, (c,) = take("openai", lines([messages]))
    read = {"city": "Oslo", "days": [1, 2], "exact": True, "note": None}
    note = "read as a Python literal"
    assert c["messages"][1]["tool_calls"] == [{"name": "f", "arguments": read, "note": note}]
    assert c["messages"][2]["tool_calls"] == [{"name": "f", "arguments": twice}]
    # what was written reads back the same, note included
    again = Conversation.model_validate(c)
    assert [call.note for turn in again.turns() for call in turn.tool_calls] == [note, None]


def test_variants_of_chat_messages_are_understood(take: Take) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "not json"}},
        {"role": "function", "name": "f", "content": {"ok": True}},
        {"role": "assistant", "content": None, "refusal": "I cannot.", "annotations": []},
    ]
    report, (c,) = take("openai", lines([messages]))
    assert ["'image_url'" in refusal.reason for refusal in report.refusals] == [True]
    assert c["messages"] == [
        {"role": "user", "content": "see"},
        {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "not json"}]},
        {"role": "tool", "name": "f", "content": '{"ok": true}'},
        {"role": "assistant", "content": "I cannot."},
    ]


def test_a_repeated_conversation_id_is_refused_with_its_record(take: Take) -> None:
    chat = [{"id": "x", "messages": [USER]}, {"id": "x", "messages": [AGENT]}]
    report, found = take("openai", lines(chat))
    assert len(found) == 1
    assert [(r.line, r.reason) for r in report.refusals] == [
        (2, "conversation_id 'x' occurs earlier in the file; only the first one is imported")
    ]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"correct": "yes"}, 'correct is "yes"; expected true, false, 1, 0 or null'),
        ({"correct": 0.5}, "correct is 0.5; expected"),
        ({"reward": "high"}, 'reward is "high"; expected a finite number'),
        ({"trial": -1}, "trial is -1; expected a whole number from 0"),
        ({"trial": 2**63, "task_id": "t"}, "trial is 9223372036854775808; expected"),
        ({"trial": True, "task_id": "t"}, "trial is true; expected"),
        ({"conversation_id": {"a": 1}}, 'conversation_id is {"a": 1}; expected a text or a whole number'),
        ({"task_id": ["t"]}, 'task_id is ["t"]; expected'),
    ],
)
def test_an_unreadable_field_refuses_its_record(tmp_path: Path, field: dict[str, Any], reason: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps({"messages": [USER, AGENT], **field}) + "\n")
    (found,) = openai.read(Source(path, "s"))
    assert isinstance(found, Refusal)
    assert (found.file, found.line) == ("f.jsonl", 1)
    assert found.reason.startswith(reason)
