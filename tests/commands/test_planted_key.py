"""A provider that sends the API key back, in ten places and four encodings: it comes to rest nowhere in the project."""

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_eval.project import Project
from agent_eval.tables import TABLES
from benchmarks.mock_judge import instance
from benchmarks.warm import agent_eval, home_of

KEY = "sk-pl/nted+0123=456789&abcdef"
ENCODINGS: Mapping[str, str] = {
    "plain": KEY,
    "base64": base64.b64encode(KEY.encode()).decode(),
    "URL": "".join(f"%{byte:02X}" for byte in KEY.encode()),
    "hexadecimal": KEY.encode().hex(),
}
Reply = tuple[int, dict[str, str], object]


def completion(content: str | None, **changes: object) -> Reply:
    message = {"role": "assistant", "content": content, "refusal": changes.pop("refusal", None)}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "mock"}
    return 200, {}, body | {"choices": choices, "usage": usage} | changes


def failing(part: Any) -> Any:
    """The worst label wherever one is chosen, so that there are clusters to be named."""
    if isinstance(part, dict):
        worst = {"enum": part["enum"][-1:]} if isinstance(part.get("enum"), list) else {}
        return {name: failing(value) for name, value in part.items()} | worst
    return [failing(each) for each in part] if isinstance(part, list) else part


def with_field(content: str, field: str, value: str) -> str:
    """The answer with that text in a field of every metric."""
    answers = json.loads(content).items()
    parts = {name: part | {field: value} if isinstance(part, dict) else part for name, part in answers}
    return json.dumps(parts)


PLACES: Mapping[str, Callable[[str, str], Reply]] = {
    "reason": lambda good, key: completion(with_field(good, "reason", f"It is wrong, says {key} of all.")),
    "evidence": lambda good, key: completion(with_field(good, "evidence", f"quoted: {key}")),
    "model": lambda good, key: completion(good, model=f"mock-{key}"),
    "fingerprint": lambda good, key: completion(good, system_fingerprint=f"fp {key}"),
    "error": lambda _, key: (400, {}, {"error": {"message": f"bad key {key} given"}}),
    "page": lambda _, key: (403, {"Content-Type": "text/html"}, f"<html>{key} is blocked</html>"),
    "refusal": lambda _, key: completion(None, refusal=f"I refuse, {key}"),
    "prose": lambda _, key: completion(f"{key} is what I was given."),
    "redirect": lambda _, key: (307, {"Location": f"http://127.0.0.1:9/{key}"}, ""),
}


class Judge(BaseHTTPRequestHandler):
    names: set[str]  # encodings that were sent as names of clusters

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        schema = json.loads(body)["response_format"]["json_schema"]["schema"]
        good = json.dumps(instance(failing(schema)))
        case = re.search(r"place (\w+), encoding (\w+)", body)
        if case:
            status, headers, answer = PLACES[case[1]](good, ENCODINGS[case[2]])
        else:
            every = " ".join(ENCODINGS.values())
            named = re.sub(r'"The reply addresses[^"]*"', json.dumps(f"Named {every}"), good)
            self.names |= {e for e in ENCODINGS.values() if e in named}
            status, headers, answer = completion(named)
        sent = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    Judge.names = set()
    with ThreadingHTTPServer(("127.0.0.1", 0), Judge) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.slow
def test_a_key_that_a_provider_sends_back_is_nowhere_in_the_project(tmp_path: Path, port: int) -> None:
    cases = [(place, encoding) for place in PLACES for encoding in ENCODINGS]
    with (tmp_path / "chats.jsonl").open("w") as chats:
        for number, (place, encoding) in enumerate(cases):
            texts = {"user": f"place {place}, encoding {encoding}", "assistant": f"Answer {number}."}
            talk = [{"role": role, "content": text} for role, text in texts.items()]
            chats.write(json.dumps({"id": f"c{number}", "correct": False, "messages": talk}) + "\n")
    environment = home_of(tmp_path) | {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": KEY,
        "AGENT_EVAL_JUDGE_MODEL": "openai/mock",
    }
    said = ""
    for command in (
        "import openai chats.jsonl --agent bot",
        "run --methodology 1.3.0",
        "errors --agent bot --methodology 1.3.0",
        "explain bot --methodology 1.3.0",
        "report",
        "backup copy.duckdb",
    ):
        done = agent_eval(tmp_path, *command.split(), **environment)
        assert done.returncode in (0, 1), (command, done.stdout, done.stderr)
        said += done.stdout + done.stderr
    store = Project.open(tmp_path).store
    frames = {name: store.read(contract) for name, contract in TABLES.items()}
    scored = frames["turn_judgments"].filter(status="scored", judge_model="openai/mock")
    assert scored["conversation_id"].n_unique() >= 4 * len(ENCODINGS)  # the answers with a key were read
    assert Judge.names == set(ENCODINGS.values())
    texts = {name: json.dumps(frame.rows(), default=str) for name, frame in frames.items()}
    texts["what the commands said"] = said
    found = [(where, form) for where, text in texts.items() for form in forms() if form in text]
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += [(str(path.relative_to(tmp_path)), form) for form in forms() if form.encode() in content]
    assert found == []
    assert "[hidden]" in texts["turn_judgments"]


def forms() -> set[str]:
    """Every form in which the key was sent, and that in which JSON would hold it."""
    return {*ENCODINGS.values(), json.dumps(KEY)[1:-1], *(e.lower() for e in ENCODINGS.values() if "%" in e)}
