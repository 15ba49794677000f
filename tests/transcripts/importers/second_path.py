"""Count the messages of a file with plain Python, without the importers: the second path to the same numbers.

Each function yields one list per conversation of its messages as (role, number of calls, is an error, tokens).
"""

import gzip
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

Said = tuple[str, int, bool, dict[str, Any]]


def text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in text(path).splitlines() if line.strip()]


def one(role: str, calls: object = 0, error: object = False, tokens: Any = None) -> Said:
    return role, calls if isinstance(calls, int) else len(calls or ()), bool(error), tokens or {}  # type: ignore[arg-type]


def exchanges(turns: list[Any], user: str, calls: Callable[[Any], Any], reply: str) -> Iterator[Said]:
    """A question, then its calls in one message with their results, then the answer."""
    for turn in turns:
        made = calls(turn) or []
        yield from [one("user"), *([one("assistant", made)] if made else [])]
        yield from [one("tool", 0, call.get("error")) for call in made]
        yield from [one("assistant")] if turn.get(reply) is not None and user in turn else []


def agentest(path: Path) -> Iterator[list[Said]]:
    for scenario in json.loads(text(path))["scenarios"]:
        for talk in scenario["conversations"]:
            yield [*exchanges(talk["turns"], "userMessage", lambda t: t.get("toolCalls"), "agentMessage")]


def fair_forge(path: Path) -> Iterator[list[Said]]:
    for session in json.loads(text(path)):
        turns = session["conversation"]
        yield [*exchanges(turns, "query", lambda t: (t.get("agentic") or {}).get("tools_used"), "assistant")]


def atif(path: Path) -> Iterator[list[Said]]:
    found: list[Said] = []
    for step in json.loads(text(path))["steps"]:
        role = {"agent": "assistant"}.get(step["source"], step["source"])
        tokens = {k: v for k, v in (step.get("metrics") or {}).items() if k.endswith("_tokens")}
        found.append(one(role, step.get("tool_calls"), False, tokens))
        found += [one("tool") for _ in (step.get("observation") or {}).get("results") or ()]
    yield found


def claude_code(path: Path) -> Iterator[list[Said]]:
    found: dict[str, dict[Any, Said]] = {}
    for n, line in enumerate(rows(path)):
        message = line.get("message")
        if line.get("type") not in ("user", "assistant"):
            continue
        session = found.setdefault(f"{line.get('sessionId')} {line.get('isSidechain')}", {})
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text"}]
        results = [block for block in blocks if block["type"] == "tool_result"]
        if line["type"] == "assistant":
            key = message.get("id", n)
            n_calls = sum(block["type"] == "tool_use" for block in blocks) + session.get(key, one(""))[1]
            session[key] = one("assistant", n_calls, False, message.get("usage"))
        elif results:
            session |= {(n, i): one("tool", 0, block.get("is_error")) for i, block in enumerate(results)}
        else:
            session[n] = one("developer" if line.get("isCompactSummary") or line.get("isMeta") else "user")
    yield from ([*session.values()] for session in found.values())


def codex(path: Path) -> Iterator[list[Said]]:
    found: list[list[Said]] = []
    session = None
    for line in rows(path):
        item = line.get("payload") or {}
        kind = item.get("type", "")
        if line["type"] == "session_meta" and item["id"] != session:
            session = item["id"]
            found.append([])
        elif line["type"] == "response_item" and kind == "message":
            found[-1].append(one(item["role"]))
        elif line["type"] == "response_item" and kind.endswith("_call"):
            found[-1].append(one("assistant", 1))
            found[-1] += [one("tool")] if kind == "image_generation_call" else []
        elif line["type"] == "response_item" and kind.endswith("_output"):
            found[-1].append(one("tool"))
    yield from found


def inspect(path: Path) -> Iterator[list[Said]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/")]
            samples = [json.loads(archive.read(name)) for name in names]
    else:
        samples = json.loads(text(path).replace("NaN", "null"))["samples"]
    for sample in samples:
        outputs = [event["output"] for event in sample.get("events") or () if event["event"] == "model"]
        used = {o["choices"][0]["message"].get("id"): o.get("usage") for o in outputs if o.get("choices")}
        used |= {m["id"]: sample["output"].get("usage") for m in sample["messages"][-1:] if m.get("id")}
        yield [
            one(
                m["role"],
                m.get("tool_calls"),
                m.get("error"),
                used.get(m.get("id")) if m["role"] == "assistant" else {},
            )
            for m in sample["messages"]
        ]


def langfuse(path: Path) -> Iterator[list[Said]]:
    """The longest history that a generation gets, the results of tools and the replies of all generations."""
    observations = sorted(json.loads(text(path))["observations"], key=lambda o: o["startTime"])
    around = {o["parentObservationId"] for o in observations if o["type"] == "GENERATION"}
    calls = [o for o in observations if o["type"] == "GENERATION" and o["id"] not in around]
    begins = json.loads(calls[0]["input"])
    begins = begins.get("messages", [begins]) if isinstance(begins, dict) else begins
    found = [one(message["role"]) for message in begins if message["role"] != "tool"]  # schemas of tools
    for call in calls:
        made = call["output"].count('"toolCallId"') or call["output"].count('"tool_use"')
        made = made or call["output"].count('"type":"tool_call"') + call["output"].count(
            '"type": "tool_call"'
        )
        made = (
            made
            or call["output"].count('"type":"function_call"')
            or call["output"].count('"type": "function"')
        )
        found.append(one("assistant", made, False, call["usageDetails"]))
    runs = [o for o in observations if o["type"] == "TOOL" or o["name"] == "Web-Search"]
    yield found + [one("tool", 0, run["level"] == "ERROR") for run in runs]


def chats(path: Path) -> Iterator[list[Said]]:
    for row in rows(path):
        yield [one(m["role"], m.get("tool_calls")) for m in row["messages"]]


def mini(path: Path) -> Iterator[list[Said]]:
    found: list[Said] = []
    for message in json.loads(text(path)):
        role, said = message["role"], message["content"]
        is_output = role == "user" and any(before[0] == "assistant" for before in found)
        failed = is_output and said.startswith("<returncode>") and not said.startswith("<returncode>0<")
        n_calls = said.count("```mswea_bash_command") if role == "assistant" else 0
        found.append(one("tool" if is_output else role, n_calls, failed))
    yield found


def swe(path: Path) -> Iterator[list[Said]]:
    found = [m for m in json.loads(text(path))["history"] if not m.get("is_demo")]
    first = next(i for i, m in enumerate(found) if m["role"] == "assistant")
    yield [
        one("tool" if m["role"] == "user" and i > first else m["role"], 1 if m["role"] == "assistant" else 0)
        for i, m in enumerate(found)
    ]


def sharegpt(path: Path) -> Iterator[list[Said]]:
    for row in json.loads(text(path)):
        yield [one({"human": "user", "gpt": "assistant"}[m["from"]]) for m in row["conversations"]]


def otel(path: Path) -> Iterator[list[Said]]:
    """Each file is one model call with its history, or a list of calls in traces of their own."""
    content = json.loads(text(path))
    for span in content if isinstance(content, list) else [{"attributes": content}]:
        of = span["attributes"]
        given = next(
            (
                of[k]
                for k in ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages", "ai.prompt")
                if k in of
            ),
            None,
        )
        if given is None and "llm.input_messages.0.message.role" not in of:
            continue
        values = json.loads(given or "[]")
        values = values if isinstance(values, list) else values.get("messages", [{"role": "user"}])
        found = [(m["role"], json.dumps(m).count('"tool_call"')) for m in values]
        n = sum(key.startswith("llm.input_messages.") and key.endswith(".message.role") for key in of)
        for i in range(n):
            calls = [
                k
                for k in of
                if k.startswith(f"llm.input_messages.{i}.") and k.endswith("tool_call.function.name")
            ]
            found.append((of[f"llm.input_messages.{i}.message.role"], len(calls)))
        sides = {
            "input": (
                "gen_ai.usage.input_tokens",
                "llm.token_count.prompt",
                "ai.usage.promptTokens",
                "ai.usage.inputTokens",
            )
        }
        sides["output"] = (
            "gen_ai.usage.output_tokens",
            "llm.token_count.completion",
            "ai.usage.completionTokens",
            "ai.usage.outputTokens",
        )
        tokens = {f"{side}_tokens": next((of[k] for k in keys if k in of), 0) for side, keys in sides.items()}
        if any(role == "user" for role, _ in found):
            yield [*(one(role, n_calls) for role, n_calls in found), one("assistant", 0, False, tokens)]


def counts(conversations: Iterator[list[Said]]) -> Counter[str]:
    """Conversations, turns, messages of each role, calls, errors and tokens of a kind."""
    found = Counter[str]()
    for said in conversations:
        runs = [role for role, _ in groupby(s[0] for s in said if s[0] in ("user", "assistant", "tool"))]
        found += Counter({"conversations": 1, "turns": max(runs.count("user"), 1 if said else 0)})
        for role, n_calls, is_error, tokens in said:
            found += Counter({role: 1, "calls": n_calls, "errors": int(is_error)})
            found += Counter({f"tokens {k}": v for k, v in tokens.items() if isinstance(v, int) and v})
    return found


READERS: dict[str, Callable[[Path], Iterator[list[Said]]]] = {
    "agentest": agentest, "atif": atif, "claude-code": claude_code, "codex": codex, "fair-forge": fair_forge,
    "inspect": inspect, "langfuse": langfuse, "mini-swe-agent": mini, "openai": chats, "otel-genai": otel, "sharegpt": sharegpt,
    "swe-agent": swe,
}  # fmt: skip
