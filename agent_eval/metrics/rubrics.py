"""Build rubric metrics: the questions of a methodology about sessions (U1–U6) and scenarios (D1–D5).

Their text comes from the methodology, so that two versions with the same text ask the same question.
"""

from agent_eval.methodology.models import Criterion, Methodology, Scenario, Template
from agent_eval.metrics.base import Metric

_OF_SESSION = "Rate the whole session, all its conversations together, with an integer from 1 to 5."
_OF_SCENARIO = "Rate this one conversation with an integer from 1 to 5."
_ALWAYS = "A criterion that fits this scenario badly is still rated, by its reading."


def universal_metrics(methodology: Methodology) -> dict[str, Metric]:
    """Return the metrics 'U1' to 'U6', each with one rating per session.

    Versions with the same text have the same `rubric_hash`.
    """
    return {
        dimension.id: Metric(
            name=dimension.id,
            grain="session",
            kind="rating",
            question=f"{dimension.name}: {dimension.question}",
            anchors=dimension.anchors.by_rating(),
            notes=_OF_SESSION,
        )
        for dimension in methodology.dimensions
    }


def criterion_metrics(template: Template) -> dict[str, Metric]:
    """Return the fifteen criterion metrics, such as 'D1.accuracy', with one rating per conversation in the slot."""
    return {
        metric.name: metric
        for scenario in template.scenarios
        for metric in (_criterion(scenario, criterion) for criterion in template.criteria)
    }


def _criterion(scenario: Scenario, criterion: Criterion) -> Metric:
    reading = scenario.readings.get(criterion.id)
    read_as = f"Read here as: {reading}" if reading else _ALWAYS
    return Metric(
        name=f"{scenario.id}.{criterion.id}",
        grain="conversation",
        kind="rating",
        question=f"{criterion.name} in the scenario '{scenario.name}': {scenario.description}",
        anchors=criterion.anchors.by_rating(),
        notes=f"{read_as} {_OF_SCENARIO}",
    )
