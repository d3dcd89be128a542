"""Leading the tracked jobs: what time changes of them is said by one process, exactly when it is due.

A job's first time, its next try, its timeout, the silence of its worker, its expiry: each is an instant that the view
knows. The leader sleeps until the earliest and appends a `tick` for each job then; whether the time has come is for the
fold to say, under the current term. So a sign of life that landed before the tick counts, and a deposed leader's ticks
do not.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from amqpjobs.clock import Clock
from amqpjobs.model import control, names, text, tracked_pages
from amqpjobs.model.tracked import Tracked
from amqpjobs.scheduler.election import RETRY, Election
from amqpjobs.scheduler.reign import BATCH
from amqpjobs.scheduler.term import FOLD_TIMEOUT, Deposed, TermHolder
from amqpjobs.scheduler.tracked_answers import Answers
from amqpjobs.scheduler.tracked_offers import Offers
from amqpjobs.service import Service
from amqpjobs.settings import StreamLimits, age_seconds
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link
from amqpjobs.streams.sender import Sender
from amqpjobs.streams.tracked_pages import PagedStart, PageReader
from amqpjobs.streams.tracked_view import TrackedView
from amqpjobs.streams.view_file import remove

log = logging.getLogger("amqpjobs.scheduler")

LEAST_SPAN = 64 * 1024 * 1024
"""Bytes of the log that are never worth writing all again."""


class TrackedLeader(Service):
    """Follows `job_events` always, and leads it while this process is elected."""

    def __init__(
        self,
        link: Link,
        reading: Link,
        election: Election,
        clock: Clock,
        *,
        folder: Path,
        identity: str,
        limits: StreamLimits,
    ) -> None:
        super().__init__(f"leader of {names.EVENTS}")
        self.view = TrackedView(folder, keep_old=True)
        self.follower = Follower(reading, self.view, names.EVENTS, clock=clock, origin=PagedStart(self.view))
        self.leading = False
        self.limits = limits
        self._answers = Answers(link, f"answers of {names.EVENTS}")
        self._sender = Sender(link, clock=clock)
        self.offers = Offers(self._sender, clock, timeout=FOLD_TIMEOUT)
        self._link, self._election, self._clock, self._identity = link, election, clock, identity

    async def run(self) -> None:
        """Elected: lead. What ends by an error is tried again with a new term."""
        self.follower.on_fold.append(self._answer)
        try:
            await self._election.serve(self._reign)
        finally:
            self.follower.on_fold.remove(self._answer)

    async def start(self) -> None:
        """Start; safe to repeat."""
        await self._answers.start()
        await super().start()

    async def close(self) -> None:
        """Stop for good; safe to repeat."""
        await self.stop()
        await self._answers.stop()
        await self._sender.close()
        await self.follower.stop()
        self.view.close()

    def _answer(self) -> None:
        """One process answers: the one that leads."""
        if self.leading:
            self._answers.put(self.view.asked)

    async def _reign(self) -> None:
        while True:
            appender = Appender(self._link, names.EVENTS, clock=self._clock)
            try:
                await TrackedReign(self, appender, self._clock, identity=self._identity).lead()
            except (BrokerError, Deposed, TimeoutError) as error:
                log.warning("%s: %s: %s; trying again", self.name, type(error).__name__, error)
            finally:
                self.leading = False
                await appender.close()
            await self._clock.sleep(RETRY)


class TrackedReign(TermHolder):
    """One try at leading; `lead` ends by an exception or by cancellation."""

    def __init__(self, leader: TrackedLeader, appender: Appender, clock: Clock, *, identity: str) -> None:
        super().__init__(leader.view, leader.follower, appender, clock, identity=identity)
        self._leader, self._view = leader, leader.view
        self._wake = asyncio.Event()

    async def lead(self) -> None:
        """Win a term and serve it. Raises Deposed, TimeoutError (our appends do not come back) or BrokerError."""
        await self._follower.wait_caught_up()
        self._follower.on_fold.append(self._wake.set)
        try:
            await self._win()
            await self._bring_over()
            self._leader.leading = True
            while True:
                self._wake.clear()
                if until := await self._step():
                    await self._rest(until, self._wake.wait)
        finally:
            self._follower.on_fold.remove(self._wake.set)

    async def _win(self) -> None:
        """Name the stream's life, if it is new, and win a term of it."""
        epoch, _ = await self._follower.query(self._view.led)
        if epoch is None:
            old = [await asyncio.to_thread(_base, path) for path in self._view.old_files()]
            mark = control.write_epoch(secrets.token_hex(8), at=self._clock.wall())
            await self.append([mark | {"base": max(old, default=0)}])
        await self._win_term()

    async def _step(self) -> float:
        """Say and offer what is due now, one batch of it; until when there is nothing to do (0: look again)."""
        now = self._clock.wall()
        due, offers, pages, wake = await self.mine(lambda: self._look(now))
        if due:
            await self._tick(due, now)
        elif offers:
            await self._offer(offers)
        elif pages:
            await self._write_pages(self._view.path, restore=False)
        return 0.0 if due or offers else wake

    def _look(self, now: float) -> tuple[list[int], list[Tracked], bool, float]:
        """What time changes now, what AMQP workers are to be told of, whether pages are due, when time changes more."""
        store = self._view.store
        return store.due(now, BATCH), store.to_offer(BATCH), self._pages_due(now), store.next_wake()

    async def _tick(self, due: Sequence[int], now: float) -> None:
        """Say that time has come for these."""
        head = {"type": "tick", "epoch": self.epoch, "n": self.n, "at": now}
        await self.append([{**head, "job": job} for job in due])

    async def _offer(self, jobs: Sequence[Tracked]) -> None:
        """Tell AMQP workers of these, and the log that they were told."""
        told = [[job.id, job.place] for job in await self._leader.offers.publish(jobs)]
        await self.append([{"type": "offered", "epoch": self.epoch, "n": self.n, "jobs": told}])

    def _pages_due(self, now: float) -> bool:
        """Before retention takes the log's head, and when the log is far longer than what is alive."""
        stand, limits = self._view.store.stand(), self._leader.limits
        if self._view.span == 0:
            return False
        if self._view.span > min(limits.max_bytes / 2, max(LEAST_SPAN, 4 * self._view.live_bytes())):
            return True
        if stand.paged_at is None:  # the age of the log's head is that of its first term, which names its time
            return stand.term is not None and now - stand.term.n / 1000 > age_seconds(limits.max_age) / 2
        return now - stand.paged_at > age_seconds(limits.max_age) / 2

    async def _write_pages(self, path: Path, *, restore: bool) -> None:
        of = secrets.token_hex(8)
        await self._follower.query(self._view.commit)
        reader = await asyncio.to_thread(PageReader, path)
        try:
            entries = reader.entries(of, restore=restore)
            while (page := await asyncio.to_thread(next, entries, None)) is not None:
                now = self._clock.wall()
                if page:
                    await self._appender.append(page, timeout=FOLD_TIMEOUT)
                while not restore and (due := await self.mine(partial(self._view.store.due, now, BATCH))):
                    await self._tick(due, now)  # a job's time does not wait until all are written
        finally:
            await asyncio.to_thread(reader.close)
        if not restore:
            await self.append([tracked_pages.write_end(of, self._clock.wall())])

    async def _bring_over(self) -> None:
        """Write what an earlier life of the stream held into this one, once, and seal it."""
        if (await self.mine(self._view.store.stand)).sealed:
            self._view.set_old_aside()
            return
        for path in self._view.old_files():
            await self._write_pages(path, restore=True)
            log.warning("%s: the jobs of its earlier life were brought over", names.EVENTS)
        await self.append([text.dump({"type": "sealed", "at": self._clock.wall()})])
        for path in self._view.old_files():
            remove(path)


def _base(path: Path) -> int:
    reader = PageReader(path)
    try:
        return reader.base()
    finally:
        reader.close()
