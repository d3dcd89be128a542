"""A publishing channel that follows the link from connection to connection."""

from __future__ import annotations

import asyncio

from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Publisher


class PublishingChannel:
    """Hands out a publisher on the live connection, opening it when the last one is lost."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._publisher: Publisher | None = None
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    @property
    def connection(self) -> Connection | None:
        """The connection of the last publisher handed out."""
        return self._connection

    async def open(self) -> Publisher:
        """A publisher on a connection that takes publishes, waiting for that as long as it takes.

        What is written to a blocked connection leaves when the alarm clears, however long its sender has given up:
        so nothing is written to one that is known to be blocked. Raises ConnectionLost.
        """
        publisher, connection = self._publisher, self._connection
        if publisher is None or connection is None or publisher.lost.done():
            async with self._opening:
                publisher, connection = await self._reopen()
        if connection.blocked:
            await connection.unblocked()
        return publisher

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.close()

    async def _reopen(self) -> tuple[Publisher, Connection]:
        publisher, connection = self._publisher, self._connection
        if publisher is None or connection is None or publisher.lost.done():
            connection = await self._link.connection()
            publisher = await connection.publisher()
            self._publisher, self._connection = publisher, connection
        return publisher, connection
