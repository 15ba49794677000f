"""Compute the keys under which answers are stored. Equal questions have equal keys for every methodology version."""

from collections.abc import Mapping, Sequence
from functools import cache

from agent_eval.formats.hashing import canonical, digest, digests


def question_key(
    content_hash: str, turn_index: int | None, metric: str, rubric_hash: str, profile_version: str
) -> str:
    """Return the key of a question about one metric.

    It is a hash of the content up to the turn, the turn, the metric, its rubric and the profile version.
    """
    return question_keys(content_hash, turn_index, [(metric, rubric_hash, profile_version)])[metric]


def question_keys(
    content_hash: str, turn_index: int | None, metrics: Sequence[tuple[str, str, str]]
) -> dict[str, str]:
    """Return the `question_key` of several metrics by name; each is given with its rubric and profile version."""
    keys = digests(("question", content_hash, turn_index), (_canonical(*metric) for metric in metrics))
    return dict(zip((name for name, _, _ in metrics), keys, strict=True))


@cache
def _canonical(*metric: str) -> bytes:
    return canonical(metric)


def cache_key(question: str, model: str, parameters: Mapping[str, object], repeat: int = 0) -> str:
    """Return the key of an answer: a hash of the question key, model, parameters and number of the repeat."""
    return digest("verdict", question, model, dict(parameters), repeat)
