"""Compute content addresses of verdicts: equal questions have equal keys, for every judge and version."""

from collections.abc import Mapping

from agent_eval.formats.hashing import digest


def question_key(
    content_hash: str, turn_index: int | None, metric: str, rubric_hash: str, profile_version: str
) -> str:
    """Return a question's key: a hash of content up to the turn, turn, metric, rubric and profile version."""
    return digest("question", content_hash, turn_index, metric, rubric_hash, profile_version)


def cache_key(question: str, model: str, parameters: Mapping[str, object], repeat: int = 0) -> str:
    """Return the key of an answer: question key, model, parameters and number of the repeat."""
    return digest("verdict", question, model, dict(parameters), repeat)
