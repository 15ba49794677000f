"""Read Who&When data sets, which contain failures of multi-agent systems.

A record has the form {"question", "history": [{"content", "role", "name"}], "mistake_agent", …}.
"""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from agent_eval.transcripts.importers.base import (
    Fields,
    Found,
    Ids,
    NotThisFormatError,
    Source,
    conversations,
    mapping,
    or_nothing_found,
    text_of,
    whole_truth,
    without_nulls,
    yes_or_no,
)
from agent_eval.transcripts.importers.registry import Format
from agent_eval.transcripts.importers.rules.unread import unknown_entry
from agent_eval.transcripts.importers.shared.dialects import native_messages
from agent_eval.transcripts.importers.shared.layouts import records_of
from agent_eval.transcripts.importers.shared.threads import (
    DECISIVE_STEP,
    MESSAGE_INDEX,
    SOURCE_SCORES,
    Thread,
)

NAME = "whowhen"
EXPECTED = '{"question": …, "history": [{"content", "role", "name"}], "mistake_agent": …, "mistake_step": …}'
_HUMAN, _ENVIRONMENT = "human", "computer_terminal"
_KEPT = ("level", "file")


def read(source: Source) -> Iterator[Found]:
    """Yield the runs of a file as conversations; the question is the user's message.

    Each message of an agent has the agent's name.
    """
    return conversations(
        source, NAME, or_nothing_found(source, records_of(source, EXPECTED), EXPECTED), _conversation
    )


def looks_like(value: Mapping[str, JsonValue]) -> bool:
    """Return whether a record is a Who&When run."""
    return isinstance(value.get("history"), list) and "mistake_agent" in value


def _conversation(record: Mapping[str, JsonValue], ids: Ids, number: int) -> Fields:
    history = record.get("history")
    if not isinstance(history, list):
        raise NotThisFormatError(f"history is missing or not a list; expected {EXPECTED}")
    question = text_of(record.get("question"))
    thread = Thread()
    for agent, prompt in mapping(record.get("system_prompt")).items():
        thread.instruct(f"{agent}:\n{text_of(prompt)}")
    steps = [_messages(mapping(value)) for value in history]
    if question and not any(message["role"] == "user" for step in steps for message in step):
        thread.extend(native_messages([{"role": "user", "content": record["question"]}]))
    starts = []  # index of the first message of each step
    for step in steps:
        starts.append(len(thread.messages))
        thread.extend(step)
    mistake = without_nulls({key: record.get(f"mistake_{key}") for key in ("agent", "step", "reason")})
    at = _step(mistake.get("step"))
    if at is not None and at < len(steps) and steps[at]:
        mistake[MESSAGE_INDEX] = starts[at]
    blamed = text_of(mistake.get("agent")) or f"step {mistake.get('step', 'unknown')}"
    thread.metadata = without_nulls(
        {
            **{key: record.get(key) for key in _KEPT},
            SOURCE_SCORES: [{"name": DECISIVE_STEP, "value": blamed, **mistake}] if mistake else None,
        }
    )
    task = text_of(record.get("question_ID", record.get("question_id"))) or question
    correct = yes_or_no(record.get("is_correct", record.get("is_corrected")))
    truth = text_of(record.get("ground_truth", record.get("groundtruth")))
    return {
        **thread.fields(),
        **ids.of_record(task, None, number),
        "goal": question,
        "expected": whole_truth(None, truth, []),
        "outcome": {}
        if correct is None
        else {"correct": correct, "source": f"{NAME} is_correct", "basis": "declared"},
    }


def _step(value: JsonValue) -> int | None:
    """Return the 0-based position in `history` that `mistake_step` names, as a number or text; None if it names none."""
    text = str(value).strip()
    return int(text) if text.isdecimal() and text.isascii() else None


def _messages(value: Mapping[str, JsonValue]) -> list[Fields]:
    """Return a message with its speaker, taken from `name` or from a `role` such as `Orchestrator (thought)`."""
    role = text_of(value.get("role")) or ""
    name = text_of(value.get("name")) or (None if role in ("assistant", "user") else role)
    speaker = (name or role).lower()
    if speaker in (_HUMAN, "user"):
        native = "user"
    elif speaker == _ENVIRONMENT:
        native = "tool"
    else:
        native = "assistant"
    name_field: dict[str, JsonValue] = {"name": name} if name and native != "user" else {}
    unknown = unknown_entry("entry of the history", value, ("content",))
    return unknown or native_messages([{"role": native, "content": value.get("content"), **name_field}])


FORMAT = Format(
    NAME,
    read,
    looks_like,
    order=50,
    content='`{"question", "history", "mistake_agent"}`',
    conversation="a run of several agents",
    details=(
        "The question is the user's message. Each message has its speaker's name. Where a person found "
        "the mistake is stored in `source_scores` as `decisive_step`, with the agent as value, the reason"
        " and the `message_index`; it is a row of `conversation_judgments` with the judge "
        "`import:whowhen`"
    ),
    outcome=(
        "`is_correct`",
        "none",
        "unknown",
    ),
)
"""This format, as `catalog` registers it."""
