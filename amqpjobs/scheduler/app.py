"""The scheduler process: a view of each delayed stream, and a reign over each while it is elected."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket

from amqpjobs import schedules
from amqpjobs.clock import Clock
from amqpjobs.model import names
from amqpjobs.scheduler.cleaner import Cleaner, Limits
from amqpjobs.scheduler.controls import ControlsKeeper
from amqpjobs.scheduler.dead_cap import DeadCap
from amqpjobs.scheduler.election import RETRY, Election
from amqpjobs.scheduler.log_bindings import LogBindings
from amqpjobs.scheduler.recurring import Declarer, Ticker
from amqpjobs.scheduler.reign import Reign
from amqpjobs.scheduler.rejected import Rejected
from amqpjobs.scheduler.release import Releaser
from amqpjobs.scheduler.term import Deposed
from amqpjobs.scheduler.tracked import TrackedLeader
from amqpjobs.scheduler.unrouted import Unrouted
from amqpjobs.service import Service, first_failure
from amqpjobs.settings import Settings, age_seconds
from amqpjobs.streams import state, topology
from amqpjobs.streams.append import Appender
from amqpjobs.streams.checkpoints import ColdStart
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link
from amqpjobs.streams.sender import Sender
from amqpjobs.streams.views import DelayedView

log = logging.getLogger("amqpjobs.scheduler")


class StreamLeader(Service):
    """Leads one stream whenever this process is elected; follows it always, to be ready."""

    def __init__(self, scheduler: Scheduler, view: DelayedView, follower: Follower) -> None:
        super().__init__(f"leader of {view.stream}")
        self._scheduler = scheduler
        self.view = view
        self.follower = follower
        self.reign: Reign | None = None

    @property
    def leading(self) -> bool:
        """Whether a term of this stream is ours, as far as we know."""
        return self.reign is not None and self.reign.leading

    async def run(self) -> None:
        """Elected: reign. A reign that ends by an error is tried again with a new term."""
        await self._scheduler.election.serve(self._reign)

    async def _reign(self) -> None:
        while True:
            async with contextlib.AsyncExitStack() as resources:
                self.reign = self._scheduler.new_reign(self.view, self.follower, resources)
                try:
                    await self.reign.lead()
                except (BrokerError, Deposed, TimeoutError) as error:
                    log.warning("%s: %s: %s; trying again", self.name, type(error).__name__, error)
            await self._scheduler.clock.sleep(RETRY)


class Scheduler:
    """All services of a scheduler process. `start` and `stop` may be repeated."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Raises BadSchedules when the file of recurring jobs cannot be used."""
        self.settings = settings
        self.clock = clock
        self.identity = f"{socket.gethostname()}:{os.getpid()}:scheduler"
        self.link = Link(settings, f"scheduler {self.identity}", clock, fatal_first=True)
        self.reading = Link(settings, f"scheduler streams {self.identity}", clock)
        self.election = Election(self.link, clock)
        self.controls = ControlsKeeper(self.link, self.reading, self.election, clock)
        self.unrouted = Unrouted(
            self.link, self.election, clock, identity=self.identity, timeout=settings.publish_timeout
        )
        wanted = None if settings.recurring is None else schedules.read_file(settings.recurring)
        self.declarer = Declarer(self.link, self.controls, self.election, clock, wanted)
        self.rejected = Rejected(self.link, self.election, clock, timeout=settings.publish_timeout)
        self.log_bindings = LogBindings(self.link, self.election, clock)
        self.leaders: list[StreamLeader] = []
        self.tracked: TrackedLeader | None = None
        self._folder: state.StateFolder | None = None

    @property
    def leading(self) -> bool:
        """Whether this process leads every delayed stream."""
        return bool(self.leaders) and all(leader.leading for leader in self.leaders)

    async def start(self) -> None:
        """Connect, declare the topology, follow the streams, and stand for election.

        Raises BrokerError when the broker cannot be reached or refuses, NoStateFolder when views cannot be kept.
        """
        if self._folder is not None:
            return
        self._folder = state.hold(self.settings, "scheduler")
        try:
            await self.link.start()
            for remark in await topology.ensure(await self.link.connection(), self.settings):
                log.warning("%s", remark)
            await self.reading.start()
            self.leaders = [self._leader(self._folder, stream) for stream in names.DELAYED]
            for leader in self.leaders:
                await leader.follower.start()
                await leader.start()
            self.tracked = TrackedLeader(
                self.link, self.reading, self.election, self.clock, folder=self._folder.path, identity=self.identity,
                limits=self.settings.limits(names.EVENTS),
            )  # fmt: skip
            await self.tracked.follower.start()
            await self.tracked.start()
            await self.controls.start()
            await self.declarer.start()
            await self.unrouted.start()
            await self.rejected.start()
            await self.log_bindings.start()
            await self.election.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Give up leadership, then let go of everything."""
        for leader in self.leaders:
            await leader.stop()
        await self.declarer.stop()
        await self.controls.stop()
        await self.unrouted.stop()
        await self.rejected.stop()
        await self.log_bindings.stop()
        await self.election.stop()
        for leader in self.leaders:
            await leader.follower.stop()
            leader.view.close()
        self.leaders = []
        tracked, self.tracked = self.tracked, None
        if tracked is not None:
            await tracked.close()
        await self.reading.stop()
        await self.link.stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()

    async def failure(self) -> str:
        """Wait until a service of this process ends by itself; which, and why."""
        followers = [leader.follower for leader in self.leaders]
        leaders: list[Service] = [*self.leaders]
        if self.tracked is not None:
            leaders += [self.tracked, self.tracked.follower]
        keeping = [
            self.controls,
            self.controls.follower,
            self.declarer,
            self.unrouted,
            self.rejected,
            self.log_bindings,
        ]
        return await first_failure([self.link, self.reading, self.election, *keeping, *leaders, *followers])

    def _leader(self, folder: state.StateFolder, stream: str) -> StreamLeader:
        view = DelayedView(folder.path, stream, keep_old=True)
        origin = ColdStart(view, self.clock, leads=lambda: leader.leading)
        follower = Follower(self.reading, view, stream, clock=self.clock, origin=origin)
        leader = StreamLeader(self, view, follower)
        return leader

    def new_reign(self, view: DelayedView, follower: Follower, resources: contextlib.AsyncExitStack) -> Reign:
        """A fresh try at leading: its appender's `from` is what a term belongs to. `resources` closes its channels."""
        sender = Sender(self.link, clock=self.clock)
        graves = Appender(self.link, names.DEAD, clock=self.clock)
        appender = Appender(self.link, view.stream, clock=self.clock)
        for channel in (sender, graves, appender):
            resources.push_async_callback(channel.close)
        timeout = self.settings.publish_timeout
        releaser = Releaser(view.stream, sender, graves, self.clock, identity=self.identity, timeout=timeout)
        return Reign(
            view,
            follower,
            appender,
            releaser,
            self.clock,
            identity=self.identity,
            cleaner=self._cleaner(view, resources),
            new_id=lambda: secrets.token_hex(8),
            ticker=Ticker(lambda: self.controls.recurring) if view.stream == names.SCHEDULED else None,
            cap=self._dead_cap(view) if view.stream == names.DEAD else None,
        )

    def _cleaner(self, view: DelayedView, resources: contextlib.AsyncExitStack) -> Cleaner:
        checkpoints = Appender(self.link, names.CHECKPOINTS, clock=self.clock)
        resources.push_async_callback(checkpoints.close)
        kept = self.settings.limits(view.stream)
        limits = Limits(age_seconds(kept.max_age), kept.max_bytes)
        return Cleaner(view, checkpoints, self.reading, self.clock, identity=self.identity, limits=limits)

    def _dead_cap(self, view: DelayedView) -> DeadCap:
        max_age = age_seconds(self.settings.dead_max_age)
        return DeadCap(view, self.reading, self.clock, most=self.settings.dead_max, max_age=max_age)
