"""Leading one delayed stream: win a term, then claim, publish, settle, for as long as the term is ours.

The exclusive consumer (`election`) says who may try; the stream's own order says who leads. A leader that was
deposed without knowing it does no harm: its claims are void in every fold, its own included, and it publishes only
what its fold granted (`outflow`, while the next is claimed). What it had published and not settled is published again
by its successor: that is the whole window for duplicates.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import control
from amqpjobs.model.legacy import left_over
from amqpjobs.model.pending import Pending
from amqpjobs.model.protocol import How
from amqpjobs.scheduler.cleaner import Cleaner
from amqpjobs.scheduler.dead_cap import DeadCap
from amqpjobs.scheduler.outflow import AHEAD, Outflow
from amqpjobs.scheduler.recurring import Ticker
from amqpjobs.scheduler.release import Published, Releaser
from amqpjobs.scheduler.term import TermHolder
from amqpjobs.service import first_to_end
from amqpjobs.streams.append import Appender
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.views import DelayedView, OldState

log = logging.getLogger("amqpjobs.scheduler")

BATCH = 256
"""Entries claimed at once."""
FINISH = 2.0
"""Seconds that a leader which is stopped, or whose election is lost, has to settle what it is publishing."""


class Reign(TermHolder):
    """One try at leading one stream; `lead` ends by an exception or by cancellation."""

    def __init__(
        self,
        view: DelayedView,
        follower: Follower,
        appender: Appender,
        releaser: Releaser,
        clock: Clock,
        *,
        identity: str,
        cleaner: Cleaner,
        new_id: Callable[[], str],
        ticker: Ticker | None = None,
        cap: DeadCap | None = None,
    ) -> None:
        super().__init__(view, follower, appender, clock, identity=identity)
        self._view = view
        self._cap = cap
        self._flow = Outflow(releaser.publish, self._settle, clock)
        self.cleaner = cleaner
        self._new_id = new_id
        self._ticker = ticker
        self._wake = asyncio.Event()
        self._next_due = math.inf
        self.leading = False

    async def lead(self) -> None:
        """Win a term and serve it.

        Raises Deposed, TimeoutError (our own appends do not come back) or BrokerError; whoever called tries again
        with a new Appender, for a term belongs to one `from`.
        """
        await self._follower.wait_caught_up()
        self._follower.on_fold.append(self._wake.set)
        try:
            await self._win()
            await self._bring_over()
            self.leading = True
            await first_to_end(self._serve(), self._flow.run(), self.cleaner.serve(self))
        finally:
            self.leading = False
            self._follower.on_fold.remove(self._wake.set)
            await self._flow.finish(FINISH)

    # Winning.

    async def _win(self) -> None:
        """Rule 25, and then the term."""
        facts = await self._follower.query(self._view.facts)
        await self.append([control.write_epoch(facts.epoch or self._new_id(), at=self._clock.wall())])
        await self._win_term()

    async def _bring_over(self) -> None:
        """Append again what was pending when the stream was deleted, forget the old state, and seal (rule 25)."""
        for old in self._view.old():
            try:
                count = await self._append_old(old)
            except BaseException:
                old.close()
                raise
            if count is None:
                log.error("%s: what %s holds comes too late to tell what of it ran", self._view.stream, old.path)
                old.set_aside()
                continue
            log.warning("%s: %d entries of its earlier life were brought over", self._view.stream, count)
            old.remove()
        if not (await self.mine(self._view.facts)).sealed:
            await self.append([control.write_sealed(self.epoch, self.n, at=self._clock.wall())])

    async def _append_old(self, old: OldState) -> int | None:
        count = 0
        for page in old.pages(BATCH):
            entries = await self.mine(lambda page=page: left_over(self._view.store, old.epoch, page))  # type: ignore[misc]
            if entries is None:
                return None
            if entries:
                await self.append([control.write_again(entry) for entry in entries])
            count += len(entries)
        ticks = [control.write_tick(self.epoch, self.n, name, t) for name, t in old.ticks.items()]
        if ticks:
            await self.append(ticks)
        return count

    # Serving.

    async def _serve(self) -> None:
        while True:
            self._wake.clear()
            if not await self._step():
                await self._sleep()

    async def _step(self) -> bool:
        """Claim one batch of what is due soon, or do what else is to be done; False when there is nothing."""
        if self._flow.idle and await self._inherit():
            return True
        now = self._clock.wall()
        if self._ticker is not None and self._ticker.wanted(now):
            last = await self.mine(self._view.store.ticks)
            if ticks := self._ticker.plan(now, last, self.epoch, self.n):
                await self.append(ticks)
        await self._flow.room()
        until, due = await self._soon()
        if due:
            self._flow.put(await self._claim(due, until))
            return True
        return await self._drop()

    async def _soon(self) -> tuple[float, list[str]]:
        """What is due within AHEAD, and when that is, once the first is due within half of it: few claims of many, not
        many of few."""
        store, now = self._view.store, self._clock.wall()

        def ask() -> tuple[float, list[str]]:
            first = store.next_due()
            if first is None or first > now + AHEAD / 2:
                return math.inf if first is None else first, []
            return first, store.due(now + AHEAD, BATCH)

        self._next_due, due = await self.mine(ask)
        return now + AHEAD, due

    async def _inherit(self) -> bool:
        """Publish what is claimed and left over, of an earlier leader as a rule; whether there was any.

        Only with nothing of our own under way: what is settled is out of the fold a moment later.
        """
        await self._folded(self._written)
        found = False
        while left := await self.mine(lambda: self._view.store.claimed(BATCH)):
            found = True
            self._flow.put(left)
            await self._flow.drained()
            await self._folded(self._written)
        return found

    async def _claim(self, due: Sequence[str], until: float) -> list[Pending]:
        """Claim, and what the fold granted of it: a command may have come first."""
        await self.append([control.write_claimed(self.epoch, self.n, due, until=until)])
        return await self.mine(lambda: self._view.store.held(due, self._term))

    async def _settle(self, published: Published) -> None:
        """Record what left; returns once that is in the stream, which is what a successor needs."""
        await self._write(
            [
                control.write_settled(self.epoch, self.n, ids, how, by=self._identity, at=self._clock.wall())
                for how, ids in ((How.ENQUEUED, published.enqueued), (How.KILLED, published.buried))
                if ids
            ]
        )

    async def _drop(self) -> bool:
        """Rule 12: what the dead set holds no longer, one batch of it."""
        if self._cap is None:
            return False
        cap = self._cap
        await cap.refresh()
        over = await self.mine(lambda: cap.over(BATCH))
        if not over:
            return False
        now = self._clock.wall()
        await self.append([control.write_dropped(self.epoch, self.n, over, by=self._identity, at=now)])
        log.info("dropped %d of %s: too many, or too old", len(over), self._view.stream)
        return True

    async def _sleep(self) -> None:
        """Until the next entry is due or anything was folded."""
        next_tick = math.inf if self._ticker is None else self._ticker.next
        await self._rest(min(self._next_due - AHEAD / 2, next_tick), self._wake.wait)
