"""One consumer and what is still to be acknowledged on it; a delivery knows its subscription."""

from __future__ import annotations

import asyncio

from amqpjobs.streams.port import Consumer, Incoming

REFILL = 0.05
"""Seconds in which a broker that had more to give has given it, once it was acknowledged enough."""


class Subscription:
    """Acknowledges with as few messages as possible: one `multiple` ack for all that lies before the oldest open tag.

    Once `lost`, nothing is sent any more: the broker gives everything unacknowledged again, elsewhere or here.
    """

    def __init__(self, queue: str, window: int) -> None:
        self.queue = queue
        self.window = window
        self.consumer: Consumer | None = None
        self.lost = False
        self.ending = False
        """No job of it is begun any more: its queue is paused, or this process takes no more."""
        self.withdrawn = False
        """The broker delivers nothing more on it."""
        self.emptied = asyncio.Event()
        """Set when it is ending and all that it brought is acknowledged or given back."""
        self._open: dict[int, None] = {}  # delivered and not settled, oldest first; at most as many as the prefetch
        self._settled: set[int] = set()  # to be acknowledged in this turn of the loop
        self._refill_until = 0.0
        self.count = 0
        """Jobs settled on it, ever."""

    def delivered(self, tag: int) -> None:
        """Take note of a delivery; tags only grow."""
        self._open[tag] = None

    def settle(self, tag: int) -> None:
        """Acknowledge a tag, together with all the others of this turn of the loop."""
        if self.lost:
            return
        if not self._settled:
            asyncio.get_running_loop().call_soon(self.flush)
        del self._open[tag]
        self._settled.add(tag)
        self.count += 1

    def give_back(self, tag: int) -> None:
        """Put a message back on its queue, as it was."""
        if self.lost or self.consumer is None:
            return
        del self._open[tag]
        self.consumer.nack(tag, requeue=True)
        self._check_emptied()

    def refilling(self, now: float) -> bool:
        """Whether the broker has given all that it may, or was just allowed more; `now` in the loop's seconds."""
        return now < self._refill_until or len(self._open) + len(self._settled) >= self.window

    def end(self) -> None:
        """Begin none of its jobs any more."""
        self.ending = True
        self._check_emptied()

    def flush(self) -> None:
        """Send the acks that are due."""
        if self.lost or self.consumer is None or not self._settled:
            return
        if len(self._open) + len(self._settled) >= self.window:
            self._refill_until = asyncio.get_running_loop().time() + REFILL
        settled, self._settled = sorted(self._settled), set()
        oldest = next(iter(self._open), settled[-1] + 1)
        before = [tag for tag in settled if tag < oldest]
        if before:
            # the last of these is unacknowledged itself: RabbitMQ closes the channel over one that it has seen already
            self.consumer.ack(before[-1], multiple=True)
        for tag in settled[len(before) :]:
            self.consumer.ack(tag)
        self._check_emptied()

    def _check_emptied(self) -> None:
        if self.withdrawn and not self._open and not self._settled:
            self.emptied.set()


class Delivery:
    """One job in this process: the message as it came, and the subscription that it is acknowledged on.

    `written`: all that must be recorded of it is confirmed. `unconfirmed`: so many of its records are not, at its end.
    """

    __slots__ = ("incoming", "queue", "source", "unconfirmed", "written")

    def __init__(self, incoming: Incoming, queue: str, source: Subscription) -> None:
        self.incoming = incoming
        self.queue = queue
        self.source = source
        self.written = False
        self.unconfirmed = 0

    def came_again(self, copy: Delivery) -> None:
        """The broker took the message back with its channel, and delivered this copy: it is settled in its place."""
        self.incoming = copy.incoming
        self.source = copy.source

    @property
    def lost(self) -> bool:
        """Whether the broker has taken it back, because its channel is gone."""
        return self.source.lost

    def give_back(self) -> None:
        """Put it back on its queue."""
        self.source.give_back(self.incoming.tag)
