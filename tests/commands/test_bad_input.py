"""Bad input at the command line: one clear line, the right exit code, nothing half done."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.warm import agent_eval

pytestmark = pytest.mark.slow

CHAT = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path


def lines(*chats: dict[str, Any]) -> str:
    return "".join(json.dumps(CHAT | chat) + "\n" for chat in chats)


def imported(root: Path, text: str, *extra: str, agent: str = "a") -> subprocess.CompletedProcess[str]:
    (root / "source.jsonl").write_text(text)
    return agent_eval(root, "import", "openai", "source.jsonl", "--agent", agent, *extra)


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("agent", ["a|b", "../a", "a/b", "", ".a", "A"])
def test_an_agent_id_that_is_no_slug_is_refused_and_nothing_is_written(root: Path, agent: str) -> None:
    result = imported(root, lines({}), agent=agent)
    assert result.returncode == 2
    assert repr(agent) in only_line(result)
    assert files(root) == {"source.jsonl"}


ONE, TWO = "1 conversation imported", "2 conversations imported"
CONTRADICTING = {"reward": 0.8, "base_success": True, "info": {"base_success": False}}


@pytest.mark.parametrize(
    ("text", "code", "said", "printed"),
    [
        ("", 2, "empty", ""),
        (lines({}) + lines({})[:30] + "\n" + lines({"task_id": "3"}), 1, "source.jsonl:2:", TWO),
        (lines({}, {"messages": [{"content": "x"}]}), 1, "role", ONE),
        (lines(*({"conversation_id": "same", "task_id": n} for n in "ab")), 1, "same", ONE),
        (lines(CONTRADICTING), 1, "reading error: 1 records contain base_success more than once", ONE),
    ],
    ids=["empty", "truncated", "role", "id", "contradiction"],
)
def test_what_is_wrong_with_a_record_is_named_and_the_rest_goes_on(
    root: Path, text: str, code: int, said: str, printed: str
) -> None:
    result = imported(root, text)
    assert result.returncode == code
    assert said in only_line(result)
    assert printed in result.stdout


def test_rewards_that_tell_no_success_are_reported_also_beside_one_that_does(root: Path) -> None:
    chats = lines(*({"task_id": str(i), "reward": r} for i, r in enumerate((0.85, 0.85, 0.0, 1.0))))
    result = imported(root, chats)
    assert result.returncode == 1
    assert only_line(result).startswith(
        "reading error: 2 rewards are neither 0 nor 1; their trials count as unknown (trials that passed: 1)"
    )
    (root / "agent_eval.toml").write_text("success_reward = 0.8\n")
    result = imported(root, chats)
    assert (result.returncode, result.stderr) == (0, "")


def test_conversations_that_a_second_import_removes_are_reported(root: Path) -> None:
    chats = [{"task_id": "0", "trial": i, "correct": i < 5} for i in range(20)]
    assert imported(root, lines(*chats)).returncode == 0
    again = imported(root, lines(*chats[:5]))
    assert again.returncode == 1
    wanted = "15 of the 20 earlier conversations of the session are not in this file and were removed."
    assert only_line(again) == wanted
    assert imported(root, lines(*chats[:5])).returncode == 0


def test_an_empty_project_says_what_to_do(root: Path) -> None:
    assert "agent-eval import auto" in agent_eval(root, "leaderboard").stdout
    assert agent_eval(root, "gate").returncode == 2


def test_an_id_that_another_session_holds_is_refused_at_once_and_not_lost_at_the_next_run(root: Path) -> None:
    held, fresh = lines({"conversation_id": "one"}), lines({"conversation_id": "two"})
    assert imported(root, held, "--session", "may").returncode == 0
    assert imported(root, held, "--session", "may").returncode == 0
    again = imported(root, held + fresh, "--session", "june")
    assert again.returncode == 1
    assert "source.jsonl:1:" in again.stderr
    assert "'may'" in again.stderr
    assert "1 conversation imported" in again.stdout
    assert imported(root, held, "--session", "july").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["import"], ""),
        (["import", "xml", "x", "--agent", "a"], "openai"),
        (["import", "openai", "nowhere.jsonl", "--agent", "a"], "nowhere.jsonl"),
        (["import", "openai", "data", "--agent", "a"], "is a folder"),
        (["import", "openai", "/no\n\x1b[31msuch", "--agent", "a"], ""),
        *(
            ([name, "--methodology", "9.9.9"], "1.3.0")
            for name in ("run", "leaderboard", "gate", "reliability")
        ),
        (["leaderboard", "--methodology", ""], ""),
        (["leaderboard", "--nosuch", "\x1b[31m"], ""),
        (["run", "--agent", "\udcff"], ""),
        (["reliability", "-k", "9" * 30], ""),
        (["methodology", "show", "9" * 5000 + ".0.0"], ""),
        (["ui", "--port", "99999999"], ""),
    ],
)
def test_hostile_and_mistaken_arguments_end_in_one_plain_line(
    root: Path, arguments: list[str], said: str
) -> None:
    result = agent_eval(root, *arguments)
    assert result.returncode == 2
    line = only_line(result)
    assert line.startswith("Error: ")
    assert said in line
    assert line.isprintable()
    assert len(line) < 2_100
    assert files(root) == set()


def test_without_a_project_or_with_an_unknown_setting_the_rule_is_told(root: Path) -> None:
    (root / "data").rmdir()
    result = agent_eval(root, "leaderboard")
    assert result.returncode == 2
    assert "AGENT_EVAL_HOME" in only_line(result)
    (root / "agent_eval.toml").write_text("jugde = 1\n")
    result = agent_eval(root, "leaderboard")
    assert result.returncode == 2
    assert "jugde" in only_line(result)
    assert "max_unscored_share" in result.stderr


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
    result = imported(root, lines({}))
    assert result.returncode == 2
    assert "leads out of the data folder" in only_line(result)
    assert "1 conversation imported" in result.stdout
    assert outside.read_text() == "[]\n"
