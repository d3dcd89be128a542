"""A channel in confirm mode over aiormq: the `Publisher` of the port."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

import aiormq
from aiormq.abc import AbstractChannel

from amqpjobs.streams.errors import BrokerError, ConnectionLost, Refused, TooLarge
from amqpjobs.streams.lifeline import Lifeline
from amqpjobs.streams.port import Batch, Outgoing, Properties
from amqpjobs.streams.translation import translated
from amqpjobs.streams.vigil import Vigil

PERSISTENT = 2
CLOSE_SECONDS = 5.0

_EXCHANGE_IN_TEXT = re.compile(r"exchange '([^']*)'")


class AioPublisher:
    """Publishes with confirms; see `port.Publisher`.

    `largest` is the broker's largest message in bytes; `blocked` tells whether it takes none now.
    """

    def __init__(self, channel: AbstractChannel, largest: int, blocked: Callable[[], bool]) -> None:
        self._channel = cast(aiormq.Channel, channel)  # `wait` is missing in the abstract class
        self._largest = largest
        self._life = Lifeline()
        self._ids: dict[str, asyncio.Future[None]] = {}
        self._closing = False
        self._abandoning: asyncio.Task[None] | None = None
        self._vigil = Vigil(
            lambda: len(self._channel.confirmations),  # of messages that their caller gave up as well
            lambda: self._channel.delivery_tag - len(self._channel.confirmations),
            blocked,
            self._abandon,
        )
        channel.closing.add_done_callback(self._on_closed)

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when the channel is gone."""
        return self._life.lost

    async def publish(self, message: Outgoing, *, mandatory: bool = True) -> None:
        """Publish and wait for the confirm; see `port.Publisher.publish`."""
        if len(message.body) > self._largest:
            raise TooLarge(f"a message of {len(message.body)} bytes does not fit: the limit is {self._largest}")
        message_id = message.properties.message_id
        if message_id is None:
            return await self._publish(message, mandatory)
        # The driver matches returns by message id: of two messages under way with the same one, the wrong call
        # would be told that its message was returned.
        while message_id in self._ids:
            await asyncio.wait([self._ids[message_id]])
        mine = self._ids[message_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._publish(message, mandatory)
        finally:
            del self._ids[message_id]
            mine.set_result(None)

    async def publish_many(self, batch: Batch, *, mandatory: bool = True) -> None:
        """Publish a batch; see `port.Publisher.publish_many`."""
        batch.sent = len(batch.messages)  # the driver does not tell what it has written
        await asyncio.gather(*(self._settle(batch, index, mandatory) for index in range(len(batch.messages))))

    async def _settle(self, batch: Batch, index: int, mandatory: bool) -> None:
        try:
            await self.publish(batch.messages[index], mandatory=mandatory)
        except BrokerError as error:
            batch.settle(index, error)
        else:
            batch.settle(index, None)

    async def _publish(self, message: Outgoing, mandatory: bool) -> None:
        try:
            async with self._life.guard():
                self._vigil.watch()
                await self._channel.basic_publish(
                    message.body,
                    exchange=message.exchange,
                    routing_key=message.routing_key,
                    properties=to_driver(message.properties),
                    mandatory=mandatory,
                    wait=False,  # the confirm is what counts; waiting for the socket as well would hold the channel
                )
        except BrokerError as error:
            raise self._blame(error, message) from error.__cause__

    def _blame(self, error: BrokerError, message: Outgoing) -> BrokerError:
        """A refusal ends the channel for all that is under way: only the message that it names was refused."""
        reason = self._life.reason
        refusal = error if isinstance(error, Refused) else reason
        if not isinstance(refusal, Refused):
            return error
        named = _EXCHANGE_IN_TEXT.search(str(refusal))
        if named is not None and named[1] != (message.exchange or "amq.default"):
            return self._life.gone() if reason is not None else translated(ConnectionError(str(refusal)))
        return translated(refusal)

    async def close(self) -> None:
        """Close the channel; safe to repeat."""
        self._closing = True
        self._vigil.stop()
        await close_channel(self._channel)
        self._life.end()

    def _abandon(self, reason: ConnectionLost) -> None:
        self._life.end(reason)
        self._abandoning = asyncio.create_task(self.close())

    def _on_closed(self, closing: asyncio.Future[None]) -> None:
        self._vigil.stop()
        error = None if closing.cancelled() else closing.exception()
        self._life.end(None if self._closing else translated(error or ConnectionError("the channel was closed")))


def to_driver(properties: Properties) -> aiormq.spec.Basic.Properties:
    """The driver's properties, always persistent."""
    return aiormq.spec.Basic.Properties(
        delivery_mode=PERSISTENT,
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        headers=dict(properties.headers) or None,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        message_id=properties.message_id,
        message_type=properties.type,
    )


async def close_channel(channel: AbstractChannel) -> None:
    """Close a channel, giving up after some seconds: a blocked connection does not answer."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await channel.close(ConnectionError("closed"))
    except (Exception, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
