"""The enqueue log that the broker writes: every producer's jobs are on record, and a deleted queue silences nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pika.adapters.blocking_connection import BlockingChannel

from amqpjobs.client import Client
from amqpjobs.clock import SystemClock
from amqpjobs.history.conservation import conservation
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.pipeline import decode
from amqpjobs.pipeline.tables import RAW
from amqpjobs.scheduler import log_bindings
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import ConnectionLost, Unroutable
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Incoming, Outgoing
from amqpjobs.worker.context import current
from tests.broker.bench import running
from tests.broker.conftest import Workers
from tests.broker.programs import Programs, environment
from tests.broker.reading import read_all, take_all
from tests.broker.test_unrouted import in_force
from tests.conftest import Broker, Eventually
from workers.foreign_producer import enqueue, schedule


@pytest.fixture
async def bound(settings: Settings, link: Link) -> Settings:
    """Settings with the log bound, and the topology that they ask for. LavinMQ cannot do it, and says so."""
    chosen = settings.model_copy(update={"enqueue_log": "bound"})
    connection = await link.connection()
    remarks = await topology.ensure(connection, chosen)
    if connection.server.get("product") != "RabbitMQ":
        assert "needs RabbitMQ" in remarks[0]
        pytest.skip("RabbitMQ only")
    return chosen


@pytest.fixture
async def scheduler(bound: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scheduler]:
    monkeypatch.setattr(log_bindings, "INTERVAL", 0.2)
    started = Scheduler(bound, SystemClock())
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
def stranger(settings: Settings) -> Iterator[BlockingChannel]:
    """A channel of a client that knows nothing of us."""
    connection = pika.BlockingConnection(pika.URLParameters(settings.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


async def publish(connection: Connection, key: str, body: bytes, *, mandatory: bool = True) -> None:
    publisher = await connection.publisher()
    await publisher.publish(Outgoing(body, names.JOBS_EXCHANGE, key), mandatory=mandatory)
    await publisher.close()


async def logged(connection: Connection) -> list[bytes]:
    """The jobs on record, by their bytes."""
    return [each.body for each in await read_all(connection, names.ENQUEUED) if b"marker" not in each.body]


def exchanges(broker: Broker, vhost: str) -> set[str]:
    """The log's exchanges."""
    with broker.api() as api:
        listed = api.get(f"/exchanges/{vhost}").raise_for_status().json()
    return {each["name"] for each in listed if each["name"].startswith(names.LOG_EXCHANGE)}


def on_record(broker: Broker, vhost: str, queue: str) -> bool:
    """Whether what is published for a queue is put on record by now: some milliseconds after the queue is there."""
    with broker.api() as api:
        listed = api.get(f"/exchanges/{vhost}/{names.JOBS_EXCHANGE}/bindings/source").raise_for_status().json()
    return names.log_exchange(queue) in [each["destination"] for each in listed]


async def logged_is(connection: Connection, bodies: list[bytes]) -> bool:
    return await logged(connection) == bodies


async def once_there(connection: Connection, queue: str, eventually: Eventually) -> list[Incoming]:
    """The first message of a queue that may not be there yet."""
    await eventually(lambda: connection.passive(queue))
    return await take_all(connection, queue, 1)


async def returned(connection: Connection, key: str) -> None:
    """A job for a queue that is not there is returned."""
    with pytest.raises(Unroutable):
        await publish(connection, key, b"returned")


async def test_a_queue_that_is_deleted_takes_its_binding_along(bound: Settings, link: Link) -> None:
    connection = await link.connection()
    for number in range(3):
        await topology.ensure_queue(connection, bound, "a")
        await publish(connection, "a", b"there %d" % number)
        await connection.delete_queue("queue.a")
        await returned(connection, "a")
    assert await logged(connection) == [b"there 0", b"there 1", b"there 2"]


async def test_what_is_published_once_a_queue_is_deleted_is_delivered(
    bound: Settings, link: Link, scheduler: Scheduler, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    """Also to a producer that asks for no return and does not pause, and while the log is being bound anew."""
    await in_force(broker, vhost, eventually)
    connection = await link.connection()
    await topology.ensure_queue(connection, bound, "a")
    deleted, sent, before = asyncio.Event(), 0, 0

    async def produce() -> None:
        nonlocal sent, before
        producer = await connect(bound, name="producer")
        publisher = await producer.publisher()
        while not deleted.is_set() or sent < before + 200:
            try:
                await publisher.publish(Outgoing(b"%d" % sent, names.JOBS_EXCHANGE, "a"), mandatory=False)
            except ConnectionLost:  # a quorum queue ends so a publish while it is deleted, with and without the log
                producer = await connect(bound, name="producer")
                publisher = await producer.publisher()
                continue
            sent += 1
            before = before if deleted.is_set() else sent
        await producer.close()

    producing = asyncio.create_task(produce())
    await eventually(lambda: sent >= 50)
    await connection.delete_queue("queue.a")
    deleted.set()
    await producing
    await eventually(lambda: connection.passive("queue.a"))
    found: set[int] = set()
    consumer = await connection.consume("queue.a", lambda message: found.add(int(message.body)), prefetch=1000)
    # The one that was under way may have gone with the queue.
    await eventually(lambda: set(range(before + 1, sent)) <= found)
    await consumer.close()


async def test_what_came_while_nobody_led_is_delivered_and_on_record(
    bound: Settings, link: Link, programs: Programs, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    """The leader is killed, then the queue is deleted: what is published to it waits for the next leader."""
    program = programs.start("-m", "amqpjobs.scheduler", env=environment(bound) | {"AMQPJOBS_ENQUEUE_LOG": "bound"})
    await in_force(broker, vhost, eventually)
    connection = await link.connection()
    await topology.ensure_queue(connection, bound, "a")
    program.send(signal.SIGKILL)
    await asyncio.to_thread(program.wait)
    await connection.delete_queue("queue.a")
    bodies = [b"%d" % n for n in range(50)]
    for body in bodies:
        await publish(connection, "a", body, mandatory=False)
    async with running(bound):
        await eventually(lambda: connection.passive("queue.a"))
        assert sorted(each.body for each in await take_all(connection, "queue.a", 50)) == sorted(bodies)

        async def all_logged() -> bool:
            return sorted(await logged(connection)) == sorted(bodies)

        await eventually(all_logged)


async def test_a_job_for_a_queue_that_never_was_is_delivered_and_on_record(
    bound: Settings, link: Link, scheduler: Scheduler, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    await in_force(broker, vhost, eventually)
    connection = await link.connection()
    await publish(connection, "fresh", b'{"class":"A"}')
    assert [each.body for each in await once_there(connection, "queue.fresh", eventually)] == [b'{"class":"A"}']
    await eventually(lambda: logged_is(connection, [b'{"class":"A"}']))


async def test_a_queue_that_a_worker_of_another_make_declares_is_bound_and_unbound(
    link: Link, scheduler: Scheduler, stranger: BlockingChannel, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    await in_force(broker, vhost, eventually)
    stranger.queue_declare("queue.theirs", durable=True, arguments={"x-queue-type": "classic"})
    stranger.queue_bind("queue.theirs", names.JOBS_EXCHANGE, "theirs")
    await eventually(lambda: names.log_exchange("theirs") in exchanges(broker, vhost))
    connection = await link.connection()

    async def one_logged() -> bool:
        enqueue(stranger, "A", [], queue="theirs")
        return bool(await logged(connection))

    await eventually(one_logged)
    stranger.queue_unbind("queue.theirs", names.JOBS_EXCHANGE, "theirs")  # and not deleted: the exchange stays
    await eventually(lambda: names.log_exchange("theirs") not in exchanges(broker, vhost))
    stranger.queue_purge("queue.theirs")
    jid = enqueue(stranger, "A", [], queue="theirs")
    assert json.loads((await once_there(connection, "queue.theirs", eventually))[0].body)["jid"] == jid


async def test_switched_off_it_is_taken_down(
    settings: Settings, bound: Settings, link: Link, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure_queue(connection, bound, "a")
    await publish(connection, "a", b"1")
    assert exchanges(broker, vhost) == {"jobs.log", "jobs.log.a"}
    async with running(settings):
        await eventually(lambda: not exchanges(broker, vhost))
        await publish(connection, "a", b"2")
        await topology.ensure_queue(connection, settings, "b")
    assert exchanges(broker, vhost) == set(), "off by default"
    assert await logged(connection) == [b"1"]
    assert [each.body for each in await take_all(connection, "queue.a", 2)] == [b"1", b"2"]


async def test_what_the_log_cannot_take_reaches_its_queue(bound: Settings, link: Link, broker: Broker) -> None:
    """The stream is gone, then what leads to it: no job is returned for that, and none is kept back."""
    connection = await link.connection()
    await topology.ensure_queue(connection, bound, "a")
    await connection.delete_queue(names.ENQUEUED)
    await publish(connection, "a", b"1")
    await connection.delete_exchange(names.LOG_EXCHANGE)
    await publish(connection, "a", b"2")
    assert [each.body for each in await take_all(connection, "queue.a", 2)] == [b"1", b"2"]
    await connection.delete_queue("queue.a")
    await returned(connection, "a")


async def test_each_job_of_a_foreign_producer_is_said_to_have_ended_once(
    bound: Settings, scheduler: Scheduler, stranger: BlockingChannel, workers: Workers, tmp_path: Path,
    link: Link, broker: Broker, vhost: str, eventually: Eventually,
) -> None:  # fmt: skip
    """With a client of ours beside it; what fails and is retried passes the exchange more than once."""
    jobs = Registry()
    runs: list[str] = []

    @jobs.job
    async def work(*outcomes: str) -> None:
        context = current()
        runs.append(context.jid)
        if outcomes[context.attempt - 1 :]:
            raise ValueError

    began = time.time() - 5
    await workers(jobs, target=bound)
    connection = await link.connection()
    await eventually(lambda: on_record(broker, vhost, "default"))
    jids = [enqueue(stranger, "work", []) for _ in range(5)]
    jids += [enqueue(stranger, "work", ["fails"] * n, retry_delays=[0.05]) for n in (1, 2)]
    jids += [enqueue(stranger, "work", ["dies"], retry=0), schedule(stranger, "work", [], time.time() + 0.1)]
    async with Client(bound) as client:
        jids.append(await client.enqueue("work"))
    await eventually(lambda: len(runs) == len(jids) + 3 and set(runs) == set(jids))

    async def found() -> Any:
        lake = tmp_path / f"lake {time.monotonic()}"
        for table in RAW:
            if table.keep:
                rows = decode.batch(table.name, 0, await read_all(connection, table.stream))
                write_deltalake(str(lake / table.name), pa.Table.from_batches([rows]), partition_by=["date"])
        return conservation(lake, began, time.time() + 5, now=time.time() + 5, depths=lambda _: {}, patience=0)

    async def all_ended() -> bool:
        return bool((await found()).ended_once == len(jids))

    await eventually(all_ended)
    told = await found()
    assert (told.enqueued, told.holds, told.without_jid, told.unreadable) == (len(jids), True, 0, 0)
    assert len(await logged(connection)) == len(jids) + 3, "a copy for each time that a job was put on its queue"
