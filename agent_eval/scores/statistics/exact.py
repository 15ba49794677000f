"""Compute with exact numbers: fractions as texts, means, and rounding for display.

Scores are compared, ranked and tied as fractions: of the 293 possible composites 183 come out as more than
one double. Conversion to float happens once, at the very end, for a column.
"""

from collections.abc import Collection
from fractions import Fraction

from agent_eval.errors import InputError


class NotAFractionError(InputError):
    """Raised when a text that should hold an exact score does not."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!r} is not an exact score. Allowed: 'numerator/denominator', e.g. '1156/15' or '80/1'. "
            "Materialise the scores again to replace it."
        )


def to_text(value: Fraction) -> str:
    """Return '1156/15'; an integer keeps its denominator: '80/1'."""
    return f"{value.numerator}/{value.denominator}"


def from_text(text: str) -> Fraction:
    """Return the fraction that `to_text` wrote.

    Raises:
        NotAFractionError: If the text is not 'numerator/denominator'.
    """
    numerator, slash, denominator = text.partition("/")
    try:
        if not slash:
            raise ValueError(text)
        return Fraction(int(numerator), int(denominator))
    except (ValueError, ZeroDivisionError) as error:
        raise NotAFractionError(text) from error


def mean(values: Collection[Fraction]) -> Fraction:
    """Return the exact mean; without values it is undefined and raises ZeroDivisionError."""
    return sum(values, Fraction()) / len(values)


def rounded(value: Fraction, places: int = 1) -> str:
    """Return a decimal text with `places` digits, halves away from zero (ROUND_HALF_UP): 77.05 → '77.1'."""
    units = int(abs(value) * 10**places + Fraction(1, 2))
    digits = f"{units:0{places + 1}d}"
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if value < 0 and units else text


def in_words(value: Fraction) -> str:
    """Return the number as people write it: '80', or '232/3' if it is not an integer."""
    return str(value)


def as_float(value: Fraction | None) -> float | None:
    """Convert for a float column, as the last step; null stays null."""
    return None if value is None else float(value)


def as_text(value: Fraction | None) -> str | None:
    """Convert for an exact column; null stays null."""
    return None if value is None else to_text(value)
