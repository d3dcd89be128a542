"""Recurring jobs, as the leader of `scheduled_jobs` sees them: which ticks are to happen now, and when the next one is.

Each tick is one entry, appended under the leader's term and judged by the fold (rule 19), which is also the entry of
its job. So a leader that is killed anywhere has either let the tick happen, and its job waits to be released like any
other, or not, and its successor does.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amqpjobs import schedules
from amqpjobs.clock import Clock
from amqpjobs.model import control, names, recurring, text
from amqpjobs.model.fields import Problem
from amqpjobs.model.recurring import Recurring, Schedule
from amqpjobs.scheduler.controls import TIMEOUT, ControlsKeeper
from amqpjobs.scheduler.election import RETRY, Election
from amqpjobs.service import Service
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.link import Link

log = logging.getLogger("amqpjobs.scheduler")

Standing = Mapping[str, Recurring]


class Ticker:
    """Plans ticks. `standing` tells the schedules in force, or None while they are not known."""

    def __init__(self, standing: Callable[[], Standing | None]) -> None:
        self._standing = standing
        self._planned: Standing | None = None
        self._planned_at = math.inf
        self._first: dict[str, tuple[float, float]] = {}
        self._next: dict[str, float] = {}
        self.next = math.inf
        """When the next tick is, by the wall clock; infinity when there is none."""

    def wanted(self, now: float) -> bool:
        """Whether there is something to plan: a tick is due, schedules changed, or the clock was set back."""
        standing = self._standing()
        if standing is None:
            self._planned, self.next = None, math.inf
            return False
        return standing is not self._planned or now >= self.next or now < self._planned_at

    def plan(self, now: float, last: Mapping[str, int], epoch: str, n: int) -> list[dict[str, Any]]:
        """The entries that let happen what is due; `last` is the last tick of each name. Moves `next`."""
        standing, planned = self._standing() or {}, self._planned or {}
        if now < self._planned_at:
            self._next = {}
        self._next = {name: at for name, at in self._next.items() if standing.get(name) == planned.get(name)}
        _report(standing, planned)
        entries = []
        for each in standing.values():
            if now >= self._next.get(each.schedule.name, -math.inf):
                entries += self._plan(each, now, last.get(each.schedule.name), epoch, n)
        self._first = {name: first for name, first in self._first.items() if name in standing}
        self._planned, self._planned_at = standing, now
        self.next = min(self._next.values(), default=math.inf)
        return entries

    def _plan(self, each: Recurring, now: float, last: int | None, epoch: str, n: int) -> list[dict[str, Any]]:
        name = each.schedule.name
        found = recurring.ticks(self._since_known(each, now), last, now)
        self._next[name] = math.inf if found.next is None else found.next
        if found.back:
            log.warning("the last tick of %s lies in the future: a clock was wrong; ticks count from now on", name)
            return [control.write_tick(epoch, n, name, int(now), back=True)]
        bodies = ((tick, recurring.tick_entry(each.schedule, tick)) for tick in found.due)
        return [control.write_tick(epoch, n, name, tick, body) for tick, body in bodies]

    def _since_known(self, each: Recurring, now: float) -> Recurring:
        """A declarer's clock may be ahead of ours: what it declared counts from when we first saw it, at the latest."""
        name = each.schedule.name
        since, first = self._first.get(name, (each.since, now))
        first = min(first, now) if since == each.since else now
        self._first[name] = each.since, first
        return replace(each, since=min(each.since, first))


def _report(standing: Standing, before: Standing) -> None:
    """A schedule that was accepted elsewhere and cannot be understood here: say so once."""
    for name, each in standing.items():
        times = each.schedule.times
        if isinstance(times, Problem) and before.get(name) != each:
            log.error("the recurring job %s has no ticks here: %s", name, times)


class Declarer(Service):
    """Declares what the configuration file says, once whenever this process comes to lead, and removes what it no
    longer says. Without a file (`wanted` is None) it leaves alone what another's said."""

    def __init__(
        self, link: Link, keeper: ControlsKeeper, election: Election, clock: Clock, wanted: Sequence[Schedule] | None
    ) -> None:
        super().__init__("declarer of recurring jobs")
        self._appender = Appender(link, names.CONTROLS, clock=clock)
        self._keeper, self._election, self._clock = keeper, election, clock
        self._wanted = wanted

    async def stop(self) -> None:
        """Stop, and close the channel; safe to repeat."""
        await super().stop()
        await self._appender.close()

    async def run(self) -> None:
        """Elected: declare; then wait for the next time."""
        while True:
            await self._election.held.wait()
            await self._keeper.follower.wait_caught_up()
            if self._wanted is None or await self._declare(self._wanted):
                await self._election.lost()
            else:
                await self._clock.sleep(RETRY)

    async def _declare(self, wanted: Sequence[Schedule]) -> bool:
        known, now = self._keeper.recurring, self._clock.wall()
        if known is None:
            return False
        entries = schedules.changes(known, wanted, {schedules.FILE}, by="the configuration file", at=now)
        try:
            await self._appender.append([text.dump(entry) for entry in entries], timeout=TIMEOUT)
        except BrokerError as error:
            log.warning("recurring jobs of the configuration file could not be declared: %s", error)
            return False
        for entry in entries:
            log.info("%s: the configuration file's recurring job %s", entry["op"], entry["name"])
        return True
