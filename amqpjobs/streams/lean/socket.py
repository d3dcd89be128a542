"""One socket: frames in, bytes out, heartbeats, and the back pressure of both."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Protocol, cast

from pamqp import frame as pamqp_frame
from pamqp.base import Frame

from amqpjobs.streams.errors import BrokerError, ConnectionLost
from amqpjobs.streams.lean.wire import HEARTBEAT, HEARTBEAT_FRAME, BadFrame, Parser
from amqpjobs.streams.life import Life

FIRST_LIMIT = 131_072
"""Largest payload before the two sides have agreed on one."""
HIGH_WATER = 4 * 1024 * 1024
"""Bytes written and not yet taken by the kernel beyond which publishers wait."""


class Channel(Protocol):
    """Takes the frames of one channel."""

    def frame(self, kind: int, buffer: bytes, start: int, end: int) -> int | None:
        """One frame, or more: see `wire.Sink`."""
        ...

    def end(self, reason: BrokerError | None) -> None:
        """The connection is gone."""
        ...


class Socket(asyncio.Protocol):
    """The asyncio protocol under a connection. `life` ends with the socket."""

    def __init__(self) -> None:
        self.life = Life()
        self.channels: dict[int, Channel] = {}
        self.parser = Parser(self, FIRST_LIMIT)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._flushing = False
        self._going_on = self._held = False
        self._drained = asyncio.Event()
        self._drained.set()
        self._interval = 0.0
        self._heard = self._said = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: say which protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.write(b"AMQP\0\0\x09\x01")

    def data_received(self, data: bytes) -> None:
        """Hand over the frames; bytes that are no AMQP end the connection."""
        self._heard = self._loop.time()
        self._more(self._read(data))

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone; what came before counts, such as why."""
        while not self.life.over and self._read():
            pass
        self.end(ConnectionLost(str(error) or type(error).__name__ if error else "the broker closed the connection"))

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._drained.set()

    # Ours.

    def _read(self, data: bytes = b"") -> bool:
        """Hand over frames, as many as are to be in one turn of the loop; whether there are more."""
        try:
            return self.parser.feed(data)
        except BadFrame as error:
            self.abort(ConnectionLost(f"the broker sent what is no AMQP: {error}"))
            return False

    def _more(self, more: bool) -> None:
        """Go on in the next turn where there is more. Until then nothing is read, so that what waits here is little."""
        if more and not self._going_on:
            self._going_on = True
            self._loop.call_soon(self._go_on)
        if more != self._held and self._transport is not None and not self._transport.is_closing():
            self._held = more
            (self._transport.pause_reading if more else self._transport.resume_reading)()

    def _go_on(self) -> None:
        self._going_on = False
        if not self.life.over:
            self._more(self._read())

    @property
    def paused(self) -> bool:
        """Whether publishers should wait."""
        return not self._drained.is_set()

    async def drained(self) -> None:
        """Wait until the kernel takes bytes again, or the socket is gone."""
        await self._drained.wait()

    def frame(self, kind: int, channel: int, buffer: bytes, start: int, end: int) -> int | None:
        """One frame for whoever has the channel; a closed channel's last frames are dropped."""
        taker = self.channels.get(channel)
        if taker is not None and kind != HEARTBEAT:
            return taker.frame(kind, buffer, start, end)
        return None

    def write(self, data: bytes) -> None:
        """Send with everything else of this turn of the loop, in one system call."""
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def send(self, channel: int, method: Frame) -> None:
        """Send a method. Raises ValueError, TypeError or struct.error for what cannot be written."""
        self.write(pamqp_frame.marshal(method, channel))

    def flush(self) -> None:
        """Send what was collected."""
        self._flushing = False
        out, self._out = self._out, []
        if out and self._transport is not None and not self.life.over:
            self._said = self._loop.time()
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def beat(self, interval: float) -> None:
        """Send a heartbeat in each half of `interval` seconds without a write, and expect one in two intervals."""
        self._interval = interval
        if interval:
            self._timer = self._loop.call_later(interval / 2, self._beat, False)

    def _beat(self, warned: bool) -> None:
        now = self._loop.time()
        if now - self._said >= self._interval / 2:
            self._said = now
            if self._transport is not None:
                self._transport.write(HEARTBEAT_FRAME)
        silent = now - self._heard > 2 * self._interval
        if silent and warned:
            self.abort(ConnectionLost(f"no sign of life from the broker for {now - self._heard:.0f} s"))
            return
        # A loop that was held up finds its timers due before it reads what has long arrived: look twice.
        pause = min(1.0, self._interval / 4) if silent else self._interval / 2
        self._timer = self._loop.call_later(pause, self._beat, silent)

    def close(self) -> None:
        """Send what is left and close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: BrokerError | None = None) -> None:
        """Drop the socket at once."""
        self.end(reason)
        if self._transport is not None:
            self._transport.abort()

    def end(self, reason: BrokerError | None = None) -> None:
        """End the life of the connection and of all its channels; the first call counts."""
        if not self.life.end(reason):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._drained.set()
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.end(reason)
