"""One worker process: builds the parts, starts them in order, and stops them so that no job is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amqpjobs.clock import Clock, SystemClock
from amqpjobs.jobs import Registry, registry
from amqpjobs.model.controls import Controls, Order
from amqpjobs.service import Service
from amqpjobs.settings import Settings
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.limits import largest_entry
from amqpjobs.streams.link import Link
from amqpjobs.worker import recurring
from amqpjobs.worker.executor import Executor
from amqpjobs.worker.fetch import Fetcher, QueueShare
from amqpjobs.worker.heartbeat import Heartbeat, Identity
from amqpjobs.worker.ledger import Ledger
from amqpjobs.worker.orders import Orders
from amqpjobs.worker.outcomes import Recorder
from amqpjobs.worker.processor import Processor
from amqpjobs.worker.report import Reporter
from amqpjobs.worker.tracking import Tracking
from amqpjobs.worker.window import MOST

if TYPE_CHECKING:
    from amqpjobs.worker.leases import Leases

log = logging.getLogger("amqpjobs.worker")

INTERRUPT_GRACE = 1.0
"""Seconds that cancelled handlers get to clean up."""
RECORD_GRACE = 5.0
"""Seconds that a stop waits at least for the records of finished jobs; what is not recorded runs again."""
GOODBYE_GRACE = 2.0
WATCH_INTERVAL = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker is to do. `stop_timeout`: seconds that running jobs get when it is told to stop."""

    queues: Sequence[QueueShare] = (QueueShare("default"),)
    concurrency: int = 10
    stop_timeout: float = 25.0
    prefetch: int | None = None
    """Jobs taken from each queue ahead of their turn and not yet acknowledged.

    When not given: twice the concurrency, and of quick jobs what is done in a tenth of a second, at most 1,000.
    """


class Launcher:
    """A worker. `start`, then `quiet` and `stop`, each safe to repeat; a stopped one is not started again.

    It has two connections: the broker stops reading from one that publishes while it is short of memory or disk, and
    acks and deliveries must not wait for that.
    """

    def __init__(
        self, settings: Settings, plan: Plan, *, jobs: Registry = registry, clock: Clock | None = None
    ) -> None:
        self.plan = plan
        self._clock = clock = clock or SystemClock()
        self._jobs = jobs
        self.identity = Identity(settings.tag, clock.wall())
        queues = [share.name for share in plan.queues]
        name = f"worker {self.identity.name}"
        self._jobs_link = Link(settings, name, clock, fatal_first=True)
        self._records_link = Link(settings, f"{name} records", clock)
        ledger = Ledger()
        self._fetcher = Fetcher(
            self._jobs_link,
            plan.queues,
            ledger,
            prefetch=plan.prefetch,
            concurrency=plan.concurrency,
            clock=clock,
            hold=plan.prefetch is None or plan.prefetch > plan.concurrency,
        )
        limit = plan.prefetch or max(MOST, 2 * plan.concurrency)
        self._recorder = Recorder(self._records_link, ledger, limit=limit, clock=clock)
        self._executor = Executor(jobs, plan.concurrency, clock)
        reporter = Reporter(
            self.identity.name, settings.code_version, fit=lambda: largest_entry(self._records_link.largest_message)
        )

        def leases() -> Leases:
            from amqpjobs.streams.tracked_caller import TrackedCaller  # noqa: PLC0415 - see Tracking
            from amqpjobs.worker.leases import Leases  # noqa: PLC0415

            return Leases(
                TrackedCaller(self._records_link, clock=clock), ledger, self._recorder, reporter,
                clock=clock, worker=self.identity.name,
            )  # fmt: skip

        self._tracking = Tracking(jobs.leased, leases)
        self._processor = Processor(
            self._fetcher, self._executor, self._recorder, ledger, reporter,
            tracking=self._tracking, concurrency=plan.concurrency, clock=clock,
        )  # fmt: skip
        self._heartbeat = Heartbeat(
            self._records_link,
            self.identity,
            concurrency=plan.concurrency,
            queues=queues,
            state=lambda: self.state,
            paused=lambda: self._fetcher.paused,
            runs=lambda: self._processor.runs,
            clock=clock,
        )
        self._watch = _Watch(self, self._heartbeat, clock)
        self._orders = Orders(settings, f"{name} controls", self._obey, clock)
        self._told = ""
        self._stopped = False
        self._quieting: asyncio.Task[None] | None = None
        self.told_to_stop = asyncio.Event()
        """Set when an operator ordered this process to stop: whoever runs it calls `stop`."""

    @property
    def state(self) -> str:
        """`running`, `quiet`, `stopping`, or `paused: …` with the reason why no job is begun."""
        trouble = self.trouble
        if self._told or trouble:
            return self._told or f"paused: {trouble}"
        paused = self._fetcher.paused
        return "running" if len(paused) < len(self.plan.queues) else f"paused: by order, {', '.join(paused)}"

    @property
    def trouble(self) -> str | None:
        """Why finished jobs cannot be recorded, so that no job is begun, or None."""
        return self._recorder.trouble

    @property
    def busy(self) -> int:
        """How many jobs run."""
        return len(self._processor.runs)

    async def start(self) -> None:
        """Connect, subscribe and begin. Raises BrokerError when the broker is not there, or no queue can be served."""
        await self._jobs_link.start()
        await self._records_link.start()
        await self._recorder.start()
        await self._tracking.start()
        await asyncio.gather(self._orders.start(), self._fetcher.start())  # nothing is begun before both are through
        await recurring.declare(self._records_link, self._jobs, self._orders.known, self._clock)
        if self._told:  # by an order that came while this process started
            await self._fetcher.quiet()
        troubles = await self._fetcher.tried()
        if len(troubles) == len(self.plan.queues):
            raise BrokerError("no queue can be served: " + "; ".join(troubles))
        self._processor.start()
        await self._heartbeat.start()
        await self._watch.start()

    async def quiet(self) -> None:
        """Take no more jobs; what runs goes on. What was taken and not begun goes back to its queue."""
        self._told = self._told or "quiet"
        self._heartbeat.changed()
        await self._fetcher.quiet()
        self._processor.withdraw()

    async def stop(self, timeout: float | None = None) -> int:
        """Stop: nothing more is begun, running jobs get `timeout` seconds (the plan's), the rest goes back.

        Returns how many jobs were still running and were given back; no try of theirs is counted.
        """
        if self._stopped:
            return 0
        self._stopped = True
        self._told = "stopping"
        self._heartbeat.changed()
        await self._fetcher.quiet()
        left = await self._processor.finish(self.plan.stop_timeout if timeout is None else timeout)
        if left:
            log.warning("%d jobs did not finish in time; they go back to their queues", left)
            await self._processor.interrupt(INTERRUPT_GRACE)
        await self._close()
        return left

    async def failure(self) -> BaseException:
        """Wait until a part that must not end ended by an error; that error. The worker must not go on as if well."""
        services = [*self._fetcher.services, *self._recorder.services, self._tracking, self._heartbeat, self._watch]
        services.append(self._orders.service)
        pending = {asyncio.ensure_future(service.wait_failed()) for service in services}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for error in (task.result() for task in done):
                    if error is not None:
                        return error
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return] # all were stopped
        finally:
            for task in pending:
                task.cancel()

    def hurry(self) -> None:
        """Let a stop wait no longer for running jobs."""
        self._processor.hurry()

    async def abort(self) -> None:
        """Close everything after a start that failed."""
        self._stopped = True
        await self._close()

    def _obey(self, controls: Controls) -> None:
        """Do what operators ask of all workers, and of this one."""
        before = self._fetcher.paused
        self._processor.cancel(controls.cancelled)
        self._fetcher.pause(controls.paused)
        self._processor.withdraw(controls.paused)
        if self._fetcher.paused != before:
            self._heartbeat.changed()
        me = self.identity
        for order in controls.orders:
            if order.concerns(nonce=me.nonce, identity=me.name, boot_at=me.boot_at):
                self._follow(order)

    def _follow(self, order: Order) -> None:
        if order.op == "stop":
            if not self.told_to_stop.is_set() and not self._stopped:
                log.info("an operator ordered this process to stop")
                self.told_to_stop.set()
        elif not self._told:
            log.info("an operator ordered this process to take no more jobs")
            self._quieting = asyncio.create_task(self.quiet())

    async def _close(self) -> None:
        await self._tracking.finish(RECORD_GRACE)
        await self._tracking.stop()
        if not await self._recorder.drained(RECORD_GRACE):
            log.error("%d finished jobs could not be recorded; they run again", self._recorder.waiting)
        await self._orders.stop()
        await self._watch.stop()
        await self._heartbeat.stop()
        if self._records_link.state == "up" and self._heartbeat_ran:
            await self._heartbeat.goodbye(GOODBYE_GRACE)
        await self._heartbeat.close()
        await self._recorder.stop()
        await self._fetcher.stop()
        self._executor.close()
        await self._jobs_link.stop()
        await self._records_link.stop()

    @property
    def _heartbeat_ran(self) -> bool:
        return self._watch.started


class _Watch(Service):
    """Notices changes of state: one line in the log and one heartbeat each."""

    def __init__(self, launcher: Launcher, heartbeat: Heartbeat, clock: Clock) -> None:
        super().__init__("watch")
        self._launcher = launcher
        self._heartbeat = heartbeat
        self._clock = clock
        self.started = False

    async def run(self) -> None:
        """Look twice a second."""
        self.started = True
        before = self._launcher.state
        while True:
            await self._clock.sleep(WATCH_INTERVAL)
            state = self._launcher.state
            if state != before:
                log.log(logging.ERROR if self._launcher.trouble else logging.INFO, "now %s (was %s)", state, before)
                self._heartbeat.changed()
            before = state
