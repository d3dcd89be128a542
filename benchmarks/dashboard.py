"""`python -m benchmarks.dashboard [COUNT [SECONDS]]`: the dashboard under load, on the broker that AMQPJOBS_URL names.

In a virtual host that is its own to fill: COUNT (100,000) dead jobs and one with arguments of 10 MB and a backtrace of
5 MB; the server's time for the first page, the last, a search by jid, and its memory. Then 5,000 metrics a second for
SECONDS (20) while ten pages watch: its CPU, and its event loop's worst stall, by the clock, without what its thread
waited for a processor, and in processor time of one callback (benchmarks/stalls.py). Then the same, while somebody asks
again and again for the page of a queue whose waiting jobs lie behind 20,000 messages of the enqueue log (the management
API must be there: AMQPJOBS_MANAGEMENT_URL, unless it is on its usual port).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, NamedTuple

import httpx
import psutil

from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Outgoing, Publisher
from amqpjobs.web.enqueued import FRESH, MOST_READ

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


class Watched(NamedTuple):
    """A dashboard that runs as a process of its own, and tells how its event loop was held up."""

    client: httpx.AsyncClient
    process: psutil.Process
    reports: asyncio.Queue[dict[str, Any]]

    async def stalls(self) -> dict[str, Any]:
        """What held the loop up since this was asked last: `wall`, `held` and `cpu` in ms (stalls.py)."""
        self.process.send_signal(signal.SIGUSR1)
        return await self.reports.get()


@asynccontextmanager
async def web(state: str, **environment: str) -> AsyncIterator[Watched]:
    """The dashboard as a process of its own."""
    command = (sys.executable, "-m", "benchmarks.stalls", "--port", "0")
    given = os.environ | {"AMQPJOBS_STATE_DIR": state} | environment
    process = await asyncio.create_subprocess_exec(*command, env=given, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    reading = asyncio.create_task(_read(process.stderr, address, reports))
    try:
        async with httpx.AsyncClient(base_url=await address, timeout=120) as client:
            yield Watched(client, psutil.Process(process.pid), reports)
    finally:
        process.terminate()
        await process.wait()
        await reading


async def _read(
    stream: asyncio.StreamReader, address: asyncio.Future[str], reports: asyncio.Queue[dict[str, Any]]
) -> None:
    while line := (await stream.readline()).decode():
        if found := re.search(r"web ready: (http://[^/]+)", line):
            address.set_result(found[1])
        elif line.startswith("stalls "):
            reports.put_nowait(json.loads(line.removeprefix("stalls ")))
        elif "ERROR" in line or "Traceback" in line:
            print(line, end="", file=sys.stderr)
    if not address.done():
        address.set_exception(RuntimeError("the dashboard ended"))


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


@asynccontextmanager
async def watched(client: httpx.AsyncClient, pages: int) -> AsyncIterator[None]:
    """So many pages look on."""

    async def watch() -> None:
        async with client.stream("GET", "/events", timeout=None) as answer:
            async for _ in answer.aiter_bytes():
                pass

    watching = [asyncio.create_task(watch()) for _ in range(pages)]
    try:
        yield
    finally:
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


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


async def under_load(dashboard: Watched, publisher: Publisher, seconds: float) -> None:
    process = dashboard.process
    async with watched(dashboard.client, WATCHERS):
        await dashboard.stalls()
        before, start = process.cpu_times(), time.monotonic()
        sent = await flow(publisher, seconds)
        after, elapsed = process.cpu_times(), time.monotonic() - start
        found = await dashboard.stalls()
    cores = (after.user + after.system - before.user - before.system) / elapsed
    print(f"{sent / elapsed:,.0f} jobs/s while {WATCHERS} pages watch, for {elapsed:.0f} s")
    print(f"  {cores:.2f} cores, {process.memory_info().rss / 1e6:.0f} MB")
    print(
        f"  the loop's worst stall: {found['wall']} ms by the clock, {found['held']} ms of it with a processor at hand;"
    )
    print(f"  most processor time in one of its callbacks: {found['cpu']} ms ({found['by']})")


async def fill_log(connection: Connection, settings: Settings, publisher: Publisher) -> None:
    """Jobs that wait in the queue `far`, and then so many of other queues that a look at it reads all that it may."""
    await topology.ensure_queue(connection, settings, "far")

    def entry(jid: str, queue: str) -> dict[str, Any]:
        job = {"jid": jid, "class": "Far", "queue": queue, "args": [1, "ada@example.com"]}
        return {"type": "enqueued", "jid": jid, "queue": queue, "at": time.time(), "job": job}

    for number in range(100):
        job = entry(f"far{number}", "far")
        await publisher.publish(Outgoing(json.dumps(job["job"]).encode(), "jobs.direct", "far"))
        await publish(publisher, names.ENQUEUED, job)
    for start in range(0, MOST_READ, 500):
        await asyncio.gather(*(publish(publisher, names.ENQUEUED, entry(f"o{start + n}", "other")) for n in range(500)))


async def looking(client: httpx.AsyncClient, times: list[float]) -> None:
    """Ask for the page of `far` again and again, each time once what was seen before is out of date."""
    while True:
        start = time.perf_counter()
        (await client.get("/job-queues/far")).raise_for_status()
        times.append(1000 * (time.perf_counter() - start))
        await asyncio.sleep(FRESH)


async def looks(dashboard: Watched, publisher: Publisher, seconds: float) -> None:
    times: list[float] = []
    asking = asyncio.create_task(looking(dashboard.client, times))
    await under_load(dashboard, publisher, seconds)
    if asking.done():
        asking.result()
    asking.cancel()
    await asyncio.wait([asking])
    told = f"median {median(times):.0f} ms, most {max(times):.0f} ms"
    print(f"  {len(times)} looks behind {MOST_READ:,} messages of the log: {told}")


async def main(count: int, seconds: float) -> None:
    settings = Settings(enqueue_log=True)
    link = Link(settings, "benchmark", SystemClock())
    await link.start()
    connection = await link.connection(timeout=10)
    await topology.ensure(connection, settings)
    publisher = await connection.publisher()
    await fill(publisher, count)
    await fill_log(connection, settings, publisher)
    with tempfile.TemporaryDirectory() as state:
        async with web(state) as dashboard:
            await ready(dashboard.client, count)
            await lists(dashboard.client, dashboard.process, count)
            await under_load(dashboard, publisher, seconds)
            await looks(dashboard, publisher, seconds)
    await link.stop()


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(int(given[0]) if given else 100_000, float(given[1]) if len(given) > 1 else 20.0))
