"""Read Claude Code session logs (`~/.claude/projects/…/*.jsonl`): lines {"type": "user" | "assistant", "sessionId", "message"}."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import Lines, Record
from agent_eval.transcripts.importers.base import (
    SOURCE_SESSIONS,
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    conversations,
    listed,
    mapping,
    or_nothing_found,
    paid,
    text_of,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import LEFT_OUT, ended_in
from agent_eval.transcripts.importers.rules.order import log_in_time_order, parents_first
from agent_eval.transcripts.importers.rules.speakers import of_program, says_api_error, told_apart
from agent_eval.transcripts.importers.rules.unread import described, not_read
from agent_eval.transcripts.importers.shared.dialects import native_messages
from agent_eval.transcripts.importers.shared.layouts import DELIVERED_TWICE, Item, grouped
from agent_eval.transcripts.importers.shared.threads import Thread

NAME = "claude-code"
EXPECTED = 'lines of a Claude Code session: {"type": "user" | "assistant", "sessionId": …, "message": {…}}'
WITHDRAWN = (
    "lines of a Claude Code session belong to a branch that the person went back from, and are omitted"
)
UNSENT = "prompts were queued and never reached the agent, and are omitted"
ONE_UUID = "lines of a Claude Code session have the uuid of an earlier line and another content; they are imported too"
_META = ("cwd", "gitBranch", "version")
_SYNTHETIC = "<synthetic>"
"""The model of lines that the program wrote under the agent's name."""
_BY_PROGRAM = frozenset(
    {
        *(
            "summary",
            "system",
            "file-history-snapshot",
            "progress",
            "attachment",
            "queue-operation",
            "custom-title",
        ),
        *(
            "ai-title",
            "agent-name",
            "agent-color",
            "agent-setting",
            "last-prompt",
            "mode",
            "permission-mode",
            "tag",
        ),
        *(
            "pr-link",
            "hook",
            "saved_hook_context",
            "worktree-state",
            "content-replacement",
            "marble-origami-commit",
        ),
        *("task-summary", "session-start", "bridge_status", "started", "result", "speculation-accept"),
        *("relocated", "frame-link", "bridge-session", "atis-latch"),
    }
)
"""Types of lines by which the program keeps its own state."""

_Line = Mapping[str, JsonValue]


def read(source: Source) -> Iterator[Found]:
    """Yield the sessions of a log as one conversation each; a subagent (isSidechain) is a separate conversation.

    A session is the branch that it ended in: prompts that the person went back from are omitted with their answers.
    """
    lines = Lines(source.path, source.file)
    log = _Log(lines)
    records = grouped(
        source,
        lambda: _lines(lines, log),
        lambda value: text_of(mapping(value).get("session")),
        counts=log.n_lines,
    )
    yield from conversations(source, NAME, or_nothing_found(source, records, EXPECTED), _conversation)
    for text, numbers in log.unknown.items():
        for reason in described([text] * len(numbers)):
            yield Refusal(source.file, numbers[0], reason)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a line belongs to a Claude Code session."""
    message = value.get("message")
    has_message = isinstance(message, dict) and value.get("type") in ("user", "assistant")
    is_other_tool = isinstance(message, dict) and "parts" in message and "content" not in message
    return "sessionId" in value and not is_other_tool and (has_message or "uuid" in value)


def _is_spoken(line: _Line) -> bool:
    return line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)


class _Log:
    """Know, after one reading, the sessions in which somebody speaks, the subagents, and the lines of unknown types."""

    def __init__(self, lines: Lines) -> None:
        self.unknown: dict[str, list[int]] = {}
        """Description of each unknown type of line → the numbers of its lines."""
        self.n_lines: Counter[str] = Counter()
        """Number of lines of each session and subagent in which somebody speaks."""
        self._spoken: set[str] = set()
        self._aside: list[tuple[int, str, bool]] = []  # lines of subagents: number, session, is spoken
        self._agents = _agents(self._side_chains(lines))
        for number, session, is_spoken in self._aside:
            self.n_lines[name := f"{session}/{self._agents[number]}"] += 1
            self._spoken |= {name} if is_spoken else set()

    def session(self, record: Record, line: _Line) -> str:
        """Return the session of a line, or the subagent of the session."""
        agent = self._agents.get(record.number)
        return _session(line) if agent is None else f"{_session(line)}/{agent}"

    def is_spoken_in(self, session: str) -> bool:
        """Return whether somebody speaks in a session or a subagent's conversation."""
        return session in self._spoken

    def _side_chains(self, lines: Lines) -> Iterator[Record]:
        """Read all lines, and yield those of subagents."""
        for record in lines:
            if not isinstance(record, Record):
                continue
            line = mapping(record.value)
            is_spoken, session = _is_spoken(line), _session(line)
            if not is_spoken and str(kind := line.get("type")) not in _BY_PROGRAM:
                self.unknown.setdefault(not_read("line of type", kind), []).append(record.number)
            if not line:
                continue
            if line.get("isSidechain") is True:
                self._aside.append((record.number, session, is_spoken))
                yield record
            else:
                self.n_lines[session] += 1
                if is_spoken:
                    self._spoken.add(session)


def _session(line: _Line) -> str:
    return text_of(line.get("sessionId")) or "session"


def _agents(records: Iterable[Record]) -> dict[int, str]:
    """Return the subagent of each line of a side chain, by the line's number.

    Lines of one subagent are linked by their parents, by the calls that they answer, and by `agentId`, which only some
    of them carry. A line without any link belongs to the subagent of the line before it.
    """
    chain: dict[str, int] = {}  # session, and uuid, call or agent → component
    of_line: dict[int, int] = {}
    merged: dict[int, int] = {}
    agent_of_root: dict[int, str] = {}
    last: dict[str, int] = {}

    def root(component: int) -> int:
        while component in merged:
            component = merged[component]
        return component

    for record in records:
        line = mapping(record.value)
        if line.get("isSidechain") is not True:
            continue
        session = text_of(line.get("sessionId")) or "session"
        blocks = [mapping(block) for block in listed(mapping(line.get("message")).get("content"))]
        calls = (block.get("id", block.get("tool_use_id")) for block in blocks)
        uuid, agent = text_of(line.get("uuid")), text_of(line.get("agentId"))
        links = [
            f"{session} {kind} {name}"
            for kind, name in [
                *[("uuid", uuid), ("uuid", text_of(line.get("parentUuid"))), ("agent", agent)],
                *(("call", text_of(call)) for call in calls),
            ]
            if name is not None
        ]
        roots = {root(chain[link]) for link in links if link in chain}
        starts = "parentUuid" in line and line["parentUuid"] is None
        if not roots and agent is None and not starts and session in last:
            roots = {root(last[session])}
        first = min(roots, default=record.number)
        for other in roots - {first}:
            merged[other] = first
            agent_of_root.setdefault(first, agent_of_root[other]) if other in agent_of_root else None
        chain |= dict.fromkeys(links, first)
        of_line[record.number] = last[session] = first
        if agent is not None:
            agent_of_root.setdefault(first, agent)
    names = {component: agent_of_root.get(root(component)) for component in of_line.values()}
    unnamed = dict.fromkeys(root(c) for c in of_line.values() if names[c] is None)
    numbers = {c: "subagent" if i == 0 else f"subagent-{i + 1}" for i, c in enumerate(unnamed)}
    return {number: names[c] or numbers[root(c)] for number, c in of_line.items()}


def _lines(lines: Lines, log: _Log) -> Iterator[Item]:
    """Yield the lines, each with its session or subagent; only sessions in which somebody speaks are yielded."""
    for record in lines:
        if not isinstance(record, Record):
            yield record
        elif isinstance(line := record.value, dict):
            session = log.session(record, line)
            if log.is_spoken_in(session):
                yield Record(record.number, {"session": session, "line": line}, record.size)


def _conversation(group: _Line, ids: Ids, number: int) -> Fields:
    lines = [mapping(mapping(value).get("line")) for value in listed(group.get("records"))]
    lines = log_in_time_order(lines, lambda line: line.get("timestamp"))
    if _is_chain(lines):
        branch_lines = lines
    else:
        lines = parents_first(lines, _uuid, _parent)
        branch_lines = lines if _is_chain(lines) else _kept(lines)
    left_out: Counter[str] = Counter()
    if len(branch_lines) < len(lines):
        left_out[WITHDRAWN] = sum(map(_is_spoken, lines)) - sum(map(_is_spoken, branch_lines))
    prompts = _queued(branch_lines, left_out)
    thread = Thread()
    messages: list[Fields] = []
    of_id: dict[str, Fields] = {}
    last_id: JsonValue = None
    messages_of_line: dict[str, list[JsonValue]] = {}
    superseded = {
        uuid for line in lines for uuid in listed(line.get("supersedesUuids")) if isinstance(uuid, str)
    }
    for index, line in enumerate(branch_lines):
        messages += prompts.get(index, ())
        uuid = _uuid(line)
        if not _is_spoken(line) or uuid in superseded:
            continue
        message = mapping(line.get("message"))
        earlier = messages_of_line.setdefault(uuid, []) if uuid else []
        if message.get("content") in earlier:
            left_out[DELIVERED_TWICE] += 1
            continue
        left_out[ONE_UUID] += bool(earlier)
        earlier.append(message.get("content"))
        new_messages = _messages(line, message)
        own_id = text_of(message.get("id"))
        if own_id is not None and new_messages:
            if own_id == last_id and messages:
                new_messages = _joined(messages, new_messages)
            for new in new_messages:  # each line repeats the usage of the whole message; the last one counts
                if new.get("usage") is not None and own_id in of_id:
                    of_id[own_id].pop("usage", None)
            of_id[own_id] = messages[-1] if not new_messages else new_messages[0]
        messages += new_messages
        last_id = own_id if message.get("role") == "assistant" else None
        for key in _META:
            if key not in thread.metadata and (text := text_of(line.get(key))) is not None:
                thread.metadata[key] = text
    thread.extend(told_apart(messages))
    if not thread.messages:
        raise NotThisFormatError("the session contains no messages of the user or the agent")
    thread.failure = _failure(thread.messages)
    key = text_of(group.get("key")) or str(number)
    first = next((line for line in lines if _is_spoken(line)), {})
    if any(
        line.get("sessionId") is not None for line in lines
    ):  # a copied history keeps the id of its first line
        names = [key, _uuid(first)]
        thread.metadata[SOURCE_SESSIONS] = [name for name in names if name is not None]
    id_and_left_out: Fields = {"conversation_id": ids.named(key), LEFT_OUT: [*left_out.elements()]}
    return thread.fields() | id_and_left_out


def _failure(messages: Sequence[Fields]) -> tuple[str, str] | None:
    """Return the error of the model's API that ended the session, or None."""
    last = next((m for m in reversed(messages) if _is_error(m) or m["role"] in ("user", "assistant")), {})
    if not _is_error(last):
        return None
    return f"{NAME} isApiErrorMessage", str(last.get("content") or "API error")


def _is_error(message: Fields) -> bool:
    """Return whether the program reports, under the agent's name, that the model's API failed."""
    return message.get("role") == "developer" and message.get("is_error") is True


def _uuid(line: _Line) -> str | None:
    return text_of(line.get("uuid"))


def _parent(line: _Line) -> str | None:
    return text_of(line.get("parentUuid")) or text_of(line.get("logicalParentUuid"))


def _is_chain(lines: Sequence[_Line]) -> bool:
    """Return whether each line follows the line that it names as its parent, so that there is only one branch."""
    uuids = [line.get("uuid") for line in lines]
    parents = [line.get("parentUuid") for line in lines]
    are_texts = set(map(type, uuids)) <= {str}
    return are_texts and parents == [None, *uuids[:-1]] and len(set(map(str, uuids))) == len(uuids)


def _kept(lines: list[_Line]) -> list[_Line]:
    """Return the lines without those of branches that the person went back from.

    A line outside of the last branch stays if it answers a call of the branch or is a part of one of its messages
    (parallel calls branch too), or if the log does not say from where it branches.
    """
    last = next((line for line in reversed(lines) if _is_spoken(line)), None)
    branch = ended_in(lines, _uuid, _parent, None if last is None else _uuid(last))
    if branch is None or all((uuid := _uuid(line)) is None or uuid in branch for line in lines):
        return lines
    by_uuid = {uuid: line for line in lines if (uuid := _uuid(line)) is not None}
    on_branch = [by_uuid[uuid] for uuid in branch]
    own_ids = {text_of(mapping(line.get("message")).get("id")) for line in on_branch} - {None}
    own_calls = {name for line in on_branch for name in _called(line)}
    own_calls |= {
        name
        for line in lines
        if text_of(mapping(line.get("message")).get("id")) in own_ids
        for name in _called(line)
    }
    starts_with_prompt = any(
        "parentUuid" in line and _is_prompt(line) for line in on_branch if _parent(line) is None
    )

    def stays(line: _Line) -> bool:
        uuid = _uuid(line)
        if uuid is None or uuid in branch:
            return True
        message = mapping(line.get("message"))
        is_result = any(block.get("type") == "tool_result" for block in _blocks(line))
        is_own = bool(_answered(line) & own_calls) or (is_result and _parent(line) in branch)
        if is_own or text_of(message.get("id")) in own_ids:
            return True
        first, passed = line, set[str]()
        while (parent := _parent(first)) in by_uuid and parent not in branch and str(parent) not in passed:
            passed.add(str(parent))
            first = by_uuid[str(parent)]
        if _parent(first) in branch:
            return False
        is_root = "parentUuid" in first and _parent(first) is None and _is_prompt(first)
        return not (is_root and starts_with_prompt)

    return [line for line in lines if stays(line)]


def _is_prompt(line: _Line) -> bool:
    return line.get("type") == "user" and line.get("isCompactSummary") is not True and not _answered(line)


def _blocks(line: _Line) -> list[Mapping[str, JsonValue]]:
    return [mapping(block) for block in listed(mapping(line.get("message")).get("content"))]


def _called(line: _Line) -> set[str]:
    return {
        name
        for block in _blocks(line)
        if block.get("type") == "tool_use" and (name := text_of(block.get("id")))
    }


def _answered(line: _Line) -> set[str]:
    return {name for block in _blocks(line) if (name := text_of(block.get("tool_use_id")))}


def _queued(lines: Sequence[_Line], left_out: Counter[str]) -> dict[int, list[Fields]]:
    """Return the prompts that were typed while the agent worked, by the index of the line that delivers them.

    A queued prompt is delivered as an attachment, or as a line of the user, which is read with the others. If neither
    exists, it is delivered when it leaves the queue; if it never leaves it, the agent did not get it.
    """
    by_line: dict[int, list[Fields]] = {}
    if not any(line.get("type") in ("attachment", "queue-operation") for line in lines):
        return by_line
    message_counts = Counter(
        text.strip()
        for line in lines
        if line.get("type") == "user"
        for m in native_messages([dict(mapping(line.get("message")))] if _is_spoken(line) else [])
        if isinstance(text := m.get("content"), str)
    )
    waiting: list[str] = []
    for index, line in enumerate(lines):
        attachment = mapping(line.get("attachment"))
        is_queued = line.get("type") == "attachment" and attachment.get("type") == "queued_command"
        if is_queued and attachment.get("commandMode", "prompt") == "prompt":
            when, prompt = line.get("timestamp"), attachment.get("prompt")
            new = native_messages([{"role": "user", "content": prompt, "timestamp": when}])
            by_line.setdefault(index, []).extend(new)
            message_counts.update(str(m.get("content")).strip() for m in new)
    for index, line in enumerate(lines):
        text = line.get("content")
        if line.get("type") != "queue-operation":
            continue
        operation = line.get("operation")
        if operation == "enqueue" and isinstance(text, str) and text.strip():
            waiting.append(text.strip())
        elif operation == "popAll":
            left_out[UNSENT] += sum(not message_counts[prompt] for prompt in waiting)
            waiting.clear()
        elif operation in ("dequeue", "remove") and waiting:
            own = text.strip() if isinstance(text, str) else waiting[0]
            prompt = waiting.pop(waiting.index(own) if own in waiting else 0)
            if message_counts[prompt] > 0:
                message_counts[prompt] -= 1
            elif not _is_by_program(prompt):
                when = line.get("timestamp")
                by_line.setdefault(index, []).append({"role": "user", "content": prompt, "timestamp": when})
    left_out[UNSENT] += sum(not message_counts[prompt] for prompt in waiting)
    return by_line


def _is_by_program(prompt: str) -> bool:
    """Return whether a queued text is a notification of the program rather than a prompt."""
    return told_apart([{"role": "user", "content": prompt}])[0]["role"] != "user"


def _messages(line: _Line, message: Mapping[str, JsonValue]) -> list[Fields]:
    if "parts" in message and "content" not in message:
        raise NotThisFormatError(
            "the messages of the session have `parts` instead of `content`; it is the log of another tool"
        )
    timed: dict[str, JsonValue] = {**message, "timestamp": line.get("timestamp")}
    if "cost_usd" in timed or "costUSD" in line:
        timed["cost_usd"] = paid(line.get("costUSD"))
    messages = native_messages([timed])
    is_of_program = line.get("isMeta") is True or line.get("isCompactSummary") is True
    is_of_program = is_of_program or line.get("isVisibleInTranscriptOnly") is True
    if is_of_program or mapping(line.get("origin")).get("kind", "human") not in ("human", "channel"):
        messages = [{**m, "role": "developer"} if m["role"] == "user" else m for m in messages]
    result = line.get("toolUseResult")
    if isinstance(result, str) and result.startswith("Error: "):
        messages = [{**m, "is_error": True} if m["role"] == "tool" else m for m in messages]
    is_api_error = line.get("isApiErrorMessage") is True
    if is_api_error or message.get("model") == _SYNTHETIC:  # written by the program, not by the model
        messages = [
            of_program(m, is_error=is_api_error or says_api_error(m.get("content")))
            if m["role"] == "assistant" and not m.get("tool_calls")
            else m
            for m in messages
        ]
    return messages


def _joined(before: list[Fields], new_messages: list[Fields]) -> list[Fields]:
    """Merge the blocks of a message that the log splits over several lines into the message of the first line."""
    first, last = new_messages[0], before[-1]
    if first["role"] != "assistant" or last["role"] != "assistant":
        return new_messages
    merged = {**first, **last}
    texts = [text for m in (last, first) if isinstance(text := m.get("content"), str) and text]
    merged["content"] = "\n".join(texts) or None
    for key in ("tool_calls", "unread"):
        if both := [*_listed(last, key), *_listed(first, key)]:
            merged[key] = both
    if thoughts := [str(m["reasoning"]) for m in (last, first) if m.get("reasoning")]:
        merged["reasoning"] = "\n".join(thoughts)
    for key in ("usage", "finish_reason"):  # the last line has the final values
        if first.get(key) is not None:
            merged[key] = first[key]
    before[-1] = merged
    return new_messages[1:]


def _listed(message: Fields, key: str) -> list[object]:
    value = message.get(key)
    return value if isinstance(value, list) else []


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=110,
    content="session logs of Claude Code (`.jsonl`)",
    conversation="a session; each of its subagents",
    details=(
        "The lines of one message are joined; superseded and repeated lines are omitted. Messages that "
        "Claude Code itself wrote (`isMeta`, summaries of compaction) have the role `developer`. The "
        "branch in which the session ended is read; parallel calls are not branches. The lines of a "
        "subagent are linked by their parents, calls and `agentId`. A prompt that stayed in the queue is "
        "counted and omitted"
    ),
)
"""This format, as `catalog` registers it."""
