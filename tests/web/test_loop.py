"""The dashboard's event loop under load: nothing that takes long runs on it, whatever is asked while jobs flow.

Told in processor time of the loop's own thread, which a busy machine does not stretch as it does the clock's;
`python -m benchmarks.dashboard` measures both, on a quiet one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.client import Client
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Publisher
from benchmarks.dashboard import Watched, dead, flow, publish, watched, web
from tests.patience import PATIENCE
from tests.web import entries

WAITING = 1500
DEAD, PROCESSES, RUNNING, WATCHERS, SECONDS = 100, 80, 20, 10, 1.5
MOST = 50.0
"""Milliseconds that one callback may use."""
ENQUEUED = {"class": "Import", "args": ["x" * 100] * 30_000}
BULK = {"action": "delete", "jobs": [{"jid": f"nobody-{n}"} for n in range(5000)]}
ASKED: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/api/dead-jobs?limit=1000", None),
    ("GET", "/dead-jobs?search=word", None),
    ("GET", "/jobs/big", None),
    ("GET", "/job-metrics?period=72h", None),
    ("GET", "/worker-processes", None),
    ("GET", "/api/processes", None),
    ("GET", "/job-queues/default", None),
    ("GET", "/api/job-queues/default/jobs?limit=1000", None),
    ("GET", "/api/docs", None),
    ("GET", "/openapi.json", None),
    ("POST", "/api/jobs", ENQUEUED),
    ("POST", "/api/dead-jobs/actions", BULK),
)


@pytest.fixture
async def publisher(link: Link, settings: Settings) -> AsyncIterator[Publisher]:
    connection = await link.connection(timeout=PATIENCE)
    await topology.ensure(connection, settings)
    publisher = await connection.publisher()
    yield publisher
    await publisher.close()


async def fill(publisher: Publisher) -> None:
    """Long jobs, one that is far longer, and many processes that each run many."""
    for start in range(0, DEAD, 100):
        several = [dead(f"d{n}", n, args=["word " * 2500]) for n in range(start, start + 100)]
        await publish(publisher, "dead_jobs", several)
    await publish(publisher, "dead_jobs", dead("big", DEAD, args=["x" * 5_000_000]))
    running = [{"jid": f"r{n}", "class": "Some", "queue": "default", "started_at": time.time()} for n in range(RUNNING)]
    for n in range(PROCESSES):
        queues = [f"queue-{(n + 7 * k) % 150}" for k in range(5)]
        await publish(publisher, "heartbeats", entries.heartbeat(f"n{n}", queues=queues, running=running))


async def settled(dashboard: Watched) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await dashboard.client.get("/api/job-queues")).json()
            if found["dead_count"] == DEAD + 1 and found["active_processes"] == PROCESSES:
                return
            await asyncio.sleep(0.1)


async def test_nothing_long_runs_on_the_loop(publisher: Publisher, settings: Settings, tmp_path: Path) -> None:
    environment = {"AMQPJOBS_URL": settings.url, "AMQPJOBS_MANAGEMENT_URL": settings.management_url or ""}
    async with web(str(tmp_path / "web"), **environment) as dashboard:
        await fill(publisher)
        async with Client(settings.model_copy(update={"enqueue_log": True})) as client:
            await client.enqueue_many([("Waits", ["word " * 20])] * WAITING)
        await settled(dashboard)
        await dashboard.stalls()  # what it took to start
        async with watched(dashboard.client, WATCHERS):
            await flow(publisher, SECONDS)
            worst = {"while jobs flow": await dashboard.stalls()}
            for method, path, body in ASKED:
                answer = await dashboard.client.request(method, path, json=body)
                assert answer.status_code < 300, answer.text
                worst[path] = await dashboard.stalls()
    assert {path: found for path, found in worst.items() if found["cpu"] > MOST} == {}
    assert min(found["cpu"] for found in worst.values()) > 0
