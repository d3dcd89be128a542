"""Keeps `controls` short to read: while this process leads, it says now and then all that holds, in one entry.

A reader that begins minutes back then knows what was asked days ago, and retention may take the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.model import controls, names, text
from amqpjobs.model.recurring import Recurring, Refused
from amqpjobs.scheduler.election import Election
from amqpjobs.service import Service, first_to_end
from amqpjobs.streams.append import Appender
from amqpjobs.streams.controls_view import ControlsView
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link

log = logging.getLogger("amqpjobs.scheduler")

INTERVAL = 300.0
"""Seconds between snapshots while nothing changes."""
SPACING = 0.5
"""Seconds at least between two: a thousand cancellations in a second do not write a thousand."""
TIMEOUT = 10.0


class ControlsKeeper(Service):
    """Follows `controls` always, to be ready; appends snapshots while `election` is held."""

    def __init__(self, link: Link, reading: Link, election: Election, clock: Clock) -> None:
        super().__init__("keeper of controls")
        self.view = ControlsView()
        self.follower = Follower(reading, self.view, names.CONTROLS, clock=clock)
        self.follower.on_fold.append(self._look)
        self._appender = Appender(link, names.CONTROLS, clock=clock)
        self._election = election
        self._clock = clock
        self._news = asyncio.Event()
        self._covers = 0
        self._told: tuple[Refused, ...] = ()

    @property
    def recurring(self) -> Mapping[str, Recurring] | None:
        """The schedules in force; None while `controls` is not read to its end."""
        return self.view.log.controls.recurring if self.follower.caught_up else None

    async def start(self) -> None:
        """Follow, and stand ready; safe to repeat."""
        await self.follower.start()
        await super().start()

    async def stop(self) -> None:
        """Stop following; safe to repeat."""
        await super().stop()
        await self.follower.stop()
        await self._appender.close()

    async def run(self) -> None:
        """At the start of a reign, after each change, and every five minutes."""
        while True:
            await self._election.held.wait()
            await self.follower.wait_caught_up()
            if self._election.held.is_set():
                await self._say()
                await self._clock.sleep(SPACING)
                await self._wait_for_news(INTERVAL - SPACING)

    async def _say(self) -> None:
        """One snapshot; the next look tries again when it did not get through."""
        now = self._clock.wall()
        # Between two folds, which run in a thread: else what came last might be missing from what holds, and yet be
        # covered by `after`, and a pause would be undone by the snapshot that overlooked it.
        entry, self._covers = await self.follower.query(lambda: self._summary(now))
        if self.view.log.asked == self._covers:
            self._news.clear()
        try:
            await self._appender.append([text.dump(entry)], timeout=TIMEOUT)
        except BrokerError as error:
            log.warning("what holds of %s could not be said: %s", names.CONTROLS, error)
            self._covers = 0
            self._news.set()

    def _summary(self, now: float) -> tuple[dict[str, Any], int]:
        log = self.view.log
        return controls.snapshot(log.controls, now, after=self.view.reached), log.asked

    async def _wait_for_news(self, seconds: float) -> None:
        await first_to_end(self._news.wait(), self._clock.sleep(seconds))

    def _look(self) -> None:
        """What our snapshot under way says is no news, though the word of it comes later from the folding thread.

        A snapshot that missed what came in between is not taken, and leaves that news.
        """
        if self.view.log.changed and self.view.log.asked != self._covers:
            self._news.set()
        refused = tuple(self.view.log.refused)
        if self._election.held.is_set():
            for each in refused:
                if each not in self._told:
                    log.warning("the recurring job %s is refused: %s", each.name, each.reason)
        self._told = refused
