"""Compare the numbers in a version's rule texts with the data that its scores are computed from.

Rules are prose, and scores are computed from data. If only one of them were edited, the published formula would
differ from the one in use. Only phrases that clearly name a weight, a penalty, a count, a divisor or a range are
compared; numbers in other phrases are ignored.
"""

import re
from collections.abc import Collection, Iterator
from fractions import Fraction

from agent_eval.methodology.models import Methodology

_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_VALUES = {word: value for value, word in enumerate(re.findall(r"\w+", _WORDS))}
_NUMBER = rf"(?<![\w.])(\d+(?:\.\d+)?|{'|'.join(_VALUES)})(?![\w.]*\d)"
_SHARE = r"(?<![\w.])(?:(\d+(?:\.\d+)?)\s*(?:%|per ?cent)|(\d+\.\d+))"  # a percentage or a decimal
_PART = r"(universal|domain)\b"
_SHARE_OF_PART = re.compile(rf"{_SHARE}\s*(?:times|of|for|×|·|x|\*)?\s*(?:the\s+)?{_PART}")
_PART_WITH_SHARE = re.compile(rf"{_PART}[^\d.;]{{0,40}}?{_SHARE}")
_POINTS = re.compile(rf"{_NUMBER}[ -]points?\b")
_TAKEN_OFF = re.compile(r"\boff\b|penalt|subtract|deduct|\bminus\b|\bloses?\b|\bcosts?\b")
_DIVIDED = re.compile(rf"divided by\s+{_NUMBER}")
_LAST_DIMENSION = re.compile(r"\bu1\s*(?:to|–|-)\s*u(\d+)")
_RANGE = re.compile(rf"(?:from|between)\s+{_NUMBER}\s+(?:to|and)\s+{_NUMBER}")
_SOME_OF = re.compile(
    r"\b(?:at least|at most|more than|fewer than|less than|up to|one of|any|first|last)\s+$"
)


def rule_number_problems(m: Methodology) -> Iterator[str]:
    """Yield a sentence for each number in a rule text that contradicts the data of the version."""
    for name, rule in m.rules.items():
        text = " ".join(rule.text.casefold().split())
        for rule_text, data_text in _contradictions(text, m):
            yield f"rule {name} says {rule_text}, {data_text}"


def _contradictions(text: str, m: Methodology) -> Iterator[tuple[str, str]]:
    yield from _weights(text, m)
    yield from _counts(text, m)
    for clause in re.split(r"[.;:](?:\s|$)", text):
        yield from _penalties(clause, m)
        yield from _divisors(clause, m)
        yield from _ranges(clause, m)


def _weights(text: str, m: Methodology) -> Iterator[tuple[str, str]]:
    def compared(part: str, percent: str | None, decimal: str | None) -> Iterator[tuple[str, str]]:
        weight = m.weights.universal if part == "universal" else m.weights.domain
        share = Fraction(decimal) if decimal else Fraction(percent or 0) / 100
        in_text = decimal or f"{percent} %"
        yield from _unless(share == Fraction(weight), f"{in_text} for {part}", f"weights.{part} is {weight}")

    for match in _SHARE_OF_PART.finditer(text):
        yield from compared(match[3], match[1], match[2])
    for match in _PART_WITH_SHARE.finditer(_SHARE_OF_PART.sub(" ", text)):
        yield from compared(match[1], match[2], match[3])


def _counts(text: str, m: Methodology) -> Iterator[tuple[str, str]]:
    """Yield counts of parts that contradict the data.

    The number 1 and counts of a subset ('at least two scenarios') are ignored.
    """
    allowed_counts = {
        r"scenarios?": {len(t.scenarios) for t in m.templates},
        r"criteria": {len(t.criteria) for t in m.templates},
        r"(?:universal )?dimensions": {len(m.dimensions)},
        r"(?:domain )?(?:templates|categories)": {len(m.templates)},
        r"required tests": {len(m.required_tests)},
        r"references": {len(m.references)},
    }
    for words, counts in allowed_counts.items():
        for match in re.finditer(rf"{_NUMBER} ({words})\b", text):
            if _value(match[1]) != 1 and not _SOME_OF.search(text[: match.start()]):
                yield from _unless(_value(match[1]) in counts, match[0], f"the version has {_listed(counts)}")
    for match in _LAST_DIMENSION.finditer(text):
        n = len(m.dimensions)
        yield from _unless(int(match[1]) == n, match[0].replace("u", "U"), f"the version has {n} dimensions")


def _penalties(clause: str, m: Methodology) -> Iterator[tuple[str, str]]:
    points = {p.points for p in m.penalties}
    data_text = f"the penalty is {_listed(points)}" if points else "the version has no penalty"
    if _TAKEN_OFF.search(clause):
        for match in _POINTS.finditer(clause):
            yield from _unless(_value(match[1]) in points, match[0], data_text)


def _divisors(clause: str, m: Methodology) -> Iterator[tuple[str, str]]:
    """Yield divisors that contradict the data.

    A sum of ratings is divided by its maximum, a sum of scores by their number.
    """
    if re.search(r"criteri|scenario|domain", clause):
        n_scenarios, n_criteria = len(m.templates[0].scenarios), len(m.templates[0].criteria)
        allowed = {5 * n_criteria, n_scenarios, 5 * n_criteria * n_scenarios}
    elif re.search(r"universal|\bu1\b", clause):
        allowed = {5 * len(m.dimensions), len(m.dimensions)}
    else:
        return
    for match in _DIVIDED.finditer(clause):
        yield from _unless(_value(match[1]) in allowed, match[0], f"the data give {_listed(allowed)}")


def _ranges(clause: str, m: Methodology) -> Iterator[tuple[str, str]]:
    points = sum(p.points for p in m.penalties)
    allowed: list[tuple[Fraction | int, Fraction | int]]
    if re.search(r"ratings?\b|integers?\b", clause):
        allowed = [(1, 5)]
    elif re.search(r"\bscores?\b|composite", clause):
        allowed = [(0, 100), (20, 100), (20 - points, 100), (20 - points, 100 - points)]
    else:
        return
    stated = "the data give " + " or ".join(f"{low} to {high}" for low, high in dict.fromkeys(allowed))
    for match in _RANGE.finditer(clause):
        yield from _unless((_value(match[1]), _value(match[2])) in allowed, match[0], stated)


def _unless(is_right: bool, rule_text: str, data_text: str) -> Iterator[tuple[str, str]]:
    if not is_right:
        yield repr(rule_text), data_text


def _value(number: str) -> Fraction:
    return Fraction(_VALUES.get(number, number))


def _listed(numbers: Collection[int]) -> str:
    return " or ".join(str(n) for n in sorted(numbers))
