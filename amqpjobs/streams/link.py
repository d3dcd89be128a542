"""One live connection to the broker, for as long as the process runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from amqpjobs.clock import Clock
from amqpjobs.service import Service
from amqpjobs.settings import Settings, redact
from amqpjobs.streams.drivers import connect
from amqpjobs.streams.errors import BrokerError, BrokerUnavailable
from amqpjobs.streams.limits import largest_message
from amqpjobs.streams.port import Connection

log = logging.getLogger("amqpjobs.streams")

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 2.0

Opener = Callable[[], Awaitable[Connection]]


class Link(Service):
    """Keeps one connection and opens another when it is lost.

    Pauses between attempts double from 0.2 to 2 s, jittered, so that a broker that comes back is used within seconds
    and a fleet does not knock all at once. With `fatal_first` the first connect happens in `start`, which then raises
    what `aio.connect` raises: a process can exit with a message that says what to do, in place of waiting for a broker
    that will never let it in.
    """

    def __init__(self, settings: Settings, name: str, clock: Clock, *, fatal_first: bool = False) -> None:
        super().__init__(f"link {name}")
        self.settings = settings
        self.clock = clock
        self.last_error: str | None = None
        self._client_name = name
        self._fatal_first = fatal_first
        self._connection: Connection | None = None
        self._changed = asyncio.Condition()
        self._silent = False

    @property
    def state(self) -> str:
        """`up` while a connection lives, `down` otherwise."""
        return "up" if self._live() else "down"

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now, or None."""
        connection = self._live()
        return connection.blocked if connection else None

    @property
    def largest_message(self) -> int:
        """The largest body in bytes that the broker takes; without a connection, what every broker takes."""
        connection = self._live()
        return largest_message(connection.server if connection else {}, self.settings.max_message_bytes)

    async def connection(self, timeout: float | None = None) -> Connection:
        """The live connection, waiting for one if need be.

        Raises BrokerUnavailable when there is none after `timeout` seconds (None waits for ever).
        """
        connection = self._live()
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(timeout), self._changed:
                while (connection := self._live()) is None:
                    await self._changed.wait()
                return connection
        except TimeoutError:
            reason = self.last_error or f"no connection to {redact(self.settings.url)}"
            raise BrokerUnavailable(reason) from None

    async def start(self) -> None:
        """Start connecting; with `fatal_first`, return connected or raise."""
        if self.running:
            return
        if self._fatal_first:
            self._connection = await self._open()
            self._fatal_first = False
        await super().start()

    async def run(self) -> None:
        """Connect, wait for the loss, connect again; the connection is closed at the end."""
        try:
            while True:
                connection = self._live() or await self._reconnect()
                await self._announce(connection)
                await asyncio.wait([connection.lost])
                self._report_loss(connection)
        finally:
            await self._drop()

    async def stop(self) -> None:
        """Close the connection and stop; safe to repeat."""
        await super().stop()
        await self._drop()  # a loop that was cancelled before its first step never came to its own end

    def _live(self) -> Connection | None:
        connection = self._connection
        return connection if connection is not None and not connection.lost.done() else None

    async def _open(self) -> Connection:
        return await connect(self.settings, name=self._client_name)

    async def _reconnect(self) -> Connection:
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._open()
            except BrokerError as error:
                self._report_failure(error)
            await self.clock.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _announce(self, connection: Connection) -> None:
        async with self._changed:
            self._connection = connection
            self._changed.notify_all()
        log.info("connected to %s", connection.address)
        self.last_error = None
        self._silent = False

    def _report_loss(self, connection: Connection) -> None:
        reason = connection.lost.exception()
        self.last_error = f"lost the connection to {connection.address}: {reason or 'closed'}"
        self._silent = True
        log.warning("%s", self.last_error)

    def _report_failure(self, error: BrokerError) -> None:
        """One line for an outage, not one per attempt; a new kind of failure is worth another."""
        text = str(error)
        if not self._silent or (self.last_error != text and not isinstance(error, BrokerUnavailable)):
            log.warning("%s; trying again", text)
        self._silent = True
        self.last_error = text

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(BrokerError):
                await connection.close()
