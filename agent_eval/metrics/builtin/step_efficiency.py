"""Step efficiency: compute the share of calls that were needed, by rule. Grain: conversation; answer: value 0–1."""

from agent_eval.metrics.base import BuiltIn, Metric

STEP_EFFICIENCY = Metric(
    name="step_efficiency",
    grain="conversation",
    kind="value",
    question="Which share of the agent's tool calls was neither repeated nor useless?",
    anchors={
        "1": "No call was repeated or useless.",
        "0": "Every call was.",
    },
    notes=(
        "Counted without a model. Repeated: an equal call had given the same, and nothing was changed since. Useless: a "
        "call to a tool that there is not, or one that failed as an equal call had failed before."
    ),
    is_ruled=True,
)

BUILT_IN = (BuiltIn(STEP_EFFICIENCY, order=160),)
