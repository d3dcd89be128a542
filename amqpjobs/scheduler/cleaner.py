"""Keeping what waits ahead of retention, and what a reader needs that begins with nothing: the leader's cleaner.

A stream forgets its oldest segments, by age and by size, whatever waits in them. So the leader writes again what stands
lowest (`carry`) before its age is half of what the stream keeps, and before the stream spans so much that most of it
is long settled; a job that is due in a year is written a few times, a job that is due tomorrow never. After that, and
every few minutes, it publishes a checkpoint.

What the broker trimmed all the same (nobody led for weeks, or somebody set a shorter limit) is still in this view: it
is put on record (`trimmed`), logged, and carried at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from amqpjobs.clock import Clock
from amqpjobs.model import control, copies, text
from amqpjobs.model.checkpoint import Checkpoint, write_checkpoint
from amqpjobs.model.pending import Pending
from amqpjobs.streams.append import Appender
from amqpjobs.streams.epoch import first_from
from amqpjobs.streams.errors import BrokerError, TooLarge
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import FromTime
from amqpjobs.streams.views import DelayedView

log = logging.getLogger("amqpjobs.scheduler")
T = TypeVar("T")

BATCH = 256
"""Entries carried at once: a claim of what is due may have to wait for as many."""
PACE = 1.0
"""Seconds between looks at how much the stream spans."""
LONGEST_PAUSE = 300.0
"""Seconds at most between looks at the stream's age, and between checkpoints."""
NEWS = 10_000
"""Messages after which a checkpoint is due before its time, new ones at the end or settled ones at the beginning: a
reader that begins with it folds fewer."""
QUIET = 1.0
LEAST_SPAN = 64_000_000
"""A stream that spans less than this is left alone, unless its limit is nearer."""
WARN = 0.4
"""The share of the stream's limit that what waits may take before the log warns: beyond a half it cannot be kept."""
TIMEOUT = 10.0


class Limits(NamedTuple):
    """What the stream keeps: seconds, and bytes."""

    age: float
    bytes: int


class Crown(Protocol):
    """The term that a cleaner works under: what of a `Reign` it needs."""

    @property
    def epoch(self) -> str:
        """The incarnation that it leads."""
        ...

    @property
    def n(self) -> int:
        """The number of the term."""
        ...

    async def append(self, entries: Sequence[dict[str, Any]]) -> None:
        """Append and wait until our own fold has it."""
        ...

    async def mine(self, question: Callable[[], T]) -> T:
        """Ask the view; raises Deposed when the term is over."""
        ...


class Cleaner:
    """Cleans one stream while its leader reigns. Each step is a method of its own and may be repeated."""

    def __init__(
        self,
        view: DelayedView,
        checkpoints: Appender,
        reading: Link,
        clock: Clock,
        *,
        identity: str,
        limits: Limits,
    ) -> None:
        self._view = view
        self._checkpoints = checkpoints
        self._reading = reading
        self._clock = clock
        self._identity = identity
        self._limits = limits
        self._pause = min(LONGEST_PAUSE, max(PACE, limits.age / 16))
        self._looked = self._published = -math.inf
        self._low = self._upto = self._seen = 0
        self._warned = False
        self._stuck: set[str] = set()

    async def serve(self, crown: Crown) -> None:
        """Clean until the reign ends, by an exception of the crown's or by cancellation."""
        while True:
            carried = 0
            if self._clock.steady() - self._looked >= self._pause:
                carried += await self._look(crown)
            while await self.too_long(crown) and (count := await self.carry(crown)):
                carried += count
            if carried or await self._due(crown):
                await self.checkpoint(crown)
            await self._clock.sleep(PACE)

    # Steps.

    async def carry(self, crown: Crown, below: int | None = None) -> int:
        """Write again up to a batch of what stands lowest, or lowest and before the offset `below`; how many."""
        found: list[Pending] = await crown.mine(lambda: self._view.store.oldest(BATCH))
        entries = [entry for entry in found if below is None or entry.pos.offset < below]
        entries = [entry for entry in entries if entry.id not in self._stuck]
        try:
            if entries:
                await crown.append([control.write_carry(copies.carry(self._view.stream, entry)) for entry in entries])
        except TooLarge as error:  # the reign must not end over it, again and again
            largest = max(entries, key=lambda entry: len(entry.raw))
            self._stuck.add(largest.id)
            log.error("entry %s of %s cannot be written again: %s", largest.id, self._view.stream, error)
        return len(entries)

    async def checkpoint(self, crown: Crown) -> Checkpoint | None:
        """Publish what another reader may begin with; None where there can be none yet."""
        found = await crown.mine(self._view.checkpoint)
        if found is not None:
            entry = write_checkpoint(found, by=self._identity, at=self._clock.wall())
            try:
                await self._checkpoints.append([text.dump(entry)], timeout=TIMEOUT)
            except BrokerError as error:
                log.warning("no checkpoint of %s could be published: %s", self._view.stream, error)
                return None
            self._published, self._low, self._upto = self._clock.steady(), found.low, found.upto
        return found

    async def too_long(self, crown: Crown) -> bool:
        """Whether the stream from the lowest entry on spans so much that it is time to carry."""
        span, live = await crown.mine(self._sizes)
        cap = self._limits.bytes
        self._warn(live, cap)
        if self._stuck:  # it stands where it stands: carrying all the others, again and again, would not end
            return False
        return span > max(2 * live, min(max(LEAST_SPAN, 4 * live), cap // 2))

    def _sizes(self) -> tuple[int, int]:
        low = self._view.store.low()
        return (0, 0) if low is None else (self._view.span.since(low.offset), self._view.store.live_bytes())

    def _warn(self, live: int, cap: int) -> None:
        if (live > WARN * cap) != self._warned:
            self._warned = not self._warned
            if self._warned:
                share = f"{live / cap:.0%} of the {cap} bytes that {self._view.stream} may hold"
                log.warning("what waits takes %s: raise its max_bytes, or it will be lost", share)

    # Looks.

    async def _look(self, crown: Crown) -> int:
        """Carry what retention took or will take; a broker that does not answer is asked again later."""
        self._looked = self._clock.steady()
        try:
            connection = await self._reading.connection()
            first = await first_from(connection, self._view.stream, "first", QUIET)
            since = FromTime(self._clock.wall() - self._limits.age / 2)
            young = await first_from(connection, self._view.stream, since, QUIET)
        except BrokerError as error:
            log.info("how old %s is cannot be told now: %s", self._view.stream, error)
            return 0
        if first is not None:
            await self.mend(crown, first)
        return await self._all_below(crown, await self._quiet_since(crown) if young is None else young)

    async def _quiet_since(self, crown: Crown) -> int:
        """Nothing young came within a second: all is old, if nothing was read since the last look either. A broker
        that is only slow must not have everything written again."""
        reached = await self._reached(crown)
        quiet, self._seen = reached == self._seen, reached
        return reached if quiet else 0

    async def _reached(self, crown: Crown) -> int:
        """The offset after the last one that was folded."""
        position: tuple[int, bytes] | None = await crown.mine(self._view.position)
        return 0 if position is None else position[0] + 1

    async def mend(self, crown: Crown, first: int) -> int:
        """See whether retention took what was pending, all before the offset `first`: if so, say so and carry it."""
        gone = await crown.mine(lambda: self._view.store.count_below(first))
        if gone:
            log.error(
                "retention took %d entries of %s that were pending, up to offset %d; they are written again",
                gone, self._view.stream, first,
            )  # fmt: skip
            now = self._clock.wall()
            await crown.append([control.write_trimmed(crown.epoch, crown.n, first=first, entries=gone, at=now)])
            await self._all_below(crown, first)
        return gone

    async def _all_below(self, crown: Crown, offset: int) -> int:
        carried = 0
        while count := await self.carry(crown, offset):
            carried += count
        return carried

    async def _due(self, crown: Crown) -> bool:
        """Whether a checkpoint is due."""
        if self._clock.steady() - self._published >= LONGEST_PAUSE:
            return True
        reached, low = await self._reached(crown), await crown.mine(self._view.store.low)
        return max(reached - self._upto, (reached if low is None else low.offset) - self._low) >= NEWS
