"""Read the entries of agents.yaml, and append an entry without changing the rest of the file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from agent_eval.errors import ConfigurationError
from agent_eval.formats.atomic_files import locked, write_atomically
from agent_eval.formats.files import Bounds
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.validation_messages import explain, shorten
from agent_eval.formats.yaml import (
    Node,
    YamlError,
    YamlList,
    YamlMapping,
    compose,
    construct,
    is_null,
    read_text,
)
from agent_eval.transcripts.models import Agent, is_blank


@dataclass(frozen=True)
class _Entry:
    """Represent one item of the list: the agent, or the reason why the item was rejected."""

    line: int
    agent: Agent | None
    reason: str
    claimed_id: object  # value of agent_id, valid or not


def read_agents(path: Path) -> tuple[dict[str, Agent], list[Refusal]]:
    """Return the agents of agents.yaml by id, in file order, and the rejected entries.

    The file is a list of entries, or a mapping whose only key `agents` contains this list.
    A missing or empty file has no agents. An invalid entry does not affect the others.
    """
    if not path.exists() and not path.is_symlink():
        return {}, []
    try:
        return _sorted_out(path, list(_entries(_text(path))))
    except YamlError as error:
        return {}, [Refusal(path.name, error.line, shorten(error.reason))]


def policy_of(path: Path, agent: Agent | None) -> str | None:
    """Return the content of the file that an entry's `policy` specifies, or None if the entry has no `policy`.

    The path is relative to the folder of agents.yaml.

    Raises:
        YamlError: If the file is outside that folder, cannot be read, is not text, or is empty.
    """
    if agent is None or agent.policy is None:
        return None
    policy_path = Path(agent.policy)
    if policy_path.is_absolute() or ".." in policy_path.parts:
        raise YamlError(f"policy: {agent.policy!r} is outside {path.parent.name}/; use a file in that folder")
    if reason := Bounds.of(path.parent / "sessions").refused_file(path.parent / policy_path):
        raise YamlError(f"policy: {agent.policy!r}: {reason}")
    try:
        text = read_text(path.parent / policy_path)
    except YamlError as error:
        raise YamlError(f"policy: {agent.policy!r}: {error.reason}") from error
    if is_blank(text):
        raise YamlError(
            f"policy: {agent.policy!r} is empty; write the agent's rules into it, or remove the key"
        )
    return text


def add_agent(path: Path, agent: Agent) -> bool:
    """Append an entry and keep the rest unchanged; return False and change nothing if the id exists.

    Raises:
        ConfigurationError: If the file cannot be read, has an invalid entry with that id, or would be invalid
            afterwards.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        try:
            text = _text(path) if path.exists() or path.is_symlink() else ""
            if _has(text, agent.agent_id):
                return False
            _write(path, text, agent)
        except YamlError as error:
            raise ConfigurationError(
                f"Agent {agent.agent_id!r} was not added to {path.name}: {error.reason}. Nothing was changed. Fix the file, "
                f"or add the entry by hand: a list item `- agent_id: {agent.agent_id}`."
            ) from error
    return True


def _text(path: Path) -> str:
    """Return the file's text; a symbolic link to a file outside the data folder is not followed."""
    if reason := Bounds.of(path.parent / "sessions").refused_file(path):
        raise YamlError(reason)
    return read_text(path)


def _policy_problem(path: Path, agent: Agent) -> str | None:
    try:
        policy_of(path, agent)
    except YamlError as error:
        return error.reason
    return None


def _sorted_out(path: Path, entries: list[_Entry]) -> tuple[dict[str, Agent], list[Refusal]]:
    agents: dict[str, Agent] = {}
    refusals: list[Refusal] = []
    for entry in entries:
        reason = entry.reason
        if entry.agent and entry.agent.agent_id in agents:
            reason = f"agent_id {entry.agent.agent_id!r} is declared twice; the first entry is used"
        elif entry.agent and (problem := _policy_problem(path, entry.agent)):
            reason = problem
        elif entry.agent:
            agents[entry.agent.agent_id] = entry.agent
        if reason:
            refusals.append(Refusal(path.name, entry.line, shorten(reason)))
    return agents, refusals


def _entries(text: str) -> Iterator[_Entry]:
    node = _list_node(compose(text))
    for item in node.items if node else ():
        yield _entry(item)


def _list_node(root: Node | None) -> YamlList | None:
    """Return the YAML node of the list of entries, or None if the file has no list yet."""
    if isinstance(root, YamlMapping) and root.keys == ["agents"]:
        root = root.pairs[0][1]
        if is_null(root):
            raise YamlError("agents: is empty; add a list of entries, or []", root.line)
    if root is None or isinstance(root, YamlList):
        return root
    raise YamlError(
        "expected a list of entries (- agent_id: …), or the one key agents with that list", root.line
    )


def _entry(node: Node) -> _Entry:
    try:
        value = construct(node, "typed")
    except YamlError as error:
        return _Entry(error.line, None, error.reason, None)
    if not isinstance(value, dict):
        return _Entry(node.line, None, "an entry must be a mapping with the key agent_id", None)
    try:
        return _Entry(node.line, Agent.model_validate(value), "", value.get("agent_id"))
    except ValidationError as error:
        return _Entry(node.line, None, explain(error, Agent), value.get("agent_id"))


def _has(text: str, agent_id: str) -> bool:
    for entry in _entries(text):
        if entry.claimed_id == agent_id:
            if entry.agent is None:
                raise YamlError(f"its entry in line {entry.line} is invalid: {entry.reason}")
            return True
    return False


def _write(path: Path, text: str, agent: Agent) -> None:
    """Write the new text after checking that it parses to the old entries plus the new one."""
    changed = _appended(text, agent)
    before = list(_entries(text))
    try:
        after = list(_entries(changed))
    except YamlError as error:
        raise YamlError(f"the file would become invalid ({error.reason})") from error
    if [e.agent for e in after] != [*(e.agent for e in before), agent]:
        raise YamlError("an entry cannot be appended to a file of this form")
    write_atomically(path, changed)


def _appended(text: str, agent: Agent) -> str:
    node = _list_node(compose(text))
    entry = agent.model_dump(mode="json", exclude_none=True)
    if node is not None and node.is_flow:
        return _in_brackets(text, node, entry)
    newline = "\r\n" if "\r\n" in text else "\n"
    block = yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=10**6)
    indent = " " * (node.column if node else 0)
    lines = [indent + line for line in block.splitlines()]
    head = text if not text or text.endswith("\n") else text + newline
    return head + newline.join([*lines, ""])


def _in_brackets(text: str, node: YamlList, entry: dict[str, object]) -> str:
    lines = text.splitlines(keepends=True)
    line = lines[node.end_line - 1]
    flow = yaml.safe_dump(
        entry, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
    ).strip()
    cut = node.end_column - 1  # before the closing bracket
    lines[node.end_line - 1] = line[:cut] + (", " if node.items else "") + flow + line[cut:]
    return "".join(lines)
