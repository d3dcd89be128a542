"""`amqpjobs report --month 2026-11 --out report.html`: a month of the lake as one page that needs nothing else.

Runs, failures and percentiles by day; what is slow, what waits, when it is busy; what a new code version made slower or
made fail, with the probability that it is chance; the errors, and which of them come together.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

from jinja2 import Environment
from markupsafe import Markup

from amqpjobs.history import analysis, charts
from amqpjobs.history.answers import ClassSums, Point
from amqpjobs.history.charts import Dot, Line
from amqpjobs.history.reader import UTC, History
from amqpjobs.history.store import HistoryMissing, NoLake, lake_in
from amqpjobs.pipeline.conservation import full_until
from amqpjobs.pipeline.spans import written
from amqpjobs.settings import load

SHARES = (0.5, 0.95, 0.99)
NAMES = ("median", "95 %", "99 %")
LISTED = 15
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PAGE = Path(__file__).with_name("report.html")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: written; 1: it could not be, and a line says why."""
    options = _parser().parse_args(argv)
    settings = load()
    since, until = bounds(options.month, options.zone)
    try:
        history = History(lake_in(settings.lake_dir))
        if not history.series(since, until, "day", zone=options.zone):
            print(f"amqpjobs: nothing ran in {options.month}, by the lake {settings.lake_dir}", file=sys.stderr)
            return 1
        options.out.write_text(page(history, options.month, options.zone, full_until(settings)))
    except (HistoryMissing, NoLake, OSError) as error:
        print(f"amqpjobs: {error}", file=sys.stderr)
        return 1
    print(options.out)
    return 0


def bounds(month: str, zone: ZoneInfo) -> tuple[float, float]:
    """When the month (2026-11) begins and ends, in seconds since 1970."""
    first = datetime.datetime.strptime(month, "%Y-%m").replace(tzinfo=zone)
    following = (first + datetime.timedelta(days=32)).replace(day=1)
    return first.timestamp(), following.timestamp()


def page(history: History, month: str, zone: ZoneInfo, full: float) -> str:
    """The page. `full`: up to when the lake holds all that happened."""
    since, until = bounds(month, zone)
    days = history.series(since, until, "day", quantiles=SHARES, zone=zone)
    classes = history.classes(since, until)
    facts = {
        "month": month,
        "zone": zone.key,
        "full": written(full) if full < until else None,
        "figures": _figures(history, since, until, days),
        "charts": _charts(history, month, zone, days, classes),
        "slowest": sorted(classes, key=lambda each: -(each.p95_ms or 0))[:LISTED],
        "waits": any(each.wait_mean_ms and each.run_mean_ms for each in classes),
        "changes": analysis.changes(history, since, until),
        "errors": history.top_errors(since, until, limit=LISTED),
        "together": analysis.together(history, since, until)[:LISTED],
        "significant": analysis.SIGNIFICANT,
    }
    environment = Environment(autoescape=True)
    environment.filters |= {"ms": _ms, "percent": _percent, "count": "{:,}".format, "p": _p, "at": written}
    return environment.from_string(_PAGE.read_text()).render(facts)


def _figures(history: History, since: float, until: float, days: Sequence[Point]) -> list[tuple[str, str]]:
    runs, failed = sum(day.runs for day in days), sum(day.failed for day in days)
    run, wait = (history.percentiles(since, until, SHARES, what=what) for what in ("run", "wait"))
    return [
        ("runs", f"{runs:,}"),
        ("failed", f"{failed:,} ({_percent(failed / max(1, runs))})"),
        ("retried", f"{sum(day.retried for day in days):,}"),
        ("run time", f"{sum(day.run_ms for day in days) / 3_600_000:,.1f} h"),
        *((f"run, {name}", _ms(value)) for name, value in zip(NAMES, run, strict=True)),
        *((f"wait, {name}", _ms(value)) for name, value in zip(NAMES, wait, strict=True)),
    ]


def _charts(
    history: History, month: str, zone: ZoneInfo, days: Sequence[Point], classes: Sequence[ClassSums]
) -> dict[str, Markup]:
    """By name. Days without a run are shown, and empty."""
    since, until = bounds(month, zone)
    dates, by_day = _dates(since, until, zone), {_date(day.at, zone): day for day in days}
    found = [by_day.get(date) for date in dates]
    labels = [date.strftime("%d") for date in dates]
    counts = [(0, 0) if day is None else (day.runs - day.failed, day.failed) for day in found]
    told = (("succeeded", "c1"), ("failed", "c3"))
    parts = [Line(name, colour, [count[at] for count in counts]) for at, (name, colour) in enumerate(told)]
    series = [
        Line(name, f"c{at + 1}", [None if day is None else day.quantiles[at] for day in found])
        for at, name in enumerate(NAMES)
    ]
    dots = [Dot(each.cls, each.run_mean_ms or 0, each.wait_mean_ms or 0) for each in classes]
    drawn = {
        "runs": charts.bars(labels, parts, "runs by day"),
        "times": charts.lines(labels, series, "run time by day", "ms"),
        "week": charts.heat(_WEEKDAYS, analysis.week(history, since, until, zone), "runs by hour of the week"),
        "waits": charts.scatter(dots, "wait against run time, by class", "mean run in ms", "mean wait in ms"),
    }
    return {name: Markup(svg) for name, svg in drawn.items()}  # noqa: S704 - charts escape what they are told


def _dates(since: float, until: float, zone: ZoneInfo) -> list[datetime.date]:
    first, end = _date(since, zone), _date(until, zone)
    return [first + datetime.timedelta(days=n) for n in range((end - first).days)]


def _date(at: float, zone: ZoneInfo) -> datetime.date:
    return datetime.datetime.fromtimestamp(at, zone).date()


def _ms(value: float | None) -> str:
    """A duration for people."""
    if value is None:
        return "–"
    if value < 1000:
        return f"{value:.3g} ms"
    return f"{value / 1000:.3g} s" if value < 60_000 else f"{value / 60_000:,.1f} min"


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %"


def _p(probability: float) -> str:
    return "< 0.0001" if probability < 0.0001 else f"{probability:.4f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="amqpjobs report", description=__doc__)
    parser.add_argument("--month", type=_month, required=True, metavar="YYYY-MM", help="which month")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the page to write")
    parser.add_argument("--zone", type=_zone, default=UTC, metavar="NAME", help="whose days and hours (default: UTC)")
    return parser


def _month(word: str) -> str:
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", word):
        raise ValueError(word)
    return word


def _zone(word: str) -> ZoneInfo:
    try:
        return ZoneInfo(word)
    except (KeyError, OSError) as error:
        raise ValueError(word) from error


if __name__ == "__main__":
    sys.exit(main())
