"""Years of what ran: series, percentiles, slowest classes, top errors, one job's life.

All times are seconds since 1970 (UTC), from `since` (inclusive) to `until` (exclusive); all durations are
milliseconds. What the lake does not hold is simply not in the answers.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from amqpjobs.history import lag, queries
from amqpjobs.history.answers import ClassSums, ErrorGroup, LifeEvent, Point
from amqpjobs.history.buckets import Bucket, quantile
from amqpjobs.history.lag import Lag
from amqpjobs.history.store import Row, Store, span

Unit = Literal["minute", "hour", "day"]
_TABLES: dict[Unit, str] = {"minute": "metrics_minute", "hour": "metrics_hour", "day": "metrics_day"}
_SPANNED: dict[str, int] = {"metrics_minute": 0, "metrics_hour": 31, "metrics_day": 366, "errors_hour": 31}
"""Days that a file of a table may begin before a time that it holds."""
_DELAYED = {"raw_scheduled": "scheduled_jobs", "raw_retries": "retries", "raw_dead": "dead_jobs"}
UTC = ZoneInfo("UTC")


class History:
    """Reads the lake in `folder`. Safe for several threads; raises HistoryMissing where the extra is not installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = Store(folder)

    def lag(self) -> list[Lag]:
        """How far the lake is behind each stream."""
        return lag.read(self._folder)

    def series(
        self,
        since: float,
        until: float,
        unit: Unit,
        *,
        cls: str | None = None,
        queue: str | None = None,
        quantiles: Sequence[float] = (),
        zone: ZoneInfo = UTC,
    ) -> list[Point]:
        """Points in the order of time; times at which nothing ran have none.

        Days are those of `zone`, cut at the full hours of UTC.
        """
        source: Unit = "hour" if unit == "day" and zone.key != "UTC" else unit
        asked = (since, until, cls, queue)
        gathered: dict[float, list[Row]] = {}
        for at, *sums in self._sums(source, queries.SERIES, *asked):
            gathered.setdefault(_begin(at, unit, zone), []).append(tuple(sums))
        buckets: dict[float, list[Bucket]] = {}
        for at, *bucket in self._sums(source, queries.SERIES_BUCKETS, *asked) if quantiles else ():
            buckets.setdefault(_begin(at, unit, zone), []).append(_bucket(bucket))
        return [_point(at, gathered[at], buckets.get(at, []), quantiles) for at in sorted(gathered)]

    def percentiles(
        self,
        since: float,
        until: float,
        quantiles: Sequence[float],
        *,
        what: Literal["run", "wait"] = "run",
        cls: str | None = None,
        queue: str | None = None,
    ) -> list[float | None]:
        """Durations in ms that these shares (0 to 1) of the runs did not exceed, within 2 %; None where nothing ran."""
        unit, asked = _coarsest(since, until), (since, until, cls, queue)
        histogram = [_bucket(row) for row in self._sums(unit, queries.BUCKETS, *asked, kind=what)]
        extremes = self._sums(unit, queries.EXTREMES, *asked, kind=what)
        least, most = extremes[0] if extremes else (None, None)
        return [_quantile_ms(histogram, q, least, most) for q in quantiles]

    def classes(self, since: float, until: float, *, queue: str | None = None) -> list[ClassSums]:
        """What ran, by class and queue, that with the most run time first."""
        unit, asked = _coarsest(since, until), (since, until, None, queue)
        histograms: dict[tuple[str, str], list[Bucket]] = {}
        for cls, name, *bucket in self._sums(unit, queries.CLASS_BUCKETS, *asked):
            histograms.setdefault((cls, name), []).append(_bucket(bucket))
        sums = self._sums(unit, queries.CLASSES, *asked)
        return [_class_sums(row, histograms.get((row[0], row[1]), [])) for row in sums]

    def top_errors(
        self, since: float, until: float, *, cls: str | None = None, queue: str | None = None, limit: int = 20
    ) -> list[ErrorGroup]:
        """The most frequent kinds of failures; `since` counts from the beginning of its hour."""
        values = [since // 3600 * 3600, until, cls, queue, limit]
        wide = span(since, until, _SPANNED["errors_hour"])
        return [
            ErrorGroup(*row) for row in self._store.rows("errors_hour", wide, queries.TOP_ERRORS, values, time="hour")
        ]

    def life(self, jid: str, since: float, until: float) -> list[LifeEvent]:
        """What is on record of a job on the days of these times: runs, failures, death, events, in the order of time.

        The shorter the time, the quicker.
        """
        days = span(since, until)
        runs = self._store.rows("raw_metrics", days, queries.RUNS, [jid])
        found = [_event(status, "job_metrics", at, queries.RUN_DETAILS, rest) for at, status, *rest in runs]
        for table, stream in _DELAYED.items():
            for at, kind, *rest in self._store.rows(table, days, queries.ENTRIES, [jid]):
                found.append(_event(kind, stream, at, queries.ENTRY_DETAILS, rest))
        for at, kind, body in self._store.rows("raw_events", days, queries.EVENTS, [jid]):
            found.append(_event(kind, "job_events", at, ("entry",), [body]))
        return sorted(found, key=lambda event: event.at or 0.0)

    def _sums(
        self, unit: Unit, sql: str, since: float, until: float, *mine: str | None, kind: str = "run"
    ) -> list[Row]:
        table = _TABLES[unit]
        wide = span(since, until, _SPANNED[table])
        return self._store.rows(table, wide, sql, [since, until, *mine], time=unit, kind=kind)


def _coarsest(since: float, until: float) -> Unit:
    """The table with the fewest rows whose edges are those of the span."""
    if since % 86400 == 0 and until % 86400 == 0:
        return "day"
    return "hour" if since % 3600 == 0 and until % 3600 == 0 else "minute"


def _begin(at: float, unit: Unit, zone: ZoneInfo) -> float:
    """When the day of `zone` began that holds `at`; `at` itself of what is shorter."""
    if unit != "day" or zone.key == "UTC":
        return at
    local = datetime.datetime.fromtimestamp(at, zone)
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).timestamp()


def _point(at: float, rows: list[Row], histogram: list[Bucket], quantiles: Sequence[float]) -> Point:
    runs, failed, retried, _, run, _, _, wait, *_ = (
        sum(int(each or 0) for each in column) for column in zip(*rows, strict=True)
    )
    run_most, wait_most = _most(row[5] for row in rows), _most(row[8] for row in rows)
    shares = tuple(_quantile_ms(histogram, q, 0, run_most) for q in quantiles)
    return Point(at, runs, failed, retried, run / 1000, _ms(run_most), wait / 1000, _ms(wait_most), shares)


def _class_sums(row: Row, histogram: list[Bucket]) -> ClassSums:
    cls, queue, runs, failed, _, run_n, run_us, run_max, wait_n, wait_us, _, run_min = row
    p50, p95 = (_quantile_ms(histogram, q, run_min, run_max) for q in (0.5, 0.95))
    run, wait = (float(us) / float(n) / 1000 if n else None for n, us in ((run_n, run_us), (wait_n, wait_us)))
    return ClassSums(cls, queue, int(runs), int(failed), run, wait, p50, p95, _ms(run_max))


def _bucket(row: Iterable[Any]) -> Bucket:
    return Bucket(*(int(each) for each in row))


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _quantile_ms(histogram: list[Bucket], q: float, least: int | None, most: int | None) -> float | None:
    found = None if most is None else quantile(histogram, q, least or 0, most)
    return None if found is None else found / 1000


def _ms(us: int | None) -> float | None:
    return None if us is None else us / 1000


def _event(what: str, where: str, at: float | None, names: Sequence[str], values: Iterable[Any]) -> LifeEvent:
    details = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return LifeEvent(at, what, where, details)
