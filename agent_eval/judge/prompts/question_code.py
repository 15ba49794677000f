"""Define the code of a question, which a judge repeats so that no reply is scored for another question.

The code depends on the whole prompt and on the project's secret, so it is the same whenever the question is asked, and
no text of a transcript can contain it. It consists of seven consonants, so that no word looks like a code.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping

from agent_eval.judge.prompts.fence import code
from agent_eval.metrics.base import QUESTION_CODE

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_LENGTH = 7
_CODE = re.compile(rf"(?<![A-Z0-9])[{_LETTERS}]{{{_LENGTH}}}(?![A-Z0-9])")
_KEY = "QUESTIONCODE"
_PLACEHOLDERS = frozenset(
    {"STRING", "STR", "TEXT", "NULL", "NONE", "NA", "CODE", "THECODE", "YOURCODE", "CODEHERE", _KEY}
)


def question_code(secret: bytes, prompt_hash: str) -> str:
    """Return the code of the prompt with this hash."""
    number = int(code(secret, QUESTION_CODE, prompt_hash), 16)
    letters = []
    for _ in range(_LENGTH):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


def is_of_another_question(reply: Mapping[str, object], expected: str) -> bool:
    """Return whether a reply contains a code that is not the expected one.

    The code counts also in a part of the reply, in a list, and under another spelling of its key. Case, width, blanks
    and punctuation are ignored. A missing value, a placeholder and a text of several words without a code are not codes: servers without a model, and models that do not repeat the code, give them.
    """
    parts = [part for part in reply.values() if isinstance(part, Mapping)]
    values = [value for part in (reply, *parts) for key, value in part.items() if _bare(str(key)) == _KEY]
    return any(_is_another(text, expected) for value in values for text in _texts(value))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        yield from _texts([*value.values()])
    elif value is not None and not isinstance(value, bool):
        yield unicodedata.normalize("NFKC", str(value))


def _is_another(text: str, expected: str) -> bool:
    bare = _bare(text)
    codes = [bare] if _CODE.fullmatch(bare) else _CODE.findall(text.upper())
    if codes:
        return set(codes) != {expected}
    return bool(bare) and len(text.split()) == 1 and bare not in _PLACEHOLDERS


def _bare(text: str) -> str:
    """Return the letters and digits of a text, in upper case."""
    return "".join(filter(str.isalnum, text.upper()))
