"""A lake of years, as upkeep leaves it, made without Spark: for benchmarks of those who read it."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterator

import duckdb

from amqpjobs.pipeline import jids
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.tables import ROLLUPS, SCHEMAS, SUMS

UNTIL = datetime.datetime(2026, 11, 28, tzinfo=datetime.UTC).timestamp()
QUEUES = 4
VARIANTS = 8
BUCKETS = 320
"""Up to six seconds."""
ERRORS = 5
"""Kinds of errors of a class."""
HOURS = {"minute": 1 / 60, "hour": 1, "day": 24, "month": 730}


def jid_of(number: int) -> str:
    """The jid of the n-th raw run."""
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()[:24]


def fill(lake: Lake, years: int, classes: int, raw: int) -> None:
    """Sums (minutes of two days), errors and raw runs of so many years before UNTIL."""
    database = duckdb.connect(config={"threads": 2})
    database.execute("SET TimeZone = 'UTC'")
    _shapes(database, classes)
    for name, each in ROLLUPS.items():
        days = 2 if each.unit == "minute" else years * 365
        for first, begins, ends in _files(each.span, days):
            lake.replace(name, first, database.sql(_sums(name), params=[begins, ends]).to_arrow_table())
    for name in ("errors_hour", "errors_month"):
        for first, begins, ends in _files(SUMS[name].span, years * 365):
            rows = database.sql(_errors(name), params=[begins, ends, classes])
            lake.replace(name, first, rows.to_arrow_table())
    fill_raw(lake, years * 365, classes, raw)


def _shapes(database: duckdb.DuckDBPyConnection, classes: int) -> None:
    """A few histograms of each class (and queue) and unit: to sample those of every hour would take an hour itself."""
    shapes = []
    for number in range(classes):
        middle, wide = 150 + 7 * number % 90, 14 + number % 9
        shares = [math.exp(-(((bucket - middle) / wide) ** 2) / 2) for bucket in range(BUCKETS)]
        hourly = 2000 / (number + 1) + 20
        shapes.append((f"Class{number:03}", f"queue{number % QUEUES}", [hourly * s / sum(shares) for s in shares]))
    database.execute("CREATE TABLE shapes (class VARCHAR, queue VARCHAR, hourly DOUBLE[])")
    database.executemany("INSERT INTO shapes VALUES (?, ?, ?)", shapes)
    units = ", ".join(f"('{unit}', {hours})" for unit, hours in HOURS.items())
    database.execute(f"""CREATE TABLE buckets AS
        SELECT class, queue, unit, variant, b::INT AS bucket, n, floor(n * 1.02 * pow(1.05, b))::BIGINT AS us
        FROM (SELECT *, floor(hourly[b + 1] * hours + hash(variant, b, class) % 1000 / 1000)::BIGINT AS n
              FROM shapes, (VALUES {units}) AS u(unit, hours),
                range({VARIANTS}) AS v(variant), range({BUCKETS}) AS r(b))
        WHERE n > 0""")
    database.execute("""CREATE TABLE histograms AS
        SELECT class, queue, unit, variant, sum(n)::BIGINT AS count, sum(us)::BIGINT AS us,
            list({'bucket': bucket, 'n': n, 'us': us} ORDER BY bucket) AS histogram
        FROM (SELECT class, queue, unit, variant, bucket, sum(n)::BIGINT AS n, sum(us)::BIGINT AS us FROM buckets
              GROUP BY GROUPING SETS ((class, queue, unit, variant, bucket), (queue, unit, variant, bucket)))
        GROUP BY 1, 2, 3, 4""")


def _sums(name: str) -> str:
    unit, key = ROLLUPS[name].unit, ROLLUPS[name].key
    null = "NOT NULL" if "class" in key else "NULL"
    columns = ", ".join("'v1' AS code_version" if each == "code_version" else each for each in key)
    return f"""SELECT moment AS {unit}, {columns}, count, count // 100 AS failed, 0::BIGINT AS retried,
            count AS run_n, us AS run_us, 1::BIGINT AS run_min_us, 9000000::BIGINT AS run_max_us,
            count AS wait_n, us AS wait_us, 1::BIGINT AS wait_min_us, 9000000::BIGINT AS wait_max_us,
            histogram AS run_histogram, histogram AS wait_histogram
        FROM generate_series(to_timestamp($1), to_timestamp($2), INTERVAL 1 {unit}) AS s(moment)
        JOIN histograms ON unit = '{unit}' AND class IS {null} AND variant = hash(moment, class, queue) % {VARIANTS}
        WHERE moment < to_timestamp($2)"""


def _errors(name: str) -> str:
    """Each kind of error happens in one hour of ten."""
    unit = SUMS[name].unit
    last = "moment + INTERVAL 7 DAY AS last," if unit == "month" else ""
    share = 10 if unit == "hour" else 1
    return f"""SELECT moment AS {unit}, printf('Class%03d', c) AS class, printf('queue%d', c % {QUEUES}) AS queue,
            'Error' || e AS error_class, md5(c || ' ' || e)[1:12] AS fingerprint,
            (1 + hash(moment) % 9)::BIGINT AS count,
            1::BIGINT AS dead, {last} md5(moment || ' ' || c || e)[1:24] AS jid,
            'no answer of host ' || e AS error_message
        FROM generate_series(to_timestamp($1), to_timestamp($2), INTERVAL 1 {unit}) AS s(moment), range($3) AS r(c),
            range({ERRORS}) AS k(e)
        WHERE moment < to_timestamp($2) AND hash(moment, c, e) % {share} = 0"""


def fill_raw(lake: Lake, days: int, classes: int, rows: int) -> None:
    """Runs spread evenly over so many days, in the order of time."""
    database = duckdb.connect(config={"threads": 2})
    database.execute("SET TimeZone = 'UTC'")
    step = days * 86_400_000_000 / max(rows, 1)
    begins = int(UNTIL * 1_000_000) - days * 86_400_000_000
    names = [field.name for field in SCHEMAS["raw_metrics"]]
    for low in range(0, rows, 2_000_000):
        part, high = lake.new_part("raw_metrics"), min(rows, low + 2_000_000)
        database.execute(
            f"""COPY (SELECT {", ".join(f'"{name}"' for name in names)} FROM (SELECT *, "at"::DATE AS date FROM
                (SELECT 0::INT AS epoch, i AS "offset", 0::INT AS item, 'w' || i % 8 AS source, i AS seq,
                 make_timestamptz({begins} + (i * {step})::BIGINT) AS "at", md5(i::VARCHAR)[1:24] AS jid,
                 printf('Class%03d', hash(i) % {classes}) AS class, printf('queue%d', hash(i) % {QUEUES}) AS queue,
                 if(hash(i, 1) % 100 = 0, 'failed', 'success') AS status, hash(i, 2) % 100000 AS run_us,
                 hash(i, 3) % 30000 AS wait_us, 1::INT AS attempt, 'host:' || i % 8 AS worker,
                 NULL::VARCHAR AS error_class,
                 'v1' AS code_version, NULL::VARCHAR AS bad, NULL::BLOB AS body
                 FROM range({low}, {high}) AS r(i))))
            TO '{part}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (date))"""
        )
        lake.append("raw_metrics", part, "job_metrics", Mark(0, high))
    jids.index(lake)


def _files(span: str, days: int) -> Iterator[tuple[datetime.date, float, float]]:
    """The first day of each file that has something of the days before UNTIL; from when and to before when it is."""
    at = UNTIL - days * 86_400
    while at < UNTIL:
        first = _first(span, at)
        following = _first(span, first.timestamp() + {"day": 1, "month": 32, "year": 367}[span] * 86_400).timestamp()
        yield first.date(), first.timestamp(), min(following, UNTIL)
        at = following


def _first(span: str, at: float) -> datetime.datetime:
    day = datetime.datetime.fromtimestamp(at, datetime.UTC).replace(hour=0, minute=0, second=0)
    return day if span == "day" else day.replace(day=1) if span == "month" else day.replace(day=1, month=1)
