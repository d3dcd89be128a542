"""taskiq over RabbitMQ: its workers load `benchmarks.apps.taskiq_app:broker`; `-m benchmarks.apps.taskiq_app N JOB`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from taskiq_aio_pika import AioPikaBroker

from benchmarks.apps import measured

broker = AioPikaBroker(os.environ["BENCH_AMQP"], qos=int(os.environ.get("BENCH_PREFETCH", "100")))

UNDER_WAY = 100


@broker.task(task_name="noop")
async def noop(*arguments: Any) -> None:
    """Nothing."""


@broker.task(task_name="tick")
async def tick(*arguments: Any) -> None:
    """Shows that it ran."""
    measured.tick()


async def main(jobs: int, job: str) -> None:
    """Enqueue so many, a hundred under way at once."""
    task = {"noop": noop, "tick": tick}[job]
    await broker.startup()

    async def share(count: int) -> None:
        for _ in range(count):
            await task.kiq(*measured.ARGUMENTS)

    with measured.measured(jobs):
        each, rest = divmod(jobs, UNDER_WAY)
        await asyncio.gather(*(share(each + (number < rest)) for number in range(UNDER_WAY)))
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
