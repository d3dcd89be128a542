"""One channel: its calls and their answers, and the parts of a message as they come."""

from __future__ import annotations

import asyncio
import struct
from typing import TypeVar

from pamqp import commands
from pamqp import exceptions as pamqp_exceptions
from pamqp import frame as pamqp_frame
from pamqp.base import Frame

from amqpjobs.streams import errors
from amqpjobs.streams.errors import BrokerError, ConnectionLost
from amqpjobs.streams.lean.socket import Socket
from amqpjobs.streams.lean.wire import BODY, END, FRAME, HEADER, METHOD, METHOD_ID, BadFrame, Header, read_header
from amqpjobs.streams.life import Life

CLOSE_SECONDS = 5.0

_REFUSALS: dict[int, type[BrokerError]] = {
    403: errors.AccessRefused,
    405: errors.AccessRefused,
    406: errors.PreconditionFailed,
}

T = TypeVar("T", bound=Frame)


def closing_error(code: int | None, text: str | None) -> BrokerError:
    """What a broker's close means to us: a refusal, or a lost connection."""
    said = f"{code} {text}"
    return errors.missing(said) if code == 404 else _REFUSALS.get(code or 0, ConnectionLost)(said)


def unmarshal(kind: int, channel: int, buffer: bytes, start: int, end: int) -> object:
    """A frame by pamqp. Raises BadFrame."""
    whole = FRAME.pack(kind, channel, end - start) + buffer[start:end] + bytes([END])
    try:
        return pamqp_frame.unmarshal(whole)[2]
    except pamqp_exceptions.UnmarshalingException as error:
        raise BadFrame(str(error)) from None
    except Exception as error:  # its decoders raise whatever their parts raise
        raise BadFrame(f"{type(error).__name__}: {error}") from None


class BaseChannel:
    """A channel. Subclasses take what comes per message in `fast` and `content`."""

    def __init__(self, socket: Socket, number: int) -> None:
        self.life = Life()
        self._socket = socket
        self._number = number
        self._calling = asyncio.Lock()
        self._reply: asyncio.Future[object] | None = None
        self._header: Header | None = None
        self._parts: list[bytes] = []
        self._missing = 0
        self._closed_by_us = False
        socket.channels[number] = self

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when the channel is gone."""
        return self.life.lost

    async def open(self) -> None:
        """Open it."""
        await self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    async def call(self, method: Frame, answer: type[T]) -> T:
        """Send a method and wait for its answer. Raises what the broker closed the channel with, Refused, or lost."""
        async with self._calling:
            if self._reply is not None and not self._reply.done():
                await asyncio.wait([self._reply])  # of a call that was cancelled: its answer is still to come
            self.life.check()
            reply = self._reply = asyncio.get_running_loop().create_future()
            try:
                self._socket.send(self._number, method)
            except (ValueError, TypeError, OverflowError, struct.error) as error:
                self._reply = None
                raise errors.Refused(str(error)) from error
            await asyncio.wait([reply])
            got = reply.result()
            if not isinstance(got, answer):
                raise ConnectionLost(f"the broker answered {type(got).__name__} and not {answer.__name__}")
            return got

    async def close(self) -> None:
        """Close it, giving up after some seconds; safe to repeat."""
        if self.life.over or self._closed_by_us:
            self._finish(None)
            return
        self._closed_by_us = True
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.call(commands.Channel.Close(200, "closed", 0, 0), commands.Channel.CloseOk)
        except (BrokerError, TimeoutError):
            pass
        finally:
            self._finish(None)

    def abandon(self, reason: BrokerError) -> None:
        """Close it without waiting for the broker's word, and tell all that is under way."""
        if not self.life.over:
            self._socket.send(self._number, commands.Channel.Close(200, "abandoned", 0, 0))
            self._finish(reason)

    def end(self, reason: BrokerError | None) -> None:
        """The channel is gone, with the connection or by itself."""
        if not self.life.end(None if self._closed_by_us else reason):
            return
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(self._last_word())
            self._reply.exception()
        self.ended()

    def ended(self) -> None:
        """For subclasses: tell those who wait."""

    def _last_word(self) -> BrokerError:
        reason = self.life.reason
        return type(reason)(*reason.args) if reason is not None else ConnectionLost("closed")

    def _finish(self, reason: BrokerError | None) -> None:
        if self._socket.channels.get(self._number) is self:
            del self._socket.channels[self._number]
        self.end(reason)

    # Frames.

    def frame(self, kind: int, buffer: bytes, start: int, end: int) -> int | None:
        """One frame of this channel; see `wire.Sink`."""
        if kind == METHOD:
            code = METHOD_ID.unpack_from(buffer, start)[0]
            if not self.fast(code, buffer, start + METHOD_ID.size, end):
                self._method(unmarshal(kind, self._number, buffer, start, end))
        elif kind == HEADER:
            if self._header is not None:
                raise BadFrame("a message that was cut off by the next")
            self._header = read_header(buffer, start, end)
            self._missing = self._header.size
            if not self._missing:
                self._complete(b"")
        elif kind == BODY:
            self._body(buffer[start:end])
        else:
            raise BadFrame(f"a frame of kind {kind}")
        return None

    def fast(self, code: int, buffer: bytes, at: int, end: int) -> bool:
        """For subclasses: take a method that comes per message; False for any other."""
        return False

    def content(self, header: Header, body: bytes) -> None:
        """For subclasses: take a whole message, of the method before."""

    def other(self, method: object) -> None:
        """For subclasses: take a method of the broker's own that is no answer."""

    def _body(self, piece: bytes) -> None:
        if self._header is None or len(piece) > self._missing:
            raise BadFrame("a body that no header announced")
        self._missing -= len(piece)
        if self._missing:
            self._parts.append(piece)
        elif self._parts:
            self._parts.append(piece)
            whole, self._parts = b"".join(self._parts), []
            self._complete(whole)
        else:
            self._complete(piece)

    def _complete(self, body: bytes) -> None:
        header, self._header = self._header, None
        assert header is not None
        self.content(header, body)

    def _method(self, method: object) -> None:
        if isinstance(method, commands.Channel.Close):
            self._socket.send(self._number, commands.Channel.CloseOk())
            self._finish(closing_error(method.reply_code, method.reply_text))
        elif self._reply is not None and not self._reply.done() and _is_answer(method):
            self._reply.set_result(method)
        else:
            self.other(method)


_ASYNCHRONOUS = (commands.Basic.Cancel, commands.Channel.Flow)


def _is_answer(method: object) -> bool:
    return isinstance(method, Frame) and not isinstance(method, _ASYNCHRONOUS)
