"""Faithfulness: check whether the claims of a reply contradict the known facts. Grain: turn; answer: rating 1–5."""

from collections.abc import Sequence
from fractions import Fraction

from agent_eval.metrics.base import BuiltIn, Items, Metric

SUPPORTED, CONTRADICTED, UNSUPPORTED = "supported", "contradicted", "unsupported"


def faithfulness_rating(verdicts: Sequence[str]) -> int:
    """Return the rating that follows from the verdicts on a reply's claims.

    The rating is 5 if every claim is supported or there are no claims, 4 if no claim is contradicted but some are
    unsupported, 3 if at most a quarter of the claims is contradicted, 2 if less than half is, and 1 otherwise. The rule
    is specific to this project.
    """
    contradicted = Fraction(verdicts.count(CONTRADICTED), max(len(verdicts), 1))
    if not contradicted:
        return 4 if UNSUPPORTED in verdicts else 5
    return 3 if contradicted <= Fraction(1, 4) else 2 if contradicted < Fraction(1, 2) else 1


FAITHFULNESS = Metric(
    name="faithfulness",
    grain="turn",
    kind="rating",
    question=(
        "Which claims of fact does this reply make, and is each of them supported or contradicted by the knowledge, the "
        "tool results or what the user has stated?"
    ),
    anchors={
        "5": "Every claim is supported, or the reply makes none.",
        "4": "No claim is contradicted; at least one is unsupported.",
        "3": "At most a quarter of the claims is contradicted.",
        "2": "More than a quarter and less than half of the claims are contradicted.",
        "1": "At least half of the claims are contradicted.",
    },
    notes=(
        "List each claim in a few words. supported: the knowledge, a tool result or the user says so, or it is general "
        "knowledge. contradicted: one of them says otherwise; an action that no call shows, although a tool would have "
        "been needed, is contradicted by the record. unsupported: a detail of this case that nothing in the record "
        "says. Quote what supports or contradicts the claim; for an unsupported claim, quote the claim itself. Questions, "
        "greetings and offers are not claims. Omissions do not count here. The rating follows from the list."
    ),
    items=Items("claims", "claim", (SUPPORTED, CONTRADICTED, UNSUPPORTED), rating=faithfulness_rating),
)

BUILT_IN = (BuiltIn(FAITHFULNESS, order=40),)
