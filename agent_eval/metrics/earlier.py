"""Know the questions of earlier releases whose wording has changed since, so that their answers can be kept.

A changed wording changes the key of a question, so a stored answer no longer fits, and a judge would be asked again. The
questions here ask the same in other words: their answers may be kept (setting `keep_answers`), and are marked.
"""

from collections.abc import Mapping

from agent_eval.metrics.metric_set import DEFAULT

EARLIER: Mapping[str, tuple[str | None, str]] = {
    "helpfulness": ("43ab82fecb66a7ed9a497c8298ffa2de", "1"),
    "coherence": ("17d27cdf6ff18938955c165b3c266cd7", "1"),
    "faithfulness": ("9ef352f80e2ee20810e1879ff5aaf5a4", "1"),
    "agent_behavior_failure": ("07d7bb81daa5494e0b437308097e2fbd", "1"),
    "tool_call_behavior_failure": ("fcd1a2c601ba8873d832cae9e411770d", "1"),
    "argument_correctness": ("3a6d38f58479b5cd4e6097c3367d3141", "1"),
    "knowledge_retention": ("dc44031a71a4518912abb7cef4f57dfb", "1"),
    "user_frustration": ("77656035f5d576dab81216644a8afa48", "1"),
    "plan_adherence": ("417ced0ec6a089eaa8326bed408b7967", "1"),
    "U4": (None, "2"),
}
"""Hash of the earlier rubric (None: unchanged) and earlier profile version, by metric. Last changed by profile 8."""


def rubric_hash_now(metric: str, rubric_hash: str, profile_version: str) -> str | None:
    """Return the current rubric hash of a question that was asked in an earlier wording; None for other questions."""
    earlier_hash, earlier_version = EARLIER.get(metric, ("", ""))
    if profile_version != earlier_version or earlier_hash not in (None, rubric_hash):
        return None
    return rubric_hash if earlier_hash is None else DEFAULT.rubric_hashes[metric]


def is_earlier(metric: str, profile_version: str, rubric_hash: str) -> bool:
    """Return whether an answer belongs to an earlier wording of its question."""
    return rubric_hash_now(metric, rubric_hash, profile_version) is not None


def asks_the_same(metric: str, rubric_hash: str, rubric_hash_asked: str | None) -> bool:
    """Return whether two hashes are those of the same rubric, or of its earlier and its current wording."""
    earlier_hash, _ = EARLIER.get(metric, (None, ""))
    return rubric_hash == rubric_hash_asked or (
        earlier_hash == rubric_hash and DEFAULT.rubric_hashes.get(metric) == rubric_hash_asked
    )
