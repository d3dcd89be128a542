"""A subscription on a channel of its own: the `Consumer` of the port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pamqp import commands

from amqpjobs.streams.errors import BrokerError, ConsumerCancelled
from amqpjobs.streams.lean.channel import BaseChannel
from amqpjobs.streams.lean.deliveries import Deliveries
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import (
    DELIVER,
    METHOD,
    BadFrame,
    Deliver,
    Header,
    read_deliver,
    write_ack,
    write_nack,
)
from amqpjobs.streams.life import Life
from amqpjobs.streams.port import Handler, Incoming

log = logging.getLogger("amqpjobs.streams")


class LeanConsumer(BaseChannel):
    """One consumer; see `port.Consumer`. `answers_cancel`: the broker waits for an answer when it ends one."""

    def __init__(self, socket: Socket, number: int, handler: Handler, *, answers_cancel: bool) -> None:
        super().__init__(socket, number)
        self._handler = handler
        self._answers_cancel = answers_cancel
        self._subscription = Life()
        self._deliver: Deliver | None = None
        self._early: list[Incoming] | None = []
        self._changing = asyncio.Lock()
        self._arguments: tuple[str, bool, dict[str, Any]] = ("", False, {})
        self._tags: list[str] = []
        self._count = 0
        self._deliveries = Deliveries(number)

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when no further message will come."""
        return self._subscription.lost

    async def subscribe(self, queue: str, *, prefetch: int, exclusive: bool, arguments: Mapping[str, Any]) -> None:
        """Set the prefetch and start the deliveries. The handler is first called after the caller had its turn."""
        self._arguments = queue, exclusive, dict(arguments)
        await self._begin(prefetch)
        asyncio.get_running_loop().call_soon(self._release_early)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Acknowledge; sent with all else of this turn of the loop."""
        if not self.life.over and not self._closed_by_us:
            self._socket.write(write_ack(self._number, tag, multiple=multiple))

    def nack(self, tag: int, *, requeue: bool = True) -> None:
        """Give a message back, or drop it to the dead-letter exchange."""
        if not self.life.over and not self._closed_by_us:
            self._socket.write(write_nack(self._number, tag, requeue=requeue))

    async def resize(self, prefetch: int) -> None:
        """A second subscription takes over from the first: the prefetch of one that runs cannot be changed."""
        async with self._changing:
            if self._subscription.over or self.life.over:
                return
            before = len(self._tags)
            await self._begin(prefetch)
            await self._end(before)

    async def cancel(self) -> None:
        """Stop deliveries, keeping the channel for acks."""
        async with self._changing:
            if self._subscription.over or self.life.over:
                return
            await self._end(len(self._tags))
            self._subscription.end()

    async def _begin(self, prefetch: int) -> None:
        """Subscribe under a tag of our own: whoever is cancelled while it waits for the answer can still end that."""
        queue, exclusive, arguments = self._arguments
        await self.call(commands.Basic.Qos(0, prefetch, False), commands.Basic.QosOk)
        self._count += 1
        self._tags.append(f"amqpjobs-{self._number}-{self._count}")
        consume = commands.Basic.Consume(0, queue, self._tags[-1], False, False, exclusive, False, arguments)
        await self.call(consume, commands.Basic.ConsumeOk)

    async def _end(self, count: int) -> None:
        """End the oldest subscriptions."""
        for tag in self._tags[:count]:
            await self.call(commands.Basic.Cancel(tag, False), commands.Basic.CancelOk)
            self._tags.remove(tag)

    def frame(self, kind: int, buffer: bytes, start: int, end: int) -> int | None:
        """A whole delivery where it is there; else one frame."""
        if kind == METHOD and self._header is None:
            after = self._deliveries.read(buffer, start, self._socket.parser, self._take)
            if after is not None:
                return after
        return super().frame(kind, buffer, start, end)

    def fast(self, code: int, buffer: bytes, at: int, end: int) -> bool:
        """Deliveries."""
        if code != DELIVER:
            return False
        self._deliver = read_deliver(buffer, at, end)
        return True

    def content(self, header: Header, body: bytes) -> None:
        """A whole delivery."""
        deliver, self._deliver = self._deliver, None
        if deliver is None:
            raise BadFrame("a content that no delivery announced")
        incoming = Incoming(
            body,
            deliver.tag,
            deliver.exchange,
            deliver.routing_key,
            deliver.redelivered,
            header.properties,
            header.offset,
        )
        self._socket.parser.left -= 1
        self._take(incoming)

    def _take(self, incoming: Incoming) -> None:
        if self._early is not None:
            self._early.append(incoming)
            return
        if self._closed_by_us or self.life.over:
            return  # the broker gives it to someone else already
        try:
            self._handler(incoming)
        except Exception:
            log.exception("a handler of deliveries raised; message %d stays unacknowledged", incoming.tag)

    def other(self, method: object) -> None:
        """The broker ends the subscription."""
        if isinstance(method, commands.Basic.Cancel):
            if self._answers_cancel:
                self._socket.send(self._number, commands.Basic.CancelOk(method.consumer_tag))
            reason = ConsumerCancelled("the broker ended the subscription: the queue was deleted or moved")
            self._subscription.end(reason)

    def ended(self) -> None:
        """No message comes any more."""
        reason = self.life.reason
        self._subscription.end(type(reason)(*reason.args) if isinstance(reason, BrokerError) else None)

    def _release_early(self) -> None:
        early, self._early = self._early or [], None
        for incoming in early:
            self._take(incoming)
