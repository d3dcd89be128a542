"""Reading streams from code that is not asynchronous: Spark calls its sources that way, in processes of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from amqpjobs.pipeline.background import Background
from amqpjobs.settings import Settings
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.port import Connection, Incoming
from amqpjobs.streams.ranges import Range, RangeReader

T = TypeVar("T")

ENOUGH = 2000
ENOUGH_BYTES = 4 * 1024 * 1024
"""What is handed on at once, about: each batch has costs of its own, here and in Spark."""


def ask(settings: Settings, question: Callable[[Connection], Awaitable[T]]) -> T:
    """The answer to `question`, asked on a connection of its own. Raises BrokerError."""

    async def answer() -> T:
        connection = await connect(settings, name="pipeline plans")
        try:
            return await question(connection)
        finally:
            await connection.close()

    return asyncio.run(answer())


def messages(settings: Settings, wanted: Range, *, skip: bool) -> Iterator[list[Incoming]]:
    """The messages of a range, about ENOUGH at once, over a connection of its own. Raises RangeLost, BrokerError."""
    with Background() as runner:
        connection = runner.run(connect(settings, name=f"pipeline reads {wanted.stream}"))
        try:
            reader = runner.run(RangeReader.open(connection, wanted, skip=skip))
            while batch := runner.run(_gathered(reader)):
                yield batch
        finally:
            runner.run(connection.close())


async def _gathered(reader: RangeReader) -> list[Incoming]:
    found: list[Incoming] = []
    size = 0
    while len(found) < ENOUGH and size < ENOUGH_BYTES and (more := await reader.take()):
        found += more
        size += sum(len(message.body) for message in more)
    return found
