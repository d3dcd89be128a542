"""`python -m benchmarks.produce many N JOB [BYTES] | single N JOB | paced RATE SECONDS JOB`: our client at work."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from amqpjobs import Client
from benchmarks.apps import measured
from benchmarks.statistics import percentile

WARM_UP = 50


def arguments(size: int | None) -> list[Any]:
    """The usual ones, or a text of so many bytes."""
    return list(measured.ARGUMENTS) if size is None else ["x" * size]


async def many(client: Client, jobs: int, job: str, size: int | None = None) -> None:
    """All in one call of `enqueue_many`; the connection is made before."""
    await client.enqueue(job, *arguments(size))
    with measured.measured(jobs):
        await client.enqueue_many((job, arguments(size)) for _ in range(jobs - 1))


async def single(client: Client, jobs: int, job: str) -> None:
    """One after the other, each confirmed before the next."""
    for _ in range(WARM_UP):
        await client.enqueue(job, *measured.ARGUMENTS)
    times = []
    for _ in range(jobs):
        started = time.perf_counter()
        await client.enqueue(job, *measured.ARGUMENTS)
        times.append((time.perf_counter() - started) * 1000)
    told = {"jobs": jobs, "seconds": sum(times) / 1000}
    print(json.dumps(told | {"p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}))


async def paced(client: Client, rate: float, seconds: float, job: str) -> None:
    """Each at its moment, whatever became of the ones before."""
    await client.enqueue(job)
    begin = time.perf_counter()
    count = int(rate * seconds)
    tasks: Sequence[asyncio.Task[str]] = []
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        tasks = [*(each for each in tasks if not each.done()), asyncio.create_task(client.enqueue(job))]
    await asyncio.gather(*tasks)
    print(json.dumps({"jobs": count, "seconds": time.perf_counter() - begin}))


async def main(mode: str, *words: str) -> None:
    """What the command line says."""
    async with Client() as client:
        if mode == "many":
            await many(client, int(words[0]), words[1], int(words[2]) if len(words) > 2 else None)
        elif mode == "single":
            await single(client, int(words[0]), words[1])
        else:
            await paced(client, float(words[0]), float(words[1]), words[2])


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
