"""Build the prompts for a judge model, and read its replies. This package does not call models.

`build_prompt` builds the prompt for questions that share a call, `read_reply` converts the reply to verdicts, and
`repair_messages` builds the prompt that asks again after an unreadable reply. The rubrics are defined in `metrics` and
in the methodology; the evidence rules and caps of rubric ratings are defined in the judge profile
(`metrics/profile.py`).
"""

from agent_eval.judge.prompts.blind import NO_BLINDED_TERMS, BlindedTerms
from agent_eval.judge.prompts.build import (
    DEFAULT_LIMITS,
    Messages,
    Prompt,
    build_prompt,
    can_share_call,
    has_room_for_all,
    in_parts,
    merge_prompt,
    shared_rubrics,
    system_prompt,
)
from agent_eval.judge.prompts.cache_marks import PrefixCache, marked
from agent_eval.judge.prompts.profile import profile_hash
from agent_eval.judge.prompts.replies import ReplyError, read_reply, repair_messages
from agent_eval.judge.prompts.view import CONTEXT_TOKENS, ViewLimits

__all__ = [
    "CONTEXT_TOKENS",
    "DEFAULT_LIMITS",
    "NO_BLINDED_TERMS",
    "BlindedTerms",
    "Messages",
    "PrefixCache",
    "Prompt",
    "ReplyError",
    "ViewLimits",
    "build_prompt",
    "can_share_call",
    "has_room_for_all",
    "in_parts",
    "marked",
    "merge_prompt",
    "profile_hash",
    "read_reply",
    "repair_messages",
    "shared_rubrics",
    "system_prompt",
]
