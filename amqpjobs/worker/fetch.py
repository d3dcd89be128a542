"""Brings jobs from the broker's queues into this process, and keeps doing so through every loss."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.service import Service
from amqpjobs.streams.link import Link
from amqpjobs.worker.feed import Declarations, Feed
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.subscription import Delivery


class QueueShare(NamedTuple):
    """A queue to take from. With weight 0 for all, the order of the list is strict."""

    name: str
    weight: int = 0


class Fetcher:
    """Holds the jobs that were delivered and not begun; `take` hands out the next.

    Without weights an earlier queue is always served before a later one; with weights a queue of weight 2 is asked
    first twice as often as one of weight 1.
    """

    def __init__(
        self, link: Link, queues: Sequence[QueueShare], ledger: Ledger, *, prefetch: int, clock: Clock
    ) -> None:
        self._shares = list(queues)
        self._waiting: deque[asyncio.Future[None]] = deque()
        declared = Declarations(link)
        self._feeds = [
            Feed(link, share.name, ledger, declared, prefetch=prefetch, clock=clock, wake=self._wake)
            for share in self._shares
        ]

    @property
    def services(self) -> Sequence[Service]:
        """The loops that must not end by themselves."""
        return self._feeds

    @property
    def buffered(self) -> int:
        """How many jobs are delivered and not begun."""
        return sum(len(feed.buffer) for feed in self._feeds)

    async def start(self) -> None:
        """Subscribe to every queue and keep subscribed; safe to repeat."""
        for feed in self._feeds:
            await feed.start()

    async def tried(self) -> list[str]:
        """Wait until each queue is served or has failed to be once; the reasons of those that failed."""
        await asyncio.gather(*(feed.tried.wait() for feed in self._feeds))
        return [feed.trouble for feed in self._feeds if feed.trouble]

    async def take(self) -> Delivery:
        """The next job, waiting for one."""
        while (delivery := self._next()) is None:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        return delivery

    async def quiet(self) -> None:
        """Take no more, and give back what was not begun; acks still work. Safe to repeat."""
        await asyncio.gather(*(feed.quiet() for feed in self._feeds))

    async def stop(self) -> None:
        """Close every channel: what is unacknowledged is the broker's again. Safe to repeat."""
        await asyncio.gather(*(feed.close() for feed in self._feeds))

    def _next(self) -> Delivery | None:
        for feed in self._order():
            if feed.buffer:
                return feed.buffer.popleft()
        return None

    def _order(self) -> Sequence[Feed]:
        if len(self._feeds) == 1 or not any(share.weight for share in self._shares):
            return self._feeds
        keys = [random.random() ** (1 / max(1, share.weight)) for share in self._shares]  # noqa: S311
        return [feed for _, _, feed in sorted(zip(keys, range(len(keys)), self._feeds, strict=True), reverse=True)]

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
