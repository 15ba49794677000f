"""Bad input at the command line: one clear line, the right exit code, nothing half done."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.warm import agent_eval

pytestmark = pytest.mark.slow

CHAT = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path


def imported(
    root: Path, text: str | bytes, *extra: str, agent: str = "a"
) -> subprocess.CompletedProcess[str]:
    source = root / "source.jsonl"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    return agent_eval(root, "import", "openai", str(source), "--agent", agent, *extra)


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def test_an_unknown_format_names_those_known(root: Path) -> None:
    result = agent_eval(root, "import", "xml", "x", "--agent", "a")
    assert result.returncode == 2
    assert "openai" in only_line(result)


@pytest.mark.parametrize("agent", ["a|b", "../a", "a/b", "", ".a", "A"])
def test_an_agent_id_that_is_no_slug_is_refused_and_nothing_is_written(root: Path, agent: str) -> None:
    result = imported(root, json.dumps(CHAT), agent=agent)
    assert result.returncode == 2
    assert repr(agent) in only_line(result)
    assert files(root) == {"source.jsonl"}


def test_a_missing_file_a_directory_and_an_empty_file_are_told_apart(root: Path) -> None:
    missing = agent_eval(root, "import", "openai", "nowhere.jsonl", "--agent", "a")
    (root / "nothing").mkdir()
    folder = agent_eval(root, "import", "openai", str(root / "nothing"), "--agent", "a")
    empty = imported(root, "")
    assert [r.returncode for r in (missing, folder, empty)] == [2, 2, 2]
    for result in (missing, folder, empty):
        assert "Traceback" not in result.stderr
    assert "nowhere.jsonl" in missing.stderr
    assert "folder" in folder.stderr or "directory" in folder.stderr
    assert "empty" in empty.stderr


def test_rewards_that_tell_no_success_are_reported_also_beside_one_that_does(root: Path) -> None:
    rewards = (0.85, 0.85, 0.0, 1.0)
    chats = [json.dumps(CHAT | {"task_id": str(i), "reward": r}) for i, r in enumerate(rewards)]
    result = imported(root, "\n".join(chats))
    assert result.returncode == 1
    assert only_line(result).startswith(
        "reading error: 2 rewards are neither 0 nor 1; their trials count as unknown (trials that passed: 1)"
    )
    (root / "agent_eval.toml").write_text("success_reward = 0.8\n")
    result = imported(root, "\n".join(chats))
    assert (result.returncode, result.stderr) == (0, "")


def test_success_components_that_contradict_each_other_are_reported(root: Path) -> None:
    chat = CHAT | {"reward": 0.8, "base_success": True, "info": {"base_success": False}}
    result = imported(root, json.dumps(chat))
    assert result.returncode == 1
    assert only_line(result).startswith("reading error: 1 records contain base_success more than once")


def test_conversations_that_a_second_import_removes_are_reported(root: Path) -> None:
    chats = [json.dumps(CHAT | {"task_id": "0", "trial": i, "correct": i < 5}) for i in range(20)]
    assert imported(root, "\n".join(chats)).returncode == 0
    again = imported(root, "\n".join(chats[:5]))
    assert again.returncode == 1
    wanted = "15 of the 20 earlier conversations of the session are not in this file and were removed."
    assert only_line(again) == wanted
    assert imported(root, "\n".join(chats[:5])).returncode == 0


def test_a_truncated_line_is_refused_by_number_and_the_rest_goes_on(root: Path) -> None:
    result = imported(
        root,
        json.dumps(CHAT) + "\n" + json.dumps(CHAT)[:30] + "\n" + json.dumps(CHAT | {"task_id": "3"}) + "\n",
    )
    assert result.returncode == 1
    assert "source.jsonl:2:" in result.stderr
    assert "2 conversations imported" in result.stdout


def test_a_message_without_role_is_named_by_its_place(root: Path) -> None:
    result = imported(root, json.dumps(CHAT) + "\n" + json.dumps({"messages": [{"content": "x"}]}) + "\n")
    assert result.returncode == 1
    assert "source.jsonl:2:" in result.stderr
    assert "role" in result.stderr


def test_a_second_conversation_of_one_id_is_refused(root: Path) -> None:
    line = json.dumps(CHAT | {"conversation_id": "same"})
    other = json.dumps({"conversation_id": "same", "messages": [{"role": "user", "content": "Another"}]})
    result = imported(root, f"{line}\n{other}\n")
    assert result.returncode == 1
    assert "same" in result.stderr


def test_an_unknown_version_names_those_published(root: Path) -> None:
    for arguments in (["run"], ["leaderboard"], ["gate"], ["reliability"]):
        result = agent_eval(root, *arguments, "--methodology", "9.9.9")
        assert result.returncode == 2
        assert "1.3.0" in only_line(result)


def test_outside_a_project_the_root_rule_is_told(tmp_path: Path) -> None:
    result = agent_eval(tmp_path, "leaderboard")
    assert result.returncode == 2
    assert "AGENT_EVAL_HOME" in only_line(result)


def test_an_unknown_setting_is_named_with_those_known(root: Path) -> None:
    (root / "agent_eval.toml").write_text("jugde = 1\n")
    result = agent_eval(root, "leaderboard")
    assert result.returncode == 2
    assert "jugde" in only_line(result)
    assert "max_unscored_share" in result.stderr


def test_an_empty_project_says_what_to_do(root: Path) -> None:
    assert "agent-eval import auto" in agent_eval(root, "leaderboard").stdout
    assert agent_eval(root, "gate").returncode == 2


def test_an_id_that_another_session_holds_is_refused_at_once_and_not_lost_at_the_next_run(root: Path) -> None:
    line = json.dumps(CHAT | {"conversation_id": "one"}) + "\n"
    fresh = json.dumps(CHAT | {"conversation_id": "two"}) + "\n"
    assert imported(root, line, "--session", "may").returncode == 0
    assert imported(root, line, "--session", "may").returncode == 0
    again = imported(root, line + fresh, "--session", "june")
    assert again.returncode == 1
    assert "source.jsonl:1:" in again.stderr
    assert "'may'" in again.stderr
    assert "1 conversation imported" in again.stdout
    assert imported(root, line, "--session", "july").returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["import"],
        ["import", "openai", "/no\n\x1b[31msuch", "--agent", "a"],
        ["leaderboard", "--methodology", ""],
        ["leaderboard", "--nosuch", "\x1b[31m"],
        ["run", "--agent", "\udcff"],
        ["reliability", "-k", "9" * 30],
        ["methodology", "show", "9" * 5000 + ".0.0"],
        ["ui", "--port", "99999999"],
    ],
)
def test_hostile_arguments_end_in_one_plain_line(root: Path, arguments: list[str]) -> None:
    result = agent_eval(root, *arguments)
    assert result.returncode == 2
    line = only_line(result)
    assert line.startswith("Error: ")
    assert line.isprintable()
    assert len(line) < 2_100
    assert files(root) == set()


def test_a_number_that_is_none_and_a_key_given_twice_do_not_end_an_array(root: Path) -> None:
    good = '{"task_id": %d, "traj": [{"role": "user", "content": "x"}]}'
    bad = '{"task_id": 8, "reward": NaN, "traj": []}, {"task_id": 9, "traj": [], "traj": []}'
    (root / "r.json").write_text(f"[{good % 1}, {bad}, {good % 2}]")
    result = agent_eval(root, "import", "tau-bench", "r.json", "--agent", "a")
    assert result.returncode == 1
    assert "2 conversations imported" in result.stdout
    assert "r.json:2: not JSON: NaN" in result.stderr
    assert "r.json:3: not JSON: the key 'traj' is given twice" in result.stderr


def test_agents_yaml_is_not_written_through_a_link_out_of_the_data_folder(root: Path, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.yaml"
    outside.write_text("[]\n")
    (root / "data" / "agents.yaml").symlink_to(outside)
    result = imported(root, json.dumps(CHAT))
    assert result.returncode == 2
    assert "leads out of the data folder" in only_line(result)
    assert "1 conversation imported" in result.stdout
    assert outside.read_text() == "[]\n"
