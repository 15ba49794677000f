"""Define the code of a question, which a judge repeats so that no reply is scored for another question.

The code depends on the whole prompt and on the project's secret, so it is the same whenever the question is asked, and
no text of a transcript can contain it. It consists of seven consonants, so that no word looks like a code.
"""

import re

from agent_eval.judge.prompts.fence import code
from agent_eval.metrics.base import QUESTION_CODE

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_LENGTH = 7
_PLACEHOLDERS = frozenset(
    {"", "string", "str", "text", "null", "none", "n/a", "code", "the code", QUESTION_CODE}
)


def question_code(secret: bytes, prompt_hash: str) -> str:
    """Return the code of the prompt with this hash."""
    number = int(code(secret, QUESTION_CODE, prompt_hash), 16)
    letters = []
    for _ in range(_LENGTH):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


def is_of_another_question(given: object, expected: str) -> bool:
    """Return whether the code in a reply is not the expected one.

    Case and surrounding punctuation are ignored. A missing value, a placeholder and a text of several words without a
    code are not codes: servers without a model, and models that do not repeat the code, give them.
    """
    if given is None or isinstance(given, bool | dict | list):
        return False
    text = str(given).strip().strip("\"'`.,:;()[]{}<>").strip()
    codes = re.findall(rf"(?<![A-Z0-9])[{_LETTERS}]{{{_LENGTH}}}(?![A-Z0-9])", text.upper())
    if codes:
        return set(codes) != {expected}
    return len(text.split()) == 1 and text.lower() not in _PLACEHOLDERS
