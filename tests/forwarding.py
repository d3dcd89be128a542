"""A TCP forwarder whose network can be cut: connections stay open, and nothing comes through in either direction."""

from __future__ import annotations

import asyncio
import contextlib
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
        await self._whole.wait()
        there, back = await asyncio.open_connection(*self._there)
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                await self._whole.wait()
                target.write(data)
                await target.drain()
        await self._whole.wait()  # nor does the end of a connection come through
        target.close()


@asynccontextmanager
async def forwarding(settings: Settings) -> AsyncIterator[tuple[Forwarder, Settings]]:
    """A forwarder to the broker, and the settings by which it is reached through it."""
    parts = urlsplit(settings.url)
    forwarder = Forwarder(parts.hostname or "127.0.0.1", parts.port or 5672)
    await forwarder.start()
    place = f"{parts.username}:{parts.password}@127.0.0.1:{forwarder.port}"
    try:
        yield forwarder, settings.model_copy(update={"url": urlunsplit(parts._replace(netloc=place))})
    finally:
        forwarder.heal()
        await forwarder.stop()
