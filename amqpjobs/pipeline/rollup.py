"""Sums over the raw tables that merge: by minute, hour and day, and errors by hour.

Each table of sums is a fold of raw rows in the order of their offsets, with a mark of its own: what was added since is
summed up and appended as rows more. Several rows of one key are to be added, by whoever reads; `upkeep` does so for
good. Hence a late row counts in its own hour, however late it is, and no watermark drops it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from amqpjobs.history.buckets import BASE, NONE
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.tables import BY_NAME, ROLLUPS, SPANS

log = logging.getLogger("amqpjobs.pipeline")

UNITS = {"metrics_minute": "minute", "metrics_hour": "hour", "metrics_day": "day"}
_FAILURES = ("raw_dead", "raw_retries")
_LONGEST_MESSAGE = 500


def roll_up(spark: SparkSession, lake: Lake) -> list[str]:
    """Bring all tables of sums up to their raw tables; the names of those that changed."""
    changed = [name for name in ROLLUPS if _fold(spark, lake, name, "raw_metrics", _summing(UNITS[name]))]
    changed += ["errors_hour" for source in _FAILURES if _fold(spark, lake, "errors_hour", source, errors)]
    return changed


def _fold(spark: SparkSession, lake: Lake, name: str, source: str, summing: Callable[[DataFrame], DataFrame]) -> bool:
    """Append to a table the sums of what its source has beyond the table's mark; whether there was anything."""
    done, upto = lake.mark(name, source), lake.mark(source, BY_NAME[source].stream)
    if upto is None or (done is not None and done[:2] == upto[:2]):
        return False
    part = lake.new_part(name)
    files = lake.files(source, done)
    try:
        if files:
            rows = spark.read.parquet(*files).where(_between(done, upto))
            summing(rows).coalesce(1).write.partitionBy("date").parquet(str(part))
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    # What fails from here on may have failed after the commit: its files must stay.
    lake.append(name, part, source, Mark(upto.epoch, upto.next))
    return True


def _between(done: Mark | None, upto: Mark) -> Column:
    """Rows at or beyond one mark and below the other."""
    place = f.struct("epoch", "offset")
    below = place < f.struct(f.lit(upto.epoch), f.lit(upto.next).cast("long"))
    if done is None:
        return below
    return below & (place >= f.struct(f.lit(done.epoch), f.lit(done.next).cast("long")))


def _summing(unit: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: merged(_of_runs(rows, unit), unit)


_KEY = ("class", "queue", "code_version")


def _of_runs(rows: DataFrame, unit: str) -> DataFrame:
    """Each run as two figures, its run time and its wait. Runs that were taken and not run are not counted."""
    runs = rows.where("bad IS NULL AND status IN ('success', 'failed')")
    figures = f.expr(
        "stack(2, 'run', run_us, 1L, if(status = 'failed', 1L, 0L), if(attempt > 1, 1L, 0L),"
        " 'wait', wait_us, 0L, 0L, 0L) AS (kind, us, count, failed, retried)"
    )
    each = runs.select(f.date_trunc(unit, "at").alias(unit), *_KEY, figures)
    return each.select(
        unit,
        *_KEY,
        "kind",
        _bucket().alias("bucket"),
        "count",
        "failed",
        "retried",
        "us",
        f.expr("if(us IS NULL, 0L, 1L)").alias("n"),
        f.col("us").alias("least"),
        f.col("us").alias("most"),
    )


def _bucket() -> Column:
    inside = f.floor(f.log(f.col("us").cast("double")) / f.log(f.lit(BASE))).cast("int")
    return f.when(f.col("us") < 1, f.lit(NONE)).otherwise(inside)  # of no duration: null


def of_partials(rows: DataFrame, unit: str) -> DataFrame:
    """Rows of a table of sums as figures: their buckets, and one more for what is in no bucket."""
    zero, none = f.lit(0).cast("long"), f.lit(None)
    parts = []
    for kind in ("run", "wait"):
        own = [f.col(name) if kind == "run" else zero for name in ("count", "failed", "retried")]
        each = f.explode(f"{kind}_histogram").alias("b")
        buckets = rows.select(unit, *_KEY, f.lit(kind).alias("kind"), each)
        parts.append(
            buckets.select(
                unit, *_KEY, "kind", "b.bucket", zero, zero, zero, "b.us", "b.n", none.cast("long"), none.cast("long")
            )
        )
        parts.append(
            rows.select(
                unit,
                *_KEY,
                f.lit(kind),
                none.cast("int"),
                *own,
                none.cast("long"),
                zero,
                f"{kind}_min_us",
                f"{kind}_max_us",
            )
        )
    columns = (unit, *_KEY, "kind", "bucket", "count", "failed", "retried", "us", "n", "least", "most")
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole.toDF(*columns)


def merged(figures: DataFrame, unit: str) -> DataFrame:
    """Figures as rows of a table of sums, one a key."""
    sums = [f.sum(name).alias(name) for name in ("count", "failed", "retried", "n", "us")]
    extremes = [f.min("least").alias("least"), f.max("most").alias("most")]
    buckets = figures.groupBy(unit, *_KEY, "kind", "bucket").agg(*sums, *extremes)
    of = {kind: f.col("kind") == kind for kind in ("run", "wait")}
    filled = f.col("bucket").isNotNull()
    columns: list[Column] = [f.sum(name).alias(name) for name in ("count", "failed", "retried")]
    for kind, mine in of.items():
        columns += [
            f.sum(f.when(mine, f.col("n"))).alias(f"{kind}_n"),
            f.coalesce(f.sum(f.when(mine, f.col("us"))), f.lit(0)).alias(f"{kind}_us"),
            f.min(f.when(mine, f.col("least"))).alias(f"{kind}_min_us"),
            f.max(f.when(mine, f.col("most"))).alias(f"{kind}_max_us"),
        ]
    histograms = [
        f.sort_array(f.collect_list(f.when(mine & filled, f.struct("bucket", "n", "us")))).alias(f"{kind}_histogram")
        for kind, mine in of.items()
    ]
    whole = buckets.groupBy(unit, *_KEY).agg(*columns, *histograms)
    return whole.withColumn("date", _first_day(f"metrics_{unit}", unit))


def errors(rows: DataFrame) -> DataFrame:
    """Failures of a raw table by hour, class, queue and kind of error, with one of their jobs and its message."""
    failures = rows.where("bad IS NULL AND type IN ('retry', 'dead_job')")
    first = f.struct("epoch", "offset", "item")
    hours = failures.groupBy(
        f.date_trunc("hour", "at").alias("hour"), "class", "queue", "error_class", "fingerprint"
    ).agg(
        f.count("*").alias("count"),
        f.sum(f.expr("if(type = 'dead_job', 1L, 0L)")).alias("dead"),
        f.min_by("jid", first).alias("jid"),
        f.substring(f.min_by("error_message", first), 1, _LONGEST_MESSAGE).alias("error_message"),
    )
    return hours.withColumn("date", _first_day("errors_hour", "hour"))


def worker_hours(beats: DataFrame) -> DataFrame:
    """Hours by process. A beat has its time, so one that came twice counts once."""
    once = beats.where("bad IS NULL AND at IS NOT NULL").dropDuplicates(["identity", "nonce", "at"])
    hours = once.groupBy(f.date_trunc("hour", "at").alias("hour"), "identity", "nonce").agg(
        f.count("*").alias("beats"),
        f.sum(f.col("busy").cast("long")).alias("busy"),
        f.sum(f.col("concurrency").cast("long")).alias("concurrency"),
        f.max("rss_kb").alias("rss_max_kb"),
    )
    return hours.withColumn("date", _first_day("heartbeats_hour", "hour"))


def _first_day(table: str, time: str) -> Column:
    """The first day of what a file of the table spans."""
    return f.to_date(f.date_trunc(SPANS[table], time))


def _added_errors(rows: DataFrame) -> DataFrame:
    keys = ("hour", "class", "queue", "error_class", "fingerprint")
    sums = [f.sum(name).alias(name) for name in ("count", "dead")]
    return rows.groupBy(*keys).agg(*sums, f.first("jid").alias("jid"), f.first("error_message").alias("error_message"))


def _added_worker_hours(rows: DataFrame) -> DataFrame:
    sums = [f.sum(name).alias(name) for name in ("beats", "busy", "concurrency")]
    return rows.groupBy("hour", "identity", "nonce").agg(*sums, f.max("rss_max_kb").alias("rss_max_kb"))


ADDED: dict[str, Callable[[DataFrame], DataFrame]] = {
    **{name: lambda rows, unit=unit: merged(of_partials(rows, unit), unit) for name, unit in UNITS.items()},  # type: ignore[misc]
    "errors_hour": _added_errors,
    "heartbeats_hour": _added_worker_hours,
}
"""Of each table of sums: its rows, one a key."""
