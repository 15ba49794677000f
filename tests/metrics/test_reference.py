"""docs/metrics.md says what the code says, and its examples work."""

import re
from pathlib import Path

import pytest

from agent_eval.metrics.base import Metric
from agent_eval.metrics.custom import load_metrics
from agent_eval.metrics.metric_set import DEFAULT, MetricSet
from agent_eval.metrics.reference import reference, with_reference
from tests.judge.material import agent, conversation, user

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_reference(text) == text, "run python -m agent_eval.metrics.reference docs/metrics.md"
    assert all(f"### {name}" in text for name in DEFAULT.names)


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page needs the lines"):
        with_reference("# Metrics")


def test_severities_stand_beside_their_labels_and_no_failure_has_none() -> None:
    shown = reference(MetricSet((DEFAULT.get("agent_behavior_failure"),)))
    assert "- **no failure**: None of the failures below." in shown
    assert "- **unsafe state** (critical): " in shown
    assert "- **no reply**\\* (high): " in shown


def test_the_yaml_example_is_a_metric(tmp_path: Path) -> None:
    (example,) = blocks("yaml")
    (tmp_path / "empathy.yaml").write_text(example, encoding="utf-8")
    assert load_metrics(tmp_path).get("empathy").answer == "rating_1to5"


def test_the_python_example_applies_and_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = blocks("python")
    (tmp_path / "example_of_the_page.py").write_text(example, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = load_metrics(modules=["example_of_the_page"])
    of = conversation(user("A refund?"), agent("Yes, of course."))
    refunds: Metric = found.get("refund_policy")
    assert refunds.applies(of.turns()[0], of, None)
    measured = found.get("reply_words").measure(of.turns(), of, None)
    assert measured is not None
    assert measured.value == 3
