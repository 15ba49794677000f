"""Read replies: convert the text of a judge to verdicts, or to a description of the problem for the single re-ask.

An unreadable reply yields no rating rather than a low one. Leading reasoning and a code fence are removed, the text is
read as JSON, a library repairs small errors if necessary, and each field is checked. Ambiguous replies are rejected:
several objects, a metric that is answered twice, a truncated reply, or a reply that the transcript dictates verbatim or
with small changes.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from agent_eval.formats.json_text import clean
from agent_eval.formats.plain_text import folded_words
from agent_eval.judge.evidence import quotable
from agent_eval.judge.llm.redaction import hide_secrets
from agent_eval.judge.prompts import words
from agent_eval.judge.prompts.build import Messages, Prompt
from agent_eval.judge.prompts.fence import line
from agent_eval.judge.prompts.forms import is_integer, may_be_untold
from agent_eval.judge.prompts.question_code import is_of_another_question
from agent_eval.judge.protocol import Cause, Scored, Unscored, Verdict
from agent_eval.metrics.base import NO_FAILURE, QUESTION_CODE, SEVERITIES, Items, Metric
from agent_eval.metrics.findings import checks_of

_COPIED = "It was copied from the record, which holds data and no answer."
_OF_ANOTHER = "Its question_code is that of another question: the reply does not belong to this one."
_CODE_FIELD = re.compile(rf"[\"']{QUESTION_CODE}[\"']\s*:\s*[\"'][^\"']*[\"']\s*,?")
LONGEST_TEXT = 4_000  # maximum characters of a stored rationale or quote
MOST_ITEMS = 20  # maximum number of items listed in a rationale
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrt\"\\/]))")
_ESCAPED_SPACE = re.compile(r"\\+[nrt]")
_REASON_WORDS = ("reason", "rationale", "justification", "explanation")
_REASON_KEY = re.compile(rf"(?:{'|'.join(_REASON_WORDS)})\W{{1,12}}", re.IGNORECASE)
_SEARCHED = 4_000  # characters of an unreadable reply that are searched for API keys
_FINDINGS = '{"findings"'  # beginning of the line of the record with earlier findings of judges
_WINDOW = '{"window": '  # beginning of the verdicts on a window in the call that merges them
_ANSWER_KEY = re.compile(r"[\"'](?:score|label|evidence)\\*[\"']\s*:", re.IGNORECASE)
_FEWEST_WORDS, _SHARE_ALIKE, _SHARE_BESIDE = 4, 0.8, 0.6
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class ReplyError(Exception):
    """Raised when a reply cannot be read.

    `problem` is a sentence without text from the reply, which is safe to send back. `read` holds the verdicts on the
    metrics whose part of the reply was readable.
    """

    def __init__(self, problem: str, text: str, read: Mapping[str, Verdict] | None = None) -> None:
        # hide keys before truncating, because a truncated key is not recognised
        begun = hide_secrets(text[:_SEARCHED])[:80]
        super().__init__(f"{problem} The reply began {clean(begun)!r}.")
        self.problem = problem
        self.read: Mapping[str, Verdict] = read or {}


def read_reply(prompt: Prompt, text: str) -> Mapping[str, Verdict]:
    """Return the verdict on every metric of the prompt.

    Quotes are returned as they occur in the transcript, with the hidden names restored and without escapes. Answers to
    yes/no checks can limit a rating (see metrics/profile.py); the rationale then says so.

    Raises:
        ReplyError: If the reply is not a JSON object, or the part of a metric is missing or invalid.
    """
    reply = object_of(prompt, text)
    read: dict[str, Verdict] = {}
    problems = []
    for metric in prompt.metrics:
        try:
            read[metric.name] = _verdict(prompt, metric, reply.get(metric.name))
        except _UnreadableError as error:
            problems.append(f"{metric.name}: {error}")
    if problems:
        raise ReplyError("; ".join(problems) + ".", text, read)
    return read


def repair_messages(prompt: Prompt, error: ReplyError) -> Messages:
    """Return the messages of the single re-ask: the original messages with the problem added at the end.

    The unreadable reply is not sent back, because it may quote the transcript, which would then be outside the fence.
    """
    return prompt.with_request(prompt.messages, words.REPAIR.format(problem=error.problem))


class _UnreadableError(Exception):
    """Raised when the part of a reply about one metric is missing or invalid."""


class _AnsweredTwiceError(Exception):
    """Raised when a key occurs twice in an object."""


def object_of(prompt: Prompt, text: str) -> Mapping[str, object]:
    """Return the JSON object in a reply, with small errors repaired if this is safe.

    Raises:
        ReplyError: If the reply is not a JSON object, has a key twice, is copied from the transcript, or repeats the
            code of another question.
    """
    bare = _THOUGHTS.sub("", text).strip().removeprefix("\ufeff").strip()
    bare = _without_code_fence(bare)
    if not bare.startswith("{"):
        raise ReplyError("It was not one JSON object.", text)
    if not bare.endswith("}"):
        raise ReplyError("It did not end with the JSON object: it stopped early or went on after it.", text)
    if _is_copied(prompt, _CODE_FIELD.sub("", bare)):
        raise ReplyError(_COPIED, text)
    try:
        reply = json.loads(bare, object_pairs_hook=_pairs)
    except _AnsweredTwiceError as error:
        raise ReplyError("It gave one key twice.", text) from error
    except (ValueError, RecursionError):
        reply = _mended(prompt, bare, text)
    if not isinstance(reply, dict):
        raise ReplyError("It was not one JSON object.", text)
    if prompt.question_code and is_of_another_question(reply, prompt.question_code):
        raise ReplyError(_OF_ANOTHER, text)
    record = prompt.messages[-1]["content"]
    keys = _reason_keys(record)
    if keys and any(_is_dictated(record, keys, reason) for reason in _reasons(reply)):
        raise ReplyError(_COPIED, text)
    return reply


def _without_code_fence(text: str) -> str:
    """Return the text between the first and last ```, or the whole text if there is a brace outside of them."""
    start, end = text.find("```"), text.rfind("```")
    if start == end or set("{}") & {*text[:start], *text[end:]}:
        return text
    inside = text[start + 3 : end]
    language, _, rest = inside.partition("\n")
    return (rest if language.strip().isalpha() or not language.strip() else inside).strip()


def _is_copied(prompt: Prompt, bare: str) -> bool:
    """Return whether the record contains the reply, ignoring case and punctuation."""
    return _letters(line(bare)) in _letters(prompt.messages[-1]["content"])


def _reasons(reply: Mapping[str, object]) -> Iterator[str]:
    """Yield the reasons in a reply."""
    for part in (reply, *reply.values()):
        reason = cast("Mapping[str, object]", part).get("reason") if isinstance(part, Mapping) else None
        if isinstance(reason, str):
            yield reason


def _reason_keys(record: str) -> list[re.Match[str]]:
    """Return the matches of keys such as "reason" in the transcript, without earlier findings of judges."""
    marker_positions = (record.find(f"\n{start}") for start in (_FINDINGS, _WINDOW))
    ends = (*marker_positions, record.rfind("\n</record "), len(record))
    end = next(end for end in ends if end >= 0)
    small = record[:end].lower()
    if not any(word in small for word in _REASON_WORDS):  # the usual case; a hundred times faster
        return []
    return list(_REASON_KEY.finditer(record, 0, end))


def _is_dictated(record: str, keys: Sequence[re.Match[str]], reason: str) -> bool:
    """Return whether the transcript contains an answer with a very similar reason, and thus dictated the reply.

    Case, punctuation, look-alike and invisible characters, and the order of the fields are ignored. If a reason in the
    transcript is next to a score or a label, it suffices that most words are equal, even after some other words.
    Otherwise, nearly all words must be equal from the beginning. Quotes of other texts in the transcript do not count,
    and reasons with fewer than four words are too common to decide.
    """
    reason_words = _plain_words(reason)
    if len(reason_words) < _FEWEST_WORDS:
        return False
    for key in keys:
        room = 2 * len(reason) + 100
        after = record[key.end() : key.end() + room]
        record_words = _plain_words(after)[: len(reason_words)]
        n_same = (Counter(reason_words) & Counter(record_words)).total()
        begins_alike = sum(a == b for a, b in zip(reason_words[:4], record_words, strict=False)) >= 2
        if begins_alike and n_same >= _SHARE_ALIKE * len(reason_words):
            return True
        is_answer = _ANSWER_KEY.search(record[max(0, key.start() - 200) : key.end() + room])
        if (
            is_answer
            and n_same >= _SHARE_BESIDE * len(reason_words)
            and {*record_words[:3]} <= {*reason_words[:8]}
        ):
            return True
    return False


def _plain_words(text: str) -> list[str]:
    return folded_words(_ESCAPED_SPACE.sub(" ", text))


def _letters(text: str) -> bytes:
    """Return the text in lower case, without spaces, punctuation and escapes, which differ in nested JSON."""
    data = text.casefold().encode("utf-8", "surrogatepass")
    for escape in (b"\\n", b"\\r", b"\\t"):
        data = data.replace(escape, b"")
    return data.translate(None, b"\\\"' \n\r\t,.;:!?-_")


def _mended(prompt: Prompt, bare: str, text: str) -> object:
    """Return the value of invalid JSON after a library has repaired small errors.

    Raises:
        ReplyError: If the text cannot be repaired, or names a metric twice.
    """
    import json_repair  # imported only if needed

    for metric in prompt.metrics:
        if len(re.findall(rf"[\"']{re.escape(metric.name)}[\"']\s*:", bare)) > 1:
            raise ReplyError(f"It was not valid JSON, and named {metric.name} twice.", text)
    try:
        mended: object = json_repair.loads(bare, skip_json_loads=True, strict=True)
    except (ValueError, RecursionError) as error:
        raise ReplyError("It was not valid JSON.", text) from error
    return mended


def _pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _AnsweredTwiceError
    return fields


def _verdict(prompt: Prompt, metric: Metric, part: object) -> Scored | Unscored:
    if not isinstance(part, dict):
        raise _UnreadableError("missing" if part is None else "not an object")
    answer = cast("Mapping[str, object]", part)
    reason = answer.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise _UnreadableError("reason is missing")
    if any(_is_example(answer, example) for example in words.EXAMPLES):
        raise _UnreadableError("the example of the instructions is not an answer")
    rationale, evidence = _kept(reason), _evidence(prompt, answer.get("evidence"))
    if metric.items is not None:
        return _of_items(prompt, metric.items, answer.get(metric.items.name), rationale, evidence)
    answer_key = "label" if metric.kind == "label" else "score"
    if may_be_untold(metric) and answer_key in answer and answer[answer_key] is None:
        return Unscored("cannot_tell", rationale, evidence)
    if metric.kind == "label":
        label, further = _labels(metric, answer)
        causes = _causes(metric, answer, (label, *further))
        return Scored(rationale, evidence, label=label, further_labels=further, causes=causes)
    score = _score(metric, answer.get("score"))
    if metric.answer != "rating_1to5":
        return Scored(rationale, evidence, value=score)
    rating, note = _checked(metric, round(score), answer)
    return Scored(f"{rationale}{note}", evidence, rating_1to5=rating)


def _is_example(answer: Mapping[str, object], example: Mapping[str, object]) -> bool:
    """Return whether an answer has the evidence and the reason of an example in the instructions."""
    return all(
        folded_words(str(answer.get(key))) == folded_words(str(example[key]))
        for key in ("evidence", "reason")
    )


def _of_items(
    prompt: Prompt, items: Items, entries: object, rationale: str, evidence: str | None
) -> Scored | Unscored:
    """Return the answer that the verdicts on the listed items imply.

    The first of the possible verdicts denotes an item without a problem. The rationale lists the items with other
    verdicts, ordered by verdict. The evidence is the quote of the first listed item that has one.
    """
    if not isinstance(entries, list):
        raise _UnreadableError(f"{items.name} must be a list")
    verdicts = [_item_verdict(items, item) for item in entries]
    listed = sorted(zip(verdicts, entries, strict=True), key=lambda pair: items.verdicts.index(pair[0]))
    others = [(verdict, item) for verdict, item in listed if verdict != items.verdicts[0]]
    quotes = (_evidence(prompt, item.get("evidence")) for _, item in others)
    quote = next(filter(None, quotes), evidence)
    if not entries and items.rating is None:
        return Unscored("nothing_to_judge", rationale, evidence)
    n_good = verdicts.count(items.verdicts[0])
    summary = (
        f"{n_good} of {len(entries)} {items.name} {items.verdicts[0]}." if entries else f"No {items.name}."
    )
    item_texts = [f"[{_item_text(items, v, item)}]" for v, item in others[:MOST_ITEMS]]
    more = [f"and {len(others) - MOST_ITEMS:,} more"] if len(others) > MOST_ITEMS else []
    full_rationale = " ".join([rationale, summary, *item_texts, *more])
    if items.rating is not None:
        rating = items.rating(verdicts)
        return Scored(full_rationale, quote, rating_1to5=rating, item_verdicts=tuple(verdicts))
    return Scored(full_rationale, quote, value=n_good / len(entries), item_verdicts=tuple(verdicts))


def _item_verdict(items: Items, item: object) -> str:
    if not isinstance(item, dict) or item.get("verdict") not in items.verdicts:
        raise _UnreadableError(f"each of {items.name} needs a verdict: {' or '.join(items.verdicts)}")
    bad = item["verdict"] != items.verdicts[0]
    if bad and items.has_severity and item.get("severity") not in SEVERITIES:
        raise _UnreadableError(f"severity must be one of: {', '.join(SEVERITIES)}")
    return str(item["verdict"])


def _item_text(items: Items, verdict: str, item: Mapping[str, object]) -> str:
    severity = f" ({item['severity']})" if items.has_severity else ""
    return f"{verdict}{severity}: {_kept(str(item.get(items.each) or ''))[:200]}"


def _score(metric: Metric, value: object) -> float:
    low, high = metric.scale or (0, 1)
    allowed = f"score must be {'an integer' if is_integer(metric) else 'a number'} from {low:g} to {high:g}"
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+(\.\d+)?\s*", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnreadableError(allowed)
    # compare before converting to float, because an integer may be too large for it
    if not low <= value <= high or math.isnan(value) or (is_integer(metric) and value != int(value)):
        raise _UnreadableError(allowed)
    return float(value)


def _labels(metric: Metric, answer: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    label = _label(metric, answer.get("label"))
    reply_labels = answer.get("further_labels")
    if not metric.is_failure or reply_labels is None:
        return label, ()
    if not isinstance(reply_labels, list):
        raise _UnreadableError("further_labels must be a list of labels")
    valid_labels = dict.fromkeys(_label(metric, each) for each in reply_labels)
    further = tuple(each for each in valid_labels if each not in (label, NO_FAILURE))
    if label == NO_FAILURE and further:
        raise _UnreadableError(f"label is {NO_FAILURE!r}, but further_labels names a failure")
    return label, further


def _causes(metric: Metric, answer: Mapping[str, object], labels: Sequence[str]) -> tuple[Cause, ...]:
    """Return the causes that a reply gives for its failure labels. Others are ignored; a missing cause is unknown."""
    reply_causes = answer.get("causes")
    cause_of_label: dict[str, Cause] = {}
    for entry in reply_causes if isinstance(reply_causes, list) and metric.is_failure else ():
        label_of_word = {_plain(label): label for label in labels if label != NO_FAILURE}
        label_text = entry.get("label") if isinstance(entry, dict) else None
        label = label_of_word.get(_plain(label_text)) if isinstance(label_text, str) else None
        if label is not None:
            texts = (entry.get(key) for key in ("cause", "should_have"))
            cause_of_label.setdefault(
                label, Cause(label, *(_kept(t) or None if isinstance(t, str) else None for t in texts))
            )
    return tuple(cause_of_label.values())


def _label(metric: Metric, label_text: object) -> str:
    """Return the label of the metric that equals the given one, ignoring case, hyphens and underscores."""
    plain = {_plain(label): label for label in metric.labels}
    if not isinstance(label_text, str) or _plain(label_text) not in plain:
        raise _UnreadableError(f"label must be one of: {', '.join(metric.labels)}")
    return plain[_plain(label_text)]


def _plain(label: str) -> str:
    return re.sub(r"[\s_-]+", " ", label).strip().casefold()


def _checked(metric: Metric, rating: int, answer: Mapping[str, object]) -> tuple[int, str]:
    """Return the rating limited by the answers to the yes/no checks, and a text to add to the rationale."""
    check_answers, bounds = [], [rating]
    for check in checks_of(metric.name):
        yes = answer.get(check.name)
        if not isinstance(yes, bool):
            raise _UnreadableError(f"{check.name} must be true or false")
        check_answers.append(f"{check.name}: {'yes' if yes else 'no'}")
        if not yes:
            bounds.append(check.at_most)
    note = f" [{', '.join(check_answers)}]" if check_answers else ""
    if min(bounds) < rating:
        note += f" [rated {rating}, bounded at {min(bounds)} by these answers]"
    return min(bounds), note


def _evidence(prompt: Prompt, raw_quote: object) -> str | None:
    """Return the quote as it occurs in the transcript, or as the judge gave it if it does not occur there."""
    if raw_quote is None:
        return None
    if not isinstance(raw_quote, str):
        raise _UnreadableError("evidence must be a text or null")
    quote = _kept(raw_quote)
    for candidate in dict.fromkeys([quote, clean(_ESCAPE.sub(_unescaped, quote))]):
        if line(candidate)[1:-1] in prompt.messages[-1]["content"]:
            quote = candidate
            break
    return prompt.names.restore(quote, _texts(prompt)) or None


def _texts(prompt: Prompt) -> Iterator[str]:
    for turn in reversed(prompt.turns):
        yield from quotable(turn.messages, prompt.names.personal)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2]]


def _kept(text: str) -> str:
    return clean(text).strip()[:LONGEST_TEXT]
