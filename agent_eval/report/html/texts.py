"""Prepare texts of transcripts for display: truncate long texts, and find the quotes of judges in them."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent_eval.formats.plain_text import sanitize
from agent_eval.report.html.markdown import MarkdownNode, rendered

LONGEST = 20_000  # characters of one text that are shown
FOLDED = 1_500  # longer texts are folded
FOLDED_LINES = 24
LONGEST_QUOTE = 2_000  # longer ones are shown, not searched


@dataclass(frozen=True)
class Piece:
    """Represent part of a text; `mark` is the number of its quote, or None."""

    text: str
    mark: int | None = None


@dataclass(frozen=True)
class ShownText:
    """Represent a text for display."""

    pieces: tuple[Piece, ...]
    n_cut: int  # characters at its end that are not shown
    is_folded: bool
    markdown: Sequence[MarkdownNode] = ()  # shown instead of the pieces, if there is any

    @property
    def first(self) -> str:
        """Return the first words, as the label of a collapsed section."""
        return " ".join("".join(piece.text for piece in self.pieces)[:120].split())


def clean(text: str) -> str:
    """Return sanitised text: one kind of line end, no control characters, no bidirectional overrides."""
    return sanitize(text.replace("\r\n", "\n").replace("\r", "\n"))


def shown(
    text: str,
    quotes: Iterable[tuple[int, str]] = (),
    *,
    folded_lines: int = FOLDED_LINES,
    is_markdown: bool = False,
) -> ShownText:
    """Return the text, `clean` and cut to `LONGEST` characters, split at its quotes (number, words).

    Whitespace is ignored in quotes. If quotes overlap, the one that begins first is marked.

    Args:
        text: The text.
        quotes: Quotes to mark.
        folded_lines: A text of more lines is folded if no quote is marked in it.
        is_markdown: Render Markdown, unless a quote is marked in the text.
    """
    cleaned = clean(text)
    kept = cleaned[:LONGEST]
    found = sorted(span for number, quote in quotes for span in _places(kept, number, quote))
    is_long = len(kept) > FOLDED or kept.count("\n") > folded_lines
    nodes = rendered(kept) if is_markdown and not found else ()
    return ShownText(tuple(_pieces(kept, found)), len(cleaned) - len(kept), is_long and not found, nodes)


def indented(text: str) -> str:
    """Return JSON text with each value on its own line; any other text, and JSON that would change, as it is."""
    if text[:1] not in ("{", "[") or len(text) > LONGEST:
        return text
    try:
        pretty = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text
    return pretty if "".join(pretty.split()) == "".join(text.split()) else text


def is_in(text: str, quote: str) -> bool:
    """Return whether `shown` would mark the quote in the text, which is `clean` already."""
    return any(_places(text[:LONGEST], 0, quote))


def _places(text: str, number: int, quote: str) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and number of the first place of a quote."""
    if 0 < len(quote) <= LONGEST_QUOTE and (pattern := _pattern(quote)) and (at := pattern.search(text)):
        yield at.start(), at.end(), number


def _pattern(quote: str) -> re.Pattern[str] | None:
    words: Sequence[str] = re.findall(r"\w+|[^\w\s]", clean(quote))
    return re.compile(r"\s*".join(map(re.escape, words))) if words else None


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
