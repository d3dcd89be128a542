"""Publishing jobs: nothing is lost silently, and every call ends in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from amqpjobs.broker.ports import free_ports
from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.errors import BrokerUnavailable, NotFound, TooLarge, Unroutable
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing, Properties
from amqpjobs.streams.sender import Sender
from tests.broker.reading import take_all, take_until
from tests.conftest import Broker
from tests.patience import PATIENCE


@pytest.fixture
async def sender(link: Link) -> AsyncIterator[Sender]:
    sender = Sender(link, clock=SystemClock())
    yield sender
    await sender.close()


def job(number: int, queue: str = "default") -> Outgoing:
    return Outgoing(json.dumps({"n": number}).encode(), names.JOBS_EXCHANGE, queue)


async def test_the_first_job_ever_finds_an_empty_virtual_host(sender: Sender, link: Link) -> None:
    await asyncio.gather(*(sender.publish(job(n, f"q{n % 3}"), timeout=PATIENCE) for n in range(300)))
    connection = await link.connection()
    for queue in range(3):
        found = await take_all(connection, f"queue.q{queue}", 100)
        assert sorted(json.loads(each.body)["n"] for each in found) == list(range(queue, 300, 3))


async def test_what_has_no_queue_is_told(sender: Sender, link: Link, settings: Settings) -> None:
    await topology.ensure(await link.connection(), settings)
    for key in ("a/b", "", "ü"):
        with pytest.raises(Unroutable):
            await sender.publish(job(1, key), timeout=PATIENCE)
    with pytest.raises(Unroutable):
        await sender.publish(Outgoing(b"{}", "", "no.such.queue"), timeout=PATIENCE)
    with pytest.raises(NotFound):
        await sender.publish(Outgoing(b"{}", "no.such.exchange", "x"), timeout=PATIENCE)
    await sender.publish(job(1), timeout=PATIENCE)


async def test_a_wrong_exchange_harms_only_its_own_message(sender: Sender, link: Link, settings: Settings) -> None:
    await topology.ensure(await link.connection(), settings)
    wrong = [sender.publish(Outgoing(b"{}", "no.such.exchange", "x"), timeout=PATIENCE) for _ in range(5)]
    results = await asyncio.gather(
        *wrong, *(sender.publish(job(n), timeout=PATIENCE) for n in range(50)), return_exceptions=True
    )
    assert all(isinstance(each, NotFound) for each in results[:5])
    assert results[5:] == [None] * 50


async def test_same_message_id_twice_under_way(sender: Sender, link: Link, settings: Settings) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    await topology.ensure_queue(connection, settings, "default")
    same = Properties(message_id="same")
    lost = Outgoing(b"{}", names.JOBS_EXCHANGE, "a/b", same)
    good = Outgoing(b"{}", names.JOBS_EXCHANGE, "default", same)
    results = await asyncio.gather(
        *(sender.publish(each, timeout=PATIENCE) for each in (lost, good, lost, good)), return_exceptions=True
    )
    assert [type(each) for each in results] == [Unroutable, type(None), Unroutable, type(None)]
    assert len(await take_all(connection, "queue.default", 2)) == 2


async def test_without_a_broker_the_call_ends_in_time(settings: Settings) -> None:
    [port] = free_ports(1)
    link = Link(settings.model_copy(update={"url": f"amqp://127.0.0.1:{port}/"}), "nobody", SystemClock())
    await link.start()
    sender = Sender(link, clock=SystemClock())
    with pytest.raises(BrokerUnavailable, match="nothing was sent"):
        await sender.publish(job(1), timeout=0.3)
    await link.stop()


async def test_too_large_is_refused_before_sending(sender: Sender) -> None:
    with pytest.raises(TooLarge):
        await sender.publish(Outgoing(bytes(129 * 1024 * 1024), names.JOBS_EXCHANGE, "default"), timeout=PATIENCE)


async def test_a_queue_deleted_in_between_is_declared_again(sender: Sender, link: Link) -> None:
    await sender.publish(job(1), timeout=PATIENCE)
    connection = await link.connection()
    await connection.delete_queue("queue.default")
    await sender.publish(job(2), timeout=PATIENCE)
    [found] = await take_all(connection, "queue.default", 1)
    assert json.loads(found.body) == {"n": 2}
    assert found.properties.content_type == "application/json"


async def test_at_least_once_while_connections_are_closed_by_force(
    sender: Sender, link: Link, broker: Broker, vhost: str
) -> None:
    sent: list[int] = []
    disturbed = asyncio.Event()

    async def send(first: int) -> None:
        number = first
        while not disturbed.is_set():
            await sender.publish(job(number), timeout=PATIENCE)
            sent.append(number)
            number += 20

    async def disturb() -> None:
        closed = 0
        async with asyncio.timeout(PATIENCE):
            while closed < 2:
                closed += await asyncio.to_thread(broker.close_connections, vhost, named="test")
                await asyncio.sleep(0.1)
        disturbed.set()

    await asyncio.gather(disturb(), *(send(first) for first in range(20)))
    await sender.publish(job(-1), timeout=PATIENCE)
    found = await take_until(await link.connection(), "queue.default", job(-1).body)
    numbers = [json.loads(each.body)["n"] for each in found]
    assert set(numbers) == set(sent)
    assert len(numbers) - len(sent) <= 2 * 20  # what was unconfirmed at a loss may come twice, nothing else
