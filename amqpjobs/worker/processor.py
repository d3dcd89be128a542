"""The slots: each takes a job, runs it, and hands what is to be recorded to the recorder."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Mapping

from amqpjobs.clock import Clock
from amqpjobs.model import reading
from amqpjobs.model.messages import Job, Unreadable
from amqpjobs.worker.context import JobContext
from amqpjobs.worker.executor import Executor, Run
from amqpjobs.worker.fetch import Fetcher
from amqpjobs.worker.ledger import Ledger, Work
from amqpjobs.worker.outcomes import Recorder
from amqpjobs.worker.report import Reporter
from amqpjobs.worker.subscription import Delivery

log = logging.getLogger("amqpjobs.worker")


class Processor:
    """`concurrency` slots. A slot runs one job at a time, and never a second while the first still runs."""

    def __init__(
        self,
        fetcher: Fetcher,
        executor: Executor,
        recorder: Recorder,
        ledger: Ledger,
        reporter: Reporter,
        *,
        concurrency: int,
        clock: Clock,
    ) -> None:
        self._fetcher = fetcher
        self._executor = executor
        self._recorder = recorder
        self._ledger = ledger
        self._reporter = reporter
        self._concurrency = concurrency
        self._clock = clock
        self._slots: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._hurry = asyncio.Event()
        self.runs: dict[Run, Work] = {}
        self._cancelled: Mapping[str, float] = {}

    def cancel(self, jids: Mapping[str, float]) -> None:
        """From now on jobs with these jids are not run; those that run are asked to stop."""
        self._cancelled = jids
        for run in self.runs if jids else ():
            if run.job.jid in jids:
                run.cancel()

    async def start(self) -> None:
        """Start the slots; safe to repeat."""
        self._stopping = False
        while len(self._slots) < self._concurrency:
            slot = asyncio.create_task(self._slot(), name=f"slot {len(self._slots)}")
            self._slots.add(slot)
            slot.add_done_callback(self._slots.discard)

    async def finish(self, timeout: float) -> int:
        """Begin nothing more and let what runs finish, at most `timeout` seconds; how many jobs are left running."""
        self._stopping = True
        for slot in list(self._idle):
            slot.cancel()
        ended = asyncio.create_task(self._all_ended())
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([ended, hurried], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        hurried.cancel()
        return len(self.runs)

    def hurry(self) -> None:
        """Let `finish` wait no longer."""
        self._hurry.set()

    async def interrupt(self, grace: float) -> int:
        """Cancel what can be, wait `grace` seconds for that, and give all back; how many jobs that were.

        Given back last: nobody should begin a job whose first run still cleans up.
        """
        left = list(self.runs.items())
        for run, _ in left:
            run.interrupt()
        if self._slots:
            await asyncio.wait(list(self._slots), timeout=grace)
        for _, work in left:
            self._ledger.give_back(work)
        return len(left)

    async def _all_ended(self) -> None:
        if self._slots:
            await asyncio.wait(list(self._slots))

    async def _slot(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not self._stopping:
            self._idle.add(task)
            await self._recorder.room.wait()
            delivery = await self._fetcher.take()
            self._idle.discard(task)
            try:
                await self._process(delivery)
            except Exception:  # a fault of ours: the job stays unacknowledged, the slot must go on
                log.exception("a job from queue %s could not be handled; it stays with the broker", delivery.queue)

    async def _process(self, delivery: Delivery) -> None:
        incoming = delivery.incoming
        work = self._ledger.begin(delivery)
        job = reading.read_job(
            incoming.body, queue=delivery.queue, jid=secrets.token_hex(12), message_id=incoming.properties.message_id
        )
        now = self._clock.wall()
        if isinstance(job, Unreadable):
            self._recorder.record(work, self._reporter.unreadable(job, delivery.queue, now))
        elif self._cancelled and job.jid in self._cancelled:
            self._recorder.record(work, self._reporter.cancelled(job, now))
        elif _expired(job, now):
            self._recorder.record(work, self._reporter.expired(job, now))
        else:
            await self._run(work, job, now)

    async def _run(self, work: Work, job: Job, now: float) -> None:
        run = Run(job, _context(job, now))
        self.runs[run] = work
        try:
            ended = await self._executor.execute(run)
        finally:
            del self.runs[run]
        if run.interrupted:  # given back already, or about to be by the closing channel: no try was counted
            return
        properties = work.delivery.incoming.properties
        jitter = random.random()  # noqa: S311
        self._recorder.record(work, self._reporter.ended(run, ended, properties, self._clock.wall(), jitter))


def _expired(job: Job, now: float) -> bool:
    """`expires_in` limits the wait in the queue: a release begins it anew."""
    since = job.enqueued_at if job.enqueued_at is not None else job.created_at
    return job.expires_in is not None and since is not None and now > since + job.expires_in


def _context(job: Job, now: float) -> JobContext:
    return JobContext(
        jid=job.jid,
        name=job.cls,
        queue=job.queue,
        attempt=job.retry_count + 1,
        retries_left=max(0, job.retry - job.retry_count),
        enqueued_at=job.enqueued_at,
        started_at=now,
        tags=tuple(job.tags),
        meta=job.meta or {},
    )
