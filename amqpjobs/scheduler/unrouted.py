"""Draining `jobs.unrouted`: what was published to `jobs.direct` with a key that no queue was bound for.

A key that can be a queue's name gets its queue and the job its delivery; what cannot be delivered becomes a dead
record. Either is confirmed before the message is acknowledged. The limits keep a producer of random keys from filling
the broker with queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.model.strays import stray
from amqpjobs.scheduler.drain import Drain
from amqpjobs.scheduler.election import Election
from amqpjobs.streams import policies, topology
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError, Refused, Unroutable
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Consumer, Incoming, Outgoing
from amqpjobs.streams.sender import Sender

log = logging.getLogger("amqpjobs.scheduler")

ATTEMPT_EVERY = 60.0
"""Seconds between two tries to declare the queue of a key."""
MOST_QUEUES = 1000
"""Queues that are there because this process declared them here; beyond that, jobs for further keys die."""
TRIES = 2
"""Tries to declare its queue that a job is kept waiting for."""


class OutOfReach(Exception):
    """Why a job for a key cannot be delivered, ever."""


@dataclass(slots=True, eq=False)
class _Stray:
    message: Incoming
    tries: int = 0


class Unrouted(Drain):
    """Drains the queue while this process is elected."""

    def __init__(self, link: Link, election: Election, clock: Clock, *, identity: str, timeout: float) -> None:
        super().__init__(link, election, clock, names.UNROUTED)
        self.most_queues = MOST_QUEUES
        self._identity = identity
        self._timeout = timeout
        self._sender = Sender(link, clock=clock)
        self._graves = Appender(link, names.DEAD, clock=clock)
        self._held: dict[str, list[_Stray]] = {}
        self._attempted: dict[str, float] = {}
        self._made: set[str] = set()
        self._counted = float("-inf")
        self._policies_set = False

    async def close(self) -> None:
        """Close the channels."""
        await self._sender.close()
        await self._graves.close()

    async def begin(self) -> None:
        """See to the policies that send jobs here, and rejected ones to the dead set; once."""
        self._held = {}
        if not self._policies_set:
            self._policies_set = True
            for remark in await policies.ensure(self._link.settings):
                log.warning("%s", remark)

    async def take(self, connection: Connection, consumer: Consumer, messages: Sequence[Incoming]) -> None:
        """Deliver or bury."""
        by_key: dict[str, list[_Stray]] = defaultdict(list)
        for key in [key for key in self._held if self._may_try(key)]:
            by_key[key] += self._held.pop(key)
        for message in messages:
            by_key[message.routing_key].append(_Stray(message))
        for key, strays in by_key.items():
            await self._deliver(connection, consumer, key, strays)
        now = self._clock.steady()
        self._attempted = {key: at for key, at in self._attempted.items() if now - at < ATTEMPT_EVERY}

    async def _deliver(self, connection: Connection, consumer: Consumer, key: str, strays: list[_Stray]) -> None:
        """Declare the queue if it is time to, and publish; what finds no queue waits for the next try, or dies."""
        reason = "its queue was deleted again and again"
        try:
            if self._may_try(key):
                for each in strays:
                    each.tries += 1
                await self._declare(connection, key)
        except OutOfReach as error:
            await self._bury(consumer, key, strays, str(error))
            return
        except Refused as error:
            reason = f"queue.{key} cannot be declared: {error}"
        left = await self._publish(consumer, key, strays)
        lost = [each for each in left if each.tries >= TRIES]
        if lost:
            await self._bury(consumer, key, lost, reason)
        if waiting := [each for each in left if each.tries < TRIES]:
            self._held.setdefault(key, []).extend(waiting)
            log.warning("%d jobs wait in jobs.unrouted for queue.%s: %s", len(waiting), key, reason)

    def _may_try(self, key: str) -> bool:
        return self._clock.steady() - self._attempted.get(key, float("-inf")) >= ATTEMPT_EVERY

    async def _declare(self, connection: Connection, key: str) -> None:
        if not names.is_queue_name(key):
            raise OutOfReach(f"no queue can have the name {key!r}: 1 to 200 of ASCII letters, digits and ._-: can")
        self._attempted[key] = self._clock.steady()
        queue = names.broker_queue(key)
        missing = await connection.passive(queue) is None
        if missing and await self._full(connection):
            raise OutOfReach(f"{queue} does not exist, and {self.most_queues} queues were made for such keys already")
        await topology.ensure_queue(connection, self._link.settings, key)
        if missing:
            self._made.add(key)
            log.warning("declared %s: jobs came for it and it did not exist", queue)

    async def _full(self, connection: Connection) -> bool:
        """Whether no more queues may be made; counts only those that are still there, once a minute."""
        now = self._clock.steady()
        if len(self._made) >= self.most_queues and now - self._counted >= ATTEMPT_EVERY:
            self._counted = now
            for key in sorted(self._made):
                if await connection.passive(names.broker_queue(key)) is None:
                    self._made.discard(key)
        return len(self._made) >= self.most_queues

    async def _publish(self, consumer: Consumer, key: str, strays: Sequence[_Stray]) -> list[_Stray]:
        """Publish to the queue itself, so that nothing comes back here; those that found no queue."""
        results = await asyncio.gather(*(self._one(key, each.message) for each in strays), return_exceptions=True)
        left = []
        failure: BaseException | None = None
        for each, result in zip(strays, results, strict=True):
            if result is None:
                consumer.ack(each.message.tag)
            elif isinstance(result, Unroutable):
                left.append(each)
            else:
                failure = failure or result
        if failure is not None:
            raise failure
        return left

    async def _one(self, key: str, message: Incoming) -> None:
        out = Outgoing(message.body, "", names.broker_queue(key), message.properties)
        await self._sender.publish(out, timeout=self._timeout)
        if self._link.settings.enqueue_log == "bound":  # it did not come by the exchange that puts jobs on record
            with contextlib.suppress(BrokerError):
                record = Outgoing(message.body, names.LOG_EXCHANGE, key, message.properties)
                await self._sender.publish(record, timeout=self._timeout)

    async def _bury(self, consumer: Consumer, key: str, strays: Sequence[_Stray], reason: str) -> None:
        await self._graves.append([self._record(each.message, key, reason) for each in strays], timeout=self._timeout)
        for each in strays:
            consumer.ack(each.message.tag)
        log.warning("%d jobs for the key %.80r are dead: %.300s", len(strays), key, reason)

    def _record(self, message: Incoming, key: str, reason: str) -> bytes:
        given = message.properties
        return stray(
            message.body,
            key,
            reason,
            now=self._clock.wall(),
            jid=secrets.token_hex(12),
            message_id=given.message_id,
            worker=self._identity,
            properties={
                "priority": given.priority,
                "correlation_id": given.correlation_id,
                "headers": dict(given.headers),
            },
        )
