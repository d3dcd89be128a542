"""What went wrong elsewhere, tried here: rows of the field reports that belong to the worker as a whole."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link
from amqpjobs.streams.tally_store import TallyStore
from tests.broker.conftest import Processes, StreamWatch, Watches, Workers
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE

RETRIES = 30
BLOCKED_SECONDS = 18
"""Nine heartbeats of 2 s, as 90 s are of 10 s."""


@pytest.fixture
def jobs() -> Registry:
    return Registry()


def of(watched: StreamWatch, kind: str) -> list[dict[str, Any]]:
    """The entries of this type: leaders write into the same streams."""
    return [entry for entry in watched.entries if entry.get("type") == kind]


async def test_ret_04_thirty_retries_make_an_entry_no_longer(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, settings: Settings, eventually: Eventually
) -> None:
    """Each retry used to be wrapped into the next elsewhere, until no message could hold it."""

    @jobs.job
    def fails(_: str) -> None:
        raise ValueError("always the same")

    retries, dead = await watch(names.RETRIES), await watch(names.DEAD)
    scheduler = Scheduler(settings, clock=SystemClock())
    await scheduler.start()
    try:
        await workers(jobs)
        await client.enqueue("fails", "x" * 1024, retry=RETRIES, retry_delays=[0.01])
        await eventually(lambda: of(dead, "dead_job"), timeout=PATIENCE)
    finally:
        await scheduler.stop()
    await eventually(lambda: len(of(retries, "retry")) >= RETRIES)
    entries = of(retries, "retry")
    assert len(entries) == RETRIES
    sizes = [len(json.dumps(entry)) for entry in entries]
    assert max(sizes) <= 1.1 * min(sizes), sizes
    assert all("job" not in entry["job"] for entry in [*entries, *of(dead, "dead_job")])
    assert [entry["retry_count"] for entry in entries] == list(range(1, RETRIES + 1))


async def test_run_02_a_handler_that_computes_for_nine_heartbeats_costs_no_connection(
    processes: Processes, client: Any, watch: Watches, tmp_path: Path, settings: Settings
) -> None:
    """A busy thread must starve neither the broker's heartbeats nor our own: the job would be delivered again."""
    (tmp_path / "app.py").write_text(
        "import time\nfrom amqpjobs import job\n"
        "@job\ndef compute(seconds):\n"
        "    end = time.monotonic() + seconds\n"
        "    while time.monotonic() < end:\n        sum(range(1000))\n"
    )
    metrics, beats = await watch(names.METRICS), await watch(names.HEARTBEATS)
    worker = await processes("-A", "app", path=tmp_path, AMQPJOBS_HEARTBEAT="2")
    await worker.ready()
    began = time.time()
    await client.enqueue("compute", BLOCKED_SECONDS)
    [metric] = await metrics.until(1, timeout=BLOCKED_SECONDS + PATIENCE)
    assert metric["status"] == "success"
    assert metric["duration_ms"] >= 1000 * BLOCKED_SECONDS
    assert "lost the connection" not in worker.log
    while_busy = [entry for entry in beats.entries if began + 2 < entry["beat"] < began + BLOCKED_SECONDS]
    assert while_busy, "the process told that it is alive while the job ran"
    assert all(entry["busy"] == 1 for entry in while_busy)
    assert len(metrics.entries) == 1, "run once"


async def test_met_02_every_run_is_counted_once_whatever_is_cut_meanwhile(
    jobs: Registry,
    client: Any,
    workers: Workers,
    settings: Settings,
    broker: Broker,
    vhost: str,
    link: Link,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    """A thousand jobs, a hundred fail once; records cut off for five seconds; the counter restarted twice."""
    tried: set[int] = set()

    @jobs.job
    def work(n: int) -> None:
        if n % 10 == 0 and n not in tried:
            tried.add(n)
            raise ValueError("the first time")

    scheduler = Scheduler(settings, clock=SystemClock())
    await scheduler.start()
    worker = await workers(jobs)
    cutting = asyncio.create_task(_cut(broker, vhost, f"worker {worker.identity.name} records", seconds=5))
    try:
        await client.enqueue_many(("work", [n], {"retry_delays": [0.01]}) for n in range(1000))
        counts = [await _counted(link, tmp_path, eventually, at_least) for at_least in (1, 500, 1100)]
    finally:
        await cutting
        await scheduler.stop()
    assert cutting.result() >= 1, "the connection was cut"
    assert counts[-1] == (1000, 100)


async def _cut(broker: Broker, vhost: str, name: str, *, seconds: float) -> int:
    """Close this connection as often as it comes back; how often that was."""
    deadline, closed = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        closed += await asyncio.to_thread(broker.close_connections, vhost, named=name)
        await asyncio.sleep(0.1)
    return closed


async def _counted(link: Link, folder: Path, eventually: Eventually, at_least: int) -> tuple[int, int]:
    """Start the counter where it was stopped, until it has so many runs: how many went well, and how many failed."""
    store = TallyStore(folder, SystemClock(), 3600)
    follower = Follower(link, store, names.METRICS, clock=SystemClock())
    await follower.start()
    try:
        return await follower.wait(lambda: _if_enough(store, at_least), timeout=PATIENCE)
    finally:
        await follower.stop()
        store.close()


def _if_enough(store: TallyStore, at_least: int) -> tuple[int, int] | None:
    total = store.total()
    return (total.ran - total.failed, total.failed) if total.ran >= at_least else None
