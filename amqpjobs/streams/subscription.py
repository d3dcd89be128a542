"""One live reading of a stream, with a buffer that is bounded in bytes."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Self

from amqpjobs.streams.errors import BrokerError, ConnectionLost, again
from amqpjobs.streams.port import Connection, Consumer, Incoming, Start

PREFETCH = 200
"""Deliveries that the broker may have under way; with messages of 1 MiB that is the memory a reader may need."""
BUFFER_BYTES = 16 * 1024 * 1024
"""Credit is given back on arrival while less than this waits, and only for what was taken beyond it."""
CREDIT_STEP = 50


class Subscription:
    """What arrives from a stream, in order, taken in batches."""

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._step = min(CREDIT_STEP, max(1, prefetch // 4))
        self._buffer: deque[Incoming] = deque()
        self._bytes = 0
        self._arrived = 0
        self._credited = 0
        self._wake = asyncio.Event()
        self._consumer: Consumer | None = None

    @classmethod
    async def open(cls, connection: Connection, stream: str, start: Start, *, prefetch: int = PREFETCH) -> Self:
        """Begin to read. Raises NotFound, AccessRefused, ConnectionLost."""
        subscription = cls(prefetch)
        consumer = await connection.read(stream, subscription._take_in, start=start, prefetch=prefetch)
        subscription._consumer = consumer
        consumer.lost.add_done_callback(lambda _: subscription._wake.set())
        return subscription

    @property
    def backlog(self) -> int:
        """Messages that have arrived and were not taken."""
        return len(self._buffer)

    async def peek(self, timeout: float | None) -> Incoming | None:
        """The next message, which stays; None when there is none within `timeout` seconds.

        Raises ConnectionLost (ConsumerCancelled when the stream was deleted) once everything that arrived was taken.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._buffer:
                    self._raise_if_lost()
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return None
        return self._buffer[0]

    def take(self, most: int, most_bytes: float = math.inf) -> list[Incoming]:
        """What has arrived, up to so many, and gives the broker credit for as many more.

        Of bodies that are longer than `most_bytes` together only the first ones, but one at least.
        """
        taken: list[Incoming] = []
        size = 0
        while self._buffer and len(taken) < most:
            size += len(self._buffer[0].body)
            if taken and size > most_bytes:
                break
            taken.append(self._buffer.popleft())
        self._bytes -= sum(len(message.body) for message in taken)
        self._credit(1)
        return taken

    async def close(self) -> None:
        """Stop reading; safe to repeat."""
        if self._consumer is not None:
            await self._consumer.close()

    def _take_in(self, message: Incoming) -> None:
        self._buffer.append(message)
        self._bytes += len(message.body)
        self._arrived = message.tag
        self._credit(self._step)
        self._wake.set()

    def _credit(self, step: int) -> None:
        if self._consumer is None or self._bytes > BUFFER_BYTES or self._arrived - self._credited < step:
            return
        self._credited = self._arrived
        self._consumer.ack(self._arrived, multiple=True)

    def _raise_if_lost(self) -> None:
        if self._consumer is None or not self._consumer.lost.done():
            return
        reason = self._consumer.lost.exception()
        raise again(reason) if isinstance(reason, BrokerError) else ConnectionLost("the subscription was closed")
