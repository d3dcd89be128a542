"""Taking rejected jobs from `jobs.rejected` to the stream `dead_jobs`, where the broker does not do so itself.

The queue stands beside the stream on the exchange `jobs.dead`, so it gets what anybody publishes there too; that has
reached the stream already.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.scheduler.drain import Drain
from amqpjobs.scheduler.election import Election
from amqpjobs.streams import topology
from amqpjobs.streams.errors import Refused
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Consumer, Incoming, Outgoing
from amqpjobs.streams.sender import Sender

DEATH = "x-first-death-queue"
"""The header of what a queue dead-lettered."""


class Rejected(Drain):
    """Appends them raw, with their scalar headers; each is confirmed before it is acknowledged."""

    def __init__(self, link: Link, election: Election, clock: Clock, *, timeout: float) -> None:
        super().__init__(link, election, clock, names.REJECTED)
        self._timeout = timeout
        self._sender = Sender(link, clock=clock)

    async def close(self) -> None:
        """Close the channel."""
        await self._sender.close()

    async def take(self, connection: Connection, consumer: Consumer, messages: Sequence[Incoming]) -> None:
        """Append what was dead-lettered. After an upgrade the broker does it itself, and the empty queue goes."""
        if not messages and not topology.detours_rejected(connection):
            with contextlib.suppress(Refused):
                await connection.delete_queue(names.REJECTED)
            return
        results = await asyncio.gather(*(self._append(message) for message in messages), return_exceptions=True)
        failure = None
        for message, result in zip(messages, results, strict=True):
            if result is None:
                consumer.ack(message.tag)
            else:
                failure = failure or result
        if failure is not None:
            raise failure

    async def _append(self, message: Incoming) -> None:
        if DEATH in message.properties.headers:
            out = Outgoing(message.body, "", names.DEAD, message.properties)
            await self._sender.publish(out, timeout=self._timeout)
