"""What Spark sums up is what plain Python counts, also after it was added up, and of rows that came late."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.history.buckets import Bucket
from amqpjobs.history.reader import History
from amqpjobs.model import names
from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.tables import SCHEMAS
from amqpjobs.pipeline.upkeep import Upkeep
from amqpjobs.settings import Settings
from tests.pipeline import sums
from tests.pipeline.conftest import Pipe
from tests.pipeline.streams import NOON, append, metric
from tests.pipeline.test_spark_ingest import query

SHARES = (0.5, 0.95, 0.99)


SHAPES: dict[str, Callable[[random.Random], float]] = {
    "lognormal": lambda rng: rng.lognormvariate(4, 1),
    "bimodal": lambda rng: rng.gauss(20, 1.5) if rng.random() < 0.7 else rng.gauss(9000, 400),
    "constant": lambda rng: 54.321,
}


def shaped(number: int, rng: random.Random) -> dict[str, Any]:
    """A run of one of the classes whose durations have a shape."""
    kind = list(SHAPES)[number % 3]
    return metric(number, job_class=kind, duration_ms=round(SHAPES[kind](rng), 3))


def check(lake: Lake, metrics: list[dict[str, Any]]) -> None:
    """All answers of the history are those of these runs."""
    history = History(lake.folder)
    figures = sorted(metric["duration_ms"] for metric in metrics)
    for unit in ("minute", "hour", "day"):
        points = history.series(0, NOON * 2, unit)
        assert sum(point.runs for point in points) == len(metrics), unit
        assert sum(point.run_ms for point in points) == pytest.approx(sum(figures))
        assert max(point.run_max_ms or 0 for point in points) == max(figures)
        for point in points:
            width = sums.SECONDS[unit]
            assert point.runs == sum(point.at <= each["timestamp"] < point.at + width for each in metrics)
    for share, told in zip(SHARES, history.percentiles(0, NOON // 86400 * 86400 * 2, SHARES), strict=True):
        assert told == pytest.approx(figures[round(share * (len(figures) - 1))], rel=0.02)
    midnight = NOON // 86400 * 86400
    for kind in SHAPES:
        mine = sorted(each["duration_ms"] for each in metrics if each["job_class"] == kind)
        for span in ((NOON - 60, NOON + 7260), (midnight, midnight + 86400), (midnight, midnight + 40 * 86400)):
            found = history.percentiles(*span, SHARES, cls=kind)  # of minutes, of days, of months
            for share, one in zip(SHARES, found, strict=True):
                assert one == pytest.approx(mine[round(share * (len(mine) - 1))], rel=0.02), (kind, span, share)


def test_sums_hold_through_late_rows_and_upkeep(
    pipe: Pipe, spark: Any, declared: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqpjobs.pipeline.upkeep.FEW", 1)
    rng = random.Random(3)
    metrics = [shaped(n, rng) for n in range(3000)]
    late = [metric(n, timestamp=NOON - 40 * 86400 + n, duration_ms=7.5) for n in range(5)]
    late += [metric(n, timestamp=NOON + 400 * 86400, duration_ms=7.5) for n in range(5)]  # a clock that is wrong
    append(declared, names.METRICS, metrics[:1000])
    pipe()
    append(declared, names.METRICS, metrics[1000:] + late)
    pipe()
    found = query(lake, "metrics_day", "SELECT run_histogram FROM {t} WHERE class = 'bimodal'")
    buckets = sorted(Bucket(**each) for [histogram] in found for each in histogram)
    mine = [round(each["duration_ms"] * 1000) for each in metrics + late if each["job_class"] == "bimodal"]
    assert sum(each.n for each in buckets) == len(mine)
    assert {each.bucket for each in buckets} == {each.bucket for each in sums.histogram(mine)}
    with lake.writing():
        Upkeep(lake, declared.model_copy(update={"lake_minutes_age": "9Y"})).run()
    check(lake, metrics + late)


def test_upkeep_adds_up_and_forgets(
    pipe: Pipe, spark: Any, declared: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqpjobs.pipeline.upkeep.FEW", 1)
    monkeypatch.setattr("amqpjobs.pipeline.upkeep.KEEP_FILES_HOURS", 0)
    for n in range(2):
        append(declared, names.METRICS, [metric(n, timestamp=NOON, job_class="A", queue="q")])
        append(declared, names.RETRIES, [failure(n)])
        pipe()
    hours = "SELECT count(*), sum(count) FROM {t}"
    assert query(lake, "metrics_hour", hours) == query(lake, "errors_hour", hours) == [(2, 2)]
    with lake.writing():
        Upkeep(lake, declared).run(today=datetime.date(2026, 1, 5))
        assert query(lake, "metrics_minute", hours) == [(1, 2)]
        assert query(lake, "raw_metrics", "SELECT count(*) FROM {t}") == [(2,)]
        settings = declared.model_copy(update={"lake_raw_age": "10D", "lake_minutes_age": "15D"})
        Upkeep(lake, settings).run(today=datetime.date(2026, 1, 20))
    assert query(lake, "metrics_hour", hours) == query(lake, "errors_hour", hours) == [(1, 2)]
    assert query(lake, "raw_metrics", "SELECT count(*) FROM {t}") == [(0,)]
    assert query(lake, "metrics_minute", hours) == [(0, None)]
    for name in SCHEMAS:  # what no version has any more is gone from the disk
        live = {Path(uri.removeprefix("file://")) for uri in lake.table(name).file_uris()}
        there = set((lake.folder / name).rglob("*.parquet")) - set((lake.folder / name / "_delta_log").iterdir())
        assert there == live, name
    [error] = History(lake.folder).top_errors(NOON - 86400, NOON + 86400)
    assert (error.failures, error.dead, error.error_class) == (2, 0, "Timeout")
    assert error.error_message in {f"no answer in {n} s" for n in range(2)}
    append(declared, names.METRICS, [metric(2, timestamp=NOON, job_class="A", queue="q")])
    pipe()
    assert query(lake, "metrics_hour", "SELECT sum(count) FROM {t}") == [(3,)], "its marks outlived the upkeep"


def failure(number: int) -> dict[str, Any]:
    job = {"class": "A", "queue": "q", "args": [number], "jid": f"j{number}"}
    told = {"failed_at": NOON, "error_class": "Timeout", "error_message": f"no answer in {number} s", "job": job}
    return {"type": "retry", "jid": f"j{number}", "retry_at": NOON + 60, "retry_count": 1, **told}


def test_hours_of_workers(pipe: Pipe, declared: Settings, lake: Lake) -> None:
    beats = [
        {"type": "heartbeat", "identity": "h:1:t", "nonce": "n", "beat": NOON + 10 * n, "busy": 2, "concurrency": 5}
        for n in range(4)
    ]
    append(declared, names.HEARTBEATS, [*beats, beats[3], b"{"])
    pipe()
    pipe()
    found = query(lake, "heartbeats_hour", "SELECT identity, nonce, beats, busy, concurrency FROM {t}")
    assert found == [("h:1:t", "n", 4, 8, 20)]
