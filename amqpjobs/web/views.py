"""The views that this process keeps: its own folds of the streams, fed by followers, in a folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from amqpjobs.action import Record, Set
from amqpjobs.clock import Clock
from amqpjobs.model import names, tally
from amqpjobs.model.processes import Process
from amqpjobs.model.protocol import Target
from amqpjobs.model.recurring import Refused
from amqpjobs.orders import RecurringOp
from amqpjobs.schedules import Line, lines
from amqpjobs.settings import Settings, redact
from amqpjobs.streams.audit_store import Action, AuditStore
from amqpjobs.streams.checkpoints import ColdStart
from amqpjobs.streams.controls_view import ControlsView
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.indexer import Indexer
from amqpjobs.streams.link import Link
from amqpjobs.streams.listing import Page, Search
from amqpjobs.streams.port import FromTime, QueueState
from amqpjobs.streams.state import StateFolder
from amqpjobs.streams.tally_store import Counted, LatestWait, QueueRuns, TallyStore
from amqpjobs.streams.views import DelayedView
from amqpjobs.web.beats import Beats
from amqpjobs.web.depths import Depths
from amqpjobs.web.desk import PATIENCE, Desk
from amqpjobs.web.enqueued import EnqueuedLook
from amqpjobs.web.enqueued import Waiting as Enqueued
from amqpjobs.web.lake import Lake
from amqpjobs.web.measures import Measures
from amqpjobs.web.status import Broker, Day, Facts, Lag, QueueLine, Runs, Waiting

T = TypeVar("T")

HOUR = 3600.0
DAYS = 30
"""Days of history on the first page."""
MOST_QUEUES = 500
"""Queues asked for by name and shown; a heartbeat may name any number."""


class _Delayed:
    """One delayed set: its view, what feeds it, and what fills its search index."""

    def __init__(self, view: DelayedView, follower: Follower, clock: Clock, most_bytes: int) -> None:
        self.view, self.follower, self._most_bytes = view, follower, most_bytes
        self.indexer = Indexer(follower, view, clock)

    def waiting(self) -> Waiting:
        """How many wait and when the next is due; in the follower's thread."""
        facts, live = self.view.facts(), self.view.store.live_bytes()
        return Waiting(self.view.count(), self.view.next_due(), facts.dropped, live, self._most_bytes, facts.trimmed)


class _Counts(NamedTuple):
    """What the tally says at one moment."""

    runs: Runs
    queues: dict[str, QueueRuns]
    waits: dict[str, LatestWait]
    days: list[Day]


class Views:
    """Opens the views in `folder`, feeds them while started, and tells what they know.

    `close` after the last `stop`; it lets the folder go too.
    """

    def __init__(self, settings: Settings, clock: Clock, folder: StateFolder) -> None:
        self.settings, self._clock, self._folder = settings, clock, folder
        self.link = Link(settings, "amqpjobs web", clock)
        self.delayed = {stream: self._follow(stream) for stream in names.DELAYED}
        self.tally = TallyStore(self._folder.path, clock, settings.metrics_window)
        start = FromTime(self.tally.began)
        self.metrics = Follower(self.link, self.tally, names.METRICS, clock=clock, start=start)
        self.beats = Beats(self.link, settings, clock)
        self.depths = Depths(self.link, settings, clock, self._known_queues)
        store = AuditStore(self._folder.path)
        self.record = Record(store, Follower(self.link, store, names.AUDIT, clock=clock))
        self.controls = ControlsView()
        self.controls_follower = Follower(self.link, self.controls, names.CONTROLS, clock=clock)
        sets = {stream: Set(each.view, each.follower) for stream, each in self.delayed.items()}
        self.desk = Desk(settings, sets, self.record, clock)
        self.enqueued = EnqueuedLook(self.link, clock, self._begun)
        self.measures = Measures(self.tally, self.metrics, clock)
        self.lake = Lake(settings.lake_dir, clock)
        self._counts: _Counts | None = None
        self._was_up: bool | None = None
        self._since: float | None = None
        self._pruned = clock.steady()

    def _follow(self, stream: str) -> _Delayed:
        view = DelayedView(self._folder.path, stream, lists=True)
        origin = ColdStart(view, self._clock)
        most = self.link.settings.limits(stream).max_bytes
        return _Delayed(view, Follower(self.link, view, stream, clock=self._clock, origin=origin), self._clock, most)

    def _services(self) -> list[Link | Follower | Beats | Depths | Indexer | Lake]:
        followers = [*self._followers(), self.record.follower, self.controls_follower]
        indexers = [each.indexer for each in self.delayed.values()]
        return [self.link, *followers, *indexers, self.beats, self.depths, self.lake]

    async def start(self) -> None:
        """Begin to read; safe to repeat."""
        for service in self._services():
            await service.start()

    async def stop(self) -> None:
        """Stop acting and reading; safe to repeat."""
        await self.desk.stop()
        for service in reversed(self._services()):
            await service.stop()

    def close(self) -> None:
        """Close the files and give the folder back."""
        for each in self.delayed.values():
            each.view.close()
        self.tally.close()
        self.record.store.close()
        self._folder.close()

    async def facts(self) -> Facts:
        """What is known now. Answers from the views alone, whatever the broker does."""
        now, steady = self._clock.wall(), self._clock.steady()
        waiting = {stream: await each.follower.query(each.waiting) for stream, each in self.delayed.items()}
        self._counts = counts = await self.metrics.query(lambda: self._count(now))
        processes = self.beats.present()
        queues = await asyncio.to_thread(_queue_lines, self.depths.queues, processes, counts, self.paused)
        return Facts(
            at=now,
            steady=steady,
            listened=self.beats.now(),
            broker=self._broker(now),
            leader=self.depths.leader,
            queues=queues,
            processes=processes,
            scheduled=waiting[names.SCHEDULED],
            retries=waiting[names.RETRIES],
            dead=waiting[names.DEAD],
            runs=counts.runs,
            lags=self._lags(steady),
            remarks=self.depths.remarks,
            lost=tuple(stream for stream, each in self.delayed.items() if each.view.lost_before is not None),
            depths_at=self.depths.at,
            days=_joined(self.lake.days, counts.days, counts.runs.since),
            lake=self.lake.lags,
        )

    async def page(self, stream: str, search: Search) -> Page:
        """One page of a delayed set; unless told otherwise the next due first, the dead the latest first.

        Raises ValueError for a sort that there is none of, and for an `after` of another list.
        """
        each = self.delayed[stream]
        if not search.sort:
            search = search._replace(sort="-at" if stream == names.DEAD else "due")
        return await each.follower.query(lambda: each.view.search(search))

    async def targets(self, stream: str, search: Search, limit: int) -> list[Target]:
        """The identities of what is searched for. Raises ValueError where they cannot all be known."""
        each = self.delayed[stream]
        return await each.follower.query(lambda: each.view.targets(search, limit))

    async def errors(self, stream: str, limit: int) -> list[tuple[str, int]]:
        """The error classes of a delayed set and how many have each, the most first; none of what has not failed."""
        each = self.delayed[stream]
        found = await each.follower.query(lambda: each.view.errors(limit + 1)) if stream != names.SCHEDULED else []
        return [(error, count) for error, count in found if error][:limit]

    async def names(self, stream: str) -> tuple[list[str], list[str]]:
        """Some classes and queues of what waits in a delayed set, to choose from."""
        each = self.delayed[stream]
        return await each.follower.query(lambda: each.view.names(MOST_QUEUES))

    async def audit(self, limit: int, offset: int) -> tuple[int, list[Action]]:
        """How many actions are on record, and one page of them, the newest first."""
        store, follower = self.record
        return await follower.query(lambda: (store.count(), store.page(limit, offset)))

    async def recurring(self) -> tuple[list[Line], list[Refused]]:
        """The recurring jobs, and the declarations that were refused lately."""
        each = self.delayed[names.SCHEDULED]
        last = await each.follower.query(each.view.store.ticks)
        log = self.controls.log
        return lines(log.controls.recurring, last, self._clock.wall()), list(log.refused)

    async def order_recurring(self, op: RecurringOp, name: str, *, by: str, via: str) -> bool:
        """Give an order for a recurring job and wait until it shows, but not for ever. False: there is none."""
        known = self.controls.log.controls.recurring.get(name)
        if known is None:
            return False
        async with self.desk.orders(by, via) as orders:
            await orders.recurring(op, known.schedule)

        def shows() -> bool | None:
            now = self.controls.log.controls.recurring.get(name)
            return op == "run" or now is None or now.paused == (op == "pause") or None

        await self.see(shows)
        return True

    async def see(self, shows: Callable[[], bool | None]) -> None:
        """Wait until the controls that this process has read show something, but not for ever."""
        with contextlib.suppress(TimeoutError):
            await self.controls_follower.wait(shows, timeout=PATIENCE)

    @property
    def paused(self) -> frozenset[str]:
        """The queues that are paused."""
        return self.controls.log.controls.paused

    async def recorded(self, action: str) -> Action | None:
        """One action of the record."""
        store, follower = self.record
        return await follower.query(lambda: store.get(action))

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages now, or None: as its API says, or as it told who wanted to act here."""
        return self.depths.alarm or self.desk.blocked

    @property
    def counting(self) -> bool:
        """Whether finished jobs are counted as they are reported: not while the broker is away or a backlog is read."""
        return self.link.state == "up" and self.metrics.caught_up

    def late(self, stream: str | None = None) -> str | None:
        """Why this process, or what it tells of one stream, cannot be relied on now, or None when it can."""
        if self.link.state != "up":
            return "no connection to the broker"
        wanted = [follower for follower in self._followers() if stream in (None, follower.stream)]
        behind = [follower.stream for follower in wanted if not follower.caught_up]
        return f"still reading {', '.join(behind)}" if behind else None

    def _followers(self) -> list[Follower]:
        return [self.metrics, *(each.follower for each in self.delayed.values())]

    def _lags(self, steady: float) -> list[Lag]:
        if self.link.state != "up":
            return []
        return [
            Lag(follower.stream, steady - follower.behind_since)
            for follower in self._followers()
            if follower.behind_since is not None
        ]

    def _broker(self, now: float) -> Broker:
        up = self.link.state == "up"
        if up is not self._was_up:
            self._was_up, self._since = up, now
        return Broker(
            address=redact(self.settings.url),
            up=up,
            product=self.depths.product,
            since=self._since,
            error=None if up else self.link.last_error,
            blocked=self.blocked if up else None,
        )

    def _count(self, now: float) -> _Counts:
        store = self.tally
        if self._clock.steady() - self._pruned > HOUR:
            store.forget(now - self.settings.metrics_window)
            self._pruned = self._clock.steady()
        today, total = store.day(now), store.total()
        return _Counts(_runs(store, today, total), store.queues(now - HOUR), store.waits(), _days(store, now))

    async def _begun(self, jobs: Sequence[Enqueued]) -> frozenset[str]:
        running = {job.jid for process in self.beats.present() for job in process.beat.running}
        ran = await self.metrics.query(lambda: self.tally.begun([(job.jid, job.at) for job in jobs]))
        return frozenset(running | ran)

    def _known_queues(self) -> frozenset[str]:
        """Names to ask for: what workers take, what ran, what waits to be released."""
        counts = self._counts
        ran = () if counts is None else (*counts.queues, *counts.waits)
        return _usual(self.beats.present(), [*ran, *self.depths.queues])


def _usual(processes: Iterable[Process], others: Iterable[str]) -> frozenset[str]:
    """The queues that processes take, and others, as far as they are no more than can be shown."""
    named = {names.DEFAULT_QUEUE, *others}
    for process in processes:
        named.update(process.beat.queues)
    return frozenset(sorted(filter(names.is_queue_name, named))[:MOST_QUEUES])


def _queue_lines(
    depths: Mapping[str, QueueState], processes: Sequence[Process], counts: _Counts, paused: frozenset[str]
) -> list[QueueLine]:
    """The queues by name. It runs in a thread: of hundreds of queues and processes it takes a while."""
    served: dict[str, int] = {}
    for process in processes:
        for queue in set(process.beat.queues):
            served[queue] = served.get(queue, 0) + 1
    seen = {*depths, *counts.queues, *served} & _usual(processes, [*counts.queues, *counts.waits, *depths])
    return [_line(name, depths.get(name), served.get(name, 0), counts, name in paused) for name in sorted(seen)]


def _line(name: str, depth: QueueState | None, processes: int, counts: _Counts, paused: bool) -> QueueLine:
    runs, wait = counts.queues.get(name), counts.waits.get(name)
    return QueueLine(
        name=name,
        ready=depth.ready if depth else None,
        consumers=depth.consumers if depth else None,
        rate_in=depth.rate_in if depth else None,
        rate_out=depth.rate_out if depth else None,
        processes=processes,
        ran=runs.ran if runs else 0,
        failed=runs.failed if runs else 0,
        mean_run=runs.mean_run if runs else None,
        latest_wait=wait.wait if wait else None,
        paused=paused,
    )


def _days(store: TallyStore, now: float) -> list[Day]:
    found = store.days(now, DAYS)
    today = int(now // tally.DAY) * tally.DAY
    return [Day(at, *found.get(at, Counted(0, 0))) for at in range(min(found), today + 1, tally.DAY)] if found else []


def _joined(lake: Sequence[Day], live: Sequence[Day], since: float) -> list[Day]:
    """The days of both: those up to the one on which counting began here are told by who knows more of them."""
    known = {int(day.at): day for day in lake if day.at <= since}
    for day in live:
        before = known.get(int(day.at))
        if before is None or day.ran >= before.ran:
            known[int(day.at)] = day
    if not known:
        return []
    return [known.get(at, Day(at, 0, 0)) for at in range(min(known), max(known) + 1, tally.DAY)]


def _runs(store: TallyStore, today: Counted, total: Counted) -> Runs:
    return Runs(
        today=today.ran,
        failed_today=today.failed,
        total=total.ran,
        failed_total=total.failed,
        since=store.since(),
        unreadable=store.unreadable(),
        gap_at=store.gap_at(),
        renewed_at=store.renewed_at(),
    )
