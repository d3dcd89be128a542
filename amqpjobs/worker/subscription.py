"""One consumer and what is still to be acknowledged on it; a delivery knows its subscription."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from amqpjobs.streams.port import Consumer, Incoming


class Subscription:
    """Acknowledges with as few messages as possible: one `multiple` ack for the unbroken run of settled tags.

    Once `lost`, nothing is sent any more: the broker gives everything unacknowledged again, elsewhere or here.
    """

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.consumer: Consumer | None = None
        self.lost = False
        self._low = 0  # every tag up to here is acknowledged or given back
        self._sent: set[int] = set()  # the same, for tags above
        self._fresh: set[int] = set()  # settled, to be acknowledged in this turn of the loop

    def settle(self, tag: int) -> None:
        """Acknowledge a tag, together with all the others of this turn of the loop."""
        if self.lost:
            return
        if not self._fresh:
            asyncio.get_running_loop().call_soon(self.flush)
        self._fresh.add(tag)

    def give_back(self, tag: int) -> None:
        """Put a message back on its queue, as it was."""
        if self.lost or self.consumer is None:
            return
        self.consumer.nack(tag, requeue=True)
        self._sent.add(tag)

    def flush(self) -> None:
        """Send the acks that are due."""
        if self.lost or self.consumer is None or not self._fresh:
            return
        last = self._advance()
        if last:
            # `last` is unacknowledged itself: RabbitMQ closes the channel over a multiple ack of a tag that it has seen
            self.consumer.ack(last, multiple=True)
        for tag in sorted(self._fresh):
            self.consumer.ack(tag)
        self._sent |= self._fresh
        self._fresh.clear()

    def _advance(self) -> int:
        """Move the low mark over what is settled; the highest tag under it that is to be acknowledged, or 0."""
        last = 0
        while True:
            tag = self._low + 1
            if tag in self._fresh:
                self._fresh.remove(tag)
                last = tag
            elif tag in self._sent:
                self._sent.remove(tag)
            else:
                return last
            self._low = tag


@dataclass(slots=True, eq=False)
class Delivery:
    """One message as it came, good for one ack on the subscription that brought it."""

    incoming: Incoming
    queue: str
    source: Subscription

    @property
    def lost(self) -> bool:
        """Whether the broker has taken it back, because its channel is gone."""
        return self.source.lost

    def settle(self) -> None:
        """Acknowledge it."""
        self.source.settle(self.incoming.tag)

    def give_back(self) -> None:
        """Put it back on its queue."""
        self.source.give_back(self.incoming.tag)
