"""Exact numbers keep their value, and round once, for the eye."""

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval.errors import InputError
from agent_eval.scores.statistics.exact import from_text, mean, rounded, to_text

FRACTIONS = st.fractions(min_value=0, max_value=100, max_denominator=10_000)


def test_integers_keep_their_denominator() -> None:
    assert to_text(Fraction(80)) == "80/1"
    assert to_text(Fraction(460 + 696, 15)) == "1156/15"


@given(FRACTIONS)
def test_a_fraction_survives_its_text(value: Fraction) -> None:
    assert from_text(to_text(value)) == value


@pytest.mark.parametrize("text", ["", "80", "77.1", "1/0", "a/b", "1/2/3"])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match="1156/15"):
        from_text(text)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Fraction(1156, 15), "77.1"),  # 77.0666…
        (Fraction(7705, 100), "77.1"),  # a double of 77.05 lies below the half and would show 77.0
        (Fraction(7704999, 100_000), "77.0"),
        (Fraction(100), "100.0"),
        (Fraction(0), "0.0"),
        (Fraction(1, 30), "0.0"),
        (Fraction(-1, 20), "-0.1"),
        (Fraction(-1, 30), "0.0"),
    ],
)
def test_one_decimal_with_halves_up(value: Fraction, shown: str) -> None:
    assert rounded(value) == shown


@given(st.integers(0, 1_000_000), st.integers(0, 3))
def test_rounding_agrees_with_decimal_arithmetic(thousandths: int, places: int) -> None:
    expected = Decimal(thousandths).scaleb(-3).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    assert rounded(Fraction(thousandths, 1000), places) == str(expected)


def test_a_mean_is_exact() -> None:
    assert mean([Fraction(1, 3), Fraction(4), Fraction(5)]) == Fraction(28, 9)


def test_the_mean_of_nothing_is_undefined() -> None:
    with pytest.raises(ZeroDivisionError):
        mean([])
