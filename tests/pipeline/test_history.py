"""Reading the lake without a JVM: right figures, from tables that are made here."""

from __future__ import annotations

import datetime
import itertools
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

from amqpjobs.history import lag
from amqpjobs.history.lag import Lag
from amqpjobs.history.pieces import LASTING, Piece, Unit, cut
from amqpjobs.history.quantiles import AT_ONCE
from amqpjobs.history.reader import FOR_EVER, History
from amqpjobs.history.store import HistoryMissing, span
from tests.pipeline import sums
from tests.pipeline.streams import NOON

SHARES = (0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999)
DAY = 86400.0
MIDNIGHT = NOON - DAY / 2


def samples(kind: str) -> list[int]:
    rng = random.Random(7)
    drawn: dict[str, Callable[[], int]] = {
        "lognormal": lambda: round(rng.lognormvariate(9, 1.2)),
        "bimodal": lambda: round(rng.gauss(2_000, 150) if rng.random() < 0.7 else rng.gauss(900_000, 40_000)),
        "two values": lambda: 1_234 if rng.random() < 0.4 else 567_890,
        "uniform": lambda: rng.randrange(10_000, 1_000_000),
        "constant": lambda: 54_321,
    }
    return [drawn[kind]() for _ in range(20_000)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.mark.parametrize("kind", ["lognormal", "bimodal", "two values", "uniform", "constant"])
def test_quantiles_are_within_two_percent_after_merging(folder: Path, kind: str) -> None:
    figures = samples(kind)
    parts = [figures[at : at + 137] for at in range(0, len(figures), 137)]  # as minutes into days
    sums.write(folder, "metrics_day", [sums.row("day", MIDNIGHT, "A", "low", part) for part in parts])
    ordered = sorted(figures)
    told = History(folder).percentiles(MIDNIGHT, MIDNIGHT + DAY, SHARES, cls="A")
    for share, found in zip(SHARES, told, strict=True):
        exact = ordered[round(share * (len(ordered) - 1))] / 1000
        assert found == pytest.approx(exact, rel=0.02), share


def test_quantiles_of_little(folder: Path) -> None:
    sums.write(folder, "metrics_day", [sums.row("day", MIDNIGHT, "none", "low", [0, 0, 0])])
    sums.write(folder, "metrics_day", [sums.row("day", MIDNIGHT, "one", "low", [70])])
    history = History(folder)
    assert history.percentiles(MIDNIGHT, MIDNIGHT + DAY, (0.5,), cls="none") == [0]
    assert history.percentiles(MIDNIGHT, MIDNIGHT + DAY, (0.0, 0.99, 1.0), cls="one") == [0.07] * 3


def runs(count: int, since: float, seconds: float, seed: int = 1) -> list[sums.Run]:
    rng = random.Random(seed)
    at = [since + rng.random() * seconds for _ in range(count)]
    return [
        (each, rng.choice("ABC"), rng.choice(("low", "high")), rng.randrange(1, 10**6), rng.random() < 0.1)
        for each in at
    ]


def test_series_add_up_what_several_rows_say(folder: Path) -> None:
    found = runs(3000, MIDNIGHT - 3 * DAY, 6 * DAY)
    for half in (found[:1500], found[1500:]):  # two rows of most keys
        sums.fill(folder, half)
    history = History(folder)
    points = history.series(MIDNIGHT, MIDNIGHT + DAY, "hour", cls="A", queue="low", quantiles=(0.5,))
    mine = [run for run in found if MIDNIGHT <= run[0] < MIDNIGHT + DAY and run[1:3] == ("A", "low")]
    assert mine
    for point in points:
        ran = [run for run in mine if point.at <= run[0] < point.at + 3600]
        assert (point.runs, point.failed) == (len(ran), sum(run[4] for run in ran))
        assert point.run_ms == pytest.approx(sum(run[3] for run in ran) / 1000)
        assert point.run_max_ms == max(run[3] for run in ran) / 1000
        [median] = point.quantiles
        ordered = sorted(run[3] / 1000 for run in ran)
        assert median is not None
        assert 0.98 * ordered[(len(ran) - 1) // 2] <= median <= 1.02 * ordered[len(ran) // 2]
    assert sum(point.runs for point in points) == len(mine)
    everyone = history.series(MIDNIGHT, MIDNIGHT + DAY, "hour", queue="low", quantiles=(1.0,))
    all_mine = [run for run in found if MIDNIGHT <= run[0] < MIDNIGHT + DAY and run[2] == "low"]
    assert sum(point.runs for point in everyone) == len(all_mine)
    assert max(point.quantiles[0] or 0 for point in everyone) == pytest.approx(max(run[3] for run in all_mine) / 1000)


@pytest.mark.parametrize(("noon", "hours"), [(1_793_552_400.0, 25), (1_772_989_200.0, 23), (1_780_000_000.0, 24)])
def test_met_03_a_local_day_has_all_its_hours(folder: Path, noon: float, hours: int) -> None:
    """2026-11-01 and 2026-03-08 in Los Angeles: one run each hour, and none is counted on another day, or twice."""
    pacific = ZoneInfo("America/Los_Angeles")
    first = noon // 3600 * 3600 - 60 * 3600
    found = [(first + 3600 * n + 1800, "A", "low", 1000, False) for n in range(120)]
    sums.fill(folder, found)
    points = History(folder).series(first, first + 120 * 3600, "day", zone=pacific, quantiles=(0.5,))
    [day] = [point for point, after in itertools.pairwise(points) if point.at <= noon < after.at]
    assert (day.runs, day.quantiles) == (hours, (1.0,))
    assert sum(point.runs for point in points) == 120


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_local_days_and_months_are_those_of_the_runs(folder: Path, zone: str) -> None:
    """Of a year, with both changes of the clock; an hour belongs to the day on which it begins."""
    found = runs(2000, MIDNIGHT - 200 * DAY, 365 * DAY)
    for name in ("metrics_hour", "totals_hour"):
        for half in (found[:1000], found[1000:]):  # two rows of some keys
            sums.write(folder, name, sums.rows(half, name))
    history, span = History(folder), (MIDNIGHT - 190 * DAY, MIDNIGHT + 150 * DAY)
    for cls in (None, "B"):
        mine = [run for run in found if span[0] <= run[0] < span[1] and cls in (None, run[1])]
        check_local(history, span, "day", cls, ZoneInfo(zone), mine)
        check_local(history, span, "month", cls, ZoneInfo(zone), mine)


def check_local(
    history: History, span: tuple[float, float], unit: Unit, cls: str | None, zone: ZoneInfo, mine: list[sums.Run]
) -> None:
    def name(at: float) -> str:
        return datetime.datetime.fromtimestamp(at, zone).isoformat()[: 10 if unit == "day" else 7]

    days: dict[str, list[sums.Run]] = {}
    for run in mine:
        days.setdefault(name(sums.begin(run[0], "hour")), []).append(run)
    points = history.series(*span, unit, cls=cls, zone=zone, quantiles=(0.0, 1.0))
    assert [name(point.at) for point in points] == sorted(days)
    for point in points:
        ran, midnight = days[name(point.at)], datetime.datetime.fromtimestamp(point.at, zone)
        figures = [run[3] / 1000 for run in ran]
        assert (midnight.hour, midnight.minute) == (0, 0)
        assert (point.runs, point.failed) == (len(ran), sum(run[4] for run in ran))
        assert point.run_ms == pytest.approx(sum(figures))
        assert point.run_max_ms == max(figures)
        assert point.quantiles == pytest.approx((min(figures), max(figures)), rel=0.02)


def test_a_local_day_on_which_no_run_told_how_long_it_took(folder: Path) -> None:
    silent = {**sums.row("hour", NOON, "A", "low", []), "count": 2, "run_us": None}
    sums.write(folder, "metrics_hour", [silent])
    [day] = History(folder).series(
        MIDNIGHT, MIDNIGHT + DAY, "day", cls="A", zone=ZoneInfo("Asia/Tokyo"), quantiles=(0.5,)
    )
    assert (day.runs, day.run_ms, day.run_max_ms, day.wait_max_ms, day.quantiles) == (2, 0, None, None, (None,))


SPANS = [
    (MIDNIGHT - 390 * DAY, MIDNIGHT + 50 * DAY),
    (MIDNIGHT - 41.5 * DAY, MIDNIGHT + 45.25 * DAY),
    (MIDNIGHT + 3 * DAY + 600, MIDNIGHT + 4 * DAY - 120),
    (MIDNIGHT - 7 * DAY, MIDNIGHT - 2 * DAY),
]


def test_percentiles_and_classes_are_those_of_the_runs(folder: Path) -> None:
    found = runs(5000, MIDNIGHT - 400 * DAY, 500 * DAY)
    sums.fill(folder, found)
    history = History(folder)
    for each in SPANS:
        check_span(history, each, found)


def check_span(history: History, span: tuple[float, float], found: list[sums.Run]) -> None:
    mine = [run for run in found if span[0] <= run[0] < span[1]]
    everybody = sorted(run[3] / 1000 for run in mine)
    assert history.percentiles(*span, (0.0, 1.0)) == pytest.approx([everybody[0], everybody[-1]], rel=0.02)
    ordered = sorted(run[3] / 1000 for run in mine if run[1] == "B")
    for share, told in zip(SHARES, history.percentiles(*span, SHARES, cls="B"), strict=True):
        rank = share * (len(ordered) - 1)
        assert told is not None
        assert 0.98 * ordered[int(rank)] <= told <= 1.02 * ordered[min(int(rank) + 1, len(ordered) - 1)]
    if span[1] - span[0] > 2 * DAY:  # whole days, as far as classes go
        mine = [run for run in found if span[0] <= sums.begin(run[0], "day") < span[1]]
    classes = history.classes(*span)
    assert sum(each.runs for each in classes) == len(mine)
    for each in classes:
        ran = [run[3] / 1000 for run in mine if run[1:3] == (each.cls, each.queue)]
        assert (each.runs, each.max_ms) == (len(ran), max(ran))
        assert each.run_mean_ms == pytest.approx(sum(ran) / len(ran))
    total = [each.runs * (each.run_mean_ms or 0) for each in classes]
    assert total == sorted(total, reverse=True)
    assert history.percentiles(*span, (0.5,), cls="nobody") == [None]


def test_a_long_span_needs_no_minutes(folder: Path) -> None:
    """They are kept for 30 days: a span may begin long before, and end just now."""
    found = runs(500, MIDNIGHT - 100 * DAY, 110 * DAY)
    sums.fill(folder, found)
    shutil.rmtree(folder / "metrics_minute")
    since, until = MIDNIGHT - 90 * DAY - 600, MIDNIGHT + 3 * DAY + 1200
    mine = [run for run in found if since <= sums.begin(run[0], "day") < until]
    assert sum(each.runs for each in History(folder).classes(since, until)) == len(mine)


def entry(at: float, jid: str, **members: Any) -> dict[str, Any]:
    return {"epoch": 0, "offset": 1, "item": 0, "at": at, "jid": jid, "class": "A", "queue": "low", **members}


def test_a_jobs_life_is_told_in_order(folder: Path) -> None:
    sums.write(folder, "raw_retries", [entry(NOON + 1, "j", type="retry", error_class="Timeout", retry_count=1)])
    sums.write(folder, "raw_metrics", [entry(NOON + 1, "j", status="failed", run_us=1500), entry(NOON, "other")])
    sums.write(folder, "raw_metrics", [entry(NOON + 9, "j", status="success", attempt=2)])
    life = History(folder).life("j", NOON, NOON + 60)
    assert [event.what for event in life][-1] == "success"
    assert {(event.what, event.where, event.at) for event in life} == {
        ("failed", "job_metrics", NOON + 1),
        ("retry", "retries", NOON + 1),
        ("success", "job_metrics", NOON + 9),
    }
    [failed] = [event for event in life if event.what == "failed"]
    assert failed.details == {"class": "A", "queue": "low", "run_ms": 1.5}


def test_top_errors_are_those_that_happen_most(folder: Path) -> None:
    def group(hour: float, mark: str, count: int) -> dict[str, Any]:
        shared = {"class": "A", "queue": "low", "error_class": "E", "dead": 1, "jid": f"{mark}{hour}"}
        return {"hour": hour, "fingerprint": mark, "count": count, "error_message": "…", **shared}

    hours = [group(NOON, "a", 3), group(NOON + 3600, "a", 3), group(NOON, "b", 5)]
    sums.write(folder, "errors_hour", hours)
    january = {**group(NOON, "a", 6), "month": sums.begin(NOON, "month"), "dead": 2}
    january["last"] = datetime.datetime.fromtimestamp(NOON + 3600, datetime.UTC)
    sums.write(folder, "errors_month", [january])
    [longer, *_] = History(folder).top_errors(NOON - 90 * DAY, NOON + 90 * DAY)
    assert (longer.fingerprint, longer.failures, longer.dead, longer.last_hour) == ("a", 6, 2, NOON + 3600)
    first, second = History(folder).top_errors(NOON + 600, NOON + 7200)
    assert (first.fingerprint, first.failures, first.dead, first.jid) == ("a", 6, 2, f"a{NOON + 3600}")
    assert (second.fingerprint, second.failures) == ("b", 5)


def test_a_lake_that_is_not_there_yet_is_empty(folder: Path) -> None:
    history = History(folder)
    history.warm()
    assert history.series(MIDNIGHT, NOON, "hour", quantiles=(0.5,)) == []
    assert history.percentiles(MIDNIGHT, NOON, (0.5,)) == [None]
    assert not history.classes(MIDNIGHT, NOON)
    assert not history.top_errors(MIDNIGHT, NOON)
    assert not history.lag()
    assert history.life("j", MIDNIGHT, NOON) == []


def test_new_rows_are_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpjobs.history.store.FRESH_SECONDS", 0.0)
    sums.fill(folder, runs(10, NOON, 60))
    history = History(folder)
    assert sum(point.runs for point in history.series(NOON, NOON + 60, "hour")) == 10
    sums.fill(folder, runs(5, NOON, 60))
    assert sum(point.runs for point in history.series(NOON, NOON + 60, "hour")) == 15


def test_who_is_warm_has_read_all_footers(folder: Path) -> None:
    """They are damaged here behind its back: whoever read them before goes on."""
    sums.fill(folder, runs(50, MIDNIGHT - 40 * DAY, 80 * DAY))
    files = [each for name in LASTING for each in (folder / name).rglob("*.parquet")]
    for file in files:
        os.utime(file, (NOON, NOON))  # DuckDB does not rely on what it knows of files that were written just now
    warm, cold = History(folder), History(folder)
    warm.warm()
    for file in files:
        with file.open("r+b") as opened:
            opened.seek(-4, os.SEEK_END)
            opened.write(b"gone")
        os.utime(file, (NOON, NOON))
    everything = f"SELECT count(*) FROM {warm.store.scan('metrics_hour', span(0, FOR_EVER))}"
    assert warm.store.rows(everything, [])[0][0] > 0
    with pytest.raises(duckdb.Error, match="magic"):
        cold.store.rows(everything, [])


def test_what_is_set_holds_for_every_question(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # of the machine
    store = History(folder).store
    for setting, value in (("TimeZone", "UTC"), ("parquet_metadata_cache", True)):
        assert store.rows("SELECT current_setting($1)", [setting]) == [(value,)]


def test_months_are_read_whole_where_nothing_came_later() -> None:
    january, february, april = (datetime.datetime(2026, n, 1, tzinfo=datetime.UTC).timestamp() for n in (1, 2, 4))
    since, until = january + 14 * DAY, february + 40 * DAY
    days = Piece("metrics_day", "day", since, february)
    assert cut("metrics", since, until, newest=until - 3600) == [days, Piece("metrics_month", "month", february, april)]
    for newest in (None, until):
        march = february + 28 * DAY
        assert cut("metrics", since, until, newest=newest) == [
            days,
            Piece("metrics_month", "month", february, march),
            Piece("metrics_day", "day", march, until),
        ]


def test_the_newest_hour_is_known_where_every_file_tells_it(folder: Path) -> None:
    for at in (NOON, NOON - 40 * DAY):
        sums.write(folder, "metrics_hour", [sums.row("hour", at, "A", "low", [7])])
    assert History(folder).store.newest("metrics_hour") == NOON
    assert History(folder).store.newest("totals_hour") is None


def test_many_keys_are_added_up_in_blocks(folder: Path) -> None:
    hours = AT_ONCE + 3
    sums.write(folder, "metrics_hour", [sums.row("hour", n * 3600.0, "A", "low", [n + 1]) for n in range(hours)])
    points = History(folder).series(0, hours * 3600, "hour", cls="A", quantiles=[0.5])
    assert [point.quantiles for point in points] == [((n + 1) / 1000,) for n in range(hours)]


@pytest.mark.parametrize("package", ["deltalake", "duckdb", "numpy"])
def test_without_the_extra_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(HistoryMissing, match=r"pip install 'amqpjobs\[history\]'"):
        History(folder)


def test_the_lag_is_a_figure_for_prometheus_too(folder: Path) -> None:
    folder.mkdir()
    lags = [Lag("job_metrics", 12, 99.5, 100.0), Lag("retries", 0, None, 100.0)]
    lag.write(folder, lags)
    assert lag.read(folder) == lags
    lines = (folder / lag.PROMETHEUS).read_text().splitlines()
    assert 'amqpjobs_pipeline_behind_messages{stream="job_metrics"} 12' in lines
    assert [line for line in lines if 'since_seconds{stream="retries"}' in line] == []
