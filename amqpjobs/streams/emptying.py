"""Throwing away what waits in a job queue, on any broker: jobs are taken and acknowledged, unread."""

from __future__ import annotations

import asyncio

from amqpjobs.model import names
from amqpjobs.streams.port import Connection, Consumer, Incoming

BATCH = 1000
"""Jobs taken before they are acknowledged."""


async def empty(connection: Connection, queue: str, timeout: float) -> int:
    """Take out as many jobs as are ready now, and not what comes later; how many it got within `timeout` seconds.

    Fewer where workers take some meanwhile. Raises NotFound, ConnectionLost.
    """
    state = await connection.passive(names.broker_queue(queue))
    wanted = 0 if state is None else state.ready
    if not wanted:
        return 0
    inbox: asyncio.Queue[Incoming] = asyncio.Queue()
    consumer = await connection.consume(
        names.broker_queue(queue), inbox.put_nowait, prefetch=min(BATCH, wanted), priority=10
    )
    try:
        return await _take(consumer, inbox, wanted, timeout)
    finally:
        await consumer.close()  # what was delivered beyond them goes back


async def _take(consumer: Consumer, inbox: asyncio.Queue[Incoming], wanted: int, timeout: float) -> int:
    taken = 0
    try:
        async with asyncio.timeout(timeout):
            while taken < wanted and not consumer.lost.done():
                message = await inbox.get()
                taken += 1
                if taken % (BATCH // 2) == 0 or taken == wanted or inbox.empty():
                    consumer.ack(message.tag, multiple=True)
    except TimeoutError:
        pass
    return taken
