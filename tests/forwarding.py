"""A TCP forwarder whose network can be cut: connections stay open, and nothing comes through in either direction."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from amqpjobs.settings import Settings


class Forwarder:
    """Forwards `port` of this machine to another address. What is sent while it is cut comes when it heals, as it does
    with a network: TCP sends it again."""

    def __init__(self, host: str, port: int) -> None:
        self._there = host, port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def heal(self) -> None:
        self._whole.set()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):  # asyncio's server complains of a handler that was cancelled
            await self._whole.wait()
            there, back = await asyncio.open_connection(*self._there)
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    def passing(self, source: asyncio.StreamReader, data: bytes) -> bytes:
        """For subclasses: what of it goes on."""
        return data

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                await self._whole.wait()
                target.write(self.passing(source, data))
                await target.drain()
        await self._whole.wait()  # nor does the end of a connection come through
        target.close()


class Swallower(Forwarder):
    """Keeps confirms back while `swallowing`, as a broker does that has forgotten a channel."""

    ACK = struct.pack(">HH", 60, 80)

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.swallowing = False
        self.swallowed = 0
        self._left: dict[asyncio.StreamReader, bytes] = {}

    def passing(self, source: asyncio.StreamReader, data: bytes) -> bytes:
        """Whole frames without those confirms; clients send acknowledgements that look the same, but not so here."""
        data = self._left.pop(source, b"") + data
        passing, at = [], 0
        if data.startswith(b"AMQP"):  # a client's greeting
            passing, at = [data[:8]], 8
        while len(data) >= at + 7 and len(data) >= (end := at + 8 + struct.unpack_from(">I", data, at + 3)[0]):
            if self.swallowing and data[at] == 1 and data[at + 7 : at + 11] == self.ACK:
                self.swallowed += 1
            else:
                passing.append(data[at:end])
            at = end
        self._left[source] = data[at:]
        return b"".join(passing)


@asynccontextmanager
async def forwarding(settings: Settings) -> AsyncIterator[tuple[Forwarder, Settings]]:
    """A forwarder to the broker, and the settings by which it is reached through it."""
    forwarder = Forwarder(*_place(settings))
    async with _through(forwarder, settings) as away:
        yield forwarder, away


@asynccontextmanager
async def swallowing(settings: Settings) -> AsyncIterator[tuple[Swallower, Settings]]:
    """The same with one that can keep confirms back."""
    swallower = Swallower(*_place(settings))
    async with _through(swallower, settings) as away:
        yield swallower, away


def _place(settings: Settings) -> tuple[str, int]:
    parts = urlsplit(settings.url)
    return parts.hostname or "127.0.0.1", parts.port or 5672


@asynccontextmanager
async def _through(forwarder: Forwarder, settings: Settings) -> AsyncIterator[Settings]:
    await forwarder.start()
    parts = urlsplit(settings.url)
    place = f"{parts.username}:{parts.password}@127.0.0.1:{forwarder.port}"
    try:
        yield settings.model_copy(update={"url": urlunsplit(parts._replace(netloc=place))})
    finally:
        forwarder.heal()
        await forwarder.stop()
