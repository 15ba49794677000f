"""A small judge behind Anthropic's API for tests and benchmarks: it caches what is marked, and charges as they do.

At most four marks in a request, else it is refused. A prompt's beginning of 1,024 tokens or more is written where a mark
ends it, and read where it ends at a mark or within the 20 blocks before one; tools come first, then the system message,
then the messages. What is written can be read once the answer has begun. A token is four characters.

POST /v1/messages, GET /stats, POST /reset with a JSON configuration. Run: python -m benchmarks.mock_anthropic --port N
"""

import argparse
import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

CONFIG: dict[str, float] = {"latency_ms": 200}
COUNTS: Counter[str] = Counter()
HELD: set[str] = set()
MOST_MARKS, LEAST_TOKENS, LOOKED_BACK = 4, 1_024, 20
REASON = "The reply addresses the request and agrees with what the tools gave."
_RUBRIC = re.compile(
    r"^([\w.]+) \((?:turn|conversation|session);[^\n]*\n(?:.*\n)*?Its part of the reply: (.*)$", re.M
)
_ASKED = re.compile(r"\bIn (?:turn \d+|the whole \w+),[^:\n]*: ([\w., ]+?)\.(?= |$)")


async def messages(request: Request) -> JSONResponse:
    """Answer one request, and charge for it."""
    asked = json.loads(await request.body())
    COUNTS["calls"] += 1
    blocks = list(_blocks(asked))
    marks = [i for i, (_, is_marked) in enumerate(blocks) if is_marked]
    COUNTS["unmarked"] += not marks
    if len(marks) > MOST_MARKS:
        COUNTS["refused"] += 1
        said = f"A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
        error = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}
        return JSONResponse(error, 400)
    usage, written = charge([text for text, _ in blocks], marks)
    await asyncio.sleep(CONFIG["latency_ms"] / 1000)
    HELD.update(written)
    text = answer(asked)
    usage["output_tokens"] = len(text) // 4
    COUNTS.update(usage | {"ok": 1})
    content = [{"type": "text", "text": text}]
    return JSONResponse(
        {
            "id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": content,
            "stop_reason": "end_turn", "stop_sequence": None, "usage": usage,
        }
    )  # fmt: skip


def charge(texts: list[str], marks: list[int]) -> tuple[dict[str, int], list[str]]:
    """Return the tokens of a request as it is billed, and the beginnings that it writes."""
    state, sizes, keys, size = hashlib.sha256(), list[int](), list[str](), 0
    for text in texts:
        state.update(f"{len(text)}:{text}".encode())
        size += len(text)
        sizes.append(size // 4)
        keys.append(state.hexdigest())
    marks = [i for i in marks if sizes[i] >= LEAST_TOKENS]
    near = [i for mark in marks for i in range(max(mark - LOOKED_BACK, 0), mark + 1)]
    read = max((sizes[i] for i in near if keys[i] in HELD), default=0)
    ends = sizes[marks[-1]] if marks else 0
    usage = {
        "input_tokens": size // 4 - ends if marks else size // 4,
        "cache_creation_input_tokens": max(ends - read, 0),
        "cache_read_input_tokens": read,
    }
    return usage, [keys[i] for i in marks]


def _blocks(asked: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """The blocks of a request in the order in which they are cached, and whether each is marked."""
    for tool in _list(asked.get("tools")):
        yield json.dumps(tool), "cache_control" in tool
    held: list[object] = [
        asked.get("system"),
        *(each.get("content") for each in _list(asked.get("messages"))),
    ]
    for content in held:
        if isinstance(content, str):
            yield content, False
        for block in _list(content):
            yield str(block.get("text")), "cache_control" in block


def _list(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []


def answer(asked: Mapping[str, object]) -> str:
    """Return a good reply: each part in the form that its rubric ends with."""
    texts = [text for text, _ in _blocks(asked)]
    rubrics = {name: json.loads(form) for name, form in _RUBRIC.findall("\n".join(texts))}
    names = [name for found in _ASKED.findall(texts[-1]) for name in found.split(", ")]
    return json.dumps(
        {name: {key: _value(key, form) for key, form in rubrics[name].items()} for name in names}
    )


def _value(key: str, form: object) -> object:
    if key == "evidence":
        return None
    if key == "label":
        return "no failure"
    if isinstance(form, list):
        return []
    if key == "score":
        return int(re.findall(r"\d+", str(form))[-1])
    return True if form == "boolean" else REASON


async def stats(_: Request) -> JSONResponse:
    names = (
        "calls",
        "ok",
        "refused",
        "unmarked",
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
    )
    return JSONResponse(dict.fromkeys(names, 0) | COUNTS)


async def reset(request: Request) -> JSONResponse:
    CONFIG.update(json.loads(await request.body() or b"{}"))
    COUNTS.clear()
    HELD.clear()
    return JSONResponse(CONFIG)


app = Starlette(
    routes=[
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/stats", stats),
        Route("/reset", reset, methods=["POST"]),
    ]
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning", access_log=False)
