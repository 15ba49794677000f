"""Plan adherence: rate whether the agent did what it announced. Grain: conversation; answer: rating 1–5."""

from agent_eval.metrics.base import BuiltIn, Metric

PLAN_ADHERENCE = Metric(
    name="plan_adherence",
    grain="conversation",
    kind="rating",
    question="Did the agent do the steps that it announced or was given, in their order?",
    anchors={
        "5": "Every step was done in its order, or the agent announced a change of plan and gave a reason.",
        "4": "Done with a slip that changes nothing.",
        "3": "One step is missing, or was changed without saying so.",
        "2": "Several steps are missing or out of order.",
        "1": "The plan was dropped.",
    },
    notes="If neither the agent nor the user named any steps, the answer is null.",
)

BUILT_IN = (BuiltIn(PLAN_ADHERENCE, order=150),)
