"""Python agents and Python mocks for tests. Tests name this module in `agent_modules`."""

import asyncio
import sys
import time
from typing import Any

from agent_eval.simulate.mocks import MockContext

Request = dict[str, Any]


def count(arguments: dict[str, Any], context: MockContext) -> dict[str, object]:
    """Return what this conversation's state holds: a mock that leaks would return more."""
    seen = context.state.setdefault("seen", [])
    seen.append(arguments["name"])
    context.state["nested"]["n"] += 1
    return {"seen": list(seen), "n": context.state["nested"]["n"], "call": context.call_index}


def missing(arguments: dict[str, Any], context: MockContext) -> object:
    raise KeyError("order 7")


def broken(arguments: dict[str, Any], context: MockContext) -> object:
    raise ZeroDivisionError


async def counting_agent(request: Request) -> object:
    """Call the tool twice with the name in the user's message, then report the last result."""
    messages = request["messages"]
    results = [m["content"] for m in messages if m["role"] == "tool"]
    await asyncio.sleep(0.01)
    if len(results) < 2:
        name = messages[0]["content"].split()[-1]
        return {"content": None, "tool_calls": [{"name": "count", "arguments": {"name": name}}]}
    return results[-1]


def echo(request: Request) -> str:
    return f"You said: {request['messages'][-1]['content']}"


def crashing(request: Request) -> object:
    raise RuntimeError("out of order")


def quitting(request: Request) -> object:
    sys.exit(3)


def hanging(request: Request) -> object:
    time.sleep(5)
    return "late"


def returning_a_set(request: Request) -> object:
    return {1, 2}


def returning_nothing(request: Request) -> object:
    return None


def own_tools(request: Request) -> object:
    call = {"id": "x", "name": "search", "arguments": {"q": "parcel"}}
    executed = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "x"},
    ]
    return {"content": "It is found.", "messages": executed, "cost_usd": 0.5}


PROGRAM = """
import json, os, sys
for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    said = request["messages"][-1]["content"]
    if "crash" in said:
        sys.exit("no more paper")
    if "garbage" in said:
        print("oops", flush=True)
        continue
    if "hang" in said:
        import time
        time.sleep(60)
    keys = sorted(name for name in os.environ if "KEY" in name)
    print(json.dumps({"content": f"{number} {os.getpid()} {keys}"}), flush=True)
"""
