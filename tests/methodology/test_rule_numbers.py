"""Numbers in rule texts against the data of the version."""

import pytest

from agent_eval.methodology import Methodology, load
from agent_eval.methodology.models import Rule
from agent_eval.methodology.rule_numbers import rule_number_problems


def saying(text: str) -> Methodology:
    """1.3.0 (0.40 and 0.60, 10 points, 10 templates, 5 scenarios, 3 criteria, 6 dimensions) with one rule."""
    return load("1.3.0").model_copy(update={"rules": {"told": Rule(text=text, origin="ours")}})


@pytest.mark.parametrize(
    "text",
    [
        "The composite is 0.40 times the universal score plus 0.60 times the domain score.",
        "Composite: 40 % universal, 60 % domain.",
        "The universal score weighs 0.4 and the domain score 0.600.",
        "A penalty of ten points is subtracted. A 10-point penalty.",
        "Five scenarios with three criteria each, in ten templates.",
        "At least two scenarios count; questions are combined into one scenario.",
        "The sum of U1 to U6 is divided by 30.",
        "The sum of three criteria is divided by 15.",
        "Ratings are integers from 1 to 5. Scores lie between 20 and 100 before any penalty.",
        "U5 counts interventions: none is 5, two to three of any kind is 3. Half points stay exact.",
        "With 12 points of contact and version 1.0 of the form, nothing is said about a score.",
        "",
    ],
)
def test_a_text_that_agrees_with_the_data_or_says_nothing_about_them_is_fine(text: str) -> None:
    assert list(rule_number_problems(saying(text or "-"))) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0.50 times the universal score", "'0.50 for universal', weights.universal is 0.40"),
        ("Composite: 40 % universal, 61 % domain.", "'61 % for domain', weights.domain is 0.60"),
        ("The domain score weighs 0.4.", "'0.4 for domain', weights.domain is 0.60"),
        ("Fifteen points are taken\n  off the composite.", "'fifteen points', the penalty is 10"),
        ("A 5-point penalty.", "'5-point', the penalty is 10"),
        ("There are four scenarios.", "'four scenarios', the version has 5"),
        ("Each of its two criteria", "'two criteria', the version has 3"),
        ("The nine domain templates", "'nine domain templates', the version has 10"),
        ("Seven universal dimensions", "'seven universal dimensions', the version has 6"),
        ("The sum of U1 to U7", "'U1 to U7', the version has 6 dimensions"),
        ("The universal sum is divided by 25", "'divided by 25', the data give 6 or 30"),
        ("The sum of the criteria divided by 12", "'divided by 12', the data give 5 or 15 or 75"),
        ("Ratings are integers from 1 to 10.", "'from 1 to 10', the data give 1 to 5"),
        ("A score lies between 0 and 10.", "'between 0 and 10', the data give 0 to 100 or 20 to 100"),
    ],
)
def test_a_number_that_the_data_contradict_is_quoted_beside_the_right_one(text: str, problem: str) -> None:
    (found,) = rule_number_problems(saying(text))
    assert found.startswith(f"rule told says {problem}")


def test_points_off_in_a_version_without_a_penalty_are_named() -> None:
    m = load("1.2.0").model_copy(update={"rules": load("1.3.0").rules})
    assert list(rule_number_problems(m)) == [
        "rule repeatability_penalty says 'ten points', the version has no penalty"
    ]


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.2.0", "1.3.0"])
def test_the_published_versions_say_what_their_data_say(version: str) -> None:
    assert list(rule_number_problems(load(version))) == []
