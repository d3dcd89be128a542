"""One queue's way into this process: subscribed again after each loss, declared again when it was deleted."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.service import Service
from amqpjobs.streams.errors import BrokerError, ConsumerCancelled
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Connection, Incoming
from amqpjobs.worker.declarations import Declarations
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.subscription import Delivery, Subscription
from amqpjobs.worker.window import Window

log = logging.getLogger("amqpjobs.worker")

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0


class Feed(Service):
    """Keeps one queue subscribed and buffers what it delivers. `tried` is set once it is served or has failed to be.

    A pause ends the deliveries. The channel that brought them stays until what was begun is acknowledged on it.
    """

    def __init__(
        self,
        link: Link,
        queue: str,
        ledger: Ledger,
        declared: Declarations,
        *,
        window: Window,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        super().__init__(f"feed {queue}")
        self.queue = queue
        self.source = names.broker_queue(queue)
        """The broker's name of what it consumes."""
        self.buffer: deque[Delivery] = deque()
        self.tried = asyncio.Event()
        self.trouble: str | None = None
        self._link = link
        self._ledger = ledger
        self._declared = declared
        self._window = window
        self._counted = 0
        self._clock = clock
        self._wake = wake
        self._subscription: Subscription | None = None
        self._held: deque[Delivery] = deque()
        self._ebbing: dict[Subscription, asyncio.Task[None]] = {}
        self._paused = asyncio.Event()
        self._resumed = asyncio.Event()
        self._resumed.set()

    def refilling(self, now: float) -> bool:
        """Whether more is likely on its way, though nothing is here: its queue is full, not empty."""
        subscription = self._subscription
        return subscription is not None and not subscription.ending and subscription.refilling(now)

    @property
    def paused(self) -> bool:
        """Whether no job of this queue is begun until somebody resumes it."""
        return self._paused.is_set()

    async def run(self) -> None:
        """Subscribe, wait for the loss or a pause, subscribe again."""
        pause = FIRST_PAUSE
        while True:
            await self._resumed.wait()
            connection = await self._link.connection()
            try:
                subscription = await self._subscribe(connection)
            except BrokerError as error:
                self._report(error, connection)
                await self._clock.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            self._recovered()
            await self._serve(subscription, connection)

    def pause(self) -> None:
        """Begin no more jobs of this queue, and give back what was taken and not begun. Safe to repeat."""
        if not self.paused:
            self._say("queue %s is paused")
            self._paused.set()
            self._resumed.clear()
            self.tried.set()
            self._hold()

    def resume(self) -> None:
        """Take jobs again. Safe to repeat."""
        if self.paused:
            self._say("queue %s is resumed")
            self._paused.clear()
            self._resumed.set()

    async def review(self, seconds: float) -> None:
        """Follow with the prefetch how many jobs were done in the last `seconds`; give back what that is too much for.

        Safe at any time: a subscription that is lost or ending is left alone.
        """
        subscription = self._subscription
        if subscription is None or subscription.ending or subscription.consumer is None:
            return
        settled, self._counted = subscription.count - self._counted, subscription.count
        size, before = self._window.review(settled, seconds), subscription.window
        if size == before:
            return
        subscription.window = size
        with contextlib.suppress(BrokerError):  # it is lost: the next one begins with this size
            await subscription.consumer.resize(size)
        if subscription is self._subscription and not subscription.ending:
            while len(self.buffer) > size:
                self.buffer.pop().give_back()

    def _say(self, line: str) -> None:
        log.info(line, self.queue)

    async def quiet(self) -> None:
        """End the deliveries and give back what was not begun; the channel stays for acks. Safe to repeat."""
        self._hold()
        await self.stop()
        self.tried.set()
        for subscription in self._all():
            await self._withdraw(subscription)

    async def close(self) -> None:
        """Send the acks that are due and close the channel; what is unacknowledged goes back. Safe to repeat."""
        await self.quiet()
        subscriptions, ebbing = self._all(), list(self._ebbing.values())
        self._subscription = None
        for task in ebbing:
            task.cancel()
        if ebbing:
            await asyncio.wait(ebbing)
        for subscription in subscriptions:
            subscription.flush()
            subscription.lost = True
            await _close(subscription)

    def _all(self) -> list[Subscription]:
        current = [] if self._subscription is None else [self._subscription]
        return [*current, *self._ebbing]

    async def _prepare(self, connection: Connection) -> None:
        """See that there is something to consume."""
        await self._declared.ensure(connection, self.queue)

    async def _subscribe(self, connection: Connection) -> Subscription:
        await self._prepare(connection)
        subscription = self._subscription = Subscription(self.queue, self._window.size)
        self._counted = 0
        subscription.ending = self.paused
        subscription.consumer = await connection.consume(
            self.source,
            functools.partial(self._on_message, subscription),
            prefetch=subscription.window,
        )
        return subscription

    async def _serve(self, subscription: Subscription, connection: Connection) -> None:
        """Until the subscription is lost, or the queue is paused (even if it was resumed by now)."""
        assert subscription.consumer is not None
        lost = subscription.consumer.lost
        paused = asyncio.create_task(self._paused.wait())
        waiting: list[asyncio.Future[Any]] = [lost, paused]
        try:
            if not subscription.ending:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            paused.cancel()
        if lost.done():
            await self._on_lost(subscription, lost.exception())
            return
        self._subscription = None
        self._ebbing[subscription] = asyncio.create_task(self._ebb(subscription, connection))
        await self._withdraw(subscription)

    async def _withdraw(self, subscription: Subscription) -> None:
        """First no more deliveries, then give back: what is given back before that may come here again."""
        if subscription.consumer is not None:
            with contextlib.suppress(BrokerError):  # the channel is gone: all that was on it is the broker's already
                await subscription.consumer.cancel()
        subscription.withdrawn = True
        while self._held:  # first first: another worker may take each at once
            self._held.popleft().give_back()
        subscription.end()

    async def _ebb(self, subscription: Subscription, connection: Connection) -> None:
        """Close the channel of a paused queue once all that it brought is settled, or lost with its connection."""
        emptied = asyncio.create_task(subscription.emptied.wait())
        waiting: list[asyncio.Future[Any]] = [emptied, connection.lost]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not subscription.emptied.is_set():
                self._ledger.lose(subscription)
            subscription.lost = True
            await _close(subscription)
        finally:
            emptied.cancel()
            del self._ebbing[subscription]

    def _on_message(self, subscription: Subscription, message: Incoming) -> None:
        delivery = Delivery(message, self.queue, subscription)
        subscription.delivered(message.tag)
        if message.redelivered and self._ledger.adopt(delivery):
            log.info("a copy of a job in hand came back from %s: not run twice", self.queue)
        elif subscription.withdrawn:
            delivery.give_back()
        elif subscription.ending:
            self._held.append(delivery)
        else:
            self.buffer.append(delivery)
            if len(self.buffer) == 1:  # of what comes before the others somebody was told already
                self._wake()

    async def _on_lost(self, subscription: Subscription, reason: BaseException | None) -> None:
        self._subscription = None
        if isinstance(reason, ConsumerCancelled):
            log.warning("queue %s: %s; declaring it again", self.queue, reason)
        self.buffer.clear()  # the broker has these again, or deleted them with their queue
        self._held.clear()
        subscription.lost = True
        self._ledger.lose(subscription)
        await _close(subscription)

    def _hold(self) -> None:
        """From now on nothing that was delivered is begun."""
        if self._subscription is not None:
            self._subscription.ending = True
        self._held.extend(self.buffer)
        self.buffer.clear()

    def _report(self, error: BrokerError, connection: Connection) -> None:
        if connection.lost.done() or self._declared.starting(error, connection):
            return  # the link reports that it is lost, and what is only starting passes
        if self.trouble != str(error):
            log.error("queue %s is not served: %s; trying again", self.queue, error)
        self.trouble = str(error)
        self.tried.set()

    def _recovered(self) -> None:
        if self.trouble is not None:
            log.info("queue %s is served again", self.queue)
        self.trouble = None
        self.tried.set()


async def _close(subscription: Subscription) -> None:
    if subscription.consumer is not None:
        with contextlib.suppress(BrokerError):
            await subscription.consumer.close()
