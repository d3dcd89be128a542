"""What a worker declares before it consumes: once for each connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from amqpjobs.clock import Clock
from amqpjobs.streams import topology
from amqpjobs.streams.errors import BrokerError, NotReady
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection

log = logging.getLogger("amqpjobs.worker")

STARTING = 10.0
"""Seconds after the first trouble on a connection in which what is not ready is only tried again."""


class Declarations:
    """Declares the topology once for each connection, whichever queue comes first."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._lock = asyncio.Lock()
        self._done: Connection | None = None
        self._said: set[str] = set()
        self._newest: tuple[Connection, float] | None = None

    async def ensure(self, connection: Connection, queue: str) -> None:
        """Declare what is missing for `queue` and for all else. Raises what makes it impossible to consume from it."""
        async with self._lock:
            if self._done is not connection:
                await self._ensure_all(connection)
                self._done = connection
            self._say(await topology.ensure_queue(connection, self._link.settings, queue))

    def starting(self, error: BrokerError, connection: Connection) -> bool:
        """Whether a broker that has just begun says this, which passes: it takes connections before its queues are up.

        Nobody need hear of it, unless it lasts.
        """
        now = self._clock.steady()
        if self._newest is None or self._newest[0] is not connection:
            self._newest = connection, now
        return isinstance(error, NotReady) and now - self._newest[1] < STARTING

    async def _ensure_all(self, connection: Connection) -> None:
        try:
            self._say(await topology.ensure(connection, self._link.settings))
        except BrokerError as error:
            if connection.lost.done() or self.starting(error, connection):
                raise
            self._say([f"the topology is incomplete: {error}"])  # what is there may serve all the same

    def _say(self, remarks: Sequence[str]) -> None:
        for remark in remarks:
            if remark not in self._said:
                self._said.add(remark)
                log.warning("%s", remark)
