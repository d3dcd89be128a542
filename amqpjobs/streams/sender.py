"""Publishing to queues and exchanges: persistent, confirmed, mandatory, and bounded in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.streams import topology
from amqpjobs.streams.channel import PublishingChannel
from amqpjobs.streams.errors import (
    BrokerUnavailable,
    ConfirmTimeout,
    ConnectionLost,
    Nacked,
    NotFound,
    PreconditionFailed,
    Refused,
    TooLarge,
    Unroutable,
)
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Outgoing

log = logging.getLogger("amqpjobs.streams")

TOPOLOGY = "/topology"
"""Stands among the names of queues for all that is not a queue; no queue can have this name."""

WINDOW = 512
"""Messages under way at once: the broker confirms in groups, and what is unconfirmed costs memory on both sides."""

MOST_VERIFIED = 10_000
"""Queues remembered to exist."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

REPAIRS = 3
"""How often one publish declares what is missing: something else may be deleting it all the time."""


@dataclass(slots=True)
class _Progress:
    sent: bool = False
    repairs: int = 0


class Sender:
    """Publishes each message at least once. Safe for many tasks at once, which then share the broker's confirms."""

    def __init__(self, link: Link, *, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._channel = PublishingChannel(link)
        self._window = asyncio.Semaphore(WINDOW)
        self._repairing = asyncio.Lock()
        self._repaired: dict[str, int] = {}
        self._verified: set[str] = set()
        self._verified_on: Connection | None = None

    async def publish(self, message: Outgoing, *, timeout: float | None = None) -> None:
        """Publish and return once the broker confirmed it; `timeout` is in seconds, the broker's absence included.

        A job for a valid queue that does not exist yet: the queue is declared. Raises Unroutable (a key that is no
        queue's name, or nothing bound to the exchange), ConfirmTimeout (may have arrived), BrokerUnavailable (certainly
        not sent), TooLarge, Refused.
        """
        progress = _Progress()
        try:
            async with asyncio.timeout(timeout), self._window:
                await self._until_confirmed(message, progress)
        except TimeoutError:
            if progress.sent:
                raise ConfirmTimeout(f"no confirm within {timeout:g} s: the message may have arrived") from None
            reason = self._link.blocked or self._link.last_error or "the broker did not answer"
            raise BrokerUnavailable(f"nothing was sent: {reason}") from None

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        await self._channel.close()

    async def _until_confirmed(self, message: Outgoing, progress: _Progress) -> None:
        pause = FIRST_PAUSE
        remedy = _remedy(message)
        while True:
            repaired = self._repaired.get(remedy, 0)
            try:
                publisher = await self._channel.open()
                known = message.exchange in self._verified and remedy in self._verified
                if not known or self._channel.connection is not self._verified_on:
                    await self._verify(message.exchange, remedy)
                if len(message.body) > self._link.largest_message:
                    most = self._link.largest_message
                    raise TooLarge(f"a message of {len(message.body)} bytes does not fit: the limit is {most}")
                progress.sent = True
                return await publisher.publish(message)
            except (ConnectionLost, Nacked) as error:
                log.debug("publishing to %s/%s again: %s", message.exchange, message.routing_key, error)
            except (Unroutable, NotFound) as error:
                progress.sent = False
                progress.repairs += 1
                if not remedy or progress.repairs > REPAIRS:
                    raise
                missing = TOPOLOGY if isinstance(error, NotFound) else remedy
                await self._repair(missing, repaired if missing == remedy else self._repaired.get(missing, 0))
                continue
            await self._clock.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _verify(self, exchange: str, remedy: str) -> None:
        """See that an exchange and a job's queue exist before the first use of them on a connection.

        A publish to a missing exchange closes the channel, and with messages of others still on their way to the socket
        that may cost the whole connection (504, frames on a closed channel). A job for a missing queue is returned only
        where no alternate exchange takes it, and there it would wait for the leader.
        """
        async with self._repairing:
            connection = self._channel.connection
            if connection is not self._verified_on or len(self._verified) > MOST_VERIFIED:
                self._verified_on, self._verified = connection, {"", TOPOLOGY}
            kind = topology.EXCHANGES.get(exchange)
            if connection is not None and kind is not None and exchange not in self._verified:
                with contextlib.suppress(PreconditionFailed):  # another kind than ours: the topology reports that
                    await connection.declare_exchange(exchange, kind)
            self._verified.add(exchange)
            if connection is not None and remedy not in self._verified:
                with contextlib.suppress(Refused):  # no right to declare: what becomes of the job is the broker's
                    if await connection.passive(names.broker_queue(remedy)) is None:
                        await topology.ensure_queue(connection, self._link.settings, remedy)
            self._verified.add(remedy)

    async def _repair(self, what: str, seen: int) -> None:
        """Declare what is missing: once for all the messages that met it, by the count that each saw before."""
        async with self._repairing:
            if self._repaired.get(what, 0) != seen:
                return
            try:
                connection = await self._link.connection()
                if what == TOPOLOGY:
                    await topology.ensure(connection, self._link.settings)
                else:
                    await topology.ensure_queue(connection, self._link.settings, what)
            except ConnectionLost:
                return
            self._repaired[what] = seen + 1


def _remedy(message: Outgoing) -> str:
    """What to declare when nothing takes the message: a queue by its name, the topology, or (empty) nothing."""
    if message.exchange == names.JOBS_EXCHANGE:
        return message.routing_key if names.is_queue_name(message.routing_key) else ""
    if message.exchange in (names.DEAD_EXCHANGE, names.UNROUTED):
        return TOPOLOGY
    return TOPOLOGY if message.exchange == "" and message.routing_key in names.STREAMS else ""
