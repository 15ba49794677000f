"""Limits on means and pass rates say what people's labels do to them."""

from fractions import Fraction

import pytest

from agent_eval.gates.estimates import MeanEstimate
from agent_eval.gates.thresholds import Mean, labels_of_rates, of_mean, threshold_findings
from agent_eval.settings.gate_spec import Rules
from agent_eval.tables import table
from agent_eval.tables.agent_version import AgentId, AgentVersion, MethodologyVersion


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (MeanEstimate(0.3, None, 6), "mean 0.3 over 10 of 10 answers, at least 0.4 required; corrected by 6 labels of people"),
        (MeanEstimate(None, None, 0, 4), "mean 1 over 10 of 10 answers, at least 0.4 required; 4 drawn labels of people, too few to correct the judge"),
        (MeanEstimate(None, None, 0, 0, 3, has_unchecked=False), "mean 1 over 10 of 10 answers, at least 0.4 required; 3 parts decided by people"),
        (MeanEstimate(None, None, 0, 0, 3), "mean 1 over 10 of 10 answers, at least 0.4 required; 3 parts decided by people, the rest not checked"),
    ],
)  # fmt: skip
def test_a_limit_says_how_many_labels_of_people_correct_the_mean_or_are_too_few(
    estimate: MeanEstimate, words: str
) -> None:
    found = of_mean("overall", "m", "m", Fraction(2, 5), Mean(Fraction(10), 10), Rules(), estimate)
    assert found.evidence == words


def test_a_pass_rate_of_several_trials_says_that_labels_do_not_correct_it() -> None:
    rules = Rules(thresholds={"pass_hat_2": Fraction(1, 2), "pass_at_1": Fraction(1, 2)})
    scores = {"pass_hat_2": {"tau": Fraction(3, 5)}, "pass_at_1": {"tau": Fraction(1, 4)}}
    rates = {"agent_id": "a", "methodology_version": "1.3.0", "task_set": "tau", "estimator": "unbiased"}
    rows = [
        {**rates, "k": 1, "labels": "corrected by 7 labels"},
        {**rates, "k": 2, "labels": "of the judge alone"},
    ]
    pair = AgentVersion(AgentId("a"), MethodologyVersion("1.3.0"))
    labels = labels_of_rates(table("reliability").frame(rows))[pair]
    found = {f.subject: f for f in threshold_findings(rules, {}, scores, labels=labels)}
    assert found["pass_hat_2 on tau"].evidence.endswith("; of the judge alone")
    assert found["pass_at_1 on tau"].evidence.endswith("; corrected by 7 labels")
