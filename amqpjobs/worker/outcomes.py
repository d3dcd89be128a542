"""Records what became of each job, and only then lets it be acknowledged.

It is worse to lose a job than to run it twice.

Every stream has a lane of its own: whatever was asked for while one batch was under way goes with the next. A job is
written when all of its lanes have confirmed. A stream that cannot be written holds up the jobs that need it and no
other's confirmation; `trouble` says why, and `room` closes once too many jobs wait, so that no more are begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.service import Service, first_to_end
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError, TooLarge
from amqpjobs.streams.link import Link
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.subscription import Delivery

log = logging.getLogger("amqpjobs.worker")

PATIENCE = 2.0
"""Seconds without a confirm after which a lane is said to be in trouble."""
GATHER = 0.025
"""Seconds between the beginnings of two writes of a stream while more jobs run: what ends meanwhile shares the second.

What a message costs the broker does not depend much on how many records are in it. Nobody waits for a record but the
broker, which delivers more only when jobs are acknowledged: where nothing else runs there is nothing to wait for.
Against 10 ms this makes a tenth more no-op jobs a second; twice as long makes no more. A worker that is killed leaves
the jobs of so many milliseconds to be run again.
"""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
STREAMS = (names.METRICS, names.RETRIES, names.DEAD, names.SCHEDULED)


Record = tuple[str, bytes]
"""One entry to write, and its stream before it."""


class Recorder:
    """Takes the records of finished jobs. `limit` jobs may wait for their confirms before `room` closes."""

    def __init__(self, link: Link, ledger: Ledger, *, limit: int, clock: Clock) -> None:
        self._ledger = ledger
        self._limit = limit
        self._waiting = 0
        self.on_room: Callable[[], None] = lambda: None
        """Called on the loop when there is room again."""
        self._empty = asyncio.Event()
        self._empty.set()
        self._looking = False
        self._lanes = {stream: _Lane(stream, link, self._confirmed, self._more_to_come, clock) for stream in STREAMS}

    @property
    def services(self) -> Sequence[Service]:
        """The loops that must not end by themselves."""
        return list(self._lanes.values())

    @property
    def room(self) -> bool:
        """Whether another job may be begun."""
        return self._waiting < self._limit

    @property
    def waiting(self) -> int:
        """How many finished jobs are not yet recorded."""
        return self._waiting

    @property
    def trouble(self) -> str | None:
        """Why records do not get through now, or None."""
        return next((lane.trouble for lane in self._lanes.values() if lane.trouble), None)

    async def start(self) -> None:
        """Start writing; safe to repeat."""
        for lane in self._lanes.values():
            await lane.start()

    async def stop(self) -> None:
        """Stop writing; what is not confirmed stays unacknowledged. Safe to repeat."""
        for lane in self._lanes.values():
            await lane.stop()

    def record(self, delivery: Delivery, records: Sequence[Record]) -> None:
        """Write all of these; once every one is confirmed the job is acknowledged."""
        if not self._waiting:
            self._empty.clear()
        self._waiting += 1
        delivery.unconfirmed = len(records)
        if not records:
            delivery.unconfirmed = 1
            self._confirmed([delivery])
        for stream, entry in records:
            self._lanes[stream].put(entry, delivery)
        if not self._looking and not self._more_to_come():
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    async def drained(self, timeout: float) -> bool:
        """Wait until nothing waits, at most `timeout` seconds; whether that came true."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _confirmed(self, batch: Sequence[Delivery]) -> None:
        """One more record of each of these is confirmed."""
        full = not self.room
        written = []
        for delivery in batch:
            delivery.unconfirmed -= 1
            if not delivery.unconfirmed:
                written.append(delivery)
        self._waiting -= len(written)
        self._ledger.written(written)
        if not self._waiting:
            self._empty.set()
        if full and self.room:
            self.on_room()

    def _look(self) -> None:
        """Where no job was begun in the place of the last one, the broker delivers no more until it hears of these."""
        self._looking = False
        if not self._more_to_come():
            for lane in self._lanes.values():
                lane.hurry()

    def _more_to_come(self) -> bool:
        """Whether jobs are in hand whose records will soon be there."""
        return len(self._ledger) > self._waiting


class _Lane(Service):
    """Writes the records of one stream in order, each batch until it is confirmed."""

    def __init__(
        self,
        stream: str,
        link: Link,
        confirmed: Callable[[Sequence[Delivery]], None],
        more_to_come: Callable[[], bool],
        clock: Clock,
    ) -> None:
        super().__init__(f"records for {stream}")
        self._stream = stream
        self._link = link
        self._appender = Appender(link, stream, clock=clock)
        self._confirmed = confirmed
        self._more_to_come = more_to_come
        self._clock = clock
        self._entries: list[bytes] = []
        self._deliveries: list[Delivery] = []
        self._filled = asyncio.Event()
        self._hurry = asyncio.Event()
        self._since: float | None = None
        self._error: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why this stream is not written now, or None."""
        if self._error is not None:
            return f"{self._stream} cannot be written: {self._error}"
        if self._since is None or self._clock.steady() - self._since < PATIENCE:
            return None
        reason = self._link.blocked or self._link.last_error or "the broker does not confirm"
        return f"{self._stream} cannot be written: {reason}"

    def put(self, entry: bytes, delivery: Delivery) -> None:
        """Write this with the next batch."""
        if not self._entries:
            self._filled.set()
        self._entries.append(entry)
        self._deliveries.append(delivery)

    def hurry(self) -> None:
        """Gather no longer."""
        self._hurry.set()

    async def run(self) -> None:
        """Write batch after batch."""
        began = -GATHER
        while True:
            await self._filled.wait()
            if (early := began + GATHER - self._clock.steady()) > 0 and self._more_to_come():
                self._hurry.clear()
                await first_to_end(self._clock.sleep(early), self._hurry.wait())
            began = self._since = self._clock.steady()
            count = len(self._entries)
            await self._write(self._entries.copy())
            batch = self._deliveries[:count]
            del self._entries[:count], self._deliveries[:count]
            if not self._entries:
                self._filled.clear()
            self._since = None
            self._recovered()
            self._confirmed(batch)

    async def stop(self) -> None:
        """Stop writing and close the channel; safe to repeat."""
        await super().stop()
        await self._appender.close()

    async def _write(self, batch: list[bytes]) -> None:
        """Return once the whole batch is confirmed, however long that takes."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._append(batch)
                return
            except BrokerError as error:
                self._report(error)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _append(self, entries: list[bytes]) -> None:
        try:
            await self._appender.append(entries, timeout=None)
        except TooLarge:
            if len(entries) > 1:
                for entry in entries:  # one of them is the large one
                    await self._append([entry])
            elif self._stream == names.METRICS:
                log.error("a metric of %d bytes does not fit and is left out", len(entries[0]))
            else:  # the job came in a message, so it fits one, unless the broker's limit was lowered meanwhile
                raise

    def _report(self, error: BrokerError) -> None:
        if self._error != str(error):
            log.error("%s cannot be written: %s; finished jobs stay unacknowledged until it can", self._stream, error)
        self._error = str(error)

    def _recovered(self) -> None:
        if self._error is not None:
            log.info("%s can be written again", self._stream)
        self._error = None
