"""Draining a queue while this process is elected: what the two queues that the leader empties have in common."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from amqpjobs.clock import Clock
from amqpjobs.scheduler.election import RETRY, Election
from amqpjobs.service import Service
from amqpjobs.streams import topology
from amqpjobs.streams.errors import BrokerError, ConnectionLost, NotFound
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Consumer, Incoming

log = logging.getLogger("amqpjobs.scheduler")

PREFETCH = 200
MISSING_PAUSE = 60.0
"""Seconds between two looks for a queue that does not exist: not every broker needs it."""


class Drain(Service):
    """Consumes while elected, over every loss. Two processes that do so at once do no harm.

    `take` acknowledges what it has seen to; a BrokerError in it gives the rest back to the queue, for another try.
    """

    def __init__(self, link: Link, election: Election, clock: Clock, queue: str) -> None:
        super().__init__(f"drain of {queue}")
        self._link = link
        self._election = election
        self._clock = clock
        self._queue = queue
        self._arrived: list[Incoming] = []
        self._wake = asyncio.Event()
        self._told: str | None = None

    async def begin(self) -> None:
        """Called before each drain."""

    async def take(self, connection: Connection, consumer: Consumer, messages: Sequence[Incoming]) -> None:
        """Called with what arrived, at least once a second."""
        raise TypeError(f"{type(self).__name__} has no take()")

    async def close(self) -> None:
        """Called at the end of the loop."""

    async def run(self) -> None:
        """Elected: drain, until the connection is lost or another process leads."""
        try:
            while True:
                await self._election.held.wait()
                pause = RETRY
                try:
                    await self._drain()
                except NotFound:
                    pause = MISSING_PAUSE
                except BrokerError as error:
                    self._tell(error)
                await self._clock.sleep(pause)
        finally:
            await self.close()

    async def _drain(self) -> None:
        connection = await self._link.connection()
        await self.begin()
        self._arrived = []
        if await connection.passive(self._queue) is None:  # it was deleted; not every broker needs each
            await topology.ensure(connection, self._link.settings)
        consumer = await connection.consume(self._queue, self._on_message, prefetch=PREFETCH)
        self._told = None
        consumer.lost.add_done_callback(lambda _: self._wake.set())
        try:
            while self._election.held.is_set() and not consumer.lost.done():
                await self._wait()
                arrived, self._arrived = self._arrived, []
                await self.take(connection, consumer, arrived)
        finally:
            await consumer.close()  # what is unacknowledged stays in the queue

    def _on_message(self, message: Incoming) -> None:
        self._arrived.append(message)
        self._wake.set()

    async def _wait(self) -> None:
        """Until there is something to do, at most a second: leadership can end meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY):
                await self._wake.wait()
        self._wake.clear()

    def _tell(self, error: BrokerError) -> None:
        """Once per outage; a lost connection is the link's to report."""
        if not isinstance(error, ConnectionLost) and str(error) != self._told:
            self._told = str(error)
            log.warning("%s is not drained now: %s", self._queue, error)
