"""What a subscription asks the broker for: the same with every driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from amqpjobs.streams.port import OFFSET_HEADER, Consumer, FromTime, Handler, Start


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
            # It would continue a consumer tag's delivery cursor, and skip what was delivered and not yet folded.
            arguments["x-stream-automatic-offset-tracking"] = False
        return await self._subscribe(stream, handler, prefetch, False, arguments)
