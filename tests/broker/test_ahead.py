"""Quick calls are handed to busy threads ahead of their turn: they wait there, and can be taken back."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator

import pytest

from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.orders import Orders
from amqpjobs.streams.link import Link
from amqpjobs.worker.launcher import Launcher
from tests.broker.conftest import Watches, Workers
from tests.broker.test_controls import orders as orders  # noqa: PLC0414 - a fixture
from tests.conftest import Eventually
from tests.patience import PATIENCE


class Site:
    """Quick sync jobs, sync ones that wait at a gate, and async ones; and how many ran at once."""

    def __init__(self) -> None:
        self.jobs = Registry()
        self.gate = threading.Event()
        self.ran: list[str] = []
        self.most = 0
        self.quick = 0
        self._now = 0
        self._lock = threading.Lock()
        self.jobs.job(name="quick")(self._quick)
        self.jobs.job(name="blocked")(self._blocked)
        self.jobs.job(name="awaited")(self._awaited)

    def _quick(self) -> None:
        with self._lock:
            self.quick += 1

    def _enter(self, change: int) -> None:
        with self._lock:
            self._now += change
            self.most = max(self.most, self._now)

    def _blocked(self, name: str) -> None:
        self._enter(1)
        self.gate.wait(PATIENCE)
        self.ran.append(name)
        self._enter(-1)

    async def _awaited(self, name: str) -> None:
        self._enter(1)
        await asyncio.sleep(0)
        self.ran.append(name)
        self._enter(-1)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.gate.set()


async def hurried(site: Site, client: Client, worker: Launcher, eventually: Eventually) -> None:
    """The worker has learned that its calls are quick, and none of them runs any more that could teach it otherwise."""
    for count in itertools.count(100, 100):
        await client.enqueue_many(("quick", []) for _ in range(100))
        await eventually(lambda so_far=count: site.quick == so_far and not worker._processor._all)
        if worker._executor.ahead == 2:
            return


async def waiting(
    site: Site, client: Client, worker: Launcher, eventually: Eventually, *extra: tuple[str, list[str]]
) -> None:
    """Two jobs run, two more wait for their threads; `extra` is behind them."""
    await hurried(site, client, worker, eventually)
    await client.enqueue_many([*(("blocked", [f"b{n}"]) for n in range(4)), *extra])
    await eventually(lambda: worker.busy == 2 and len(worker._processor._all) == 4)


async def test_a_pause_takes_back_what_waits_for_a_thread(
    site: Site, client: Client, workers: Workers, orders: Orders, eventually: Eventually, link: Link
) -> None:
    worker = await workers(site.jobs, concurrency=2)
    await waiting(site, client, worker, eventually, ("awaited", ["a"]))
    await orders.pause("default")
    connection = await link.connection()

    async def given_back() -> bool:
        state = await connection.passive("queue.default")
        return state is not None and state.ready == 3

    await eventually(given_back)
    site.gate.set()
    await eventually(lambda: not worker._processor._all)
    assert sorted(site.ran) == ["b0", "b1"]
    await orders.resume("default")
    await eventually(lambda: len(site.ran) == 5)
    assert sorted(site.ran) == ["a", "b0", "b1", "b2", "b3"]
    assert await workers.left() == 0


async def test_no_more_run_at_once_than_there_are_slots(
    site: Site, client: Client, workers: Workers, eventually: Eventually
) -> None:
    worker = await workers(site.jobs, concurrency=2)
    extra = [("awaited" if n % 2 else "blocked", [f"x{n}"]) for n in range(40)]
    await waiting(site, client, worker, eventually, ("awaited", ["a"]), *extra)
    assert site.most == 2
    site.gate.set()
    await eventually(lambda: len(site.ran) == 45)
    assert site.most == 2
    assert await workers.left() == 0


async def test_a_stop_takes_back_what_waits_for_a_thread(
    site: Site, client: Client, workers: Workers, eventually: Eventually
) -> None:
    worker = await workers(site.jobs, concurrency=2)
    await waiting(site, client, worker, eventually)
    stopping = asyncio.create_task(worker.stop(PATIENCE))
    await eventually(lambda: len(worker._processor._all) == 2)
    site.gate.set()
    assert await stopping == 0
    assert sorted(site.ran) == ["b0", "b1"]
    assert await workers.left() == 2


async def test_a_quiet_worker_takes_back_what_waits_for_a_thread(
    site: Site, client: Client, workers: Workers, eventually: Eventually
) -> None:
    worker = await workers(site.jobs, concurrency=2)
    await waiting(site, client, worker, eventually)
    await worker.quiet()
    site.gate.set()
    await eventually(lambda: not worker._processor._all)
    assert sorted(site.ran) == ["b0", "b1"]
    assert await workers.left() == 2


async def test_a_job_cancelled_while_it_waits_for_a_thread_is_not_run(
    site: Site, client: Client, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    metrics = await watch(names.METRICS)
    worker = await workers(site.jobs, concurrency=2)
    await waiting(site, client, worker, eventually)
    [jid] = [run.job.jid for run in worker._processor._all if run.job.args == ["b3"]]
    await client.cancel(jid)
    await eventually(lambda: jid in worker._processor._cancelled)
    site.gate.set()
    entries = await metrics.until(site.quick + 4)
    assert sorted(site.ran) == ["b0", "b1", "b2"]
    assert [entry["status"] for entry in entries if entry["jid"] == jid] == ["cancelled"]
    assert await workers.left() == 0


async def test_a_long_job_or_one_with_a_time_limit_is_never_handed_over_early(
    site: Site, client: Client, workers: Workers, eventually: Eventually
) -> None:
    worker = await workers(site.jobs, concurrency=2)
    await client.enqueue_many(("blocked", [f"b{n}"]) for n in range(4))
    await eventually(lambda: worker.busy == 2 and worker._fetcher.buffered == 2)
    assert len(worker._processor._all) == 2, "it does not know yet how long they take"
    site.gate.set()
    await eventually(lambda: len(site.ran) == 4)
    site.gate.clear()
    await hurried(site, client, worker, eventually)
    for n in range(4):
        await client.enqueue("blocked", f"limited {n}", timeout=PATIENCE)
    await eventually(lambda: worker.busy == 2 and worker._fetcher.buffered + bool(worker._processor._held) == 2)
    assert len(worker._processor._all) == 2
    site.gate.set()
    await eventually(lambda: len(site.ran) == 8)
    assert await workers.left() == 0
