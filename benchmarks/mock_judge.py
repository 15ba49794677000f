"""A small OpenAI-compatible judge for load tests, for where no other is at hand: always the same latency, a valid
answer of the schema, and faults that a hash of the request and its attempt decides.

POST /v1/chat/completions, GET /stats, POST /reset with a JSON configuration. Run: python -m benchmarks.mock_judge --port N
"""

import argparse
import asyncio
import hashlib
import json
from collections import Counter

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

CONFIG: dict[str, float] = {
    "latency_ms": 200, "p429": 0, "p500": 0, "pmal": 0, "ptrunc": 0, "phang": 0, "garbage": 0, "retry_after": 0,
}  # fmt: skip
COUNTS: Counter[str] = Counter()
SEEN: Counter[bytes] = Counter()
ANSWERED: Counter[bytes] = Counter()
PREFIXES: set[bytes] = set()


async def chat(request: Request) -> JSONResponse:
    body = await request.body()
    key = hashlib.blake2b(body, digest_size=12).digest()
    attempt = SEEN[key]
    SEEN[key] += 1
    COUNTS["calls"] += 1

    def is_drawn(fault: str) -> bool:
        drawn = hashlib.sha256(b"%d|%s|%s" % (attempt, fault.encode(), key)).digest()
        hit = int.from_bytes(drawn[:8], "big") / 2**64 < CONFIG[fault]
        COUNTS[fault] += hit
        return hit

    if is_drawn("p429"):
        headers = {"retry-after": str(CONFIG["retry_after"])} if CONFIG["retry_after"] else {}
        return JSONResponse({"error": {"message": "Rate limit reached"}}, 429, headers)
    await asyncio.sleep(3600 if is_drawn("phang") else CONFIG["latency_ms"] / 1000)
    if is_drawn("p500"):
        return JSONResponse({"error": {"message": "The server had an error"}}, 500)
    asked = json.loads(body)
    text = "\n".join(f"<{m['role']}>{m['content']}" for m in asked["messages"])
    content = json.dumps(instance(asked["response_format"]["json_schema"]["schema"]))
    cut = is_drawn("ptrunc")
    if is_drawn("garbage"):
        content = "I would rather talk about the weather."
    elif is_drawn("pmal"):
        content = "```json\n" + content.replace('"', "'") + "\n```"
    elif cut:
        content = content[: len(content) // 2]
    usage = {"prompt_tokens": len(text) // 4, "completion_tokens": len(content) // 4}
    cached = _cached(text)
    COUNTS.update(usage | {"ok": 1, "cached_tokens": cached, "duplicate_ok_calls": int(ANSWERED[key] > 0)})
    ANSWERED[key] += 1
    return JSONResponse(
        {
            "id": "1", "object": "chat.completion", "created": 1, "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "length" if cut else "stop",
                         "message": {"role": "assistant", "content": content}}],
            "usage": usage | {"total_tokens": sum(usage.values()), "prompt_tokens_details": {"cached_tokens": cached}},
        }
    )  # fmt: skip


def instance(schema: dict[str, object], name: str = "") -> object:
    """A valid answer."""
    if isinstance(options := schema.get("anyOf"), list):
        return instance(options[0], name)
    properties, kind = schema.get("properties"), schema.get("type")
    if isinstance(properties, dict):
        return {key: instance(part, key) for key, part in properties.items()}
    if isinstance(values := schema.get("enum"), list):
        return values[0]
    if kind == "array":
        return []
    if kind == "boolean":
        return True
    if kind in ("integer", "number"):
        return schema.get("maximum", 1)
    return (
        None
        if name == "evidence"
        else "The reply addresses the request and is consistent with the tool results."
    )


def _cached(text: str) -> int:
    """As OpenAI documents it: from 1,024 tokens on, in steps of 128."""
    n = len(text) // 4
    keys = [hashlib.blake2b(text[: i * 4].encode(), digest_size=12).digest() for i in range(1024, n + 1, 128)]
    hits = 0
    for key in keys:
        if key not in PREFIXES:
            break
        hits += 1
    PREFIXES.update(keys)
    return 1024 + 128 * (hits - 1) if hits else 0


async def stats(_: Request) -> JSONResponse:
    return JSONResponse(
        dict.fromkeys(("calls", "ok", "cached_tokens", "prompt_tokens", "duplicate_ok_calls"), 0) | COUNTS
    )


async def reset(request: Request) -> JSONResponse:
    CONFIG.update(json.loads(await request.body() or b"{}"))
    for counted in (COUNTS, SEEN, ANSWERED, PREFIXES):
        counted.clear()
    return JSONResponse(CONFIG)


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/stats", stats),
        Route("/reset", reset, methods=["POST"]),
    ]
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning", access_log=False)
