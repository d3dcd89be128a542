"""What operators ask of workers: obeyed within a second, and by workers that start later."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs import current
from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import controls, names, text
from amqpjobs.orders import Orders
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection
from amqpjobs.worker.fetch import QueueShare
from amqpjobs.worker.launcher import Launcher, Plan
from tests.broker.conftest import Processes, Watches, Workers
from tests.broker.reading import entries, read_all
from tests.patience import PATIENCE, SOON

Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture
def jobs() -> Registry:
    return Registry()


@pytest.fixture
async def orders(link: Link) -> AsyncIterator[Orders]:
    given = Orders(link, by="ann", via="client", clock=SystemClock())
    yield given
    await given.close()


async def ready(connection: Connection, queue: str = "default") -> int:
    state = await connection.passive(names.broker_queue(queue))
    return -1 if state is None else state.ready


async def test_a_pause_gives_back_what_was_not_begun_and_what_runs_is_acknowledged(
    jobs: Registry, client: Client, workers: Workers, watch: Watches, orders: Orders, link: Link, eventually: Eventually
) -> None:
    release = asyncio.Event()
    ran: list[int] = []

    @jobs.job
    async def held(n: int) -> None:
        await release.wait()
        ran.append(n)

    beats, metrics = await watch(names.HEARTBEATS), await watch(names.METRICS)
    worker = await workers(jobs, queues="default low", concurrency=2, prefetch=5)
    for n in range(8):
        await client.enqueue("held", n)
    await eventually(lambda: worker.busy == 2 and worker._fetcher.buffered == 3)
    connection = await link.connection()
    await orders.pause("default")
    began = time.monotonic()

    async def given_back() -> bool:
        return await ready(connection) == 6

    await eventually(given_back)
    assert time.monotonic() - began < SOON
    await eventually(lambda: [beat for beat in beats.entries if beat.get("paused") == ["default"]])
    assert beats.entries[-1]["state"] == "running", "it still serves the other queue"
    release.set()
    await metrics.until(2)
    await eventually(lambda: not worker._fetcher._feeds[0]._ebbing)
    assert await ready(connection) == 6
    await orders.resume("default")
    began = time.monotonic()
    await eventually(lambda: len(ran) == 8)
    assert time.monotonic() - began < SOON
    await metrics.until(8)
    assert await workers.left() == 0
    assert sorted(ran) == list(range(8)), "each ran once"
    assert "paused" not in beats.entries[-1]


async def test_a_worker_that_starts_later_begins_no_job_of_a_paused_queue(
    jobs: Registry, client: Client, workers: Workers, orders: Orders, eventually: Eventually
) -> None:
    ran: list[str] = []
    jobs.job(name="X")(lambda: ran.append(current().queue))
    await orders.pause("low")
    await client.enqueue("X", queue="low")
    await client.enqueue("X", queue="default")
    worker = await workers(jobs, queues="low default")
    await eventually(lambda: ran)
    assert ran == ["default"]
    assert worker.state == "running"
    await orders.pause("default")
    await eventually(lambda: worker.state == "paused: by order, low, default")
    await orders.resume("low")
    await eventually(lambda: ran == ["default", "low"])


async def test_pausing_and_resuming_in_quick_turns_loses_nothing(
    jobs: Registry, client: Client, workers: Workers, watch: Watches, orders: Orders
) -> None:
    ran: list[int] = []
    jobs.job(name="X")(ran.append)
    metrics = await watch(names.METRICS)
    await workers(jobs, concurrency=3)
    sending = asyncio.create_task(client.enqueue_many(("X", [n]) for n in range(300)))
    for _ in range(15):
        await orders.pause("default")
        await orders.resume("default")
    await sending
    await metrics.until(300)
    assert await workers.left() == 0
    assert sorted(ran) == list(range(300))


async def test_a_connection_lost_during_a_pause_runs_nothing_twice(
    jobs: Registry,
    client: Client,
    workers: Workers,
    watch: Watches,
    orders: Orders,
    broker: Any,
    vhost: str,
    eventually: Eventually,
) -> None:
    release = asyncio.Event()
    ran: list[int] = []

    @jobs.job
    async def held(n: int) -> None:
        ran.append(n)
        await release.wait()

    metrics = await watch(names.METRICS)
    worker = await workers(jobs, concurrency=1)
    await client.enqueue("held", 1)
    await eventually(lambda: worker.busy == 1)
    await orders.pause("default")
    await eventually(lambda: worker._fetcher._feeds[0]._ebbing)
    name = f"worker {worker.identity.name}"

    async def closed() -> int:
        return await asyncio.to_thread(broker.close_connections, vhost, named=name)

    await eventually(closed)
    await eventually(lambda: not worker._fetcher._feeds[0]._ebbing)
    release.set()
    await metrics.until(1)
    await orders.resume("default")
    await client.enqueue("held", 2)
    await metrics.until(2)
    assert await workers.left() == 0
    assert ran == [1, 2]


async def test_quiet_and_stop_concern_the_named_process_and_those_that_were_there(
    jobs: Registry, client: Client, workers: Workers, orders: Orders, eventually: Eventually
) -> None:
    jobs.job(name="X")(lambda: None)
    first = await workers(jobs)
    second = await workers(jobs)
    await orders.quiet(first.identity.nonce)
    await eventually(lambda: first.state == "quiet", timeout=SOON)
    assert second.state == "running"
    await orders.stop("*")
    async with asyncio.timeout(SOON):
        await first.told_to_stop.wait()
        await second.told_to_stop.wait()
    third = await workers(jobs)
    assert third.state == "running", "an order of before its time is not for it"
    assert not third.told_to_stop.is_set()
    await orders.stop(third.identity.name)
    async with asyncio.timeout(SOON):
        await third.told_to_stop.wait()


WORK = """
import asyncio, pathlib
from amqpjobs import job

@job
async def hold():
    pathlib.Path("began").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
"""


async def test_a_worker_process_that_is_told_to_stop_ends_well(
    orders: Orders, processes: Processes, client: Client, tmp_path: Path, watch: Watches, eventually: Eventually
) -> None:
    (tmp_path / "work.py").write_text(WORK)
    metrics = await watch(names.METRICS)
    process = await processes("-A", "work", path=tmp_path)
    await process.ready()
    await client.enqueue("hold")
    await eventually((tmp_path / "began").exists)
    await orders.stop("*")
    await eventually(lambda: "stopping: 1 jobs run" in process.log, timeout=SOON)
    (tmp_path / "go").touch()
    assert await process.exit() == 0
    assert "an operator ordered this process to stop" in process.log
    assert [metric["status"] for metric in await metrics.until(1)] == ["success"]


async def test_a_cancelled_job_is_acknowledged_counted_and_not_run(
    jobs: Registry, client: Client, workers: Workers, watch: Watches
) -> None:
    ran: list[str] = []
    jobs.job(name="X")(lambda: ran.append(current().jid))
    metrics = await watch(names.METRICS)
    first, second = await client.enqueue("X"), await client.enqueue("X")
    await client.cancel(first)
    await workers(jobs)
    found = {metric["jid"]: metric["status"] for metric in await metrics.until(2)}
    assert found == {first: "cancelled", second: "success"}
    assert await workers.left() == 0
    assert ran == [second]


async def test_a_running_job_that_is_cancelled_is_neither_failed_nor_retried(
    jobs: Registry, client: Client, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    told = threading.Event()
    seen: list[str] = []

    @jobs.job
    async def on_loop() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cleaned up")

    @jobs.job
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("I will not") from None

    @jobs.job
    def in_thread() -> None:
        while not current().cancelled:
            time.sleep(0.01)
        told.set()
        raise OSError("stopped half way")

    metrics, retries = await watch(names.METRICS), await watch(names.RETRIES)
    worker = await workers(jobs, concurrency=4)
    jids = [await client.enqueue(name) for name in ("on_loop", "stubborn", "in_thread")]
    await eventually(lambda: worker.busy == 3)
    began = time.monotonic()
    await client.cancel(*jids)
    await eventually(lambda: worker.busy == 0)
    assert time.monotonic() - began < SOON
    assert told.is_set()
    assert seen == ["cleaned up"]
    found = {metric["jid"]: metric["status"] for metric in await metrics.until(3)}
    assert found == dict.fromkeys(jids, "cancelled")
    assert await workers.left() == 0
    assert [entry for entry in retries.entries if entry["type"] == "retry"] == []


async def test_cancel_reaches_what_waits_for_a_time(
    settings: Settings, jobs: Registry, client: Client, link: Link, eventually: Eventually
) -> None:
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    retries = Appender(link, names.RETRIES, clock=SystemClock())
    try:
        jid = await client.enqueue_in(3600, "X")
        kept = await client.enqueue_in(3600, "X")
        job = {"jid": "failed", "class": "X", "queue": "default"}
        failure = {"type": "retry", "jid": "failed", "retry_at": time.time() + 3600, "retry_count": 1, "job": job}
        await retries.append([text.dump(failure)], timeout=PATIENCE)
        views = {leader.view.stream: leader for leader in scheduler.leaders}

        async def waiting(stream: str) -> list[str]:
            leader = views[stream]
            return [row.jid for row in await leader.follower.query(lambda: leader.view.page(10))]

        async def all_there() -> bool:
            return len(await waiting(names.SCHEDULED)) == 2 and len(await waiting(names.RETRIES)) == 1

        async def gone() -> bool:
            return await waiting(names.SCHEDULED) == [kept] and await waiting(names.RETRIES) == []

        await eventually(all_there)
        await client.cancel(jid, "failed")
        await eventually(gone)
    finally:
        await retries.close()
        await scheduler.stop()


async def test_a_worker_that_may_not_read_controls_says_so_once_and_works(
    jobs: Registry,
    client: Client,
    settings: Settings,
    broker: Any,
    vhost: str,
    watch: Watches,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("amqpjobs.streams.follow.REFUSED_PAUSE", 0.1)
    ran: list[int] = []
    jobs.job(name="X")(ran.append)
    metrics = await watch(names.METRICS)
    limited = limited_user(broker, vhost, read="^(?!controls$).*")
    worker = Launcher(settings.model_copy(update={"url": limited}), Plan([QueueShare("default")]), jobs=jobs)
    caplog.set_level(logging.INFO, "amqpjobs")
    try:
        await worker.start()
        for n in range(3):
            await client.enqueue("X", n)
            await metrics.until(n + 1)
        await asyncio.sleep(0.5)  # several tries of the follower
    finally:
        await worker.stop()
    assert len(ran) == 3
    assert len([line for line in caplog.messages if "cannot read controls" in line]) == 1


def limited_user(broker: Any, vhost: str, *, read: str) -> str:
    """The address of a user who may not read everything; deleted with the virtual host's permissions."""
    name = "limited-" + vhost
    with broker.api() as api:
        api.put(f"/users/{name}", json={"password": "secret", "tags": ""}).raise_for_status()
        rights = {"configure": ".*", "write": ".*", "read": read}
        api.put(f"/permissions/{vhost}/{name}", json=rights).raise_for_status()
    host = broker.url_of(vhost).split("@")[-1].removeprefix("amqp://")
    return f"amqp://{name}:secret@{host}"


# The leader's snapshot.


async def snapshots(link: Link) -> list[dict[str, Any]]:
    found = [each for message in await read_all(await link.connection(), names.CONTROLS) for each in entries(message)]
    return [entry for entry in found if entry["type"] == "controls_snapshot"]


async def test_the_leader_says_all_that_holds_after_each_change(
    settings: Settings, link: Link, orders: Orders, eventually: Eventually
) -> None:
    await orders_need_streams(settings)
    await orders.pause("default")
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    try:

        async def said() -> bool:
            return [entry["paused"] for entry in await snapshots(link)][-1:] == [["default"]]

        await eventually(said)
        await orders.cancel(["j1"])
        await orders.stop("n1")
        await orders.resume("default")

        async def said_all() -> bool:
            last = (await snapshots(link))[-1]
            return not last["paused"] and bool(last["cancelled"]) and bool(last["orders"])

        await eventually(said_all)
        last = (await snapshots(link))[-1]
        assert [entry["jid"] for entry in last["cancelled"]] == ["j1"]
        assert [(order["op"], order["process"]) for order in last["orders"]] == [("stop", "n1")]
        count = len(await snapshots(link))
        await asyncio.sleep(1.5)
        assert len(await snapshots(link)) == count, "without a change nothing is said"
    finally:
        await scheduler.stop()


async def test_the_leader_never_says_the_same_twice(
    settings: Settings, link: Link, orders: Orders, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word of a fold comes after the fold: a snapshot in between has said it already."""
    monkeypatch.setattr("amqpjobs.scheduler.controls.SPACING", 0.0)
    await orders_need_streams(settings)
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    try:
        for number in range(40):
            await orders.cancel([f"j{number}"])

        async def all_said() -> bool:
            return any(len(entry["cancelled"]) == 40 for entry in await snapshots(link))

        await eventually(all_said)
        await orders.cancel(["last"])

        async def last_said() -> bool:
            return len((await snapshots(link))[-1]["cancelled"]) == 41

        await eventually(last_said)
    finally:
        await scheduler.stop()
    said = [tuple(each["jid"] for each in entry["cancelled"]) for entry in await snapshots(link)]
    taken = [each for each in said if each]
    assert len(taken) == len(set(taken))


async def orders_need_streams(settings: Settings) -> None:
    from amqpjobs.streams import topology
    from amqpjobs.streams.aio import connect

    connection = await connect(settings, name="setup")
    await topology.ensure(connection, settings)
    await connection.close()


class HandClock(SystemClock):
    """Sleeps of minutes end when the test says so; short ones take their time."""

    def __init__(self) -> None:
        self.long = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds < 60:
            await super().sleep(seconds)
        else:
            await self.long.wait()
            self.long.clear()


async def test_the_leader_says_it_again_every_five_minutes(
    settings: Settings, link: Link, eventually: Eventually
) -> None:
    clock = HandClock()
    scheduler = Scheduler(settings, clock)
    await scheduler.start()
    try:

        async def said(count: int) -> bool:
            return len(await snapshots(link)) >= count

        await eventually(lambda: said(1))
        first = len(await snapshots(link))

        async def said_again() -> bool:
            clock.long.set()  # each time: others sleep for minutes too, and whoever wakes first takes it
            return await said(first + 1)

        await eventually(said_again)
    finally:
        await scheduler.stop()


async def test_what_held_outlives_the_stream(
    settings: Settings, link: Link, orders: Orders, jobs: Registry, workers: Workers, client: Client, eventually: Any
) -> None:
    """`controls` is deleted: the leader says again what held, and a worker that starts then obeys it."""
    ran: list[int] = []
    jobs.job(name="X")(ran.append)
    scheduler = Scheduler(settings, SystemClock())
    await scheduler.start()
    try:
        await orders.pause("default")

        async def said() -> bool:
            return any(entry["paused"] == ["default"] for entry in await snapshots(link))

        await eventually(said)
        early = await workers(jobs)
        connection = await link.connection()
        await connection.delete_queue(names.CONTROLS)

        async def there() -> bool:
            try:
                return await (await link.connection()).passive(names.CONTROLS) is not None and await said()
            except BrokerError:  # 3.10 drops the connection of who writes to a stream that is being deleted
                return False

        await eventually(there)
        late = await workers(jobs)
        await client.enqueue("X", 1)
        assert early._fetcher.paused == late._fetcher.paused == ["default"]
        assert ran == []
        await orders.resume("default")
        await eventually(lambda: ran == [1])
    finally:
        await scheduler.stop()


async def test_a_foreign_snapshot_without_the_offset_is_taken(link: Link, settings: Settings) -> None:
    await orders_need_streams(settings)
    appender = Appender(link, names.CONTROLS, clock=SystemClock())
    await appender.append([text.dump(controls.snapshot(controls.Controls(frozenset({"low"})), 5.0))], timeout=PATIENCE)
    await appender.close()
    log = controls.ControlLog()
    for message in await read_all(await link.connection(), names.CONTROLS):
        assert message.offset is not None
        log.fold(message.offset, message.body)
    assert log.controls.paused == {"low"}
