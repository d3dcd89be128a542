"""How much of the dead set is kept: so many records, for so long. What is over, the leader takes out, oldest first.

A record's age is counted from its arrival, by the broker's clock: the time that it tells itself is a stranger's word,
and a record that claims to have died in 1970 must not vanish as it comes. Only where its arrival can no longer be
told (retention took its message, or it is of an earlier life of the stream) its own word counts.
"""

from __future__ import annotations

from typing import NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.model.protocol import Position
from amqpjobs.streams import marks
from amqpjobs.streams.link import Link
from amqpjobs.streams.marks import Mark
from amqpjobs.streams.port import FromTime, Start
from amqpjobs.streams.subscription import Subscription
from amqpjobs.streams.views import DelayedView

INTERVAL = 3600.0
"""Seconds between looks at which messages have become too old."""
PATIENCE = 2.0


class _Line(NamedTuple):
    """The stream's first offset, and the first one that is young enough."""

    first: int
    young: int


class DeadCap:
    """Says what of a dead set is over `most` records or older than `max_age` seconds."""

    def __init__(self, view: DelayedView, reading: Link, clock: Clock, *, most: int, max_age: float) -> None:
        self._view = view
        self._reading = reading
        self._clock = clock
        self._most = most
        self._max_age = max_age
        self._line = _Line(0, 0)
        self._looked: float | None = None

    async def refresh(self) -> None:
        """Look, now and then, how far the stream reaches back. Raises BrokerError."""
        now = self._clock.steady()
        if self._looked is not None and now - self._looked < INTERVAL:
            return
        self._looked = now
        first, young = await self._offset("first"), await self._offset(FromTime(self._clock.wall() - self._max_age))
        if first is not None and young is not None:
            self._line = _Line(first, young)

    def over(self, limit: int) -> list[tuple[str, Position]]:
        """Identity and revision of what is to go, the oldest first; in the view's thread."""
        surplus = self._view.count() - self._most
        oldest_age = self._clock.wall() - self._max_age
        found = marks.oldest_idle(self._view.store, limit)
        return [
            (mark.entry, mark.rev)
            for number, mark in enumerate(found)
            if number < surplus or self._too_old(mark, oldest_age)
        ]

    def _too_old(self, mark: Mark, oldest_age: float) -> bool:
        arrived = mark.entry.partition(":")[0]
        if arrived.isdecimal() and int(arrived) >= self._line.first:
            return int(arrived) < self._line.young
        return mark.at is not None and mark.at < oldest_age

    async def _offset(self, start: Start) -> int | None:
        reader = await Subscription.open(await self._reading.connection(), self._view.stream, start, prefetch=1)
        try:
            message = await reader.peek(PATIENCE)
        finally:
            await reader.close()
        return None if message is None else message.offset
