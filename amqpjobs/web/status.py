"""What the dashboard shows: one snapshot, put together from what the views know, without asking anyone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from amqpjobs.history import lag
from amqpjobs.model.messages import RunningJob
from amqpjobs.model.pending import Trim
from amqpjobs.model.processes import Process
from amqpjobs.web import diagnosis
from amqpjobs.web.throughput import Bar, Rate


@dataclass(frozen=True, slots=True)
class Broker:
    """The connection as it stands. `since`: when it came up or went away (seconds since 1970)."""

    address: str
    up: bool
    product: str = ""
    since: float | None = None
    error: str | None = None
    blocked: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A delayed set: how many wait, when the next is due (None: none waits for a time), and how many were dropped
    because the set was full or they were too old. What waits takes about `live_bytes` of the `most_bytes` that its
    stream may hold (0: not known); `trim` tells what retention took of it last."""

    count: int
    next_due: float | None = None
    dropped: int = 0
    live_bytes: int = 0
    most_bytes: int = 0
    trim: Trim | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """What the tally knows of finished jobs. `since`: the instant from which on `total` counts."""

    today: int
    failed_today: int
    total: int
    failed_total: int
    since: float
    unreadable: int = 0
    gap_at: float | None = None
    renewed_at: float | None = None


class Day(NamedTuple):
    """What finished on one UTC day, which began at `at` (seconds since 1970)."""

    at: float
    ran: int
    failed: int


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One queue. `ready`, `consumers` and the rates (messages a second, only where the management API answers) are None
    when the broker has not told; the rest is of the last hour's runs."""

    name: str
    ready: int | None = None
    consumers: int | None = None
    rate_in: float | None = None
    rate_out: float | None = None
    processes: int = 0
    ran: int = 0
    failed: int = 0
    mean_run: float | None = None
    latest_wait: float | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Lag:
    """A view that is not at its stream's tail, and for how many seconds."""

    stream: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at `at` (seconds since 1970), on the `steady` clock, and on the clock of heartbeats' arrivals,
    which stands still while none could arrive (`listened`)."""

    at: float
    steady: float
    listened: float
    broker: Broker
    leader: bool | None
    queues: Sequence[QueueLine]
    processes: Sequence[Process]
    scheduled: Waiting | None
    retries: Waiting | None
    dead: Waiting | None
    runs: Runs | None
    lags: Sequence[Lag] = ()
    remarks: Sequence[str] = ()
    lost: Sequence[str] = ()
    depths_at: float | None = None
    days: Sequence[Day] = ()
    """The last days, the oldest first, from the first on which anything finished."""
    lake: Sequence[lag.Lag] = ()
    """How far the pipeline has read, as it told last; empty where none ever ran."""


@dataclass(frozen=True, slots=True)
class ProcessLine:
    """One process. Times in seconds; `started` and `seen` since 1970."""

    name: str
    tag: str
    nonce: str
    queues: tuple[str, ...]
    busy: int
    concurrency: int
    rss_kb: float | None
    version: str
    started: float | None
    seen: float
    silent_for: float
    fresh: bool
    state: str
    """What it said of itself: `running`, `quiet`, `stopping`."""
    order_name: str = ""
    """What orders call it: the nonce, which names this very process, or else its identity."""
    running: tuple[RunningJob, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """The snapshot. Counts that are not known yet are None, never 0."""

    facts: Facts
    processes: tuple[ProcessLine, ...]
    problems: tuple[diagnosis.Finding, ...]
    rate: Rate | None = None
    bars: tuple[Bar | None, ...] = ()
    """Finished jobs in the steps of the chart, oldest first; None for what was not watched."""
    busy: int = 0
    concurrency: int = 0
    ready: int | None = None
    """Jobs waiting in all queues."""

    @property
    def wrong(self) -> bool:
        """Whether a person is needed."""
        return any(finding.level == "wrong" for finding in self.problems)

    @property
    def behind(self) -> float:
        """Seconds that the view which lags most lags."""
        return max((lag.seconds for lag in self.facts.lags), default=0.0)


def status(facts: Facts, rate: Rate | None = None, bars: Sequence[Bar | None] = ()) -> Status:
    """Put the snapshot together."""
    processes = tuple(_line(process, facts) for process in facts.processes)
    known = [queue.ready for queue in facts.queues if queue.ready is not None]
    return Status(
        facts=facts,
        processes=processes,
        problems=tuple(diagnosis.findings(facts)),
        rate=rate,
        bars=tuple(bars),
        busy=sum(process.busy for process in processes),
        concurrency=sum(process.concurrency for process in processes),
        ready=sum(known) if known or facts.depths_at is not None else None,
    )


def _line(process: Process, facts: Facts) -> ProcessLine:
    beat = process.beat
    silent_for = process.silent_for(facts.listened)
    started = beat.boot_at if beat.boot_at is not None and beat.boot_at <= facts.at else None
    return ProcessLine(
        name=f"{beat.hostname}:{beat.pid}" if beat.hostname and beat.pid is not None else beat.identity,
        tag=beat.tag,
        nonce=beat.nonce or "",
        queues=tuple(beat.queues),
        busy=beat.busy,
        concurrency=beat.concurrency,
        rss_kb=beat.rss_kb,
        version=beat.version,
        started=started,
        seen=facts.at - silent_for,
        silent_for=silent_for,
        fresh=process.state(facts.listened) == "fresh",
        state=beat.state,
        order_name=beat.nonce or beat.identity,
        running=tuple(sorted(beat.running, key=lambda job: (job.started_at or 0.0, job.jid))),
    )
