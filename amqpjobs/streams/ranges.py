"""A range of a stream, read once from end to end: for programs that work in batches, where a view follows for ever.

A range ends at a message that was seen, and carries that message's digest. So a reader knows when it has all of it
(offsets have gaps, and brokers move an offset beyond the end without a word), and that nobody made the stream anew
in between.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from amqpjobs.streams.epoch import SILENCE, Finding, digest, first_from, judge, tail
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.port import Connection, Incoming, Start
from amqpjobs.streams.subscription import Subscription

PREFETCH = 2000
QUIET = 0.25
"""Seconds without a delivery after which the tail is reached."""
CHASE = 0.5
"""Seconds for which the tail is followed: others may append faster than we look."""
PATIENCE = 20.0
"""Seconds without a delivery inside a range, all of which was there a moment ago."""
BATCH = 10_000
"""Messages that are handed on at once, at most."""


class RangeLost(BrokerError):
    """Messages of the range are gone: retention took them, or the stream was made anew."""


class Position(NamedTuple):
    """How far a stream was read: the next offset wanted, and the digest of the message at `next - 1`."""

    next: int
    digest: bytes


class Range(NamedTuple):
    """What to read of `stream`: from `start` to the message before `end`, whose digest this is (None: not checked).

    `lost`: so many offsets before `start` were trimmed unread. `anew`: `start` belongs to another stream of this name.
    `tail`: where the stream ended when that was planned.
    """

    stream: str
    start: int
    end: int
    digest: bytes | None
    lost: int = 0
    anew: bool = False
    tail: int = 0

    def slices(self, most: int, least: int = 2000) -> list[Range]:
        """This range in up to `most` pieces of at least `least` offsets; the last one has the digest."""
        count = max(1, min(most, (self.end - self.start) // least))
        edges = [self.start + (self.end - self.start) * n // count for n in range(count + 1)]
        pieces = [Range(self.stream, low, high, None) for low, high in itertools.pairwise(edges)]
        return [*pieces[:-1], pieces[-1]._replace(digest=self.digest)]


async def following(connection: Connection, stream: str, position: Position | None, most: int) -> Range | None:
    """The range of up to about `most` messages after `position` (None: from the first one); None when there is none.

    Raises NotFound, AccessRefused, ConnectionLost.
    """
    lost, anew, start = 0, False, None
    if position is not None:
        resumed = await Subscription.open(connection, stream, position.next - 1)
        try:
            finding = await judge(connection, stream, (position.next - 1, position.digest), resumed)
            if finding is Finding.SAME:
                resumed.take(1)
                if await resumed.peek(QUIET) is None:
                    return None
        finally:
            await resumed.close()
        anew = finding is Finding.ANEW
        start = None if finding is not Finding.SAME else position.next
    if start is None:
        first = await lowest(connection, stream)
        if first is None:
            return None
        start = first if position is None or anew else max(first, position.next)
        lost = 0 if position is None or anew else start - position.next
    tip = await newest(connection, stream)
    if tip is None or tip.next <= start:
        return None
    end = tip if tip.next - start <= most else await _after_message(connection, stream, start + most - 1)
    return Range(stream, start, end.next, end.digest, lost, anew, tip.next)


async def same(connection: Connection, stream: str, position: Position) -> bool:
    """Whether the stream still is the one whose message before `position` this is, or can be (it may be trimmed)."""
    resumed = await Subscription.open(connection, stream, position.next - 1, prefetch=1)
    try:
        finding = await judge(connection, stream, (position.next - 1, position.digest), resumed)
    finally:
        await resumed.close()
    return finding is not Finding.ANEW


async def lowest(connection: Connection, stream: str) -> int | None:
    """The offset of the first message that there is; None of an empty stream."""
    return await first_from(connection, stream, "first", SILENCE)


async def newest(connection: Connection, stream: str) -> Position | None:
    """The position after the newest message, or one of the newest of a stream that grows; None of an empty one."""
    start: Start | None = "last"
    if connection.server.get("product") == "LavinMQ":
        start = await tail(connection, stream, SILENCE)
    if start is None:
        return None
    reader = await Subscription.open(connection, stream, start)
    clock = asyncio.get_running_loop().time
    deadline, last = clock() + CHASE, None
    try:
        while await reader.peek(QUIET) is not None and (last is None or clock() < deadline):
            last = reader.take(BATCH)[-1]
    finally:
        await reader.close()
    return None if last is None else _after(last)


async def _after_message(connection: Connection, stream: str, offset: int) -> Position:
    """The position after the first message from `offset` on."""
    reader = await Subscription.open(connection, stream, offset, prefetch=1)
    try:
        message = await reader.peek(PATIENCE)
    finally:
        await reader.close()
    if message is None:
        raise RangeLost(f"{stream}: nothing is at {offset}, though the stream reached beyond it")
    return _after(message)


class RangeReader:
    """The messages of one range, in batches.

    With `skip`, messages that retention took meanwhile are left out, and `lost` says how many offsets; else they raise
    RangeLost. A stream that was made anew always does.
    """

    def __init__(self, connection: Connection, wanted: Range, subscription: Subscription, *, skip: bool) -> None:
        self.lost = 0
        self._connection = connection
        self._range = wanted
        self._subscription = subscription
        self._skip = skip
        self._next = wanted.start

    @classmethod
    async def open(cls, connection: Connection, wanted: Range, *, skip: bool = False) -> RangeReader:
        """Begin to read. Raises NotFound, AccessRefused, ConnectionLost."""
        subscription = await Subscription.open(connection, wanted.stream, wanted.start, prefetch=PREFETCH)
        return cls(connection, wanted, subscription, skip=skip)

    async def take(self) -> list[Incoming]:
        """The next messages; empty when the range was read to its end. Raises RangeLost, ConnectionLost."""
        if self._next >= self._range.end:
            return []
        if await self._subscription.peek(PATIENCE) is None:
            raise self._gone(f"nothing came from {self._next} on for {PATIENCE:g} s")
        messages = self._subscription.take(BATCH)
        await self._check_gaps(messages)
        self._next = _offset(messages[-1]) + 1
        if self._next < self._range.end:
            return messages
        messages = [message for message in messages if _offset(message) < self._range.end]
        self._check_end(messages[-1] if messages else None)
        return messages

    async def close(self) -> None:
        """Stop reading; safe to repeat."""
        await self._subscription.close()

    async def _check_gaps(self, messages: Sequence[Incoming]) -> None:
        """Offsets that are missing are a gap of the broker's, or what retention took, also from under the reader."""
        expected = self._next
        first, last = _offset(messages[0]), _offset(messages[-1])
        if first == expected and last - first + 1 == len(messages):
            return
        if first < expected:
            raise self._gone(f"the stream was made anew: {expected} was asked for, {first} came")
        for offset in map(_offset, messages):
            if offset > expected:
                await self._check_gap(expected, min(offset, self._range.end))
            expected = offset + 1

    async def _check_gap(self, low: int, high: int) -> None:
        there = await lowest(self._connection, self._range.stream)
        if there is None or there <= low:
            return
        self.lost += min(there, high) - low
        if not self._skip:
            raise self._gone(f"retention took {low} to {min(there, high) - 1} before they were read")

    def _check_end(self, last: Incoming | None) -> None:
        wanted = self._range.digest
        if wanted is None or (last is None and self._skip and self.lost):
            return
        if last is None or _offset(last) != self._range.end - 1 or digest(last.body) != wanted:
            raise self._gone(f"the message at {self._range.end - 1} is not the one that was seen there")

    def _gone(self, what: str) -> RangeLost:
        return RangeLost(f"{self._range.stream}: {what}")


def _after(message: Incoming) -> Position:
    return Position(_offset(message) + 1, digest(message.body))


def _offset(message: Incoming) -> int:
    if message.offset is None:
        raise RangeLost("what is read is no stream: its messages have no offset")
    return message.offset
