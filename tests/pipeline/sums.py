"""Tables of the lake made without Spark, for tests of those who read them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from amqpjobs.history.buckets import Bucket, bucket_of
from amqpjobs.pipeline.tables import ROLLUPS, SCHEMAS, SUMS

SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
Run = tuple[float, str, str, int, bool]
"""When, class, queue, microseconds, failed."""


def histogram(figures: Iterable[int]) -> list[Bucket]:
    """The buckets of durations in microseconds."""
    found: dict[int, Bucket] = {}
    for us in figures:
        number = bucket_of(us)
        before = found.get(number, Bucket(number, 0, 0))
        found[number] = Bucket(number, before.n + 1, before.us + us)
    return sorted(found.values())


def fill(lake: Path, runs: list[Run]) -> None:
    """All tables of sums of these runs."""
    for name in ROLLUPS:
        write(lake, name, rows(runs, name))


def rows(runs: list[Run], name: str) -> list[dict[str, Any]]:
    """One row a key of runs."""
    groups: dict[tuple[float, str | None, str], list[tuple[int, bool]]] = {}
    for at, cls, queue, us, failed in runs:
        key = (begin(at, ROLLUPS[name].unit), cls if "class" in ROLLUPS[name].key else None, queue)
        groups.setdefault(key, []).append((us, failed))
    unit = ROLLUPS[name].unit
    return [row(unit, *key, [us for us, _ in each], sum(failed for _, failed in each)) for key, each in groups.items()]


def begin(at: float, unit: str) -> float:
    """When the unit of time began, in UTC."""
    if unit in SECONDS:
        return at // SECONDS[unit] * SECONDS[unit]
    first = datetime.datetime.fromtimestamp(at, datetime.UTC).replace(day=1)
    return first.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


def row(unit: str, at: float, cls: str | None, queue: str, figures: list[int], failed: int = 0) -> dict[str, Any]:
    shared = {unit: at, "class": cls, "queue": queue, "code_version": None, "count": len(figures), "failed": failed}
    extremes = {"run_min_us": min(figures, default=None), "run_max_us": max(figures, default=None)}
    buckets = [each._asdict() for each in histogram(figures)]
    return {**shared, **extremes, "retried": 0, "run_n": len(figures), "run_us": sum(figures), "run_histogram": buckets,
            "wait_n": 0, "wait_us": 0, "wait_min_us": None, "wait_max_us": None, "wait_histogram": []}  # fmt: skip


def write(lake: Path, name: str, found: list[dict[str, Any]]) -> None:
    """Append rows; of their times the date is made."""
    schema = SCHEMAS[name]
    time = SUMS[name].unit if name in SUMS else "at"
    span = SUMS[name].span if name in SUMS else "day"
    whole = []
    for each in found:
        moment = datetime.datetime.fromtimestamp(each[time], datetime.UTC)
        whole.append({**each, time: moment, "date": _first_day(moment.date(), span)})
    write_deltalake(str(lake / name), pa.Table.from_pylist(whole, schema), mode="append", partition_by=["date"])


def _first_day(date: datetime.date, span: str) -> datetime.date:
    return {"day": date, "month": date.replace(day=1), "year": date.replace(month=1, day=1)}[span]
