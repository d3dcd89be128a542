"""The slots: a job that came is begun when one is free, and what is to be recorded of it goes to the recorder."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Collection, Mapping, Sequence

from amqpjobs.clock import Clock
from amqpjobs.model import reading
from amqpjobs.model.messages import Job, Unreadable
from amqpjobs.worker.context import JobContext
from amqpjobs.worker.executor import Executor
from amqpjobs.worker.fetch import Fetcher
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.outcomes import Recorder
from amqpjobs.worker.report import Reporter
from amqpjobs.worker.run import Ended, Run
from amqpjobs.worker.subscription import Delivery
from amqpjobs.worker.tracking import Tracking

log = logging.getLogger("amqpjobs.worker")


class Processor:
    """`concurrency` slots. A slot runs one job at a time, and never a second while the first still runs.

    A slot is a count and no task: a task, a lock or a future for each step of each job would cost more than the job.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        executor: Executor,
        recorder: Recorder,
        ledger: Ledger,
        reporter: Reporter,
        *,
        tracking: Tracking,
        concurrency: int,
        clock: Clock,
    ) -> None:
        self._fetcher = fetcher
        self._executor = executor
        self._recorder = recorder
        self._ledger = ledger
        self._reporter = reporter
        self._tracking = tracking
        self._concurrency = concurrency
        self._clock = clock
        self._open = False
        self._pumping = False
        self._idle = asyncio.Event()
        self._hurry = asyncio.Event()
        self._held: Delivery | None = None
        """Taken ahead of its turn, though it cannot wait for a thread: it is the next, once there is a slot."""
        self._all: set[Run] = set()
        """What holds a slot."""
        self._unrecorded = 0
        """Runs that hold none any more, and of which the executor still has to say how they ended."""
        self._cancelled: Mapping[str, float] = {}
        fetcher.on_job = recorder.on_room = self.pump
        executor.on_ended, executor.on_over = self._ended, self._over
        tracking.on_granted, tracking.on_dropped = executor.start, self._dropped

    @property
    def runs(self) -> list[Run]:
        """What runs; not what waits for a thread."""
        return [run for run in self._all if self._executor.begun(run)]

    def cancel(self, jids: Mapping[str, float]) -> None:
        """From now on jobs with these jids are not run; those that run are asked to stop."""
        self._cancelled = jids
        for run in self._all if jids else ():
            if run.job.jid in jids:
                run.cancel()

    def start(self) -> None:
        """Begin jobs; safe to repeat."""
        self._open = True
        self.pump()

    def pump(self) -> None:
        """Begin what came, as far as there are slots, and room for its records."""
        if self._pumping:
            return
        self._pumping = True
        try:
            for _ in range(self._executor.together):
                if not (self._open and self._slot() and self._recorder.room):
                    break
                delivery = self._held or self._fetcher.next()
                if delivery is None:
                    break
                self._held = None
                self._begin(delivery)
            else:  # the loop has other things to do in between: a job's first step may take long
                asyncio.get_running_loop().call_soon(self.pump)
        finally:
            self._pumping = False

    def _slot(self) -> bool:
        """Whether another run may be started, or at least handed to the threads."""
        if self._unrecorded > self._concurrency:  # quick jobs would leave the loop no time to record them
            return False
        taken = len(self._all)
        return taken < self._concurrency or (self._held is None and taken < self._concurrency + self._executor.ahead)

    def withdraw(self, queues: Collection[str] | None = None) -> None:
        """Give back what was taken and does not run yet, of these queues; of all when None."""
        waiting = [run for run in self._all if _of(run.delivery, queues) and self._executor.withdraw(run)]
        self._all.difference_update(waiting)
        for run in waiting:
            self._ledger.give_back(run.delivery)
        if self._held is not None and _of(self._held, queues):
            self._ledger.give_back(self._held)
            self._held = None
        self._check_idle()
        self.pump()

    async def finish(self, timeout: float) -> int:
        """Begin nothing more and let what runs finish, at most `timeout` seconds; how many jobs are left running."""
        self._open = False
        self.withdraw()
        ended = asyncio.create_task(self._all_ended())
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([ended, hurried], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        hurried.cancel()
        return len(self._all)

    def hurry(self) -> None:
        """Let `finish` wait no longer."""
        self._hurry.set()

    async def interrupt(self, grace: float) -> int:
        """Cancel what can be, wait `grace` seconds for that, and give all back; how many jobs that were.

        Given back last: nobody should begin a job whose first run still cleans up.
        """
        left = list(self._all)
        for run in left:
            run.interrupt()
        ended = asyncio.create_task(self._all_ended())
        await asyncio.wait([ended], timeout=grace)
        ended.cancel()
        for run in left:
            if run.lease is None:
                self._ledger.give_back(run.delivery)
        return len(left)

    async def _all_ended(self) -> None:
        while self._all or self._unrecorded:
            self._idle.clear()
            await self._idle.wait()

    def _check_idle(self) -> None:
        if not self._all and not self._unrecorded:
            self._idle.set()

    def _begin(self, delivery: Delivery) -> None:
        try:
            self._take(delivery)
        except Exception:  # a fault of ours: the job stays unacknowledged, the others must go on
            log.exception("a job from queue %s could not be handled; it stays with the broker", delivery.queue)

    def _take(self, delivery: Delivery) -> None:
        self._ledger.begin(delivery)
        job = _read(delivery)
        now = self._clock.wall()
        if isinstance(job, Unreadable):
            self._recorder.record(delivery, self._reporter.unreadable(job, delivery.queue, now))
        elif self._cancelled and job.jid in self._cancelled and not self._is_tracked(job):
            self._recorder.record(delivery, self._reporter.cancelled(job, now))
        elif job.expires_in is not None and _expired(job, now):
            self._recorder.record(delivery, self._reporter.expired(job, now))
        else:
            run = Run(job, _context(job, now), delivery)
            tracked = self._is_tracked(job)
            if len(self._all) >= self._concurrency and (tracked or not self._executor.may_wait(job)):
                self._held = delivery
                return
            self._all.add(run)
            if tracked:
                self._ask(run)
            else:
                self._executor.start(run)

    def _is_tracked(self, job: Job) -> bool:
        return job.track or job.key is not None or job.cls in self._tracking.classes

    def _ask(self, run: Run) -> None:
        """A tracked job that was cancelled is granted all the same: only its holder can end its life."""
        if run.job.jid in self._cancelled:
            run.cancel()
        self._tracking.ask(run)

    def _dropped(self, run: Run) -> None:
        """It is not for us to run."""
        self._all.discard(run)
        self._check_idle()
        self.pump()

    def _over(self, run: Run) -> None:
        """Its slot is free: the next job begins before this one is recorded."""
        self._all.remove(run)
        self._unrecorded += 1
        if not self._pumping:
            self.pump()

    def _ended(self, runs: Sequence[tuple[Run, Ended]]) -> None:
        now = self._clock.wall()
        for run, ended in runs:
            if run in self._all:
                self._all.remove(run)
            else:
                self._unrecorded -= 1
            if run.interrupted:  # given back already, or about to be by the closing channel: no try was counted
                continue
            try:
                self._record(run, ended, now)
            except Exception:  # see _begin
                log.exception("%s could not be recorded; it stays with the broker", run.job.cls)
        self._check_idle()
        self.pump()

    def _record(self, run: Run, ended: Ended, now: float) -> None:
        if run.lease is not None:
            self._tracking.ended(run, run.lease, ended)
            return
        if ended.failure is None and ended.snooze is None and not run.cancelled:
            records = self._reporter.succeeded(run)
        else:
            properties = run.delivery.incoming.properties
            records = self._reporter.ended(run, ended, properties, now, random.random())  # noqa: S311
        self._recorder.record(run.delivery, records)


def _of(delivery: Delivery, queues: Collection[str] | None) -> bool:
    return queues is None or delivery.queue in queues


def _read(delivery: Delivery) -> Job | Unreadable:
    incoming = delivery.incoming
    named = incoming.properties.message_id
    job = reading.read_job(incoming.body, queue=delivery.queue, jid="", message_id=named)
    if job.jid:
        return job
    return reading.read_job(incoming.body, queue=delivery.queue, jid=secrets.token_hex(12), message_id=named)


def _expired(job: Job, now: float) -> bool:
    """`expires_in` limits the wait in the queue: a release begins it anew."""
    since = job.enqueued_at if job.enqueued_at is not None else job.created_at
    return job.expires_in is not None and since is not None and now > since + job.expires_in


def _context(job: Job, now: float) -> JobContext:
    left = job.retry - job.retry_count
    return JobContext(
        job.jid,
        job.cls,
        job.queue,
        job.retry_count + 1,
        left if left > 0 else 0,
        job.enqueued_at,
        now,
        tuple(job.tags),
        job.meta or {},
    )
