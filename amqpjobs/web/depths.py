"""Asks the broker how full its queues are and whether a scheduler leads: what no stream tells."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Set

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.service import Service
from amqpjobs.settings import Settings
from amqpjobs.streams import inspect, topology
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, QueueState

log = logging.getLogger("amqpjobs.web")

EVERY = 2.0
"""Seconds between two looks."""
PATIENCE = 5.0
"""Seconds after which an answer is given up: a connection that hangs must not freeze the figures for good."""


KEPT = 3600.0
"""Seconds that depths are remembered, and EACH how far apart they are."""
EACH = 10.0


class History:
    """How full each queue was, for the last hour that this process has watched."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[float, int]]] = {}

    def note(self, at: float, queues: Mapping[str, QueueState]) -> None:
        """Remember the depths at `at` (seconds since 1970), unless the last ones were noted just before."""
        for name, state in queues.items():
            points = self._queues.setdefault(name, deque(maxlen=int(KEPT / EACH)))
            if not points or at - points[-1][0] >= EACH or at < points[-1][0]:
                points.append((at, state.ready))
        for name in [name for name, points in self._queues.items() if at - points[-1][0] > KEPT]:
            del self._queues[name]

    def of(self, queue: str) -> list[tuple[float, int]]:
        """When, and how many were ready; the oldest first."""
        return list(self._queues.get(queue, ()))


class Depths(Service):
    """What the broker last said. `known` gives the names to ask for where the broker cannot list its queues."""

    def __init__(self, link: Link, settings: Settings, clock: Clock, known: Callable[[], Set[str]]) -> None:
        super().__init__("queue depths")
        self.queues: Mapping[str, QueueState] = {}
        self.leader: bool | None = None
        self.alarm: str | None = None
        """Why the broker takes no messages, as far as it told."""
        self.product = ""
        self.remarks: tuple[str, ...] = ()
        self.at: float | None = None
        """When it last answered (seconds since 1970)."""
        self._link, self._settings, self._clock, self._known = link, settings, clock, known
        self.history = History()
        self._ensured_on: Connection | None = None

    async def run(self) -> None:
        """Ask until stopped."""
        while True:
            connection = await self._link.connection()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._look(connection)
            except (BrokerError, TimeoutError) as error:
                log.debug("queue depths: %s", error)
            await self._clock.sleep(EVERY)

    async def _look(self, connection: Connection) -> None:
        if connection is not self._ensured_on:
            self.product = " ".join(filter(None, (connection.server.get("product"), connection.server.get("version"))))
            self.remarks = tuple(await topology.ensure(connection, self._settings))
            self._ensured_on = connection
        self.alarm = await inspect.alarm(self._settings)
        self.queues = await inspect.queues(connection, self._settings, self._known())
        leadership = await connection.passive(names.LEADER_QUEUE)
        self.leader = leadership is not None and leadership.consumers > 0
        self.at = self._clock.wall()
        self.history.note(self.at, self.queues)
