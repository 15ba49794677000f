"""Detect repetition: a long text that the agent repeats without being asked, or a question that it asks repeatedly."""

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterable

from agent_eval.judge.protocol import Question
from agent_eval.judge.rules.finding import RuleFinding, cut, decides, quote_of, words_of
from agent_eval.judge.rules.history import history_of
from agent_eval.metrics.builtin.agent_behavior_failure import AGENT_BEHAVIOR_FAILURE, REPETITION
from agent_eval.transcripts.models import Conversation, Turn

MIN_WORDS_EQUAL = 8  # shorter texts, such as thanks and greetings, are repeated for good reasons
MIN_WORDS_SIMILAR = 40
SIMILAR = 0.95  # minimum share of equal words, in order, of similar texts
LOOKED_AT = 64  # number of latest texts searched for similar ones; equal texts are found at any distance

MIN_WORDS_ASKED = 5
MOST_ASKED = 3  # maximum number of times that a question can be asked in the same words

_SENTENCE = re.compile(r"[^.!?\n]{8,300}\?")
_ASKS_FACTS = re.compile(
    r"\b(what|which|who|whom|when|where|how|(could|can|would|may|please) (you|i) (please |kindly )*"
    r"(provide|tell|share|give|have|send|specify|let me know))\b",
    re.IGNORECASE,
)
_ASKS_LEAVE = re.compile(
    r"\b(else|help|assist\w*|proceed|go ahead|confirm\w*|correct|continue|would you like|do you want|shall"
    r"|should i|next|today|now|further)\b",
    re.IGNORECASE,
)
_ASKED_AGAIN = re.compile(
    r"\b(again|repeat\w*|once more|one more time|re-?(send|check|run|try|do|peat)|refresh\w*|still|retry"
    r"|double[- ]check|did(n't| not) (get|see|catch)|sorry\?|pardon)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"```|</?(execute|code|tool_call)>|[{};]\s*$", re.MULTILINE)
_COURTESY = re.compile(r"\b(thanks?|thank you|bye|goodbye|have a (good|nice|great))\b", re.IGNORECASE)


@decides(AGENT_BEHAVIOR_FAILURE, order=50)
def repetition(question: Question) -> RuleFinding | None:
    """Return a finding if the agent's text is equal or very similar to its text in an earlier turn.

    Numbers must be equal, because the same sentence with another number is new information. Abstains if the text
    contains code, ends with a question or replies to thanks, if the user asked for a repetition, or if the user's
    messages in both turns are similar too.
    """
    turn = question.turn
    text = turn.agent_message
    if text is None or text.rstrip().endswith("?"):
        return None
    words = words_of(text)
    if len(words) < MIN_WORDS_EQUAL:
        return None
    earlier = history_of(question).state(_SaidBefore).earlier(turn, words)
    if earlier is None or _CODE.search(text) or is_asked_again(turn):
        return None
    if turn.user_message is not None and _COURTESY.search(turn.user_message):
        return None
    return RuleFinding(REPETITION, f"The text of turn {earlier} is given again, unasked.", quote_of(text))


@decides(AGENT_BEHAVIOR_FAILURE, order=60)
def repeated_question(question: Question) -> RuleFinding | None:
    """Return a finding if the agent asks for the same facts in the same words for the fourth time.

    Abstains for questions that are reasonable at every step: whether to continue, whether something is right, or what
    else is needed.
    """
    repeated_sentence = history_of(question).state(_AskedBefore).of_turn(question.turn.turn_index)
    if repeated_sentence is None:
        return None
    reason = f"The same question is asked {MOST_ASKED + 1} times or more."
    return RuleFinding(REPETITION, reason, cut(repeated_sentence))


class _AskedBefore:
    """Count the turns in which the agent has asked each question so far."""

    def __init__(self, conversation: Conversation) -> None:
        self._times: Counter[tuple[str, ...]] = Counter()
        self._again: dict[int, str] = {}

    def add(self, turn: Turn, start: int) -> None:
        """Add the next turn."""
        texts = (m.content for m in turn.messages if m.role == "assistant" and m.content)
        sentences = (s.strip() for text in texts if "?" in text for s in _SENTENCE.findall(text))
        questions = {words_of(s): s for s in sentences if _ASKS_FACTS.search(s) and not _ASKS_LEAVE.search(s)}
        for words, sentence in questions.items():
            if len(words) >= MIN_WORDS_ASKED:
                self._times[words] += 1
                if self._times[words] > MOST_ASKED:
                    self._again.setdefault(turn.turn_index, sentence)

    def of_turn(self, turn_index: int) -> str | None:
        """Return a question of a turn that has been asked too often, or None."""
        return self._again.get(turn_index)


class _SaidBefore:
    """Index the agent's texts so far by their words and by the numbers in them."""

    def __init__(self, conversation: Conversation) -> None:
        # first turn, by the words of the agent and of the user
        self._equal: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
        # turns, by the numbers and words of the agent's text
        self._alike: dict[tuple[str, ...], dict[tuple[str, ...], list[Turn]]] = {}

    def add(self, turn: Turn, start: int) -> None:
        """Add the next turn."""
        if turn.agent_message is None:
            return
        words = words_of(turn.agent_message)
        if len(words) < MIN_WORDS_EQUAL:
            return
        users = self._equal.setdefault(words, {})
        if len(users) < 2:  # two suffice: at least one of them differs from any other message of the user
            users.setdefault(words_of(turn.user_message or ""), turn.turn_index)
        if len(words) >= MIN_WORDS_SIMILAR:
            self._alike.setdefault(_figures(words), {}).setdefault(words, []).append(turn)

    def earlier(self, turn: Turn, words: tuple[str, ...]) -> int | None:
        """Return the index of the first earlier turn with an equal or similar text, or None.

        Only the latest LOOKED_AT texts are searched for similar ones.
        """
        wish = words_of(turn.user_message or "")
        users = self._equal.get(words, {})
        equal = [i for user, i in users.items() if i < turn.turn_index and user != wish]
        if len(words) < MIN_WORDS_SIMILAR:
            return min(equal, default=None)
        return min(equal + self._similar(turn, words), default=None)

    def _similar(self, turn: Turn, words: tuple[str, ...]) -> list[int]:
        turn_indices: list[int] = []
        texts = self._alike.get(_figures(words), {})
        before = (
            (other.turn_index, other, earlier_words)
            for earlier_words, turns in itertools.islice(reversed(texts.items()), LOOKED_AT)
            for other in turns[:LOOKED_AT]
            if earlier_words != words and other.turn_index < turn.turn_index
        )
        for index, other, earlier_words in itertools.islice(before, LOOKED_AT):
            if not _is_same_wish(turn, other) and _is_similar(words, earlier_words):
                turn_indices.append(index)
        return turn_indices


def is_asked_again(turn: Turn) -> bool:
    """Return whether the user asks the agent to repeat something."""
    return turn.user_message is not None and bool(_ASKED_AGAIN.search(turn.user_message))


def _is_similar(words: tuple[str, ...], other_words: tuple[str, ...]) -> bool:
    shorter, longer = sorted((len(words), len(other_words)))
    if shorter < SIMILAR * longer:
        return False
    if len(set(words) & set(other_words)) < SIMILAR * len(set(words) | set(other_words)):
        return False
    return difflib.SequenceMatcher(None, words, other_words, autojunk=False).ratio() >= SIMILAR


def _is_same_wish(turn: Turn, earlier: Turn) -> bool:
    """Return whether the user's messages in both turns are similar, i.e. share at least half of their words."""
    now, before = set(words_of(turn.user_message or "")), set(words_of(earlier.user_message or ""))
    return len(now & before) * 2 >= len(now | before)


def _figures(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word in words if not word.isalpha() and any(map(str.isdigit, word)))
