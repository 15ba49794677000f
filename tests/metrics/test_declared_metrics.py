"""Every built-in metric, by walking what its module declares: what an addition has to bring."""

from importlib import import_module
from pathlib import Path

import pytest

from agent_eval.clusters.failures import FAILURE_METRICS
from agent_eval.clusters.rates import FAILURE_SETS
from agent_eval.judge.rules.finding import REGISTERED
from agent_eval.judge.rules.judge import CHECKS
from agent_eval.metrics import builtin
from agent_eval.metrics.base import NO_FAILURE, OF_CONVERSATIONS, SEVERITIES, BuiltIn
from agent_eval.metrics.metric_set import BUILT_IN, BUILT_IN_METRICS, DEFAULT

every_metric = pytest.mark.parametrize(
    "declared", BUILT_IN_METRICS, ids=lambda declared: declared.metric.name
)


def test_each_module_declares_metrics_with_names_and_places_of_their_own() -> None:
    modules = {path.stem for path in Path(builtin.__path__[0]).glob("[!_]*.py")}
    names = [declared.metric.name for declared in BUILT_IN_METRICS]
    assert len(set(names)) == len(names)
    assert all(import_module(f"{builtin.__name__}.{module}").BUILT_IN for module in modules)
    assert len({declared.order for declared in BUILT_IN_METRICS}) == len(names)
    assert {metric.name for metric in BUILT_IN.metrics} == set(names)


@every_metric
def test_a_metric_writes_out_what_is_asked_and_what_each_answer_means(declared: BuiltIn) -> None:
    metric = declared.metric
    assert metric.question.endswith(("?", ".")), "a sentence"
    wanted = {"rating": ["5", "4", "3", "2", "1"], "value": ["1", "0"]}
    assert list(metric.anchors) == wanted.get(metric.kind, list(metric.anchors))
    assert all(text.strip() for text in metric.described.values())
    assert metric.grain in ("turn", "conversation")
    is_of_conversations = metric.applies_when in OF_CONVERSATIONS
    assert metric.applies_when == "always" or is_of_conversations == (metric.grain == "conversation")
    assert (metric.minimum is None) == (metric.maximum is None)
    assert metric.kind != "label" or metric.is_failure or declared.people, "how do people answer it?"


@every_metric
def test_a_failure_metric_has_a_severity_for_each_label_and_is_clustered(declared: BuiltIn) -> None:
    metric = declared.metric
    if not metric.is_failure:
        assert metric.severities == {}
        return
    assert set(metric.severities) == set(metric.all_labels) - {NO_FAILURE}
    assert {*metric.severities.values()} <= {*SEVERITIES}
    assert metric.name in FAILURE_METRICS
    assert metric.name in FAILURE_SETS["metric"]


def test_every_check_of_a_rule_is_asked_in_a_place_of_its_own_and_only_of_failure_metrics() -> None:
    assert set(CHECKS) == set(REGISTERED) <= {m.name for m in DEFAULT.metrics if m.is_failure}
    for found in REGISTERED.values():
        orders = [order for order, _ in found]
        assert len(set(orders)) == len(orders)
