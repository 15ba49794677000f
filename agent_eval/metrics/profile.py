"""The judge profile: how turn metrics are to inform and cap U and D ratings. It has its own version and hash.

Judge metrics are evidence: a rating is an integer chosen against its anchors by a rubric judgment or by a
person. The profile says which metrics a rubric judgment is shown for a target (`INFORMED_BY`) and which findings
bound its rating (`CAPS`). Both are data for a judge that rates rubrics with a model; nothing reads them yet.
In use is PROFILE_VERSION: it is part of every question's key, and PROFILE_HASH shows a change that was made
without raising it. Ratings by people, recorded ratings and the counted U5 are never capped.

The mapping is ours; the methodology is silent on it.
"""

from dataclasses import asdict, dataclass

from agent_eval.transcripts.hashing import digest

PROFILE_VERSION = "1"


@dataclass(frozen=True)
class Cap:
    """A finding that bounds a rating: 'goal_completion is 0' allows at most `at_most`."""

    target: str  # U1..U6, or what a criterion bears on: accuracy, completeness, usefulness
    metric: str
    finding: str  # a label of the metric, or a value as text, or a fact of the transcript
    at_most: int


INFORMED_BY: dict[str, tuple[str, ...]] = {
    "U1": ("goal_completion", "helpfulness"),
    "U2": ("relevance", "agent_behavior_failure"),
    "U3": ("coherence", "tool_call_behavior_failure"),
    "U4": ("agent_behavior_failure",),
    "U5": (),
    "U6": ("faithfulness", "helpfulness", "verbosity", "agent_behavior_failure"),
    "accuracy": ("faithfulness",),
    "completeness": ("agent_behavior_failure",),
    "usefulness": ("helpfulness", "relevance"),
}

CAPS: tuple[Cap, ...] = (
    Cap("U1", "goal_completion", "0", 3),
    Cap("U1", "transcript", "no output", 1),
    Cap("U2", "agent_behavior_failure", "disobey user request", 2),
    Cap("U3", "tool_call_behavior_failure", "ignored tool result", 3),
    Cap("U3", "tool_call_behavior_failure", "missing tool call", 3),
    Cap("U4", "agent_behavior_failure", "unsafe action", 1),
    Cap("U4", "transcript", "crash", 1),
    Cap("U6", "agent_behavior_failure", "false information", 2),
    Cap("completeness", "agent_behavior_failure", "lack of specific information", 4),
)

PROFILE_HASH = digest("profile", PROFILE_VERSION, INFORMED_BY, [asdict(cap) for cap in CAPS])
