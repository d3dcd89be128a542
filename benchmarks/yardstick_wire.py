"""The least of AMQP 0-9-1 over an asyncio protocol, for the yardsticks: no TLS, heartbeats, errors or reconnects."""

from __future__ import annotations

import asyncio
import struct
from typing import TypeVar, cast
from urllib.parse import unquote, urlsplit

from pamqp import commands, frame
from pamqp.base import Frame

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
OVERHEAD = 8
"""Bytes of a frame besides its payload: type, channel, size before it, the end mark behind it."""

DELIVER = 0x003C_003C
ACK = 0x003C_0050
_FRAME = struct.Struct(">BHI")
_ID = struct.Struct(">I")
_TAG = struct.Struct(">Q")
_ACK = struct.Struct(">BHIIQBB")
_HEADER = struct.Struct(">BHIHHQHBB")
_BASIC = 60
_FLAGS = 0x1000  # delivery mode, the only property
_PERSISTENT = 2
MOST_IN_A_FRAME = 100_000


Made = TypeVar("Made", bound="Session")


class Session(asyncio.Protocol):
    """One connection. Who inherits from it overrides what happens at a delivery, a confirm, and after each read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._rest = b""
        self._replies: asyncio.Queue[Frame] = asyncio.Queue()

    def on_deliver(self, tag: int) -> None:
        """The method frame of a delivery."""

    def on_body(self, body: bytes) -> None:
        """The body of the last delivery."""

    def on_confirm(self, tag: int) -> None:
        """The broker has every publish up to this one, or this one."""

    def after_read(self) -> None:
        """What one read brought is handled."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by descent
        self.transport.write(b"AMQP\0\0\x09\x01")

    def data_received(self, data: bytes) -> None:
        """Take the whole frames out of what came; keep the rest."""
        data = self._rest + data
        at, length = 0, len(data)
        while length - at >= OVERHEAD:
            kind, _, size = _FRAME.unpack_from(data, at)
            behind = at + size + OVERHEAD
            if behind > length:
                break
            if kind == BODY:
                self.on_body(data[at + 7 : behind - 1])
            elif kind == METHOD:
                self._on_method(data, at, behind)
            at = behind
        self._rest = data[at:]
        self.after_read()

    def _on_method(self, data: bytes, at: int, behind: int) -> None:
        (number,) = _ID.unpack_from(data, at + 7)
        if number == DELIVER:
            consumer_tag_length = data[at + 11]
            self.on_deliver(_TAG.unpack_from(data, at + 12 + consumer_tag_length)[0])
        elif number == ACK:
            self.on_confirm(_TAG.unpack_from(data, at + 11)[0])
        else:
            self._replies.put_nowait(cast(Frame, frame.unmarshal(data[at:behind])[2]))

    async def call(self, method: Frame, channel: int) -> Frame:
        """Send a method and wait for the answer."""
        self.transport.write(frame.marshal(method, channel))
        return await self._replies.get()

    async def open(self, vhost: str, user: str, password: str) -> None:
        """Shake hands, and open channels 1 and 2."""
        await self._replies.get()
        tune = await self.call(commands.Connection.StartOk({}, "PLAIN", f"\0{user}\0{password}", "en_US"), 0)
        assert isinstance(tune, commands.Connection.Tune)
        self.transport.write(frame.marshal(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), 0))
        await self.call(commands.Connection.Open(vhost), 0)
        for channel in (1, 2):
            await self.call(commands.Channel.Open(), channel)


async def connect(session: Made, url: str) -> Made:
    """Connect a session to an AMQP address."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: session, parts.hostname or "127.0.0.1", parts.port or 5672)
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    await session.open(unquote(parts.path[1:]) or "/", user, password)
    return session


def publish_method(channel: int, key: str) -> bytes:
    """The frame that begins each publish to a queue by its name."""
    return frame.marshal(commands.Basic.Publish(exchange="", routing_key=key), channel)


def content(method: bytes, channel: int, body: bytes) -> bytes:
    """A whole publish: the method frame, a header that says persistent, the body in as many frames as it takes."""
    header = _HEADER.pack(HEADER, channel, 15, _BASIC, 0, len(body), _FLAGS, _PERSISTENT, END)
    if len(body) <= MOST_IN_A_FRAME:
        return b"".join((method, header, _FRAME.pack(BODY, channel, len(body)), body, b"\xce"))
    parts = [body[at : at + MOST_IN_A_FRAME] for at in range(0, len(body), MOST_IN_A_FRAME)]
    return b"".join((method, header, *(_FRAME.pack(BODY, channel, len(each)) + each + b"\xce" for each in parts)))


def acknowledge(channel: int, tag: int) -> bytes:
    """An ack of every delivery up to this one."""
    return _ACK.pack(METHOD, channel, 13, ACK, tag, 1, END)
