"""Brings jobs from the broker's queues into this process, and keeps doing so through every loss."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.service import Service
from amqpjobs.streams.link import Link
from amqpjobs.worker.bare_feed import BareFeed
from amqpjobs.worker.declarations import Declarations
from amqpjobs.worker.feed import Feed
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.subscription import REFILL, Delivery
from amqpjobs.worker.window import Reviews, Window


class QueueShare(NamedTuple):
    """A queue to take from. With weight 0 for all, the order of the list is strict."""

    name: str
    weight: int = 0


LONGEST_HOLD = 0.25
"""Seconds that a start is kept for a queue whose next jobs are on their way, before another queue has it."""


class _Turn:
    """A queue's claim to the next start. More than one feed may bring its jobs."""

    __slots__ = ("credit", "feeds", "owed_since", "weight")

    def __init__(self, feeds: Sequence[Feed], weight: int) -> None:
        self.feeds = deque(feeds)
        self.weight = weight
        self.credit = 0
        self.owed_since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether it has a job."""
        return any(feed.buffer for feed in self.feeds)

    def wants(self, now: float) -> bool:
        """Whether it has a job, or will have one in a moment. `now` in the loop's seconds."""
        if self.ready:
            return True
        if not any(feed.refilling(now) for feed in self.feeds):
            self.owed_since = None
            return False
        self.owed_since = now if self.owed_since is None else self.owed_since
        return now - self.owed_since < LONGEST_HOLD

    def pop(self) -> Delivery | None:
        """Its next job, from its feeds by turns; None while it is on its way."""
        for feed in self.feeds:
            if feed.buffer:
                break
        else:
            return None
        self.owed_since = None
        if self.feeds[-1] is not feed:
            self.feeds.remove(feed)
            self.feeds.append(feed)
        return feed.buffer.popleft()


class Fetcher:
    """Holds the jobs that were delivered and not begun; `next` hands out the next.

    Without weights an earlier queue is always served before a later one. With weights, queues that have jobs get their
    shares of the starts, evenly spread: of weights 3 and 1 every fourth start is the second's. A queue that is full
    at the broker, and empty here only until the next acknowledgements are there, keeps its turn for a moment: else
    quick jobs would leave by the rate of the deliveries, whatever the order.
    """

    def __init__(
        self,
        link: Link,
        queues: Sequence[QueueShare],
        ledger: Ledger,
        *,
        prefetch: int | None,
        concurrency: int,
        clock: Clock,
        hold: bool = True,
    ) -> None:
        """`prefetch` None: twice the concurrency, and more of quick jobs (see `window`).

        `hold`: whether a queue keeps its turn; not where all that may be delivered of it may be running.
        """
        self.on_job: Callable[[], None] = lambda: None
        """Called on the loop when there may be a job where `next` had none."""
        self._waking = False
        declared = Declarations(link, clock)
        least = prefetch or 2 * concurrency

        def feeds(kind: type[Feed]) -> list[Feed]:
            return [
                kind(link, share.name, ledger, declared, window=Window(least), clock=clock, wake=self._wake)
                for share in queues
            ]

        self._feeds = feeds(Feed)
        bare = feeds(BareFeed)
        self._all: list[Feed] = [*self._feeds, *bare]
        self._turns = [
            _Turn((feed, beside), max(1, share.weight))
            for feed, beside, share in zip(self._feeds, bare, queues, strict=True)
        ]
        self._weighted = any(share.weight for share in queues)
        self._hold = hold and len(self._feeds) > 1
        self._reviews = [Reviews(self._all, clock)] if prefetch is None else []
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def services(self) -> Sequence[Service]:
        """The loops that must not end by themselves."""
        return [*self._all, *self._reviews]

    @property
    def buffered(self) -> int:
        """How many jobs are delivered and not begun."""
        return sum(len(feed.buffer) for feed in self._all)

    @property
    def paused(self) -> list[str]:
        """The queues of this worker that are paused."""
        return [feed.queue for feed in self._feeds if feed.paused]

    def pause(self, queues: Collection[str]) -> None:
        """Exactly these queues are paused from now on: no job of theirs is begun."""
        for feed in self._all:
            if feed.queue in queues:
                feed.pause()
            else:
                feed.resume()

    async def start(self) -> None:
        """Subscribe to every queue and keep subscribed; safe to repeat."""
        for service in self.services:
            await service.start()

    async def tried(self) -> list[str]:
        """Wait until each queue is served or has failed to be once; the reasons of those that failed."""
        await asyncio.gather(*(feed.tried.wait() for feed in self._feeds))
        return [feed.trouble for feed in self._feeds if feed.trouble]

    async def quiet(self) -> None:
        """Take no more, and give back what was not begun; acks still work. Safe to repeat."""
        for reviews in self._reviews:
            await reviews.stop()
        await asyncio.gather(*(feed.quiet() for feed in self._all))

    async def stop(self) -> None:
        """Close every channel: what is unacknowledged is the broker's again. Safe to repeat."""
        if self._alarm is not None:
            self._alarm.cancel()
        for reviews in self._reviews:
            await reviews.stop()
        await asyncio.gather(*(feed.close() for feed in self._all))

    def next(self) -> Delivery | None:
        """The next job, or None: `on_job` is called when there is one."""
        if self._hold or self._weighted:
            return self._next_in_turn()
        for turn in self._turns:
            delivery = turn.pop()
            if delivery is not None:
                return delivery
        return None

    def _next_in_turn(self) -> Delivery | None:
        now = asyncio.get_running_loop().time()
        wanting = [turn for turn in self._turns if turn.ready or (self._hold and turn.wants(now))]
        if not wanting:
            return None
        first = max(wanting, key=lambda turn: turn.credit + turn.weight) if self._weighted else wanting[0]
        delivery = first.pop()
        if delivery is None:
            self._look_again()
        elif self._weighted:  # each that wanted it earns its weight, and who has it pays for all
            for turn in wanting:
                turn.credit += turn.weight
            first.credit -= sum(turn.weight for turn in wanting)
        return delivery

    def _look_again(self) -> None:
        """What is on its way may not come after all: its queue has run dry."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(REFILL, self._wake_later)

    def _wake_later(self) -> None:
        self._alarm = None
        self._wake()

    def _wake(self) -> None:
        """Tell of all that came in this turn of the loop at once."""
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._waking = False
        self.on_job()
