"""The port over aiormq, the AMQP 0-9-1 driver under aio-pika. Its robust connections are not used.

They replay subscriptions at the offset where they first began, and never replay a publish: `link` does better with
connections that live once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage
from yarl import URL

from amqpjobs.addresses import Address
from amqpjobs.settings import Settings
from amqpjobs.streams import hosts
from amqpjobs.streams.aio_consumer import AioConsumer, from_driver
from amqpjobs.streams.aio_publisher import CLOSE_SECONDS, AioPublisher, close_channel
from amqpjobs.streams.errors import AccessRefused, BrokerError, NotFound
from amqpjobs.streams.lifeline import Lifeline
from amqpjobs.streams.limits import largest_message
from amqpjobs.streams.port import (
    REPLY_TO,
    Connection,
    Consumer,
    Handler,
    Publisher,
    QueueState,
    Scalar,
)
from amqpjobs.streams.subscribing import Subscribing
from amqpjobs.streams.translation import connect_failure, translated
from amqpjobs.streams.transport import Transport

_T = TypeVar("_T")
_driver_log = logging.getLogger("aiormq")


async def connect(settings: Settings, *, name: str) -> Connection:
    """Open a connection to the first broker of the address that takes one; `name` is what its management shows.

    Raises BrokerUnavailable (nobody there, or not ready), AccessRefused (user, password, a virtual host that is missing
    or closed to the user), Refused (an address that cannot be read, a certificate that is not accepted).
    """
    if _driver_log.level == logging.NOTSET:
        # It logs each loss up to four times, with tracebacks; `link` logs it once.
        _driver_log.setLevel(logging.CRITICAL)

    async def open_one(address: Address, tls: ssl.SSLContext | None) -> Connection:
        transport = Transport(tls)
        driver = _driver(settings, address, name, transport)
        try:
            await driver.connect()
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(error, aiormq.AMQPError):
                raise
            raise connect_failure(error, address.shown) from error
        return AioConnection(driver, transport, address.shown)

    return await hosts.in_turn(settings, open_one)


def _driver(settings: Settings, address: Address, name: str, transport: Transport) -> aiormq.Connection:
    url = URL.build(
        scheme="amqps" if address.secure else "amqp",
        user=address.user,
        password=address.password,
        host=address.host,
        port=address.port,
        path="/",
        query={"heartbeat": str(settings.heartbeat)},
    )
    driver = aiormq.Connection(
        url, transport_factory=transport, client_properties={"connection_name": name, "product": "amqpjobs"}
    )
    driver.vhost = address.vhost  # the driver would take an empty name for "/"
    return driver


class AioConnection(Subscribing):
    """One connection; see `port.Connection`."""

    def __init__(self, driver: aiormq.Connection, transport: Transport, address: str) -> None:
        self.address = address
        self._driver = driver
        self._transport = transport
        self._life = Lifeline()
        self._closing = False
        self._calls = asyncio.Lock()
        self._channel: AbstractChannel | None = None
        self.server: Mapping[str, str] = {
            str(key): value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)
            for key, value in (driver.server_properties or {}).items()
            if isinstance(value, (str, bytes, bytearray))
        }
        driver.closing.add_done_callback(self._on_closed)

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when the connection is gone."""
        return self._life.lost

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now, or None."""
        waiting = self._driver.ready()
        try:
            waiting.send(None)
        except StopIteration:
            return None
        finally:
            waiting.close()
        return "the broker takes no messages now (memory or disk alarm)"

    async def unblocked(self) -> None:
        """Wait until the broker takes publishes (again)."""
        async with self._life.guard():
            await self._driver.ready()

    @property
    def largest_message(self) -> int:
        """The largest body in bytes that a publisher sends: RabbitMQ took 128 MiB before 4.0 and takes 16 since."""
        return largest_message(self.server)

    async def publisher(self) -> Publisher:
        """Open a channel for publishing with confirms."""
        return self._publisher(await self._open_channel(confirms=True))

    async def caller(self, handler: Handler) -> Publisher:
        """Open a channel for publishing on which replies come."""
        channel = await self._open_channel(confirms=True)

        async def take(message: DeliveredMessage) -> None:
            handler(from_driver(message))

        async with self._life.guard():
            await channel.basic_consume(REPLY_TO, take, no_ack=True)
        return self._publisher(channel)

    def _publisher(self, channel: AbstractChannel) -> Publisher:
        return AioPublisher(channel, self.largest_message, lambda: self.blocked is not None)

    async def passive(self, queue: str) -> QueueState | None:
        """Ask whether a queue or stream exists and how full it is."""
        try:
            found = await self._call(lambda channel: channel.queue_declare(queue, passive=True))
        except NotFound:
            return None
        return QueueState(ready=found.message_count or 0, consumers=found.consumer_count or 0)

    async def declare_queue(self, name: str, arguments: Mapping[str, Scalar]) -> None:
        """Declare a durable queue unless it exists; then compare its arguments, if we have the right to."""
        given: Any = dict(arguments)
        try:
            exists = await self.passive(name) is not None
        except AccessRefused:
            exists = True  # RabbitMQ 4.3 does not tell somebody who has no right to it at all
        await self._declare(exists, lambda ch: ch.queue_declare(name, durable=True, arguments=given))

    async def declare_exchange(
        self, name: str, kind: str, *, auto_delete: bool = False, alternate: str | None = None
    ) -> None:
        """Declare a durable exchange unless it exists; then compare its kind, if we have the right to."""
        try:
            await self._call(lambda channel: channel.exchange_declare(name, exchange_type=kind, passive=True))
            exists = True
        except NotFound:
            exists = False
        except AccessRefused:
            exists = True
        wanted: dict[str, Any] = {"durable": True, "auto_delete": auto_delete, "arguments": {}}
        if alternate is not None:
            wanted["arguments"] = {"alternate-exchange": alternate}
        await self._declare(exists, lambda ch: ch.exchange_declare(name, exchange_type=kind, **wanted))

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange; nothing happens when there is none."""
        await self._call(lambda channel: channel.exchange_delete(name))

    async def _declare(self, exists: bool, declare: Callable[[AbstractChannel], Awaitable[object]]) -> None:
        try:
            await self._call(declare)
        except AccessRefused:
            if not exists:
                raise

    async def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Bind a queue to an exchange."""
        await self._call(lambda channel: channel.queue_bind(queue, exchange, routing_key))

    async def bind_exchange(self, destination: str, source: str, routing_key: str) -> None:
        """Let an exchange get what `source` gets with this key."""
        await self._call(lambda channel: channel.exchange_bind(destination, source, routing_key=routing_key))

    async def delete_queue(self, name: str) -> None:
        """Delete a queue or stream and all that is in it."""
        await self._call(lambda channel: channel.queue_delete(name))

    async def close(self) -> None:
        """Close the connection; safe to repeat."""
        self._closing = True
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._driver.close(ConnectionError("closed"))
        except (Exception, asyncio.CancelledError):
            self._transport.abort()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            self._life.end()

    async def _subscribe(
        self, queue: str, handler: Handler, prefetch: int, exclusive: bool, arguments: Mapping[str, object]
    ) -> Consumer:
        channel = await self._open_channel()
        consumer = AioConsumer(channel, handler)
        try:
            await consumer.subscribe(queue, prefetch=prefetch, exclusive=exclusive, arguments=arguments)
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def _open_channel(self, *, confirms: bool = False) -> AbstractChannel:
        async with self._life.guard():
            return await self._driver.channel(publisher_confirms=confirms, on_return_raises=True)

    async def _call(self, method: Callable[[AbstractChannel], Awaitable[_T]]) -> _T:
        """Call a method on a channel that is kept for this, and thrown away by the first refusal."""
        async with self._calls, self._discarding():
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._open_channel()
            async with self._life.guard():
                return await method(self._channel)

    @contextlib.asynccontextmanager
    async def _discarding(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            channel, self._channel = self._channel, None
            if channel is not None and not isinstance(error, BrokerError):
                await close_channel(channel)
            raise

    def _on_closed(self, closing: asyncio.Future[None]) -> None:
        error = None if closing.cancelled() else closing.exception()
        self._life.end(None if self._closing else translated(error or ConnectionError("the connection ended")))
