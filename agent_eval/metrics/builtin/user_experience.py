"""User frustration (every turn, rating 1–5, 5 is best) and knowledge retention (turns after the first, 0 or 1)."""

from agent_eval.metrics.base import BuiltIn, Metric

USER_FRUSTRATION = Metric(
    name="user_frustration",
    grain="turn",
    kind="rating",
    question="How much frustration with the agent does the user show in this turn?",
    anchors={
        "5": "Not at all: content, neutral, or annoyed at something that is not the agent's doing.",
        "4": "A trace: a short or slightly impatient word.",
        "3": "Noticeable: repeats or corrects with annoyance.",
        "2": "Strong: complains about the agent, demands a person, threatens to leave.",
        "1": "Gives up, insults, or breaks off because of the agent.",
    },
    best="none",
    notes="Judge the user's words in this turn, given what came before. Short, plain messages do not show frustration.",
)

KNOWLEDGE_RETENTION = Metric(
    name="knowledge_retention",
    grain="turn",
    kind="value",
    question="Does this reply use what was said before, without asking for it again?",
    anchors={
        "1": "Nothing is asked or searched again that the user or a tool already said.",
        "0": "The agent asks for, or acts as if it did not know, what it had already been told.",
    },
    notes="0 or 1, nothing in between. A confirmation before a step that cannot be undone is not asking again.",
    applies_when="has_earlier_turns",
    is_binary=True,
)

BUILT_IN = (
    BuiltIn(KNOWLEDGE_RETENTION, order=120),
    BuiltIn(USER_FRUSTRATION, order=130),
)
