"""Brings jobs from the broker's queues into this process, and keeps doing so through every loss."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
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


class _Turn:
    """A queue's claim to the next start, while queues have weights."""

    __slots__ = ("credit", "feed", "weight")

    def __init__(self, feed: Feed, weight: int) -> None:
        self.feed = feed
        self.weight = max(1, weight)
        self.credit = 0


class Fetcher:
    """Holds the jobs that were delivered and not begun; `take` hands out the next.

    Without weights an earlier queue is always served before a later one. With weights, queues that have jobs get their
    shares of the starts, evenly spread: of weights 3 and 1 every fourth start is the second's.
    """

    def __init__(
        self, link: Link, queues: Sequence[QueueShare], ledger: Ledger, *, prefetch: int, clock: Clock
    ) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        declared = Declarations(link)
        self._feeds = [
            Feed(link, share.name, ledger, declared, prefetch=prefetch, clock=clock, wake=self._wake)
            for share in queues
        ]
        weighted = any(share.weight for share in queues)
        self._turns = [_Turn(feed, share.weight) for feed, share in zip(self._feeds, queues, strict=True) if weighted]

    @property
    def services(self) -> Sequence[Service]:
        """The loops that must not end by themselves."""
        return self._feeds

    @property
    def buffered(self) -> int:
        """How many jobs are delivered and not begun."""
        return sum(len(feed.buffer) for feed in self._feeds)

    @property
    def paused(self) -> list[str]:
        """The queues of this worker that are paused."""
        return [feed.queue for feed in self._feeds if feed.paused]

    def pause(self, queues: Collection[str]) -> None:
        """Exactly these queues are paused from now on: no job of theirs is begun."""
        for feed in self._feeds:
            if feed.queue in queues:
                feed.pause()
            else:
                feed.resume()

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
        if self._turns:
            return self._next_by_weight()
        for feed in self._feeds:
            if feed.buffer:
                return feed.buffer.popleft()
        return None

    def _next_by_weight(self) -> Delivery | None:
        """Each queue that has a job earns its weight, and the one with the most pays for the start."""
        ready = [turn for turn in self._turns if turn.feed.buffer]
        if not ready:
            return None
        for turn in ready:
            turn.credit += turn.weight
        first = max(ready, key=lambda turn: turn.credit)
        first.credit -= sum(turn.weight for turn in ready)
        return first.feed.buffer.popleft()

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
