"""Compute with exact numbers: fractions as text, means, and rounding for display.

Scores are compared and ranked as fractions, because float arithmetic gives several different doubles for 183 of
the 293 possible composites. Scores are converted to float only once, for the final column.
"""

from collections.abc import Collection
from fractions import Fraction

from agent_eval.errors import InputError


def to_text(value: Fraction) -> str:
    """Return the fraction as text, such as '1156/15' or '80/1'."""
    return f"{value.numerator}/{value.denominator}"


def from_text(text: str) -> Fraction:
    """Parse a fraction that `to_text` formatted.

    Raises:
        InputError: If the text is not 'numerator/denominator'.
    """
    numerator, slash, denominator = text.partition("/")
    try:
        if not slash:
            raise ValueError(text)
        return Fraction(int(numerator), int(denominator))
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(
            f"{text!r} is not an exact score. Allowed: 'numerator/denominator', e.g. '1156/15' or '80/1'. "
            "Materialise the scores again to replace it."
        ) from error


def mean(values: Collection[Fraction]) -> Fraction:
    """Return the exact mean; raises ZeroDivisionError if there are no values."""
    return sum(values, Fraction()) / len(values)


def rounded(value: Fraction, places: int = 1) -> str:
    """Format with `places` decimals, rounding halves away from zero (ROUND_HALF_UP): 77.05 becomes '77.1'."""
    units = int(abs(value) * 10**places + Fraction(1, 2))
    digits = f"{units:0{places + 1}d}"
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if value < 0 and units else text


def in_words(value: Fraction) -> str:
    """Format the number as an integer or a fraction, such as '80' or '232/3'."""
    return str(value)


def as_float(value: Fraction | None) -> float | None:
    """Convert to float for a column, as the last step; None stays None."""
    return None if value is None else float(value)


def as_text(value: Fraction | None) -> str | None:
    """Convert to text for a column of exact values; None stays None."""
    return None if value is None else to_text(value)
