"""A consumer's prefetch changed while it runs."""

from __future__ import annotations

import asyncio

from amqpjobs.streams.port import Connection
from tests.conformance.test_port import CLASSIC, Inbox, fill, numbers
from tests.conftest import Eventually
from tests.patience import PATIENCE


async def test_a_wider_prefetch_brings_more_and_loses_nothing(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    await fill(connection, "q", numbers(20))
    inbox = Inbox()
    consumer = await connection.consume("q", inbox, prefetch=2)
    await inbox.of(2)
    await consumer.resize(5)
    # RabbitMQ: what was out before does not count. LavinMQ: the new one acts beside the first one's credit.
    expected = 7 if connection.server["product"] == "RabbitMQ" else 5
    assert len(await inbox.of(expected)) >= expected
    done = 0
    while done < 20:
        done = len(await inbox.of(done + 1))
        consumer.ack(inbox.messages[done - 1].tag, multiple=True)
    assert [message.body for message in inbox.messages] == numbers(20)
    assert not any(message.redelivered for message in inbox.messages)


async def test_a_narrower_prefetch_holds_once_what_was_out_is_settled(
    connection: Connection, eventually: Eventually
) -> None:
    await connection.declare_queue("q", CLASSIC)
    await fill(connection, "q", numbers(30))
    inbox = Inbox()
    consumer = await connection.consume("q", inbox, prefetch=10)
    await inbox.of(10)
    await consumer.resize(1)
    await inbox.of(11)
    consumer.ack(inbox.messages[9].tag, multiple=True)
    state = await connection.passive("q")
    assert state is not None
    assert (state.ready, state.consumers) == (19, 1)
    consumer.ack(inbox.messages[10].tag)
    assert (await inbox.of(12))[11].body == b"11"
    assert len(inbox.messages) == 12


async def test_nothing_comes_after_cancel_however_the_prefetch_was_changed(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    await fill(connection, "q", numbers(30))
    inbox = Inbox()
    consumer = await connection.consume("q", inbox, prefetch=2)
    resizing = asyncio.create_task(consumer.resize(4))
    await asyncio.sleep(0)
    await consumer.cancel()
    await resizing
    await consumer.resize(10)
    before = len(inbox.messages)
    for message in list(inbox.messages):
        consumer.ack(message.tag)
    state = await connection.passive("q")
    assert state is not None
    assert state.consumers == 0
    assert len(inbox.messages) == before


async def test_a_deleted_queue_ends_a_consumer_that_was_resized(connection: Connection) -> None:
    await connection.declare_queue("q", CLASSIC)
    consumer = await connection.consume("q", Inbox(), prefetch=2)
    await consumer.resize(4)
    await connection.delete_queue("q")
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait([consumer.lost])
    assert consumer.lost.exception() is not None
