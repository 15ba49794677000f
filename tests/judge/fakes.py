"""Fakes for the engine: a client that answers from a script, and a place to keep answers."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import polars as pl

from agent_eval.judge.llm.budget import Budget, Usage
from agent_eval.judge.llm.client import CallError, Reply
from agent_eval.judge.llm.panel import Heard, JudgeRuntime, Panel
from agent_eval.judge.llm.spec import JudgeSpec
from agent_eval.judge.prompts import Messages, Prompt
from agent_eval.metrics.base import Metric
from agent_eval.metrics.findings import checks_of
from agent_eval.tables import table

USAGE = Usage(100, 20, 60, 0.01)
GARBAGE = Reply("I would rather talk about the weather.", USAGE)
CUT_OFF = Reply('{"helpfulness": {"evid', USAGE, is_truncated=True)
BUSY = CallError("rate", "429")
DOWN = CallError("server", "500")
GONE = CallError("connection", "refused")


@dataclass
class ScriptedClient:
    """Answers every metric, by default well; `answers` says otherwise by metric, `first` and `always` go wrong."""

    model: str = "scripted"
    answers: Mapping[str, object] = field(default_factory=dict[str, object])
    first: list[Reply | CallError] = field(
        default_factory=list[Reply | CallError]
    )  # instead of the first answers
    always: Reply | CallError | None = None
    latency_s: float = 0.0
    n_together: int = 0  # answers after the first wait until so many calls have been open at once
    asked: list[Prompt] = field(default_factory=list[Prompt])
    sent: list[tuple[Messages, int]] = field(default_factory=list[tuple[Messages, int]])
    n_open: int = 0
    most_open: int = 0
    is_closed: bool = False

    async def complete(self, messages: Messages, form: Prompt, max_tokens: int) -> Reply:
        self.asked.append(form)
        self.sent.append((messages, max_tokens))
        self.n_open += 1
        self.most_open = max(self.most_open, self.n_open)
        try:
            await asyncio.sleep(self.latency_s)
            until = time.monotonic() + 60
            while len(self.asked) > 1 and self.most_open < self.n_together and time.monotonic() < until:
                await asyncio.sleep(0.001)
        finally:
            self.n_open -= 1
        given = self.first.pop(0) if self.first else self.always
        if isinstance(given, CallError):
            raise given
        if given is not None:
            return given
        answer, every = (name_of, "every name") if form.name == "names" else (part, "")
        parts = {m.name: answer(m, self.answers.get(m.name, self.answers.get(every))) for m in form.metrics}
        if form.name == "categories":
            parts = {m.name: m.labels[0] for m in form.metrics}
        if form.question_code:
            parts["question_code"] = form.question_code
        return Reply(json.dumps(parts), USAGE)

    async def close(self) -> None:
        self.is_closed = True

    @property
    def names_asked(self) -> list[set[str]]:
        return [{metric.name for metric in prompt.metrics} for prompt in self.asked]


def part(metric: Metric, answer: object = None) -> dict[str, object]:
    """One metric's part of a reply."""
    said: dict[str, object] = {"evidence": None, **{check.name: True for check in checks_of(metric.name)}}
    said["reason"] = "because"
    if (items := metric.items) is not None:
        verdicts = answer if isinstance(answer, list) else [items.verdicts[0]]
        listed = [{items.each: "x", "evidence": None, "verdict": v, "severity": "low"} for v in verdicts]
        return said | {items.name: listed}
    if metric.kind == "label":
        label, *further = answer if isinstance(answer, list) else [answer or metric.labels[0]]
        return said | {"label": label, "further_labels": further}
    return said | {
        "score": answer
        if answer is not None
        else int((metric.scale or (0, 1))[1]) - (metric.kind == "rating")
    }


def name_of(cluster: Metric, answer: object = None) -> object:
    """One cluster's part of a reply."""
    named = {"root_cause": "why", "title": f"Title {cluster.name}", "severity": "low", "merge_into": None}
    return named | answer if isinstance(answer, dict) else answer or named


class JsonHandler(BaseHTTPRequestHandler):
    """Answers requests of JSON with JSON."""

    def answer(self, asked: dict[str, object]) -> tuple[int, Mapping[str, str], object]:
        """Return the status, further headers and the body."""
        raise NotImplementedError

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, headers, said = self.answer(asked)
        text = json.dumps(said).encode()
        self.send_response(status)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(text)), **headers}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """The address of the server, which runs in a thread of its own."""
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@dataclass
class Kept:
    """Where answers go; holds them as rows of judge_cache."""

    rows: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    batches: list[int] = field(default_factory=list[int])

    @contextlib.contextmanager
    def writing(self) -> Iterator[Callable[[Sequence[Mapping[str, object]]], None]]:
        yield self.write

    def write(self, rows: Sequence[Mapping[str, object]]) -> None:
        self.rows += rows
        self.batches.append(len(rows))

    def frame(self) -> pl.DataFrame:
        return table("judge_cache").frame(dict(row) for row in self.rows)


def panel_of(
    *clients: ScriptedClient,
    kept: Kept | None = None,
    spec: JudgeSpec | None = None,
    budget: Budget | None = None,
    concurrency: int = 16,
    heard: Heard | None = None,
) -> Panel:
    by_model = {client.model: client for client in clients}
    runtime = JudgeRuntime(
        client=by_model.__getitem__,
        writing=(kept or Kept()).writing,
        secret=b"secret",
        budget=budget or Budget(),
        concurrency=concurrency,
        max_tokens=500,
        heard=heard,
    )
    return Panel(spec or JudgeSpec(tuple(by_model)), runtime)
