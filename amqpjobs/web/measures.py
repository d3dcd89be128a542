"""How classes of jobs have run lately: counts, failures, percentiles and spreads of run and wait times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from amqpjobs.clock import Clock
from amqpjobs.model import histogram, tally
from amqpjobs.model.histogram import Histogram
from amqpjobs.model.tally import Spread
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.tally_store import FINE, TallyStore

PERIODS: Mapping[str, int] = {
    "5m": 300, "15m": 900, "1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600, "72h": 72 * 3600,
}  # fmt: skip
"""What may be asked for, in seconds."""
USUAL = "1h"
QUANTILES = (0.5, 0.95, 0.99)
COLUMNS = 48
"""Bars of a drawn spread at most."""


class Times(NamedTuple):
    """Half, 95 and 99 of a hundred take no longer than this, in seconds; None when none told a time."""

    p50: float | None
    p95: float | None
    p99: float | None


class ClassLine(NamedTuple):
    """One class over a period. `mean_run` in seconds."""

    cls: str
    ran: int
    failed: int
    mean_run: float | None
    run: Times
    wait: Times


class Bar(NamedTuple):
    """What took longer than `since` and no longer than `until` seconds."""

    since: float
    until: float
    jobs: int


class Point(NamedTuple):
    """One slot of a class: from when (seconds since 1970), what ran, and its times."""

    at: int
    ran: int
    failed: int
    run: Times
    wait: Times


class Course(NamedTuple):
    """One class over a period, in slots of `step` seconds; `versions` are when new versions of the code came, `run` and
    `wait` how its times spread (None: not known)."""

    total: ClassLine
    step: int
    since: int
    until: int
    points: Sequence[Point]
    run: Sequence[Bar] | None
    wait: Sequence[Bar] | None
    versions: Sequence[tuple[float, str]]


class Measures:
    """Answers from the tally's file, in its follower's thread."""

    def __init__(self, store: TallyStore, follower: Follower, clock: Clock) -> None:
        self._store, self._follower, self._clock = store, follower, clock

    async def classes(self, period: int, cls: str | None = None) -> list[ClassLine]:
        """Each class that ran in the last `period` seconds (in whole slots), or the one of this name; most runs first.

        A name is compared as a whole: `Send` is not the beginning of `SendLater` here.
        """
        lines = await self._follower.query(lambda: self._classes(period, cls))
        return sorted(lines, key=lambda line: (-line.ran, line.cls))

    async def course(self, cls: str, period: int) -> Course:
        """One class over the last `period` seconds; all counts are 0 when it did not run."""
        return await self._follower.query(lambda: self._course(cls, period))

    def _classes(self, period: int, cls: str | None) -> list[ClassLine]:
        found: dict[str, Spread] = {}
        for _, name, spread in self._store.spreads(_step(period), self._clock.wall() - period, cls):
            found.setdefault(name, Spread()).add(spread)
        return [_line(name, spread) for name, spread in found.items()]

    def _course(self, cls: str, period: int) -> Course:
        step, now = _step(period), self._clock.wall()
        total, points = Spread(), []
        for start, _, spread in self._store.spreads(step, now - period, cls):
            points.append(Point(start, spread.count, spread.failed, _times(spread.run), _times(spread.wait)))
            total.add(spread)
        first = int((now - period) // step) * step
        versions = self._store.versions(cls, now - period)
        return Course(
            _line(cls, total), step, first, int(now), points, bars(total.run), bars(total.wait), versions
        )  # fmt: skip


def bars(found: Histogram) -> list[Bar]:
    """A spread to draw: neighbouring buckets put together until few enough are left, empty ones between included."""
    if not found:
        return []
    first, last = min(found), max(found)
    width = -(-(last - first + 1) // COLUMNS)
    drawn = []
    for start in range(first, last + 1, width):
        count = sum(found.get(index, 0) for index in range(start, start + width))
        drawn.append(Bar(histogram.bounds(start)[0], histogram.bounds(start + width - 1)[1], count))
    return drawn


def _line(cls: str, spread: Spread) -> ClassLine:
    mean = spread.run_us / spread.timed / 1e6 if spread.timed else None
    return ClassLine(cls, spread.count, spread.failed, mean, _times(spread.run), _times(spread.wait))


def _times(found: Histogram) -> Times:
    return Times(*(histogram.quantile(found, q) for q in QUANTILES))


def _step(period: int) -> int:
    return tally.MINUTE if period <= FINE else tally.HOUR
