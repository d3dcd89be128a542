"""What ran, counted: a pure fold of `job_metrics` messages into sums that merge.

Minutes by class and queue, totals by UTC day, and how run and wait times spread, by class and minute. Sums are integers
(microseconds), so that folding in any grouping gives the same figures. A message of ours that came twice (its confirm
was lost, so it was appended again) counts once, by `from` and `seq`; what cannot be read is counted as such and never
silently left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amqpjobs.model import histogram, reading
from amqpjobs.model.histogram import Histogram
from amqpjobs.model.messages import JobMetric, Unreadable

MINUTE = 60
HOUR = 3600
DAY = 86_400
LONGEST_MS = 30 * DAY * 1000.0
"""Longer durations are held at this (30 days): a nonsense figure must not overflow a sum."""
LONGEST_NAME = 255
"""Characters kept of a class or queue."""
MOST_OUTCOMES = 200_000
"""Runs that are remembered one by one."""
LAST_INSTANT = 253_402_300_800
"""The year 10000: a metric before 1970 or after this has no day to be counted on and is unreadable."""


class Key(NamedTuple):
    """One minute of one class on one queue; `minute` counts from 1970 UTC."""

    minute: int
    cls: str
    queue: str


@dataclass(slots=True)
class Sums:
    """How many ran, and for how long. Sums and maxima in microseconds; `timed` and `waited` told a duration or wait."""

    count: int = 0
    failed: int = 0
    timed: int = 0
    run_us: int = 0
    run_max_us: int = 0
    waited: int = 0
    wait_us: int = 0
    wait_max_us: int = 0

    def add(self, other: Sums) -> None:
        """Take in what another counted."""
        self.count += other.count
        self.failed += other.failed
        self.timed += other.timed
        self.run_us += other.run_us
        self.run_max_us = max(self.run_max_us, other.run_max_us)
        self.waited += other.waited
        self.wait_us += other.wait_us
        self.wait_max_us = max(self.wait_max_us, other.wait_max_us)


class Slot(NamedTuple):
    """One class in one span of time: `size` seconds (MINUTE or HOUR) from `start` (seconds since 1970)."""

    size: int
    start: int
    cls: str


@dataclass(slots=True)
class Spread:
    """What ran in a slot, and how its run and wait times (microseconds) spread."""

    count: int = 0
    failed: int = 0
    timed: int = 0
    run_us: int = 0
    run: Histogram = field(default_factory=dict)
    wait: Histogram = field(default_factory=dict)

    def add(self, other: Spread) -> None:
        """Take in what another counted."""
        self.count += other.count
        self.failed += other.failed
        self.timed += other.timed
        self.run_us += other.run_us
        histogram.merge(self.run, other.run)
        histogram.merge(self.wait, other.wait)

    def take(self, sums: Sums) -> None:
        """Count one run."""
        self.count += sums.count
        self.failed += sums.failed
        self.timed += sums.timed
        self.run_us += sums.run_us
        if sums.timed:
            index = histogram.bucket(sums.run_us)
            self.run[index] = self.run.get(index, 0) + 1
        if sums.waited:
            index = histogram.bucket(sums.wait_us)
            self.wait[index] = self.wait.get(index, 0) + 1


class Outcome(NamedTuple):
    """One run of a job that told its jid, as its worker reported it. Times in microseconds, None when not told."""

    at: float
    jid: str
    cls: str
    queue: str
    status: str
    run_us: int | None
    wait_us: int | None
    attempt: int | None
    worker: str
    error_class: str
    version: str


class Version(NamedTuple):
    """A class as one version of the code."""

    cls: str
    version: str


class Wait(NamedTuple):
    """How long the latest job of a queue that told it had waited. Ordered by when it ran."""

    at: float
    wait_us: int


@dataclass(slots=True)
class Tally:
    """What some messages add: to be merged into what was counted before."""

    minutes: dict[Key, Sums] = field(default_factory=dict)
    days: dict[int, Sums] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    spreads: dict[Slot, Spread] = field(default_factory=dict)
    """By the minute; `hourly` adds them up."""
    versions: dict[Version, float] = field(default_factory=dict)
    """When each version was first seen to run a class."""
    outcomes: list[Outcome] = field(default_factory=list)
    """In the order of the stream; the newest MOST_OUTCOMES."""
    seqs: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0
    repeated: int = 0
    earliest: float | None = None

    def merge(self, later: Tally) -> None:
        """Take in the tally of the messages that follow."""
        for key, sums in later.minutes.items():
            self.minutes.setdefault(key, Sums()).add(sums)
        for day, sums in later.days.items():
            self.days.setdefault(day, Sums()).add(sums)
        for queue, wait in later.waits.items():
            self.waits[queue] = max(wait, self.waits.get(queue, wait))
        for slot, spread in later.spreads.items():
            self.spreads.setdefault(slot, Spread()).add(spread)
        for version, at in later.versions.items():
            self.versions[version] = min(at, self.versions.get(version, at))
        self.outcomes = [*self.outcomes, *later.outcomes][-MOST_OUTCOMES:]
        self.seqs.update(later.seqs)
        self.unreadable += later.unreadable
        self.repeated += later.repeated
        told = [at for at in (self.earliest, later.earliest) if at is not None]
        self.earliest = min(told, default=None)


def hourly(spreads: Mapping[Slot, Spread]) -> dict[Slot, Spread]:
    """The same by the hour: a long time is told from few slots."""
    hours: dict[Slot, Spread] = {}
    for slot, spread in spreads.items():
        hours.setdefault(Slot(HOUR, slot.start // HOUR * HOUR, slot.cls), Spread()).add(spread)
    return hours


def tally(bodies: Iterable[bytes], seqs: Mapping[str, int]) -> Tally:
    """Count the messages of `bodies` in order; `seqs` has the last sequence number counted of each source."""
    result = Tally()
    for body in bodies:
        _take(result, body, seqs)
    return result


def source(values: list[Any]) -> tuple[str, int] | None:
    """Who appended a message of ours and its number there: they stand on its first entry. None for a foreign one."""
    first = values[0] if values else None
    if not isinstance(first, dict):
        return None
    name, seq = first.get("from"), first.get("seq")
    if isinstance(name, str) and type(seq) is int and 0 < seq < 2**63:
        return name, seq
    return None


def _take(result: Tally, body: bytes, seqs: Mapping[str, int]) -> None:
    values = reading.values(body)
    if isinstance(values, Unreadable):
        result.unreadable += 1
        return
    sent = source(values)
    if sent is not None:
        name, seq = _name(sent[0]), sent[1]
        if seq <= result.seqs.get(name, seqs.get(name, 0)):
            result.repeated += 1
            return
        result.seqs[name] = seq
    for value in values:
        _count(result, value)


def _count(result: Tally, value: Any) -> None:
    # Markers and other entries of ours that a stream may carry are no metrics and no mistake.
    if isinstance(value, dict) and value.get("type", "job_metric") != "job_metric":
        return
    metric = reading.read_metric(value)
    if isinstance(metric, Unreadable) or not 0 <= metric.timestamp < LAST_INSTANT:
        result.unreadable += 1
        return
    if metric.jid:
        result.outcomes.append(_outcome(metric))
    if metric.status not in ("success", "failed"):
        return  # taken from its queue and not run: neither processed nor failed
    sums = _sums(metric)
    queue, cls = _name(metric.queue), _name(metric.job_class)
    minute = int(metric.timestamp // MINUTE)
    result.minutes.setdefault(Key(minute, cls, queue), Sums()).add(sums)
    result.spreads.setdefault(Slot(MINUTE, minute * MINUTE, cls), Spread()).take(sums)
    if metric.code_version:
        version = Version(cls, _name(metric.code_version))
        result.versions[version] = min(metric.timestamp, result.versions.get(version, metric.timestamp))
    result.days.setdefault(int(metric.timestamp // DAY), Sums()).add(sums)
    if sums.waited:
        wait = Wait(metric.timestamp, sums.wait_us)
        result.waits[queue] = max(wait, result.waits.get(queue, wait))
    result.earliest = metric.timestamp if result.earliest is None else min(result.earliest, metric.timestamp)


def _outcome(metric: JobMetric) -> Outcome:
    names = map(_name, (metric.worker_identity, metric.error_class or "", metric.code_version or ""))
    return Outcome(
        metric.timestamp, _name(metric.jid or ""), _name(metric.job_class), _name(metric.queue), metric.status,
        _micros(metric.duration_ms), _micros(metric.wait_ms), metric.attempt, *names,
    )  # fmt: skip


def _sums(metric: JobMetric) -> Sums:
    run, wait = _micros(metric.duration_ms), _micros(metric.wait_ms)
    return Sums(
        count=1,
        failed=int(metric.status == "failed"),
        timed=int(run is not None),
        run_us=run or 0,
        run_max_us=run or 0,
        waited=int(wait is not None),
        wait_us=wait or 0,
        wait_max_us=wait or 0,
    )


def _micros(milliseconds: float | None) -> int | None:
    """Whole microseconds, held between 0 and 30 days; None when it was not told or is no number (NaN)."""
    if milliseconds is None or math.isnan(milliseconds):
        return None
    return int(min(max(milliseconds, 0.0), LONGEST_MS) * 1000)


def _name(text: str) -> str:
    """A name that any store takes: lone surrogates replaced (SQLite refuses them), and not longer than is readable."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
