"""A channel in confirm mode: the `Publisher` of the port."""

from __future__ import annotations

import asyncio
import re
import struct

from pamqp import commands

from amqpjobs.streams.errors import BrokerError, Nacked, Refused, TooLarge, Unroutable
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
from amqpjobs.streams.port import Outgoing

_EXCHANGE_IN_TEXT = re.compile(r"exchange '([^']*)'")


class _Waiting:
    """A message under way. `returned`: why the broker sent it back, once it did."""

    __slots__ = ("future", "message", "returned")

    def __init__(self, message: Outgoing, future: asyncio.Future[None]) -> None:
        self.message = message
        self.future = future
        self.returned: str | None = None

    def settle(self, error: BrokerError | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class LeanPublisher(BaseChannel):
    """Publishes with confirms; see `port.Publisher`. `largest` is the broker's largest message in bytes."""

    def __init__(self, socket: Socket, number: int, *, largest: int, frame_max: int) -> None:
        super().__init__(socket, number)
        self._largest = largest
        self._piece = frame_max - FRAME_OVERHEAD
        self._seq = 0
        self._waiting: dict[int, _Waiting] = {}  # by number, oldest first: numbers only grow
        self._returning: str | None = None
        self._return_to: tuple[str, str] = ("", "")

    async def open(self) -> None:
        """Open it in confirm mode."""
        await super().open()
        await self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    async def publish(self, message: Outgoing, *, mandatory: bool = True) -> None:
        """Publish and wait for the confirm; see `port.Publisher.publish`."""
        if len(message.body) > self._largest:
            raise TooLarge(f"a message of {len(message.body)} bytes does not fit: the limit is {self._largest}")
        try:
            method = write_publish(self._number, message.exchange, message.routing_key, mandatory=mandatory)
            properties = write_properties(message.properties)
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise Refused(str(error)) from error
        if self._socket.paused:
            await self._socket.drained()
        self.life.check()
        self._seq += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[self._seq] = _Waiting(message, future)
        self._socket.write(method + write_content(self._number, properties, message.body, self._piece))
        await future

    def fast(self, code: int, buffer: bytes, at: int, end: int) -> bool:
        """Confirms and returns."""
        if code in (ACK, NACK):
            tag, bits = TAG_AND_BIT.unpack_from(buffer, at)
            self._confirmed(tag, bool(bits & 1), nacked=code == NACK)
            return True
        if code == RETURN:
            self._returning, *to = read_return(buffer, at, end)
            self._return_to = (to[0], to[1])
            return True
        return False

    def content(self, header: Header, body: bytes) -> None:
        """The content of a return: mark the message that came back.

        The broker returns in the order of publishing and before it confirms, so it is the oldest that looks like it
        and did not come back yet; two that look alike are as good as each other.
        """
        reason, self._returning = self._returning, None
        for waiting in self._waiting.values():
            message = waiting.message
            same = (message.exchange, message.routing_key) == self._return_to and message.body == body
            if same and waiting.returned is None:
                waiting.returned = reason
                return

    def _confirmed(self, tag: int, multiple: bool, *, nacked: bool) -> None:
        if not multiple:
            waiting = self._waiting.pop(tag, None)
            if waiting is not None:
                waiting.settle(_verdict(waiting, nacked))
            return
        for number in list(self._waiting) if tag == 0 else [n for n in self._waiting if n <= tag]:
            waiting = self._waiting.pop(number)
            waiting.settle(_verdict(waiting, nacked))

    def ended(self) -> None:
        """Tell all that is under way; a refusal concerns only the message that it names."""
        waiting, self._waiting = self._waiting, {}
        reason = self.life.reason
        for each in waiting.values():
            each.settle(_blame(reason, each.message) or self.life.gone())
            if each.future.done() and not each.future.cancelled():
                each.future.exception()


def _verdict(waiting: _Waiting, nacked: bool) -> BrokerError | None:
    if waiting.returned is not None:
        return Unroutable(f"no queue is bound for key {waiting.message.routing_key!r}: {waiting.returned}")
    return Nacked("the broker refused to keep the message") if nacked else None


def _blame(reason: BrokerError | None, message: Outgoing) -> BrokerError | None:
    if not isinstance(reason, Refused):
        return None
    named = _EXCHANGE_IN_TEXT.search(str(reason))
    if named is not None and named[1] != (message.exchange or "amq.default"):
        return None
    return type(reason)(*reason.args)
