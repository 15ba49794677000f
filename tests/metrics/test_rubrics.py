"""Rubric questions: their words are the methodology's, their identity is their words."""

from agent_eval.methodology.models import SCENARIOS, Methodology
from agent_eval.methodology.registry import Registry
from agent_eval.metrics.rubrics import criterion_metrics, universal_metrics

CURRENT = Registry.read().get("1.3.0")


def with_first_dimension(**changes: object) -> Methodology:
    first = CURRENT.dimensions[0].model_copy(update=changes)
    return CURRENT.model_copy(update={"version": "9.0.0", "dimensions": (first, *CURRENT.dimensions[1:])})


def test_six_ratings_per_session_with_anchors_from_five_to_one() -> None:
    metrics = universal_metrics(CURRENT)
    assert list(metrics) == ["U1", "U2", "U3", "U4", "U5", "U6"]
    assert all(
        m.grain == "session" and list(m.anchors) == ["5", "4", "3", "2", "1"] for m in metrics.values()
    )


def test_the_version_and_the_origin_of_anchors_are_no_part_of_the_question() -> None:
    other = "ours" if CURRENT.dimensions[0].anchors_origin == "published" else "published"
    before, after = universal_metrics(CURRENT), universal_metrics(with_first_dimension(anchors_origin=other))
    assert before["U1"].rubric_hash == after["U1"].rubric_hash


def test_another_question_is_another_question() -> None:
    before, after = universal_metrics(CURRENT), universal_metrics(with_first_dimension(question="Why?"))
    assert before["U1"].rubric_hash != after["U1"].rubric_hash
    assert before["U2"].rubric_hash == after["U2"].rubric_hash


def test_each_template_asks_fifteen_different_things() -> None:
    for template in CURRENT.templates:
        metrics = criterion_metrics(template)
        assert list(metrics) == [f"{s}.{c.id}" for s in SCENARIOS for c in template.criteria]
        assert len({m.rubric_hash for m in metrics.values()}) == 15


def test_a_criterion_is_asked_with_its_reading_in_the_scenario() -> None:
    template = CURRENT.templates[0]
    scenario, criterion = template.scenarios[0], template.criteria[0]
    read = scenario.model_copy(update={"readings": {criterion.id: "count the steps"}})
    changed = template.model_copy(update={"scenarios": (read, *template.scenarios[1:])})
    metric = criterion_metrics(changed)[f"{scenario.id}.{criterion.id}"]
    assert "count the steps" in metric.notes
    assert scenario.description in metric.question
