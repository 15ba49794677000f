"""The metric set: what is asked, switched off by name, identified by its hash."""

import dataclasses

import pytest

from agent_eval.errors import ConfigurationError, NotFoundError
from agent_eval.metrics.base import NO_FAILURE, Metric
from agent_eval.metrics.builtin.coherence import COHERENCE
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.metrics.metric_set import CONVERSATION_METRICS, DEFAULT, TURN_METRICS, MetricSet

TONE = Metric("tone", "turn", "label", "Which tone?", {"warm": "Warm.", "cold": "Cold."})
RUDE_LABELS = {NO_FAILURE: "No.", "rude": "Yes."}
RUDE = Metric("rude", "turn", "label", "Is it rude?", RUDE_LABELS, severities={"rude": "high"})


def test_by_default_every_built_in_metric_is_asked() -> None:
    assert DEFAULT.turn == TURN_METRICS
    assert DEFAULT.conversation == CONVERSATION_METRICS


def test_a_metric_is_found_by_its_name() -> None:
    assert DEFAULT.get("helpfulness") is HELPFULNESS
    assert DEFAULT.rubric_hashes["helpfulness"] == HELPFULNESS.rubric_hash


def test_a_metric_that_is_off_is_asked_no_more() -> None:
    off = {"verbosity", *(metric.name for metric in DEFAULT.conversation)}
    left = DEFAULT.without(off)
    assert left.names == DEFAULT.names - off
    assert left.conversation == ()
    assert DEFAULT.without([]) == DEFAULT


def test_an_allow_list_leaves_only_what_it_names() -> None:
    assert DEFAULT.only(["verbosity"]).names == {"verbosity"}
    assert DEFAULT.only(None) == DEFAULT
    with pytest.raises(NotFoundError, match=r"in metrics.*Did you mean 'verbosity'"):
        DEFAULT.only(["verbosty"])


def test_a_name_that_is_wrong_is_named_with_the_nearest_right_one() -> None:
    slip = r"'helpfullness' in metrics_off.*Did you mean 'helpfulness'\?"
    with pytest.raises(NotFoundError, match=slip):
        DEFAULT.without(["helpfullness"])
    with pytest.raises(NotFoundError, match=r"'zzz' is not known\. Known: agent_behavior_failure"):
        DEFAULT.get("zzz")


@pytest.mark.parametrize(
    ("added", "by"),
    [
        ([dataclasses.replace(TONE, name="helpfulness")], "a metric of agent-eval"),
        ([TONE, dataclasses.replace(TONE, question="And?")], "another of your metrics"),
    ],
)
def test_no_two_metrics_have_one_name(added: list[Metric], by: str) -> None:
    with pytest.raises(ConfigurationError, match=by):
        DEFAULT.with_custom(added)


def test_the_order_of_adding_is_no_part_of_the_set() -> None:
    assert DEFAULT.with_custom([TONE, RUDE]) == DEFAULT.with_custom([RUDE, TONE])


CHANGES = {"notes": "Look twice.", "severities": {"rude": "low"}, "applies_when": "has_tool_calls"}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_can_change_a_row_changes_the_hash_of_the_set(name: str) -> None:
    before = DEFAULT.with_custom([RUDE])
    changed = dataclasses.replace(RUDE, **{name: CHANGES[name]})  # type: ignore[arg-type]
    assert before.hash == DEFAULT.with_custom([dataclasses.replace(RUDE)]).hash
    assert before.hash != DEFAULT.with_custom([changed]).hash
    assert before.hash != DEFAULT.hash


def test_severity_and_condition_are_no_part_of_the_question() -> None:
    changed = dataclasses.replace(RUDE, severities={}, applies_when="has_tools")
    assert changed.rubric_hash == RUDE.rubric_hash


def test_a_scale_of_its_own_is_part_of_the_question() -> None:
    real = dataclasses.replace(HELPFULNESS, minimum=0.0, maximum=10.0)
    assert real.rubric_hash != HELPFULNESS.rubric_hash
    assert (real.answer, real.scale) == ("value", (0.0, 10.0))
    assert (HELPFULNESS.answer, HELPFULNESS.scale) == ("rating_1to5", (1.0, 5.0))


def test_every_failure_label_has_a_severity_and_no_failure_has_none() -> None:
    found = DEFAULT.severities
    expected = {label for m in TURN_METRICS if m.is_failure for label in m.all_labels} - {NO_FAILURE}
    assert set(found) == expected
    assert (found["unsafe state"], found["false information"], found["repetition"]) == (
        "critical", "high", "medium",
    )  # fmt: skip


def test_the_graver_severity_counts_where_two_metrics_share_a_label() -> None:
    mild = dataclasses.replace(RUDE, name="a_rude", severities={"rude": "low"})
    for pair in ((RUDE, mild), (mild, RUDE)):
        assert MetricSet(pair).severities == {"rude": "high"}
    assert MetricSet((TONE, COHERENCE)).severities == {}
