"""Reads `heartbeats` into the fold of processes, with the time at which each arrived here."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.model import names, reading
from amqpjobs.model.messages import Heartbeat
from amqpjobs.model.processes import Process, Processes
from amqpjobs.service import Service
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.errors import BrokerError, NotFound
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, FromTime, Incoming

log = logging.getLogger("amqpjobs.web")

LOOK_BACK = 20.0
"""Seconds of heartbeats read again at each start, two of a live process's. A stream does not tell when a message
arrived, so those count as arriving now: further back, a process that was killed a minute ago would seem alive."""
RETRY = 1.0
"""Seconds before another try after the broker refused."""


class Beats(Service):
    """Tells who is there. It needs no position in the stream: what it knows is a minute old at most.

    Arrivals are told by a clock that runs only while it listens: that this process lost the broker for two minutes
    does not mean that all workers died.
    """

    def __init__(self, link: Link, settings: Settings, clock: Clock) -> None:
        super().__init__("heartbeat reader")
        self._processes = Processes()
        self._listened = 0.0
        self._listens_since: float | None = None
        self._link, self._settings, self._clock = link, settings, clock

    def now(self) -> float:
        """Seconds listened so far: the clock of arrivals."""
        current = 0.0 if self._listens_since is None else self._clock.steady() - self._listens_since
        return self._listened + current

    def present(self) -> list[Process]:
        """Who is there."""
        return self._processes.present(self.now())

    async def run(self) -> None:
        """Read until stopped, on one connection after another."""
        while True:
            connection = await self._link.connection()
            try:
                await self._read(connection)
            except NotFound:
                await self._declare(connection)
            except BrokerError as error:
                log.debug("heartbeats: %s", error)
                await self._clock.sleep(RETRY)

    async def _read(self, connection: Connection) -> None:
        start = FromTime(self._clock.wall() - LOOK_BACK)
        inbox: asyncio.Queue[Incoming] = asyncio.Queue()
        consumer = await connection.read(names.HEARTBEATS, inbox.put_nowait, start=start, prefetch=1000)
        self._listens_since = self._clock.steady()
        try:
            while True:
                message = await _next(inbox, consumer.lost)
                if message is None:
                    return
                self._take(message)
                consumer.ack(message.tag)
        finally:
            self._listened, self._listens_since = self.now(), None
            await consumer.close()

    def _take(self, message: Incoming) -> None:
        values = reading.values(message.body)
        now = self.now()
        for value in values if isinstance(values, list) else ():
            beat = reading.read_heartbeat(value)
            if isinstance(beat, Heartbeat):
                self._processes.arrive(beat, now)

    async def _declare(self, connection: Connection) -> None:
        try:
            await topology.ensure(connection, self._settings)
        except BrokerError as error:
            log.debug("heartbeats: %s", error)
            await self._clock.sleep(RETRY)


async def _next(inbox: asyncio.Queue[Incoming], lost: asyncio.Future[None]) -> Incoming | None:
    """The next message; None when the consumer was closed. Raises what ended it otherwise."""
    get = asyncio.ensure_future(inbox.get())
    waiting: list[asyncio.Future[Any]] = [get, lost]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return get.result() if get.done() else lost.result()
    finally:
        get.cancel()
