"""The socket under the driver, kept so that a connection that does not answer can be dropped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from aiormq import TransportFactory
from aiormq.connection import TCPTransportFactory, TLSTransportFactory
from yarl import URL


class Transport(TransportFactory):
    """Opens the socket as the driver would, without Nagle's delay, and can abort it."""

    def __init__(self, url: str) -> None:
        self._inner = TLSTransportFactory() if url.startswith("amqps:") else TCPTransportFactory()
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket."""
        reader, writer = await self._inner.create(url, **kwargs)
        self._writer = writer
        raw = writer.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return reader, writer

    def abort(self) -> None:
        """Drop the socket at once."""
        if self._writer is not None:
            self._writer.transport.abort()
