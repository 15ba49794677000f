"""The least that a judge through litellm can cost: a bare loop of calls, nothing read, nothing stored.

python -m benchmarks.litellm_loop CALLS CONCURRENCY, with the server in the environment; prints what it took as JSON.
"""

import asyncio
import json
import os
import sys
import time

SYSTEM, TURN = "the rubrics " * 700, "the conversation " * 500  # about as long as the prompts of the load
SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "rating": {"type": "integer"}},
    "required": ["reason", "rating"],
    "additionalProperties": False,
}


async def loop(calls: int, concurrency: int) -> None:
    """As many calls as `concurrency` at once."""
    import litellm

    places = asyncio.Semaphore(concurrency)
    asked = {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA}}

    async def call(number: int) -> None:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{number} {TURN}"}]
        async with places:
            await litellm.acompletion(
                model="openai/mock", messages=messages, response_format=asked, temperature=0, max_tokens=1000
            )

    await call(-1)  # imports
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(call, range(calls)))
    print(json.dumps({"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}))


if __name__ == "__main__":
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    asyncio.run(loop(int(sys.argv[1]), int(sys.argv[2])))
