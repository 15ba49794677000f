"""Serve a mock judge with an OpenAI-compatible API, for `agent-eval judge mock` and load tests.

Every answer is valid and contains the best rating; error clusters keep the names and severities given by the rules.
A hash of the request and its attempt determines which of the configured faults occur.

The endpoints are POST /v1/chat/completions, GET /stats, and POST /reset with a JSON configuration.
"""

import asyncio
import hashlib
import json
import re
from collections import Counter
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agent_eval.clusters.cluster_registry import rule_title
from agent_eval.metrics.base import DEFAULT_SEVERITY, QUESTION_CODE
from agent_eval.metrics.metric_set import DEFAULT

_CODE = re.compile(rf'"{QUESTION_CODE}": "(\w+)"\Z')
CONFIG: dict[str, float] = {
    "latency_ms": 20, "p429": 0, "p500": 0, "pmal": 0, "ptrunc": 0, "phang": 0, "garbage": 0, "retry_after": 0,
}  # fmt: skip
COUNTS: Counter[str] = Counter()
SEEN: Counter[bytes] = Counter()
ANSWERED: Counter[bytes] = Counter()
PREFIXES: set[bytes] = set()


async def chat(request: Request) -> JSONResponse:
    """Answer one request, or fail as configured."""
    body = await request.body()
    key = hashlib.blake2b(body, digest_size=12).digest()
    attempt = SEEN[key]
    SEEN[key] += 1
    COUNTS["calls"] += 1

    def is_drawn(fault: str) -> bool:
        hash_bytes = hashlib.sha256(b"%d|%s|%s" % (attempt, fault.encode(), key)).digest()
        hit = int.from_bytes(hash_bytes[:8], "big") / 2**64 < CONFIG[fault]
        COUNTS[fault] += hit
        return hit

    if is_drawn("p429"):
        headers = {"retry-after": str(CONFIG["retry_after"])} if CONFIG["retry_after"] else {}
        return JSONResponse({"error": {"message": "Rate limit reached"}}, 429, headers)
    await asyncio.sleep(3600 if is_drawn("phang") else CONFIG["latency_ms"] / 1000)
    if is_drawn("p500"):
        return JSONResponse({"error": {"message": "The server had an error"}}, 500)
    body_fields = json.loads(body)
    text = "\n".join(f"<{m['role']}>{m['content']}" for m in body_fields["messages"])
    schema = body_fields["response_format"]["json_schema"]["schema"]
    is_naming = body_fields["response_format"]["json_schema"].get("name") == "names"
    answer = (is_naming and _cluster_names(body_fields, schema)) or instance(schema)
    if isinstance(answer, dict) and (code := _CODE.search(str(body_fields["messages"][-1]["content"]))):
        answer[QUESTION_CODE] = code[1]
    content = json.dumps(answer)
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
            "id": "1", "object": "chat.completion", "created": 1, "model": body_fields["model"],
            "choices": [{"index": 0, "finish_reason": "length" if cut else "stop",
                         "message": {"role": "assistant", "content": content}}],
            "usage": usage | {"total_tokens": sum(usage.values()), "prompt_tokens_details": {"cached_tokens": cached}},
        }
    )  # fmt: skip


def _cluster_names(body: dict[str, Any], schema: dict[str, Any]) -> dict[str, object]:
    """Return names of error clusters, derived from the request; empty for other questions."""
    lines = [
        line for m in body["messages"] for line in str(m["content"]).splitlines() if line.startswith('{"id"')
    ]
    name_of_case: dict[str, object] = {}
    for case in map(json.loads, lines):
        if case["id"] in schema.get("properties", {}) and case.get("members"):
            member = case["members"][0]
            name_of_case[case["id"]] = {
                "root_cause": member.get("reason") or member.get("quote"),
                "title": rule_title(case["label"], case["tool"], member.get("quote") or member.get("reason")),
                "severity": DEFAULT.severities.get(case["label"], DEFAULT_SEVERITY),
                "merge_into": None,
            }
    return name_of_case


def instance(schema: dict[str, object], name: str = "") -> object:
    """Return a value that conforms to a JSON schema."""
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
    """Return the number of cached tokens as documented by OpenAI: multiples of 128, starting at 1,024 tokens."""
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
    """Return the numbers of calls, tokens and faults."""
    return JSONResponse(
        dict.fromkeys(("calls", "ok", "cached_tokens", "prompt_tokens", "duplicate_ok_calls"), 0) | COUNTS
    )


async def reset(request: Request) -> JSONResponse:
    """Change the configuration and reset the counters."""
    CONFIG.update(json.loads(await request.body() or b"{}"))
    for counter in (COUNTS, SEEN, ANSWERED, PREFIXES):
        counter.clear()
    return JSONResponse(CONFIG)


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/stats", stats),
        Route("/reset", reset, methods=["POST"]),
    ]
)


def serve(port: int) -> None:
    """Serve requests on 127.0.0.1 until interrupted."""
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
