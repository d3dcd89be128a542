"""One queue's way into this process: subscribed again after each loss, declared again when it was deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.service import Service
from amqpjobs.streams import topology
from amqpjobs.streams.errors import BrokerError, ConsumerCancelled
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Incoming
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.subscription import Delivery, Subscription

log = logging.getLogger("amqpjobs.worker")

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0


class Declarations:
    """Declares the topology once for each connection, whichever queue comes first."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = asyncio.Lock()
        self._done: Connection | None = None
        self._said: set[str] = set()

    async def ensure(self, connection: Connection, queue: str) -> None:
        """Declare what is missing for `queue` and for all else. Raises what makes it impossible to consume from it."""
        async with self._lock:
            if self._done is not connection:
                await self._ensure_all(connection)
                self._done = connection
            self._say(await topology.ensure_queue(connection, self._link.settings, queue))

    async def _ensure_all(self, connection: Connection) -> None:
        try:
            self._say(await topology.ensure(connection, self._link.settings))
        except BrokerError as error:
            if connection.lost.done():
                raise
            self._say([f"the topology is incomplete: {error}"])  # what is there may serve all the same

    def _say(self, remarks: Sequence[str]) -> None:
        for remark in remarks:
            if remark not in self._said:
                self._said.add(remark)
                log.warning("%s", remark)


class Feed(Service):
    """Keeps one queue subscribed and buffers what it delivers. `tried` is set once it is served or has failed to be."""

    def __init__(
        self,
        link: Link,
        queue: str,
        ledger: Ledger,
        declared: Declarations,
        *,
        prefetch: int,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(f"feed {queue}")
        self.queue = queue
        self.buffer: deque[Delivery] = deque()
        self.tried = asyncio.Event()
        self.trouble: str | None = None
        self._link = link
        self._ledger = ledger
        self._declared = declared
        self._prefetch = prefetch
        self._clock = clock
        self._wake = wake
        self._subscription: Subscription | None = None
        self._quiet = False

    async def run(self) -> None:
        """Subscribe, wait for the loss, subscribe again."""
        pause = FIRST_PAUSE
        while True:
            connection = await self._link.connection()
            try:
                consumer_lost = await self._subscribe(connection)
            except BrokerError as error:
                self._report(error, connection)
                await self._clock.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            self._recovered()
            await asyncio.wait([consumer_lost])
            await self._on_lost(consumer_lost)

    async def quiet(self) -> None:
        """End the deliveries and give back what was not begun; the channel stays for acks. Safe to repeat."""
        self._quiet = True
        await self.stop()
        consumer = self._subscription.consumer if self._subscription else None
        if consumer is not None:
            with contextlib.suppress(BrokerError):  # the channel is gone: all that was on it is the broker's already
                await consumer.cancel()
        self._give_back_buffer()

    async def close(self) -> None:
        """Send the acks that are due and close the channel; what is unacknowledged goes back. Safe to repeat."""
        await self.quiet()
        subscription, self._subscription = self._subscription, None
        if subscription is None or subscription.consumer is None:
            return
        subscription.flush()
        subscription.lost = True
        with contextlib.suppress(BrokerError):
            await subscription.consumer.close()

    async def _subscribe(self, connection: Connection) -> asyncio.Future[None]:
        await self._declared.ensure(connection, self.queue)
        subscription = self._subscription = Subscription(self.queue)
        subscription.consumer = await connection.consume(
            names.broker_queue(self.queue),
            lambda message: self._on_message(message, subscription),
            prefetch=self._prefetch,
        )
        return subscription.consumer.lost

    def _on_message(self, message: Incoming, subscription: Subscription) -> None:
        delivery = Delivery(message, self.queue, subscription)
        subscription.delivered(message.tag)
        if self._ledger.adopt(delivery):
            log.info("a copy of a job in hand came back from %s: not run twice", self.queue)
            return
        if self._quiet:
            delivery.give_back()
            return
        self.buffer.append(delivery)
        self._wake()

    async def _on_lost(self, consumer_lost: asyncio.Future[None]) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        reason = consumer_lost.exception()
        if isinstance(reason, ConsumerCancelled):
            log.warning("queue %s: %s; declaring it again", self.queue, reason)
        self.buffer.clear()  # the broker has these again, or deleted them with their queue
        subscription.lost = True
        self._ledger.lose(subscription)
        if subscription.consumer is not None:
            await subscription.consumer.close()

    def _give_back_buffer(self) -> None:
        """First first: another worker may take each at once, and the broker puts it where it was if none does."""
        while self.buffer:
            self.buffer.popleft().give_back()

    def _report(self, error: BrokerError, connection: Connection) -> None:
        if connection.lost.done():
            return  # the link reports that
        if self.trouble != str(error):
            log.error("queue %s is not served: %s; trying again", self.queue, error)
        self.trouble = str(error)
        self.tried.set()

    def _recovered(self) -> None:
        if self.trouble is not None:
            log.info("queue %s is served again", self.queue)
        self.trouble = None
        self.tried.set()
