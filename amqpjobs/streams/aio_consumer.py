"""A subscription over aiormq: the `Consumer` of the port."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage

from amqpjobs.streams.aio_publisher import CLOSE_SECONDS, close_channel
from amqpjobs.streams.errors import BrokerError, ConsumerCancelled
from amqpjobs.streams.lifeline import Lifeline
from amqpjobs.streams.port import OFFSET_HEADER, Handler, Incoming, Properties, Scalar
from amqpjobs.streams.translation import translated

log = logging.getLogger("amqpjobs.streams")


class AioConsumer:
    """One consumer on one channel; see `port.Consumer`."""

    def __init__(self, channel: AbstractChannel, handler: Handler) -> None:
        self._channel = channel
        self._handler = handler
        self._channel_life = Lifeline()
        self._subscription = Lifeline()
        self._changing = asyncio.Lock()
        self._arguments: tuple[str, bool, dict[str, object]] = ("", False, {})
        self._tags: list[str] = []
        self._early: list[Incoming] | None = []
        self._outbox: deque[tuple[int, bool, bool | None]] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._closing = False
        channel.closing.add_done_callback(self._on_closed)
        channel.on_consumer_cancel_callbacks.add(self._on_cancelled)

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when no further message will come."""
        return self._subscription.lost

    async def subscribe(self, queue: str, *, prefetch: int, exclusive: bool, arguments: Mapping[str, object]) -> None:
        """Set the prefetch and start the deliveries. The handler is first called after the caller had its turn."""
        self._arguments = queue, exclusive, dict(arguments)
        try:
            await self._begin(prefetch)
        except BrokerError as error:
            raise self._refusal(error) from error.__cause__
        asyncio.get_running_loop().call_soon(self._release_early)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Acknowledge; queued for sending."""
        self._post(tag, multiple, None)

    def nack(self, tag: int, *, requeue: bool = True) -> None:
        """Give a message back, or drop it to the dead-letter exchange."""
        self._post(tag, False, requeue)

    async def resize(self, prefetch: int) -> None:
        """A second subscription takes over from the first: the prefetch of one that runs cannot be changed."""
        async with self._changing:
            if self._subscription.over or self._channel_life.over:
                return
            before = len(self._tags)
            await self._begin(prefetch)
            await self._finish(before)

    async def cancel(self) -> None:
        """Stop deliveries, keeping the channel for acks."""
        async with self._changing:
            if self._subscription.over or self._channel_life.over:
                return
            await self._finish(len(self._tags))
            self._subscription.end()

    async def _begin(self, prefetch: int) -> None:
        queue, exclusive, arguments = self._arguments
        async with self._channel_life.guard():
            await self._channel.basic_qos(prefetch_count=prefetch)
            started = await self._channel.basic_consume(
                queue,
                self._on_delivery,
                exclusive=exclusive,
                arguments=arguments,  # type: ignore[arg-type]
            )
        self._tags.append(str(started.consumer_tag))

    async def _finish(self, count: int) -> None:
        """End the oldest subscriptions."""
        for tag in self._tags[:count]:
            async with self._channel_life.guard():
                await self._channel.basic_cancel(tag)
            self._tags.remove(tag)

    async def close(self) -> None:
        """Send what is acknowledged already, then close the channel."""
        self._closing = True
        sending = self._sending
        if sending is not None and not sending.done():
            await asyncio.wait([sending], timeout=CLOSE_SECONDS)
        await close_channel(self._channel)
        self._end(None)

    async def _on_delivery(self, message: DeliveredMessage) -> None:
        """Called in a task of its own for each delivery.

        It must not await: the tasks begin in the order of arrival, and so the handler is called in that order.
        """
        incoming = from_driver(message)
        if self._early is not None:
            self._early.append(incoming)
        else:
            self._handle(incoming)

    def _release_early(self) -> None:
        early, self._early = self._early or [], None
        for incoming in early:
            self._handle(incoming)

    def _handle(self, incoming: Incoming) -> None:
        if self._closing or self._channel_life.over:
            return  # the broker gives it to someone else already
        try:
            self._handler(incoming)
        except Exception:
            log.exception("a handler of deliveries raised; message %d stays unacknowledged", incoming.tag)

    def _post(self, tag: int, multiple: bool, requeue: bool | None) -> None:
        if self._channel_life.over or self._closing:
            return
        self._outbox.append((tag, multiple, requeue))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            async with self._channel_life.guard():
                while self._outbox:
                    tag, multiple, requeue = self._outbox.popleft()
                    if requeue is None:
                        await self._channel.basic_ack(tag, multiple=multiple, wait=False)
                    else:
                        await self._channel.basic_nack(tag, requeue=requeue, wait=False)
        except BrokerError:
            self._outbox.clear()  # the channel is gone: the broker gives these messages again

    def _on_cancelled(self, _: object) -> None:
        # The tasks of the last deliveries have not begun yet: they come first.
        reason = ConsumerCancelled("the broker ended the subscription: the queue was deleted or moved")
        asyncio.get_running_loop().call_soon(self._subscription.end, reason)

    def _on_closed(self, closing: asyncio.Future[None]) -> None:
        error = None if closing.cancelled() else closing.exception()
        self._end(None if self._closing else translated(error or ConnectionError("the channel was closed")))

    def _end(self, reason: BrokerError | None) -> None:
        self._channel_life.end(reason)
        self._subscription.end(translated(reason) if reason else None)

    def _refusal(self, error: BrokerError) -> BrokerError:
        """The channel's own reason says more than "lost" when the guard was quicker than the driver's answer."""
        return translated(self._channel_life.reason or error)


def from_driver(message: DeliveredMessage) -> Incoming:
    """Our view of a delivery. Headers that are no scalars are left out."""
    theirs = message.header.properties
    headers = {str(name): _scalar(value) for name, value in (theirs.headers or {}).items() if _is_scalar(value)}
    offset = headers.pop(OFFSET_HEADER, None)
    return Incoming(
        body=message.body,
        tag=message.delivery_tag or 0,
        exchange=message.exchange or "",
        routing_key=message.routing_key or "",
        redelivered=bool(message.redelivered),
        properties=_properties(theirs, headers),
        offset=offset if isinstance(offset, int) else None,
    )


def _properties(theirs: aiormq.spec.Basic.Properties, headers: Mapping[str, Scalar]) -> Properties:
    return Properties(
        message_id=theirs.message_id,
        correlation_id=theirs.correlation_id,
        reply_to=theirs.reply_to,
        content_type=theirs.content_type,
        content_encoding=theirs.content_encoding,
        priority=theirs.priority,
        type=theirs.message_type,
        headers=headers,
    )


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool, bytes, bytearray))


def _scalar(value: object) -> Scalar:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return value  # type: ignore[return-value]
