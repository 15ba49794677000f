"""Answer correctness: rate agreement with the expected answer. Grain: turns with ground truth; answer: value 0–1."""

from agent_eval.metrics.base import BuiltIn, Metric

CORRECT_AT = 0.7
STRICTNESS = {"lenient": 0.6, "default": CORRECT_AT, "strict": 0.8, "very strict": 0.9}
_TOLERANCE = 1e-9  # a value equal to the threshold passes despite rounding errors


def is_correct(value: float, threshold: float = CORRECT_AT) -> bool:
    """Return whether a correctness value (0–1) reaches the threshold."""
    return value >= threshold - _TOLERANCE


ANSWER_CORRECTNESS = Metric(
    name="answer_correctness",
    grain="turn",
    kind="value",
    question="How far does the reply agree with the expected answer?",
    anchors={
        "1": "Says the same in substance, whatever the wording; nothing contradicts it.",
        "0": "Says something else, contradicts it, or gives no answer.",
    },
    notes=(
        "In between: the share of the expected answer's points that the reply makes rightly. Wording, order and "
        "further true statements do not lower it; a wrong point does. Correct from 0.7 by default."
    ),
    applies_when="has_expected_answer",
)

BUILT_IN = (BuiltIn(ANSWER_CORRECTNESS, order=80, is_of_silence=True),)
