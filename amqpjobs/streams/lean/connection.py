"""The port over a socket of our own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from amqpjobs.addresses import Address
from amqpjobs.settings import Settings
from amqpjobs.streams import hosts
from amqpjobs.streams.errors import AccessRefused, BrokerError, BrokerUnavailable, ConnectionLost, NotFound, Refused
from amqpjobs.streams.lean.caller import LeanCaller
from amqpjobs.streams.lean.channel import CLOSE_SECONDS, BaseChannel, closing_error, unmarshal
from amqpjobs.streams.lean.consumer import LeanConsumer
from amqpjobs.streams.lean.handshake import Agreed, Handshake
from amqpjobs.streams.lean.publisher import LeanPublisher, Terms
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import METHOD, BadFrame
from amqpjobs.streams.limits import largest_message
from amqpjobs.streams.port import Connection, Consumer, Handler, Publisher, QueueState, Scalar
from amqpjobs.streams.subscribing import Subscribing


async def connect(settings: Settings, *, name: str) -> Connection:
    """Open a connection; see `aio.connect`."""

    async def open_one(address: Address, tls: ssl.SSLContext | None) -> Connection:
        # Listening before there is a socket: the broker's first frame may come before create_connection returns.
        handshake = Handshake(Socket())
        made = handshake.socket
        await asyncio.get_running_loop().create_connection(lambda: made, address.host, address.port, ssl=tls)
        try:
            agreed = await handshake.shake(address, heartbeat=settings.heartbeat, name=name)
        except ConnectionLost as error:
            made.abort()
            raise BrokerUnavailable(f"cannot reach {address.shown}: {error}") from error
        except BrokerError as error:
            made.abort()
            raise type(error)(f"{address.shown}: {error}") from error
        except BaseException:
            made.abort()
            raise
        connection = LeanConnection(made, address, agreed)
        while not handshake.left.empty():
            connection.method(handshake.left.get_nowait())
        return connection

    return await hosts.in_turn(settings, open_one)


class LeanConnection(Subscribing):
    """One connection; see `port.Connection`. It is itself the channel 0 of its socket."""

    def __init__(self, socket: Socket, address: Address, agreed: Agreed) -> None:
        self.address = address.shown
        self.server = agreed.server
        self.blocked: str | None = None
        self._agreed = agreed
        self._socket = socket
        self._closing: asyncio.Future[None] | None = None
        self._unblocked = asyncio.Event()
        self._unblocked.set()
        self._last = 0
        self._calls = asyncio.Lock()
        self._caller: BaseChannel | None = None
        socket.channels[0] = self

    async def close(self) -> None:
        """Close the connection; safe to repeat."""
        if not self._socket.life.over and self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            self._socket.send(0, commands.Connection.Close(200, "closed", 0, 0))
            await asyncio.wait(
                {self._closing, self._socket.life.lost}, timeout=CLOSE_SECONDS, return_when="FIRST_COMPLETED"
            )
        self._socket.end(None)
        self._socket.close()

    # The channel 0.

    def frame(self, kind: int, buffer: bytes, start: int, end: int) -> None:
        """A frame of channel 0."""
        if kind != METHOD:
            raise BadFrame(f"a frame of kind {kind} on channel 0")
        self.method(unmarshal(kind, 0, buffer, start, end))

    def method(self, method: object) -> None:
        """What the broker says of the connection itself."""
        match method:
            case commands.Connection.Close():
                self._socket.send(0, commands.Connection.CloseOk())
                self._socket.end(closing_error(method.reply_code, method.reply_text))
                self._socket.close()
            case commands.Connection.CloseOk() if self._closing is not None and not self._closing.done():
                self._closing.set_result(None)
            case commands.Connection.Blocked():
                self.blocked = f"the broker takes no messages now (alarm: {method.reason or 'memory or disk'})"
                self._unblocked.clear()
            case commands.Connection.Unblocked():
                self.blocked = None
                self._unblocked.set()

    def end(self, reason: BrokerError | None) -> None:
        """The connection is gone."""
        self._unblocked.set()
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    # The port.

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when the connection is gone."""
        return self._socket.life.lost

    @property
    def largest_message(self) -> int:
        """The largest body in bytes that a publisher sends: RabbitMQ took 128 MiB before 4.0 and takes 16 since."""
        return largest_message(self.server)

    async def unblocked(self) -> None:
        """Wait until the broker takes publishes (again)."""
        self._socket.life.check()
        await self._unblocked.wait()
        self._socket.life.check()

    async def publisher(self) -> Publisher:
        """Open a channel for publishing with confirms."""
        channel = LeanPublisher(self._socket, self._number(), self._terms())
        await _opened(channel)
        return channel

    async def caller(self, handler: Handler) -> Publisher:
        """Open a channel for publishing on which replies come."""
        channel = LeanCaller(self._socket, self._number(), self._terms(), handler)
        await _opened(channel)
        return channel

    def _terms(self) -> Terms:
        return Terms(self.largest_message, self._agreed.frame_max, lambda: self.blocked is not None)

    async def passive(self, queue: str) -> QueueState | None:
        """Ask whether a queue or stream exists and how full it is."""
        try:
            found = await self._call(_queue(queue, {}, passive=True), commands.Queue.DeclareOk)
        except NotFound:
            return None
        return QueueState(ready=found.message_count or 0, consumers=found.consumer_count or 0)

    async def declare_queue(self, name: str, arguments: Mapping[str, Scalar]) -> None:
        """Declare a durable queue unless it exists; then compare its arguments, if we have the right to."""
        try:
            exists = await self.passive(name) is not None
        except AccessRefused:
            exists = True  # RabbitMQ 4.3 does not tell somebody who has no right to it at all
        await self._declare(exists, _queue(name, arguments), commands.Queue.DeclareOk)

    async def declare_exchange(
        self, name: str, kind: str, *, auto_delete: bool = False, alternate: str | None = None
    ) -> None:
        """Declare a durable exchange unless it exists; then compare its kind, if we have the right to."""
        try:
            passive = commands.Exchange.Declare(0, name, kind, True, True, False, False, False, {})
            await self._call(passive, commands.Exchange.DeclareOk)
            exists = True
        except NotFound:
            exists = False
        except AccessRefused:
            exists = True
        arguments: Any = {"alternate-exchange": alternate} if alternate is not None else {}
        wanted = commands.Exchange.Declare(0, name, kind, False, True, auto_delete, False, False, arguments)
        await self._declare(exists, wanted, commands.Exchange.DeclareOk)

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange; nothing happens when there is none."""
        await self._call(commands.Exchange.Delete(0, name, False, False), commands.Exchange.DeleteOk)

    async def _declare(self, exists: bool, method: Frame, answer: type[Frame]) -> None:
        try:
            await self._call(method, answer)
        except AccessRefused:
            if not exists:
                raise

    async def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Bind a queue to an exchange."""
        await self._call(commands.Queue.Bind(0, queue, exchange, routing_key, False, {}), commands.Queue.BindOk)

    async def bind_exchange(self, destination: str, source: str, routing_key: str) -> None:
        """Let an exchange get what `source` gets with this key."""
        method = commands.Exchange.Bind(0, destination, source, routing_key, False, {})
        await self._call(method, commands.Exchange.BindOk)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue or stream and all that is in it."""
        await self._call(commands.Queue.Delete(0, name, False, False, False), commands.Queue.DeleteOk)

    # Channels.

    def _number(self) -> int:
        """A free channel number, the one that was free longest: late frames of a closed one meet nobody."""
        self._socket.life.check()
        for step in range(1, self._agreed.channel_max + 1):
            number = (self._last + step - 1) % self._agreed.channel_max + 1
            if number not in self._socket.channels:
                self._last = number
                return number
        raise Refused(f"all {self._agreed.channel_max} channels of the connection are in use")

    async def _subscribe(
        self, queue: str, handler: Handler, prefetch: int, exclusive: bool, arguments: Mapping[str, Any]
    ) -> Consumer:
        consumer = LeanConsumer(self._socket, self._number(), handler, answers_cancel=self._agreed.answers_cancel)
        await _opened(consumer)
        try:
            await consumer.subscribe(queue, prefetch=prefetch, exclusive=exclusive, arguments=arguments)
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def _call(self, method: Frame, answer: type[Any]) -> Any:
        """Call a method on a channel that is kept for this, and thrown away by the first refusal."""
        async with self._calls, self._discarding():
            if self._caller is None or self._caller.life.over:
                self._caller = BaseChannel(self._socket, self._number())
                await _opened(self._caller)
            return await self._caller.call(method, answer)

    @contextlib.asynccontextmanager
    async def _discarding(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            channel, self._caller = self._caller, None
            if channel is not None and not isinstance(error, BrokerError):
                await channel.close()
            raise


async def _opened(channel: BaseChannel) -> None:
    try:
        await channel.open()
    except BaseException:
        await channel.close()
        raise


def _queue(name: str, arguments: Mapping[str, Scalar], *, passive: bool = False) -> Frame:
    given: Any = dict(arguments)
    return commands.Queue.Declare(0, name, passive, True, False, False, False, given)
