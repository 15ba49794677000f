"""Run a coroutine from synchronous code, and find the exception that ended it."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine and return its result, even if an event loop is already running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def first_of(failed: BaseException) -> BaseException:
    """Return the first exception of nested exception groups, as task groups raise them."""
    while isinstance(failed, ExceptionGroup):
        failed = failed.exceptions[0]
    return failed
