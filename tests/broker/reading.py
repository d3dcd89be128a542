"""Reading what is in a stream or queue now, for assertions."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from amqpjobs.streams.errors import ConnectionLost, Unroutable
from amqpjobs.streams.port import Connection, Incoming, Outgoing, Publisher
from tests.patience import PATIENCE

T = TypeVar("T")


async def read_all(connection: Connection, stream: str) -> list[Incoming]:
    """Every message of a stream up to now: up to a marker that is appended for this (and left out)."""
    nonce = uuid.uuid4().hex
    marker = json.dumps({"type": "marker", "nonce": nonce}).encode()
    publisher = await connection.publisher()
    await publish_once_up(publisher, Outgoing(marker, "", stream))
    found: list[Incoming] = []
    done = asyncio.Event()

    def take(message: Incoming) -> None:
        if message.body == marker:
            done.set()
        elif not done.is_set():
            found.append(message)
        consumer.ack(message.tag)

    consumer = await once_up(lambda: connection.read(stream, take, start="first"))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    await consumer.close()
    await publisher.close()
    return found


async def publish_once_up(publisher: Publisher, message: Outgoing) -> None:
    """A broker that has just started takes connections before its streams are up: it returns the message."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await publisher.publish(message)
            except Unroutable:
                await asyncio.sleep(0.1)


async def once_up(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of a broker that may have just started: it says of queues and streams that they are down, until they
    are up, and a connection may still be lost (so `ask` gets its own from a link)."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except ConnectionLost:  # NotReady is one
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


def entries(message: Incoming) -> list[dict[str, Any]]:
    """The entries of one message."""
    value = json.loads(message.body)
    return value if isinstance(value, list) else [value]


def once(messages: list[Incoming]) -> list[dict[str, Any]]:
    """The entries as a fold counts them: a message whose seq is not above the last of its `from` is a repeat."""
    last: dict[str, int] = {}
    counted = []
    for message in messages:
        first = entries(message)[0]
        if "from" in first:
            if first["seq"] <= last.get(first["from"], 0):
                continue
            last[first["from"]] = first["seq"]
        counted += entries(message)
    return counted


async def take_all(connection: Connection, queue: str, count: int) -> list[Incoming]:
    """So many messages of a queue, acknowledged."""
    return await _take(connection, queue, lambda found: len(found) >= count)


async def take_until(connection: Connection, queue: str, last: bytes) -> list[Incoming]:
    """The messages of a queue before the one with this body, acknowledged."""
    return (await _take(connection, queue, lambda found: found[-1].body == last))[:-1]


async def _take(connection: Connection, queue: str, enough: Callable[[list[Incoming]], bool]) -> list[Incoming]:
    found: list[Incoming] = []
    done = asyncio.Event()

    def take(message: Incoming) -> None:
        if done.is_set():
            return
        found.append(message)
        if enough(found):
            done.set()
        if done.is_set() or len(found) % 50 == 0:
            # not one by one: of a quorum queue RabbitMQ holds back what comes after 32, and forgets it with the channel
            consumer.ack(message.tag, multiple=True)

    consumer = await once_up(lambda: connection.consume(queue, take, prefetch=100))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    await consumer.close()
    return found
