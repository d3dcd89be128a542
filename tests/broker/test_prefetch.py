"""How many jobs a worker holds: a tenth of a second of quick ones, few of slow ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection
from tests.broker.conftest import Watches, Workers
from tests.conftest import Eventually
from tests.patience import PATIENCE


@pytest.fixture
def jobs() -> Registry:
    return Registry()


async def left(connection: Connection) -> int:
    """What the queue has for others."""
    state = await connection.passive("queue.default")
    assert state is not None
    return state.ready


async def test_quick_jobs_widen_the_window_and_slow_ones_narrow_it_again(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, eventually: Eventually, link: Link
) -> None:
    gate = asyncio.Event()
    ran: list[str] = []

    @jobs.job
    async def quick(n: int) -> None:
        ran.append(f"quick {n}")

    @jobs.job
    async def slow(n: int) -> None:
        ran.append(f"slow {n}")
        await gate.wait()

    await client.enqueue_many(("quick", [n]) for n in range(3000))
    await client.enqueue_many(("slow", [n]) for n in range(400))
    metrics = await watch(names.METRICS)
    worker = await workers(jobs, concurrency=10)
    [feed] = worker._fetcher._feeds
    widest = 0

    def widened() -> bool:
        nonlocal widest
        widest = max(widest, feed._window.size)
        return widest > 20

    await eventually(widened)
    # What was given back meanwhile, on a machine that stood still for a second, may come after some of the slow ones.
    await eventually(lambda: worker.busy == 10 and sum(name.startswith("slow") for name in ran) == 10)
    await eventually(lambda: feed._window.size == 20 and worker._fetcher.buffered <= 40)
    connection = await link.connection()
    async with asyncio.timeout(PATIENCE):  # another worker could have the rest
        while (await left(connection)) < 400 - 10 - 40:
            pass
    gate.set()
    await metrics.until(3400)
    assert sorted(ran) == sorted([f"quick {n}" for n in range(3000)] + [f"slow {n}" for n in range(400)])


async def test_a_given_prefetch_stays(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    jobs.job(name="X")(lambda: None)
    metrics = await watch(names.METRICS)
    await client.enqueue_many(("X", []) for _ in range(500))
    worker = await workers(jobs, concurrency=2, prefetch=3)
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, worker._fetcher.buffered + worker.busy)
        return len(metrics.entries) == 500

    await eventually(done)
    assert most <= 3
