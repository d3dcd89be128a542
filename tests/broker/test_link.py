"""The link finds its broker again, says so once, and never gives out a dead connection."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.broker.ports import free_ports
from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import AccessRefused, BrokerUnavailable, ConfirmTimeout
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from amqpjobs.streams.sender import Sender
from tests.broker.reading import once, read_all, take_until
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE


def at(node: PrivateNode, settings: Settings) -> Settings:
    return settings.model_copy(update={"url": node.url, "management_url": node.management_url})


async def test_the_first_connect_may_be_fatal(settings: Settings) -> None:
    [port] = free_ports(1)
    nobody = settings.model_copy(update={"url": f"amqp://me:secret@127.0.0.1:{port}/"})
    with pytest.raises(BrokerUnavailable, match=rf"cannot reach amqp://127.0.0.1:{port}/"):
        await Link(nobody, "test", SystemClock(), fatal_first=True).start()
    wrong = settings.model_copy(update={"url": settings.url.replace("guest:guest", "guest:secret")})
    with pytest.raises(AccessRefused, match="check AMQPJOBS_URL") as caught:
        await Link(wrong, "test", SystemClock(), fatal_first=True).start()
    assert "secret" not in str(caught.value)


async def test_it_keeps_trying_says_so_once_and_ends(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "amqpjobs")
    [port] = free_ports(1)
    link = Link(settings.model_copy(update={"url": f"amqp://me:secret@127.0.0.1:{port}/"}), "test", SystemClock())
    await link.start()
    with pytest.raises(BrokerUnavailable, match="cannot reach"):
        await link.connection(timeout=1.5)
    assert link.state == "down"
    assert link.last_error is not None
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text
    await link.stop()
    await link.stop()
    assert not link.running


async def test_start_and_stop_repeat(settings: Settings) -> None:
    link = Link(settings, "test", SystemClock())
    for _ in range(3):
        await link.start()
        await link.start()
        connection = await link.connection(timeout=PATIENCE)
        await link.stop()
        assert connection.lost.done()
        assert link.state == "down"


async def test_a_connection_closed_by_force_is_replaced(
    link: Link, broker: Broker, vhost: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "amqpjobs")
    before = await link.connection()

    async def closed() -> bool:
        await asyncio.to_thread(broker.close_connections, vhost, named="test")
        return before.lost.done()

    await eventually(closed)
    after = await link.connection(timeout=PATIENCE)
    assert after is not before
    assert await after.passive("nothing") is None
    lines = [record.getMessage() for record in caplog.records]
    assert ["lost" in lines[0], "connected" in lines[1]] == [True, True]
    assert len(lines) == 2


async def test_a_broker_that_stops_and_starts_under_everybody(
    node: PrivateNode, settings: Settings, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    """Stopped cleanly, then killed: appends are exactly once, publishes at least once, all resume by themselves."""
    caplog.set_level(logging.WARNING)
    settings = at(node, settings)
    link = Link(settings, "test", SystemClock())
    await link.start()
    appender = Appender(link, names.RETRIES, clock=SystemClock())
    sender = Sender(link, clock=SystemClock())
    await topology.ensure(await link.connection(), settings)
    enough = asyncio.Event()
    appended, sent = 0, 0

    async def append() -> None:
        nonlocal appended
        while not enough.is_set():
            await appender.append([b'{"n":%d}' % appended], timeout=PATIENCE)
            appended += 1

    async def send() -> None:
        nonlocal sent
        while not enough.is_set():
            await sender.publish(Outgoing(b"%d" % sent, names.JOBS_EXCHANGE, "default"), timeout=PATIENCE)
            sent += 1

    work = [asyncio.create_task(append()), asyncio.create_task(send())]
    await eventually(lambda: appended > 20 and sent > 20)
    await node.stop()
    await node.start()
    await eventually(lambda marks=(appended, sent): appended > marks[0] + 20 and sent > marks[1] + 20)
    node.kill()
    await node.start()
    await eventually(lambda marks=(appended, sent): appended > marks[0] + 20 and sent > marks[1] + 20)
    enough.set()
    await asyncio.gather(*work)
    connection = await link.connection()
    numbers = [each["n"] for each in once(await read_all(connection, names.RETRIES))]
    assert numbers == list(range(appended))
    await sender.publish(Outgoing(b"last", names.JOBS_EXCHANGE, "default"), timeout=PATIENCE)
    taken = [int(message.body) for message in await take_until(connection, "queue.default", b"last")]
    assert set(taken) == set(range(sent))
    assert len(taken) <= sent + 2
    await appender.close()
    await link.stop()
    gc.collect()
    assert not [record for record in caplog.records if "never retrieved" in record.getMessage()]


async def test_a_blocked_broker_takes_nothing_and_nothing_piles_up(
    node: PrivateNode, settings: Settings, eventually: Eventually
) -> None:
    link = Link(at(node, settings), "test", SystemClock())
    await link.start()
    sender = Sender(link, clock=SystemClock())
    await sender.publish(Outgoing(b"0", names.JOBS_EXCHANGE, "default"), timeout=PATIENCE)
    await node.ctl("set_vm_memory_high_watermark", "absolute", "1")
    with pytest.raises(ConfirmTimeout):
        await sender.publish(Outgoing(b"1", names.JOBS_EXCHANGE, "default"), timeout=2)
    await eventually(lambda: link.blocked)
    for _ in range(3):
        with pytest.raises(BrokerUnavailable, match="alarm"):
            await sender.publish(Outgoing(b"never", names.JOBS_EXCHANGE, "default"), timeout=0.2)
    waiting = asyncio.create_task(sender.publish(Outgoing(b"2", names.JOBS_EXCHANGE, "default"), timeout=PATIENCE))
    await node.ctl("set_vm_memory_high_watermark", "0.4")
    await waiting
    assert link.blocked is None
    found = await take_until(await link.connection(), "queue.default", b"2")
    assert [message.body for message in found] == [b"0", b"1"]
    await link.stop()
