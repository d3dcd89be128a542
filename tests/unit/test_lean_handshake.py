"""The lean driver's handshake against a peer that is quicker than we are: what it says early is not lost."""

from __future__ import annotations

import asyncio

from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp.base import Frame

from amqpjobs.settings import Settings
from amqpjobs.streams.lean.connection import connect
from tests.patience import PATIENCE


def frames(*methods: Frame) -> bytes:
    return b"".join(pamqp_frame.marshal(method, 0) for method in methods)


async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speaks before it is spoken to, and says all that it has to say at once."""
    writer.write(frames(commands.Connection.Start(0, 9, {"product": "Hasty", "version": "1"}, "PLAIN", "en_US")))
    writer.write(frames(commands.Connection.Tune(10, 4096, 0)))
    writer.write(frames(commands.Connection.OpenOk(), commands.Connection.Blocked("low on memory")))
    await writer.drain()
    while await reader.read(1000):
        writer.write(frames(commands.Connection.CloseOk()))
    writer.close()


async def test_what_the_broker_says_early_is_not_lost() -> None:
    server = await asyncio.start_server(hasty, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        for _ in range(50):
            async with asyncio.timeout(PATIENCE):
                connection = await connect(Settings(url=f"amqp://guest:guest@127.0.0.1:{port}/"), name="test")
            assert connection.server["product"] == "Hasty"
            assert "low on memory" in str(connection.blocked)
            await connection.close()
    finally:
        server.close()
        await server.wait_closed()
