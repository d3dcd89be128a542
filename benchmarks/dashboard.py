"""`python -m benchmarks.dashboard [COUNT [SECONDS]]`: the dashboard under load, on the broker that AMQPJOBS_URL names.

In a virtual host that is its own to fill: COUNT (100,000) dead jobs and one with arguments of 10 MB and a backtrace of
5 MB; the server's time for the first page, the last, a search by jid, and its memory. Then 5,000 metrics a second for
SECONDS (20) while ten pages watch: its CPU, and the longest that it took to answer /health/live, asked every 20 ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import httpx
import psutil

from amqpjobs.clock import SystemClock
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing, Publisher

RATE, BATCH, WATCHERS, ASKED = 5000, 50, 10, 15
BIG = "big-one"


def dead(jid: str, number: int, **more: Any) -> dict[str, Any]:
    job = {"jid": jid, "class": f"Job{number % 20}", "queue": "default", "args": [number, "ada@example.com"]} | more
    return {"type": "dead_job", "jid": jid, "died_at": 1.7e9 + number, "retry_count": 25, "error_class": "Timeout",
            "error_message": f"host{number % 50} did not answer", "job": job}  # fmt: skip


async def publish(publisher: Publisher, stream: str, value: Any) -> None:
    await publisher.publish(Outgoing(json.dumps(value).encode(), "", stream))


async def fill(publisher: Publisher, count: int) -> None:
    for start in range(0, count, 500):
        end = min(start + 500, count)
        await publish(publisher, "dead_jobs", [dead(f"{n:08x}-dead", n) for n in range(start, end)])
    big = dead(BIG, count, args=["x" * 10_000_000])
    await publish(publisher, "dead_jobs", big | {"backtrace": "y" * 5_000_000})


@asynccontextmanager
async def web(state: str) -> AsyncIterator[tuple[httpx.AsyncClient, psutil.Process]]:
    """The dashboard as a process of its own."""
    environment = os.environ | {"AMQPJOBS_STATE_DIR": state}
    command = (sys.executable, "-m", "amqpjobs.web", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    address = None
    while address is None:
        line = (await process.stderr.readline()).decode()
        assert line, "the dashboard ended"
        address = re.search(r"web ready: (http://[^/]+)", line)
    drained = asyncio.create_task(process.stderr.read())
    try:
        async with httpx.AsyncClient(base_url=address[1], timeout=120) as client:
            yield client, psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()
        await drained


async def ready(client: httpx.AsyncClient, count: int) -> None:
    while True:
        listed = await client.get("/api/dead-jobs", params={"limit": 1, "search": "answer"})
        whole = await client.get("/api/dead-jobs?limit=1")
        if whole.headers.get("X-Total-Count") == str(count + 1) and "X-Indexed-Up-To" not in listed.headers:
            return
        await asyncio.sleep(0.5)


async def lists(client: httpx.AsyncClient, process: psutil.Process, count: int) -> None:
    asked = {
        "first page": "/dead-jobs",
        "last page": "/dead-jobs?sort=at",
        "last page by offset, JSON": f"/api/dead-jobs?limit=100&offset={count - 100}",
        "search by jid": f"/dead-jobs?search={count // 2:08x}-d",
        "search by words": "/dead-jobs?search=host7+job3",
        "by error and time": f"/dead-jobs?error=Timeout&since={1.7e9 + count / 2}",
        "the big one's page": f"/jobs/{BIG}",
    }
    print(f"{count + 1:,} dead jobs; {process.memory_info().rss / 1e6:.0f} MB")
    for name, path in asked.items():
        times = []
        for _ in range(ASKED):
            start = time.perf_counter()
            answer = (await client.get(path)).raise_for_status()
            times.append(1000 * (time.perf_counter() - start))
        size = len(answer.content) / 1000
        print(f"  {name:28} median {median(times):6.1f} ms, most {max(times):6.1f} ms, {size:6.1f} kB")
    print(f"  after that {process.memory_info().rss / 1e6:.0f} MB")


async def watch(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/events", timeout=None) as answer:
        async for _ in answer.aiter_bytes():
            pass


async def flow(publisher: Publisher, seconds: float) -> int:
    sent, start = 0, time.monotonic()
    while (elapsed := time.monotonic() - start) < seconds:
        while sent < RATE * elapsed:
            metric = {
                "type": "job_metric",
                "timestamp": time.time(),
                "queue": "default",
                "duration_ms": 12.5,
                "wait_ms": 3,
            }
            told = {
                "job_class": f"Job{sent // BATCH % 10}",
                "status": "success",
                "wait_ms": 3,
                "worker_identity": "w:1:b",
            }
            await publish(publisher, "job_metrics", [metric | told | {"jid": f"m{sent + n}"} for n in range(BATCH)])
            sent += BATCH
        await asyncio.sleep(0.005)
    return sent


async def under_load(client: httpx.AsyncClient, process: psutil.Process, publisher: Publisher, seconds: float) -> None:
    watchers = [asyncio.create_task(watch(client)) for _ in range(WATCHERS)]
    flowing = asyncio.create_task(flow(publisher, seconds))
    before, start, waits = process.cpu_times(), time.monotonic(), []
    while not flowing.done():
        asked = time.perf_counter()
        await client.get("/health/live")
        waits.append(1000 * (time.perf_counter() - asked))
        await asyncio.sleep(0.02)
    after, elapsed = process.cpu_times(), time.monotonic() - start
    cores = (after.user + after.system - before.user - before.system) / elapsed
    waits.sort()
    print(f"{await flowing / elapsed:,.0f} jobs/s while {WATCHERS} pages watch, for {elapsed:.0f} s")
    print(f"  {cores:.2f} cores, {process.memory_info().rss / 1e6:.0f} MB")
    most = waits[int(len(waits) * 0.99)]
    print(f"  /health/live: median {median(waits):.1f} ms, 99 % {most:.1f} ms, the longest {waits[-1]:.1f} ms")
    for watcher in watchers:
        watcher.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)


async def main(count: int, seconds: float) -> None:
    settings = Settings()
    link = Link(settings, "benchmark", SystemClock())
    await link.start()
    connection = await link.connection(timeout=10)
    await topology.ensure(connection, settings)
    publisher = await connection.publisher()
    await fill(publisher, count)
    with tempfile.TemporaryDirectory() as state:
        async with web(state) as (client, process):
            await ready(client, count)
            await lists(client, process, count)
            await under_load(client, process, publisher, seconds)
    await link.stop()


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(int(given[0]) if given else 100_000, float(given[1]) if len(given) > 1 else 20.0))
