"""Publishing to queues and exchanges: persistent, confirmed, mandatory, and bounded in time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Iterable, Mapping, Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.streams import topology
from amqpjobs.streams.channel import PublishingChannel
from amqpjobs.streams.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfirmTimeout,
    ConnectionLost,
    Nacked,
    NotFound,
    PreconditionFailed,
    Refused,
    TooLarge,
    Unroutable,
    again,
)
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Batch, Connection, Outgoing
from amqpjobs.streams.room import Room

log = logging.getLogger("amqpjobs.streams")

TOPOLOGY = "/topology"
"""Stands among the names of queues for all that is not a queue; no queue can have this name."""

MOST_UNDER_WAY = 4096
"""Messages under way at once: the broker confirms in groups, and what is unconfirmed costs memory on both sides."""

MOST_VERIFIED = 10_000
"""Queues remembered to exist."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

REPAIRS = 3
"""How often one publish declares what is missing: something else may be deleting it all the time."""


class _Work:
    """Messages to be published. `left`: the indexes of those that are not; `failed`: why others never will be."""

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self.messages = messages
        self.left: Sequence[int] = range(len(messages))
        self.failed: dict[int, BrokerError] = {}
        self.sent: set[int] = set()
        """Of those that are left: they may have arrived."""
        self.repairs: dict[int, int] = {}

    def batch(self) -> Batch:
        """What is left."""
        return Batch(self.messages if len(self.left) == len(self.messages) else [self.messages[i] for i in self.left])

    def addresses(self) -> Iterable[tuple[str, str]]:
        """Exchange and key of what is left, each once and in order."""
        return dict.fromkeys([_address(self.messages[index]) for index in self.left])

    def fail(self, indexes: Iterable[int], error: BrokerError) -> None:
        """Give up on some of those that are left, all for the same reason."""
        self.drop({index: again(error) for index in indexes})

    def drop(self, errors: Mapping[int, BrokerError]) -> None:
        """Give up on some of those that are left."""
        self.failed.update(errors)
        self.left = [index for index in self.left if index not in self.failed]

    def take_in(self, batch: Batch) -> dict[int, BrokerError]:
        """What became of `batch()`: of those that are left for another try, why this one failed."""
        if not batch.pending and not batch.failed:
            self.left = ()
            return {}
        self.sent.update(self.left[at] for at in (*batch.pending, *batch.failed) if at < batch.sent)
        failed = {self.left[at]: error for at, error in batch.failed.items()}
        self.left = [index for at, index in enumerate(self.left) if at in batch.pending or at in batch.failed]
        return failed


class Sender:
    """Publishes each message at least once. Safe for many tasks at once, which then share the broker's confirms."""

    def __init__(self, link: Link, *, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._channel = PublishingChannel(link)
        self._room = Room(MOST_UNDER_WAY)
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
        failed = await self.publish_many((message,), timeout=timeout)
        if failed:
            raise failed[0]

    async def publish_many(
        self, messages: Sequence[Outgoing], *, timeout: float | None = None
    ) -> dict[int, BrokerError]:
        """Publish all of them together, and return once each was confirmed or given up: why, by index, if any was.

        They arrive in their order, and calls after one another in that of the calls, unless some have to be repeated.
        `timeout` and the errors are those of `publish`.
        """
        work = _Work(messages)
        try:
            async with asyncio.timeout(timeout):
                taken = await self._room.take(len(messages))
                try:
                    await self._until_confirmed(work)
                finally:
                    self._room.give(taken)
        except TimeoutError:
            reason = self._link.blocked or self._link.last_error or "the broker did not answer"
            for index in work.left:
                work.failed[index] = (
                    ConfirmTimeout(f"no confirm within {timeout:g} s: the message may have arrived")
                    if index in work.sent
                    else BrokerUnavailable(f"nothing was sent: {reason}")
                )
        return work.failed

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        await self._channel.close()

    async def _until_confirmed(self, work: _Work) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._try(work)
            except (ConnectionLost, Nacked) as error:
                log.debug("publishing again: %s", error)
            except BrokerError as error:
                work.fail(work.left, error)
            if not work.left:
                return
            await self._clock.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try(self, work: _Work) -> None:
        """Publish what is left, and again what only lacked a queue. Raises ConnectionLost or Nacked if some is left."""
        while work.left:
            seen = dict(self._repaired)
            publisher = await self._channel.open()
            await self._verify_all(work)
            work.drop(self._too_large(work))
            batch = work.batch()
            try:
                await publisher.publish_many(batch)
            finally:
                failed = work.take_in(batch)
            await self._remedied(work, failed, seen)

    def _too_large(self, work: _Work) -> dict[int, BrokerError]:
        limit = self._link.largest_message
        sizes = ((index, len(work.messages[index].body)) for index in work.left)
        return {
            index: TooLarge(f"a message of {size} bytes does not fit: the limit is {limit}")
            for index, size in sizes
            if size > limit
        }

    async def _verify_all(self, work: _Work) -> None:
        """See that exchanges and jobs' queues exist before the first use of them on a connection.

        A publish to a missing exchange closes the channel, and with messages of others still on their way to the socket
        that may cost the whole connection (504, frames on a closed channel). A job for a missing queue is returned only
        where no alternate exchange takes it, and there it would wait for the leader.
        """
        addresses = work.addresses()
        if all(map(self._known, addresses)):
            return
        async with self._repairing:  # for all of them: a later call must not come first with what both publish to
            for address in addresses:
                try:
                    await self._verify(*address)
                except Refused as error:
                    work.fail([index for index in work.left if _address(work.messages[index]) == address], error)

    def _known(self, address: tuple[str, str]) -> bool:
        known = address[0] in self._verified and _remedy(*address) in self._verified
        return known and self._channel.connection is self._verified_on

    async def _verify(self, exchange: str, routing_key: str) -> None:
        remedy = _remedy(exchange, routing_key)
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

    async def _remedied(self, work: _Work, failed: Mapping[int, BrokerError], seen: Mapping[str, int]) -> None:
        """Declare what was missing, and give up what it cannot help. Raises the ConnectionLost or Nacked of any."""
        missing: dict[str, list[int]] = {}
        hopeless: dict[int, BrokerError] = {}
        passing: BrokerError | None = None
        for index, error in failed.items():
            if isinstance(error, (ConnectionLost, Nacked)):
                passing = error
                continue
            remedy = _remedy(*_address(work.messages[index])) if isinstance(error, (Unroutable, NotFound)) else ""
            work.sent.discard(index)
            work.repairs[index] = work.repairs.get(index, 0) + 1
            if remedy and work.repairs[index] <= REPAIRS:
                missing.setdefault(TOPOLOGY if isinstance(error, NotFound) else remedy, []).append(index)
            else:
                hopeless[index] = error
        work.drop(hopeless)
        for what, indexes in missing.items():
            try:
                await self._repair(what, seen.get(what, 0))
            except Refused as error:
                work.fail(indexes, error)
        if passing is not None:
            raise passing

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


def _address(message: Outgoing) -> tuple[str, str]:
    return message.exchange, message.routing_key


@functools.lru_cache(1024)
def _remedy(exchange: str, routing_key: str) -> str:
    """What to declare when nothing takes a message: a queue by its name, the topology, or (empty) nothing."""
    if exchange == names.JOBS_EXCHANGE:
        return routing_key if names.is_queue_name(routing_key) else ""
    if exchange in (names.DEAD_EXCHANGE, names.UNROUTED):
        return TOPOLOGY
    return TOPOLOGY if exchange == "" and routing_key in names.STREAMS else ""
