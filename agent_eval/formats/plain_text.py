"""Sanitise untrusted text for terminals, write counts in words, and split text into words for comparisons."""

import re
import unicodedata
from functools import cache
from html import unescape
from urllib.parse import unquote

REPLACEMENT = "\ufffd"
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # embeddings, overrides, isolates
_UNPRINTABLE = dict.fromkeys((*range(32), *range(127, 160), *_BIDI, *range(0xD800, 0xE000)), REPLACEMENT)
_STEERING = {i: c for i, c in _UNPRINTABLE.items() if chr(i) not in "\n\t"}
_BREAKS = dict.fromkeys(map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"), " ")
LONGEST = 2_000
_LOOK_ALIKE = {
    letter: latin
    for letters, latins in {
        "аеорсухікѕјԁһвмнтԛԝӏгпиьѵүԍ": "aeopcyxiksjdhbmhtqwlrnubvyg",  # Cyrillic
        "οαινκρτυχβγεηζωσμ": "oaivkptuxbyenzwou",  # Greek
        "օոսհցզյաելռտ": "onuhgqjaelns",  # Armenian
        "ᎪᏴᏟᎠᎬᏀᎻᎥᎫᏦᏞᎷᏢᎡᏚᎢᏙᏔᏃᎩ": "abcdeghijklmprstvwzy",  # Cherokee, which has no case here: folded to capitals
        "ꓐꓑꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ": "bpdtgkjczfmnlsrvhwxyaeiou",  # Lisu
        "ⲁⲃⲉⲏⲓⲕⲙⲛⲟⲣⲥⲧⲩⲭ": "abehikmnopctyx",  # Coptic
        "ǫғꜱꞮə": "qfsie",
    }.items()
    for letter, latin in zip(letters, latins, strict=True)
}
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")
"""A word, or a letter of a script that is written without spaces."""
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,80}>")
_WITHIN_WORDS = str.maketrans("", "", "-_'’‐‑")
_LATIN = re.compile(
    r"LATIN (?:SMALL |CAPITAL |)LETTER (?:SMALL CAPITAL |SCRIPT |DOTLESS |TURNED |REVERSED |OPEN |SIDEWAYS |INSULAR |)([A-Z])"
    r"(?: WITH .*)?"
)
"""Names of Latin letters in another form, such as ø, ɡ and ɐ."""
_AFTER_LATIN = "\uabff"
_IOTA_BELOW = "\u0345"  # an accent that is a letter without case
_OVERRIDE = re.compile("\u202e([^\u202c\n]*)\u202c?")
"""A text that is shown from right to left, so that a reversed text looks as usual."""
_SIGNS_IN_WORDS = re.compile(r"(?<=[^\W\d_])[@$](?=[^\W\d_])")
_SIGN_AS_LETTER = {"@": "a", "$": "s"}
_LEET = str.maketrans("0134578", "oleastb")
DIGITS_AS_LETTERS = str.maketrans("01i", "oll")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}){2,}")
_ESCAPES = re.compile(r"(?:\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})){2,}")
_HYPHENATED = re.compile(r"(?<=[^\W\d_])-\n[ \t]*(?=[^\W\d_])")
_SYMBOLS_IN_WORDS = re.compile("(?<=[^\\W\\d_])[\u2600-\u27bf\U0001f000-\U0001faff]+(?=[^\\W\\d_])")
LONGEST_WORD = 30  # letters; longer ones are several words that were joined, or no words
_SPACED = re.compile(r"(?<!\w)(?:[^\W\d_] ){2,}[^\W\d_](?!\w)")
_JOINED = re.compile(rf"(?<![\w-])(?:[^\W\d]|-){{{LONGEST_WORD + 1},}}(?![\w-])")
_BORDER = re.compile(r"[-_]|(?<=[a-z])(?=[A-Z])")
_HEXADECIMAL = frozenset("0123456789abcdef")
_LONGEST_NUMBER = 5  # characters of a word with digits that is not an id
_ASCII_FOLDED = {i: chr(i).lower() if chr(i).isalnum() else " " for i in range(128)} | dict.fromkeys(
    map(ord, "-_'")
)
"""Letters without case, nothing for signs within words, and spaces for other signs."""


def folded_words(text: str) -> list[str]:
    """Return the words of a text, without case, punctuation, accents, look-alike letters and invisible characters.

    Hyphens, apostrophes and tags do not separate words.
    """
    if "&" in text:
        text = unescape(text)
    if "\u202e" in text:
        text = _OVERRIDE.sub(lambda match: match[1][::-1], text)
    if "@" in text or "$" in text:
        text = _SIGNS_IN_WORDS.sub(lambda match: _SIGN_AS_LETTER[match[0]], text)
    if "<" in text:
        text = _TAG.sub("", text)
    if text.isascii():
        return text.translate(_ASCII_FOLDED).split()
    text = unicodedata.normalize("NFKD", text).replace(_IOTA_BELOW, "").casefold()
    for sign in set(text):
        if (letter := _folded_sign(sign)) != sign:
            text = text.replace(sign, letter)
    return _WORD.findall(text.translate(_WITHIN_WORDS))


def shown_words(text: str) -> list[str]:
    """Return the folded words of a text as a reader sees it, whatever separates its letters and words.

    Comments, symbols within words and hyphens at the end of a line are left out, escapes are read, and letters that are
    spaced out and words that are joined become words again.
    """
    if "<!--" in text:
        text = _COMMENT.sub("", text)
    if "%" in text:
        text = _PERCENT.sub(lambda match: unquote(match[0]), text)
    if "\\u" in text or "\\x" in text:
        text = _ESCAPES.sub(
            lambda match: "".join(chr(int(c[1:], 16)) for c in match[0].split("\\")[1:]), text
        )
    if "-\n" in text:
        text = _HYPHENATED.sub("", text)
    if not text.isascii():
        text = _SYMBOLS_IN_WORDS.sub("", text)
    words = folded_words(text)
    if words and (2 * sum(len(w) == 1 for w in words) > len(words) or max(map(len, words)) > LONGEST_WORD):
        text = _SPACED.sub(lambda match: match[0].replace(" ", ""), text)
        words = folded_words(_JOINED.sub(lambda match: _BORDER.sub(" ", match[0]), text))
    return words


def looks_like_id(word: str) -> bool:
    """Return whether a word looks like an id: it has digits, and more characters than most numbers in a text.

    The digits 0 and 1 count as the letters that they look like.
    """
    return len(word) > _LONGEST_NUMBER and not word.translate(DIGITS_AS_LETTERS).isalpha()


@cache
def _folded_sign(sign: str) -> str:
    """Return the Latin letter of a look-alike letter, nothing for a mark or an invisible character, else the sign."""
    if sign.isascii():
        return sign
    if sign in _LOOK_ALIKE:
        return _LOOK_ALIKE[sign]
    if unicodedata.category(sign) in ("Cf", "Mn"):
        return ""
    latin = _LATIN.fullmatch(unicodedata.name(sign, "")) if sign < _AFTER_LATIN else None
    return latin[1].lower() if latin else sign


def as_letters(word: str) -> str | None:
    """Return the letters that a word is written for; None for a number and a word that looks like an id.

    A digit between letters is the letter that it looks like, as in 'r3fund3d', if the word has as many letters as digits
    and others than those of hexadecimal numbers.
    """
    if word.isalpha():
        return word.translate(DIGITS_AS_LETTERS)
    if word.isdecimal():
        return None
    read = word.translate(_LEET)
    n_digits = sum(map(str.isdecimal, word))
    is_leet = (
        read.isalpha() and 2 * n_digits <= len(word) and not (word[0].isdecimal() or word[-1].isdecimal())
    )
    if is_leet and not _HEXADECIMAL.issuperset(word):
        return read.translate(DIGITS_AS_LETTERS)
    return None if looks_like_id(word) else word.translate(DIGITS_AS_LETTERS)


def sanitize(text: str) -> str:
    """Replace control characters, bidirectional overrides and unpaired surrogates by U+FFFD.

    Line breaks and tabs are kept.
    """
    return text.translate(_STEERING)


def sanitize_line(text: str) -> str:
    """Return sanitised text on one line, so that a name within a sentence cannot add lines to the output."""
    return sanitize(text.translate(_BREAKS))


def one_line(text: str) -> str:
    """Return sanitised text on one line, with at most 2,000 characters."""
    line = sanitize_line(text).strip()
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, cut with '…' after a word if there is a space in its last third."""
    if len(text) <= most:
        return text
    beginning = text[: most - 1]
    at = beginning.rfind(" ")
    return (beginning[:at] if at > 2 * len(beginning) / 3 else beginning) + "…"


def count_of(n: object, noun: str) -> str:
    """Return a whole number with its noun in the right number, e.g. '1 agent' or '1,252 agents'."""
    number = f"{n:,}" if isinstance(n, int) else str(n)
    return f"{number} {noun}{'' if n == 1 else 's'}"


def escaped_json(text: str) -> str:
    """Escape unprintable characters in a JSON text, so that it is safe to print and has the same value."""
    return text.translate(_JSON)


_JSON = {i: f"\\u{i:04x}" for i in _UNPRINTABLE if i >= 127}  # others are escaped or whitespace


def on_one_line(text: str) -> str:
    """Return a text as quotes are compared: with single spaces and composed accents."""
    return " ".join(unicodedata.normalize("NFC", text).split())
