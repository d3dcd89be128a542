"""Publishing what is claimed: jobs to their queues, what cannot run to the dead set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.model.arrival import read_pending
from amqpjobs.model.burial import burial
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.pending import Pending
from amqpjobs.model.release import Release, quick, release
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import TooLarge, Unroutable
from amqpjobs.streams.port import NO_HEADERS, Outgoing, Properties
from amqpjobs.streams.sender import Sender

log = logging.getLogger("amqpjobs.scheduler")

LONGEST_ID = 255
"""Bytes that AMQP allows a message id; a longer jid is in the body all the same."""


Fault = tuple[str, str]
"""Error class and message of what is buried."""


class Published(NamedTuple):
    """The identities of what left, by where it went, each confirmed; `failed` is to be tried again for `error`."""

    enqueued: list[str]
    buried: list[str]
    failed: list[Pending]
    error: BaseException | None


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
        """Publish all together and return once each was confirmed, or given up for now. Raises nothing of the broker's:
        what failed may have arrived, and is the caller's to try again."""
        faults, failed = await self._enqueue(entries)
        buried = {index: self._bury(entries[index], fault) for index, fault in faults.items()}
        results = await asyncio.gather(*buried.values(), return_exceptions=True)
        for index, result in zip(buried, results, strict=True):
            if isinstance(result, BaseException):
                failed[index] = result
        left = [index for index in range(len(entries)) if index not in failed]
        return Published(
            [entries[index].id for index in left if index not in faults],
            [entries[index].id for index in left if index in faults],
            [entries[index] for index in sorted(failed)],
            next(iter(failed.values()), None),
        )

    async def _enqueue(self, entries: Sequence[Pending]) -> tuple[dict[int, Fault], dict[int, BaseException]]:
        """Publish to their queues, all together: a call of its own for each costs as much as all the rest.

        By index: what keeps an entry from there for ever, and what only went wrong now.
        """
        faults: dict[int, Fault] = {}
        ready: dict[int, Outgoing] = {}
        now = self._clock.wall()
        for index, entry in enumerate(entries):
            made = self._made(entry, now)
            if isinstance(made, Outgoing):
                ready[index] = made
            else:
                faults[index] = made
        refused = await self._sender.publish_many(list(ready.values()), timeout=self._timeout) if ready else {}
        failed: dict[int, BaseException] = {}
        for place, error in refused.items():
            index = list(ready)[place]
            if isinstance(error, Unroutable | TooLarge):
                faults[index] = type(error).__name__, str(error)
            else:
                failed[index] = error
        return faults, failed

    def _made(self, entry: Pending, now: float) -> Outgoing | Fault:
        """What is to be published, or why nothing can be."""
        if entry.bury:
            return entry.fault or ("Killed", "killed")
        made = quick(self._stream, entry, now=now)
        if made is not None:
            return _outgoing(made, entry.jid)
        read = read_pending(self._stream, entry)
        slow = read if isinstance(read, Unreadable) else release(self._stream, read, now=now)
        return (slow.error_class, slow.error_message) if isinstance(slow, Unreadable) else _outgoing(slow, read.jid)

    async def _bury(self, entry: Pending, fault: Fault) -> None:
        record = burial(
            read_pending(self._stream, entry),
            jid=entry.jid,
            fault=fault,
            origin=f"{self._stream}/{entry.id}",
            now=self._clock.wall(),
            worker=self._identity,
        )
        await self._graves.append([record], timeout=self._timeout)
        log.warning("buried %s of %s: %s: %s", entry.jid, self._stream, *fault)


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
            headers=extra.get("headers") or NO_HEADERS,
        ),
    )
