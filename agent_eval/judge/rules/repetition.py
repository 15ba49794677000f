"""Repetition: a long text of the agent that it had given before, unasked."""

import difflib
import re
from collections.abc import Iterable

from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.finding import RuleFinding, quote_of, words_of
from agent_eval.metrics.builtin.agent_behavior_failure import REPETITION
from agent_eval.transcripts.models import Turn

MIN_WORDS_EQUAL = 8  # shorter texts repeat for good reasons: thanks, greetings, holding lines
MIN_WORDS_SIMILAR = 40
SIMILAR = 0.95  # share of equal words in order

_ASKED_AGAIN = re.compile(
    r"\b(again|repeat\w*|once more|one more time|re-?(send|check|run|try|do|peat)|refresh\w*|still|retry"
    r"|double[- ]check|did(n't| not) (get|see|catch)|sorry\?|pardon)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"```|</?(execute|code|tool_call)>|[{};]\s*$", re.MULTILINE)
_COURTESY = re.compile(r"\b(thanks?|thank you|bye|goodbye|have a (good|nice|great))\b", re.IGNORECASE)


def repetition(question: Question) -> RuleFinding | None:
    """Decides that a text is one of an earlier turn, word for word or nearly so.

    Numbers must be equal, since a template with another figure says something new. Abstains where the text holds
    code, which may be run again, where the text ends
    in a question, which may be put again, where thanks get thanks, where the user asked again, and where much the
    same wish of the user gets much the same answer.
    """
    turn = question.turn
    text = turn.agent_message
    if text is None or text.rstrip().endswith("?") or is_asked_again(turn):
        return None
    if turn.user_message is not None and _COURTESY.search(turn.user_message):
        return None
    words = words_of(text)
    if len(words) < MIN_WORDS_EQUAL or _CODE.search(text):
        return None
    for earlier in question.turns[0][: turn.turn_index]:
        if earlier.agent_message is None:
            continue
        said = words_of(earlier.agent_message)
        is_equal = words == said and words_of(turn.user_message or "") != words_of(earlier.user_message or "")
        if is_equal or (_is_similar(words, said) and not _is_same_wish(turn, earlier)):
            return RuleFinding(
                REPETITION, f"The text of turn {earlier.turn_index} is given again, unasked.", quote_of(text)
            )
    return None


def is_asked_again(turn: Turn) -> bool:
    """Whether the user asks for something once more."""
    return turn.user_message is not None and bool(_ASKED_AGAIN.search(turn.user_message))


def _is_similar(words: tuple[str, ...], said: tuple[str, ...]) -> bool:
    shorter, longer = sorted((len(words), len(said)))
    if shorter < MIN_WORDS_SIMILAR or shorter < SIMILAR * longer or _figures(words) != _figures(said):
        return False
    if len(set(words) & set(said)) < SIMILAR * len(set(words) | set(said)):
        return False
    return difflib.SequenceMatcher(None, words, said, autojunk=False).ratio() >= SIMILAR


def _is_same_wish(turn: Turn, earlier: Turn) -> bool:
    """Whether the user said much the same: half of all their words are common."""
    now, before = set(words_of(turn.user_message or "")), set(words_of(earlier.user_message or ""))
    return len(now & before) * 2 >= len(now | before)


def _figures(words: Iterable[str]) -> list[str]:
    return [word for word in words if any(sign.isdigit() for sign in word)]
