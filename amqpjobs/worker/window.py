"""How many jobs a worker takes from a queue ahead of their turn: few slow ones, a tenth of a second of quick ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from amqpjobs.clock import Clock
from amqpjobs.service import Service

AHEAD = 0.1
"""Seconds of work that may wait here, once it is known how quickly it goes."""
MOST = 1000
REVIEW = 0.25
PATIENCE = 4
"""Reviews in a row that find a window too wide before it narrows: a pause of a moment should cost nothing."""


class Window:
    """A prefetch that follows the rate of the jobs, between `least` and MOST.

    With a fixed one either quick jobs wait for their acknowledgements (each confirm takes milliseconds, in which only
    the prefetched ones can run), or slow ones pile up behind a busy worker while another one has nothing to do.
    """

    def __init__(self, least: int) -> None:
        self.size = self._least = least
        self._too_wide = 0

    def review(self, settled: int, seconds: float) -> int:
        """The size from now on, after `settled` jobs in so many seconds."""
        wanted = settled / seconds * AHEAD
        if wanted > self.size:
            self._too_wide = 0
            self.size = self._fit(wanted)
        elif wanted > self.size / 4 or self.size == self._least:
            self._too_wide = 0
        else:
            self._too_wide += 1
            if self._too_wide >= PATIENCE:
                self._too_wide = 0
                self.size = self._fit(wanted)
        return self.size

    def _fit(self, wanted: float) -> int:
        """In steps of two, so that it does not change all the time."""
        size = self._least
        while size < wanted:
            size *= 2
        return max(self._least, min(size, MOST))


class Reviewed(Protocol):
    """What has a window."""

    async def review(self, seconds: float) -> None:
        """Look at the last `seconds`."""
        ...


class Reviews(Service):
    """Looks at the windows four times a second."""

    def __init__(self, feeds: Sequence[Reviewed], clock: Clock) -> None:
        super().__init__("prefetch")
        self._feeds = feeds
        self._clock = clock

    async def run(self) -> None:
        """Look at each."""
        before = self._clock.steady()
        while True:
            await self._clock.sleep(REVIEW)
            now = self._clock.steady()
            for feed in self._feeds:
                await feed.review(now - before)
            before = now
