"""SAQ over Redis: `saq benchmarks.apps.saq_app.settings`, and `-m benchmarks.apps.saq_app N JOB`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from saq import Queue

from benchmarks.apps import measured

queue = Queue.from_url(f"redis://127.0.0.1:{os.environ['BENCH_REDIS_PORT']}")

UNDER_WAY = 100


async def noop(context: dict[str, Any], *, arguments: list[Any]) -> None:
    """Nothing."""


async def tick(context: dict[str, Any], *, arguments: list[Any]) -> None:
    """Shows that it ran."""
    measured.tick()


settings = {"queue": queue, "functions": [noop, tick], "concurrency": int(os.environ.get("BENCH_CONCURRENCY", "100"))}


async def main(jobs: int, job: str) -> None:
    """Enqueue so many, a hundred under way at once. Results are not kept (ttl -1), as in the other products."""
    await queue.connect()

    async def share(count: int) -> None:
        for _ in range(count):
            await queue.enqueue(job, arguments=list(measured.ARGUMENTS), ttl=-1)

    with measured.measured(jobs):
        each, rest = divmod(jobs, UNDER_WAY)
        await asyncio.gather(*(share(each + (number < rest)) for number in range(UNDER_WAY)))
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
