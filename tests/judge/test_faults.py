"""Whatever a provider replies costs at most that one call: four calls, one of which gets a fault."""

from collections.abc import Iterator

import pytest

from agent_eval.judge.llm import requests
from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.client import LiteLLMClient
from agent_eval.judge.llm.panel import AnswersByQuestion, JudgeRuntime, Panel
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.protocol import Scored, Unscored
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.tables import table
from benchmarks.fault_server import FAULTS, MARK, ODD_BUT_GOOD, FaultServer, fault_server
from tests.judge.fakes import Kept
from tests.judge.test_requests import questions, talk

N_CALLS = 4
TIMEOUT_S = 0.6
REFUSED = {"refusal"}
TRUNCATED = {"cut off by length"}


@pytest.fixture(scope="module")
def started() -> Iterator[FaultServer]:
    with fault_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        judged(Kept(), timeout_s=60)  # the first call of a process loads most of litellm
        yield server


@pytest.fixture
def server(started: FaultServer, monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(requests, "FIRST_PAUSE_S", 0.001)
    started.requests.clear()
    started.served_s.clear()
    started.marked = started.elsewhere = 0
    return started


def judged(kept: Kept, timeout_s: float = TIMEOUT_S) -> AnswersByQuestion:
    texts = [MARK if number == 3 else f"Call {number}" for number in range(1, N_CALLS + 1)]
    sequences = [QuestionSequence(questions(talk(text), [HELPFULNESS])) for text in texts]
    runtime = JudgeRuntime(
        lambda model: LiteLLMClient(model, timeout_s=timeout_s, max_reply_mb=4),
        kept.writing,
        b"s",
        concurrency=2,
    )
    cache = kept.frame() if kept.rows else table("judge_cache").empty()
    return Panel(JudgeSpec(("openai/mock",)), runtime).answers(sequences, cache)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_call_and_no_other(server: FaultServer, fault: str) -> None:
    server.fault, kept = fault, Kept()
    verdicts = [verdict for [(_, verdict)] in judged(kept).values()]
    lost = [v for v in verdicts if isinstance(v, Unscored)]
    assert (sum(isinstance(v, Scored) for v in verdicts), len(lost)) == (N_CALLS - 1, 1)
    assert lost[0].detail
    assert "sk-planted" not in lost[0].detail
    assert len(lost[0].detail) < 600
    reason = "refused" if fault in REFUSED else "truncated" if fault in TRUNCATED else None
    assert lost[0].reason == reason or (reason is None and lost[0].reason in ("judge_error", "parse_failure"))
    assert server.elsewhere == 0
    assert max(server.served_s, default=0) <= 2 * TIMEOUT_S

    server.requests.clear()
    server.fault = "none"
    verdicts = [verdict for [(_, verdict)] in judged(kept).values()]
    assert all(isinstance(v, Scored) for v in verdicts)
    assert len(server.requests) == 1


@pytest.mark.parametrize("oddity", ODD_BUT_GOOD)
def test_an_odd_reply_with_a_good_answer_is_scored(server: FaultServer, oddity: str) -> None:
    server.fault = oddity
    verdicts = [verdict for [(_, verdict)] in judged(Kept()).values()]
    assert all(isinstance(v, Scored) for v in verdicts)
    assert len(server.requests) == N_CALLS
    counts = [v.n_tokens_in for v in verdicts if isinstance(v, Scored)]
    assert all(n is None or n >= 0 for n in counts)
