"""Publishing what is claimed: jobs to their queues, what cannot run to the dead set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.model.arrival import Readable, read_pending
from amqpjobs.model.burial import burial
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.pending import Pending
from amqpjobs.model.release import Release, release
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import TooLarge, Unroutable
from amqpjobs.streams.port import Outgoing, Properties
from amqpjobs.streams.sender import Sender

log = logging.getLogger("amqpjobs.scheduler")

LONGEST_ID = 255
"""Bytes that AMQP allows a message id; a longer jid is in the body all the same."""


class Published(NamedTuple):
    """The identities of what left, by where it went: each was confirmed."""

    enqueued: list[str]
    buried: list[str]


class Releaser:
    """Publishes claimed entries of one delayed stream. Knows nothing of terms: it is given what was granted."""

    def __init__(
        self, stream: str, sender: Sender, graves: Appender, clock: Clock, *, identity: str, timeout: float
    ) -> None:
        self._stream = stream
        self._sender = sender
        self._graves = graves
        self._clock = clock
        self._identity = identity
        self._timeout = timeout

    async def publish(self, entries: Sequence[Pending]) -> Published:
        """Publish all, each confirmed.

        Raises the first BrokerError that is not the entry's own fault; what was published by then may be published
        again by whoever leads next, which is the duplicate window that the design allows.
        """
        results = await asyncio.gather(*(self._one(entry) for entry in entries), return_exceptions=True)
        done = Published([], [])
        failure: BaseException | None = None
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, BaseException):
                failure = failure or result
            else:
                (done.buried if result else done.enqueued).append(entry.id)
        if failure is not None and not (done.buried or done.enqueued):
            raise failure
        return done

    async def _one(self, entry: Pending) -> bool:
        """Publish one; True when it was buried."""
        read = read_pending(self._stream, entry)
        fault = entry.fault or ("Killed", "killed") if entry.bury else await self._enqueue(read)
        if fault is None:
            return False
        record = burial(
            read,
            jid=entry.jid,
            fault=fault,
            origin=f"{self._stream}/{entry.id}",
            now=self._clock.wall(),
            worker=self._identity,
        )
        await self._graves.append([record], timeout=self._timeout)
        log.warning("buried %s of %s: %s: %s", entry.jid, self._stream, *fault)
        return True

    async def _enqueue(self, read: Readable | Unreadable) -> tuple[str, str] | None:
        """Publish to its queue; the fault that keeps it from there for ever, if there is one."""
        made = read if isinstance(read, Unreadable) else release(self._stream, read, now=self._clock.wall())
        if isinstance(made, Unreadable):
            return made.error_class, made.error_message
        try:
            await self._sender.publish(_outgoing(made, read.jid), timeout=self._timeout)
        except (Unroutable, TooLarge) as error:
            return type(error).__name__, str(error)
        return None


def _outgoing(made: Release, jid: str | None) -> Outgoing:
    extra = made.properties
    return Outgoing(
        body=made.body,
        exchange=names.JOBS_EXCHANGE,
        routing_key=made.queue,
        properties=Properties(
            message_id=jid if jid is not None and len(jid.encode()) <= LONGEST_ID else None,
            correlation_id=extra.get("correlation_id"),
            priority=made.priority,
            headers=extra.get("headers") or {},
        ),
    )
