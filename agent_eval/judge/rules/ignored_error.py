"""Detect an ignored tool result: the agent reports success to the user although its call failed."""

import json
import re

from agent_eval.judge.evidence import call_text
from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.finding import RuleFinding, calls_of, decides, only_reads, words_of_name
from agent_eval.metrics.builtin.tool_call_behavior_failure import (
    IGNORED_TOOL_RESULT,
    TOOL_CALL_BEHAVIOR_FAILURE,
)
from agent_eval.transcripts.models import ToolCall

_ERROR_TEXT = re.compile(
    r"\s*(error\b|\[error\]|traceback \(most recent|\w*(error|exception): )", re.IGNORECASE
)
_CLAIM = re.compile(r"\bsuccessfully\b|\A\W*(all |it's |it is )?done\b", re.IGNORECASE)
_IRREGULAR = {
    "send": "sent", "make": "made", "pay": "paid", "set": "set", "put": "put", "buy": "bought", "give": "given",
    "write": "written", "cancel": "cancell?ed", "submit": "submitted", "modify": "modified", "apply": "applied",
}  # fmt: skip
_TROUBLE = re.compile(
    r"n't\b|n’t\b|\b(not|no|none|never|cannot|unable|error\w*|fail\w*|issue\w*|problem\w*|unfortunately|sorry|apolog\w*"
    r"|however|but|although|though|unsuccessful\w*|try|retry|tried|attempt\w*|invalid|trouble|difficult\w*|instead"
    r"|transfer\w*|escalat\w*|without|still|seems?|reject\w*|denied|declined|insufficient|exceed\w*|mistake\w*|missing)\b",
    re.IGNORECASE,
)


@decides(TOOL_CALL_BEHAVIOR_FAILURE, order=30)
def ignored_error(question: Question) -> RuleFinding | None:
    """Return a finding if the agent claims success although the last call of the turn with an effect failed.

    The finding must be certain: the call would change something, its result is a declared error or consists of an
    error, no later call of the turn changes anything, and the text after it claims success in English without
    mentioning any problem.
    """
    turn = question.turn
    acting = [tool_call for tool_call in calls_of(question) if not only_reads(tool_call.call.name)]
    if not acting or not surely_failed(acting[-1].call):
        return None
    succeeded = [tool_call for tool_call in acting if not surely_failed(tool_call.call)]
    if succeeded:
        return None  # the claim may refer to another call that succeeded
    last = acting[-1]
    replies = [m.content for m in turn.messages[last.position + 1 :] if m.role == "assistant" and m.content]
    claim = _claim("\n".join(replies), last.call.name)
    if claim is None:
        return None
    return RuleFinding(
        IGNORED_TOOL_RESULT,
        f"{last.call.name} failed ({' '.join((last.call.result or 'declared an error').split())[:100]}), and the reply "
        f"claims success: {claim!r}.",
        call_text(last.call.name, last.call.arguments),
    )


def _claim(text: str, tool: str) -> str | None:
    """Return the words that claim success, or None if there are none or the text mentions a problem."""
    if _TROUBLE.search(text):
        return None
    verb = next(iter(words_of_name(tool)), "")
    done = _IRREGULAR.get(verb) or re.escape(verb.removesuffix("e")) + "ed"
    deed = re.search(
        rf"\b(has|have|is|are|was|were|I|we|you)(['’]ve)? (now |all |been |successfully )*{done}\b",
        text,
        re.IGNORECASE,
    )
    claim = deed or (None if "?" in text else _CLAIM.search(text))
    return claim.group() if claim else None


def surely_failed(call: ToolCall) -> bool:
    """Return whether a call certainly failed: a declared error, a text that begins with one, or an error object."""
    if call.is_error is not None:
        return call.is_error
    text = call.result or ""
    return bool(_ERROR_TEXT.match(text[:200])) or _is_error_object(text)


def _is_error_object(text: str) -> bool:
    if not text.lstrip().startswith("{") or len(text) > 10_000:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    status = str(value.get("status", "")).lower()
    return (
        bool(value.get("error")) or status in ("error", "failed", "failure") or value.get("success") is False
    )
