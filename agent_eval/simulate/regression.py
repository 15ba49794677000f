"""Turn a recorded failure into a scenario that fails for the recorded agent and that a repaired agent passes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agent_eval.errors import InputError
from agent_eval.formats.validation_messages import explain
from agent_eval.scores.tools.calls import ExpectedCall, read_expected
from agent_eval.simulate.scenario_checks import scenario_problems
from agent_eval.simulate.scenarios import BenchmarkScenario

SUITE_OF_REGRESSIONS = "regressions"
REPEATED_CALL = "repeated tool call"
Row = Mapping[str, Any]


class NotExportableError(InputError, ValueError):
    """Raised when no scenario can repeat a conversation.

    Fix: Write the scenario by hand.
    """

    def __init__(self, conversation_id: str, problem: str) -> None:
        super().__init__(
            f"Conversation {conversation_id!r} cannot become a scenario: {problem}. Write one by hand: docs/scenarios.md."
        )


def regression(failure: Row, cluster: Row, conversation: Row, turns: Sequence[Row]) -> dict[str, Any]:
    """Return a scenario that repeats the user of a conversation up to the turn of a failure.

    Tools answer with the recorded results. The requirement is checked without a model where possible: the ground truth
    of the conversation up to that turn, and that the quoted words of the agent, or the quoted call, do not occur again.
    If neither words nor a call are quoted, no failure of the cluster's severity may be found, which a judge or a rule
    decides.

    Args:
        failure: A row of table failures.
        cluster: The row of its cluster in table error_clusters.
        conversation: The row of its conversation in table conversations.
        turns: The rows of the conversation in table turns, in order.

    Raises:
        NotExportableError: If the conversation does not begin with a message of a user, or exceeds a limit.
    """
    until = [turn for turn in turns if turn["turn_index"] <= failure["turn_index"]]
    groups, number_of = _spoken(until)
    if not groups or not groups[0]:
        raise NotExportableError(
            conversation["conversation_id"], "it does not begin with a message of a user"
        )
    messages = [message for turn in until for message in json.loads(turn["messages"])]
    never_again = [*_never_again(failure, until, len(groups) - 1)]
    assertions = [*_ground_truth(conversation, number_of), *never_again]
    title = cluster["title"] or cluster["label"]
    where = f"{failure['agent_id']}, {failure['conversation_id']}#{failure['turn_index']}"
    optional: dict[str, Any] = {
        "profile": conversation["profile"],
        "goal": conversation["goal"],
        "knowledge": json.loads(conversation["knowledge"] or "null"),
        "injected_error": json.loads(conversation["injected_error"] or "null"),
        "turns": [{"say": texts} for texts in groups[1:]],
        "tools": _tools(conversation, messages, assertions),
        "assertions": assertions,
    }
    scenario: dict[str, Any] = {
        "id": scenario_id(cluster["cluster_id"]),
        "description": f"{title} ({where}): {failure['reason'] or failure['quote'] or failure['label']}"[
            :2_000
        ],
        "opening": groups[0],
        **{name: value for name, value in optional.items() if value},
        "max_turns": max(10, len(groups)),
    }
    if not never_again:
        scenario["fail_on_error_severity"] = cluster["severity"]
    try:
        problems = list(scenario_problems(BenchmarkScenario.model_validate(scenario)))
    except ValidationError as error:
        raise NotExportableError(
            conversation["conversation_id"], explain(error, BenchmarkScenario)
        ) from error
    if problems:
        raise NotExportableError(conversation["conversation_id"], problems[0][1])
    return scenario


def scenario_id(cluster_id: str) -> str:
    """Return the id of the scenario of a cluster, which is also a file name."""
    return re.sub(r"[^a-z0-9]+", "-", cluster_id.lower()).strip("-")


def _spoken(turns: Sequence[Row]) -> tuple[list[list[str]], dict[int, int]]:
    """Return the user's messages between two replies of the agent, and by index of a turn the number of its group."""
    groups: list[list[str]] = []
    number_of: dict[int, int] = {}
    is_answered = True
    for turn in turns:
        messages = json.loads(turn["messages"])
        texts = [
            str(m["content"])[:20_000]
            for m in messages
            if m["role"] == "user" and (m.get("content") or "").strip()
        ]
        if texts and is_answered:
            groups.append(texts)
        elif texts:
            groups[-1] += texts
        elif not groups:
            groups.append([])  # the agent speaks first
        number_of[turn["turn_index"]] = len(groups) - 1
        replied = any(message["role"] == "assistant" for message in messages)
        is_answered = replied or (is_answered and not texts)
    return groups, number_of


def _ground_truth(conversation: Row, number_of: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Yield what the conversation declares as right in the repeated turns, as assertions of a scenario."""
    for expected in json.loads(conversation["expected"] or "[]"):
        turn = expected.get("turn_index")
        if turn not in number_of:
            continue  # of the whole conversation, which the scenario may not repeat, or of a later turn
        at = {"turn": number_of[turn]}
        if expected.get("tools"):
            in_order = {"in_order": True} if expected.get("tool_sequence_matters") else {}
            by_agent = [tool for tool in expected["tools"] if tool.get("requestor") != "user"]
            if by_agent:
                yield {**at, "expected_tools": by_agent, **in_order}
        if expected.get("answer"):
            yield {**at, "expected_answer": expected["answer"]}
        for required in expected.get("assertions") or ():
            if not isinstance(required, dict):
                continue
            for name in ("forbidden_text", "required_text"):
                if required.get(name):
                    yield {**at, name: required[name]}
            if "forbidden_text" not in required and "required_text" not in required:
                yield {**at, "trajectory": required}


def _required_calls(assertions: Sequence[Row]) -> Iterator[ExpectedCall]:
    """Yield the calls that the agent should make."""
    for assertion in assertions:
        yield from read_expected(
            assertion.get("expected_tools") or assertion.get("trajectory", {}).get("tools") or []
        )


def _never_again(failure: Row, until: Sequence[Row], last: int) -> Iterator[dict[str, Any]]:
    """Yield the assertion that the quoted words, or the quoted call, of the failed turn do not occur again.

    If the failure is that a call was made again, it is that this call is made at most once.
    """
    quote = (failure["quote"] or "").strip()
    messages = json.loads(until[-1]["messages"])
    by_agent = [message for message in messages if message["role"] == "assistant"]
    repeated: dict[str, dict[str, Any]] = {}
    if failure["label"] == REPEATED_CALL:
        quote = ""  # the words are those of the call, which may be made once
    if quote and any(quote in (message.get("content") or "") for message in by_agent):
        yield {"turn": last, "forbidden_text": [quote]}
        return
    for message in by_agent:
        for call in message.get("tool_calls") or ():
            arguments = call.get("arguments")
            is_quoted = quote and isinstance(arguments, dict) and quote.startswith(f"{call['name']}(")
            forbidden_call = {"name": call["name"], "arguments": arguments}
            if _is_repeated(call, until):
                repeated |= {json.dumps(forbidden_call, sort_keys=True): forbidden_call}
            elif is_quoted and _arguments_in(quote) == arguments:
                yield {"turn": last, "trajectory": {"forbidden": [forbidden_call]}}
                return
    if failure["label"] == REPEATED_CALL and repeated:
        yield {
            "trajectory": {
                "at_most_once": [forbidden_call | {"match": "exact"} for forbidden_call in repeated.values()]
            }
        }


def _arguments_in(quote: str) -> object:
    inner = quote.partition("(")[2].rpartition(")")[0]
    try:
        return json.loads(inner)
    except ValueError:
        return None


def _is_repeated(call: Row, until: Sequence[Row]) -> bool:
    """Return whether the call was made several times, so that the repetition and not the call is the failure."""
    calls = [
        (earlier_call["name"], earlier_call.get("arguments"))
        for turn in until
        for message in json.loads(turn["messages"])
        for earlier_call in message.get("tool_calls") or ()
    ]
    return calls.count((call["name"], call.get("arguments"))) > 1


def _tools(conversation: Row, messages: Sequence[Row], assertions: Sequence[Row]) -> list[Any]:
    """Return the declared, the called and the required tools; each answers recorded calls with their results, in their order."""
    declared = {}
    for tool in json.loads(conversation["tools"] or "[]"):
        function = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        if function.get("name"):
            declared[str(function["name"])] = function
    for call in _required_calls(assertions):
        parameters = {"type": "object", "properties": {name: {} for name in call.asked}}
        declared.setdefault(call.name, {"parameters": parameters} if call.asked else {})
    results: dict[str, dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]] = {}
    calls: dict[object, tuple[str, Any]] = {}
    for message in messages:
        for call in (message.get("tool_calls") or ()) if message["role"] == "assistant" else ():
            calls[call.get("id")] = (call["name"], call.get("arguments"))
            results.setdefault(call["name"], {})
        if message["role"] == "tool" and message.get("tool_call_id") in calls:
            name, arguments = calls[message["tool_call_id"]]
            if not isinstance(arguments, dict):
                continue  # the result of a call that could not be read; without arguments, it would answer any call
            answers = results[name].setdefault(json.dumps(arguments, sort_keys=True), (arguments, []))[1]
            text = str(message.get("content") or "")
            answers.append({"error": text} if message.get("is_error") else {"constant": text})
    return [_tool(name, declared.get(name, {}), results.get(name, {})) for name in {**declared, **results}]


def _tool(
    name: str, declared: Row, results: Mapping[str, tuple[dict[str, Any], list[dict[str, Any]]]]
) -> dict[str, Any]:
    rows: list[Any] = [
        {"arguments": arguments, **(answers[0] if len(answers) == 1 else {"sequence": list(answers)})}
        for arguments, answers in sorted(results.values(), key=lambda row: -len(row[0]))
    ]
    tool_fields: dict[str, Any] = {"name": name}
    if declared.get("description"):
        tool_fields["description"] = str(declared["description"])
    if isinstance(parameters := declared.get("parameters"), dict):
        tool_fields["parameters"] = parameters
    return {**tool_fields, "mock": {"table": rows}} if rows else tool_fields
