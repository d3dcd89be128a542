"""When a recurring job is due: a cron expression in a time zone, or a fixed interval. Ticks are whole seconds.

Pure but for the zone database, which is the machine's: two machines with another edition of it may disagree on a day
whose law has changed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from amqpjobs.model.fields import Problem

LONGEST_EXPRESSION = 300
LONGEST_INTERVAL = 366 * 86_400
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]*(/[A-Za-z0-9_+\-]+)*")
_FIRST_WINDOW = 60.0
_PROBE = 1_767_225_600.0
"""2026: whether an expression ever matches is asked from here, so that all readers give one answer."""


class Timetable(Protocol):
    """Tells the ticks, in seconds since 1970."""

    def after(self, moment: float) -> int | None:
        """The first tick later than `moment`; None when there is none in the next 50 years."""
        ...


class Interval:
    """Every so many seconds, counted from 1970: the same ticks for all who ask, whenever they began."""

    def __init__(self, every: int) -> None:
        self._every = every

    def after(self, moment: float) -> int | None:
        """The next multiple of the interval."""
        return int(moment // self._every + 1) * self._every


class Cron:
    """A cron expression of five fields, by the wall clock of a zone, with the rule of Debian's cron for its changes.

    Where minute and hour are fixed, what falls into a skipped hour is due right after it, and what falls into a
    repeated hour is due the first time only. Where one of them begins with `*`, real time counts.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression, self._zone = expression, zone

    def after(self, moment: float) -> int | None:
        """The first tick later than `moment`.

        In a repeated hour the library names moments that are over already, and where a skipped hour moved one tick
        onto another it names both: each is passed over.
        """
        try:
            for found in CronSim(self._expression, datetime.fromtimestamp(moment, self._zone)):
                tick = int(found.timestamp())
                if tick > moment:
                    return tick
        except (ValueError, OverflowError, OSError):  # a clock beyond the calendar
            return None
        return None


def latest(timetable: Timetable, base: float, now: float) -> int | None:
    """The last tick after `base` and not after `now`, found in windows that double: a year of minutes is not walked."""
    window = _FIRST_WINDOW
    while True:
        start = max(base, now - window)
        found = None
        tick = timetable.after(start)
        while tick is not None and tick <= now:
            found, tick = tick, timetable.after(tick)
        if found is not None or start <= base:
            return found
        window *= 2


@lru_cache(maxsize=4096)
def timetable(cron: str | None, zone: str, every: int | None) -> Timetable | Problem:
    """What a declaration's times mean, or what is wrong with them: exactly one of `cron` and `every` is given."""
    if (cron is None) == (every is None):
        return Problem("give either cron or every")
    if every is not None:
        if not 1 <= every <= LONGEST_INTERVAL:
            return Problem(f"every is a whole number of seconds from 1 to {LONGEST_INTERVAL}, not {every}")
        return Interval(every)
    found = _zone(zone)
    return found if isinstance(found, Problem) else _cron(cron or "", found)


def _zone(name: str) -> tzinfo | Problem:
    if name == "UTC":
        return UTC
    problem = Problem(f"timezone: {name[:80]!r} is not known here; names are like Europe/Rome or UTC")
    if len(name) > 80 or not _ZONE.fullmatch(name):
        return problem
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return problem


def _cron(expression: str, zone: tzinfo) -> Cron | Problem:
    advice = "five fields, minute hour day-of-month month day-of-week, such as '0 3 * * MON-FRI'"
    shown = repr(expression[:80])
    if len(expression) > LONGEST_EXPRESSION or len(expression.split()) != 5 or not expression.isascii():
        return Problem(f"cron: {shown} is not {advice}")
    try:
        found = Cron(expression, zone)
        CronSim(expression, datetime.fromtimestamp(_PROBE, UTC))
    except (CronSimError, ValueError, AssertionError, TypeError) as error:
        return Problem(f"cron: {shown}: {error or 'not understood'}; it is {advice}")
    if Cron(expression, UTC).after(_PROBE) is None:
        return Problem(f"cron: {shown} never comes: no day matches it in 50 years")
    return found
