"""Plan adherence: rate whether the agent did what it announced. Grain: conversation; answer: rating 1–5."""

from agent_eval.metrics.base import Metric

PLAN_ADHERENCE = Metric(
    name="plan_adherence",
    grain="conversation",
    kind="rating",
    question="Did the agent do the steps that it announced or was given, in their order?",
    anchors={
        "5": "Every step was done in its order, or a change of plan was said and had a reason.",
        "4": "Done with a slip that changes nothing.",
        "3": "One step is missing, or changed without a word.",
        "2": "Several steps are missing or out of order.",
        "1": "The plan was dropped.",
    },
    notes="Where neither the agent nor the user named any steps, this cannot be told.",
)
