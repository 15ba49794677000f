"""Content addresses of verdicts: equal questions have equal keys, whoever asks and under whichever version."""

from collections.abc import Mapping

from agent_eval.formats.hashing import digest


def question_key(
    content_hash: str, turn_index: int | None, metric: str, rubric_hash: str, profile_version: str
) -> str:
    """What was asked: content up to the turn, the turn, the metric, its rubric and the judge profile's version."""
    return digest("question", content_hash, turn_index, metric, rubric_hash, profile_version)


def cache_key(question: str, model: str, parameters: Mapping[str, object], repeat: int = 0) -> str:
    """Who was asked: the question's key with model, parameters and number of the repeat."""
    return digest("verdict", question, model, dict(parameters), repeat)
