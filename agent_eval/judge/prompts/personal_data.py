"""Replace personal data by placeholders: e-mail addresses, phone and card numbers, IBANs, and what the project names.

A placeholder such as [email 4f0c21ab] has the kind of the value and a keyed hash of it. The same value, however it is
spaced or capitalised, has the same placeholder everywhere in a project; the value cannot be computed from it without
the project's key. Nothing is stored. Names and addresses of people are not recognised; `patterns` and `function` add
what a project needs.
"""

import functools
import hashlib
import importlib
import itertools
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import polars as pl
from pydantic import JsonValue

from agent_eval.errors import ConfigurationError
from agent_eval.formats.hashing import digest

EMAIL, PHONE, CARD, IBAN, OTHER = "email", "phone", "card", "iban", "private"
_MOST_PASSES = 5
_MOST_REMEMBERED = 4096  # texts whose redaction is remembered, since prompts repeat earlier turns
PLACEHOLDER = re.compile(r"\[[a-z][a-z0-9_]{0,39} [0-9a-f]{8}\]")
"""Matches a placeholder of personal data."""
# Each pattern takes time linear in the text: every repetition is bounded or cannot overlap what follows it.
_EMAIL = re.compile(r"(?<!\w)\w[\w.+'-]{0,127}(?:@|%40)(?:[^\W_][\w-]{0,62}\.){1,8}[^\W\d_][\w-]{1,62}")
_SPACE = r"[ \t\u00a0\u2007\u202f\-\u2010-\u2015]"
_GAP = _SPACE.replace("[", "[.", 1)
_DIGITS = re.compile(rf"(?<!\d)(?<!\d\.)\d+(?:{_SPACE}\d+)*")
_IBAN = re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}(?:[ \u00a0\u202f-]?[A-Za-z0-9]){11,30}")
_IS_DATE = r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?![./-]?\d)"
_PHONE = re.compile(
    rf"(?:(?<![\d+])\+\d{{1,3}}|(?<![\w+])00[1-9]\d{{0,2}}){_GAP}?(?:\(0?\d{{0,4}}\){_GAP}?)?\d(?:/?{_GAP}?\d){{5,12}}(?!\d)"
    rf"|(?<![\w+])\(0?\d{{2,5}}\){_GAP}?\d(?:{_GAP}?\d){{5,9}}(?!\d)"
    rf"|(?<![\w+])(?<!\d[./-])(?:1[ .-])?[2-9]\d{{2}}([ .-])\d{{3}}\1\d{{4}}(?![\w-])"
    rf"|(?<![\w+])(?<!\d[./:-])(?!{_IS_DATE})0[1-9]\d{{0,4}}(?:/|{_GAP})?\d(?:{_GAP}?\d){{5,9}}(?![\w:])"
)
Values = Iterable[str | tuple[str, str]]
"""What an own function returns: values to replace, or pairs of a kind and a value."""


class TextRedactor(Protocol):
    """Replaces personal data in texts."""

    def hide(self, text: str) -> str:
        """Return the text with placeholders."""
        ...

    def hide_in(self, value: JsonValue) -> JsonValue:
        """Return the value with placeholders in all its texts, keys and whole numbers."""
        ...


class _Span(NamedTuple):
    start: int
    end: int
    kind: str
    key: str  # equal for all spellings of one value


class Redactor:
    """Replaces personal data in texts, and counts the distinct values by kind."""

    def __init__(
        self,
        secret: bytes,
        patterns: Mapping[str, str] | None = None,
        function: str | None = None,
    ) -> None:
        """Prepare the redactor.

        Args:
            secret: Key of the placeholders: one per project.
            patterns: Own patterns by kind: regexes of polars, which take linear time. Kinds are lower-case words.
            function: Own function as `module:function`. It is given a text and returns `Values` that occur in it.

        Raises:
            ConfigurationError: If the function cannot be imported.
        """
        self._secret = hashlib.blake2b(secret, digest_size=32, person=b"personal data").digest()
        self._patterns = dict(patterns or {})
        self._named = function
        self._function = None if function is None else _imported(function)
        self._hidden: dict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()
        self._remembered = functools.lru_cache(maxsize=_MOST_REMEMBERED)(self._redacted)

    @property
    def fingerprint(self) -> str:
        """Return a hash of what is replaced, without the key: part of the keys of answers to redacted prompts."""
        return digest("redaction", 1, self._patterns, self._named)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of distinct values replaced so far, by kind in alphabetical order."""
        return {kind: len(values) for kind, values in sorted(self._hidden.items())}

    def hide(self, text: str) -> str:
        """Return the text with a placeholder for each personal value. Placeholders in the text are kept.

        Raises:
            ConfigurationError: If the project's own function fails.
        """
        return self._remembered(text) if text else text

    def hide_in(self, value: JsonValue) -> JsonValue:
        """Return the value with placeholders in all its texts and keys. Different keys stay different.

        A number whose digits are personal data, e.g. of a card, becomes a text.
        """
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            digits = str(int(value)) if value == value and abs(value) < 1e20 and value == int(value) else ""
            return hidden if (hidden := self.hide(digits)) != digits else value
        if isinstance(value, list):
            return [self.hide_in(item) for item in value]
        if isinstance(value, dict):
            items: dict[str, JsonValue] = {}
            for key, item in value.items():
                name = self.hide(key)
                numbered = (f"{name} ({n})" for n in itertools.count(2))
                items[name if name not in items else next(n for n in numbered if n not in items)] = (
                    self.hide_in(item)
                )
            return items
        return value

    def _redacted(self, text: str) -> str:
        for _ in range(_MOST_PASSES):  # a value can be recognised only when its neighbour is replaced
            before, text = text, self._in_one_pass(text)
            if text == before:
                break
        return text

    def _in_one_pass(self, text: str) -> str:
        pieces, at = list[str](), 0
        for placeholder in PLACEHOLDER.finditer(text):
            pieces += [self._replaced(text[at : placeholder.start()]), placeholder[0]]
            at = placeholder.end()
        return "".join([*pieces, self._replaced(text[at:])])

    def _replaced(self, text: str) -> str:
        if not text:
            return text
        disjoint_spans = list[_Span]()
        for spans in (_ibans(text), _emails(text), _cards(text), _phones(text)):
            disjoint_spans = _without_overlaps(disjoint_spans, list(spans))
        disjoint_spans = _united(text, disjoint_spans, list(self._own(text)))
        pieces, at = list[str](), 0
        for span in disjoint_spans:
            pieces += [text[at : span.start], self._placeholder(span)]
            at = span.end
        return "".join([*pieces, text[at:]])

    def _placeholder(self, span: _Span) -> str:
        value = hashlib.blake2b(
            f"{span.kind} {span.key}".encode("utf-8", "surrogatepass"), key=self._secret, digest_size=4
        )
        with self._lock:
            self._hidden[span.kind].add(value.hexdigest())
        return f"[{span.kind} {value.hexdigest()}]"

    def _own(self, text: str) -> Iterator[_Span]:
        """Yield every occurrence of the values that the project's own patterns and function name, the longest first."""
        kinds = dict[str, str]()
        for kind, pattern in self._patterns.items():
            for value in pl.Series([text]).str.extract_all(pattern).item():
                kinds.setdefault(value, kind)
        for kind, value in self._of_function(text):
            kinds.setdefault(value, kind)
        values = sorted((value for value in kinds if value.strip()), key=len, reverse=True)
        if values:
            for match in re.finditer("|".join(map(re.escape, values)), text):
                yield _Span(*match.span(), kinds[match[0]], match[0])

    def _of_function(self, text: str) -> Iterator[tuple[str, str]]:
        if self._function is None:
            return
        try:
            for value in self._function(text):
                kind, personal_text = (OTHER, value) if isinstance(value, str) else value
                if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", kind) or not isinstance(personal_text, str):
                    raise TypeError("it must return texts, or pairs of a kind (a lower-case word) and a text")
                yield kind, personal_text
        except (
            Exception
        ) as error:  # the project's own code; the message is not shown, since it may have the text
            why = (
                str(error)
                if isinstance(error, TypeError) and "it must return" in str(error)
                else "it raised an error"
            )
            raise ConfigurationError(
                f"Setting redact_function: {self._named} failed with {type(error).__name__} ({why}). Nothing is sent or "
                "exported without it. Correct the function, or remove the setting."
            ) from None


def counted(counts: Mapping[str, int]) -> str:
    """Return the numbers of distinct hidden values as text, e.g. '2 email, 1 phone', or 'nothing'."""
    return ", ".join(f"{n:,} {kind}" for kind, n in counts.items()) or "nothing"


def _imported(function: str) -> Callable[[str], Values]:
    module, _, name = function.partition(":")
    try:
        loaded: Callable[[str], Values] = getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is the project's own code
        raise ConfigurationError(
            f"Setting redact_function: {function} cannot be imported ({type(error).__name__}: {error})."
        ) from error
    return loaded


def _without_overlaps(earlier_spans: Sequence[_Span], further_spans: Sequence[_Span]) -> list[_Span]:
    """Return the spans of `earlier_spans`, and those of `further_spans` that overlap none of them, by position."""
    disjoint_spans, others = list(earlier_spans), iter(earlier_spans)
    other = next(others, None)
    for span in further_spans:
        while other is not None and other.end <= span.start:
            other = next(others, None)
        if other is None or span.end <= other.start:
            disjoint_spans.append(span)
    return sorted(disjoint_spans)


def _united(text: str, spans: Sequence[_Span], own: Sequence[_Span]) -> list[_Span]:
    """Return the spans by position. Of overlapping ones the larger remains, or their union if neither has the other."""
    merged_spans = list[_Span]()
    for span in sorted([*spans, *own], key=lambda span: (span.start, -span.end)):
        if not merged_spans or span.start >= merged_spans[-1].end:
            merged_spans.append(span)
        elif span.end > merged_spans[-1].end:
            start = merged_spans[-1].start
            merged_spans[-1] = _Span(start, span.end, merged_spans[-1].kind, text[start : span.end])
    return merged_spans


def _emails(text: str) -> Iterator[_Span]:
    if "@" in text or "%40" in text:
        for match in _EMAIL.finditer(text):
            yield _Span(*match.span(), EMAIL, match[0].casefold().replace("%40", "@"))


def _phones(text: str) -> Iterator[_Span]:
    for match in _PHONE.finditer(text):
        digits = "".join(re.findall(r"\d", match[0]))
        yield _Span(*match.span(), PHONE, digits.removeprefix("00") if digits.startswith("00") else digits)


def _cards(text: str) -> Iterator[_Span]:
    """Yield runs of digits with 13 to 19 digits, in groups or not, that pass the Luhn check."""
    for run in _DIGITS.finditer(text):
        groups = list(re.finditer(r"\d+", run[0]))
        i = 0
        while i < len(groups):
            end_group = 0
            digits = ""
            for j in range(i, len(groups)):
                digits += groups[j][0]
                if len(digits) > 19:
                    break
                if len(digits) >= 13 and digits[0] in "23456" and _passes_luhn(digits):
                    end_group, card = j + 1, digits
            if end_group:
                start, end = groups[i].start(), groups[end_group - 1].end()
                yield _Span(run.start() + start, run.start() + end, CARD, card)
            i = max(end_group, i + 1)


def _passes_luhn(digits: str) -> bool:
    total = 0
    for i, digit in enumerate(reversed(digits)):
        n = int(digit) * (1 + i % 2)
        total += n - 9 if n > 9 else n
    return total % 10 == 0


def _ibans(text: str) -> Iterator[_Span]:
    """Yield the longest part that ends with a word and passes the check of ISO 7064 (modulo 97), for each beginning."""
    at = 0
    while match := _IBAN.search(text, at):
        at = match.start() + 4
        for end in range(match.end(), match.start() + 14, -1):
            if text[end - 1].isalnum() and not text[end : end + 1].isalnum():
                value = re.sub(r"[^A-Za-z0-9]", "", text[match.start() : end]).upper()
                if int("".join(str(int(sign, 36)) for sign in value[4:] + value[:4])) % 97 == 1:
                    yield _Span(match.start(), end, IBAN, value)
                    at = end
                    break
