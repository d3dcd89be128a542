"""What a subscription asks the broker for: the same with every driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from amqpjobs.streams.port import OFFSET_HEADER, Consumer, FromTime, Handler, Start

LAVINMQ_STARTS: Mapping[str, int] = {"first": 0, "last": -1}
"""What takes the place of the words for a start on LavinMQ: no reader of ours may begin at one."""


class Subscribing(ABC):
    """The two ways to subscribe of `port.Connection`, over a driver's own `_subscribe`."""

    server: Mapping[str, str]

    @abstractmethod
    async def _subscribe(
        self, queue: str, handler: Handler, prefetch: int, exclusive: bool, arguments: dict[str, Any]
    ) -> Consumer: ...

    async def consume(
        self, queue: str, handler: Handler, *, prefetch: int, exclusive: bool = False, priority: int | None = None
    ) -> Consumer:
        """Consume from a queue by its broker name."""
        arguments = {} if priority is None else {"x-priority": priority}
        return await self._subscribe(queue, handler, prefetch, exclusive, arguments)

    async def read(self, stream: str, handler: Handler, *, start: Start, prefetch: int = 1000) -> Consumer:
        """Read a stream from `start`."""
        at = datetime.fromtimestamp(start.at, UTC) if isinstance(start, FromTime) else start
        arguments: dict[str, Any] = {OFFSET_HEADER: at}
        if self.server.get("product") == "LavinMQ":
            # A consumer that begins at a word while the stream is empty stands one before its first offset there: from
            # the first message on the broker's loop for it never sleeps, and the offsets that it tells are one too low.
            # Numbers are right, whatever the stream holds: 0 is before the first offset, -1 is the last message (to a
            # version that does not count from the end, what is before the first).
            arguments[OFFSET_HEADER] = LAVINMQ_STARTS.get(at, at) if isinstance(at, str) else at
            # It would continue a consumer tag's delivery cursor, and skip what was delivered and not yet folded.
            arguments["x-stream-automatic-offset-tracking"] = False
        return await self._subscribe(stream, handler, prefetch, False, arguments)
