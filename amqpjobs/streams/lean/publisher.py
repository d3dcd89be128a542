"""A channel in confirm mode: the `Publisher` of the port."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from pamqp import commands

from amqpjobs.streams.errors import BrokerError, Nacked, Refused, TooLarge, Unroutable, again
from amqpjobs.streams.lean.channel import BaseChannel
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import (
    ACK,
    FRAME_OVERHEAD,
    NACK,
    RETURN,
    TAG_AND_BIT,
    Header,
    read_return,
    write_content,
    write_properties,
    write_publish,
)
from amqpjobs.streams.port import Batch, Outgoing
from amqpjobs.streams.vigil import Vigil

WRITE_BYTES = 256 * 1024
"""Bytes of bodies that are joined into one write; between two, a publisher waits while the socket is behind."""

MOST_METHODS = 1000
"""Method frames that are kept, one for each address that is published to."""

_EXCHANGE_IN_TEXT = re.compile(r"exchange '([^']*)'")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a connection allows: the largest message and the largest frame in bytes, whether it takes nothing now."""

    largest: int
    frame_max: int
    blocked: Callable[[], bool] = lambda: False


class LeanPublisher(BaseChannel):
    """Publishes with confirms; see `port.Publisher`."""

    def __init__(self, socket: Socket, number: int, terms: Terms) -> None:
        super().__init__(socket, number)
        self._vigil = Vigil(
            lambda: len(self._waiting),
            lambda: self._seq - len(self._waiting),
            lambda: socket.paused or terms.blocked(),
            self.abandon,
        )
        self._largest = terms.largest
        self._piece = terms.frame_max - FRAME_OVERHEAD
        self._writing = asyncio.Lock()
        self._methods: dict[tuple[str, str, bool], bytes] = {}
        self._seq = 0
        self._waiting: dict[int, tuple[Batch, int]] = {}
        self._oldest = 1  # none before it is waiting
        self._returned = 0  # the last that came back
        self._returning: tuple[str, str, str] = ("", "", "")

    async def open(self) -> None:
        """Open it in confirm mode."""
        await super().open()
        await self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    async def publish(self, message: Outgoing, *, mandatory: bool = True) -> None:
        """Publish and wait for the confirm; see `port.Publisher.publish`."""
        batch = Batch((message,))
        await self.publish_many(batch, mandatory=mandatory)
        if batch.failed:
            raise batch.failed[0]

    async def publish_many(self, batch: Batch, *, mandatory: bool = True) -> None:
        """Publish a batch; see `port.Publisher.publish_many`."""
        async with self._writing:  # in the order of the calls, also when the socket is behind
            await self._write(batch, mandatory)
        await batch.settled()

    async def _write(self, batch: Batch, mandatory: bool) -> None:
        total, index = len(batch.messages), 0
        while index < total:
            if self._socket.paused:
                await self._socket.drained()
            if self.life.over:
                for rest in range(index, total):
                    batch.settle(rest, self.life.gone())
                return
            index = self._write_some(batch, index, mandatory)

    def _write_some(self, batch: Batch, first: int, mandatory: bool) -> int:
        """One write, of the messages from `first` on; the index of the next one."""
        parts: list[bytes] = []
        size = 0
        for index in range(first, len(batch.messages)):
            message = batch.messages[index]
            try:
                content = self._content(message)
                parts.append(self._method_of(message, mandatory))
            except BrokerError as error:
                batch.settle(index, error)
                continue
            parts += content
            size += len(message.body)
            self._seq += 1
            self._waiting[self._seq] = (batch, index)
            if size >= WRITE_BYTES:
                break
        batch.sent = index + 1
        self._vigil.watch()
        self._socket.write(b"".join(parts))
        if size >= WRITE_BYTES:
            self._socket.flush()  # only then does it know whether it is behind
        return batch.sent

    def _content(self, message: Outgoing) -> list[bytes]:
        if len(message.body) > self._largest:
            raise TooLarge(f"a message of {len(message.body)} bytes does not fit: the limit is {self._largest}")
        try:
            return write_content(self._number, write_properties(message.properties), message.body, self._piece)
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise Refused(str(error)) from error

    def _method_of(self, message: Outgoing, mandatory: bool) -> bytes:
        key = (message.exchange, message.routing_key, mandatory)
        method = self._methods.get(key)
        if method is None:
            try:
                method = write_publish(self._number, message.exchange, message.routing_key, mandatory=mandatory)
            except (ValueError, TypeError, AttributeError) as error:
                raise Refused(str(error)) from error
            if len(self._methods) >= MOST_METHODS:
                self._methods.clear()
            self._methods[key] = method
        return method

    def fast(self, code: int, buffer: bytes, at: int, end: int) -> bool:
        """Confirms and returns."""
        if code in (ACK, NACK):
            tag, bits = TAG_AND_BIT.unpack_from(buffer, at)
            self._confirmed(tag, bool(bits & 1), nacked=code == NACK)
            return True
        if code == RETURN:
            self._returning = read_return(buffer, at, end)
            return True
        return False

    def content(self, header: Header, body: bytes) -> None:
        """The content of a return: find the message that came back.

        The broker returns in the order of publishing and before it confirms, so it is the first that looks like it
        after the last one that came back; two that look alike are as good as each other.
        """
        reason, *to = self._returning
        after = self._returned + 1
        for number in chain(range(after, self._seq + 1), range(self._oldest, after)):
            found = self._waiting.get(number)
            if found is None:
                continue
            batch, index = found
            message = batch.messages[index]
            if message.body == body and [message.exchange, message.routing_key] == to:
                self._returned = number
                del self._waiting[number]
                batch.settle(index, Unroutable(f"no queue is bound for key {message.routing_key!r}: {reason}"))
                return

    def _confirmed(self, tag: int, multiple: bool, *, nacked: bool) -> None:
        if not multiple and tag != self._oldest:
            self._settle(tag, nacked)
            return
        last = min(tag or self._seq, self._seq)
        for number in range(self._oldest, last + 1):
            self._settle(number, nacked)
        self._oldest = max(self._oldest, last + 1)

    def _settle(self, number: int, nacked: bool) -> None:
        found = self._waiting.pop(number, None)
        if found is not None:
            batch, index = found
            batch.settle(index, Nacked("the broker refused to keep the message") if nacked else None)

    def ended(self) -> None:
        """Tell all that is under way; a refusal concerns only the message that it names."""
        self._vigil.stop()
        waiting, self._waiting = self._waiting, {}
        reason = self.life.reason
        for batch, index in waiting.values():
            batch.settle(index, _blame(reason, batch.messages[index]) or self.life.gone())


def _blame(reason: BrokerError | None, message: Outgoing) -> BrokerError | None:
    if not isinstance(reason, Refused):
        return None
    named = _EXCHANGE_IN_TEXT.search(str(reason))
    if named is not None and named[1] != (message.exchange or "amq.default"):
        return None
    return again(reason)
