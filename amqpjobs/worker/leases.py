"""Tracked jobs in an AMQP worker: each is asked for, held under a lease, and told of to the leader when it ends.

The message of a granted job is acknowledged at once, so that the job may outlive the broker's acknowledgement timeout:
from then on its life is in `job_events`. The lease is renewed while the job runs; where it runs out, or somebody ends
the job, whoever held it learns so with the next sign of life, and its late word changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from amqpjobs.clock import Clock
from amqpjobs.model import backoff, text
from amqpjobs.model.lifecycle import State
from amqpjobs.model.messages import Job
from amqpjobs.model.outcomes import Failure
from amqpjobs.model.tracked import Word
from amqpjobs.model.tracked_commands import MOST_TAGS, MOST_TEXT, Act, Beat, GiveBack, Report
from amqpjobs.model.tracked_ticket import arguments, asked
from amqpjobs.model.tracked_verdicts import Answer, Granted
from amqpjobs.service import Service
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.tracked_caller import TrackedCaller
from amqpjobs.worker.context import Note
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.outcomes import Recorder
from amqpjobs.worker.report import Reporter
from amqpjobs.worker.run import Ended, Run
from amqpjobs.worker.subscription import Delivery, Subscription

log = logging.getLogger("amqpjobs.worker")

BEATS = 3
"""Signs of life within the time after which silence ends a lease."""
LOOK = 0.1
"""Seconds between two looks at which leases need one."""
PATIENCE = 5.0
"""Seconds without an answer after which it is said that nobody answers."""


class Lease:
    """A granted job in this process."""

    __slots__ = ("beaten", "granted", "lost", "note", "telling")

    def __init__(self, granted: Granted, now: float) -> None:
        self.granted = granted
        self.beaten = now
        """The steady second of its last sign of life."""
        self.lost = False
        """Somebody else has it, or it has ended: what happens here counts no more."""
        self.note = Note()
        """What the job has said and is not told yet."""
        self.telling = False


class Leases(Service):
    """Holds the leases of a worker's runs. Plain jobs have nothing to do with it."""

    def __init__(
        self,
        caller: TrackedCaller,
        ledger: Ledger,
        recorder: Recorder,
        reporter: Reporter,
        *,
        clock: Clock,
        worker: str,
    ) -> None:
        super().__init__("leases")
        self.on_granted: Callable[[Run], None] = lambda run: None
        """Called on the loop when a run may begin."""
        self.on_dropped: Callable[[Run], None] = lambda run: None
        """Called on the loop when it may not: its message is dealt with."""
        self._caller = caller
        self._ledger = ledger
        self._recorder = recorder
        self._reporter = reporter
        self._clock = clock
        self._worker = worker
        self._held: dict[Run, Lease] = {}
        self._some_held = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered = False

    def ask(self, run: Run) -> None:
        """Ask for the job of a run; `on_granted` or `on_dropped` tells how that went."""
        self._spawn(self._ask(run))

    def ended(self, run: Run, lease: Lease, ended: Ended) -> None:
        """Tell the leader how a granted run ended, and record that it ran."""
        self._spawn(self._tell(run, lease, ended))

    async def run(self) -> None:
        """Renew leases before they run out."""
        while True:
            await self._some_held.wait()
            await self._clock.sleep(LOOK)
            now = self._clock.steady()
            for run, lease in self._held.items():
                every = lease.granted.heartbeat_timeout / BEATS
                if every and not lease.lost and now - lease.beaten >= every:
                    lease.beaten = now
                    self._spawn(self._beat(run, lease, every))
            if not self._held:
                self._some_held.clear()

    async def finish(self, timeout: float) -> None:
        """Give back what is held and no longer runs, and wait for what is under way, at most `timeout` seconds."""
        for run, lease in list(self._held.items()):
            if run.interrupted:
                self._spawn(self._give_back(run, lease))
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=timeout)
            if late:
                log.error("%d tracked jobs could not be told of: others get them when their leases run out", len(late))
            for task in late:
                task.cancel()
        await self._caller.close()

    # Asking.

    async def _ask(self, run: Run) -> None:
        try:
            answer = await self._until_answered(asked(run.job, self._worker))
        except BrokerError as error:  # it cannot be asked for, ever
            self._refused(run, str(error))
            return
        if answer.granted is not None:
            self._hold(run, answer.granted)
        elif answer.word is Word.REFUSED:
            self._refused(run, "a member of it is longer than tracked jobs may have")
        else:
            log.info("%s is not to be run here: %s", run.job.cls, answer.word, extra={"jid": run.job.jid})
            self._ledger.written([run.delivery])
            self.on_dropped(run)

    def _hold(self, run: Run, granted: Granted) -> None:
        run.lease = lease = Lease(granted, self._clock.steady())
        self._held[run] = lease
        self._some_held.set()
        if run.interrupted:  # this process stops: the message went back, and may be another's already
            self._spawn(self._give_back(run, lease))
            self.on_dropped(run)
            return
        self._ledger.written([run.delivery])
        _adapt(run, granted)
        loop = asyncio.get_running_loop()

        def tell(note: Note) -> None:
            loop.call_soon_threadsafe(self._noted, lease, note)

        run.context.teller = tell
        self.on_granted(run)

    def _refused(self, run: Run, why: str) -> None:
        """Bury it, as what cannot be run ever."""
        failure = Failure("Refused", f"it cannot be tracked: {why}", "", final=True)
        now = self._clock.wall()
        properties = run.delivery.incoming.properties
        self._recorder.record(run.delivery, self._reporter.ended(run, Ended(failure), properties, now, 0.0))
        self.on_dropped(run)

    # Telling.

    async def _beat(self, run: Run, lease: Lease, every: float) -> None:
        """A new one each time: one that is asked again tells of an earlier time, and so does not renew the lease."""
        try:
            async with asyncio.timeout(every):
                answer = await self._until_answered(Beat(lease.granted.id, lease.granted.token))
        except TimeoutError:
            return
        if answer.word is not Word.DONE and run in self._held:
            log.warning("%s is no longer held by this worker", run.job.cls, extra={"jid": run.job.jid})
            lease.lost = True
            run.cancel()

    def _noted(self, lease: Lease, note: Note) -> None:
        before = lease.note
        lease.note = Note(
            before.lines + tuple(map(_clipped, note.lines)),
            before.progress if note.progress is None else note.progress,
            before.output if note.output is None else note.output,
        )
        if not lease.telling:
            lease.telling = True
            self._spawn(self._tell_notes(lease))

    async def _tell_notes(self, lease: Lease) -> None:
        """What is said while one note is on its way goes with the next."""
        try:
            while lease.note != Note() and not lease.lost:
                await self._until_answered(_noting(lease))
        finally:
            lease.telling = False

    async def _tell(self, run: Run, lease: Lease, ended: Ended) -> None:
        word = Word.CONFLICT
        while lease.note != Note() and not lease.lost:
            await self._until_answered(_noting(lease))
        if not lease.lost:
            word = (await self._until_answered(self._word_of(run, lease.granted, ended))).word
        self._held.pop(run, None)
        lost = word is not Word.DONE
        if lost:
            log.warning("%s ended too late: its lease had run out", run.job.cls, extra={"jid": run.job.jid})
        settled = Delivery(run.delivery.incoming, run.delivery.queue, _settled())
        self._recorder.record(settled, self._reporter.leased(run, ended, lost=lost))

    async def _give_back(self, run: Run, lease: Lease) -> None:
        self._held.pop(run, None)
        await self._until_answered(GiveBack(lease.granted.id, lease.granted.token))

    def _word_of(self, run: Run, granted: Granted, ended: Ended) -> Act:
        now = self._clock.wall()
        if run.cancelled:
            return Report(granted.id, granted.token, State.CANCELLED)
        if ended.snooze is not None:
            return GiveBack(granted.id, granted.token, now + max(0.0, ended.snooze))
        failure = ended.failure
        if failure is None:
            return Report(granted.id, granted.token, State.COMPLETED)
        delay = failure.retry_in
        if delay is None:
            delay = backoff.delay(run.job, run.job.retry_count, random.random())  # noqa: S311
        return Report(
            granted.id, granted.token, State.FAILED, error=_clipped(f"{failure.error_class}: {failure.error_message}"),
            permanent=failure.final, retry_at=now + backoff.hold(delay), lines=_lines(failure.backtrace),
        )  # fmt: skip

    async def _until_answered(self, act: Act) -> Answer:
        asking = asyncio.create_task(self._caller.ask(act))
        try:
            done, _ = await asyncio.wait([asking], timeout=PATIENCE)
            if not done and not self._unanswered:
                self._unanswered = True
                log.error("no scheduler answers: tracked jobs wait until one runs (python -m amqpjobs.scheduler)")
            answer = await asking
            self._unanswered = False
            return answer
        finally:
            asking.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a tracked job could not be told of; its lease will run out", exc_info=error)


def _adapt(run: Run, granted: Granted) -> None:
    """The job as it is now, which may differ from what was in the message."""
    args = text.parse(arguments(granted.data))
    known = {"jid": granted.jid or run.job.jid, "args": args, "timeout": granted.timeout or None}
    counts = {"retry": granted.retries, "retry_count": granted.retried}
    run.job = Job.trusted({**run.job.__dict__, **known, **counts})
    run.context.jid = run.job.jid
    run.context.attempt = granted.retried + 1
    run.context.retries_left = max(0, granted.retries - granted.retried)


def _noting(lease: Lease) -> Report:
    """The command of what is not told yet, which is told with it."""
    note, granted = lease.note, lease.granted
    lease.note = Note(note.lines[MOST_TAGS:])
    output = None if note.output is None else text.dump(note.output)
    return Report(
        granted.id, granted.token, output=output, progress=note.progress, lines=note.lines[:MOST_TAGS]
    )  # fmt: skip


def _settled() -> Subscription:
    """A subscription that acknowledges nothing: the message of a leased job is gone long before its record."""
    gone = Subscription("", 0)
    gone.lost = True
    return gone


def _clipped(words: str) -> str:
    return text.safe(words)[:MOST_TEXT]


def _lines(backtrace: str) -> tuple[str, ...]:
    return tuple(_clipped(line) for line in backtrace.splitlines()[-MOST_TAGS:])
