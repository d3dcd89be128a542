"""What Spark sums up is what plain Python counts, also after it was added up, and of rows that came late."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest

from amqpjobs.history.buckets import Bucket
from amqpjobs.history.reader import History
from amqpjobs.model import names
from amqpjobs.pipeline.lake import Lake
from amqpjobs.pipeline.upkeep import Upkeep
from amqpjobs.settings import Settings
from tests.pipeline import sums
from tests.pipeline.conftest import Pipe
from tests.pipeline.streams import NOON, append, metric
from tests.pipeline.test_spark_ingest import query

SHARES = (0.5, 0.95, 0.99)


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


def test_sums_hold_through_late_rows_and_upkeep(
    pipe: Pipe, spark: Any, declared: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqpjobs.pipeline.upkeep.FEW", 1)
    rng = random.Random(3)
    metrics = [metric(n, duration_ms=round(rng.lognormvariate(4, 1), 3)) for n in range(3000)]
    late = [metric(n, timestamp=NOON - 40 * 86400 + n, duration_ms=7.5) for n in range(5)]
    late += [metric(n, timestamp=NOON + 400 * 86400, duration_ms=7.5) for n in range(5)]  # a clock that is wrong
    append(declared, names.METRICS, metrics[:1000])
    pipe()
    append(declared, names.METRICS, metrics[1000:] + late)
    pipe()
    found = query(lake, "metrics_day", "SELECT run_histogram FROM {t} WHERE class = 'Class1'")
    buckets = sorted(Bucket(**each) for [histogram] in found for each in histogram)
    mine = [round(each["duration_ms"] * 1000) for each in metrics + late if each["job_class"] == "Class1"]
    assert sum(each.n for each in buckets) == len(mine)
    assert {each.bucket for each in buckets} == {each.bucket for each in sums.histogram(mine)}
    with lake.writing():
        Upkeep(spark, lake, declared.model_copy(update={"lake_minutes_age": "9Y"})).run()
    check(lake, metrics + late)


def test_upkeep_adds_up_and_forgets(
    pipe: Pipe, spark: Any, declared: Settings, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqpjobs.pipeline.upkeep.FEW", 1)
    for n in range(2):
        append(declared, names.METRICS, [metric(n, timestamp=NOON, job_class="A", queue="q")])
        append(declared, names.RETRIES, [failure(n)])
        pipe()
    hours = "SELECT count(*), sum(count) FROM {t}"
    assert query(lake, "metrics_hour", hours) == query(lake, "errors_hour", hours) == [(2, 2)]
    with lake.writing():
        settings = declared.model_copy(update={"lake_raw_age": "10D", "lake_minutes_age": "9Y"})
        Upkeep(spark, lake, settings).run(today=datetime.date(2026, 1, 20))
    assert query(lake, "metrics_hour", hours) == query(lake, "errors_hour", hours) == [(1, 2)]
    assert query(lake, "raw_metrics", "SELECT count(*) FROM {t}") == [(0,)]
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
