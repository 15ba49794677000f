"""Import tau2-bench result files: one JSON object with `tasks` and `simulations`.

The ground truth of a simulation consists of the actions it was checked against:
`reward_info.action_checks[].action`. The task definition with the same id adds the goal, the profile and the ground
truth that the checks omit, but only if it matches the simulation: in some files the simulations use another
numbering of the tasks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from json import JSONDecoder
from pathlib import Path, PurePath
from typing import cast

from pydantic import JsonValue

from agent_eval.formats.hashing import canonical
from agent_eval.formats.json_arrays import TruncatedJsonError, top_level_keys
from agent_eval.formats.json_text import loads
from agent_eval.formats.refusals import Refusal
from agent_eval.formats.streams import BREAKS, Record, opened
from agent_eval.formats.validation_messages import shorten
from agent_eval.formats.zip_members import ZipMember, members
from agent_eval.transcripts.importers.base import (
    DEFINITION_REFUSED,
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    array_records,
    base_success,
    conversations,
    error_text,
    joined,
    listed,
    mapping,
    or_nothing_found,
    paid,
    reward_note,
    reward_outcome,
    task_id_of,
    text_of,
    unrepeated,
    whole_truth,
    without_nulls,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.branches import spoken_in_order
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.messages import chat_messages_with_reasoning
from agent_eval.transcripts.importers.shared.threads import Thread
from agent_eval.transcripts.outcomes import OutcomeClass, class_of_error

NAME = "tau2"
EXPECTED = "a JSON object with the arrays tasks and simulations, or results.json beside a folder simulations"
SIMULATIONS, INDEX = "simulations", "results.json"
ACTION_MATCHES = "action_matches"
"""Key of `metadata`: the result of the file's own check of each expected call, in order."""
_KEPT = ("termination_reason", "duration", "seed")
_BY_REASON: Mapping[str, OutcomeClass] = {
    "agent_error": "agent_error",
    "too_many_errors": "agent_error",
    "context_window_exceeded": "agent_error",
    "max_steps": "failed",
    "timeout": "failed",
    "user_error": "harness_error",
    "infrastructure_error": "harness_error",
}
"""Termination reason of an unsuccessful simulation → its class; for an unlisted reason the error decides."""
_USUAL = ("user_stop", "agent_stop")
"""Termination reasons of a simulation that was not interrupted; the reward decides."""
_HEAD = 1_000_000  # bytes
_ENVIRONMENT = re.compile(r'"environment_info"\s*:\s*\{')
_NOTHING_TO_CHECK = "No actions to evaluate"
_USER_ID = re.compile(r"\buser[ _]?id\b(?:\s+is|\s*:)?\s+[\"'`]?(\w*\d\w*)", re.IGNORECASE)

Call = dict[str, JsonValue]


@dataclass(frozen=True)
class _Definition:
    """Hold a task definition from the file."""

    fields: Fields  # goal and profile
    calls: list[Call]
    answer: str | None
    assertions: list[JsonValue]
    user_ids: frozenset[str]


_NO_DEFINITION = _Definition({}, [], None, [], frozenset())


def read(source: Source) -> Iterator[Found]:
    """Yield the conversations of a tau2 result file.

    The file is read twice, first for tasks and then for simulations, so that their order does not matter and
    only the task definitions and one simulation are in memory.
    """
    definitions, orders = dict(_definitions(source)), _orders(source)

    def convert(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
        return _conversation(record, ids, number, definitions, orders)

    simulations = unrepeated(source, _simulations(source), "messages", names=["id", "trial"])
    return conversations(source, NAME, or_nothing_found(source, simulations, EXPECTED), convert)


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a document is a tau2 result file, the index of a folder of simulations, or a simulation."""
    is_index = {"info", "tasks"} <= value.keys()
    return "simulations" in value or is_index or _is_simulation(value)


def simulation_files(path: Path | ZipMember) -> Sequence[Path | ZipMember]:
    """Return the files in `simulations/` beside a results.json, on disk or in an archive; empty for any other file."""
    if PurePath(path.name).name != INDEX:
        return []
    if isinstance(path, Path):
        return sorted((path.parent / SIMULATIONS).glob("*.json"))
    folder = PurePath(path.name).parent / SIMULATIONS
    names = ((PurePath(member.name), member) for member in members(path.archive))
    return [member for name, member in names if name.parent == folder and name.suffix == ".json"]


def _is_simulation(value: Mapping[str, JsonValue]) -> bool:
    return {"task_id", "messages", "reward_info", "termination_reason"} <= value.keys()


def _simulations(source: Source) -> Iterator[Record | Refusal]:
    """Yield the simulations of a result file, of the folder beside its index, or of a file with one simulation."""
    try:
        with opened(source.path) as stream:
            keys = set(top_level_keys(stream))
    except (*BREAKS, TruncatedJsonError):
        keys = {SIMULATIONS}
    if SIMULATIONS in keys:
        yield from array_records(source, f"{SIMULATIONS}.item")
    elif "task_id" in keys:
        yield from records_of(source, EXPECTED)
    else:
        for number, path in enumerate(simulation_files(source.path), start=1):
            for record in records_of(Source(path, source.session_id, source.name), EXPECTED):
                if isinstance(record, Record):
                    yield Record(number, record.value, record.size)
                else:
                    yield Refusal(f"{SIMULATIONS}/{PurePath(path.name).name}", number, record.reason)


def domain(source: Source) -> str | None:
    """Return the domain of the file's tasks, e.g. airline; None if the first task does not specify one."""
    for record in islice(array_records(source, "tasks.item"), 1):
        scenario = mapping(mapping(getattr(record, "value", None)).get("user_scenario"))
        domain_name = mapping(scenario.get("instructions")).get("domain")
        return domain_name if isinstance(domain_name, str) and domain_name.strip() else None
    return None


def _orders(source: Source) -> Mapping[str, JsonValue]:
    """Return `policy` and `tools` of the file's environment, if they are in its first megabyte."""
    try:
        with opened(source.path) as stream:
            head = stream.read(_HEAD).decode("utf-8", "replace")
    except BREAKS:  # reported when the simulations are read
        return {}
    place = _ENVIRONMENT.search(head)
    if place is None:
        return {}
    try:
        environment = mapping(JSONDecoder().raw_decode(head, place.end() - 1)[0])
    except ValueError:  # longer than the bytes read, or invalid; reported when the simulations are read
        return {}
    tools = environment.get("tool_defs")
    of_dicts = isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
    policy = text_of(environment.get("policy"))
    return without_nulls({"policy": policy, "tools": tools if of_dicts else None})


def _conversation(
    record: Mapping[str, JsonValue],
    ids: Ids,
    number: int,
    definitions: Mapping[str, _Definition],
    orders: Mapping[str, JsonValue],
) -> Fields:
    reward = mapping(record.get("reward_info"))
    reason = record.get("termination_reason")
    is_told = "messages" in record or reward.get("reward") is not None or reason is not None
    if "task_id" not in record or not is_told:
        raise NotThisFormatError("task_id or messages is missing in the simulation")
    thread = Thread()
    thread.extend(_with_crash(chat_messages_with_reasoning(_ordered(_flat(record.get("messages")))), reason))
    conversation_fields = thread.fields()
    messages = cast("list[Fields]", conversation_fields["messages"])
    task_id = task_id_of(record)
    names = ids.of_record(task_id, record.get("trial"), number)
    own_id = text_of(record.get("id"))
    if own_id and len(own_id) <= 512 and not ids.is_claimed(own_id):
        names["conversation_id"] = own_id
    definition = definitions.get(task_id or "", _NO_DEFINITION)
    refused = _why_refused(definition, reward, messages) if definition is not _NO_DEFINITION else None
    own_definition = definition if refused is None else _NO_DEFINITION
    return (
        names
        | own_definition.fields
        | {
            "messages": messages,
            "expected": _truth(reward, own_definition),
            "outcome": _outcome(record, reward.get("reward")),
            "metadata": _metadata(record, names["trial"])
            | dict(orders)
            | cast("dict[str, JsonValue]", conversation_fields["metadata"])
            | without_nulls({ACTION_MATCHES: _action_matches(reward), DEFINITION_REFUSED: refused}),
        }
    )


def _outcome(record: Mapping[str, JsonValue], reward: JsonValue) -> Fields:
    """Return the outcome of a simulation from its reward and its termination reason.

    The termination reason decides only if the reward indicates a failure or is missing.
    """
    success = base_success(record, "messages")
    outcome = reward_outcome(NAME, reward, success)
    reason = text_of(record.get("termination_reason")) or ""
    info = mapping(record.get("info"))
    error = ": ".join(text for key in ("error_type", "error") if (text := text_of(info.get(key))))
    outcome_class = _BY_REASON.get(reason)
    if outcome_class is None and reason and reason not in _USUAL:
        outcome_class = class_of_error(error or reason)
    is_open = outcome["correct"] is None and reward is None
    if success == "contradicting" or outcome_class is None or not (outcome["correct"] is False or is_open):
        return outcome
    by_reason: Fields = {"source": f"{NAME} termination_reason", "basis": "exit"}
    decided: Fields = {"source": outcome["source"], "basis": outcome["basis"]}
    if outcome_class == "failed":
        return {"correct": False, "reward": outcome["reward"]} | (decided if outcome["source"] else by_reason)
    return (by_reason if success is None else decided) | {
        "correct": outcome["correct"] if outcome_class == "unexplained_error" else None,
        "reward": outcome["reward"],
        "outcome_class": outcome_class,
        "error": shorten(f"{reason}: {error_text(error)}" if error else reason),
    }


def _with_crash(messages: list[Fields], termination_reason: JsonValue) -> list[Fields]:
    """Mark the agent's message that ended the simulation as an error.

    The harness rejected the message, so the user did not receive it.
    """
    if termination_reason == "agent_error" and messages and messages[-1].get("role") == "assistant":
        messages[-1]["is_error"] = True
    return messages


def _truth(reward: Mapping[str, JsonValue], definition: _Definition) -> list[Fields]:
    """Return the ground truth from the simulation's checks; unchecked parts come from the task definition."""
    calls = _checked_calls(reward)
    communicated = [mapping(check).get("info") for check in listed(reward.get("communicate_checks"))]
    assertion_texts = [mapping(check).get("nl_assertion") for check in listed(reward.get("nl_assertions"))]
    answer = joined([text for text in communicated if text is not None])
    assertions: list[JsonValue] = [text for text in assertion_texts if text is not None]
    return whole_truth(
        (definition.calls if calls is None else calls) or None,
        definition.answer if answer is None else answer,
        assertions or definition.assertions,
    )


def _checked_calls(reward: Mapping[str, JsonValue]) -> list[Call] | None:
    """Return the calls that the simulation was checked against, or None if it was not checked."""
    if isinstance(checks := reward.get("action_checks"), list):
        return _calls(mapping(check).get("action") for check in checks)
    note = mapping(mapping(reward.get("info")).get("action")).get("note")
    return [] if note == _NOTHING_TO_CHECK else None


def _action_matches(reward: Mapping[str, JsonValue]) -> list[JsonValue] | None:
    flags = [mapping(check).get("action_match") for check in listed(reward.get("action_checks"))]
    return [flag if isinstance(flag, bool) else None for flag in flags] or None


def _calls(actions: Iterable[JsonValue]) -> list[Call]:
    """Return the expected calls of the agent and the user.

    All arguments are compared, or only those listed in `compare_args`.
    """
    return [
        {"name": action.get("name"), "arguments": action.get("arguments") or {}, "match": "exact"}
        | without_nulls({"compare_args": action.get("compare_args")})
        | ({"requestor": "user"} if action.get("requestor") == "user" else {})
        for action in map(mapping, actions)
    ]


def _why_refused(
    definition: _Definition, reward: Mapping[str, JsonValue], messages: Iterable[Fields]
) -> str | None:
    """Return the reason why the definition does not match the simulation, or None if it matches."""
    calls = _checked_calls(reward)
    if calls is not None and sorted(calls, key=canonical) != sorted(definition.calls, key=canonical):
        return "its expected actions are not those that the simulation was checked against"
    texts = [text for message in messages if isinstance(text := message.get("content"), str)]
    is_named = any(user_id in text for user_id in definition.user_ids for text in texts)
    if definition.user_ids and not is_named and any(_named_by_tools(texts)):
        return "its user id does not occur in the conversation, and the tools returned another one"
    return None


def _named_by_tools(texts: Iterable[str]) -> Iterator[str]:
    """Yield the user ids that the environment returned; ids in an agent's calls may be hallucinated."""
    for text in texts:
        if '"user_id"' in text:
            try:
                user_id = mapping(loads(text)).get("user_id")
            except ValueError:
                continue
            if isinstance(user_id, str) and user_id:
                yield user_id


def _flat(messages: JsonValue) -> JsonValue:
    """Return the messages; a message with several tool results is split into one message per result."""
    if not isinstance(messages, list):
        return messages
    flat: list[JsonValue] = []
    for message in messages:
        packed = listed(mapping(message).get("tool_messages"))
        flat.extend(packed or [message])
    return flat


def _ordered(messages: JsonValue) -> JsonValue:
    return spoken_in_order(messages)[0] if isinstance(messages, list) else messages


def _metadata(record: Mapping[str, JsonValue], trial: object) -> dict[str, JsonValue]:
    recorded = record.get("trial")
    return without_nulls(
        {
            **{name: record.get(name) for name in _KEPT},
            "agent_cost_usd": paid(record.get("agent_cost")),
            "user_cost_usd": paid(record.get("user_cost")),
            "simulation_id": record.get("id"),
            "recorded_trial": None if recorded == trial else recorded,
            **reward_note(mapping(record.get("reward_info")).get("reward")),
        }
    )


def _definitions(source: Source) -> Iterator[tuple[str, _Definition]]:
    """Yield (id, definition) for the file's tasks; a truncated file is reported when its simulations are read."""
    for record in array_records(source, "tasks.item"):
        task = mapping(getattr(record, "value", None))
        if task_id := text_of(task.get("id")):
            yield task_id, _definition(task)


def _definition(task: Mapping[str, JsonValue]) -> _Definition:
    scenario = mapping(task.get("user_scenario"))
    criteria = mapping(task.get("evaluation_criteria"))
    calls = _calls(listed(criteria.get("actions")))
    goal, profile = _goal(scenario), _profile(scenario)
    user_ids = [mapping(call["arguments"]).get("user_id") for call in calls]
    return _Definition(
        fields={"goal": goal, "profile": profile, "task_family": text_of(task.get("task_family"))},
        calls=calls,
        answer=joined(criteria.get("communicate_info")),
        assertions=listed(criteria.get("nl_assertions")),
        user_ids=frozenset(
            [user_id for user_id in user_ids if isinstance(user_id, str) and user_id]
            + _USER_ID.findall(f"{goal}\n{profile}")
        ),
    )


def _goal(scenario: Mapping[str, JsonValue]) -> str | None:
    instructions = scenario.get("instructions")
    if isinstance(instructions, str):
        return instructions
    parts = mapping(instructions)
    return _paragraphs(parts.get("reason_for_call"), parts.get("task_instructions"))


def _profile(scenario: Mapping[str, JsonValue]) -> str | None:
    return _paragraphs(scenario.get("persona"), mapping(scenario.get("instructions")).get("known_info"))


def _paragraphs(*parts: JsonValue) -> str | None:
    return "\n\n".join(text for part in parts if (text := text_of(part))) or None


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=30,
    content="result files of tau2, or `results.json` beside a folder `simulations`",
    conversation="a simulation",
    is_document=True,
    task_set=domain,
    details=(
        "The simulations in `simulations/*.json` beside a `results.json` are read with it, as one session"
    ),
    outcome=(
        "`base_success` anywhere outside `messages`; a `reward_info.reward` of 1",
        (
            "`termination_reason`, if `base_success` is false, or if it is absent and the reward is 0 or "
            "missing: see below"
        ),
        "`reward_info.reward`, as tau-bench",
    ),
    parts=simulation_files,
)
"""This format, as `catalog` registers it."""
