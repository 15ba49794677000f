"""Detect calls to unknown tools, repeatedly failing calls and loops, and compute the share of useful calls."""

import re
from collections import Counter
from collections.abc import Sequence

from agent_eval.formats.hashing import canonical
from agent_eval.judge.evidence import call_text
from agent_eval.judge.protocol import NotApplicable, Question, Scored, Verdict
from agent_eval.judge.rules.finding import (
    RULE,
    RuleFinding,
    calls_of,
    decides,
    is_empty_result,
    is_live,
    leaves,
    may_have_failed,
    only_reads,
    words_of_name,
)
from agent_eval.judge.rules.history import history_of
from agent_eval.judge.rules.ignored_error import surely_failed
from agent_eval.judge.rules.repeated_call import repeated_in
from agent_eval.judge.rules.repetition import is_asked_again
from agent_eval.metrics.builtin.tool_call_behavior_failure import (
    REPEATED_FAILING_CALL,
    STUCK_LOOP,
    TOOL_CALL_BEHAVIOR_FAILURE,
    UNKNOWN_TOOL,
)
from agent_eval.transcripts.models import Conversation, ToolCall, Turn

MOST_EQUAL = 2  # maximum number of equal failing calls, which allows for a retry
SHORTEST_RUN = 5  # minimum number of consecutive failing calls of a tool with different arguments
EMPTY_SEARCHES = 6  # minimum number of consecutive searches for different words that find nothing
ROUNDS = 3  # number of times that the same calls must be repeated in sequence
LONGEST_ROUND = 4  # maximum number of calls in the repeated sequence

_PASSING = re.compile(
    r"time-?d? ?out|temporar|unavailable|rate.?limit|too many|\b429\b|\b5\d\d\b|connection|network|try again|retry"
    r"|busy|overload|throttl|locked|in progress|not ready",
    re.IGNORECASE,
)


@decides(TOOL_CALL_BEHAVIOR_FAILURE, order=10)
def unknown_tool(question: Question) -> RuleFinding | None:
    """Return a finding if the agent called a tool that it does not have, and the call failed.

    Abstains if the tools are unknown, if the name is that of a tool with another prefix, or if the call succeeded,
    which shows that the list of tools is incomplete.
    """
    names = _names_of_tools(question.conversations[0])
    for tool_call in calls_of(question):
        if _is_unknown(tool_call.call, names):
            near = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
            reason = f"There is no tool {tool_call.call.name!r}; there are {near}."
            return RuleFinding(UNKNOWN_TOOL, reason, call_text(tool_call.call.name, tool_call.call.arguments))
    return None


def _is_unknown(call: ToolCall, names: frozenset[str]) -> bool:
    if not names or call.name in names or not may_have_failed(call):
        return False
    last = words_of_name(call.name)[-1:]
    return not any(
        call.name.endswith(name) or name.endswith(call.name) or words_of_name(name) == last for name in names
    )


def _names_of_tools(conversation: Conversation) -> frozenset[str]:
    """Return the names of the tools, or an empty set if they are unknown or a tool has no name."""
    names: list[str] = []
    for tool in conversation.tools or ():
        inner = tool.get("function")
        name = (inner if isinstance(inner, dict) else tool).get("name")
        if not isinstance(name, str) or not name:
            return frozenset()
        names.append(name)
    return frozenset(names)


@decides(TOOL_CALL_BEHAVIOR_FAILURE, order=50)
def repeated_failing_call(question: Question) -> RuleFinding | None:
    """Return a finding if an equal call failed with the same error for the third time, without a change in between.

    Abstains if the error may be temporary or the user asked for a retry.
    """
    for call, n in history_of(question).state(_FailedBefore).of_turn(question.turn.turn_index):
        if n > MOST_EQUAL:
            reason = f"{call.name} failed with the same arguments and the same error {n} times."
            return RuleFinding(REPEATED_FAILING_CALL, reason, call_text(call.name, call.arguments))
    return None


class _FailedBefore:
    """Collect the agent's calls that failed like an earlier equal call, if nothing may have changed in between."""

    def __init__(self, conversation: Conversation) -> None:
        self._times: Counter[bytes] = Counter()
        self._again: dict[int, list[tuple[ToolCall, int]]] = {}

    def add(self, turn: Turn, start: int) -> None:
        """Add the next turn."""
        if is_asked_again(turn):
            self._times.clear()
        for call in turn.tool_calls:
            if not surely_failed(call):
                if not only_reads(call.name):
                    self._times.clear()
            elif call.requestor == "assistant" and not _PASSING.search(call.result or ""):
                key = canonical([call.name, call.arguments, call.result])
                self._times[key] += 1
                if self._times[key] > 1:
                    self._again.setdefault(turn.turn_index, []).append((call, self._times[key]))

    def of_turn(self, turn_index: int) -> list[tuple[ToolCall, int]]:
        """Return the calls of a turn that failed like an earlier one, each with the number of failures so far."""
        return self._again.get(turn_index, [])


@decides(TOOL_CALL_BEHAVIOR_FAILURE, order=40)
def stuck_loop(question: Question) -> RuleFinding | None:
    """Return a finding if the agent is in a loop within a turn.

    A loop is a sequence of two to four calls, not all equal, that is made three times with equal results, or five
    consecutive calls of a tool with different arguments that fail in the same way, or six searches for different
    words that find nothing. Abstains for tools that report changing data, and for errors that may be temporary.
    """
    calls = [tool_call.call for tool_call in calls_of(question)]
    return _failing_run(calls) or _empty_run(calls) or _round(calls)


def _empty_run(calls: Sequence[ToolCall]) -> RuleFinding | None:
    run: list[ToolCall] = []
    for call in calls:
        goes_on = only_reads(call.name) and not is_live(call.name) and is_empty_result(call)
        run = [*(run if run and call.name == run[0].name else []), call] if goes_on else []
        if len({_query_words(c) for c in run} - {frozenset()}) >= EMPTY_SEARCHES:
            reason = f"{call.name} found nothing {len(run)} times in a row, with other words each time."
            return RuleFinding(STUCK_LOOP, reason, call_text(call.name, call.arguments))
    return None


def _failing_run(calls: Sequence[ToolCall]) -> RuleFinding | None:
    run: list[ToolCall] = []
    for call in calls:
        goes_on = surely_failed(call) and not _PASSING.search(call.result or "")
        if run and (call.name != run[0].name or _kind_of_error(call) != _kind_of_error(run[0])):
            run = []
        run = [*run, call] if goes_on else []
        if len(run) >= SHORTEST_RUN and len({canonical(c.arguments) for c in run}) > 2:
            reason = f"{call.name} failed {len(run)} times in a row in the same way, with other arguments each time."
            return RuleFinding(STUCK_LOOP, reason, call_text(call.name, call.arguments))
    return None


def _query_words(call: ToolCall) -> frozenset[str]:
    """Return the words that a call searches for, without dates, numbers and codes, which may be tried one by one."""
    return frozenset(
        word.lower()
        for text in leaves(call.arguments)
        for word in re.findall(r"[^\W\d_]{3,}", text)
        if not word.isupper()
    )


def _kind_of_error(call: ToolCall) -> str:
    """Return the beginning of an error with numbers and quoted values replaced by '*'."""
    return re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "*", (call.result or "")[:200])


def _round(calls: Sequence[ToolCall]) -> RuleFinding | None:
    keys = [canonical([c.name, c.arguments, c.result]) for c in calls]
    for length in range(2, LONGEST_ROUND + 1):
        n_equal = 0
        for i in range(length, len(keys)):
            n_equal = n_equal + 1 if keys[i] == keys[i - length] else 0
            last_calls = calls[i - length + 1 : i + 1]
            if n_equal >= length * (ROUNDS - 1) and len(set(keys[i - length + 1 : i + 1])) > 1:
                if any(is_live(call.name) or call.result is None for call in last_calls):
                    continue
                names = ", ".join(call.name for call in last_calls)
                reason = f"The calls {names} follow one another {ROUNDS} times with the same results."
                return RuleFinding(STUCK_LOOP, reason, call_text(calls[i].name, calls[i].arguments))
    return None


def step_efficiency(question: Question) -> Verdict:
    """Return the share of the agent's calls in a conversation that were neither repeated nor useless, 0–1.

    A call is repeated if an equal call had the same result and nothing has changed since. It is useless if the tool is
    unknown, or if it failed like an earlier equal call.
    """
    conversation, turns = question.conversations[0], question.turns[0]
    n_calls = sum(call.requestor == "assistant" for turn in turns for call in turn.tool_calls)
    if not n_calls:
        return NotApplicable("no tool call in this conversation")
    history, names = history_of(question), _names_of_tools(conversation)
    wasted: dict[int, str] = {}
    first: ToolCall | None = None
    for turn in turns:
        waste = [(call, "repeated") for call in repeated_in(history, turn)]
        waste += [(call, "failed again") for call, _ in history.state(_FailedBefore).of_turn(turn.turn_index)]
        waste += [(call, "unknown tool") for call in turn.tool_calls if _is_unknown(call, names)]
        for call, why in waste:
            first = first or call
            wasted.setdefault(id(call), why)
    counts = Counter(wasted.values())
    reasons = ", ".join(f"{n} {why}" for why, n in counts.items()) or "none repeated or useless"
    return Scored(
        f"{n_calls} call{'s' if n_calls > 1 else ''}: {reasons}.",
        evidence=None if first is None else call_text(first.name, first.arguments),
        value=1 - len(wasted) / n_calls,
        answered_by=RULE,
    )
