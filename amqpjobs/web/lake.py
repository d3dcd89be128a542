"""What ran in the years before the live fold: the pipeline's lake, where there is one, looked at from time to time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from amqpjobs.clock import Clock
from amqpjobs.history import lag
from amqpjobs.history.answers import ClassSums, Point
from amqpjobs.history.lag import Lag
from amqpjobs.history.reader import History
from amqpjobs.history.store import HistoryMissing
from amqpjobs.model import names, tally
from amqpjobs.service import Service
from amqpjobs.web import measures
from amqpjobs.web.measures import ClassLine, Course, Times
from amqpjobs.web.status import Day

log = logging.getLogger("amqpjobs.web")
T = TypeVar("T")

PERIODS = {"7d": 7, "30d": 30, "90d": 90, "1y": 365, "5y": 5 * 365}
"""What may be asked for, in days."""
HOURLY = 30
"""Days up to which a chart has a point for each hour, and for each day beyond."""
EVERY = 10.0
"""Seconds between two looks."""
NO_LAKE = "There is no lake in {} (AMQPJOBS_LAKE_DIR): what ran more than 72 hours ago is kept by the pipeline alone."


class Lake(Service):
    """Looks while started; `why_not` says why nothing can be asked, and is None when it can.

    Whatever is asked is answered in a thread. A file that cannot be read is logged, and nothing is known then.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__("lake")
        self.why_not: str | None = NO_LAKE.format(folder)
        self.lags: Sequence[Lag] = ()
        self.days: Sequence[Day] = ()
        """What ran on each of the last days that anything ran on (UTC), the oldest first."""
        self._folder, self._clock = folder, clock
        self._history: History | None = None

    async def run(self) -> None:
        """Look until stopped."""
        while True:
            self.lags = await asyncio.to_thread(lag.read, self._folder)
            if self.lags and self.why_not is not None:
                await self._open()
            if self._history is not None:
                self.days = await self._ask(self._days, ())
            await self._clock.sleep(EVERY)

    @property
    def until(self) -> float | None:
        """Up to when (seconds since 1970) all finished jobs were in the lake, as it was written down last."""
        return next((each.since for each in self.lags if each.stream == names.METRICS), None)

    async def classes(self, period: str) -> list[ClassLine]:
        """Each class that ran in a period, the most runs first. Percentiles of waits are told of one class alone."""
        since, until = self._span(period)
        nothing: list[ClassSums] = []
        found = await self._ask(lambda history: history.classes(since, until), nothing)
        lines: dict[str, list[ClassSums]] = {}
        for each in found:
            lines.setdefault(each.cls, []).append(each)
        return sorted(map(_line, lines.values()), key=lambda line: (-line.ran, line.cls))

    async def course(self, cls: str, period: str) -> Course:
        """One class over a period: a point an hour or a day. New versions of its code and spreads are not told."""
        return await self._ask(lambda history: self._course(history, cls, period), self._nothing(cls, period))

    def _course(self, history: History, cls: str, period: str) -> Course:
        (since, until), nothing = self._span(period), self._nothing(cls, period)
        unit: Literal["hour", "day"] = "hour" if PERIODS[period] <= HOURLY else "day"
        points = history.series(since, until, unit, cls=cls, quantiles=measures.QUANTILES)
        ran, failed = sum(each.runs for each in points), sum(each.failed for each in points)
        run, wait = (
            _times(history.percentiles(since, until, measures.QUANTILES, what=what, cls=cls))
            for what in ("run", "wait")
        )  # fmt: skip
        mean = sum(each.run_ms for each in points) / 1000 / ran if ran else None
        return nothing._replace(
            total=ClassLine(cls, ran, failed, mean, run, wait), points=[_point(each) for each in points]
        )

    def _nothing(self, cls: str, period: str) -> Course:
        since, _ = self._span(period)
        step = tally.HOUR if PERIODS[period] <= HOURLY else tally.DAY
        none = Times(None, None, None)
        now = int(self._clock.wall())
        return Course(ClassLine(cls, 0, 0, None, none, none), step, int(since), now, (), None, None, ())

    def _span(self, period: str) -> tuple[float, float]:
        """Whole days up to the end of this one: of them there are sums."""
        until = (self._clock.wall() // tally.DAY + 1) * tally.DAY
        return until - PERIODS[period] * tally.DAY, until

    def _days(self, history: History) -> list[Day]:
        return [Day(each.at, each.runs, each.failed) for each in history.series(*self._span("30d"), "day")]

    async def _open(self) -> None:
        try:
            self._history = await asyncio.to_thread(History, self._folder)
            self.why_not = None
            await self._ask(History.warm, None)
        except HistoryMissing as error:
            self.why_not = f"{str(error)[0].upper()}{str(error)[1:]}."

    async def _ask(self, question: Callable[[History], T], nothing: T) -> T:
        """In a thread. The lake is another program's: whatever is wrong with its files must not end this one."""
        if self._history is None:
            return nothing
        try:
            return await asyncio.to_thread(question, self._history)
        except Exception as error:
            log.warning("the lake in %s cannot be read: %s", self._folder, error)
            return nothing


def _line(sums: Sequence[ClassSums]) -> ClassLine:
    """One class, of all its queues. Percentiles do not add up: they are told where it has one queue."""
    ran, failed = sum(each.runs for each in sums), sum(each.failed for each in sums)
    timed = [(each.runs, each.run_mean_ms) for each in sums if each.run_mean_ms is not None]
    weight = sum(runs for runs, _ in timed)
    mean = sum(runs * ms for runs, ms in timed) / weight / 1000 if weight else None
    run = Times(_seconds(sums[0].p50_ms), _seconds(sums[0].p95_ms), None) if len(sums) == 1 else Times(None, None, None)
    return ClassLine(sums[0].cls, ran, failed, mean, run, Times(None, None, None))


def _point(each: Point) -> measures.Point:
    waited = Times(None, None, None)
    return measures.Point(int(each.at), each.runs, each.failed, _times(each.quantiles), waited)


def _times(ms: Sequence[float | None]) -> Times:
    return Times(*map(_seconds, ms))


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
