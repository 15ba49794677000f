"""Prepare texts of transcripts for display: truncate long texts, and find the quotes that judges cite."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent_eval.formats.plain_text import sanitize
from agent_eval.report.html.markdown import MarkdownNode, rendered

LONGEST = 20_000  # maximum number of characters that are shown of a text
FOLDED = 1_500  # characters; longer texts are folded
FOLDED_LINES = 24
LONGEST_QUOTE = 2_000  # characters; longer quotes are shown, but not searched for


@dataclass(frozen=True)
class Piece:
    """Represent a part of a text; `mark` is the number of the quote that it shows, or None."""

    text: str
    mark: int | None = None


@dataclass(frozen=True)
class ShownText:
    """Represent a text of a transcript for display."""

    pieces: tuple[Piece, ...]
    n_cut: int  # number of characters at the end that are not shown
    is_folded: bool
    markdown: Sequence[MarkdownNode] = ()  # shown instead of the pieces unless empty

    @property
    def first(self) -> str:
        """Return the beginning of the text, as the label of a collapsed section."""
        return " ".join("".join(piece.text for piece in self.pieces)[:120].split())


def clean(text: str) -> str:
    """Sanitise a text: unify line ends, and replace control characters and bidirectional overrides."""
    return sanitize(text.replace("\r\n", "\n").replace("\r", "\n"))


def shown(
    text: str,
    quotes: Iterable[tuple[int, str]] = (),
    *,
    folded_lines: int = FOLDED_LINES,
    is_markdown: bool = False,
) -> ShownText:
    """Sanitise a text, cut it to `LONGEST` characters, and split it at the quotes to mark.

    Quotes are found regardless of whitespace. If quotes overlap, the one that begins first is marked.

    Args:
        text: The text.
        quotes: The quotes to mark, each as (number, words).
        folded_lines: A text with more lines than this is folded, unless a quote is marked in it.
        is_markdown: Whether to render Markdown, unless a quote is marked in the text.
    """
    cleaned = clean(text)
    body = cleaned[:LONGEST]
    marks = sorted(span for number, quote in quotes for span in _places(body, number, quote))
    is_long = len(body) > FOLDED or body.count("\n") > folded_lines
    nodes = rendered(body) if is_markdown and not marks else ()
    return ShownText(tuple(_pieces(body, marks)), len(cleaned) - len(body), is_long and not marks, nodes)


def indented(text: str) -> str:
    """Return JSON text with one value per line; return any other text, and JSON that would change, unchanged."""
    if text[:1] not in ("{", "[") or len(text) > LONGEST:
        return text
    try:
        pretty = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text
    return pretty if "".join(pretty.split()) == "".join(text.split()) else text


def is_in(text: str, quote: str) -> bool:
    """Return whether `shown` would mark the quote in a text that is already sanitised."""
    return any(_places(text[:LONGEST], 0, quote))


def _places(text: str, number: int, quote: str) -> Iterator[tuple[int, int, int]]:
    """Yield the start, the end and the number of a quote at its first occurrence, if it occurs."""
    if 0 < len(quote) <= LONGEST_QUOTE and (pattern := _pattern(quote)) and (at := pattern.search(text)):
        yield at.start(), at.end(), number


def _pattern(quote: str) -> re.Pattern[str] | None:
    """Return a pattern that ignores whitespace, and whether accents are composed or decomposed."""
    cleaned = clean(quote)
    forms = [cleaned, *(unicodedata.normalize(form, cleaned) for form in ("NFC", "NFD"))]
    ways = dict.fromkeys(r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", form))) for form in forms)
    return re.compile("|".join(ways)) if all(ways) else None


def _pieces(text: str, spans: Iterable[tuple[int, int, int]]) -> Iterator[Piece]:
    end = 0
    for start, stop, number in spans:
        if start < end:
            continue
        if start > end:
            yield Piece(text[end:start])
        yield Piece(text[start:stop], number)
        end = stop
    if end < len(text):
        yield Piece(text[end:])
