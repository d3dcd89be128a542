"""A broker that lives and confirms nothing on one channel: another takes over, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import topology, vigil
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import ConfirmTimeout, ConnectionLost
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Outgoing
from amqpjobs.streams.sender import Sender
from tests.broker.nodes import block, unblock
from tests.broker.reading import read_all, take_all
from tests.conformance.conftest import Connect
from tests.conftest import Eventually
from tests.forwarding import Swallower, swallowing

CLASSIC = {"x-queue-type": "classic"}


@pytest.fixture
async def away(
    settings: Settings, connect: Connect, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Swallower, Settings]]:
    """The broker through a line on which confirms can be lost."""
    await topology.ensure(connection, settings)
    await connection.declare_queue("q", CLASSIC)
    monkeypatch.setattr(vigil, "CHECK_SECONDS", 0.05)
    async with swallowing(settings) as (swallower, through):
        driver = "aio" if "aio" in connect.__module__ else "lean"
        yield swallower, through.model_copy(update={"driver": driver})


@pytest.fixture
async def link(away: tuple[Swallower, Settings]) -> AsyncIterator[Link]:
    """By that line."""
    link = Link(away[1], "silence", SystemClock())
    await link.start()
    yield link
    await link.stop()


async def test_the_channel_ends_and_the_connection_lives(
    away: tuple[Swallower, Settings], connect: Connect, connection: Connection
) -> None:
    swallower, settings = away
    through = await connect(settings, name="silence")
    publisher = await through.publisher()
    await publisher.publish(Outgoing(b"before", "", "q"))
    swallower.swallowing = True
    with pytest.raises(ConnectionLost, match="confirmed nothing"):
        await publisher.publish(Outgoing(b"under way", "", "q"))
    assert publisher.lost.done()
    swallower.swallowing = False
    assert not through.lost.done()
    assert swallower.swallowed == 1
    await (await through.publisher()).publish(Outgoing(b"after", "", "q"))
    assert [each.body for each in await take_all(connection, "q", 3)] == [b"before", b"under way", b"after"]
    await through.close()


async def test_a_message_that_its_sender_gave_up_is_under_way_all_the_same(
    away: tuple[Swallower, Settings], connect: Connect
) -> None:
    swallower, settings = away
    through = await connect(settings, name="silence")
    publisher = await through.publisher()
    swallower.swallowing = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await publisher.publish(Outgoing(b"{}", "", "q"))
    with pytest.raises(ConnectionLost):
        await publisher.lost
    await through.close()


async def test_a_broker_that_says_it_takes_nothing_is_waited_for(
    node: PrivateNode, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vigil, "CHECK_SECONDS", 0.05)
    connection = await connect(Settings(url=node.url), name="silence")
    await connection.declare_queue("q", CLASSIC)
    publisher = await connection.publisher()
    await block(node)
    publishing = asyncio.create_task(publisher.publish(Outgoing(b"{}", "", "q")))
    await eventually(lambda: connection.blocked is not None)
    await asyncio.sleep(3 * vigil.SILENT_CHECKS * 0.05)
    assert not publishing.done()
    await unblock(node)
    await publishing
    assert len(await take_all(connection, "q", 1)) == 1
    await connection.close()


async def test_an_append_without_a_time_limit_arrives(
    away: tuple[Swallower, Settings], link: Link, connection: Connection, eventually: Eventually
) -> None:
    swallower, _ = away
    appender = Appender(link, names.METRICS, clock=SystemClock(), source="me")
    await appender.append([b'{"n":1}'])
    swallower.swallowing = True
    appending = asyncio.create_task(appender.append([b'{"n":2}']))
    await eventually(lambda: swallower.swallowed == 1)
    swallower.swallowing = False
    await appending
    await appender.append([b'{"n":3}'])
    found = [message.body for message in await read_all(connection, names.METRICS)]
    stamped = [b'{"n":%d,"from":"me","seq":%d}' % (n, n) for n in (1, 2, 2, 3)]
    assert found == stamped, "the second twice, under one number: folds ignore a repeat"
    await appender.close()


async def test_the_next_job_is_not_lost_with_the_channel(
    away: tuple[Swallower, Settings], link: Link, connection: Connection, eventually: Eventually
) -> None:
    """A caller with a time limit is told that its job may have arrived; what comes after it goes its way."""
    swallower, _ = away
    sender = Sender(link, clock=SystemClock())
    swallower.swallowing = True
    with pytest.raises(ConfirmTimeout):
        await sender.publish(Outgoing(b"1", "", "q"), timeout=0.2)
    sending = asyncio.create_task(sender.publish(Outgoing(b"2", "", "q"), timeout=20))
    await eventually(lambda: swallower.swallowed >= 2)
    swallower.swallowing = False
    await sending
    assert [each.body for each in await take_all(connection, "q", 3)] == [b"1", b"2", b"2"]
    await sender.close()
