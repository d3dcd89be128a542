"""Opening a connection: who we are, who the broker is, and what the two agree on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from pamqp import commands

from amqpjobs.addresses import Address
from amqpjobs.streams.errors import AccessRefused, BrokerError, ConnectionLost
from amqpjobs.streams.lean.channel import unmarshal
from amqpjobs.streams.lean.socket import FIRST_LIMIT, Socket
from amqpjobs.streams.lean.wire import FRAME_OVERHEAD, METHOD, BadFrame

_CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}
_LOGIN = "it refuses the user or password: check AMQPJOBS_URL"
_VHOST = "no such virtual host, or no access to it: check AMQPJOBS_URL"

T = TypeVar("T")


class Agreed(NamedTuple):
    """What holds for an open connection. `frame_max` is in bytes, overhead included."""

    server: Mapping[str, str]
    answers_cancel: bool
    frame_max: int
    channel_max: int


class Handshake:
    """The channel 0 of a socket while it is being opened. `left`: methods that came behind the last answer."""

    def __init__(self, socket: Socket) -> None:
        self.left: asyncio.Queue[object] = asyncio.Queue()
        self.socket = socket
        socket.channels[0] = self

    def frame(self, kind: int, buffer: bytes, start: int, end: int) -> None:
        """One method, kept until it is its turn."""
        if kind != METHOD:
            raise BadFrame(f"a frame of kind {kind} on channel 0")
        self.left.put_nowait(unmarshal(kind, 0, buffer, start, end))

    def end(self, reason: BrokerError | None) -> None:
        """Whoever waits sees it at the socket's life."""

    async def shake(self, address: Address, *, heartbeat: int, name: str) -> Agreed:
        """Open the connection; `heartbeat` is in seconds. Raises AccessRefused, ConnectionLost."""
        start = await self._expect(commands.Connection.Start)
        properties: Mapping[str, Any] = start.server_properties or {}
        ours: Any = {"product": "amqpjobs", "connection_name": name, "capabilities": _CAPABILITIES}
        login = f"\0{address.user}\0{address.password}"
        self.socket.send(0, commands.Connection.StartOk(ours, "PLAIN", login, "en_US"))
        tune = await self._expect(commands.Connection.Tune, _LOGIN)
        frame_max = tune.frame_max or FIRST_LIMIT
        channel_max = tune.channel_max or 65_535
        interval = min(heartbeat, tune.heartbeat) if tune.heartbeat else heartbeat
        self.socket.send(0, commands.Connection.TuneOk(channel_max, frame_max, interval))
        self.socket.send(0, commands.Connection.Open(address.vhost))
        await self._expect(commands.Connection.OpenOk, _VHOST)
        self.socket.parser.limit = frame_max - FRAME_OVERHEAD
        self.socket.beat(interval)
        capabilities = properties.get("capabilities") or {}
        answers_cancel = bool(capabilities.get("accept_consumer_cancel_ok"))
        return Agreed(_texts(properties), answers_cancel, frame_max, channel_max)

    async def _expect(self, answer: type[T], refusal: str = "") -> T:
        """The next method. `refusal` says what a close in its place means."""
        waiting = asyncio.ensure_future(self.left.get())
        try:
            both: set[asyncio.Future[Any]] = {waiting, self.socket.life.lost}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise self.socket.life.gone()
            method = waiting.result()
        finally:
            waiting.cancel()
        if isinstance(method, answer):
            return method
        if isinstance(method, commands.Connection.Close):
            if method.reply_code in (403, 530) and refusal:
                raise AccessRefused(refusal)
            raise ConnectionLost(f"{method.reply_code} {method.reply_text}")
        raise ConnectionLost(f"the broker sent {type(method).__name__} in place of {answer.__name__}")


def _texts(properties: Mapping[str, Any]) -> Mapping[str, str]:
    """What the broker says of itself in words."""
    return {
        str(key): value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value)
        for key, value in properties.items()
        if isinstance(value, str | bytes | bytearray)
    }
