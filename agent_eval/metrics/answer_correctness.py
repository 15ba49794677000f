"""Answer correctness: agreement with the expected answer. Turn, value 0–1; only where an answer is expected."""

from agent_eval.metrics.base import Metric

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
