"""`python -m benchmarks.bare tasks|threads`: the same waiting as our jobs, with no broker and nothing around it."""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import uvloop

from benchmarks.apps import measured

TASKS, TASK_SECONDS, TASK_JOBS = 100, 0.010, 20_000
THREADS, THREAD_SECONDS, THREAD_JOBS = 10, 0.001, 10_000


async def tasks() -> None:
    """A hundred coroutines that wait 10 ms, each again and again."""

    async def one() -> None:
        for _ in range(TASK_JOBS // TASKS):
            await asyncio.sleep(TASK_SECONDS)

    with measured.measured(TASK_JOBS):
        await asyncio.gather(*(one() for _ in range(TASKS)))


def threads() -> None:
    """A pool of ten threads that is handed waits of 1 ms."""
    with ThreadPoolExecutor(THREADS) as pool:
        for each in [pool.submit(time.sleep, THREAD_SECONDS) for _ in range(THREADS)]:
            each.result()
        with measured.measured(THREAD_JOBS):
            for each in [pool.submit(time.sleep, THREAD_SECONDS) for _ in range(THREAD_JOBS)]:
                each.result()


if __name__ == "__main__":
    if sys.argv[1] == "tasks":
        uvloop.run(tasks())
    else:
        threads()
