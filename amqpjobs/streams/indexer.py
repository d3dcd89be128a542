"""Filling a view's search index while the process runs: behind the fold, a step at a time."""

from __future__ import annotations

import asyncio

from amqpjobs.clock import Clock
from amqpjobs.service import Service
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.views import DelayedView

PAUSE = 0.01
"""Seconds between two steps while there is more: folds and questions come in between."""
CALM = 0.25
"""Seconds after a fold before what it brought is indexed: many a retry has come and gone by then."""


class Indexer(Service):
    """Steps through what a view has folded, once its follower has caught up."""

    def __init__(self, follower: Follower, view: DelayedView, clock: Clock) -> None:
        super().__init__(f"indexer of {view.stream}")
        self._follower, self._view, self._clock = follower, view, clock
        self._folded = asyncio.Event()

    async def run(self) -> None:
        """Index, sleep, index."""
        self._follower.on_fold.append(self._folded.set)
        try:
            while True:
                await self._follower.wait_caught_up()
                self._folded.clear()
                while await self._follower.query(self._view.index_some):
                    await self._clock.sleep(PAUSE)
                await self._folded.wait()
                await self._clock.sleep(CALM)
        finally:
            self._follower.on_fold.remove(self._folded.set)
