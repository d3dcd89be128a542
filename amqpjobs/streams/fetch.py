"""One message of a stream, by its offset."""

from __future__ import annotations

from amqpjobs.streams.port import Connection, Incoming
from amqpjobs.streams.subscription import Subscription

PATIENCE = 2.0
"""Seconds without a delivery after which nothing is there."""


async def message_at(connection: Connection, stream: str, offset: int) -> Incoming | None:
    """The message at that offset; None when retention took it, or when it never was. Raises BrokerError."""
    reader = await Subscription.open(connection, stream, offset, prefetch=1)
    try:
        message = await reader.peek(PATIENCE)
    finally:
        await reader.close()
    return message if message is not None and message.offset == offset else None
