"""DUR-01: a long job and what was prefetched behind it, across a restart of the broker."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.settings import Settings
from tests.broker.conftest import Watches, Workers

Eventually = Callable[..., Awaitable[Any]]

SECONDS = 20.0
RESTART_AT = 5.0


async def test_dur_01_a_long_job_and_nine_prefetched_across_a_restart(
    node: PrivateNode,
    tmp_path: Path,
    workers: Workers,
    watch: Watches,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = Registry()
    runs: collections.Counter[int] = collections.Counter()

    @jobs.job
    async def work(n: int, seconds: float) -> None:
        runs[n] += 1
        await asyncio.sleep(seconds)

    settings = Settings(url=node.url, state_dir=tmp_path, publish_timeout=60)
    async with Client(settings) as client:
        await client.enqueue("work", 0, SECONDS)
        for n in range(1, 10):
            await client.enqueue("work", n, 0.01)
        caplog.set_level(logging.INFO, "amqpjobs")
        worker = await workers(jobs, target=settings, concurrency=1, prefetch=10)
        await eventually(lambda: worker.busy == 1 and worker._fetcher.buffered == 9)
        await asyncio.sleep(RESTART_AT)
        caplog.clear()
        await node.stop()
        await node.start()
        await client.enqueue("work", 10, 0.01)
        await eventually(lambda: sum(runs.values()) >= 11, timeout=SECONDS + 20)
    metrics = await watch(names.METRICS, settings)
    await metrics.until(11, timeout=20)
    await eventually(lambda: worker.busy == 0 and worker._recorder.waiting == 0 and len(worker._recorder._ledger) == 0)
    assert set(runs) == set(range(11)), "slots were freed, and new jobs taken"
    assert sum(runs.values()) <= 12, f"one rerun at most: {runs}"
    mine = [record for record in caplog.records if record.name.startswith("amqpjobs.worker")]
    losses = [record.getMessage() for record in caplog.records if "lost the connection" in record.getMessage()]
    told = {name: losses.count(name) for name in set(losses)}
    assert 1 <= len(losses) <= 4, f"each of the connections says it once: {told}"
    assert [record.getMessage() for record in mine if record.levelno >= logging.ERROR] == []
    assert await left(settings) == 0


async def left(settings: Settings) -> int:
    """What the broker still has of the queue, acknowledged or not, once no worker holds any of it."""
    from amqpjobs.streams.aio import connect

    connection = await connect(settings, name="left")
    state = await connection.passive("queue.default")
    await connection.close()
    assert state is not None
    return state.ready
