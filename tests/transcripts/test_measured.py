import pytest
from pydantic import ValidationError

from agent_eval.transcripts.models import Message, Outcome


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1.2e308, "inf", "1", -0.1, True])
def test_a_cost_or_time_that_would_spoil_every_sum_is_refused(value: object) -> None:
    for key in ("cost_usd", "latency_ms"):
        with pytest.raises(ValidationError, match=key):
            Message.model_validate({"role": "assistant", key: value})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "inf", True])
def test_a_reward_is_a_finite_number(value: object) -> None:
    with pytest.raises(ValidationError, match="reward"):
        Outcome.model_validate({"reward": value})
    assert Outcome.model_validate({"reward": 1}).reward == 1.0
