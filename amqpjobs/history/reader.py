"""Years of what ran: series, percentiles, slowest classes, top errors, one job's life.

All times are seconds since 1970 (UTC), from `since` (inclusive) to `until` (exclusive); all durations are
milliseconds. What the lake does not hold is simply not in the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from amqpjobs.history import lag, queries
from amqpjobs.history.answers import ClassSums, ErrorGroup, LifeEvent, Point
from amqpjobs.history.buckets import Bucket, within
from amqpjobs.history.lag import Lag
from amqpjobs.history.local import added, edges
from amqpjobs.history.pieces import HOUR, LASTING, Kind, Piece, Unit, cut, source
from amqpjobs.history.quantiles import Places, places
from amqpjobs.history.store import Row, Span, Store, span

FOR_EVER = 4e9
_DELAYED = {"raw_scheduled": "scheduled_jobs", "raw_retries": "retries", "raw_dead": "dead_jobs"}
UTC = ZoneInfo("UTC")


class History:
    """Reads the lake in `folder`. Safe for several threads; raises HistoryMissing where the extra is not installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = Store(folder)
        """For questions that are asked elsewhere."""

    def warm(self) -> None:
        """Do now what the first questions would take most of their time for: open the tables of sums, read footers.

        Of five years of 100 classes that takes a second or two; meanwhile others may ask.
        """
        for table in LASTING:
            scan = self.store.scan(table, span(0.0, FOR_EVER))
            if scan is not None:
                self.store.rows(queries.ROWS.format(t=scan), [])
        self.classes(0.0, FOR_EVER)  # the first question of all loads packages, and takes memory

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

        Days and months are those of `zone`, cut at the full hours of UTC.
        """
        local = zone.key != "UTC" and unit in ("day", "month")
        piece = _piece("hour" if local else unit, since, until, one=cls is not None)
        if local:
            where = {name: value for name, value in (("class", cls), ("queue", queue)) if value is not None}
            rows, places = added(self.store, piece, where, edges(since, until, unit, zone), quantiles)
        else:
            table = source(self.store, [piece])
            if table is None:
                return []
            rows = self.store.rows(queries.SERIES.format(t=table), [cls, queue])
            places = self._places(table, "epoch(begins)", "run", [cls, queue], quantiles)
        return [_point(row, places.get(row[0], {}), quantiles) for row in rows]

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
        """Durations in ms that these shares (0 to 1) of the runs did not exceed, within 2 %; None where nothing ran.

        Of a span of more than two days all hours count that begin in it.
        """
        table = source(self.store, self._cut("totals" if cls is None else "metrics", since, until))
        if table is None:
            return [None] * len(quantiles)
        [(least, most)] = self.store.rows(queries.EXTREMES.format(t=table, kind=what), [cls, queue])
        places = self._places(table, "0", what, [cls, queue], quantiles).get(0, {})
        return [_quantile_ms(places, q, least, most) for q in quantiles]

    def classes(self, since: float, until: float, *, queue: str | None = None) -> list[ClassSums]:
        """What ran, by class and queue, that with the most run time first.

        Of a span of more than two days all days (of UTC) count that begin in it.
        """
        table = source(self.store, self._cut("metrics", since, until, days=True))
        if table is None:
            return []
        places = self._places(table, queries.CLASS_AND_QUEUE, "run", [None, queue], (0.5, 0.95))
        rows = self.store.rows(queries.CLASSES.format(t=table), [None, queue])
        return [_class_sums(row, places.get(f"{row[0] or ''}\n{row[1] or ''}", {})) for row in rows]

    def top_errors(
        self, since: float, until: float, *, cls: str | None = None, queue: str | None = None, limit: int = 20
    ) -> list[ErrorGroup]:
        """The most frequent kinds of failures; `since` counts from the beginning of its hour."""
        table = source(self.store, self._cut("errors", since // HOUR * HOUR, until))
        rows = [] if table is None else self.store.rows(queries.TOP_ERRORS.format(t=table), [cls, queue, limit])
        return [ErrorGroup(*row) for row in rows]

    def life(self, jid: str, since: float = 0.0, until: float = FOR_EVER) -> list[LifeEvent]:
        """What is on record of a job: enqueued, runs, failures, death, events, in the order of time.

        `since` and `until` need not be known: an index tells the days. What it lacks, a day at most, is searched.
        """
        scans = self._scans_of(jid, span(since, until))
        found = [
            _event(status, "job_metrics", at, queries.RUN_DETAILS, rest)
            for at, status, *rest in self._of_job(scans["raw_metrics"], queries.RUNS, jid)
        ]
        for table, stream in _DELAYED.items():
            for at, kind, *rest in self._of_job(scans[table], queries.ENTRIES, jid):
                found.append(_event(kind, stream, at, queries.ENTRY_DETAILS, rest))
        for at, kind, body in self._of_job(scans["raw_events"], queries.EVENTS, jid):
            found.append(_event(kind, "job_events", at, ("entry",), [body]))
        for kind, at, *rest in self._of_job(scans["raw_enqueued"], queries.ENQUEUED, jid):
            found.append(_event(kind, "enqueued", at, ("class", "queue"), rest))
        return sorted(found, key=lambda event: event.at or 0.0)

    def _cut(self, kind: Kind, since: float, until: float, *, days: bool = False) -> list[Piece]:
        return cut(kind, since, until, days=days, newest=self.store.newest(f"{kind}_hour"))

    def _scans_of(self, jid: str, days: Span) -> dict[str, str | None]:
        """Each raw table, as far as it may have something of a job."""
        tables = ("raw_metrics", "raw_events", "raw_enqueued", *_DELAYED)
        # Before the index is asked: what it is told meanwhile is then searched twice, and not missed.
        marks = {table: self.store.mark("jids", table) for table in tables}
        index = self.store.scan("jids", Span(days.low.replace(day=1), days.high))
        rows = [] if index is None else self.store.rows(queries.DAYS_OF_JOB.format(t=index), [jid])
        told = {day for (day,) in rows}
        return {table: self.store.scan_days(table, told, days, marks[table]) for table in tables}

    def _of_job(self, scan: str | None, sql: str, jid: str) -> list[Row]:
        return [] if scan is None else self.store.rows(sql.format(t=scan), [jid])

    def _places(self, table: str, key: str, kind: str, mine: Sequence[str | None], shares: Sequence[float]) -> Places:
        """Where quantiles lie, by an expression of SQL that is never null."""
        if not shares:
            return {}
        return places(self.store.arrow(queries.HISTOGRAMS.format(t=table, key=key, kind=kind), mine), shares)


def _piece(unit: Unit, since: float, until: float, *, one: bool) -> Piece:
    """The table of a series: of all classes together where there is one."""
    kind = "totals" if not one and unit != "minute" else "metrics"
    return Piece(f"{kind}_{unit}", unit, since, until)


def _point(row: Row, places: dict[float, tuple[Bucket, float]], quantiles: Sequence[float]) -> Point:
    at, runs, failed, retried, run, wait, run_most, wait_most, run_least = row
    shares = tuple(_quantile_ms(places, q, run_least, run_most) for q in quantiles)
    run_ms, wait_ms = int(run or 0) / 1000, int(wait or 0) / 1000
    return Point(at, int(runs), int(failed), int(retried), run_ms, _ms(run_most), wait_ms, _ms(wait_most), shares)


def _class_sums(row: Row, places: dict[float, tuple[Bucket, float]]) -> ClassSums:
    cls, queue, runs, failed, _, run_us, wait_us, run_max, _, run_min, run_n, wait_n = row
    p50, p95 = (_quantile_ms(places, q, run_min, run_max) for q in (0.5, 0.95))
    run, wait = (float(us) / float(n) / 1000 if n else None for n, us in ((run_n, run_us), (wait_n, wait_us)))
    return ClassSums(cls, queue, int(runs), int(failed), run, wait, p50, p95, _ms(run_max))


def _quantile_ms(
    places: dict[float, tuple[Bucket, float]], q: float, least: int | None, most: int | None
) -> float | None:
    if q not in places or least is None or most is None:
        return None
    return min(max(within(*places[q]), float(least)), float(most)) / 1000


def _ms(us: int | None) -> float | None:
    return None if us is None else us / 1000


def _event(what: str, where: str, at: float | None, names: Sequence[str], values: Iterable[Any]) -> LifeEvent:
    details = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return LifeEvent(at, what, where, details)
