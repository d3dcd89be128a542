"""What a leader was granted, on its way out: published when its time comes, then settled, several parts at once.

Claiming goes on meanwhile (`reign`). So that a leader's death costs little, what is published and not yet settled is
counted: never more than WINDOW entries, which is the whole window for duplicates. What is claimed and not published
leaves with the successor, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable, Sequence

from amqpjobs.clock import Clock
from amqpjobs.model.pending import Pending
from amqpjobs.scheduler.release import Published
from amqpjobs.streams.room import Room

log = logging.getLogger("amqpjobs.scheduler")

WINDOW = 256
"""Entries published and not yet settled, at most: so many can run twice when a leader is killed."""
PART = 64
"""Entries published together: several parts share the window, so that one is settled while the next one leaves."""
AHEAD = 0.1
"""Seconds before its time at which an entry may be claimed: what a claim takes is over when it is due."""
WAITING = 512
"""Granted entries that wait to be published, from which on no more are claimed."""
WAITING_BYTES = 32 * 1024 * 1024
"""The same for the bytes of them."""
RETRY = 1.0
"""Seconds before entries are published again that the broker did not take."""


class Outflow:
    """Publishes and settles what is put in, the earliest due first. One reign's; `run` is its loop."""

    def __init__(
        self,
        publish: Callable[[Sequence[Pending]], Awaitable[Published]],
        settle: Callable[[Published], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._publish = publish
        self._settle = settle
        self._clock = clock
        self._heap: list[tuple[float, int, Pending]] = []
        self._bytes = 0
        self._number = 0
        self._left = 0
        self._window = Room(WINDOW)
        self._parts: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def idle(self) -> bool:
        """Whether everything that was put in is settled."""
        return not self._left

    def put(self, granted: Sequence[Pending]) -> None:
        """Take over what the fold granted. By the steady clock from now on: it leaves within AHEAD, whatever the wall
        clock does meanwhile."""
        ahead = self._clock.steady() - self._clock.wall()
        latest = self._clock.steady() + AHEAD
        for entry in granted:
            at = latest if entry.due is None else min(latest, entry.due + ahead)
            self._number += 1
            heapq.heappush(self._heap, (at, self._number, entry))
            self._bytes += len(entry.raw)
        self._left += len(granted)
        self._tell()

    async def room(self) -> None:
        """Wait until little enough waits for more to be claimed."""
        while len(self._heap) > WAITING or self._bytes > WAITING_BYTES:
            await self._news()

    async def drained(self) -> None:
        """Wait until everything that was put in is settled."""
        while not self.idle:
            await self._news()

    async def run(self) -> None:
        """Publish for ever. Raises what keeps a part from being settled; what the broker refuses is tried again."""
        while True:
            self._check()
            part = self._due()
            if not part:
                await self._news(self._wait())
                continue
            taken = await self._window.take(len(part))
            task = asyncio.create_task(self._leave(part, taken), name="release")
            self._parts.add(task)
            task.add_done_callback(self._ended)

    async def finish(self, timeout: float) -> None:
        """Begin nothing more, and let what is being published be settled, for so many seconds: else whoever leads next
        publishes it again."""
        if self._parts:
            await asyncio.wait(self._parts, timeout=timeout)
        for task in self._parts:
            task.cancel()
        await asyncio.gather(*self._parts, return_exceptions=True)

    def _due(self) -> list[Pending]:
        """The next part of what is due, oldest first."""
        now = self._clock.steady()
        part: list[Pending] = []
        while self._heap and self._heap[0][0] <= now and len(part) < PART:
            part.append(heapq.heappop(self._heap)[2])
            self._bytes -= len(part[-1].raw)
        return part

    def _wait(self) -> float | None:
        """Seconds until the next one is due; None when there is none."""
        return max(0.001, self._heap[0][0] - self._clock.steady()) if self._heap else None

    async def _leave(self, part: Sequence[Pending], taken: int) -> None:
        count = len(part)
        try:
            while part:
                published = await self._publish(part)
                await self._settle(published)
                part = published.failed
                if part:
                    log.warning("%d jobs could not be published, again in %g s: %s", len(part), RETRY, published.error)
                    await self._clock.sleep(RETRY)
        finally:
            self._left -= count
            self._window.give(taken)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._parts.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
        self._tell()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _news(self, timeout: float | None = None) -> None:
        """Wait until something is put in or has ended, or so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()
