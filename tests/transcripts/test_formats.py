"""What each format's records become."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval.formats.refusals import Refusal
from agent_eval.transcripts.importers import ImportReport, import_file, openai
from agent_eval.transcripts.importers.base import Source
from agent_eval.transcripts.models import Conversation
from tests.transcripts.making import AGENT, USER, lines, write_json

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}


def take(format_name: str, path: Path) -> tuple[ImportReport, list[dict[str, Any]]]:
    report = import_file(
        format_name, path, sessions_folder=path.parent / "sessions", agent_id="a", session_id="s"
    )
    file = report.folder / "conversations.jsonl"
    return report, [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def tau1(task_id: object = 0, trial: object = 0, reward: object = 1.0, **fields: object) -> dict[str, Any]:
    action = {"name": "cancel", "kwargs": {"id": 7}}
    info = {
        "task": {"instruction": "Cancel it.", "actions": [action], "outputs": ["12"], "user_id": "u"},
        "user_cost": 0.1,
    }
    traj = [{"role": "system", "content": "Policy"}, USER, {**AGENT, "content": None, "tool_calls": [CALL]}]
    traj.append({"role": "tool", "tool_call_id": "c1", "name": "find", "content": "found"})
    return {"task_id": task_id, "trial": trial, "reward": reward, "info": info, "traj": traj} | fields


def test_a_tau_bench_record_keeps_its_messages_goal_truth_and_outcome(tmp_path: Path) -> None:
    _, (c,) = take("tau-bench", write_json(tmp_path / "r.json.gz", [tau1(task_id=3, trial=1)]))
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
        (1.0, {}, True),
        (0.9999995, {}, True),
        (1, {}, True),
        (0.0, {}, False),
        (-5e-7, {}, False),
        (0.5, {}, None),
        (0.99999, {}, None),
        (None, {}, None),
        (True, {}, True),
        (False, {}, False),
        (True, {"traj": []}, True),
        (False, {"traj": []}, False),
        (0.3, {"base_success": True}, True),
        (1.0, {"base_success": False}, False),
        (1.0, {"base_success": None}, True),
        (0.7, {"info": {"reward_info": {"base_success": False}}}, False),
    ],
)
def test_correct_is_base_success_else_a_reward_close_to_0_or_1_else_unknown(
    tmp_path: Path, reward: object, fields: dict[str, object], correct: bool | None
) -> None:
    _, (c,) = take("tau-bench", write_json(tmp_path / "r.json", [tau1(reward=reward, **fields)]))
    assert c.get("outcome", {}).get("correct") == correct


def without_task_and_reward_flags() -> dict[str, Any]:
    run: dict[str, Any] = {"task_id": None, "traj": [USER, AGENT], "messages": [USER, AGENT], "info": {}}
    rewards: list[dict[str, Any]] = [{"reward": r, "reward_info": {"reward": r}} for r in (True, False, 0.0)]
    return {"simulations": [run | reward for reward in rewards], "tasks": [{"id": None}]}


@pytest.mark.parametrize("format_name", ["tau-bench", "tau2", "openai"])
def test_a_null_task_id_is_no_task_and_a_reward_of_true_is_1_in_every_format(
    tmp_path: Path, format_name: str
) -> None:
    whole = without_task_and_reward_flags()
    runs = whole["simulations"]
    report, found = take(
        format_name, write_json(tmp_path / "r.json", whole if format_name == "tau2" else runs)
    )
    assert [(c["conversation_id"], c.get("task_id")) for c in found] == [(f"s:{i}", None) for i in (1, 2, 3)]
    assert [(c["outcome"]["correct"], c["outcome"]["reward"]) for c in found] == [
        (True, 1.0), (False, 0.0), (False, 0.0),
    ]  # fmt: skip
    assert [c.get("metadata", {}).get("recorded_reward") for c in found] == [True, False, None]
    assert report.notes == ("2 of 3 conversations: the reward is true or false and is read as 1 or 0.",)


def test_a_tau_bench_error_beside_info_is_read_like_one_in_it(tmp_path: Path) -> None:
    crash = {"error": "KeyError: 'name'"}
    runs = [
        {"task_id": 0, "error": "openai.RateLimitError: Error code: 429"},
        tau1(reward=0.0, info={}, **crash),
        tau1(trial=1, reward=0.0, info={"error": "Connection error."}, **crash),
        tau1(trial=2, reward=1.0),
    ]
    _, found = take("tau-bench", write_json(tmp_path / "r.json", runs))
    assert [(c["outcome"].get("outcome_class"), c["outcome"]["source"]) for c in found] == [
        ("harness_error", "tau-bench error"),
        ("unexplained_error", "tau-bench error"),
        ("harness_error", "tau-bench info.error"),
        (None, "tau-bench reward"),
    ]
    assert found[1]["metadata"]["error"] == crash["error"]


def test_a_task_without_actions_says_nothing_of_tools(tmp_path: Path) -> None:
    info = {"task": {"instruction": "Ask.", "actions": [], "outputs": []}}
    _, (c,) = take("tau-bench", write_json(tmp_path / "r.json", [tau1(info=info)]))
    assert "expected" not in c


def test_trials_that_hold_the_tasks_index_are_renumbered_and_keep_what_was_recorded(tmp_path: Path) -> None:
    records = [tau1(task_id=5, trial=5, reward=r) for r in (0.0, 1.0, 0.25)] + [tau1(task_id=0, trial=0)]
    _, found = take("tau-bench", write_json(tmp_path / "r.json", records))
    assert [(c["task_id"], c["trial"]) for c in found] == [("5", 5), ("5", 0), ("5", 1), ("0", 0)]
    assert len({c["conversation_id"] for c in found}) == 4
    assert [c["metadata"].get("recorded_trial") for c in found] == [None, 5, 5, None]


def test_a_record_that_repeats_another_word_for_word_is_a_duplicate(tmp_path: Path) -> None:
    report, found = take("tau-bench", write_json(tmp_path / "r.json", [tau1(), tau1(trial=1), tau1()]))
    assert len(found) == 2
    assert [(r.line, r.reason) for r in report.refusals] == [(3, "the same as record 1, which was imported")]


@pytest.mark.parametrize("trial", [{}, {"trial": None}])
def test_equal_records_that_name_no_trial_are_trials_of_their_own(
    tmp_path: Path, trial: dict[str, None]
) -> None:
    runs = [
        {"task_id": 0, "reward": r, "traj": [USER, AGENT], "info": {}} | trial for r in (0.0, 0.0, 0.0, 1.0)
    ]
    report, found = take("tau-bench", write_json(tmp_path / "r.json", runs))
    assert report.n_refused == 0
    assert [(c["trial"], c["outcome"]["correct"]) for c in found] == [
        (0, False), (1, False), (2, False), (3, True),
    ]  # fmt: skip
    (tmp_path / "c.jsonl").write_bytes(lines({"messages": [USER, AGENT]} | run for run in runs))
    _, chat = take("openai", _moved(tmp_path / "c.jsonl", tmp_path / "chat"))
    named = ("conversation_id", "task_id", "trial")
    assert [[c[key] for key in named] for c in chat] == [[c[key] for key in named] for c in found]
    assert [c["outcome"]["correct"] for c in chat] == [c["outcome"]["correct"] for c in found]

    simulations = [{"task_id": "0", "reward_info": {"reward": 0.0}, "messages": [USER, AGENT]} | trial] * 2
    named_twice = [simulations[0] | {"id": "i"}] * 2
    path = write_json(tmp_path / "t.json", {"tasks": [], "simulations": [*simulations, *named_twice]})
    report, found = take("tau2", _moved(path, tmp_path / "tau2"))
    assert ([c["trial"] for c in found], [r.line for r in report.refusals]) == ([0, 1, 2], [4])


def _moved(path: Path, folder: Path) -> Path:
    folder.mkdir()
    return path.rename(folder / path.name)


def test_bad_tau_bench_records_are_refused_by_number(tmp_path: Path) -> None:
    robot = tau1(trial=1, traj=[{"role": "robot"}])
    nothing = tau1(trial=2, traj=[], reward=None)
    records = [tau1(), "text", {"task_id": 1}, robot, nothing, tau1(trial=3, traj=[7])]
    report, found = take("tau-bench", write_json(tmp_path / "r.json", records))
    assert len(found) == 1
    assert [r.line for r in report.refusals] == [2, 3, 4, 5, 6]
    assert "messages[0].role is 'robot'" in report.refusals[2].reason


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_an_array_that_breaks_off_keeps_the_records_before_the_break(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps([tau1(trial=i) for i in range(3)])[:-cut])
    report, found = take("tau-bench", path)
    assert len(found) == (3 if cut == 1 else 2)
    assert [r.line for r in report.refusals] == [len(found) + 1]


def tau2(**fields: object) -> dict[str, Any]:
    messages = [
        {
            "role": "assistant",
            "content": "Hi!",
            "tool_calls": None,
            "cost": 0.0,
            "timestamp": "2025-01-01T00:00:00",
            "raw_data": None,
        },
        {
            "role": "user",
            "content": "My line is dead",
            "tool_calls": None,
            "cost": 0.01,
            "usage": {"prompt_tokens": 4},
            "raw_data": {"x": 1},
        },
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "name": "find", "arguments": {"id": 7}, "requestor": "assistant"}],
            "cost": 0.02,
        },
        {"role": "tool", "id": "c1", "content": "no such line", "error": True, "requestor": "assistant"},
        {
            "role": "user",
            "content": None,
            "tool_calls": [{"id": "c2", "name": "restart", "arguments": {}, "requestor": "user"}],
        },
        {"role": "tool", "id": "c2", "content": "restarted", "error": False, "requestor": "user"},
        {"role": "assistant", "content": "", "tool_calls": None},
    ]
    return {
        "id": "u-1",
        "task_id": "t",
        "trial": 0,
        "messages": messages,
        "reward_info": {"reward": 1.0},
        "termination_reason": "user_stop",
        "agent_cost": 0.03,
        "duration": 4.5,
        "seed": 9,
    } | fields


TASK = {
    "id": "t",
    "user_scenario": {
        "persona": "Patient.",
        "instructions": {
            "reason_for_call": "No signal.",
            "known_info": "You are Ann.",
            "task_instructions": "Be brief.",
        },
    },
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
def test_a_tau2_simulation_gets_goal_profile_and_truth_from_its_task_in_any_order(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    parts = {"tasks": [TASK], "simulations": [tau2()]}
    _, (c,) = take(
        "tau2", write_json(tmp_path / "r.json", {"info": {}} | {name: parts[name] for name in order})
    )
    assert (c["conversation_id"], c["task_id"], c["trial"]) == ("u-1", "t", 0)
    assert (c["goal"], c["profile"]) == ("No signal.\n\nBe brief.", "Patient.\n\nYou are Ann.")
    find = {"name": "find", "arguments": {"id": 7}, "match": "exact"}
    restart = {"name": "restart", "arguments": {}, "match": "exact", "requestor": "user"}
    assert c["expected"] == [{"tools": [find, restart], "assertions": ["Agent apologises."]}]
    assert c["outcome"] == {"correct": True, "reward": 1.0, "source": "tau2 reward", "basis": "reward"}
    assert c["metadata"] == {
        "termination_reason": "user_stop",
        "duration": 4.5,
        "seed": 9,
        "agent_cost_usd": 0.03,
        "simulation_id": "u-1",
    }


def check(name: str, match: bool = True, **action: object) -> dict[str, Any]:
    """One of a simulation's own action checks, by default of the agent's call find(id=7)."""
    given: dict[str, object] = {"name": name, "arguments": {}, "requestor": "assistant", "compare_args": None}
    return {"action": given | action, "action_match": match}


OWN_CHECKS = [check("find", arguments={"id": 7}), check("restart", False, requestor="user")]


def tau2_with(reward_info: dict[str, Any], task: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"tasks": [TASK if task is None else task], "simulations": [tau2(reward_info=reward_info)]}


def test_the_truth_of_a_tau2_simulation_is_what_it_was_checked_against(tmp_path: Path) -> None:
    reward = {
        "reward": 0.0,
        "action_checks": [*reversed(OWN_CHECKS)],
    }  # the order of the definition is no matter
    _, (c,) = take("tau2", write_json(tmp_path / "r.json", tau2_with(reward)))
    assert [call["name"] for call in c["expected"][0]["tools"]] == ["restart", "find"]
    assert c["goal"] == "No signal.\n\nBe brief."
    assert c["metadata"]["action_matches"] == [False, True]
    assert "task_definition_refused" not in c["metadata"]


def test_compare_args_of_a_checked_action_are_kept(tmp_path: Path) -> None:
    checks = [check("find", arguments={"id": 7}, compare_args=["id"])]
    task = {"id": "other"}
    found = tau2_with({"reward": 0.0, "action_checks": checks}, task)
    _, (c,) = take("tau2", write_json(tmp_path / "r.json", found))
    assert c["expected"][0]["tools"] == [
        {"name": "find", "arguments": {"id": 7}, "match": "exact", "compare_args": ["id"]}
    ]


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
    tmp_path: Path, reward_info: dict[str, Any]
) -> None:
    own = {"nl_assertions": [{"nl_assertion": "Agent cancels."}], "communicate_checks": [{"info": "12"}]}
    found = tau2_with({"reward": 1.0} | own | reward_info)
    found["simulations"] += [tau2(id="u-2", trial=1)]
    report, (c, other) = take("tau2", write_json(tmp_path / "r.json", found))
    assert "goal" not in c
    assert "profile" not in c
    assert (c["expected"][0]["answer"], c["expected"][0]["assertions"]) == ("12", ["Agent cancels."])
    checks = reward_info["action_checks"] or []
    names = [call["name"] for call in c["expected"][0].get("tools") or ()]
    assert names == [action["action"]["name"] for action in checks]
    assert other["goal"]
    assert (report.n_imported, report.n_refused) == (2, 0)
    (note,) = report.notes
    assert note.startswith(
        "1 of 2 conversations: the goal and the ground truth of the task definition are omitted because its "
    )


def named(task_user: str, tool_user: str, said: str = "") -> dict[str, Any]:
    """A file whose task is of one user and whose environment answers with another."""
    task = json.loads(json.dumps(TASK))
    task["user_scenario"]["instructions"]["known_info"] = f"Your user id is {task_user}."
    simulation = tau2()
    simulation["messages"][3]["content"] = json.dumps({"user_id": tool_user})
    simulation["messages"][1]["content"] = f"My line is dead. {said}"
    return {"tasks": [task], "simulations": [simulation]}


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        (named("ann_lee_1", "ann_lee_1"), True),
        (named("ann_lee_1", "bob_ray_2"), False),
        (named("ann_lee_1", "bob_ray_2", "I am ann_lee_1."), True),  # the environment named a third person
        (named("unknown", "bob_ray_2"), True),  # the definition names no user id
    ],
)
def test_a_task_definition_of_another_user_is_left_out(
    tmp_path: Path, file: dict[str, Any], fits: bool
) -> None:
    report, (c,) = take("tau2", write_json(tmp_path / "r.json", file))
    assert ("goal" in c, "expected" in c, len(report.notes)) == (fits, fits, 0 if fits else 1)


def test_a_user_id_that_only_the_agent_made_up_says_nothing_of_the_task(tmp_path: Path) -> None:
    file = named("ann_lee_1", "bob_ray_2")
    file["simulations"][0]["messages"][3]["content"] = "Error: User bob_ray_2 not found"
    _, (c,) = take("tau2", write_json(tmp_path / "r.json", file))
    assert c["goal"]


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
    tmp_path: Path, instructions: object, asked: str | None, task_set: str
) -> None:
    task = {"id": "t", "user_scenario": {"instructions": instructions}}
    path = write_json(tmp_path / "r.json", {"tasks": [task], "simulations": [tau2()]})
    report = import_file("tau2", path, sessions_folder=tmp_path / "sessions", agent_id="a", task_set=asked)
    assert f"task_set: {task_set}\n" in (report.folder / "session.yaml").read_text()


def test_tau2_messages_are_all_kept_with_calls_of_the_user_errors_and_costs(tmp_path: Path) -> None:
    _, (c,) = take("tau2", write_json(tmp_path / "r.json", {"tasks": [], "simulations": [tau2()]}))
    messages = c["messages"]
    assert [m["role"] for m in messages] == [
        "assistant",
        "user",
        "assistant",
        "tool",
        "user",
        "tool",
        "assistant",
    ]
    assert messages[0] == {
        "role": "assistant",
        "content": "Hi!",
        "timestamp": "2025-01-01T00:00:00",
    }  # cost 0: unknown
    assert (messages[1]["usage"], messages[1]["cost_usd"]) == ({"prompt_tokens": 4}, 0.01)
    assert messages[3] == {"role": "tool", "content": "no such line", "tool_call_id": "c1", "is_error": True}
    assert messages[4]["tool_calls"] == [{"id": "c2", "name": "restart"}]
    assert messages[6] == {"role": "assistant", "content": ""}


def test_a_recorded_agent_cost_of_zero_is_unknown(tmp_path: Path) -> None:
    _, (c,) = take(
        "tau2", write_json(tmp_path / "r.json", {"tasks": [], "simulations": [tau2(agent_cost=0.0)]})
    )
    assert "agent_cost_usd" not in c["metadata"]


def test_tau2_simulations_that_share_an_id_get_ids_from_task_and_trial(tmp_path: Path) -> None:
    simulations = [tau2(), tau2(trial=1), tau2(trial=1, seed=8)]
    _, found = take("tau2", write_json(tmp_path / "r.json", {"tasks": [], "simulations": simulations}))
    assert [c["conversation_id"] for c in found] == ["u-1", "s:t-1", "s:t-2"]
    assert [c["trial"] for c in found] == [0, 1, 2]


def test_a_tau2_file_without_simulations_says_what_was_expected(tmp_path: Path) -> None:
    report, _ = take("tau2", write_json(tmp_path / "r.json", {"tasks": [TASK]}))
    assert [(r.line, "tasks and simulations" in r.reason) for r in report.refusals] == [(0, True)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", lines([{"messages": [USER, AGENT]}, [USER]])),
        ("b.json", json.dumps([{"messages": [USER, AGENT]}, {"messages": [USER]}]).encode()),
        ("c.json", json.dumps([[USER, AGENT], [USER]]).encode()),
        ("d.json", json.dumps([{"messages": [USER, AGENT]}, {"messages": [USER]}], indent=2).encode()),
        ("e.txt", lines([[USER, AGENT], [USER]])),
    ],
)
def test_chat_files_are_read_by_line_and_as_arrays(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    report, found = take("openai", tmp_path / name)
    assert report.refusals == ()
    assert [len(c["messages"]) for c in found] == [2, 1]
    assert [c["conversation_id"] for c in found] == ["s:1", "s:2"]


@pytest.mark.parametrize("value", [{"messages": [USER, AGENT]}, [USER, AGENT]])
@pytest.mark.parametrize("indent", [None, 2])
def test_one_conversation_fills_a_file_pretty_printed_or_not(
    tmp_path: Path, value: object, indent: int | None
) -> None:
    (tmp_path / "one.json").write_text(json.dumps(value, indent=indent))
    report, found = take("openai", tmp_path / "one.json")
    assert report.refusals == ()
    assert [len(c["messages"]) for c in found] == [2]


def test_a_bad_first_line_does_not_hide_the_others(tmp_path: Path) -> None:
    for name, first in (("a.jsonl", b'{"messages": [\n'), ("b.jsonl", b'[{"role": "user"\n')):
        (tmp_path / name).write_bytes(first + lines([[USER, AGENT]]))
        folder = tmp_path / name.replace(".", "-")
        report = import_file("openai", tmp_path / name, sessions_folder=folder, agent_id="a")
        assert (report.n_imported, [r.line for r in report.refusals]) == (1, [1])


def test_known_keys_of_a_chat_line_are_used_and_unknown_ones_kept(tmp_path: Path) -> None:
    line = {
        "messages": [USER, AGENT],
        "id": "c-1",
        "task_id": 7,
        "trial": 2,
        "goal": "Know",
        "tools": [{"type": "function"}],
        "reward": 0.0,
        "model": "m",
        "metadata": {"seed": 1},
    }
    (tmp_path / "a.jsonl").write_bytes(lines([line]))
    _, (c,) = take("openai", tmp_path / "a.jsonl")
    assert (c["conversation_id"], c["task_id"], c["trial"], c["goal"]) == ("c-1", "7", 2, "Know")
    assert c["tools"] == [{"type": "function"}]
    assert c["outcome"] == {"correct": False, "reward": 0.0, "source": "openai reward", "basis": "reward"}
    assert c["metadata"] == {"seed": 1, "model": "m"}


def test_arguments_that_are_a_python_dict_in_text_are_read_and_noted(tmp_path: Path) -> None:
    text = "{'city': 'Oslo', 'days': (1, 2), 'exact': True, 'note': None}"
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]},
        {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{'a': 1, 'a': 2}"}]},
    ]
    (tmp_path / "a.jsonl").write_bytes(lines([messages]))
    _, (c,) = take("openai", tmp_path / "a.jsonl")
    assert c["messages"][1]["tool_calls"] == [
        {
            "name": "f",
            "arguments": {"city": "Oslo", "days": [1, 2], "exact": True, "note": None},
            "note": "read as a Python literal",
        }
    ]
    assert c["messages"][2]["tool_calls"] == [{"name": "f", "arguments": "{'a': 1, 'a': 2}"}]
    # what was written reads back the same, note included
    again = Conversation.model_validate(c)
    assert [call.note for turn in again.turns() for call in turn.tool_calls] == [
        "read as a Python literal",
        None,
    ]


def test_variants_of_chat_messages_are_understood(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "not json"}},
        {"role": "function", "name": "f", "content": {"ok": True}},
        {"role": "assistant", "content": None, "refusal": "I cannot.", "annotations": []},
    ]
    (tmp_path / "a.jsonl").write_bytes(lines([messages]))
    _, (c,) = take("openai", tmp_path / "a.jsonl")
    assert c["messages"] == [
        {"role": "user", "content": "see\n[image_url]"},
        {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "not json"}]},
        {"role": "tool", "name": "f", "content": '{"ok": true}'},
        {"role": "assistant", "content": "I cannot."},
    ]


def test_a_repeated_conversation_id_is_refused_with_its_record(tmp_path: Path) -> None:
    chat = [{"id": "x", "messages": [USER]}, {"id": "x", "messages": [AGENT]}]
    (tmp_path / "a.jsonl").write_bytes(lines(chat))
    report, found = take("openai", tmp_path / "a.jsonl")
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
def test_a_field_that_cannot_be_read_refuses_its_record_by_key(
    tmp_path: Path, field: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps({"messages": [USER, AGENT], **field}) + "\n")
    (found,) = openai.read(Source(path, "s"))
    assert isinstance(found, Refusal)
    assert (found.file, found.line) == ("f.jsonl", 1)
    assert found.reason.startswith(reason)
