import stat
from pathlib import Path

import pytest

from agent_eval.errors import ConfigurationError
from agent_eval.transcripts.models import Agent
from agent_eval.transcripts.sessions import add_agent, read_agents


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agents.yaml"


def test_a_missing_or_empty_file_declares_no_agents(file: Path) -> None:
    assert read_agents(file) == ({}, [])
    file.write_text("# none yet\n")
    assert read_agents(file) == ({}, [])


@pytest.mark.parametrize(
    "text",
    [
        "- agent_id: a\n  name: A\n- agent_id: b\n",
        "agents:\n  - agent_id: a\n    name: A\n  - {agent_id: b}\n",
    ],
)
def test_a_list_and_a_mapping_with_the_one_key_agents_are_read_alike(file: Path, text: str) -> None:
    file.write_text(text)
    assert read_agents(file) == ({"a": Agent(agent_id="a", name="A"), "b": Agent(agent_id="b")}, [])


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("- agent_id: a|b", "agent_id is 'a|b'; allowed: lower-case letters"),
        ("- agent_id: ../up", "agent_id is '../up'; allowed: lower-case letters"),
        ("- agent_id: 12", "agent_id is 12; allowed: a text (in YAML, put it in quotes)"),
        ("- {agent_id: b, colour: red}", "unknown key colour; allowed: agent_id, name, category"),
        ("- name: nameless", "agent_id is missing"),
        ("- just-a-text", "an entry must be a mapping"),
        ("- agent_id: good", "agent_id 'good' is declared twice"),
        ("- {agent_id: b, name: x, name: y}", "the key 'name' is given twice"),
        ("- {agent_id: b, name: !!python/object:os.system x}", "could not determine a constructor"),
        ("- {agent_id: b, name: 2026-13-45}", "month must be in 1..12"),
        ('- {agent_id: b, name: !!int ""}', "the text after a tag (!!) is not a value of that type"),
        ("- {agent_id: b, name: !!bool x}", "the text after a tag (!!) is not a value of that type"),
        ("- {agent_id: b, name: !!timestamp x}", "the text after a tag (!!) is not a value of that type"),
        ("- {agent_id: b, <<: {name: c}}", "merge keys (<<) are not supported"),
        ("- {agent_id: b, name: " + "9" * 5000 + "}", "not a value: Exceeds the limit"),
    ],
)
def test_a_bad_entry_is_refused_by_line_and_the_rest_is_read(file: Path, entry: str, reason: str) -> None:
    file.write_text(f"- agent_id: good\n{entry}\n- agent_id: last\n")
    agents, (refusal,) = read_agents(file)
    assert list(agents) == ["good", "last"]
    assert (refusal.file, refusal.line) == ("agents.yaml", 2)
    assert reason in refusal.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- agent_id: [", "not YAML"),
        ("people: []", "expected a list of entries"),
        ("- &x [1]\n- *x\n", "aliases"),
        ("- " + "[" * 40 + "]" * 40, "nested deeper"),
        ("[" * 100_000, "nested deeper"),
        ("agents:\n", "agents: is empty"),
    ],
)
def test_a_file_that_is_no_list_of_entries_is_refused_whole(file: Path, text: str, reason: str) -> None:
    file.write_text(text)
    agents, (refusal,) = read_agents(file)
    assert agents == {}
    assert reason in refusal.reason


def test_a_file_of_another_encoding_and_a_folder_in_its_place_are_refused(file: Path) -> None:
    file.write_bytes(b"- agent_id: caf\xe9\n")
    assert "not UTF-8" in read_agents(file)[1][0].reason
    file.unlink()
    file.mkdir()
    assert "a folder; expected a file" in read_agents(file)[1][0].reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "# ours\n- agent_id: a  # the first\n  name: A\n# the end",
        "agents:  # here\n  - agent_id: a\n    endpoint: {url: x}\n\n# the end\n",
        "agents:\n- agent_id: a\n",
        "[]\n",
        "agents: []  # none yet\n",
        "[{agent_id: a}]\n# the end\n",
        "- agent_id: a\r\n  name: A\r\n",
        "- agent_id: 'bad|id'\n- agent_id: a\n",
    ],
)
def test_adding_keeps_the_rest_of_the_file_and_reads_back(file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    before, refused = read_agents(file)
    agent = Agent(agent_id="new", name="Tête: [x] # é", category="research")
    assert add_agent(file, agent)
    assert read_agents(file) == ({**before, "new": agent}, refused)
    after = iter(file.read_bytes().decode())
    assert all(character in after for character in text)  # all that stood there, in order
    assert [p.name for p in file.parent.iterdir()] == ["agents.yaml"]


def test_block_files_are_only_appended_to(file: Path) -> None:
    text = "# ours\n- agent_id: a  # the first\n"
    file.write_text(text)
    add_agent(file, Agent(agent_id="b", category="sales"))
    assert file.read_text() == text + "- agent_id: b\n  category: sales\n"


def test_adding_a_known_agent_changes_nothing(file: Path) -> None:
    file.write_text("- agent_id: a\n  name: A\n")
    assert not add_agent(file, Agent(agent_id="a", name="Other"))
    assert file.read_text() == "- agent_id: a\n  name: A\n"


def test_adding_keeps_the_mode_of_the_file(file: Path) -> None:
    file.write_text("- agent_id: a\n")
    file.chmod(0o640)
    add_agent(file, Agent(agent_id="b"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- agent_id: [", "not YAML"),
        ("- agent_id: a\n...\n", "would become invalid"),
        ("- {agent_id: new, colour: red}\n", "its entry in line 1 is invalid: unknown key colour"),
    ],
)
def test_a_file_that_cannot_take_the_entry_stays_as_it_is(file: Path, text: str, reason: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=reason):
        add_agent(file, Agent(agent_id="new"))
    assert file.read_text() == text
