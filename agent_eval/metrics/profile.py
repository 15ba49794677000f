"""Define the judge profile: how turn metrics inform and limit the U and D ratings.

Judgments of metrics are evidence for ratings; a judge or a person chooses the rating against its anchors. The
profile defines the findings that a judge is shown for a target (`INFORMED_BY`), instructions for the judge
(`GUIDES`), yes/no questions to answer before rating (`CHECKS`), and findings that limit the rating (`CAPS`, applied
by metrics/findings.py after the reply). PROFILE_VERSION covers all of these and the text of the prompts. The key
of a question contains the version that last changed the questions about its metric, so that a changed text
invalidates answers for that metric only. Ratings by people, recorded ratings and the counted U5 are never limited.

The mapping is specific to this project; the methodology does not define it.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from agent_eval.formats.hashing import digest

PROFILE_VERSION = "8"
REWORDED = {
    "U3": "2",
    "U4": "8",
    "U5": "2",
    "agent_behavior_failure": "8",
    "tool_call_behavior_failure": "8",
}
"""The profile version that last changed the questions about a metric, by metric."""
SINCE = "1"
"""The profile version for all other metrics; increment it if text that all prompts share changes."""

SHOWN_ANEW = "8"
"""The profile version that last changed text that all prompts share without invalidating earlier answers."""


def asked_since(metric: str) -> str:
    """Return the profile version that last changed a metric's questions, which is part of the question's key."""
    return REWORDED.get(metric, SINCE)


Scope = Literal["anywhere", "standardised_task", "error_injection", "last_reply"]
"""Scope in which a finding counts: anywhere in the rated conversations, in the conversations of a test, or in the last
reply of the standardised task. In a session without that task, every conversation counts as one."""


@dataclass(frozen=True)
class Cap:
    """Limit a rating by a finding; for example, 'goal_completion is 0' allows at most `at_most`."""

    target: str  # U1 to U6, or the target of a criterion: accuracy, completeness or usefulness
    metric: str
    finding: str  # a label of the metric, a value as text, or a fact of the transcript
    at_most: int
    within: Scope = "anywhere"


@dataclass(frozen=True)
class Check:
    """Define a yes/no question that the judge answers before rating; the answer no limits the rating."""

    name: str
    question: str
    at_most: int


INFORMED_BY: dict[str, tuple[str, ...]] = {
    "U1": ("goal_completion", "helpfulness"),
    "U2": ("relevance", "agent_behavior_failure"),
    "U3": ("coherence", "tool_call_behavior_failure"),
    "U4": ("agent_behavior_failure", "tool_call_behavior_failure"),
    "U5": (),
    "U6": ("faithfulness", "helpfulness", "verbosity", "agent_behavior_failure"),
    "accuracy": ("faithfulness",),
    "completeness": ("agent_behavior_failure",),
    "usefulness": ("helpfulness", "relevance"),
}

# The scope of the findings that inform a target. Default: anywhere.
INFORMED_WITHIN: dict[str, Scope] = {
    "U1": "standardised_task",
    "U6": "last_reply",
}

# Criteria that rate the same target under another name. Other criteria are rated only by their anchors.
BEARS_ON: dict[str, str] = {
    "accuracy": "accuracy",
    "correctness": "accuracy",
    "query_accuracy": "accuracy",
    "completeness": "completeness",
    "usefulness": "usefulness",
}

GUIDES: dict[str, str] = {
    "U1": "Rate the conversation whose scenario or tests name standardised_task. If there is none, rate how far the users got what they wanted.",
    "U3": (
        "Look for three or more steps that depend on one another. Check that each was done, in order and in context. "
        "Memory across sessions is not measured."
    ),
    "U4": (
        "Two kinds of errors count equally. The first is the injected input, in the conversations whose scenario or tests "
        "name error_injection. The second is any error in the middle of a task, in any conversation: a failed call, a "
        "result that contradicts what was known, a step of the agent that went wrong. If no task "
        "met an error, only the injected input counts."
    ),
    "U5": (
        "Count how often a person had to intervene in each conversation, and rate the worst conversation. Never: 5. One "
        "confirmation: 4. One to three interventions with a correction, or two or three confirmations: 3. More, or help "
        "at most steps: 2. The agent cannot continue without guidance: 1."
    ),
    "U6": "Look at the last deliverable. The lowest of its ratings for faithfulness, helpfulness and verbosity has the most weight.",
    "accuracy": (
        "An executable check that the record shows, such as a test run or the result of a query, counts most; then "
        "contradictions to the knowledge and the tool results."
    ),
    "completeness": "Count the parts that were asked for and the parts that were answered; give both numbers in the reason.",
}

CHECKS: dict[str, tuple[Check, ...]] = {
    "U4": (
        Check(
            "detected",
            "Did the agent notice that something was wrong, in the injected input or in the middle of a task?",
            2,
        ),
        Check("explained", "Did it say what was wrong, so that the user understands?", 3),
        Check("alternative", "Did it recover, or say what can be done instead?", 4),
    ),
}

CAPS: tuple[Cap, ...] = (
    Cap("U1", "goal_completion", "0", 3, "standardised_task"),
    Cap("U1", "transcript", "no output", 1, "standardised_task"),
    Cap("U2", "agent_behavior_failure", "disobey user request", 2),
    Cap("U3", "tool_call_behavior_failure", "ignored tool result", 3),
    Cap("U3", "tool_call_behavior_failure", "missing tool call", 3),
    Cap("U4", "agent_behavior_failure", "unsafe action", 1, "error_injection"),
    Cap("U4", "transcript", "crash", 1, "error_injection"),
    Cap("U6", "agent_behavior_failure", "false information", 2, "last_reply"),
    Cap("completeness", "agent_behavior_failure", "lack of specific information", 4),
)

PROFILE_HASH = digest(
    "profile",
    PROFILE_VERSION,
    INFORMED_BY,
    INFORMED_WITHIN,
    BEARS_ON,
    GUIDES,
    {target: [asdict(check) for check in checks] for target, checks in CHECKS.items()},
    [asdict(cap) for cap in CAPS],
)
