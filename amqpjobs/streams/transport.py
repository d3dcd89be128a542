"""The socket under the driver, kept so that a connection that does not answer can be dropped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any

from aiormq import TransportFactory
from yarl import URL


class Transport(TransportFactory):
    """Opens the socket without Nagle's delay, with TLS when there is a context, and can abort it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the socket. Raises OSError, ssl.SSLError."""
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=self._tls)
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
