"""Where the view of a delayed stream begins that has nothing, or that retention overtook: with a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.model import names, reading
from amqpjobs.model.checkpoint import Checkpoint, furthest, read_checkpoint
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.trail import Step
from amqpjobs.streams.epoch import digest, first_from, leads_on, tail
from amqpjobs.streams.errors import AccessRefused
from amqpjobs.streams.fetch import message_at
from amqpjobs.streams.port import Connection, FromTime, Incoming, Start
from amqpjobs.streams.subscription import Subscription
from amqpjobs.streams.views import DelayedView

log = logging.getLogger("amqpjobs.streams")

Query = Callable[[Callable[[], Any]], Awaitable[Any]]

RECENT = 1200.0
"""Seconds of `checkpoints` that are read first: a leader writes one every five minutes."""
TRIES = 8
"""Checkpoints that are looked at before a reader does without: each that lies beyond the tail costs a second."""
QUIET = 0.25
SILENCE = 1.0


class ColdStart:
    """Finds the checkpoint to begin with. For `streams.follow.Follower`, which asks when it has nowhere to resume."""

    def __init__(self, view: DelayedView, clock: Clock, *, leads: Callable[[], bool] = lambda: False) -> None:
        self._view = view
        self._clock = clock
        self._leads = leads

    @property
    def lacking(self) -> bool:
        """Whether the view was overtaken. That of a leader stays: the checkpoints that there are tell what it knows."""
        return self._view.lost_before is not None and not self._leads()

    async def begin(self, connection: Connection, query: Query) -> Start:
        """Let the view begin, and where to read from. Raises BrokerError."""
        checkpoint, first = await self._find(connection)
        if checkpoint is None:
            return "first"
        log.info("%s is read from %d on, with a checkpoint of %d", self._view.stream, checkpoint.low, checkpoint.upto)
        await query(lambda: self._view.begin(checkpoint, first))
        return max(first, checkpoint.low)

    async def covers(self, connection: Connection, query: Query) -> bool:
        """Whether there is a checkpoint from whose `low` on the stream is whole; if so, the view is emptied."""
        checkpoint, first = await self._find(connection)
        if checkpoint is None or checkpoint.low < first:
            return False
        await query(self._view.restart)
        return True

    async def _find(self, connection: Connection) -> tuple[Checkpoint | None, int]:
        """The best checkpoint of the stream as it is now, and the first offset that the stream still has."""
        for start in (FromTime(self._clock.wall() - RECENT), "first"):
            known = furthest(await published(connection, self._view.stream, start))
            if not known:
                continue
            first = await first_from(connection, self._view.stream, "first", SILENCE)
            if first is None:
                break
            for each in known[:TRIES]:
                if await self._fits(connection, each, first, known[0].facts.epoch):
                    return each, first
        return None, 0

    async def same(self, connection: Connection, query: Query) -> bool:
        """Whether the stream's last messages are still those that the view folded, or those before the `upto` of the
        checkpoint that it began with. If not so before it passed that, it is emptied: what it read is there still.
        """
        trail: tuple[Step, ...] = await query(self._view.trail)
        same = await leads_on(connection, self._view.stream, trail)
        if not same and await query(self._view.replaying):
            await query(self._view.restart)
        return same

    async def _fits(self, connection: Connection, checkpoint: Checkpoint, first: int, latest: str | None) -> bool:
        """Whether it is of this stream, as the messages before its `upto` prove. Where retention took those, only the
        incarnation that was heard of last is believed."""
        last = checkpoint.upto - 1
        if last < first:
            return checkpoint.facts.epoch == latest
        if checkpoint.trail:
            return await leads_on(connection, self._view.stream, checkpoint.trail)
        found = await message_at(connection, self._view.stream, last)
        return found is not None and digest(found.body).hex() == checkpoint.digest


async def published(connection: Connection, stream: str, start: Start) -> list[Checkpoint]:
    """The checkpoints of `stream` that are in `checkpoints` from `start` on, in their order. Raises BrokerError."""
    try:
        goal = await tail(connection, names.CHECKPOINTS, QUIET)
        if goal is None:
            return []
        reader = await Subscription.open(connection, names.CHECKPOINTS, start)
    except AccessRefused as error:
        log.warning("%s is read from its beginning, as no checkpoints may be read: %s", stream, error)
        return []
    found: list[Checkpoint] = []
    reached = -1
    try:
        while await reader.peek(QUIET if reached >= goal else SILENCE) is not None:
            messages = reader.take(1000)
            found += _checkpoints(stream, messages)
            reached = messages[-1].offset or 0
    finally:
        await reader.close()
    return found


def _checkpoints(stream: str, messages: Sequence[Incoming]) -> list[Checkpoint]:
    found = []
    for message in messages:
        pieces = reading.pieces(message.body)
        for piece in [] if isinstance(pieces, Unreadable) else pieces:
            value = piece.value
            if isinstance(value, dict) and value.get("stream") == stream:
                checkpoint = read_checkpoint(value)
                found += [] if checkpoint is None else [checkpoint]
    return found
