"""Records what became of each job, and only then lets it be acknowledged.

It is worse to lose a job than to run it twice.

Every stream has a lane of its own: whatever was asked for while one batch was under way goes with the next. A job is
written when all of its lanes have confirmed. A stream that cannot be written holds up the jobs that need it and no
other's confirmation; `trouble` says why, and `room` closes once too many jobs wait, so that no more are begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.service import Service
from amqpjobs.streams.append import Appender
from amqpjobs.streams.errors import BrokerError, TooLarge
from amqpjobs.streams.link import Link
from amqpjobs.worker.ledger import Ledger, Work

log = logging.getLogger("amqpjobs.worker")

PATIENCE = 2.0
"""Seconds without a confirm after which a lane is said to be in trouble."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
STREAMS = (names.METRICS, names.RETRIES, names.DEAD, names.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Record:
    """One entry to write."""

    stream: str
    entry: bytes


class _Pending:
    """A job whose records are not all confirmed."""

    __slots__ = ("left", "work")

    def __init__(self, work: Work, left: int) -> None:
        self.work = work
        self.left = left


class _Whole(Protocol):
    def __call__(self, pending: _Pending) -> None: ...


class Recorder:
    """Takes the records of finished jobs. `limit` jobs may wait for their confirms before `room` closes."""

    def __init__(self, link: Link, ledger: Ledger, *, limit: int, clock: Clock) -> None:
        self._ledger = ledger
        self._limit = limit
        self._waiting = 0
        self.room = asyncio.Event()
        self.room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._lanes = {stream: _Lane(stream, link, self._confirmed, clock) for stream in STREAMS}

    @property
    def services(self) -> Sequence[Service]:
        """The loops that must not end by themselves."""
        return list(self._lanes.values())

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

    def record(self, work: Work, records: Sequence[Record]) -> None:
        """Write all of these; once every one is confirmed the job is acknowledged."""
        pending = _Pending(work, len(records))
        self._waiting += 1
        self._empty.clear()
        if self._waiting >= self._limit:
            self.room.clear()
        if not records:
            self._confirmed(pending)
        for record in records:
            self._lanes[record.stream].put(record, pending)

    async def drained(self, timeout: float) -> bool:
        """Wait until nothing waits, at most `timeout` seconds; whether that came true."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _confirmed(self, pending: _Pending) -> None:
        pending.left -= 1
        if pending.left > 0:
            return
        self._waiting -= 1
        if self._waiting < self._limit:
            self.room.set()
        if self._waiting == 0:
            self._empty.set()
        self._ledger.written(pending.work)


class _Lane(Service):
    """Writes the records of one stream in order, each batch until it is confirmed."""

    def __init__(self, stream: str, link: Link, confirmed: _Whole, clock: Clock) -> None:
        super().__init__(f"records for {stream}")
        self._stream = stream
        self._link = link
        self._appender = Appender(link, stream, clock=clock)
        self._confirmed = confirmed
        self._clock = clock
        self._queue: list[tuple[Record, _Pending]] = []
        self._filled = asyncio.Event()
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

    def put(self, record: Record, pending: _Pending) -> None:
        """Write this with the next batch."""
        self._queue.append((record, pending))
        self._filled.set()

    async def run(self) -> None:
        """Write batch after batch."""
        while True:
            await self._filled.wait()
            self._since = self._clock.steady()
            batch = list(self._queue)
            await self._write(batch)
            del self._queue[: len(batch)]
            if not self._queue:
                self._filled.clear()
            self._since = None
            self._recovered()
            for _, pending in batch:
                self._confirmed(pending)

    async def stop(self) -> None:
        """Stop writing and close the channel; safe to repeat."""
        await super().stop()
        await self._appender.close()

    async def _write(self, batch: list[tuple[Record, _Pending]]) -> None:
        """Return once the whole batch is confirmed, however long that takes."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._append([record for record, _ in batch])
                return
            except BrokerError as error:
                self._report(error)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _append(self, records: list[Record]) -> None:
        try:
            await self._appender.append([record.entry for record in records], timeout=None)
        except TooLarge:
            if len(records) > 1:
                for record in records:  # one of them is the large one
                    await self._append([record])
            elif self._stream == names.METRICS:
                log.error("a metric of %d bytes does not fit and is left out", len(records[0].entry))
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
