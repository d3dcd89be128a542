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
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import Unroutable
from amqpjobs.streams.port import Outgoing
from tests.broker.conftest import Watches, Workers, left
from tests.broker.reading import read_all

Eventually = Callable[..., Awaitable[Any]]


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
    back = asyncio.Event()

    @jobs.job
    async def work(n: int) -> None:
        runs[n] += 1
        if n == 0:
            await back.wait()

    settings = Settings(url=node.url, state_dir=tmp_path, publish_timeout=60, enqueue_log="bound")
    async with Client(settings) as client:
        for n in range(10):
            await client.enqueue("work", n)
        caplog.set_level(logging.INFO, "amqpjobs")
        worker = await workers(jobs, target=settings, concurrency=1, prefetch=10)
        await eventually(lambda: worker.busy == 1 and worker._fetcher.buffered == 9)
        caplog.clear()
        await node.stop()
        await node.start()
        await client.enqueue("work", 10)
        assert sum(runs.values()) == 1, "it ran all the time, and its slot is not taken twice"
        back.set()
        await eventually(lambda: sum(runs.values()) >= 11)
    metrics = await watch(names.METRICS, settings)
    await metrics.until(11)
    await eventually(lambda: worker.busy == 0 and worker._recorder.waiting == 0 and len(worker._recorder._ledger) == 0)
    assert set(runs) == set(range(11)), "slots were freed, and new jobs taken"
    assert sum(runs.values()) <= 12, f"one rerun at most: {runs}"
    await eventually(lambda: worker.state == "running")
    told = collections.Counter(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    losses = {line: count for line, count in told.items() if "lost the connection" in line}
    assert losses, told
    assert max(losses.values()) <= 4, f"each of the connections says it once: {told}"
    others = [line for line in told if line not in losses and not line.startswith("now paused: ")]
    assert others == [], "a broker that is away pauses the worker, and nothing is said of each job that it holds"
    await workers.stop()
    assert await left(settings) == 0
    await _still_bound(settings, eventually)


async def _still_bound(settings: Settings, eventually: Eventually) -> None:
    """The restart cost neither the enqueue log's bindings nor what the queue's deletion does to them."""
    connection = await connect(settings, name="log")
    publisher = await connection.publisher()
    job = Outgoing(b"late", names.JOBS_EXCHANGE, "default")

    async def on_record() -> bool:
        await publisher.publish(job)
        return any(message.body == job.body for message in await read_all(connection, names.ENQUEUED))

    await eventually(on_record)
    await connection.delete_queue("queue.default")
    with pytest.raises(Unroutable):
        await publisher.publish(job)
    await connection.close()
